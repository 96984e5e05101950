"""Rows as agent-eval-harness writes them: its JSON Schemas allow no other fields."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.trial import NUMBER

Row = dict[str, Any]

_TIMES = (
    "start",
    "end",
    "firstResponse",
    "sessionCreation",
    "total",
    "inputTokens",
    "outputTokens",
)
_GRADE = ("pass", "score", "reasoning", "outcome")
_TEXT = ("type", "content", "timestamp", "stepId")
_CALL = ("type", "name", "status", "input", "output", "duration", "timestamp", "stepId")
_STEPS = {
    "thought": _TEXT,
    "message": _TEXT,
    "tool_call": _CALL,
    "plan": ("type", "entries", "timestamp", "stepId"),
}
_HINT = "rows of capture, trials, extract, grade, summarize and validate-refs can be converted"


def reference_row(row: Row) -> Row:
    """Return a row with the fields that the reference knows.

    How a trial failed stands in `errors`, or in the `reasoning` of an entry. A grade without a
    number is none there. Raises InputError for a row without what its schemas require.
    """
    for mark, convert in _FORMS.items():
        if mark in row:
            try:
                return convert(row)
            except msgspec.ValidationError as error:
                msg = f"a part of the row is of another type: {error}"
                raise InputError(msg) from error
    msg = "the reference has no such row"
    raise InputError(msg, hint=_HINT)


def _object(value: Any) -> Row:
    return msgspec.convert(value or {}, Row)


def _objects(value: Any) -> list[Row]:
    return msgspec.convert(value or [], list[Row])


def _capture(row: Row) -> Row:
    errors = row.get("errors") or _failure(row)
    timing = {"sessionCreation": 0, **_object(row.get("timing"))}
    whole = {
        **row,
        "trajectory": _steps(row.get("trajectory")),
        "metadata": _object(row.get("metadata")),
        "timing": _only(timing, _TIMES, needed=("start", "end", "total")),
        "toolErrors": bool(row.get("toolErrors")),
        "errors": errors or None,
        "score": _grade(row.get("score")),
    }
    names = ("id", "input", "output", "hint", "trajectory", "metadata", "timing", "toolErrors")
    more = ("errors", "score", "outcome")
    return _only(whole, (*names, *more), needed=("id", "input", "output"))


def _trials(row: Row) -> Row:
    names = ("id", "input", "hint", "k", "passRate", "passAtK", "passExpK", "trials", "metadata")
    whole = {**row, "trials": [_entry(entry) for entry in _objects(row["trials"])]}
    return _only(whole, names, needed=("id", "input", "k"))


def _entry(entry: Row) -> Row:
    names = (NUMBER, "output", "trajectory", "duration", *_GRADE)
    said = "; ".join(_failure(entry))
    whole = {**entry, "trajectory": _steps(entry.get("trajectory"))}
    whole["reasoning"] = entry.get("reasoning") or said or None
    return _only(whole, names, needed=(NUMBER, "output", "duration"))


def _validation(row: Row) -> Row:
    names = ("id", "reference", "passes", "graderResult")
    whole = {**row, "graderResult": _grade(row.get("graderResult"))}
    return _only(whole, names, needed=names)


def _summary(row: Row) -> Row:
    names = ("id", "input", "output", "toolCalls", "duration")
    return _only(row, names, needed=names)


_FORMS: dict[str, Callable[[Row], Row]] = {
    "trials": _trials,
    "trajectory": _capture,
    "reference": _validation,
    "toolCalls": _summary,
}
"""By a field that rows of one form alone have."""


def _failure(row: Row) -> list[str]:
    failure = _object(row.get("failure"))
    found = [f"{failure.get('cause')}: {failure.get('message')}"] if failure else []
    broken = _object(row.get("graderFailures"))
    return [*found, *(f"grader {name} failed: {why}" for name, why in broken.items())]


def _grade(grade: Any) -> Row | None:
    whole = _only(_object(grade), _GRADE)
    return whole if "pass" in whole and "score" in whole else None


def _steps(steps: Any) -> list[Row]:
    """Return the steps; one without a time has that of the step before it."""
    found, now = [], 0
    for step in _objects(steps):
        now = step.get("timestamp", now)
        found.append(_only({"timestamp": now, **step}, _STEPS.get(str(step.get("type")), ())))
    return [step for step in found if step]


def _only(row: Row, names: Sequence[str], needed: Sequence[str] = ()) -> Row:
    kept = {name: row[name] for name in names if row.get(name) is not None}
    if missing := [name for name in needed if name not in kept]:
        msg = f'"{missing[0]}" is missing, which the reference requires'
        raise InputError(msg, hint=_HINT)
    return kept
