"""Record Codex and Gemini CLI against the scripted model: ASSAY_RECORD=1 pytest -m real -k record.

Writes tests/recordings/AGENT-VERSION/SCENARIO/, scrubbed of this machine's paths, for the tests
of the readers. Without ASSAY_RECORD nothing is recorded.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
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
FOLDERS = {"codex": "codex-0.166.0", "gemini": "gemini-0.61.0"}
MODELS = {"codex": "gpt-5.5", "gemini": "gemini-2.5-pro"}
USAGE = {"input": 120, "output": 30, "cacheRead": 40, "reasoning": 7}
KILLED_MS = {"codex": 6_000, "gemini": 12_000}
"""Codex lets go of a command after ten seconds."""
LONG = ("base_instructions", "encrypted_content")


def shell(command: str) -> dict[str, Any]:
    return {"tool": "shell", "command": command}


def always(**fault: Any) -> dict[str, Any]:
    return {"steps": [{"text": "never", "faults": [{**fault, "times": "always"}]}]}


def plan(agent: str) -> dict[str, Any]:
    if agent == "codex":
        steps = [{"step": "First", "status": "completed"}, {"step": "Second", "status": "pending"}]
        return {"name": "update_plan", "arguments": {"plan": steps}}
    todos = [{"description": "First", "status": "completed"}]
    todos += [{"description": "Second", "status": "pending"}]
    return {"name": "write_todos", "arguments": {"todos": todos}}


def patch(agent: str) -> dict[str, Any]:
    return {"tool": "edit_file", "path": "a.txt", "old": "one\n", "new": "two\n"}


SCENARIOS: dict[str, Callable[[str], dict[str, Any]]] = {
    "answer": lambda _: {"steps": [{"thinking": "**Adding** I add.", "text": "Four ✓.",
                                    "usage": USAGE}]},
    "tool": lambda _: {"steps": [{"text": "I write.", "calls": [shell("echo hi > a; cat a")]},
                                 {"text": "Done."}]},
    "fail": lambda _: {"steps": [{"calls": [shell("echo oops >&2; exit 3"),
                                            {"name": "no_such_tool", "arguments": {"a": 1}}]},
                                 {"text": "It failed."}]},
    "files": lambda agent: {"steps": [
        {"calls": [{"tool": "write_file", "path": "a.txt", "content": "one\n"}]},
        {"calls": [patch(agent)]}, {"text": "Edited."}]},
    "parallel": lambda _: {"steps": [{"calls": [shell("sleep 0.3; echo a"), shell("echo b")]},
                                     {"text": "Both."}]},
    "plan": lambda agent: {"steps": [{"calls": [plan(agent)]}, {"text": "Planned."}]},
    "turns": lambda _: {"steps": [{"text": "First.", "calls": [shell("echo 1")]},
                                  {"text": "One."}, {"text": "Second."}]},
    "mcp": lambda _: {"steps": [{"calls": [{"tool": "mcp", "server": "adder", "name": "whoami"},
                                           {"tool": "mcp", "server": "adder", "name": "boom"}]},
                                {"text": "Five."}]},
    "auth": lambda _: always(status=401, message="no such key"),
    "broken": lambda _: always(status=500, message="it is broken"),
    "retry": lambda _: {"steps": [{"text": "Works.", "faults": [
        {"status": 429, "headers": {"retry-after": "1"}}]}]},
    "limit": lambda _: {"steps": [{"calls": [shell(f"echo {n}")], "delayS": 0.3}
                                  for n in range(6)]},
    "killed": lambda _: {"steps": [{"text": "I start.", "calls": [shell("tail -f /dev/null")]}]},
}  # fmt: skip


def env(agent: str, url: str) -> dict[str, str]:
    if agent == "codex":
        return {"MOCK_API_KEY": "dummy"}
    return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}


def arguments(agent: str, name: str, url: str, tmp_path: Path) -> tuple[str, ...]:
    words = ["--model", MODELS[agent], *(["--max-turns", "2"] if name == "limit" else [])]
    if name == "mcp":
        path = tmp_path / "mcp.json"
        server = {"command": sys.executable, "args": [str(MCP_SERVER)], "env": {"WHO": "me"}}
        broken = {"command": "/no/such/program"}
        path.write_text(json.dumps({"mcpServers": {"adder": server, "broken": broken}}))
        words += ["--mcp", str(path)]
    provider = "model_providers.mock"
    settings = ['model_provider="mock"', f'{provider}.name="mock"']
    settings += [f'{provider}.base_url="{url}/v1"', f'{provider}.wire_api="responses"']
    settings += [f'{provider}.env_key="MOCK_API_KEY"', f"{provider}.request_max_retries=1"]
    settings += [f"{provider}.stream_max_retries=1", "tools.update_plan.enabled=true"]
    for setting in settings if agent == "codex" else ():
        words += ["--agent-arg=-c", f"--agent-arg={setting}"]
    return tuple(words)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("agent", FOLDERS)
def test_record(
    live: Callable[..., Any], agent: str, name: str, tmp_path: Path, raw_folder: Callable[..., Path]
) -> None:
    done = live(
        agent,
        SCENARIOS[name](agent),
        ["turn one", "turn two"] if name == "turns" else "Do it.",
        env=lambda url: env(agent, url),
        args=lambda url: arguments(agent, name, url, tmp_path),
        timeout_ms=KILLED_MS[agent] if name == "killed" else 60_000 if name != "broken" else 12_000,
    )
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
    if name == "mcp":
        note["options"] = {"mcp": {"adder": {"command": "x"}, "broken": {"command": "y"}}}
    if name == "limit":
        note["options"] = {"max_turns": 2}
    (target / "end.json").write_text(json.dumps(note, indent=1) + "\n")
    for number, path in enumerate(sorted((raw / "files").rglob("*.jsonl")), 1):
        (target / "files").mkdir(exist_ok=True)
        lines = [shorten(line) for line in scrub(path.read_text(), done).splitlines()]
        text = "".join(line + "\n" for line in lines if line)
        (target / "files" / f"{number}.jsonl").write_text(text)
    adapter = plugins.adapter(PluginRef(name=agent, options=note.get("options", {})))
    write_expected(adapter, load_recording(target), target)


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
        text = text.replace(path, plain)
    text = re.sub(r"/tmp/assay-home-[\w-]+", "/home/agent", text)
    text = re.sub(r"file://[^\s:]*/node_modules", "file:///node_modules", text)
    text = re.sub(r'temporary dir "[^"]*"', 'temporary dir "/var"', text)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", text)
