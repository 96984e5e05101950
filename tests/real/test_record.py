"""Record the four agents against the scripted model: ASSAY_RECORD=1 pytest -m real -k record.

Writes tests/recordings/AGENT-VERSION/SCENARIO/, scrubbed of this machine's paths, for the tests
of the readers. Without ASSAY_RECORD nothing is recorded.
"""

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.records.spec import PluginRef
from assay.testing.conformance import load_recording, write_expected

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not os.environ.get("ASSAY_RECORD"), reason="records only on request"),
]

RECORDINGS = Path(__file__).parents[1] / "recordings"
MCP_SERVER = Path(__file__).with_name("mcp_adder.py")
FOLDERS = {
    "claude": "claude-2.1.325",
    "codex": "codex-0.166.0",
    "gemini": "gemini-0.61.0",
    "opencode": "opencode-1.18.33",
}
LONG = ("base_instructions", "encrypted_content")
USAGE = {"input": 120, "output": 30, "cacheRead": 40, "reasoning": 7}


def shell(command: str) -> dict[str, Any]:
    return {"tool": "shell", "command": command}


def mcp(*names: str, **arguments: Any) -> dict[str, Any]:
    call = {"tool": "mcp", "server": "adder"}
    return {"calls": [{**call, "name": name, "arguments": arguments} for name in names]}


def always(**fault: Any) -> dict[str, Any]:
    return {"steps": [{"text": "never", "faults": [{**fault, "times": "always"}]}]}


def calls(*called: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**more, "calls": list(called)}


BUSY = {"status": 429, "headers": {"retry-after": "1"}}
OF_ALL: dict[str, dict[str, Any]] = {
    "tool": {"steps": [calls(shell("echo hi > a; cat a"), text="I write."), {"text": "Done."}]},
    "fail": {
        "steps": [
            calls(shell("echo oops >&2; exit 3"), {"name": "no_such_tool", "arguments": {"a": 1}}),
            {"text": "It failed."},
        ]
    },
    "parallel": {
        "steps": [calls(shell("sleep 0.3; echo a"), shell("echo b")), {"text": "Both."}],
    },
    "auth": always(status=401, message="no such key"),
    "broken": always(status=500, message="it is broken"),
    "retry": {"steps": [{"text": "Works.", "faults": [BUSY]}]},
    "killed": {"steps": [calls(shell("tail -f /dev/null"), text="I start.")]},
}
"""What is recorded of each agent in the same words."""


def sub_agent(name: str, kind: str) -> dict[str, Any]:
    """An answer by a sub-agent, where the agent tells of it."""
    given = {"description": "sub job", "prompt": "SUBJOB do it", "subagent_type": kind}
    inner = [calls(shell("echo sub"), text="sub says"), {"text": "Sub report."}]
    return {
        "steps": [
            calls({"name": name, "id": "call_task", "arguments": given}),
            {"text": "Main end."},
        ],
        "threads": [{"when": {"firstUserContains": "SUBJOB"}, "steps": inner}],
    }


def plan(name: str, *given: dict[str, Any]) -> dict[str, Any]:
    planned = [{"name": name, "arguments": one} for one in given]
    return {"steps": [calls(*planned), {"text": "Planned."}]}


ONE, TWO = ({"text": text, "usage": {"input": 100, "output": 20}} for text in ("First.", "Second."))
PAIR: dict[str, dict[str, Any]] = {
    "answer": {
        "steps": [{"thinking": "I add.", "text": "Four ✓.", "usage": {**USAGE, "cacheWrite": 8}}]
    },
    "turns": {"steps": [ONE, TWO]},
    "mcp": {
        "steps": [
            calls(
                *mcp("add", a=2, b=3)["calls"], {"tool": "mcp", "server": "adder", "name": "boom"}
            ),
            {"text": "Five."},
        ]
    },
    "limit": {"steps": [calls(shell(f"echo {n}")) for n in range(6)]},
}
"""What is recorded of Claude Code and OpenCode."""
OTHER_PAIR: dict[str, dict[str, Any]] = {
    "answer": {"steps": [{"thinking": "**Adding** I add.", "text": "Four ✓.", "usage": USAGE}]},
    "files": {
        "steps": [
            calls({"tool": "write_file", "path": "a.txt", "content": "one\n"}),
            calls({"tool": "edit_file", "path": "a.txt", "old": "one\n", "new": "two\n"}),
            {"text": "Edited."},
        ]
    },
    "turns": {
        "steps": [calls(shell("echo 1"), text="First."), {"text": "One."}, {"text": "Second."}]
    },
    "mcp": {"steps": [mcp("whoami", "boom"), {"text": "Five."}]},
    "limit": {"steps": [calls(shell(f"echo {n}"), delayS=0.3) for n in range(6)]},
}
"""What is recorded of Codex and Gemini CLI."""
FIRST_DONE = [
    {"step": "First", "status": "completed"},
    {"step": "Second", "status": "pending"},
]
TODOS = [{"description": step["step"], "status": step["status"]} for step in FIRST_DONE]
SCENARIOS: dict[str, dict[str, dict[str, Any]]] = {
    "claude": PAIR
    | {
        "subagent": sub_agent("Task", "general-purpose"),
        "plan": plan(
            "TaskCreate",
            {"subject": "First", "description": "do it"},
            {"subject": "Second", "description": "then it"},
        ),
    },
    "opencode": PAIR
    | {
        "subagent": sub_agent("task", "general"),
        "plan": plan(
            "todowrite",
            {"todos": [{"content": "First", "status": "pending", "priority": "high"}]},
        ),
    },
    "codex": OTHER_PAIR | {"plan": plan("update_plan", {"plan": FIRST_DONE})},
    "gemini": OTHER_PAIR | {"plan": plan("write_todos", {"todos": TODOS})},
}
CASES = [(agent, name) for agent, own in SCENARIOS.items() for name in OF_ALL | own]
LIMITS_MS = {
    **{"killed": 12_000, "broken": 12_000, "killed codex": 6_000},
    **{"broken claude": 15_000, "broken opencode": 15_000},
}
"""Codex lets go of a command after ten seconds; OpenCode takes many to start."""


