"""What plugin authors import from assay.plugin: a name that goes or moves breaks their packages."""

import ast
from pathlib import Path

from assay import plugin

NAMES = """
    Adapter AgentInfo AnyStep Ask AssayError Benchmark Capture Cause Command ConfinedProgram
    Dialogue Events Executor Failure Finished Grade Grader Host InputError Interrupted Limits
    Machine Message OutputError Plan PluginError PluginRef Prompt PromptRow RawLine Reading
    Recording Served SpawnError Started Surroundings Thought ToolCall Trial TrialSpec Turn TurnEnd
    Usage UsageError Watch World
"""


def test_the_public_names_are_these() -> None:
    assert sorted(plugin.__all__) == sorted(NAMES.split())
    assert all(hasattr(plugin, name) for name in plugin.__all__)


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
    return isinstance(value, type) and value.__module__ == "assay.plugin"
