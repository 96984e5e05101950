"""Draws are reproducible, fair and within their size."""

import io
import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.compare.sampling import draw_failures, draw_sheet, read_samples, sheet_lines, snippet
from assay.records.capture import Message
from assay.records.rows import RowFile


def row(number: int, *, passed: bool | None = False, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"id": f"p{number}", "input": "q", "output": f"o{number}"}
    if passed is not None:
        made["score"] = {"pass": passed, "score": 0.25, "reasoning": "SECRET", "version": "v1"}
    return made | changes


def file_of(rows: list[dict[str, Any]]) -> RowFile:
    return RowFile("r", io.BytesIO("".join(json.dumps(r) + "\n" for r in rows).encode()))


def ids(rows: RowFile, size: int, seed: int = 0) -> list[str]:
    return [s.id for s in read_samples(rows, draw_failures(rows, size, seed).spots)]


def test_all_failures_in_file_order_when_there_are_few():
    rows = [row(1), row(2, passed=True), row(3), row(4, passed=None)]
    assert ids(file_of(rows), 10) == ["p1", "p3"]


def test_a_seed_is_a_draw():
    rows = [row(i) for i in range(200)]
    first = ids(file_of(rows), 10, seed=1)
    assert len(first) == 10
    assert first == ids(file_of(rows), 10, seed=1)
    assert first == sorted(first, key=lambda name: int(name[1:]))
    assert first != ids(file_of(rows), 10, seed=2)


def test_appended_rows_disturb_an_earlier_draw_little():
    rows = [row(i) for i in range(200)]
    before, after = ids(file_of(rows), 50), ids(file_of([*rows, row(999)]), 50)
    assert len(set(before) - set(after)) <= 1


def test_every_failure_is_drawn_about_as_often():
    rows = file_of([row(i) for i in range(20)])
    drawn = Counter(name for seed in range(400) for name in ids(rows, 5, seed))
    assert len(drawn) == 20
    assert all(60 <= n <= 140 for n in drawn.values())  # 100 expected, sd 8.7


def test_trials_that_failed_before_grading_are_left_out_and_counted():
    late = row(1, failure={"cause": "agent_timeout", "message": "m"})
    answered = row(2, failure={"cause": "agent_crash", "message": "m", "answered": True})
    rows = file_of([late, answered])
    drawn = draw_failures(rows, 10, 0)
    assert (drawn.n_rows, drawn.n_undecided) == (1, 1)
    assert [s.id for s in read_samples(rows, drawn.spots)] == ["p2"]


@given(st.integers(0, 60), st.integers(0, 5))
def test_a_sheet_has_the_shares_of_the_file(size: int, seed: int):
    rows = [row(i, passed=i % 3 == 0, metadata={"category": "ab"[i % 2]}) for i in range(60)]
    drawn = draw_sheet(file_of(rows), size, seed, "category")
    assert drawn.n_rows == 60
    assert drawn.n_strata == 4
    assert len(set(drawn.spots)) == len(drawn.spots) == min(size, 60)
    kept = [rows[spot.line - 1] for spot in drawn.spots]
    counts = Counter((r["score"]["pass"], r["metadata"]["category"]) for r in kept)
    shares = {(True, "a"): 10, (True, "b"): 10, (False, "a"): 20, (False, "b"): 20}
    for stratum, n in shares.items():
        assert abs(counts[stratum] - size * n / 60) < 1


def test_many_categories_leave_failures_in_the_sheet():
    rows = [row(i, passed=i % 10 < 8, metadata={"category": str(i // 10)}) for i in range(600)]
    for size, n_failed in ((50, 10), (130, 26)):
        drawn = draw_sheet(file_of(rows), size, 1, "category")
        kept = [rows[spot.line - 1] for spot in drawn.spots]
        assert len(kept) == size
        assert sum(not r["score"]["pass"] for r in kept) == n_failed
    assert len({r["metadata"]["category"] for r in kept if r["score"]["pass"]}) == 60


def test_a_sheet_is_blind_and_shuffled():
    rows = file_of([row(i, passed=i < 50, hint="h") for i in range(100)])
    drawn = draw_sheet(rows, 40, 0, "category")
    lines = sheet_lines(rows, drawn.spots)
    text = msgspec.json.encode(lines).decode()
    assert "SECRET" not in text
    assert '"pass"' not in text
    assert set(msgspec.to_builtins(lines[0])) == {
        "id", "input", "output", "hint", "label", "graderVersion",
    }  # fmt: skip
    assert all(line.label is None and line.grader_version == "v1" for line in lines)
    numbers = [int(line.id[1:]) for line in lines]
    assert numbers != sorted(numbers)
    passes = [n < 50 for n in numbers]
    assert passes != sorted(passes)
    assert passes != sorted(passes, reverse=True)


@pytest.mark.parametrize(
    ("n", "shown"), [(0, []), (5, [0, 1, 2, 3, 4]), (6, [0, 1, 3, 4, 5]), (9, [0, 1, 4, 7, 8])]
)
def test_a_snippet_is_both_ends_and_the_middle(n: int, shown: list[int]):
    steps = [Message(content=str(i)) for i in range(n)]
    assert [step.content for step in snippet(list(steps))] == [str(i) for i in shown]  # type: ignore[union-attr]
