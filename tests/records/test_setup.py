"""A trial whose agent lacked something that was asked for: what is said of it."""

from typing import Any

import msgspec
import pytest

from assay.records.setup import SetupReader, is_another_model, setup_problems
from assay.records.trial.views import SetupView

CLAUDE = {"adapter": "claude", "offered": {".claude/skills/relnotes/SKILL.md": "ab12"}}


def problems(setup: Any = None, identity: Any = None, model: Any = None, denials: Any = 0) -> Any:
    return list(setup_problems(setup, identity, model, denials))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("failed", 'MCP server "adder" failed to start'),
        ("needs-auth", 'MCP server "adder" needs authentication'),
        ("missing", 'MCP server "adder" was given but is not listed by the agent'),
        ("unknown", 'MCP server "adder" may have failed to start'),
        ("disabled", 'MCP server "adder" was not connected (status "disabled")'),
        (None, 'MCP server "adder" was not connected (status "None")'),
    ],
)
def test_a_server_that_is_not_up_is_named(status: Any, words: str) -> None:
    assert problems({"mcpServers": [{"name": "adder", "status": status}]}) == [words]


@pytest.mark.parametrize("status", ["connected", "ready", "pending"])
def test_a_server_that_is_up_or_starting_is_none(status: str) -> None:
    assert problems({"mcpServers": [{"name": "adder", "status": status}]}, {"mcp": "ab"}) == []


def test_servers_were_given_and_none_is_listed() -> None:
    words = ["the agent lists no MCP server although --mcp was given"]
    assert problems({"mcpServers": []}, {"mcp": "ab12"}) == words
    assert problems({"mcpServers": []}, {"mcp": ""}) == []
    assert problems({}, {"mcp": "ab12"}) == []  # an agent that lists nothing says nothing


def test_a_skill_that_the_agent_does_not_list_is_named() -> None:
    words = ['skill "relnotes" was offered but is not listed by the agent']
    assert problems({"skills": ["debug"]}, CLAUDE) == words
    assert problems({"skills": ["debug", "relnotes"]}, CLAUDE) == []
    assert problems({"skills": ["mine:relnotes"]}, CLAUDE) == []
    assert problems({}, CLAUDE) == []


@pytest.mark.parametrize(
    ("path", "is_read"),
    [
        ("../../.claude/skills/relnotes/SKILL.md", True),
        ("~/.claude/skills/relnotes/SKILL.md", True),
        ("/repo/.claude/skills/relnotes/SKILL.md", True),
        ("packages/a/.claude/skills/relnotes/SKILL.md", False),  # found when the agent works there
        (".opencode/skills/relnotes/SKILL.md", False),  # another agent's
        (".claude/skills/relnotes/notes.md", False),
        ("CLAUDE.md", False),
    ],
)
def test_only_skills_that_the_agent_reads_at_its_start_count(path: str, is_read: bool) -> None:
    found = problems({"skills": []}, {"adapter": "claude", "offered": {path: "ab12"}})
    assert bool(found) == is_read


def test_a_plugin_that_did_not_load_is_named() -> None:
    errors = [{"name": "badplug", "type": "generic-error"}]
    assert problems({"pluginErrors": errors}) == ['plugin "badplug" did not load']


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("opus", "claude-opus-4-1-20250805"),
        ("sonnet[1m]", "claude-sonnet-4-5[1m]"),
        ("claude-opus-4-1", "claude-opus-4-1-20250805"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022"),
        ("anthropic/claude-opus-4-1", "claude-opus-4-1"),
        ("anthropic/claude-opus-4.1", "us.anthropic.claude-opus-4-1-20250805-v1:0"),
        ("gemini-2.5-pro", "gemini-2.5-pro-preview-05-06"),
        ("openai/gpt-5#high", "gpt-5"),
        ("auto", "gemini-2.5-pro"),
        ("default", "claude-sonnet-4-5"),
        ("opusplan", "claude-sonnet-4-5"),
        ("opus", "glm-4.7"),  # an alias that the user has mapped
        ("mock/mock-model", "mock/mock-model"),
        ("", "claude-sonnet-4-5"),
    ],
)
def test_one_model_in_two_spellings_is_no_problem(asked: str, used: str) -> None:
    assert not is_another_model(asked, used)


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("opus", "claude-sonnet-4-5"),
        ("flash", "gemini-2.5-pro"),
        ("claude-opus-4-1", "claude-opus-4-5"),
        ("claude-opus-4-1", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "glm-4.7"),
        ("gpt-5", "gpt-5-mini"),
        ("gpt-5.5", "gpt-5.2"),
        ("gemini-2.5-pro", "gemini-2.5-flash"),
        ("mock/mock-model", "mock/other"),
    ],
)
def test_another_model_is_named(asked: str, used: str) -> None:
    assert is_another_model(asked, used)
    words = [f'model "{used}" was used instead of "{asked}"']
    assert problems({}, {"model": asked}, used) == words


def test_the_model_that_answered_counts_before_the_one_at_the_start() -> None:
    found = problems({"answeredBy": "glm-4.7"}, {"model": "claude-opus-4-1"}, "claude-opus-4-1")
    assert found == ['model "glm-4.7" was used instead of "claude-opus-4-1"']


@pytest.mark.parametrize(
    ("setup", "adapter", "words"),
    [
        ({"permissionMode": "default"}, "claude", ['permission mode "default" denied tool calls']),
        ({"permissionMode": "dontAsk"}, "claude", ['permission mode "dontAsk" denied tool calls']),
        ({"approvalMode": "plan"}, "gemini", ['permission mode "plan" denied tool calls']),
        ({"permissionMode": "bypassPermissions"}, "claude", []),
        ({"approvalMode": "yolo"}, "gemini", []),
        ({}, "opencode", ["a permission rule denied tool calls"]),
        ({}, "declared", []),
    ],
)
def test_a_permission_mode_that_denies(setup: Any, adapter: str, words: list[str]) -> None:
    assert problems(setup, {"adapter": adapter}, None, 2) == words
    assert problems(setup, {"adapter": adapter}, None, 0) == []


ODD: list[Any] = [None, 3, 1.5, True, "x", [], {}, [None], [3], ["x"], {"x": None}, [{}], [[]]]


@pytest.mark.parametrize("value", ODD)
def test_odd_types_are_survived(value: Any) -> None:
    names = ("mcpServers", "skills", "plugins", "pluginErrors", "answeredBy", "permissionMode")
    given = {name: value for name in ("adapter", "model", "mcp", "offered")}
    problems(value, value, value, value)
    problems(dict.fromkeys(names, value), given, value, value)
    problems({"mcpServers": [{"name": value, "status": value}]}, given, value, value)
    problems({"skills": []}, given | {"offered": {".claude/skills/x/SKILL.md": value}})
    row = {"setup": value, "identity": value, "agent": value, "permissionDenials": value}
    view = msgspec.json.decode(msgspec.json.encode(row), type=SetupView)
    SetupReader().problems_in(view)
