"""Codex and Gemini CLI through `assay capture`: the same scenarios, the same expected record."""

import json
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

AGENTS = ("codex", "gemini")
MCP_SERVER = """
import json, os, sys
ANY = {"type": "object", "properties": {}}
TOOLS = [{"name": n, "description": n, "inputSchema": ANY} for n in ("add", "boom", "whoami")]
def call(name, given):
    texts = {"add": lambda: f"sum {given['a'] + given['b']}", "whoami": lambda: os.environ["WHO"]}
    text = texts.get(name, lambda: "boom failed")()
    return {"content": [{"type": "text", "text": text}], "isError": name == "boom"}
for line in sys.stdin:
    asked = json.loads(line)
    given, method = asked.get("params") or {}, asked["method"]
    answer = {"tools": TOOLS} if method == "tools/list" else {}
    if method == "initialize":
        answer = {"protocolVersion": given.get("protocolVersion"), "capabilities": {"tools": {}}}
        answer["serverInfo"] = {"name": "adder", "version": "1"}
    if method == "tools/call":
        answer = call(given["name"], given.get("arguments") or {})
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""
MODELS = {"codex": "gpt-5.5", "gemini": "gemini-2.5-pro"}
Play = Callable[..., Any]


@pytest.fixture
def play(live: Play) -> Play:
    """Capture with a real agent: how the scripted model's address reaches each."""

    def run(
        agent: str,
        script: dict[str, Any],
        *inputs: Any,
        args: Sequence[Any] = (),
        env: dict[str, str] | None = None,
        timeout_s: float = 60,
    ) -> Any:
        return live(
            agent,
            script,
            *inputs,
            env=lambda url: {**variables(agent, url), **(env or {})},
            args=lambda url: (*arguments(agent, url), *map(str, args)),
            timeout_ms=round(timeout_s * 1000),
        )

    return run


def variables(agent: str, url: str) -> dict[str, str]:
    if agent == "codex":
        return {"MOCK_API_KEY": "dummy"}
    return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}


def arguments(agent: str, url: str) -> list[str]:
    words = ["--model", MODELS[agent]]
    provider = "model_providers.mock"
    for setting in (
        'model_provider="mock"',
        f'{provider}.name="mock"',
        f'{provider}.base_url="{url}/v1"',
        f'{provider}.wire_api="responses"',
        f'{provider}.env_key="MOCK_API_KEY"',
        f"{provider}.request_max_retries=1",
        f"{provider}.stream_max_retries=1",
    ):
        words += ["--agent-arg=-c", f"--agent-arg={setting}"] if agent == "codex" else []
    return words


def shell(command: str) -> dict[str, Any]:
    return {"tool": "shell", "command": command}


def command_of(step: dict[str, Any]) -> str:
    return str(step["input"].get("cmd") or step["input"].get("command"))


def processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_answer_only(play: Play, agent: str) -> None:
    usage = {"input": 120, "output": 30, "cacheRead": 40, "reasoning": 7}
    done = play(agent, {"steps": [{"text": "Four, and ünïcode ✓ 🎈.", "usage": usage}]}, "2+2? ✓")
    row = done.row
    assert "failure" not in row, done
    assert row["output"] == "Four, and ünïcode ✓ 🎈."
    assert [step["type"] for step in row["trajectory"]] == ["message"]
    assert done.requests[0].last_user.strip().endswith("2+2? ✓")
    output = 37 if agent == "codex" else 30
    expected = {"inputTokens": 160, "outputTokens": output, "cacheReadTokens": 40}
    expected |= {"reasoningTokens": 7, "costSource": "estimated"}
    assert expected.items() <= row["usage"].items(), done
    assert row["usage"]["costUsd"] > 0
    assert (row["timing"]["inputTokens"], row["timing"]["outputTokens"]) == (160, output)
    assert row["agent"]["model"] == {"codex": "gpt-5.5", "gemini": "gemini-2.5-pro"}[agent]
    assert row["events"]["terminal"] is True
    assert row["events"]["mapped"] == row["events"]["total"]
    assert row["sessionId"]


