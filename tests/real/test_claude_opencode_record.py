"""Record the real agents against the scripted model: ASSAY_RECORD=1 pytest -m real -k record.

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

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not os.environ.get("ASSAY_RECORD"), reason="records only on request"),
]

RECORDINGS = Path(__file__).parents[1] / "recordings"
MCP_SERVER = Path(__file__).with_name("mcp_adder.py")
FOLDERS = {"claude": "claude-2.1.325", "opencode": "opencode-1.18.33"}


def shell(command: str) -> dict[str, Any]:
    return {"tool": "shell", "command": command}


def task(agent: str) -> dict[str, Any]:
    given = {"description": "sub job", "prompt": "SUBJOB do it"}
    kind, name = ("general-purpose", "Task") if agent == "claude" else ("general", "task")
    return {"name": name, "id": "call_task", "arguments": {**given, "subagent_type": kind}}


def plan(agent: str) -> list[dict[str, Any]]:
    if agent == "opencode":
        todos = [{"content": "First", "status": "pending", "priority": "high"}]
        return [{"name": "todowrite", "arguments": {"todos": todos}}]
    return [
        {"name": "TaskCreate", "arguments": {"subject": "First", "description": "do it"}},
        {"name": "TaskCreate", "arguments": {"subject": "Second", "description": "then it"}},
    ]


SUB = {
    "when": {"firstUserContains": "SUBJOB"},
    "steps": [{"text": "sub says", "calls": [shell("echo sub")]}, {"text": "Sub report."}],
}
USAGE = {"input": 120, "output": 30, "cacheRead": 40, "cacheWrite": 8, "reasoning": 7}
MCP = [
    {"tool": "mcp", "server": "adder", "name": "add", "arguments": {"a": 2, "b": 3}},
    {"tool": "mcp", "server": "adder", "name": "boom"},
]
ONE = [{"text": "First.", "usage": {"input": 100, "output": 20}}]
TWO = [{"text": "Second.", "usage": {"input": 100, "output": 20}}]


def always(**fault: Any) -> dict[str, Any]:
    return {"steps": [{"text": "never", "faults": [{**fault, "times": "always"}]}]}


SCENARIOS: dict[str, Callable[[str], dict[str, Any]]] = {
    "answer": lambda _: {"steps": [{"thinking": "I add.", "text": "Four ✓.", "usage": USAGE}]},
    "tool": lambda _: {"steps": [{"text": "I write.", "calls": [shell("echo hi > a; cat a")]},
                                 {"text": "Done."}]},
    "fail": lambda _: {"steps": [{"calls": [shell("echo oops >&2; exit 3"),
                                            {"name": "no_such_tool", "arguments": {"a": 1}}]},
                                 {"text": "It failed."}]},
    "parallel": lambda _: {"steps": [{"calls": [shell("sleep 0.3; echo a"), shell("echo b")]},
                                     {"text": "Both."}]},
    "subagent": lambda agent: {"steps": [{"calls": [task(agent)]}, {"text": "Main end."}],
                               "threads": [SUB]},
    "plan": lambda agent: {"steps": [{"calls": plan(agent)}, {"text": "Planned."}]},
    "turns": lambda _: {"steps": [*ONE, *TWO]},
    "mcp": lambda _: {"steps": [{"calls": MCP}, {"text": "Five."}]},
    "auth": lambda _: always(status=401, message="no such key"),
    "broken": lambda _: always(status=500, message="it is broken"),
    "retry": lambda _: {"steps": [{"text": "Works.", "faults": [
        {"status": 429, "headers": {"retry-after": "1"}}]}]},
    "limit": lambda _: {"steps": [{"calls": [shell(f"echo {n}")]} for n in range(6)]},
    "killed": lambda _: {"steps": [{"text": "I start.", "calls": [shell("tail -f /dev/null")]}]},
}  # fmt: skip
ARGS = {"limit": ("--max-turns", "2")}
TIMEOUTS_MS = {"broken": 15_000, "killed": 12_000}


def claude_env(url: str) -> dict[str, str]:
    key = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy"}
    return {**key, "CLAUDE_CODE_MAX_RETRIES": "2"}


def opencode_env(url: str) -> dict[str, str]:
    limit = {"context": 200000, "output": 8000}
    price = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
    model = {"name": "Mock", "reasoning": True, "tool_call": True, "limit": limit, "cost": price}
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy", "timeout": 60000}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"provider": {"mock": {**provider, "models": {"mock-model": model}}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


SETTINGS = {
    "claude": (claude_env, "claude-sonnet-4-5"),
    "opencode": (opencode_env, "mock/mock-model"),
}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("agent", SETTINGS)
def test_record(
    live: Callable[..., Any], agent: str, name: str, tmp_path: Path, raw_folder: Callable[..., Path]
) -> None:
    env, model = SETTINGS[agent]
    args = ("--model", model, *ARGS.get(name, ()))
    if name == "mcp":
        path = tmp_path / "mcp.json"
        server = {"command": sys.executable, "args": [str(MCP_SERVER)]}
        broken = {"command": "/no/such/program"}
        path.write_text(json.dumps({"mcpServers": {"adder": server, "broken": broken}}))
        args += ("--mcp", str(path))
    said: Any = ["turn one", "turn two"] if name == "turns" else "Do it."
    timeout_ms = TIMEOUTS_MS.get(name, 90_000)
    done = live(agent, SCENARIOS[name](agent), said, env=env, args=args, timeout_ms=timeout_ms)
    target = RECORDINGS / FOLDERS[agent] / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    raw = raw_folder(done.folder, done.row)
    for path in sorted(raw.glob("*.out")):
        (target / path.name).write_text(scrub(path.read_text(), done))
    meta = done.row["metadata"]
    ends = {key: meta.get(key) for key in ("exitCode", "signal", "timedOut", "lingered")}
    note = {"stderr": scrub(done.row.get("stderr", ""), done), "end": ends}
    note |= {"startMs": done.row["timing"]["start"], "endMs": done.row["timing"]["end"]}
    (target / "end.json").write_text(json.dumps(note, indent=1) + "\n")
    for path in raw.rglob("opencode.db"):
        (target / "opencode.sql").write_text(scrub(dump(path), done))
    for path in raw.rglob("opencode.log"):
        kept = [line for line in path.read_text().splitlines(True) if "level=INFO" not in line]
        if kept:
            (target / "opencode.log").write_text(scrub("".join(kept), done))


def dump(path: Path) -> str:
    """Give the tables that are read, as SQL."""
    lines = []
    with closing(sqlite3.connect(path)) as connection:
        for line in connection.iterdump():
            if re.search(r'(TABLE|INTO) ["`]?(session|message|part)["`]?\s*[(V]', line):
                lines.append(line + "\n")
    return "".join(lines)


def scrub(text: str, done: Any) -> str:
    """Replace this machine's folders by those of nobody's."""
    places = [(str(done.workspace), "/workspace"), (str(done.folder), "/runs"),
              (str(MCP_SERVER.parents[2]), "/project")]  # fmt: skip
    for path, plain in places:
        text = text.replace(path, plain).replace(path[1:], plain[1:])
        text = text.replace(re.sub(r"[^A-Za-z0-9]", "-", path), plain.replace("/", "-"))
    text = re.sub(r"/tmp/assay-home-[\w-]+", "/home/agent", text)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", text)
