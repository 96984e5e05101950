"""Labels meet the verdicts on the very outputs they were made for."""

import io
import json
from typing import Any

import pytest

from assay.compare.labels import Matches, match_labels, read_labels
from assay.errors import InputError
from assay.records.capture import Grade, grader_version
from assay.records.rows import RowFile


def file_of(*rows: dict[str, Any]) -> RowFile:
    return RowFile("f", io.BytesIO("".join(json.dumps(r) + "\n" for r in rows).encode()))


def result(row_id: str, *, passed: bool | None = True, **changes: Any) -> dict[str, Any]:
    score = {"score": {"pass": passed, "score": 0.5, "version": "v"}} if passed is not None else {}
    return {"id": row_id, "output": "o", **score} | changes


def match(results: list[dict[str, Any]], *labels: dict[str, Any]) -> Matches:
    return match_labels(file_of(*results), read_labels(file_of(*labels)))


@pytest.mark.parametrize(
    ("value", "label"),
    [(True, True), ("PASS ", True), (1, True), (False, False), ("fail", False), (0, False)],
)
def test_words_for_a_label(value: Any, label: bool):
    assert read_labels(file_of({"id": "a", "label": value})).rows["a"].label is label


def test_empty_and_ambiguous_labels_are_counted_apart():
    rows = [{"id": "a", "label": None}, {"id": "b"}, {"id": "c", "label": "Ambiguous"}]
    labels = read_labels(file_of(*rows, {"id": "d", "label": " "}))
    assert (labels.n_rows, labels.n_unlabelled, labels.n_ambiguous) == (4, 3, 1)
    assert labels.rows == {}


@pytest.mark.parametrize("value", ["maybe", 2, [True], {"pass": True}])
def test_another_word_is_refused_by_line(value: Any):
    with pytest.raises(InputError, match=r'^f:2: "label" is'):
        read_labels(file_of({"id": "a", "label": True}, {"id": "b", "label": value}))


def test_contradicting_labels_are_refused():
    with pytest.raises(InputError, match=r'^f:2: "a" has a different label on an earlier line'):
        read_labels(file_of({"id": "a", "label": True}, {"id": "a", "label": False}))


def test_what_cannot_be_compared_is_told_apart():
    found = match(
        [
            result("a"),
            result("b", passed=None),
            result("c", output="new"),
            result("e", passed=False, failure={"cause": "agent_timeout"}),
            result("x", passed=False),
        ],
        {"id": "a", "output": "o", "label": False},
        {"id": "b", "label": True},
        {"id": "c", "output": "old", "label": True},
        {"id": "d", "label": True},
        {"id": "e", "label": False},
    )
    assert list(found.found) == ["a"]
    assert found.found["a"].label is False
    assert found.found["a"].verdict.pass_ is True
    assert found.found["a"].version == "v"
    assert found.not_graded == ["b", "e"]
    assert found.other_output == ["c"]
    assert found.not_found == ["d"]
    assert (found.n_graded, found.n_passed) == (3, 2)


def test_of_repeated_rows_the_labelled_output_counts():
    results = [result("a", output="1", passed=False), result("a", output="2"), result("a")]
    assert match(results, {"id": "a", "output": "2", "label": True}).found["a"].verdict.pass_
    found = match(results, {"id": "a", "label": True})
    assert found.found["a"].verdict.pass_ is False
    assert found.repeated == {"a"}


def test_several_graders_have_one_version():
    first, second = (Grade(pass_=True, score=1.0, version=v) for v in ("1", "2"))
    both = Grade(pass_=True, score=1.0)
    assert grader_version(first, {}) == "1"
    assert grader_version(both, {"b": second, "a": first}) == "a:1+b:2"
    assert grader_version(both, {}) is None
    assert grader_version(None, {}) is None