@pytest.mark.parametrize("agent", AGENTS)
def test_thinking(play: Play, agent: str) -> None:
    done = play(agent, {"steps": [{"thinking": "**Adding** I add two and two.", "text": "Four."}]})
    assert [step["type"] for step in done.row["trajectory"]] == ["thought", "message"], done
    assert "I add two and two." in done.row["trajectory"][0]["content"]
    assert done.row["output"] == "Four."


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_writes_a_file_and_a_grader_sees_it(play: Play, agent: str) -> None:
    call = shell("echo made > made.txt && echo said-it")
    steps = [{"text": "I write.", "calls": [call]}, {"text": "Done.", "expect": ["said-it"]}]
    grader = 'command:{"sh": "grep -q made made.txt"}'
    done = play(agent, {"steps": steps}, args=("-g", grader))
    row = done.row
    assert "failure" not in row, done
    assert row["score"]["pass"] is True, done
    assert (done.workspace / "made.txt").read_text() == "made\n"
    assert [step["type"] for step in row["trajectory"]] == ["message", "tool_call", "message"]
    (step,) = done.steps("tool_call")
    assert command_of(step) == call["command"]
    assert step["output"].strip() == "said-it"
    assert (step["status"], step["exitCode"]) == ("completed", 0)
    assert step["callId"]
    assert step["duration"] >= 0
    assert 0 < step["timestamp"] <= row["timing"]["total"]
    assert row["usage"]["inputTokens"] == 200


@pytest.mark.parametrize("agent", AGENTS)
def test_a_failing_tool(play: Play, agent: str) -> None:
    steps = [{"calls": [shell("echo oops >&2; exit 3")]}, {"text": "It failed."}]
    done = play(agent, {"steps": steps})
    (step,) = done.steps("tool_call")
    assert (step["status"], step["exitCode"], step["error"]) == ("failed", 3, "exit code 3"), done
    assert step["output"].strip() == "oops"
    assert done.row["toolErrors"] is True
    assert "failure" not in done.row


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_that_is_not_there(play: Play, agent: str) -> None:
    steps = [{"calls": [{"name": "no_such_tool", "arguments": {"x": 1}}]}, {"text": "Recovered."}]
    done = play(agent, {"steps": steps})
    (step,) = done.steps("tool_call")
    assert (step["name"], step["status"], step["input"]) == ("no_such_tool", "failed", {"x": 1})
    assert done.row["output"] == "Recovered."


@pytest.mark.parametrize("agent", AGENTS)
def test_parallel_tools(play: Play, agent: str) -> None:
    commands = ["sleep 0.4; echo A", "echo B; exit 2", "echo C > c.txt"]
    calls = [{**shell(command), "id": f"call-{n}"} for n, command in enumerate(commands)]
    done = play(agent, {"steps": [{"calls": calls}, {"text": "Three."}]})
    steps = done.steps("tool_call")
    assert sorted(map(command_of, steps)) == sorted(commands), done
    by_command = {command_of(step): step for step in steps}
    for n, command in enumerate(commands):
        assert by_command[command]["callId"].endswith(f"call-{n}")
    assert by_command[commands[0]]["output"].strip() == "A"
    assert by_command[commands[1]]["exitCode"] == 2
    assert [r.step for r in done.requests] == [0, 1]


@pytest.mark.parametrize("agent", AGENTS)
def test_two_turns_by_resume(play: Play, agent: str) -> None:
    steps = [
        {"text": "I remember.", "calls": [shell("echo 41 > n.txt")]},
        {"text": "Remembered."},
        {"text": "It was 41.", "expect": ["Remembered."]},
    ]
    done = play(agent, {"steps": steps}, ["Remember 41.", "Which number?"])
    row = done.row
    assert "failure" not in row, done
    assert row["output"] == "It was 41."
    assert row["usage"]["inputTokens"] == 300
    assert [usage["inputTokens"] for usage in row["turnUsage"]] == [200, 100]
    assert [step["turn"] for step in row["trajectory"]] == [1, 1, 1, 2]
    assert len(done.steps("tool_call")) == 1


