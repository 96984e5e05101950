"""assay format from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROW = {"id": "a", "input": "q", "output": "o", "timing": {"total": 5.0}, "extra": 1.0}
GRADED = ROW | {"score": {"pass": True, "score": 0.0625}}


def text(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_stdin_is_read_twice_for_csv(assay: Callable[..., Any]):
    done = assay("format", "-f", "csv", stdin=text(ROW, GRADED))
    assert done.code == 0
    assert done.stdout.splitlines() == [
        "id,input,hint,output,tool_errors,duration_ms,pass,score,reasoning",
        '"a","q","","o",false,5,,,',
        '"a","q","","o",false,5,true,0.063,""',
    ]


def test_jsonl_is_the_default_and_keeps_every_field(assay: Callable[..., Any], tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_text(text(ROW))
    done = assay("format", path)
    assert done.stdout == text(ROW)


def test_markdown_goes_to_a_file(assay: Callable[..., Any], tmp_path: Path):
    out = tmp_path / "report.md"
    done = assay("format", "--style", "markdown", "-o", out, "--progress", stdin=text(GRADED))
    assert (done.code, done.stdout) == (0, "")
    assert "stdin as markdown" in done.stderr
    assert "1/1 (100.0%)" in out.read_text()


def test_wrong_use_and_wrong_input(assay: Callable[..., Any], tmp_path: Path):
    assert assay("format", "-f", "xml", stdin=text(ROW)).code == 2
    empty = assay("format", stdin="\n")
    assert empty.code == 1
    assert "stdin: no rows" in empty.stderr
    bad = assay("format", "-f", "csv", stdin=text(ROW, {"id": "b"}))
    assert (bad.code, bad.stdout) == (1, "")
    assert "stdin:2: missing field" in bad.stderr
    path = tmp_path / "empty.jsonl"
    path.touch()
    assert assay("format", path, "-f", "csv").stdout.startswith("id,input")
