"""What real agents keep in HOME by themselves, read by `assay import sessions`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

STEPS = [
    {"text": "I list them.", "calls": [{"tool": "shell", "command": "echo seen"}]},
    {"text": "There is one.", "expect": ["seen"]},
    {"text": "It was one."},
]  # fmt: skip


def shown(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Give what was said and called, by turn; thoughts are kept by some agents only."""
    return [
        (step["turn"], step["type"], step.get("content") or (step["name"], step["input"]))
        for step in row["trajectory"]
        if step["type"] in ("message", "tool_call")
    ]


def test_a_session_in_home_reads_as_the_trial_that_left_it(
    play: Callable[..., Any], kind: Any, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = play({"steps": STEPS}, ["turn one", "turn two"], isolate=False, env={"HOME": str(home)})
    assert "failure" not in done.row, done
    if kind.name == "gemini":  # in a trial it always has a HOME of its own; the file was kept
        keep_as_session(done, home / ".gemini/tmp/x")
    out = tmp_path / "sessions.jsonl"
    subprocess.run(
        [sys.executable, "-m", "assay", "import", "sessions", "--agent", kind.name, "-o", out],
        env={**os.environ, "HOME": str(home)}, cwd=tmp_path, check=True, timeout=60,
    )  # fmt: skip
    [row] = map(json.loads, out.read_text().splitlines())
    assert row["input"] == ["turn one", "turn two"]
    assert row["id"] == done.row["sessionId"]
    assert row["output"] == done.row["output"] == "It was one."
    assert shown(row) == shown(done.row)
    assert row["agent"]["model"] == done.row["agent"]["model"]
    for name in ("inputTokens", "outputTokens"):
        assert row["usage"][name] == done.row["usage"][name], name
    assert Path(row["cwd"]).resolve() == done.workspace.resolve()


def keep_as_session(done: Any, project: Path) -> None:
    """Write the session file that was kept with the raw streams to where the agent keeps it."""
    words = [sys.executable, "-m", "assay", "raw", "p0", "out.jsonl"]
    listed = subprocess.run([*words, "--list"], cwd=done.folder, capture_output=True, check=True)
    name = next(word for word in listed.stdout.decode().split() if word.endswith(".jsonl"))
    words += ["--stream", name]
    kept = subprocess.run(words, cwd=done.folder, capture_output=True, check=True)
    (project / "chats").mkdir(parents=True)
    (project / "chats/session-1.jsonl").write_bytes(kept.stdout)
    (project / ".project_root").write_text(str(done.workspace))