@pytest.mark.parametrize("agent", AGENTS)
def test_mcp_tools(play: Play, agent: str, tmp_path: Path) -> None:
    config, server = tmp_path / "mcp.json", tmp_path / "server.py"
    server.write_text(MCP_SERVER)
    adder = {"command": sys.executable, "args": [str(server)], "env": {"WHO": "${ASKED_BY}"}}
    broken = {"command": "/no/such/program"}
    config.write_text(json.dumps({"mcpServers": {"adder": adder, "broken": broken}}))
    tool = {"tool": "mcp", "server": "adder"}
    calls = [{**tool, "name": "add", "arguments": {"a": 2, "b": 3}}]
    calls += [{**tool, "name": "boom"}, {**tool, "name": "whoami"}]
    steps = [{"calls": calls}, {"text": "Five."}]
    env = {"ASKED_BY": "the-tester"}
    done = play(agent, {"steps": steps}, args=("--mcp", config), env=env)
    told = {step["name"].rpartition("_")[2]: step for step in done.steps("tool_call")}
    assert set(told) == {"add", "boom", "whoami"}, done
    assert told["add"]["name"] == {"codex": "mcp__adder__add", "gemini": "mcp_adder_add"}[agent]
    assert (told["add"]["status"], told["add"]["output"]) == ("completed", "sum 5")
    assert told["add"]["input"] == {"a": 2, "b": 3}
    assert told["boom"]["status"] == "failed"
    assert "boom failed" in told["boom"]["output"]
    assert told["whoami"]["output"] == "the-tester"
    servers = {server["name"]: server["status"] for server in done.row["setup"]["mcpServers"]}
    assert servers == {"adder": "connected", "broken": "failed"}


@pytest.mark.parametrize("agent", AGENTS)
def test_unauthorised(play: Play, agent: str) -> None:
    fault = {"status": 401, "message": "no such key", "times": "always"}
    done = play(agent, {"steps": [{"text": "never", "faults": [fault]}]})
    assert done.row["failure"]["cause"] == "auth", done
    assert done.row["trajectory"] == []


@pytest.mark.parametrize("agent", AGENTS)
def test_too_many_requests_then_success(play: Play, agent: str) -> None:
    fault = {"status": 429, "headers": {"retry-after": "1"}, "times": 1}
    done = play(agent, {"steps": [{"text": "Now it works.", "faults": [fault]}]})
    assert "failure" not in done.row, done
    assert done.row["output"] == "Now it works."
    assert done.row["providerRetries"] == 1


@pytest.mark.parametrize("agent", AGENTS)
def test_server_errors_until_it_gives_up(play: Play, agent: str, tmp_path: Path) -> None:
    template = tmp_path / "template"
    (template / ".gemini").mkdir(parents=True)
    (template / ".gemini/settings.json").write_text('{"general": {"maxAttempts": 2}}')
    fault = {"status": 500, "times": "always"}
    steps = [{"text": "I begin.", "calls": [shell("echo 1")]}, {"text": "never", "faults": [fault]}]
    done = play(agent, {"steps": steps}, args=("--workspace-template", template))
    assert done.row["failure"]["cause"] == "provider", done
    assert len(done.steps("tool_call")) == 1
    assert done.row["usage"]["inputTokens"] == 100


@pytest.mark.parametrize("agent", AGENTS)
def test_a_model_that_hangs(play: Play, agent: str) -> None:
    tag = f"tag-{uuid.uuid4().hex}"
    hang = {"hang": True, "times": "always"}
    script = {"steps": [{"text": "never", "faults": [hang]}]}
    done = play(agent, script, f"Do {tag}.", timeout_s=9)
    assert done.row["failure"]["cause"] == "agent_timeout", done
    assert done.row["metadata"]["timedOut"] is True
    assert processes_with(tag) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_a_kill_in_the_middle_of_a_tool_call(play: Play, agent: str) -> None:
    seconds = f"300.{uuid.uuid4().int % 10**12}"
    call = shell(f"echo started > started.txt; sleep {seconds}")
    done = play(agent, {"steps": [{"text": "I wait.", "calls": [call]}]}, timeout_s=9)
    assert done.row["failure"]["cause"] == "agent_timeout", done
    (step,) = done.steps("tool_call")
    assert step["status"] == "cancelled"
    assert seconds in command_of(step)
    assert done.row["usage"]["inputTokens"] == 100
    assert (done.workspace / "started.txt").exists()
    assert processes_with(seconds) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_much_tool_output_is_complete(play: Play, agent: str) -> None:
    command = "python3 -c \"print('\\n'.join(f'{n:07d}' for n in range(50000)))\""
    steps = [{"calls": [shell(command)]}, {"text": "Much."}]
    done = play(agent, {"steps": steps})
    assert "failure" not in done.row, done.stderr
    (step,) = done.steps("tool_call")
    lines = step["output"].split()
    if agent == "codex":  # keeps the first and the last half megabyte
        assert lines == [f"{n:07d}" for n in range(50000)]
    else:
        assert (lines[0], lines[-1]) == ("0000000", "0049999")
        assert len(step["output"]) >= 399_000
    assert done.row["output"] == "Much."


