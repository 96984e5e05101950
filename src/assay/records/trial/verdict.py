"""A verdict put into the text of a row that any program may have written: the rest stays as it is.

Trial.with_verdict does the same for a trial in memory.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.capture import EarlierGrade, Grade
from assay.records.rows import UNREADABLE
from assay.records.trial import Verdict, earlier_grade, replaced_grades, verdict_fields
from assay.records.trial.views import NO_JSON, GradingView


class _VerdictInRow(msgspec.Struct, rename="camel"):
    """What a grading writes to a row of capture."""

    errors: Any = UNSET
    grade: Grade | UnsetType = msgspec.field(name="score", default=UNSET)
    outcome: dict[str, Any] | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    grader_failures: dict[str, str] | UnsetType = UNSET
    earlier_grades: list[EarlierGrade] | UnsetType = UNSET


class _VerdictInEntry(msgspec.Struct, rename="camel"):
    """What it writes to one trial of a row of trials."""

    pass_: bool | UnsetType = msgspec.field(default=UNSET, name="pass")
    score: float | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    grader_failures: dict[str, str] | UnsetType = UNSET
    earlier_grades: list[EarlierGrade] | UnsetType = UNSET


_ROW_FIELDS = frozenset(f.encode_name for f in msgspec.structs.fields(_VerdictInRow))
_ENTRY_FIELDS = frozenset(f.encode_name for f in msgspec.structs.fields(_VerdictInEntry))
_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_GRADE = msgspec.json.Decoder(Grade)
_GRADES = msgspec.json.Decoder(dict[str, Grade])
_EARLIER = msgspec.json.Decoder(list[EarlierGrade])
_encode = msgspec.json.Encoder().encode


def entry_with_verdict(
    entry: dict[str, msgspec.Raw], row: GradingView, verdict: Verdict
) -> dict[str, msgspec.Raw]:
    """Return an entry of a row of trials with the verdict in it; row is the same as a capture."""
    grade = verdict.score
    added = _VerdictInEntry(
        pass_=grade.pass_ if grade else UNSET,
        score=grade.score if grade else UNSET,
        reasoning=grade.reasoning if grade else UNSET,
        earlier_grades=_earlier_of(row, verdict) or UNSET,
        **verdict_fields(verdict),
    )
    new = _PIECES.decode(_encode(added))
    kept = {k: v for k, v in entry.items() if k not in _ENTRY_FIELDS or k in new}
    return {**kept, **new}


def line_with_verdict(line: bytes, row: GradingView, verdict: Verdict) -> bytes:
    """Return the line of a capture with the verdict in it, everything else as it was.

    Where possible the fields are appended to the text: decoding and encoding a row takes a tenth
    of all the time of grading. Other rows are split into undecoded fields.
    """
    text = line if line.endswith(b"}\n") else line.strip() + b"\n"
    others = row.outcome or row.grader_failures or row.errors or row.earlier_grades
    earlier = row.score or row.grades
    kept = _earlier_of(row, verdict) if earlier or row.earlier_grades else []
    end = len(text) - len(b"}\n")
    # A row that we have graded before ends with what we added then: cut that off.
    if earlier and not others and not kept and text.endswith(tail := _tail(row)):
        end, earlier = len(text) - len(tail), NO_JSON
    if earlier or others:
        added = _added(verdict)
        added.errors = _errors(row, verdict)
        added.earlier_grades = kept or UNSET
        new = _PIECES.decode(_encode(added))
        # Only Assay writes grades: in a row without them, an outcome is another program's.
        was_graded = row.grades or row.grader_failures or row.earlier_grades
        ours = _ROW_FIELDS if was_graded else _ROW_FIELDS - {"outcome"}
        old = {k: v for k, v in _PIECES.decode(line).items() if k not in ours or k in new}
        return _encode({**old, **new})
    return text[:end] + _new_fields(verdict)


def _new_fields(verdict: Verdict) -> bytes:
    """Return what is added to a row that was not graded before, from the comma to its end."""
    score, grades = verdict.score, verdict.grades
    if score is not None and not score.outcome and len(grades) == 1:
        ((name, grade),) = grades.items()
        if grade is score:  # of a single grader: encoded once
            encoded = _encode(grade)
            return b',"score":%b,"grades":{%b:%b}}' % (encoded, _encode(name), encoded)
    added = _added(verdict)
    if verdict.broken:
        added.errors = list(verdict.broken.values())
    fields = _encode(added)
    return b"}" if fields == b"{}" else b"," + fields[1:]


def _added(verdict: Verdict) -> _VerdictInRow:
    return _VerdictInRow(grade=verdict.score or UNSET, **verdict_fields(verdict))


def _earlier_of(row: GradingView, verdict: Verdict) -> list[EarlierGrade]:
    """Return the grades of other graders that a row had before; those that cannot be read go."""
    try:
        before = _EARLIER.decode(row.earlier_grades) if row.earlier_grades else []
        grades = _GRADES.decode(row.grades) if row.grades else {}
        if not grades and row.score and (row.failure is None or row.failure.is_gradable):
            # Another program wrote it, which does not tell who judged.
            grades = {"score": _GRADE.decode(row.score)}
    except UNREADABLE:
        return []
    before += (earlier_grade(name, grade) for name, grade in grades.items())
    return replaced_grades(before, verdict.grades)


def _tail(row: GradingView) -> bytes:
    """Return the end of a line as an earlier grading wrote it."""
    score = b',"score":%b' % row.score if row.score else b""
    return score + (b',"grades":%b}\n' % row.grades if row.grades else b"}\n")


def _errors(row: GradingView, verdict: Verdict) -> Any:
    """Return the row's errors without those of an earlier grading, and with those of this one."""
    earlier = value_of(row.grader_failures)
    if not verdict.broken and not isinstance(earlier, dict):
        return row.errors or UNSET
    before = value_of(row.errors) or []
    before = before if isinstance(before, list) else [before]
    outdated = earlier.values() if isinstance(earlier, dict) else ()
    kept = [error for error in before if error not in outdated]
    return [*kept, *verdict.broken.values()] or UNSET


def value_of(json: msgspec.Raw) -> Any:
    """Return a value of a row; None if there is none, or one that Python has no number for."""
    try:
        return msgspec.json.decode(json) if json else None
    except UNREADABLE:
        return None
