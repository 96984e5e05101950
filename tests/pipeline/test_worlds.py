"""Worlds of a benchmark in a run: the folders that they are given, and what graders see of them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from assay import plugins
from assay.pipeline.run import RunRequest, execute, plan
from assay.plugin import Benchmark, Grade, Grader, PluginRef, Prompt, TurnEnd, World


class Opened(World):
    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        return {"exit": last.exit_code if last else None}


class Words(Benchmark):
    given: ClassVar[list[Path]] = []

    def prompts(self) -> Iterator[Prompt]:
        yield Prompt(id="a", input="x")

    def graders(self) -> list[PluginRef]:
        return [PluginRef(name="seen")]


class Opens(Words):
    @contextmanager
    def world(self, spec: Any, workspace: Path, host: Any) -> Iterator[World]:
        self.given.append(workspace)
        yield Opened()


class Careful(Opens):
    needs_workspace = False


class Demanding(Words):
    needs_workspace = True


class Plain:
    """One that does not inherit from Benchmark."""

    prompts, graders, world = Words.prompts, Words.graders, Opens.world
    given: ClassVar[list[Path]] = Words.given


class Seen(Grader):
    name, version = "seen", "1"

    def grade(self, trial: Any, host: Any) -> Grade:
        return Grade(pass_=trial.evidence == {"exit": 0}, score=1.0, outcome=dict(trial.evidence))


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = {each.__name__: each for each in (Words, Opens, Careful, Demanding, Plain, Seen)}
    monkeypatch.setitem(sys.modules, "worlds_package", SimpleNamespace(**classes))
    for name in ("Words", "Opens", "Careful", "Demanding", "Plain"):
        target = f"worlds_package:{name}"
        monkeypatch.setitem(plugins.BUILT_IN["assay.benchmarks"], name.lower(), target)
    monkeypatch.setitem(plugins.BUILT_IN["assay.graders"], "seen", "worlds_package:Seen")
    monkeypatch.setattr(plugins, "_plugins", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Words.given.clear()


def run(name: str, folder: Path, **more: Any) -> tuple[list[Any], list[str]]:
    agent = PluginRef(name="shell", options={"template": "true"})
    request = RunRequest(prompts=PluginRef(name=name), agent=agent, cwd=folder, k=2, **more)
    batch = plan(request)
    return list(execute(batch)), [note.text for note in batch.notes]


@pytest.mark.parametrize("name", ["opens", "plain"])
def test_each_trial_that_has_a_world_gets_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    _, notes = run(name, tmp_path)
    first, second = Words.given
    assert first != second
    assert tmp_path / "cache" in first.parents
    assert tmp_path / "cache" in second.parents
    (note,) = notes
    assert note.startswith(f"Each trial of the benchmark {name} works in a folder of its own below")


def test_a_benchmark_may_leave_the_agents_in_the_users_folder(tmp_path: Path) -> None:
    _, notes = run("careful", tmp_path)
    assert Words.given == [tmp_path, tmp_path]
    assert notes[0].startswith(f"The agent works in {tmp_path} itself")


@pytest.mark.parametrize(("name", "is_shared"), [("words", True), ("demanding", False)])
def test_a_benchmark_without_worlds_may_ask_for_folders(
    name: str, is_shared: bool, tmp_path: Path
) -> None:
    batch = plan(
        RunRequest(
            prompts=PluginRef(name=name),
            agent=PluginRef(name="shell", options={"template": "true"}),
            cwd=tmp_path,
        )
    )
    (spec,) = batch.specs
    assert (spec.surroundings.workspace_dir is None) == is_shared


def test_a_world_is_given_no_folder_that_the_user_has_filled(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "own" / f"prompt-a-trial-{number}").mkdir(parents=True)
    run("opens", tmp_path, workspace_dir=tmp_path / "own")
    names = [path.name for path in Words.given]
    assert names == ["prompt-a-trial-1.2", "prompt-a-trial-2.2"]


def test_graders_see_the_evidence_of_the_world(tmp_path: Path) -> None:
    trials, _ = run("careful", tmp_path)
    assert [trial.passed for trial in trials] == [True, True]