@pytest.mark.parametrize("agent", AGENTS)
def test_a_printed_secret_appears_nowhere(play: Play, agent: str) -> None:
    secret = f"sk-{uuid.uuid4().hex}"
    call = shell('echo "key: $MY_SECRET_KEY" | tee key.txt')
    steps = [{"calls": [call]}, {"text": f"It is {secret}."}]
    args, env = ("--env", "MY_SECRET_KEY"), {"MY_SECRET_KEY": secret}
    done = play(agent, {"steps": steps}, args=args, env=env)
    assert secret in (done.workspace / "key.txt").read_text(), done
    assert "key: [redacted]" in done.steps("tool_call")[0]["output"]
    assert [path for path in done.holds(secret) if path.name != "key.txt"] == []
    assert secret not in done.stderr


@pytest.mark.parametrize("agent", AGENTS)
def test_max_turns(play: Play, agent: str) -> None:
    steps = [{"calls": [shell(f"echo {n}")], "delayS": 0.3} for n in range(6)]
    done = play(agent, {"steps": [*steps, {"text": "never"}]}, args=("--max-turns", 2))
    assert done.row["failure"]["cause"] == "agent_limit", done
    assert 2 <= len(done.steps("tool_call")) < 6
    assert done.row["output"] != "never"


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "text", ["-h", '"quoted"', "resume", "long " * 40_000], ids=["dash", "quoted", "word", "long"]
)
def test_any_prompt_arrives_as_it_is(play: Play, agent: str, text: str) -> None:
    done = play(agent, {"steps": [{"text": "Ok."}]}, text)
    assert done.row["output"] == "Ok.", done
    assert done.requests[0].last_user.strip().endswith(text.strip())


@pytest.mark.parametrize("agent", AGENTS)
def test_sub_agents_stand_under_their_call(play: Play, agent: str) -> None:
    spawn = {"name": "spawn_agent", "namespace": "multi_agent_v1"}
    spawn["arguments"] = {"message": "SUBJOB do it"}  # type: ignore[assignment]
    if agent == "gemini":
        given = {"agent_name": "generalist", "prompt": "SUBJOB do it"}
        spawn = {"name": "invoke_agent", "arguments": given}  # type: ignore[dict-item]
    steps = [{"calls": [spawn]}, {"calls": [shell("sleep 2")]}, {"text": "Main end."}]
    inner = [{"text": "sub says", "calls": [shell("echo sub")]}, {"text": "Sub report."}]
    thread = {"when": {"firstUserContains": "SUBJOB"}, "steps": [*inner, {"text": "Really."}]}
    done = play(agent, {"steps": steps, "threads": [thread]})
    outer, *_ = done.steps("tool_call")
    under = [step for step in done.row["trajectory"] if step.get("parent") == outer["callId"]]
    assert [step["type"] for step in under][:3] == ["message", "tool_call", "message"], done
    assert under[1]["output"].strip() == "sub"
    assert done.row["output"] == "Main end."
    assert done.row["usage"]["inputTokens"] == 100 * len(done.requests)


def test_code_mode_shows_the_script_and_what_it_ran(play: Play) -> None:
    code = "const r = await tools.exec_command({cmd:'echo a; exit 3'}); text(r.output);"
    steps = [{"calls": [{"name": "exec", "input": code}]}, {"text": "Coded."}]
    done = play("codex", {"steps": steps, "toolless": "step"}, args=("--model", "gpt-6-sol"))
    script, inner = done.steps("tool_call")
    assert (script["name"], script["input"], script["status"]) == ("exec", code, "completed")
    assert (command_of(inner), inner["exitCode"]) == ("echo a; exit 3", 3)
    assert inner["parent"] == script["callId"]
    assert done.row["output"] == "Coded."


@pytest.mark.parametrize("agent", AGENTS)
def test_twelve_prompts_four_at_once_share_nothing(play: Play, agent: str) -> None:
    call = shell("cat note ~/note 2>/dev/null; echo x | tee note ~/note > /dev/null; sleep 0.1")
    script = {"steps": [{"calls": [call]}, {"text": "Done."}]}
    done = play(agent, script, *(f"prompt {n}" for n in range(12)), args=("-j", 4), timeout_s=90)
    assert [row["output"] for row in done.rows] == ["Done."] * 12, done
    assert {step["output"] for row in done.rows for step in row["trajectory"][:1]} == {""}
    assert len({row["sessionId"] for row in done.rows}) == 12
    assert done.alive() == []
