"""What plugin authors import from assay.plugin: a name that goes or moves breaks their packages."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay import plugin, plugins
from assay.plugin import Adapter, Benchmark, Executor, Grade, Grader, Prompt, Watch, World
from assay.records.spec import PluginRef

SRC = Path(__file__).parents[1] / "src"

NAMES = """
    Adapter AgentInfo Answer AnyStep Ask AssayError Benchmark CannotRunError Capture Cause Command
    ConfinedProgram Dialogue Events Executor Failure Finished Grade Grader Host Image InputError
    Interrupted KeptContainer Limits Machine Message OutOfResources OutputError PastSession PastTurn
    Plan PluginError PluginRef Prompt PromptRow RawLine Reading Recording Served SpawnError Started
    Surroundings Thought ToolCall Trial TrialSpec Turn TurnEnd Usage UsageError Watch World
"""
HOOKS = {
    Adapter: """
        base_urls check_trials command content_hash dialogue first_start_alone forgets
        instructions_file linger_s model_keys name offers_mcp_servers past_sessions plain_text
        provider provider_settings read reader_version reads reads_in_home redirect skills_folder
        timeout_ms warnings watch
    """,
    Watch: "ended events feed output over_limit result session_id",
    Grader: """
        asks changes child_function file_options files folder freeze grade grade_many load name
        only_computes sees version wants_repository wants_snapshot
    """,
    Executor: "connect map",
    World: "container env evidence hidden hidden_env mcp_servers mounts repetitive visible",
    Benchmark: "check_output files fit_trials grades_failed_trials graders has_images "
    "needs_workspace prepare_process prompts replay world",
}
"""What a plugin of each kind may define."""
REQUIRED = {"command", "read", "grade", "version", "map", "prompts"}


def test_the_public_names_are_these() -> None:
    assert sorted(plugin.__all__) == sorted(NAMES.split())
    assert all(hasattr(plugin, name) for name in plugin.__all__)


@pytest.mark.parametrize("base", HOOKS, ids=lambda base: base.__name__)
def test_a_base_class_has_these_hooks_and_each_is_documented(base: type) -> None:
    defined = {name for name in {*vars(base), *base.__annotations__} if not name.startswith("_")}
    assert sorted(defined) == sorted(HOOKS[base].split())
    source = (SRC / "assay/plugin.py").read_text()
    body = source.split(f"class {base.__name__}:")[1].split("\n\n\n")[0]
    for name in defined - {"name"}:
        stated = rf'^    {name}: .*\n    """|def {name}(\[.*\])?\((\n.*\n    )?.*\).*:\n        """'
        assert re.search(stated, body, re.MULTILINE), f"{base.__name__}.{name} has no docstring"


@pytest.mark.parametrize("base", HOOKS, ids=lambda base: base.__name__)
def test_what_is_not_required_has_a_default(base: type) -> None:
    bare = base()
    for name in set(HOOKS[base].split()) - REQUIRED - {"name"}:
        getattr(bare, name)


def test_nothing_asks_whether_a_plugin_has_an_attribute() -> None:
    hooks = {name for names in HOOKS.values() for name in names.split()}
    asked = re.compile(r"(?:get|has)attr\((.*?), \"(\w+)\"")
    found = [
        f"{path.relative_to(SRC)}: {match[0]}"
        for path in SRC.rglob("*.py")
        for match in asked.finditer(path.read_text())
        if match[2] in hooks - REQUIRED - {"name"} and match[1] != "factory"  # maybe a function
    ]
    assert found == []


class Plain:
    """A grader as it was written before there were base classes."""

    name = "plain"
    version = "1"

    def grade(self, trial: Any, host: Any) -> Grade:
        if trial.output == "broken":
            raise LookupError(trial.output)
        return Grade(pass_=trial.output == "yes", score=1.0)

    @property
    def sees(self) -> None:
        return self.no_such_attribute  # type: ignore[attr-defined]


class Record(msgspec.Struct, frozen=True):
    """One that has no room for other attributes."""

    name: str = "record"
    wants_snapshot: bool = True

    def load(self, host: Any) -> str:
        return f"loaded by {self.name}"


def test_a_plain_class_is_a_plugin_too() -> None:
    grader = plugins.with_defaults(Grader, Plain())
    assert isinstance(grader, Grader)
    assert isinstance(grader, Plain)
    assert (grader.name, grader.version, grader.wants_snapshot) == ("plain", "1", False)
    trials = [plugin.Trial(input="", output=text) for text in ("yes", "no", "broken")]
    yes, no, broken = grader.grade_many(trials, None)  # type: ignore[arg-type]
    assert (yes.pass_, no.pass_) == (True, False)  # type: ignore[union-attr]
    assert isinstance(broken, LookupError)


def test_a_plain_class_keeps_its_own_hooks_and_its_own_errors() -> None:
    record: Any = plugins.with_defaults(Grader, Record())
    assert record.wants_snapshot
    assert record.load(None) == "loaded by record"
    assert record.changes(None) == []
    grader: Any = plugins.with_defaults(Grader, Plain())
    with pytest.raises(AttributeError, match="no_such_attribute"):
        _ = grader.sees
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = grader.unheard_of


def test_what_inherits_is_used_as_it_is() -> None:
    @dataclass
    class Mine(Grader):
        version: str
        name: str = "mine"
        files: list[str] = field(default_factory=list)

    mine = Mine("7")
    assert plugins.with_defaults(Grader, mine) is mine
    assert (mine.version, mine.files, mine.sees) == ("7", [], None)
    mine.version = "8"
    assert mine.version == "8"


def test_every_built_in_inherits_from_its_base_class() -> None:
    bases = {"graders": Grader, "benchmarks": Benchmark, "executors": Executor}
    for group, base in bases.items():
        for name in plugins.BUILT_IN[f"assay.{group}"]:
            assert issubclass(plugins._load(f"assay.{group}", name), base), name
    for name, options in (("demo", {}), ("claude", {}), ("shell", {"template": "x"})):
        ref = PluginRef(name=name, options=options)
        assert isinstance(plugins._build("assay.adapters", ref), Adapter)


def test_a_benchmark_may_give_prompts_alone_or_with_more_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from assay.pipeline.prompts import read_prompts

    class Both:
        given: Any = (Prompt(id="a", input="x"), (Prompt(id="b", input="y"), {"source": "here"}))

        def prompts(self) -> Any:
            return self.given

    monkeypatch.setattr(plugins, "_load", lambda group, name: Both)
    monkeypatch.setattr(plugins, "_plugins", {})
    rows = read_prompts(PluginRef(name="both"))
    assert [(prompt.id, extra) for prompt, extra in rows] == [("a", {}), ("b", {"source": "here"})]
    monkeypatch.setattr(Both, "given", [Prompt(id="a", input="x"), {"id": "b", "input": "y"}])
    with pytest.raises(plugin.PluginError, match="benchmark both, prompt 2: expected a Prompt"):
        read_prompts(PluginRef(name="both"))


def test_every_protocol_and_record_of_the_module_is_public() -> None:
    defined = {name for name, value in vars(plugin).items() if _is_ours(value)}
    assert defined <= set(plugin.__all__)


def test_a_third_party_benchmark_needs_nothing_else() -> None:
    source = Path(__file__).parent / "packages" / "ledger" / "ledger.py"
    imported = {
        node.module
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("assay")
    }
    assert imported == {"assay.plugin"}


def _is_ours(value: object) -> bool:
    is_class = isinstance(value, type) and value.__module__ == "assay.plugin"
    return is_class and not value.__name__.startswith("_")
