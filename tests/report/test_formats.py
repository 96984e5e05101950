"""Results as CSV, Markdown and JSONL."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.records.rows import RowFile
from assay.report.rows import Style, write_rows

TEXT = st.text(max_size=30)
SCORE = st.none() | st.fixed_dictionaries(
    {"pass": st.booleans(), "score": st.floats(0, 1), "reasoning": st.none() | TEXT}
)
ROW = st.fixed_dictionaries(
    {
        "id": TEXT,
        "input": TEXT | st.lists(TEXT, max_size=3),
        "output": TEXT,
        "timing": st.fixed_dictionaries({"total": st.integers(0, 10**9) | st.floats(0, 1e9)}),
        "toolErrors": st.booleans(),
    },
    optional={"hint": st.none() | TEXT, "score": SCORE},
)


def convert(style: Style, *rows: dict[str, Any] | str | bytes) -> str:
    lines = [json.dumps(r) if isinstance(r, dict) else r for r in rows]
    text = b"".join((r if isinstance(r, bytes) else r.encode()) + b"\n" for r in lines)
    out = io.BytesIO()
    write_rows(RowFile("r", io.BytesIO(text)), out, style, "NOW")
    return out.getvalue().decode()


def plain(**changes: Any) -> dict[str, Any]:
    return {"id": "a", "input": "q", "output": "o", "timing": {"total": 5}} | changes


@given(st.lists(ROW, max_size=5))
def test_any_csv_reader_gets_the_cells_back(rows: list[dict[str, Any]]):
    table = list(csv.reader(io.StringIO(convert("csv", *rows), newline="")))
    graded = any(row.get("score") for row in rows)
    assert len(table[0]) == (9 if graded else 6)
    assert len(table) == len(rows) + 1
    for row, cells in zip(rows, table[1:], strict=True):
        joined = row["input"] if isinstance(row["input"], str) else " | ".join(row["input"])
        texts = [row["id"], joined, row.get("hint") or "", row["output"]]
        assert cells[:4] == [text.replace("\n", "\\n") for text in texts]
        assert cells[4] == str(row["toolErrors"]).lower()
        assert float(cells[5]) == row["timing"]["total"]
        score = row.get("score")
        if not graded:
            assert len(cells) == 6
        elif score is None:
            assert cells[6:] == ["", "", ""]
        else:
            assert cells[6] == str(score["pass"]).lower()
            assert float(cells[7]) == pytest.approx(score["score"], abs=0.00051)
            assert cells[8] == (score["reasoning"] or "").replace("\n", "\\n")


def test_score_columns_come_with_a_grade_in_the_very_last_row():
    rows: list[dict[str, Any]] = [plain(id=str(i), output="x" * 3000) for i in range(300)]
    rows.append(plain(score={"pass": True, "score": 1}))
    lines = convert("csv", *rows).splitlines()
    assert lines[0].endswith(",pass,score,reasoning")
    assert lines[1].endswith(",false,5,,,")
    assert lines[-1] == '"a","q","","o",false,5,true,1.000,""'


def test_a_row_without_timing_is_named_with_its_field():
    with pytest.raises(InputError, match=r"^r:2: missing field `timing`"):
        convert("csv", plain(), {"id": "b", "input": "q", "output": "o"})
    with pytest.raises(InputError, match=r"^r:1: missing field `total` in \"timing\""):
        convert("csv", plain(timing={"start": 1}))


def test_jsonl_gives_every_row_as_it_stands():
    spaced = '{ "b": 1.0, "10": 1e3, "a": [1.50, -0.0], "u": "\\u00e9\\/", "n": null }'
    digits = '{"big":12345678901234567890,"huge":1e400,"long":0.12345678901234567891,"u":"é"}'
    assert convert("jsonl", spaced, digits) == f"{spaced}\n{digits}\n"


def test_jsonl_leaves_out_only_what_is_around_the_rows():
    told = convert("jsonl", '\ufeff{"a":1}\r', "", "  ", ' {"b":"\\ud800"}')
    assert told == '{"a":1}\n{"b":"\\ud800"}\n'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "must be an object"),
        ('{"a":', "truncated"),
        (b'{"a":"\xff"}', "not UTF-8"),
        ("[" * 50_000, "nested too deeply|must be an object"),
    ],
)
def test_jsonl_refuses_what_is_no_row_by_its_line(line: str | bytes, why: str):
    with pytest.raises(InputError, match=rf"^r:2: .*({why})"):
        convert("jsonl", '{"a":1}', line)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_jsonl_means_the_same(row: dict[str, Any]):
    """Numbers as every reader but one of exact whole numbers gets them: as floats."""
    text = json.dumps(row).replace("Infinity", "1e999")
    want = json.loads(text, parse_int=float)
    got = json.loads(convert("jsonl", text), parse_int=float)
    assert got == want
    assert list(got) == list(want)


def test_markdown_counts_before_it_shows():
    shown = convert(
        "markdown",
        plain(id="a", score={"pass": True, "score": 1}),
        plain(id="b", score={"pass": False, "score": 0.5, "reasoning": "why"}, toolErrors=True),
        plain(id="c", input=["t1", "t2"], hint="h", failure={"cause": "provider", "message": "m"}),
    )
    top, _, body = shown.partition("## Results")
    assert "Total: 3 test cases" in top
    assert "1/2 (50.0%)" in top
    assert "**Average score**: 0.750" in top
    assert "**Not graded**: 1" in top
    assert body.index("### a") < body.index("### b") < body.index("### c")
    for text in (
        "✅ 1.000 (PASS)",
        "❌ 0.500 (FAIL)",
        "why",
        "t1 → t2",
        "**Hint**: h",
        "provider error: m",
    ):
        assert text in body


def test_markdown_counts_an_ungraded_crash_as_compare_does():
    crash = {"cause": "agent_crash", "message": "m"}
    rows = plain(id="b", failure=crash), plain(id="c", failure={**crash, "answered": True})
    shown = convert("markdown", plain(id="a", score={"pass": True, "score": 1}), *rows)
    assert "1/2 (50.0%)" in shown
    assert "**Average score**: 0.500" in shown
    assert "**Not graded**: 1" in shown
    assert "Pass rate" not in convert("markdown", *rows), "failures alone are no measurement"


def test_an_output_with_a_fence_stays_inside_its_own():
    shown = convert("markdown", plain(output="```py\nx\n```"))
    assert "````\n```py\nx\n```\n````" in shown


def test_nothing_in_gives_only_the_frame():
    assert convert("csv") == "id,input,hint,output,tool_errors,duration_ms\n"
    assert convert("jsonl") == ""
    assert "Total: 0 test cases" in convert("markdown")
