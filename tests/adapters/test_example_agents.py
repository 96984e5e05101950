"""Agents by schema files (examples/agents) and by name over ACP, on their recorded streams."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.adapters.vendor import ACP_AGENTS
from assay.plugin import Ask
from assay.records.spec import PluginRef
from assay.testing.conformance import load_recording
from assay.testing.plugins import check_adapter

AGENTS = Path(__file__).parents[2] / "examples" / "agents"
RECORDINGS = Path(__file__).parents[1] / "example_recordings"
SCHEMAS = [path.stem for path in sorted(AGENTS.glob("*.json"))]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_conforms_on_its_recordings(name: str) -> None:
    folders = sorted(path.parent for path in RECORDINGS.glob(f"{name}-[0-9]*/*/expected.json"))
    assert len(folders) >= 2
    adapter = plugins.adapter(plugins.adapter_ref(str(AGENTS / f"{name}.json")))
    assert adapter.warnings == []
    check_adapter(adapter, *folders)


@pytest.mark.parametrize("agent", ACP_AGENTS, ids=lambda agent: agent.name)
def test_an_agent_of_acp_conforms_on_its_recordings(agent: Any) -> None:
    adapter = plugins.adapter(PluginRef(name=agent.name))
    command = adapter.command(Ask(text="x", cwd="/w"))
    assert (command.argv, command.pass_env) == ((agent.program, *agent.acp), agent.keys)
    other = plugins.adapter(plugins.adapter_ref(f"{agent.name}:/opt/x y"))
    assert other.command(Ask(text="x", cwd="/w")).argv == ("/opt/x y", *agent.acp)
    (version,) = agent.tested
    folders = [path.parent for path in RECORDINGS.glob(f"{agent.name}-{version}/*/expected.json")]
    assert folders
    check_adapter(adapter, *folders)
    assert {adapter.read(load_recording(folder)).agent.adapter for folder in folders} == {
        agent.name
    }


def program(folder: Path, name: str, body: str) -> dict[str, str]:
    """Write a Python program for PATH that stands in for an agent; options holds its arguments."""
    read = "import json, sys\noptions = dict(zip(sys.argv[1:], sys.argv[2:]))\n"
    (folder / name).write_text(f"#!/usr/bin/env -S python3 -S\n{read}{body}")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


MINI = """
def write(*messages, **info):
    with open(options["--output"], "w") as file:
        info |= {"mini_version": "2.4.6", "config": {"long": 1}}
        messages = [{"role": "user", "content": options["--task"]}, *messages]
        json.dump({"messages": messages, "info": info}, file, indent=1)
actions = [{"command": "one", "tool_call_id": "a"}, {"command": "two", "tool_call_id": "b"}]
usage = {"prompt_tokens": 7, "completion_tokens": 2}
extra = {"actions": actions, "cost": 0.5, "response": {"model": "m", "usage": usage}}
said = {"role": "assistant", "content": None, "reasoning_content": "hm", "extra": extra}
def done(n, code):
    extra = {"raw_output": f"out {n}", "returncode": code, "exception_info": ""}
    return {"role": "tool", "tool_call_id": actions[n]["tool_call_id"], "extra": extra}
if options["--task"] == "crash":
    write(said)
    sys.exit("no more disk")
if options["--task"] == "limit":
    write(said, exit_status="LimitsExceeded", submission="")
    sys.exit()
write(said, done(0, 0), done(1, 2), exit_status="Submitted", submission="answer")
"""


def test_mini_swe_agent_tells_its_steps(assay: Callable, prompts: Callable, tmp_path: Path) -> None:
    path = prompts(*({"id": text, "input": text} for text in ("work", "crash", "limit")))
    schema = AGENTS / "mini-swe-agent.json"
    env = program(tmp_path, "mini", MINI)
    done = assay("capture", path, "-s", schema, "--model", "m", "-j", 3, "-q", env=env)
    rows = {row["id"]: row for row in done.rows}
    work, crash, limit = (rows[name] for name in ("work", "crash", "limit"))
    assert [
        (step["type"], step.get("content") or step["input"]["command"], step.get("status"))
        for step in work["trajectory"]
    ] == [
        ("thought", "hm", None),
        ("tool_call", "one", "completed"),
        ("tool_call", "two", "failed"),
    ]
    assert (work["output"], work["trajectory"][2]["exitCode"]) == ("answer", 2)
    assert work["usage"] == {
        "inputTokens": 7,
        "outputTokens": 2,
        "costUsd": 0.5,
        "costSource": "reported",
    }
    assert (work["agent"]["version"], work["agent"]["model"]) == ("2.4.6", "m")
    assert crash["failure"]["cause"] == "agent_crash"
    assert "no more disk" in crash["failure"]["message"] + crash["stderr"]
    assert crash["trajectory"][0]["content"] == "hm"
    assert limit["failure"]["cause"] == "agent_limit"


AIDER = """
history, events = options["--llm-history-file"], options["--analytics-log"]
def log(event, **properties):
    with open(events, "a") as file:
        print(json.dumps({"event": event, "properties": properties, "user_id": "u"}), file=file)
log("launched")
print("Aider v1.2.3")
if options["--message"] == "refused":
    print("litellm.AuthenticationError: no such key")
    sys.exit()
log("message_send", prompt_tokens=7, completion_tokens=2, cost=0.25)
with open(history, "w") as file:
    for line in ("TO LLM now", "ASSISTANT Ok.", "LLM RESPONSE now", "ASSISTANT I edit.",
                 "ASSISTANT ", "ASSISTANT Done: é", "TO LLM now", "ASSISTANT Ok.",
                 "LLM RESPONSE now", "ASSISTANT Bye."):
        print(line, file=file)
print("Applied edit to a b.txt", "--no-git" in sys.argv)
"""


def test_aider_tells_its_answers_and_edits(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    path = prompts({"id": "a", "input": "work"}, {"id": "b", "input": "refused"})
    env = program(tmp_path, "aider", AIDER)
    done = assay("capture", path, "-s", AGENTS / "aider.json", "-j", 2, "-q", env=env)
    rows = {row["id"]: row for row in done.rows}
    steps = rows["a"]["trajectory"]
    assert [step["content"] for step in steps[:2]] == ["I edit.\n\nDone: é", "Bye."]
    assert steps[2]["input"] == {"path": "a b.txt True"}
    usage = {"inputTokens": 7, "outputTokens": 2, "costUsd": 0.25, "costSource": "reported"}
    assert rows["a"]["usage"] == usage
    assert rows["a"]["agent"]["version"] == "1.2.3"
    assert rows["b"]["failure"]["cause"] == "auth"
    assert "user_id" not in json.dumps(rows)
