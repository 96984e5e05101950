"""Real agents through `assay capture`, the same scenarios for each, the same record of them."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

MCP_SERVER = Path(__file__).with_name("mcp_adder.py")
SECRET = "sk-live-0123456789abcdef"
HANG = {"tool": "shell", "command": "tail -f /dev/null"}


def claude_env(url: str) -> dict[str, str]:
    key = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": SECRET}
    return {**key, "CLAUDE_CODE_MAX_RETRIES": "2"}


def opencode_env(url: str) -> dict[str, str]:
    limit = {"context": 200000, "output": 8000}
    price = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
    model = {"name": "Mock", "reasoning": True, "tool_call": True, "limit": limit, "cost": price}
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}", "timeout": 60000}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"enabled_providers": ["mock"], "share": "disabled", "autoupdate": False}
    config["provider"] = {"mock": {**provider, "models": {"mock-model": model}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "MOCK_API_KEY": SECRET}


@dataclass(frozen=True)
class Kind:
    """What differs between the agents."""

    env: Callable[[str], dict[str, str]]
    model: str
    version: str
    shell: str
    mcp_tool: str
    tokens: dict[str, int]
    """Of one answer that used 120 in, 30 out, 40 and 8 cached, 7 for thinking."""
    gives_up: bool = True
    """Whether it ends by itself when the provider fails again and again."""


AGENTS = {
    "claude": Kind(
        claude_env, "claude-sonnet-4-5", "2.1.325", "Bash", "mcp__adder__{}",
        {"inputTokens": 120, "outputTokens": 37, "cacheReadTokens": 40, "cacheWriteTokens": 8},
    ),
    "opencode": Kind(
        opencode_env, "mock/mock-model", "1.18.33", "bash", "adder_{}",
        {"inputTokens": 128, "outputTokens": 30, "cacheReadTokens": 40, "cacheWriteTokens": 0,
         "reasoningTokens": 7},
        gives_up=False,
    ),
}  # fmt: skip
Play = Callable[..., Any]


@pytest.fixture(params=AGENTS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return AGENTS[request.param]


@pytest.fixture
def play(live: Play, kind: Kind) -> Play:
    name = next(name for name, known in AGENTS.items() if known is kind)

    def run(script: dict[str, Any], *inputs: Any, args: tuple[str, ...] = (), **more: Any) -> Any:
        args = ("--model", kind.model, *args)
        return live(name, script, *inputs, **{"env": kind.env, **more}, args=args)

    return partial(run)


def test_answer_and_tokens(play: Play, kind: Kind) -> None:
    usage = {"input": 120, "output": 30, "cacheRead": 40, "cacheWrite": 8, "reasoning": 7}
    done = play({"steps": [{"text": "Four, and ünïcode ✓ 你好.", "usage": usage}]}, "2+2? ≠ ✗")
    assert "failure" not in done.row, done
    assert done.row["output"] == "Four, and ünïcode ✓ 你好."
    assert [s["content"] for s in done.steps("message")] == ["Four, and ünïcode ✓ 你好."]
    told = done.row["usage"]
    assert {key: told.get(key) for key in kind.tokens} == kind.tokens
    assert told["costUsd"] > 0
    assert told["costSource"] == "reported"
    assert done.row["timing"]["inputTokens"] == kind.tokens["inputTokens"]
    assert done.row["agent"]["version"] == kind.version
    assert done.row["agent"]["model"] == kind.model
    assert done.row["sessionId"]
    assert done.row["events"]["unknown"] == {}
    assert done.row["events"]["terminal"] is True
    assert done.requests[0].last_user.strip() == "2+2? ≠ ✗"
    assert done.alive() == []


def test_thinking(play: Play) -> None:
    done = play({"steps": [{"thinking": "I add two and two.", "text": "Four."}]})
    assert [s["content"] for s in done.steps("thought")] == ["I add two and two."]
    assert done.row["trajectory"][-1]["content"] == "Four."


def test_tool_writes_a_file(play: Play, kind: Kind) -> None:
    call = {"tool": "shell", "command": "echo made > made.txt && echo said-it"}
    done = play({"steps": [{"text": "I write.", "calls": [call]}, {"text": "Done."}]})
    assert (done.workspace / "made.txt").read_text() == "made\n"
    (told,) = done.steps("tool_call")
    assert (told["name"], told["status"], told["exitCode"]) == (kind.shell, "completed", 0)
    assert told["input"]["command"] == call["command"]
    assert told["output"].strip() == "said-it"
    assert told["callId"]
    assert told["duration"] > 0
    assert done.row["output"] == "Done."
    assert done.row["toolErrors"] is False


def test_failing_tool(play: Play, kind: Kind) -> None:
    call = {"tool": "shell", "command": "echo oops >&2; exit 3"}
    done = play({"steps": [{"calls": [call]}, {"text": "It failed."}]})
    (told,) = done.steps("tool_call")
    assert (told["status"], told["exitCode"]) == ("failed", 3)
    assert "oops" in told["output"]
    assert told["error"]
    assert done.row["toolErrors"] is True
    assert "failure" not in done.row


def test_parallel_tools(play: Play) -> None:
    calls = [
        {"tool": "shell", "command": f"echo {word} > {word}.txt; echo {word}"} for word in "ab"
    ]
    done = play({"steps": [{"calls": calls}, {"text": "Both."}]})
    told = {step["input"]["command"]: step["output"].strip() for step in done.steps("tool_call")}
    assert told == {calls[0]["command"]: "a", calls[1]["command"]: "b"}
    assert len({step["callId"] for step in done.steps("tool_call")}) == 2
    assert len(done.requests) == 2


def test_two_turns_by_resume(play: Play, kind: Kind) -> None:
    usage = {"input": 100, "output": 20}
    steps = [{"text": "First.", "usage": usage}]
    steps += [{"text": "Second.", "usage": usage, "expect": ["First.", "turn one"]}]
    done = play({"steps": steps}, ["turn one", "turn two"])
    assert "failure" not in done.row, done.row
    assert done.row["output"] == "Second."
    told = [(step["turn"], step["content"]) for step in done.steps("message")]
    assert told == [(1, "First."), (2, "Second.")]
    assert (done.row["usage"]["inputTokens"], done.row["usage"]["outputTokens"]) == (200, 40)
    assert [turn["inputTokens"] for turn in done.row["turnUsage"]] == [100, 100]
    one, two = (turn["costUsd"] for turn in done.row["turnUsage"])
    assert one == pytest.approx(two)
    assert done.row["usage"]["costUsd"] == pytest.approx(one + two)


def test_mcp_tool(play: Play, kind: Kind, tmp_path: Path) -> None:
    adder = {"command": sys.executable, "args": [str(MCP_SERVER)], "env": {"WHO": "${ASKED_BY}"}}
    broken = {"command": "/no/such/program"}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"adder": adder, "broken": broken}}))
    calls = [
        {"tool": "mcp", "server": "adder", "name": "add", "arguments": {"a": 2, "b": 3}},
        {"tool": "mcp", "server": "adder", "name": "boom"},
        {"tool": "mcp", "server": "adder", "name": "whoami"},
    ]
    env = {"ASKED_BY": "the-tester"}
    done = play(
        {"steps": [{"calls": calls}, {"text": "Five."}]},
        args=("--mcp", str(path)),
        env=lambda url: {**kind.env(url), **env},
    )
    told = {step["name"]: step for step in done.steps("tool_call")}
    add, boom, who = (told[kind.mcp_tool.format(name)] for name in ("add", "boom", "whoami"))
    assert (add["status"], add["output"], add["input"]) == ("completed", "5", {"a": 2, "b": 3})
    assert boom["status"] == "failed"
    assert "boom failed" in boom["output"]
    assert who["output"] == "the-tester"
    servers = {server["name"]: server["status"] for server in done.row["setup"]["mcpServers"]}
    assert servers == {"adder": "connected", "broken": "failed"}


def test_unauthorised(play: Play) -> None:
    fault = {"status": 401, "message": "no such key", "times": "always"}
    done = play({"steps": [{"text": "never", "faults": [fault]}]})
    assert done.row["failure"]["cause"] == "auth", done.row


def test_too_many_requests_then_success(play: Play) -> None:
    fault = {"status": 429, "headers": {"retry-after": "1"}, "times": 1}
    done = play({"steps": [{"text": "Now it works.", "faults": [fault]}]})
    assert "failure" not in done.row, done.row
    assert done.row["output"] == "Now it works."
    assert done.row["providerRetries"] == 1


# OpenCode retries until the limit of 20 s
def test_provider_that_fails_for_good(play: Play, kind: Kind) -> None:
    fault = {"status": 500, "message": "it is broken", "times": "always"}
    timeout_ms = 60_000 if kind.gives_up else 20_000
    done = play({"steps": [{"text": "never", "faults": [fault]}]}, timeout_ms=timeout_ms)
    assert done.row["failure"]["cause"] == "provider", done.row
    assert done.row["providerRetries"] >= 2
    assert done.row["metadata"]["timedOut"] is not kind.gives_up
    assert done.alive() == []


def test_model_that_hangs(play: Play) -> None:
    done = play(
        {"steps": [{"text": "never", "faults": [{"hang": True, "times": "always"}]}]},
        timeout_ms=15_000,
    )
    assert done.row["failure"]["cause"] == "agent_timeout", done.row
    assert done.row["metadata"]["timedOut"] is True
    assert done.alive() == []


def test_killed_in_mid_tool_call(play: Play, kind: Kind) -> None:
    began = time.monotonic()
    done = play(
        {"steps": [{"text": "I start.", "calls": [HANG]}, {"text": "x"}]}, timeout_ms=15_000
    )
    assert time.monotonic() - began < 40
    assert done.row["failure"]["cause"] == "agent_timeout", done.row
    assert [step["content"] for step in done.steps("message")] == ["I start."]
    (told,) = done.steps("tool_call")
    assert (told["name"], told["input"]["command"]) == (kind.shell, HANG["command"])
    assert told["status"] != "completed"
    assert done.alive() == []


def test_much_tool_output(play: Play) -> None:
    command = f"{sys.executable} -c \"print('é' * 200000)\""
    done = play({"steps": [{"calls": [{"tool": "shell", "command": command}]}, {"text": "Much."}]})
    assert "failure" not in done.row, done.row
    assert done.row["output"] == "Much."
    (told,) = done.steps("tool_call")
    assert "é" * 1000 in told["output"]
    assert done.row["events"]["unknown"] == {}


def test_secret_appears_nowhere(play: Play, kind: Kind) -> None:
    name = "ANTHROPIC_API_KEY" if kind.shell == "Bash" else "MOCK_API_KEY"
    call = {"tool": "shell", "command": f"echo key=${name}; echo ${name} > note.txt"}
    script = {"steps": [{"calls": [call]}, {"text": "It said {{last_tool_result}}"}]}
    done = play(script, args=("--progress",))
    assert "key=" in done.steps("tool_call")[0]["output"]
    assert SECRET not in json.dumps(done.rows) + done.stderr
    holding = [path for path in done.holds(SECRET) if path.name != "note.txt"]
    assert holding == []


def test_many_at_once_share_nothing(play: Play, kind: Kind) -> None:
    n = 12
    call = {"tool": "shell", "command": "ls | wc -l; date +%N > mine.txt"}
    inputs = [f"Case {number}." for number in range(n)]
    script = {"steps": [{"calls": [call]}, {"text": "Heard: {{last_tool_result}}"}]}
    done = play(script, *inputs, args=("-j", "4"))
    assert len(done.rows) == n
    assert [row.get("failure") for row in done.rows] == [None] * n
    assert len({row["sessionId"] for row in done.rows}) == n
    for row in done.rows:
        (told,) = [step for step in row["trajectory"] if step["type"] == "tool_call"]
        assert told["output"].split()[0] == "0"  # nobody else wrote into this workspace
        assert row["usage"]["inputTokens"] == 200
    assert done.alive() == []


# OpenCode retries until the limit of 20 s
def test_provider_that_cannot_be_reached(play: Play, kind: Kind) -> None:
    nowhere = "http://127.0.0.1:9"
    timeout_ms = 60_000 if kind.gives_up else 20_000
    script = {"steps": [{"text": "never"}]}
    done = play(script, env=lambda _url: kind.env(nowhere), timeout_ms=timeout_ms)
    assert done.row["failure"]["cause"] == "provider", done.row


def test_users_own_home(play: Play, kind: Kind, tmp_path: Path) -> None:
    """Without --isolate the agent has the user's HOME, and with it the user's login."""
    home = tmp_path / "home"
    (home / ".config/opencode").mkdir(parents=True)
    call = {"tool": "shell", "command": "echo home=$HOME"}
    script = {"steps": [{"calls": [call]}, {"text": "Mine."}, {"text": "Again."}]}
    done = play(
        script,
        ["one", "two"],
        env=lambda url: {**kind.env(url), "HOME": str(home), "XDG_CONFIG_HOME": ""},
        isolate=False,
    )
    assert "failure" not in done.row, done.row
    assert done.steps("tool_call")[0]["output"].strip() == f"home={home}"
    assert done.row["output"] == "Again."
    assert done.row["usage"]["inputTokens"] == 300


def test_secret_in_a_sub_agent(play: Play, kind: Kind) -> None:
    name = "ANTHROPIC_API_KEY" if kind.shell == "Bash" else "MOCK_API_KEY"
    inner = [
        {"calls": [{"tool": "shell", "command": f"echo ${name}"}]},
        {"text": "It said {{last_tool_result}}"},
    ]
    task, sort = ("Task", "general-purpose") if kind.shell == "Bash" else ("task", "general")
    given = {"description": "sub", "prompt": "SUBJOB go", "subagent_type": sort}
    script = {
        "steps": [{"calls": [{"name": task, "arguments": given}]}, {"text": "End."}],
        "threads": [{"when": {"firstUserContains": "SUBJOB"}, "steps": inner}],
    }
    done = play(script)
    assert done.row["output"] == "End."
    assert len(done.steps("tool_call")) == 2
    assert done.row["usage"]["inputTokens"] == 400
    assert done.holds(SECRET) == []
