"""At 80 columns nothing is cut, the verdict comes last, and no name of the files is shown."""

import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from assay.adapters.vendor import KNOWN
from assay.cli.group import _continue_hint
from assay.cli.tables import draw_markdown, draw_table
from assay.records.capture import Cause, cause_words


def drawn(width: int, draw: Callable[[Console], None]) -> str:
    out = io.StringIO()
    draw(Console(file=out, width=width, highlight=False, markup=False))
    return out.getvalue()


@pytest.mark.parametrize("width", [30, 80, 160])
@pytest.mark.parametrize("n_rows", [1, 2, 9])
@pytest.mark.parametrize("n_columns", [2, 9])
def test_every_cell_is_whole_at_any_width(width: int, n_rows: int, n_columns: int) -> None:
    header = [f"column{n}" for n in range(n_columns)]
    rows = [[f"r{i}c{n} (0.123 to 0.456)" for n in range(n_columns)] for i in range(n_rows)]
    text = drawn(width, lambda console: draw_table(console, "[title]", header, rows))
    assert "[title]" in text
    assert "…" not in text
    assert all(cell_len(line) <= width for line in text.splitlines())
    seen = "".join(text.split()).replace("│", "")
    for cell in (*header, *(f"r{i}c{n}" for i in range(n_rows) for n in range(n_columns))):
        assert cell in seen


def test_a_word_that_is_wider_than_the_window_is_folded() -> None:
    text = drawn(40, lambda console: draw_table(console, "", ["id", "n"], [["x" * 100, "1"]]))
    assert text.count("x") == 100
    assert all(len(line) <= 40 for line in text.splitlines())


