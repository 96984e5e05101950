"""The four real agents through `assay capture`: the same scenarios, the same record of them.

Starting an agent takes seconds of CPU time, so one trial shows all that a healthy trial can hold,
and trials that must fail run side by side in one run.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

MCP_SERVER = Path(__file__).with_name("mcp_adder.py")
USAGE = {"input": 120, "output": 30, "cacheRead": 40, "reasoning": 7}
Play = Callable[..., Any]


def shell(command: str) -> dict[str, Any]:
    return {"tool": "shell", "command": command}


def command_of(step: dict[str, Any]) -> str:
    return str(step["input"].get("cmd") or step["input"].get("command"))


PARALLEL = ["sleep 0.4; echo A", "echo B; exit 2", "echo C > c.txt"]
MUCH = "python3 -c \"print('\\n'.join(f'{n:07d}' for n in range(50000)))\""
PRINT_KEY = 'echo "key: $MY_SECRET_KEY" | tee key.txt'
TOUR: list[dict[str, Any]] = [
    {"thinking": "**Adding** I add two and two.", "text": "I write ünïcode ✓ 你好 🎈.",
     "calls": [shell("echo made > made.txt && echo said-it")], "usage": USAGE},
    {"calls": [shell("echo oops >&2; exit 3")], "expect": ["said-it"]},
    {"calls": [{"name": "no_such_tool", "arguments": {"x": 1}}], "expect": ["oops"]},
    {"calls": [{**shell(command), "id": f"call-{n}"} for n, command in enumerate(PARALLEL)]},
    {"calls": [{"tool": "mcp", "server": "adder", "name": "add", "arguments": {"a": 2, "b": 3}},
               {"tool": "mcp", "server": "adder", "name": "boom"},
               {"tool": "mcp", "server": "adder", "name": "whoami"}]},
    {"calls": [{"tool": "write_file", "path": "sub/a.txt", "content": "one\ntwo\n"}]},
    {"calls": [{"tool": "write_file", "path": "b.txt", "content": "it's \"bare\""}]},
    {"calls": [{"tool": "read_file", "path": "sub/a.txt"}]},
    {"calls": [{"tool": "edit_file", "path": "sub/a.txt", "old": "two\n", "new": "three\n"}],
     "expect": ["two"]},
    {"calls": [shell(MUCH)]},
    {"calls": [shell(PRINT_KEY)]},
    {"text": "It said {{last_tool_result}}"},
]  # fmt: skip


def test_a_trial_with_every_kind_of_step(play: Play, kind: Any, tmp_path: Path) -> None:
    secret = f"sk-{uuid.uuid4().hex}"
    adder = {"command": sys.executable, "args": [str(MCP_SERVER)], "env": {"WHO": "${ASKED_BY}"}}
    servers = {"adder": adder, "broken": {"command": "/no/such/program"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    second = {"text": "It was 41.", "expect": ["turn one", "It said"], "usage": USAGE}
    done = play(
        {"steps": [*TOUR, second]},
        ["turn one ≠ ✗", "turn two"],
        args=("--mcp", tmp_path / "mcp.json", "-g", 'command:{"sh": "grep -q made made.txt"}'),
        env={"ASKED_BY": "the-tester", "MY_SECRET_KEY": secret},
    )
    row = done.row
    assert "failure" not in row, done
    assert [request.step for request in done.requests if request.served == "step"] == [*range(13)]
    assert done.requests[0].last_user.strip().endswith("turn one ≠ ✗")
    assert done.alive() == []
    check_answer_and_usage(row, kind)
    check_shell(done, kind)
    check_mcp(done, kind)
    check_files(done)
    # What the agent printed of a secret stands nowhere but in the file that it wrote itself.
    assert secret in (done.workspace / "key.txt").read_text()
    assert "key: [redacted]" in by_command(done)[PRINT_KEY]["output"]
    assert [path for path in done.holds(secret) if path.name != "key.txt"] == []
    assert done.holds(kind.env("")[kind.key]) == []
    assert secret not in done.stderr


def check_answer_and_usage(row: dict[str, Any], kind: Any) -> None:
    steps = row["trajectory"]
    assert [step["type"] for step in steps][:3] == ["thought", "message", "tool_call"]
    assert "I add two and two." in steps[0]["content"]
    assert steps[1]["content"] == "I write ünïcode ✓ 你好 🎈."
    assert row["output"] == "It was 41."
    assert steps[-1]["content"] == "It was 41."
    assert [step["turn"] for step in steps] == [1] * (len(steps) - 1) + [2]
    usage, one, two = row["usage"], *row["turnUsage"]
    assert {name: two.get(name) for name in kind.tokens} == kind.tokens
    assert one["inputTokens"] == kind.tokens["inputTokens"] + 1100
    assert usage["inputTokens"] == one["inputTokens"] + two["inputTokens"]
    assert row["timing"]["inputTokens"] == usage["inputTokens"]
    assert usage["costUsd"] == pytest.approx(one["costUsd"] + two["costUsd"])
    assert two["costUsd"] > 0
    assert usage["costSource"] == kind.cost_source
    assert (row["agent"].get("version"), row["agent"]["model"]) == (kind.version, kind.model)
    assert row["sessionId"]
    assert row["events"]["unknown"] == {}
    assert row["events"]["terminal"] is True
    assert row["score"]["pass"] is True


def by_command(done: Any) -> dict[str, dict[str, Any]]:
    calls = done.steps("tool_call")
    return {command_of(step): step for step in calls if isinstance(step["input"], dict)}


def check_shell(done: Any, kind: Any) -> None:
    told = by_command(done)
    made = told["echo made > made.txt && echo said-it"]
    assert (made["name"], made["status"], made["exitCode"]) == (kind.shell, "completed", 0)
    assert made["output"].strip() == "said-it"
    assert made["duration"] >= 0
    assert 0 < made["timestamp"] <= done.row["timing"]["total"]
    assert (done.workspace / "made.txt").read_text() == "made\n"
    failed = told["echo oops >&2; exit 3"]
    assert (failed["status"], failed["exitCode"]) == ("failed", 3)
    assert "oops" in failed["output"]
    assert failed["error"]
    assert done.row["toolErrors"] is True
    (missing,) = (step for step in done.steps("tool_call") if step["name"] == "no_such_tool")
    assert missing["status"] == "failed"
    for n, command in enumerate(PARALLEL):
        assert told[command]["callId"].endswith(f"call-{n}")
    assert told[PARALLEL[0]]["output"].strip() == "A"
    assert told[PARALLEL[1]]["exitCode"] == 2
    assert (done.workspace / "c.txt").read_text() == "C\n"
    lines = told[MUCH]["output"].split()
    assert sum(line.isdigit() for line in lines) >= 100
    if kind.name in ("codex", "gemini"):  # the others keep the rest in a file of their own
        assert (lines[0], lines[-1]) == ("0000000", "0049999")
        assert len(told[MUCH]["output"]) >= 399_000
    ids = [step["callId"] for step in done.steps("tool_call")]
    assert len(set(ids)) == len(ids)


def check_mcp(done: Any, kind: Any) -> None:
    told = {step["name"]: step for step in done.steps("tool_call")}
    add, boom, who = (told[kind.mcp_tool.format(name)] for name in ("add", "boom", "whoami"))
    assert (add["status"], add["output"], add["input"]) == ("completed", "sum 5", {"a": 2, "b": 3})
    assert boom["status"] == "failed"
    assert "boom failed" in boom["output"]
    assert who["output"] == "the-tester"
    servers = {server["name"]: server["status"] for server in done.row["setup"]["mcpServers"]}
    assert servers == {"adder": "connected", "broken": "failed"}


def check_files(done: Any) -> None:
    assert (done.workspace / "sub/a.txt").read_text() == "one\nthree\n"
    assert (done.workspace / "b.txt").read_text() == 'it\'s "bare"'


TEXTS = ["-h", '"quoted"', "resume", "long " * 40_000]
TRACES = "cat note ~/note 2>/dev/null; echo end; echo x | tee note ~/note > /dev/null; sleep 0.1"


def test_trials_at_once_share_nothing_and_any_prompt_arrives(play: Play, kind: Any) -> None:
    """Four at a time, among them one that is refused and one that has to wait."""
    auth = {"status": 401, "message": "no such key", "times": "always"}
    busy = {"status": 429, "headers": {"retry-after": "1"}, "times": 1}
    script = {
        "steps": [{"calls": [shell(TRACES)]}, {"text": "Done."}],
        "threads": [
            {"when": {"firstUserContains": name}, "steps": [{"text": "Works.", "faults": [fault]}]}
            for name, fault in (("AUTHJOB", auth), ("BUSYJOB", busy))
        ],
    }
    done = play(script, *TEXTS, "BUSYJOB", "AUTHJOB", args=("-j", 4))
    *healthy, waited, refused = in_order(done)
    assert [row.get("failure") for row in healthy] == [None] * 4, done
    assert [row["output"] for row in healthy] == ["Done."] * 4
    calls = [step for row in healthy for step in row["trajectory"] if step["type"] == "tool_call"]
    assert [call["output"].strip() for call in calls] == ["end"] * 4
    assert len({row["sessionId"] for row in healthy}) == 4
    asked = [request.last_user.strip() for request in done.requests]
    for text in TEXTS:
        assert any(said.endswith(text.strip()) for said in asked), text[:20]
    assert "failure" not in waited, waited
    assert (waited["output"], waited["providerRetries"]) == ("Works.", 1)
    assert refused["failure"]["cause"] == "auth", refused
    assert "tool_call" not in [step["type"] for step in refused["trajectory"]]
    assert done.alive() == []


def test_trials_that_are_stopped_and_a_provider_that_fails(play: Play, kind: Any) -> None:
    """A model that hangs, a command that hangs, and errors of the provider until the end."""
    seconds = f"300.{uuid.uuid4().int % 10**12}"
    stuck = {"text": "I wait.", "calls": [shell(f"echo started > started.txt; sleep {seconds}")]}
    never = {"text": "never", "faults": [{"hang": True, "times": "always"}]}
    broken = {"text": "never", "faults": [{"status": 500, "times": "always"}]}
    threads = {
        "HANGJOB": [never],
        "STUCKJOB": [{**stuck, "usage": {"input": 70, "output": 30}}],
        "BROKENJOB": [{"text": "I begin.", "calls": [shell("echo 1")]}, broken],
    }
    script = {
        "threads": [
            {"when": {"firstUserContains": name}, "steps": steps} for name, steps in threads.items()
        ]
    }
    began = time.monotonic()
    # Codex gives up on a command after ten seconds; OpenCode takes many to start.
    limit_ms = {"codex": 9_000, "opencode": 30_000}.get(kind.name, 15_000)
    done = play(script, *threads, args=("-j", 3), timeout_ms=limit_ms)
    assert time.monotonic() - began < 75
    hung, stopped, failed = in_order(done)
    for row in (hung, stopped):
        assert row["failure"]["cause"] == "agent_timeout", row
        assert row["metadata"]["timedOut"] is True
    steps = [step for step in stopped["trajectory"] if step["type"] != "thought"]
    assert [step["type"] for step in steps] == ["message", "tool_call"]
    assert steps[0]["content"] == "I wait."
    assert seconds in command_of(steps[1])
    assert steps[1]["status"] != "completed"
    assert (Path(stopped["metadata"]["workspaceDir"]) / "started.txt").exists()
    if kind.name != "opencode":  # it tells of tokens at the end of a step
        assert (stopped["usage"]["inputTokens"], stopped["usage"]["outputTokens"]) == (70, 30)
    assert failed["failure"]["cause"] == "provider", failed
    assert failed["usage"]["inputTokens"] == 100
    assert [step["type"] for step in failed["trajectory"]].count("tool_call") == 1
    assert done.alive() == []


def in_order(done: Any) -> list[dict[str, Any]]:
    """Give the rows in the order of the prompts."""
    return sorted(done.rows, key=lambda row: int(row["id"][1:]))


def test_sub_agents_stand_under_their_call(play: Play, kind: Any) -> None:
    inner = [{"text": "sub says", "calls": [shell(f"echo sub ${kind.key}")]}]
    inner += [{"text": "Sub report."}, {"text": "Really."}]
    main = [{"calls": [kind.task]}, {"calls": [shell("sleep 2")]}, {"text": "Main end."}]
    thread = {"when": {"firstUserContains": "SUBJOB"}, "steps": inner}
    done = play({"steps": main, "threads": [thread]})
    outer, *_ = done.steps("tool_call")
    under = [step for step in done.row["trajectory"] if step.get("parent") == outer["callId"]]
    assert [step["type"] for step in under][:3] == ["message", "tool_call", "message"], done
    assert [under[0]["content"], under[2]["content"]] == ["sub says", "Sub report."]
    assert under[1]["output"].strip().startswith("sub")
    assert done.row["output"] == "Main end."
    assert done.row["usage"]["inputTokens"] == 100 * len(done.requests)
    assert done.holds(kind.env("")[kind.key]) == []


def test_limit_of_turns(play: Play) -> None:
    steps = [{"calls": [shell(f"echo {n}")], "delayS": 0.3} for n in range(6)]
    done = play({"steps": [*steps, {"text": "never"}]}, args=("--max-turns", 2))
    assert done.row["failure"]["cause"] == "agent_limit", done
    assert 2 <= len(done.requests) <= 4
    assert done.row["output"] != "never"
    assert done.alive() == []


def test_provider_that_cannot_be_reached(play: Play) -> None:
    script = {"steps": [{"text": "never"}]}
    done = play(script, url="http://127.0.0.1:9", timeout_ms=20_000)
    assert done.row["failure"]["cause"] == "provider", done.row


@pytest.mark.parametrize("kind", ["claude", "opencode"], indirect=True)
def test_users_own_home(play: Play, tmp_path: Path) -> None:
    """Without --isolate the agent has the user's HOME, and with it the user's login."""
    home = tmp_path / "home"
    (home / ".config/opencode").mkdir(parents=True)
    script = {"steps": [{"calls": [shell("echo home=$HOME")]}, {"text": "Mine."}]}
    script["steps"] += [{"text": "Again."}]
    env = {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    done = play(script, ["one", "two"], env=env, isolate=False)
    assert "failure" not in done.row, done.row
    assert done.steps("tool_call")[0]["output"].strip() == f"home={home}"
    assert done.row["output"] == "Again."
    assert done.row["usage"]["inputTokens"] == 300


@pytest.mark.parametrize("kind", ["codex"], indirect=True)
def test_code_mode_shows_the_script_and_what_it_ran(play: Play) -> None:
    code = "const r = await tools.exec_command({cmd:'echo a; exit 3'}); text(r.output);"
    steps = [{"calls": [{"name": "exec", "input": code}]}, {"text": "Coded."}]
    done = play({"steps": steps, "toolless": "step"}, args=("--model", "gpt-6-sol"))
    script, inner = done.steps("tool_call")
    assert (script["name"], script["input"], script["status"]) == ("exec", code, "completed")
    assert (command_of(inner), inner["exitCode"]) == ("echo a; exit 3", 3)
    assert inner["parent"] == script["callId"]
    assert done.row["output"] == "Coded."
