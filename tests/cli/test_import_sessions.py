"""`assay import`: sessions that agents kept in HOME, made of recordings of the real ones."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

RECORDINGS = Path(__file__).parents[1] / "recordings"
AGENTS = ("codex", "gemini", "opencode")


def a_claude_line(kind: str, second: int, content: Any, **more: Any) -> str:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    line = {
        "type": kind, "sessionId": "s-1", "version": "2.1.325", "cwd": "/repo", "gitBranch": "main",
        "timestamp": f"2026-11-15T11:00:{second:02d}.000Z", "message": message, **more,
    }  # fmt: skip
    return json.dumps(line)


def an_answer(second: int, name: str, block: dict[str, Any], n_out: int) -> str:
    usage = {"input_tokens": 100, "output_tokens": n_out, "cache_read_input_tokens": 7}
    message = {"id": name, "model": "claude-sonnet-4-5", "usage": usage}
    return a_claude_line("assistant", second, [block], message=message)


CALL = {"type": "tool_use", "id": "call-1", "name": "Bash", "input": {"command": "make test"}}
CLAUDE = [
    '{"type":"summary","summary":"Fix the build"}',
    a_claude_line("user", 0, "<command-name>/clear</command-name>"),
    a_claude_line("user", 1, "Caveat: no program wrote this."),
    an_answer(2, "m1", {"type": "thinking", "thinking": "Run them."}, 3),
    an_answer(2, "m1", {"type": "text", "text": "I look."}, 9),
    an_answer(3, "m1", CALL, 20),
    a_claude_line("user", 5, [{"type": "tool_result", "tool_use_id": "call-1", "content": "ok"}]),
    a_claude_line("user", 6, "hidden", isMeta=True),
    a_claude_line("assistant", 6, [{"type": "text", "text": "inner"}], isSidechain=True),
    an_answer(7, "m2", {"type": "text", "text": "They pass."}, 5),
    a_claude_line("user", 9, [{"type": "text", "text": "Now commit."}]),
    an_answer(11, "m3", {"type": "text", "text": "Done."}, 4),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME in which four agents have worked."""
    home = tmp_path / "home"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "OPENCODE_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    claude = home / ".claude/projects/-repo/s-1.jsonl"
    codex = home / ".codex/sessions/2026/11/15/rollout-1.jsonl"
    gemini = home / ".gemini/tmp/repo/chats/session-1.jsonl"
    opencode = home / ".local/share/opencode/opencode.db"
    for path in (claude, codex, gemini, opencode):
        path.parent.mkdir(parents=True)
    claude.write_text("\n".join(CLAUDE) + "\n{torn")
    codex.write_bytes((RECORDINGS / "codex-0.166.0/turns/files/1.jsonl").read_bytes())
    gemini.write_bytes((RECORDINGS / "gemini-0.61.0/turns/files/1.jsonl").read_bytes())
    (gemini.parents[1] / ".project_root").write_text("/repo\n")
    with closing(sqlite3.connect(opencode)) as connection:
        connection.executescript((RECORDINGS / "opencode-1.18.33/turns/opencode.sql").read_text())
    return home


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["metadata"]["agent"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_sessions_of_four_agents_become_captures(
    assay: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sessions.jsonl"
    done = assay("import", "sessions", "-o", out)
    assert done.code == 0, done.stderr
    assert "4 sessions" in done.stderr
    rows = rows_of(out)
    assert set(rows) == {"claude", *AGENTS}
    for agent in AGENTS:
        row = rows[agent]
        assert row["input"] == ["turn one", "turn two"]
        assert row["output"] == "Second."
        said = [(step.get("turn"), step.get("content")) for step in row["trajectory"]
                if step["type"] == "message"]  # fmt: skip
        assert said[0] == (1, "First.")
        assert said[-1] == (2, "Second.")
        assert row["timing"]["firstResponse"] == row["trajectory"][0]["timestamp"]
        assert row["usage"]["outputTokens"] in (40, 60)
        assert "failure" not in row
        assert row["metadata"].get("project") in ("/repo", "/workspace")
    assert [
        step["name"] for step in rows["codex"]["trajectory"] if step["type"] == "tool_call"
    ] == ["exec_command"]


def test_a_transcript_of_claude_code_has_what_the_user_asked_and_no_words_of_the_program(
    assay: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sessions.jsonl"
    assert assay("import", "sessions", "--agent", "claude", "-q", "-o", out).code == 0
    [row] = rows_of(out).values()
    assert row["input"] == ["Caveat: no program wrote this.", "Now commit."]
    assert row["output"] == "Done."
    steps = [(step["type"], step.get("turn"), step["timestamp"]) for step in row["trajectory"]]
    assert steps == [
        ("thought", 1, 1000), ("message", 1, 1000), ("tool_call", 1, 2000), ("message", 1, 6000),
        ("message", 2, 10000),
    ]  # fmt: skip
    call = row["trajectory"][2]
    assert (call["output"], call["status"], call["duration"]) == ("ok", "completed", 2000)
    # Each answer is counted once, by its last line.
    assert row["usage"]["inputTokens"] == 300
    assert row["usage"]["outputTokens"] == 20 + 5 + 4
    assert row["usage"]["costUsd"] > 0
    assert row["agent"] == {"adapter": "claude", "version": "2.1.325", "model": "claude-sonnet-4-5"}
    assert row["metadata"]["branch"] == "main"
    assert row["cwd"] == "/repo"


def test_every_command_that_reads_captures_reads_sessions(
    assay: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sessions.jsonl"
    assay("import", "sessions", "-q", "-o", out)
    for command in (["summarize"], ["format", "-f", "csv"], ["export", "sft"], ["explain"]):
        done = assay(command[0], *command[1:], out)
        assert done.code == 0, (command, done.stderr)
    graded = tmp_path / "graded.jsonl"
    assert assay("grade", out, "-g", 'tools:{"max_calls": 99}', "-o", graded).code == 0


def test_prompts_of_sessions_are_a_prompt_file(
    assay: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    done = assay("import", "prompts", "--project", tmp_path, "-o", prompts)
    assert done.code == 1
    assert "no sessions" in done.stderr
    assert not prompts.exists()
    done = assay("import", "prompts", "-o", prompts)
    assert done.code == 0, done.stderr
    rows = rows_of(prompts)
    assert rows["codex"]["input"] == ["turn one", "turn two"]
    assert rows["claude"]["metadata"]["project"] == "/repo"
    out = tmp_path / "answers.jsonl"
    assert assay("capture", prompts, "--simple", "echo {}", "-q", "-o", out).code == 0


def test_what_went_on_earlier_is_left_out(
    assay: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            os.utime(path, (1_000_000, 1_000_000))
    done = assay("import", "sessions", "--since", "1d", "-o", tmp_path / "out.jsonl")
    assert done.code == 1
    assert "in this time" in done.stderr
    assert assay("import", "sessions", "--since", "soon").code == 2


def test_secrets_of_the_environment_are_masked_and_the_agents_files_are_not_touched(
    assay: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-" + hashlib.sha256(b"x").hexdigest()
    monkeypatch.setenv("MY_API_KEY", secret)
    path = home / ".claude/projects/-repo/s-1.jsonl"
    path.write_text(path.read_text().replace("They pass.", secret))
    before = {one: one.read_bytes() for one in home.rglob("*") if one.is_file()}
    out = tmp_path / "sessions.jsonl"
    assert assay("import", "sessions", "-o", out).code == 0
    assert secret not in out.read_text()
    assert {one: one.read_bytes() for one in home.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"[]\n1\n{}\n", b'{"type":"user"}\n' * 3,
                                  b'{"type":"user","message":{"content":{"a":1}}}\n'])  # fmt: skip
def test_a_broken_file_of_an_agent_ends_nothing(
    assay: Callable[..., Any], home: Path, tmp_path: Path, data: bytes
) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            path.write_bytes(data)
    (home / ".claude/projects/-repo/s-2.jsonl").write_text("\n".join(CLAUDE))
    out = tmp_path / "sessions.jsonl"
    done = assay("import", "sessions", "-o", out)
    assert done.code == 0, done.stderr
    assert len(out.read_text().splitlines()) == 1


def test_a_chat_of_gemini_in_which_nothing_was_asked_hides_no_others(
    assay: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    """Gemini CLI writes its context first, so a chat that ended at once has no more."""
    context = {"id": "c", "type": "user", "content": [{"text": "<session_context>\nThis is it"}]}
    lines = [
        {"sessionId": "s-empty", "startTime": "2026-11-15T07:01:35.661Z", "kind": "main"},
        {"$set": {"messages": [context]}},
    ]
    chat = home / ".gemini/tmp/repo/chats/session-0.jsonl"
    chat.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = assay("import", "sessions", "--agent", "gemini", "-o", tmp_path / "out.jsonl")
    assert done.code == 0, done.stderr
    assert "1 session" in done.stderr