def test_our_markdown_is_drawn_and_not_shown_as_source() -> None:
    source = "# Head\n\n- **better**: by 3\n\n| a \\| b | c |\n|---|---|\n| [red]x | 2 |\n\x1b[2J\n"
    text = drawn(80, lambda console: draw_markdown(console, source))
    assert "**" not in text
    assert "|---" not in text
    assert "# Head" not in text
    for part in ("Head", "- better: by 3", "a | b", "[red]x", "\\u001b[2J"):
        assert part in text


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "old.jsonl", tmp_path / "new.jsonl"]
    for path, limit in zip(paths, (30, 22), strict=True):
        rows = [
            {
                "id": f"a-prompt-with-a-rather-long-name-{n}",
                "input": "q",
                "output": "",
                "trajectory": [],
                "metadata": {"category": f"category {n % 3}"},
                "timing": {"start": 0, "end": 9, "total": 9},
                "toolErrors": False,
                "score": {"pass": n < limit, "score": float(n < limit)},
                **({"failure": {"cause": "agent_timeout", "message": "m"}} if n == 29 else {}),
            }
            for n in range(30)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def test_compare_ends_with_the_verdict(assay: Callable[..., Any], runs: list[Path]) -> None:
    done = assay("compare", *runs, "-f", "table", "--fail-on", "regression")
    lines = done.stdout.strip().splitlines()
    last = " ".join(lines[-3:])
    assert "new is worse than old: 100 % → 73 % of prompts pass (-27 points" in last
    assert "ran out of time in 1" in done.stdout
    for style in ("table", "markdown"):
        text = assay("compare", *runs[:1], runs[0], "--run", f"b:{runs[1]}", "-f", style).stdout
        for name in (*Cause, "not-enough-data", "cannot-judge", "latencyMs", "costUsd"):
            assert "_" not in name or name not in text, (style, name)
            assert "-" not in name or name not in text, (style, name)


def test_a_gate_that_cannot_be_judged_is_said_in_words(
    assay: Callable[..., Any], tmp_path: Path, runs: list[Path]
) -> None:
    short = [tmp_path / f"s{path.name}" for path in runs]
    for path, target in zip(runs, short, strict=True):
        target.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    done = assay("compare", *short, "--fail-on", "regression", "-f", "markdown")
    assert done.code == 4
    assert "cannot be judged" in done.stderr
    assert "cannot be judged" in done.stdout
    assert "cannot-judge" not in done.stdout + done.stderr
    told = json.loads(assay("compare", *short, "--fail-on", "regression", "-f", "json").stdout)
    assert told["gate"][0]["outcome"] == "cannot-judge"  # files keep the name


def test_every_cause_has_words() -> None:
    assert {cause.words for cause in Cause}.isdisjoint({cause.value for cause in Cause})
    assert cause_words("made by another program") == "made by another program"


def test_grade_ends_with_the_rate_and_what_to_do_next(
    assay: Callable[..., Any], runs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "graded.jsonl"
    done = assay("grade", runs[0], "-g", "regex:x|^$", "-o", out)
    *lines, last = done.stderr.strip().splitlines()
    (rate,) = (line for line in lines if line.startswith("Pass rate "))
    assert "95 % interval" in rate
    assert last == f"Next: assay view {out}"


def test_agents_answers_at_once_even_if_an_agent_does_not(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for agent in KNOWN[1:]:
        (folder / agent.program).write_text("#!/bin/sh\nsleep 5\necho 1.2.3\n")
        (folder / agent.program).chmod(0o755)
    package = tmp_path / "node_modules" / "packaged"
    (package / "bin").mkdir(parents=True)
    (package / "bin" / "run.js").write_text("#!/bin/sh\nsleep 5\n")
    (package / "bin" / "run.js").chmod(0o755)
    (package / "package.json").write_text('{"version": "7.8.9", "bin": {"x": "bin/run.js"}}')
    (folder / KNOWN[0].program).symlink_to(package / "bin" / "run.js")
    began_s = time.monotonic()
    done = assay("agents", "--json", env={"PATH": f"{folder}:{os.environ['PATH']}"})
    took_s = time.monotonic() - began_s
    rows = json.loads(done.stdout)
    assert rows[0]["version"] == "7.8.9"
    assert all(row["installed"] and row["version"] is None for row in rows[1 : len(KNOWN)])
    assert took_s < 10  # seconds less than the agents; the figure itself is in RESULTS.md


OF_80_COLUMNS = {"COLUMNS": "80", "TERM": "xterm"}


def test_sentences_are_folded_at_words_on_a_terminal_and_whole_in_a_pipe(
    assay: Callable[..., Any], on_terminal: Callable[..., Any], tmp_path: Path
) -> None:
    words = "relnotes helps: +0.42 (+0.30 to +0.55) in 74 of 200 planned trials, $1.92, 6 minutes"
    verdict = {"valid": True, "sentences": [words] * 2, "experiment": "x", "inputs": {}}
    for name in ("first", "second"):
        path = tmp_path / "experiments" / name / "1" / "verdict.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"name": name, **verdict}))
    shown = on_terminal("ab", "status", env=OF_80_COLUMNS)[1].splitlines()
    assert max(map(len, shown)) <= 80
    assert shown.count("") == 1, "a blank line between two experiments"
    assert [line[:2] for line in shown].count("  ") == 2, "what goes on is indented"
    piped = assay("ab", "status").stdout
    assert [line for line in piped.splitlines() if line] == [
        f"{name}: stale: an earlier version of Assay made this verdict and did not record what "
        f"the agent loads (experiments/{name}/1)"
        for name in ("first", "second")
    ]
    assert " ".join(" ".join(shown).split()) == " ".join(piped.split())


@pytest.mark.parametrize(
    "words",
    [
        ("agents",),
        ("doctor",),
        ("schemas",),
        ("arc",),
        ("plan", "old.jsonl"),
        ("compare", "old.jsonl", "new.jsonl"),
        ("explain", "new.jsonl"),
        ("grade", "new.jsonl", "-g", "contains", "-o", "graded.jsonl"),
        ("capture", "p.jsonl", "--simple", "echo {}", "-g", "contains", "-o", "c.jsonl"),
        ("trials", "p.jsonl", "--simple", "echo {}", "-g", "contains", "-k", "2", "-o", "t.jsonl"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_fits_80_columns(
    on_terminal: Callable[..., Any], runs: list[Path], tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "p.jsonl").write_text('{"id":"p","input":"x","hint":"y"}\n')
    shown = on_terminal(*words, env=OF_80_COLUMNS)[1].split("\n")
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).split("\r")[-1] for line in shown]
    assert [line for line in lines if len(line) > 80 and len(line.split()) > 1] == []
    assert max(map(len, lines)) > 30


def test_errors_are_folded_on_a_terminal(on_terminal: Callable[..., Any]) -> None:
    words = ("ab", "prompts.jsonl", "-s", "demo")
    shown = on_terminal(*words, env=OF_80_COLUMNS)[1].splitlines()
    assert max(map(len, shown)) <= 80
    assert "Error: Nothing to compare." in "\n".join(shown)
    assert any(line.startswith("  ") for line in shown)


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ab", "run the same command again to go on"),
        ("compare", "Run the same command again."),
        ("export", "Run the same command again."),
    ],
)
def test_what_continues_an_interrupted_command(
    monkeypatch: pytest.MonkeyPatch, command: str, said: str, loaded: bool
) -> None:
    import_module(f"assay.cli.{command}")
    if not loaded:  # Ctrl-C came first
        monkeypatch.delitem(sys.modules, f"assay.cli.{command}")
    assert said in _continue_hint([command])


@pytest.mark.parametrize("command", ["capture", "trials", "grade"])
@pytest.mark.parametrize("output", [None, "out.jsonl", "/dev/stdout"])
def test_rows_are_said_to_be_saved_only_where_they_are(
    start: Callable, eventually: Callable, tmp_path: Path, command: str, output: str | None
) -> None:
    marker = tmp_path / "started"
    slow = f"touch {marker}; sleep 60"
    (tmp_path / "in.jsonl").write_text('{"id":"p","input":"x","output":"y"}\n')
    (tmp_path / "slow.sh").write_text(f"#!/bin/sh\n{slow}\n")
    (tmp_path / "slow.sh").chmod(0o755)
    words = ["-g", "./slow.sh"] if command == "grade" else ["--shell", slow]
    more = ["-o", output] if output else []
    process = start(command, tmp_path / "in.jsonl", *words, *more)
    assert eventually(marker.exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "Interrupted." in said
    assert ("continue with --resume" in said) == (output == "out.jsonl")
