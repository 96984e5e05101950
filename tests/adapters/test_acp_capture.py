"""`capture PROMPTS -- COMMAND` drives an agent made with the official SDK, well or badly."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AGENT = Path(__file__).parents[1] / "agents" / "acp_scripted.py"
TOOLS = (
    "!do think Let me ; think  see. ; plan read,write ; say I will ; say  look. ; call c1 Read a ; "
    "done c1 hello ; permit c2 ; diff c2 ; call c3 Run ; fail c3 boom ; files ; count ; say Done."
)
CASES: dict[str, Any] = {
    "tools": {"input": TOOLS},
    "two": {"input": ["first", "second"]},
    "facts": {"input": "!do facts"},
    "refusal": {"input": ["!do say no ; end refusal", "never put"]},
    "limit": {"input": "!do say much ; end max_tokens"},
    "overloaded": {"input": "!do error -32603 API Error: 529 overloaded"},
    "crash": {"input": "!do say half ; leave ; exit 7"},
    "quit": {"input": ["!do say half ; exit 0", "never put"]},
    "hang": {"input": "!do say wait ; leave ; wait 300", "timeout": 6000},
    "garbage": {
        "input": '!do line oops { ; line {"jsonrpc":"2.0","method":"_x/y"} ; line 7 ; say fine'
    },
}


@pytest.fixture
def rows(assay: Callable, prompts: Callable, tag: str, alive: Callable, tmp_path: Path) -> Any:
    """All cases in one run: starting an agent of the SDK takes most of a second."""
    path = prompts(*[{"id": name, **row} for name, row in CASES.items()])
    done = assay("capture", path, "-j", 4, "-q", "--", sys.executable, AGENT, tag)
    assert done.code == 0, done.stderr
    assert alive() == []
    return {row["id"]: row for row in done.rows}


def test_every_case(rows: dict[str, Any], tmp_path: Path) -> None:
    assert rows.keys() == CASES.keys()
    _check_tools(rows["tools"])
    _check_conversation(rows["two"])
    assert rows["facts"]["output"] == f"{tmp_path} [] [False, False, False]"
    _check_failures(rows)
    garbage = rows["garbage"]
    assert garbage["output"] == "fine"
    assert "failure" not in garbage
    assert garbage["events"]["unparsed"] == 1
    assert garbage["events"]["unknown"] == {"_x/y": 1, "(no object)": 1}


def _check_tools(row: dict[str, Any]) -> None:
    assert "failure" not in row
    steps = row["trajectory"]
    assert [(s["type"], s.get("content") or s.get("name")) for s in steps] == [
        ("thought", "Let me see."),
        ("plan", None),
        ("message", "I will look."),
        ("tool_call", "Read a"),
        ("tool_call", "Write b.txt"),
        ("message", "permitted o-allow_always"),
        ("tool_call", "Run"),
        ("message", "no files: -32601Done."),
    ]
    assert [entry["content"] for entry in steps[1]["entries"]] == ["read", "write"]
    read, write, run = steps[3], steps[4], steps[6]
    assert (read["status"], read["input"], read["output"]) == (
        "completed",
        {"path": "a.txt"},
        "hello",
    )
    assert read["callId"] == "c1"
    assert read["duration"] >= 0
    assert write["output"] == [
        {"type": "diff", "path": "b.txt", "oldText": "old\n", "newText": "new\n"}
    ]
    assert (run["status"], run["exitCode"]) == ("failed", 3)
    assert "boom" in run["error"]
    assert row["toolErrors"] is True
    assert row["output"].endswith("no files: -32601Done.")
    assert row["usage"] == {
        "inputTokens": 100,
        "outputTokens": 20,
        "reasoningTokens": 5,
        "costUsd": 0.5,
        "costSource": "reported",
    }
    assert row["agent"] == {"adapter": "scripted-acp", "version": "2.5"}
    assert row["sessionId"] == "sdk-1"
    assert row["events"]["unknown"] == {"fs/read_text_file": 1}
    assert row["metadata"]["exitCode"] == 0


def _check_conversation(row: dict[str, Any]) -> None:
    """Both turns went to one process and one session."""
    said = [(s["turn"], s["content"]) for s in row["trajectory"]]
    assert said == [(1, "1: first"), (2, "2: second")]
    assert row["output"] == "2: second"
    assert "failure" not in row


def _check_failures(rows: dict[str, Any]) -> None:
    causes = {name: row["failure"]["cause"] for name, row in rows.items() if "failure" in row}
    assert causes == {
        "refusal": "agent_refused",
        "limit": "agent_limit",
        "overloaded": "provider",
        "crash": "agent_crash",
        "quit": "agent_crash",
        "hang": "agent_timeout",
    }
    assert [s["content"] for s in rows["refusal"]["trajectory"]] == ["no"]
    assert rows["crash"]["output"] == "half"
    assert "exit code 7" in rows["crash"]["failure"]["message"]
    assert [s["content"] for s in rows["quit"]["trajectory"]] == ["half"]
    assert "terminal event" in rows["quit"]["failure"]["message"]
    assert rows["hang"]["output"] == "wait"
    assert 5900 < rows["hang"]["timing"]["total"] < 11000


def test_a_program_that_is_not_there_is_refused(assay: Callable, prompts: Callable) -> None:
    done = assay("capture", prompts("hi"), "-q", "--", "no-such-agent")
    assert (done.code, done.rows) == (1, [])
    assert "no-such-agent" in done.stderr


@pytest.mark.parametrize(("n_turns", "n_kb"), [(3, 300)])
def test_turns_too_large_for_memory_are_read_from_the_file(
    assay: Callable, prompts: Callable, tmp_path: Path, n_turns: int, n_kb: int
) -> None:
    """A line may be half written when the turn before it ends."""
    agent = tmp_path / "raw_agent.py"
    agent.write_text(RAW_AGENT)
    path = prompts({"id": "p", "input": [str(n) for n in range(n_turns)]})
    done = assay("capture", path, "-q", "--", sys.executable, "-S", agent, n_kb)
    (row,) = done.rows
    assert "failure" not in row, row["failure"]
    assert row["events"]["unparsed"] == 0
    sizes = [(s["turn"], s["content"][:1], len(s["content"])) for s in row["trajectory"]]
    late = [(turn, "L", 5) for turn in range(2, n_turns + 1)]
    assert sorted(s for s in sizes if s[2] > 5) == [
        (n + 1, str(n), n_kb * 1024) for n in range(n_turns)
    ]
    assert [s for s in sizes if s[1] == "L"] == [*late, (n_turns, "L", 5)]


RAW_AGENT = """
import json, os, sys, time
size = int(sys.argv[1]) * 1024
def write(**m):
    os.write(1, line(**m) + b"\\n")