@pytest.mark.parametrize(("kind", "name"), CASES, indirect=["kind"])
def test_record(
    play: Callable[..., Any],
    kind: Any,
    name: str,
    tmp_path: Path,
    raw_folder: Callable[..., Path],
) -> None:
    args = ["--max-turns", "2"] if name == "limit" else []
    if name == "mcp":
        server = {"command": sys.executable, "args": [str(MCP_SERVER)], "env": {"WHO": "me"}}
        servers = {"adder": server, "broken": {"command": "/no/such/program"}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        args += ["--mcp", str(tmp_path / "mcp.json")]
    if kind.name == "codex":
        args += ["--agent-arg=-c", "--agent-arg=tools.update_plan.enabled=true"]
    done = play(
        (OF_ALL | SCENARIOS[kind.name])[name],
        ["turn one", "turn two"] if name == "turns" else "Do it.",
        args=args,
        timeout_ms=LIMITS_MS.get(f"{name} {kind.name}") or LIMITS_MS.get(name, 90_000),
    )
    target = RECORDINGS / FOLDERS[kind.name] / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    raw = raw_folder(done.folder, done.row)
    for path in sorted(raw.glob("*.out")):
        (target / path.name).write_text(scrub(path.read_text(), done))
    options = write_end(target, name, kind, done)
    write_files(target, kind, raw, done)
    if kind.name in ("codex", "gemini"):
        adapter = plugins.adapter(PluginRef(name=kind.name, options=options))
        write_expected(adapter, load_recording(target), target)


def write_end(target: Path, name: str, kind: Any, done: Any) -> dict[str, Any]:
    """Write how the trial ended; return the options that its reader needs."""
    meta = done.row["metadata"]
    ends = {key: meta.get(key) for key in ("exitCode", "signal", "timedOut", "lingered")}
    note = {"stderr": scrub(done.row.get("stderr", ""), done), "end": ends}
    note |= {"startMs": done.row["timing"]["start"], "endMs": done.row["timing"]["end"]}
    options: dict[str, Any] = {}
    if name == "mcp":
        options = {"mcp": {"adder": {"command": "x"}, "broken": {"command": "y"}}}
    if name == "limit":
        options = {"max_turns": 2}
    if options and kind.name in ("codex", "gemini"):
        note["options"] = options
    (target / "end.json").write_text(json.dumps(note, indent=1) + "\n")
    return options


def write_files(target: Path, kind: Any, raw: Path, done: Any) -> None:
    """Write what the reader takes from the agent's own files."""
    for path in raw.rglob("opencode.db"):
        (target / "opencode.sql").write_text(scrub(dump(path), done))
    for path in raw.rglob("opencode.log"):
        kept = [line for line in path.read_text().splitlines(True) if "level=INFO" not in line]
        if kept:
            (target / "opencode.log").write_text(scrub("".join(kept), done))
    sessions = (raw / "files").rglob("*.jsonl") if kind.name in ("codex", "gemini") else ()
    for number, path in enumerate(sorted(sessions), 1):
        (target / "files").mkdir(exist_ok=True)
        lines = [shorten(line) for line in scrub(path.read_text(), done).splitlines()]
        text = "".join(line + "\n" for line in lines if line)
        (target / "files" / f"{number}.jsonl").write_text(text)


def dump(path: Path) -> str:
    """Give the tables that are read, as SQL."""
    lines = []
    with closing(sqlite3.connect(path)) as connection:
        for line in connection.iterdump():
            if re.search(r'(TABLE|INTO) ["`]?(session|message|part)["`]?\s*[(V]', line):
                lines.append(line + "\n")
    return "".join(lines)


def shorten(line: str) -> str:
    """Leave out what no reader looks at: instructions of many pages."""
    entry = json.loads(line)
    payload = entry.get("payload")
    if entry.get("type") in ("world_state", "event_msg") and "thread_settings" in json.dumps(entry):
        return ""
    if entry.get("type") == "world_state" or "messages" in entry.get("$set", {}):
        return ""
    if isinstance(payload, dict):
        if payload.get("role") in ("developer", "user"):
            return ""
        entry["payload"] = {key: value for key, value in payload.items() if key not in LONG}
    return json.dumps(entry, ensure_ascii=False)


def scrub(text: str, done: Any) -> str:
    """Replace this machine's folders by those of nobody's."""
    places = [(str(done.workspace), "/workspace"), (str(done.folder), "/runs")]
    places += [(str(MCP_SERVER.parents[2]), "/project")]
    for path, plain in places:
        text = text.replace(path, plain).replace(path[1:], plain[1:])
        text = text.replace(re.sub(r"[^A-Za-z0-9]", "-", path), plain.replace("/", "-"))
    text = re.sub(r"/tmp/assay-home-[\w-]+", "/home/agent", text)
    text = re.sub(r"file://[^\s:]*/node_modules", "file:///node_modules", text)
    text = re.sub(r'temporary dir "[^"]*"', 'temporary dir "/var"', text)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", text)
