"""assay summarize from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROW = {
    "id": "a",
    "input": "q",
    "output": "o",
    "trajectory": [{"type": "tool_call", "name": "Bash", "timestamp": 1}],
    "metadata": {},
    "timing": {"start": 1000, "end": 2500, "total": 1500},
    "toolErrors": False,
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    return path


def test_rows_of_extract_are_summarized_too(assay: Callable[..., Any], results: Path):
    done = assay("summarize", results)
    assert done.code == 0
    assert done.rows == [
        {"id": "a", "input": "q", "output": "o", "toolCalls": ["Bash"], "duration": 1500}
    ]


@pytest.mark.parametrize("flags", [(), ("--markdown",)])
def test_a_bad_line_leaves_nothing_behind(
    assay: Callable[..., Any], results: Path, tmp_path: Path, flags: tuple[str, ...]
):
    with results.open("a") as file:
        file.write("{bad\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = assay("summarize", results, *flags)
    assert (done.code, done.stdout) == (1, "")
    assert f"{results}:2: not a JSON object" in done.stderr
    done = assay("summarize", results, *flags, "-o", tmp_path / "out")
    assert done.code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_existing_output_is_replaced_when_all_went_well(
    assay: Callable[..., Any], results: Path, tmp_path: Path
):
    out = tmp_path / "new" / "s.jsonl"
    assert assay("summarize", results, "-o", out).code == 0
    assert out.stat().st_mode & 0o777 == results.stat().st_mode & 0o777
    written = out.read_text()
    broken = tmp_path / "broken.jsonl"
    broken.write_text(results.read_text() + "no json\n")
    assert assay("summarize", broken, "-m", "-o", out).code == 1
    assert out.read_text() == written
    assert [path.name for path in out.parent.iterdir()] == ["s.jsonl"]
    assert assay("summarize", results, "-m", "-o", out).code == 0
    assert out.read_text().startswith("## Evaluation Record: a")


def test_what_is_read_is_never_written_over(assay: Callable[..., Any], results: Path):
    before = results.read_text()
    for command in (("summarize",), ("format", "-f", "csv"), ("balance",), ("calibrate",)):
        done = assay(*command, results, "-o", results, "--overwrite")
        assert done.code == 2, command
        assert "-o is the same file as the input" in done.stderr
    done = assay("validate-refs", results, "-g", "contains:x", "-o", results, "--overwrite")
    assert done.code == 2
    assert results.read_text() == before


def test_usage_empty_and_missing_input(assay: Callable[..., Any], tmp_path: Path):
    assert assay("summarize").code == 1  # stdin holds no rows
    assert assay("summarize", tmp_path / "none").code == 1
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    done = assay("summarize", empty)
    assert (done.code, done.stdout.strip()) == (0, "")


def test_a_full_disk_is_said(assay: Callable[..., Any], results: Path):
    done = assay("summarize", results, "-o", "/dev/full")
    assert done.code == 1
    assert "/dev/full: No space left" in done.stderr
    with Path("/dev/full").open("wb") as full:
        done = assay("summarize", results, stdout=full)
    assert done.code == 1
    assert "No space left" in done.stderr


@pytest.mark.parametrize("args", [("summarize",), ("summarize", "-m"), ("format", "-f", "csv")])
def test_memory_does_not_grow_with_the_file(
    assay: Callable[..., Any], tmp_path: Path, args: tuple[str, ...]
):
    line = json.dumps(ROW | {"output": "x" * 2500}) + "\n"
    peaks = []
    for n in (1_000, 30_000):
        path = tmp_path / f"{n}.jsonl"
        path.write_text(line * n)
        done = assay(*args, path, "-o", tmp_path / f"{n}.out", measure=True)
        assert done.code == 0, done.stderr
        peaks.append(done.peak_mb)
    assert peaks[1] < peaks[0] + 12
    assert peaks[1] < 120
