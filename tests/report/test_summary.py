"""The compact view and the long one."""

import io
import json
from typing import Any

import pytest

from assay.errors import InputError
from assay.records.rows import RowFile
from assay.report.summary import write_summary, write_summary_markdown

BASE: dict[str, Any] = {
    "id": "r",
    "input": ["one", "two"],
    "output": "out",
    "trajectory": [
        {"type": "thought", "content": "t" * 101},
        {"type": "tool_call", "name": "Read", "status": "completed", "duration": 4.0},
        {"type": "plan", "entries": [{"content": "first", "status": "done"}, {"content": "next"}]},
        {"type": "tool_call", "status": "failed"},
        {"type": "message", "content": "m"},
    ],
    "metadata": {"category": "ui", "nested": {"a": 1}},
    "timing": {"start": 1000, "end": 2234.0, "total": 1},
}


def summary(**changes: Any) -> dict[str, Any]:
    out = io.BytesIO()
    write_summary(RowFile("r", io.BytesIO(json.dumps(BASE | changes).encode())), out)
    row: dict[str, Any] = json.loads(out.getvalue())
    return row


def markdown(**changes: Any) -> str:
    out = io.BytesIO()
    write_summary_markdown(RowFile("r", io.BytesIO(json.dumps(BASE | changes).encode())), out)
    return out.getvalue().decode()


def test_the_seeds_fields():
    assert summary() == {
        "id": "r",
        "input": "one\ntwo",
        "output": "out",
        "toolCalls": ["Read", "unknown"],
        "duration": 1234,
    }


def test_verdict_and_cause_stand_behind_them():
    row = summary(
        score={"pass": False, "score": 0.5}, failure={"cause": "agent_timeout", "message": "m"}
    )
    assert (row["pass"], row["score"], row["cause"]) == (False, 0.5, "agent_timeout")


def test_the_clocks_noise_is_not_printed():
    assert summary(timing={"start": 1790000000000.1, "end": 1790000000012.4})["duration"] == 12.3


@pytest.mark.parametrize("missing", ["id", "input", "output", "trajectory", "timing"])
def test_a_missing_field_is_named(missing: str):
    row = {key: value for key, value in BASE.items() if key != missing}
    file = RowFile("r", io.BytesIO(b"\n" + json.dumps(row).encode()))
    with pytest.raises(InputError, match=f"^r:2: missing field `{missing}`"):
        write_summary(file, io.BytesIO())


def test_an_unknown_kind_of_step_is_refused_by_place():
    with pytest.raises(InputError, match=r"^r:1: .*trajectory\[0\]"):
        summary(trajectory=[{"type": "odd"}])


def test_markdown_names_every_step():
    shown = markdown(score={"pass": True, "score": 1.0, "reasoning": "fine"}, toolErrors=True)
    assert f"1. [THOUGHT] {'t' * 100}... [→r-step-1]" in shown
    assert "2. [TOOL:Read] -> completed (4ms) [→r-step-2]" in shown
    assert "3. [PLAN] first: done, next: pending [→r-step-3]" in shown
    assert "4. [TOOL:unknown] -> failed [→r-step-4]" in shown
    assert "5. [MESSAGE] m [→r-step-5]" in shown
    assert '**Metadata:** category=ui, nested={"a":1}' in shown
    assert "**Tool Errors:** true" in shown
    assert "**Duration:** 1234ms" in shown
    assert "**Score:** PASS (1)" in shown


def test_long_file_content_is_shown_by_head_and_tail():
    content = "\n".join(f"line {i} of the file, with some text" for i in range(1, 31))
    call = {
        "type": "tool_call",
        "name": "Write",
        "input": {"file_path": "a/b.py", "content": content},
    }
    shown = markdown(trajectory=[call])
    assert f"File: a/b.py ({len(content)} chars)\n   ```py\n   line 1 of" in shown
    assert "// ... 18 lines omitted ..." in shown
    assert "line 8 of" in shown
    assert "line 9 of" not in shown
    assert "line 26 of" not in shown
    assert "line 27 of" in shown


@pytest.mark.parametrize("score", [7, -0.1])
def test_a_score_outside_its_scale_is_refused(score: float):
    for view in (summary, markdown):
        with pytest.raises(InputError, match=r'r:1: "score\.score" must be'):
            view(score={"pass": True, "score": score})