def line(**m):
    return json.dumps({"jsonrpc": "2.0", **m}).encode()
def chunk(text, id):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": id}
    return {"method": "session/update", "params": {"sessionId": "s", "update": update}}
half = b""
for text in sys.stdin:
    m = json.loads(text)
    if m["method"] == "initialize":
        write(id=m["id"], result={"protocolVersion": 1})
    elif m["method"] == "session/new":
        write(id=m["id"], result={"sessionId": "s"})
    else:
        said = m["params"]["prompt"][0]["text"]
        os.write(1, half + b"\\n" if half else b"")
        for i in range(size // 1024):
            write(**chunk(said * 1024, said))
        late = line(**chunk("L" * 5, "late" + said))
        answer = line(id=m["id"], result={"stopReason": "end_turn"}) + b"\\n"
        os.write(1, answer + late[:40])
        half = late[40:]
os.write(1, half + b"\\n")
"""


def test_run_and_extract_give_what_capture_gives(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    """The agent's lines alone are enough to read everything later."""
    agent = tmp_path / "raw_agent.py"
    agent.write_text(RAW_AGENT)
    path = prompts(["one", "two"])
    name = f"acp:{sys.executable} -S {agent} 2"
    (captured,) = assay("capture", path, "-s", name, "-q").rows
    raw = assay("run", path, "-s", name, "-q")
    (extracted,) = assay("extract", "-s", name, "-q", stdin=raw.stdout).rows
    for row in (captured, extracted):
        for step in row["trajectory"]:
            del step["timestamp"]
        del row["timing"]
    assert extracted == captured
    assert captured["trajectory"][0]["content"] == "one" * 2048
