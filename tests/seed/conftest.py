"""A project as the first seed's examples expect it: prompts, an agent called claude, results."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AGENT = '''#!/usr/bin/env python3
"""Speaks as the examples expect: claude -p PROMPT --output-format stream-json [--resume ID]."""
import argparse, json, os, pathlib, time

parser = argparse.ArgumentParser()
parser.add_argument("-p", dest="prompt")
parser.add_argument("--output-format")
parser.add_argument("--resume")
parser.add_argument("--model", default="none")
asked = parser.parse_args()
time.sleep(float(os.environ.get("AGENT_SLEEP_S", 0)))
memory = pathlib.Path("memory.txt")
heard = (memory.read_text() if asked.resume and memory.exists() else "") + asked.prompt + "; "
memory.write_text(heard)
for event in (
    {"type": "system", "session_id": "s-1", "model": asked.model},
    {"type": "thinking", "text": "I will look."},
    {"type": "tool", "name": "WebSearch", "status": "pending", "id": "c1",
     "input": {"query": asked.prompt}},
    {"type": "tool", "name": "WebSearch", "status": "completed", "id": "c1", "output": {"hits": 1}},
    {"type": "plan", "entries": [{"content": "answer", "status": "pending"}]},
    {"type": "message", "text": "Here it is."},
    {"type": "result", "result": f"A <button> for: {heard}",
     "usage": {"input_tokens": 150, "output_tokens": 85}},
):
    print(json.dumps(event), flush=True)
'''
EVENTS = [
    ("thinking", "thought", {"content": "$.text"}),
    ("message", "message", {"content": "$.text"}),
    ("plan", "plan", {"entries": "$.entries"}),
    ("tool", "tool_call", {"title": "$.name", "status": "$.status", "callId": "$.id"}),
]
SCHEMA = {
    "version": 1,
    "name": "claude",
    "command": ["claude"],
    "sessionMode": "stream",
    "prompt": {"flag": "-p"},
    "output": {"flag": "--output-format", "value": "stream-json"},
    "resume": {"flag": "--resume", "sessionIdPath": "$.session_id"},
    "modelFlag": "--model",
    "modelPath": "$.model",
    "outputEvents": [
        {"match": {"path": "$.type", "value": value}, "emitAs": kind, "extract": extract}
        for value, kind, extract in EVENTS
    ],
    "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
}
ITERATIVE = {**SCHEMA, "name": "gemini", "sessionMode": "iterative"}
del ITERATIVE["resume"]
PROMPTS = [
    {
        "id": "test-001",
        "input": "Create a button component",
        "hint": "<button>",
        "reference": "export const Button = () => <button>Click</button>",
        "metadata": {"category": "ui", "case": "positive"},
    },
    {
        "id": "test-002",
        "input": ["Create a button", "Make it blue"],
        "hint": "blue",
        "reference": "A blue one.",
        "metadata": {"category": "ui", "case": "positive"},
    },
    {
        "id": "test-003",
        "input": "Add a button without breaking tests",
        "hint": "never said",
        "reference": "nothing",
        "metadata": {"category": "edge-case", "case": "negative"},
    },
]
TURNS = [
    {
        "id": "context-001",
        "input": ["Remember this number: 42", "What number did I ask you to remember?"],
        "hint": "42",
    },
    {"id": "context-002", "input": ["My name is Alice", "What is my name?"], "hint": "Alice"},
]
GRADER_PY = """#!/usr/bin/env python3
import json, sys

trial = json.load(sys.stdin)
found = (trial.get("hint") or "").lower() in trial["output"].lower()
reason = "Contains hint" if found else "Missing hint"
print(json.dumps({"pass": found, "score": 1.0 if found else 0.0, "reasoning": reason}))
"""
GRADER_TS = """type Trial = { output: string; hint?: string }
export const grade = async ({ output, hint }: Trial) => {
  const pass: boolean = output.toLowerCase().includes((hint ?? '').toLowerCase())
  return { pass, score: pass ? 1 : 0, reasoning: pass ? 'Contains hint' : 'Missing hint' }
}
"""
JUDGE_TS = """export const grade = async ({ runs }: { runs: Record<string, unknown> }) => ({
  rankings: Object.keys(runs).map((run, i) => ({ run, rank: i + 1, score: 1 - i / 10 })),
  reasoning: 'in the order given',
})
"""
ADAPTER = "#!/bin/sh\nexec assay headless --schema ./claude.json\n"
MADE = (
    "assay capture prompts.jsonl --schema claude.json --grader ./grader.py -o results.jsonl",
    "assay run prompts.jsonl --schema claude.json -o raw.jsonl",
    "assay extract raw.jsonl --schema claude.json -o extracted.jsonl",
    "assay validate-refs prompts.jsonl --grader ./grader.py -o validation.jsonl",
    "assay trials prompts.jsonl --schema claude.json -k 2 -g ./grader.py -o trials1.jsonl",
    "assay trials prompts.jsonl --schema claude.json -k 2 -g ./grader.py -o trials2.jsonl",
    "for name in run1 run2 results-mcp results-vanilla; do cp results.jsonl $name.jsonl; done",
)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, warm_path: str) -> Path:
    """The project with what earlier commands of the examples leave behind."""
    kept = os.environ.get("ASSAY_SEED_PROJECT")  # of scripts/seed_coverage.py --prove
    if kept and Path(kept).is_dir():
        return Path(kept)
    folder = Path(kept) if kept else tmp_path_factory.mktemp("seed")
    folder.mkdir(exist_ok=True)
    programs = {"bin/claude": AGENT, "bin/gemini": AGENT, "bun-bin/bun": ADAPTER}
    programs |= {"grader.py": GRADER_PY, "grader.ts": GRADER_TS, "loose-grader.ts": GRADER_TS}
    programs |= {"my-llm-judge.ts": JUDGE_TS, "my-adapter.ts": "// started by bun\n"}
    for name, text in programs.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name, schema in (("claude", SCHEMA), ("claude-headless", SCHEMA)):
        (folder / f"{name}.json").write_text(json.dumps(schema))
    (folder / "gemini-headless.json").write_text(json.dumps(ITERATIVE | {"command": ["gemini"]}))
    for name, rows in (("prompts", PROMPTS), ("multi-turn", TURNS)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for line in MADE:
        done = run_line(line, folder, warm_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy of the project that a test may change."""
    import shutil

    return Path(shutil.copytree(made, tmp_path / "project"))


@pytest.fixture
def line(project: Path, warm_path: str) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run a command line in the project, as a user would in a shell."""

    def run(text: str, *programs: Path, **env: str) -> "subprocess.CompletedProcess[str]":
        return run_line(text, project, warm_path, *programs, **env)

    return run


@pytest.fixture
def rows(line: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    """Run a command line that succeeds and give the rows that it prints."""

    def run(text: str, **env: str) -> list[dict[str, Any]]:
        done = line(text, **env)
        assert done.returncode == 0, done.stderr
        return [json.loads(row) for row in done.stdout.splitlines()]

    return run


def run_line(
    text: str, folder: Path, others: str, *programs: Path, **env: str
) -> "subprocess.CompletedProcess[str]":
    """Run a line; programs are folders that come first on the PATH, before the others."""
    path = [*map(str, programs), str(folder / "bin")]
    # Only where a line starts an adapter: graders in TypeScript must find the real bun.
    path[:0] = [str(folder / "bun-bin")] if " bun ./" in text else []
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": ":".join([*path, others])} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
