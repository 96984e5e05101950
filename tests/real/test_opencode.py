"""What only OpenCode has or does, live."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

Play = Callable[..., Any]


def variables(url: str) -> dict[str, str]:
    limit = {"context": 200000, "output": 8000}
    model = {"name": "Mock", "reasoning": True, "tool_call": True, "limit": limit}
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy", "timeout": 60000}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"provider": {"mock": {**provider, "models": {"mock-model": model}}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


@pytest.fixture
def play(live: Play) -> Play:
    def run(script: dict[str, Any], *inputs: Any, args: tuple[str, ...] = (), **more: Any) -> Any:
        args = ("--model", "mock/mock-model", *args)
        return live("opencode", script, *inputs, env=variables, args=args, **more)

    return run


def test_sub_agent_comes_from_the_database(play: Play) -> None:
    given = {"description": "sub job", "prompt": "SUBJOB do it", "subagent_type": "general"}
    call = {"tool": "shell", "command": "echo sub; exit 4"}
    inner = {"thinking": "hm", "text": "sub says", "calls": [call]}
    thread = {"when": {"firstUserContains": "SUBJOB"}, "steps": [inner, {"text": "Sub report."}]}
    task = {"name": "task", "arguments": given, "id": "call_task"}
    done = play({"steps": [{"calls": [task]}, {"text": "Main end."}], "threads": [thread]})
    steps = done.row["trajectory"]
    told = [(s["type"], s.get("name") or s["content"], s.get("parent")) for s in steps]
    assert told == [
        ("tool_call", "task", None),
        ("thought", "hm", "call_task"),
        ("message", "sub says", "call_task"),
        ("tool_call", "bash", "call_task"),
        ("message", "Sub report.", "call_task"),
        ("message", "Main end.", None),
    ]
    assert (steps[3]["status"], steps[3]["exitCode"]) == ("failed", 4)
    assert steps[0]["timestamp"] <= steps[3]["timestamp"] <= steps[-1]["timestamp"]
    assert done.row["usage"]["inputTokens"] == 400
    assert "costUsd" not in done.row["usage"]
    assert done.row["output"] == "Main end."


def test_todo_list_becomes_a_plan(play: Play) -> None:
    todos = [{"content": "First", "status": "pending", "priority": "high"}]
    call = {"name": "todowrite", "arguments": {"todos": todos}}
    done = play({"steps": [{"calls": [call]}, {"text": "Planned."}]})
    assert [plan["entries"] for plan in done.steps("plan")] == [todos]
    assert [call["name"] for call in done.steps("tool_call")] == ["todowrite"]


def test_calls_that_cannot_be(play: Play) -> None:
    calls = [
        {"name": "no_such_tool", "arguments": {"a": 1}},
        {"name": "read", "arguments": {"filePath": "/nowhere/x.txt"}},
    ]
    done = play({"steps": [{"calls": calls}, {"text": "End."}]})
    told = {step["name"]: step["status"] for step in done.steps("tool_call")}
    assert told == {"no_such_tool": "failed", "read": "failed"}
    assert done.row["output"] == "End."


def test_unknown_model(play: Play) -> None:
    done = play({"steps": [{"text": "x"}]}, args=("--model", "mock/none"))
    assert done.row["failure"]["cause"] == "provider", done.row


def test_first_starts_in_a_new_home_do_not_collide(live: Play, tmp_path: Path) -> None:
    """Without --isolate they share a HOME, whose database the first one makes."""
    home = tmp_path / "home"
    home.mkdir()

    def fresh(url: str) -> dict[str, str]:
        names = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        folders = {name: str(home / name.lower()) for name in names}
        quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}
        return {**variables(url), **folders, **quiet, "HOME": str(home)}

    args = ("--model", "mock/mock-model", "-j", "4")
    done = live(
        "opencode", {"steps": [{"text": "Done."}]}, *["Do it."] * 4,
        env=fresh, args=args, isolate=False,
    )  # fmt: skip
    assert [row.get("failure") for row in done.rows] == [None] * 4, done.rows
    assert [row["output"] for row in done.rows] == ["Done."] * 4
