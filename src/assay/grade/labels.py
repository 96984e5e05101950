"""Match what people said about outputs with what a grader said about the same ones."""

from typing import Any

import msgspec
from msgspec import UNSET

from assay.errors import InputError
from assay.grade.versions import grader_version
from assay.records.calibration import LabelRow
from assay.records.grade import Grade
from assay.records.row_file import RowFile, Spot

_YES = (True, 1, "pass", "true", "yes")
_NO = (False, 0, "fail", "false", "no")
_UNSURE = ("ambiguous", "unsure", "unclear")


class Labels(msgspec.Struct, kw_only=True):
    """A labelling sheet that people have filled in."""

    rows: dict[str, LabelRow] = {}
    """Labelled ones, by id; label is true or false in each."""
    n_rows: int = 0
    n_unlabelled: int = 0
    n_ambiguous: int = 0


class Match(msgspec.Struct, kw_only=True):
    """One output with its label and the grader's verdict."""

    id: str
    label: bool
    spot: Spot
    verdict: Grade
    version: str | None


class Matches(msgspec.Struct, kw_only=True):
    """All that was found, and what the whole file looks like."""

    found: dict[str, Match] = {}
    not_graded: list[str] = []
    other_output: list[str] = []
    not_found: list[str] = []
    n_graded: int = 0
    n_passed: int = 0
    repeated: set[str] = msgspec.field(default_factory=set)
    """Labelled ids that stand in the file more than once, with labels that name no output."""


class _Failure(msgspec.Struct, gc=False):
    answered: bool = False


class _Row(msgspec.Struct, gc=False):
    id: str
    output: str
    score: Grade | None = None
    grades: dict[str, Grade] | None = None
    failure: _Failure | None = None


def read_labels(sheet: RowFile) -> Labels:
    """Read a sheet; rows without a label are counted, one that contradicts another is refused."""
    labels = Labels()
    for spot, row in sheet.placed_rows(msgspec.json.Decoder(LabelRow)):
        labels.n_rows += 1
        label = _read_label(row.label)
        if row.label is None or _word(row.label) == "":
            labels.n_unlabelled += 1
        elif label is None and _word(row.label) in _UNSURE:
            labels.n_ambiguous += 1
        elif label is None:
            msg = f'{sheet.place(spot)}: "label" is {row.label!r}'
            raise InputError(msg, hint='give "pass", "fail", "ambiguous", true, false or null')
        else:
            earlier = labels.rows.get(row.id)
            if earlier is not None and earlier.label != label:
                msg = f'{sheet.place(spot)}: "{row.id}" has another label further up'
                raise InputError(msg, hint="settle on one label for each row")
            labels.rows[row.id] = msgspec.structs.replace(row, label=label)
    return labels


def match_labels(results: RowFile, labels: Labels) -> Matches:
    """Find the verdict on each labelled output; a label counts only for the output it was for."""
    matches = Matches()
    seen: dict[str, str] = {}
    for spot, row in results.placed_rows(msgspec.json.Decoder(_Row)):
        verdict = row.score if row.failure is None or row.failure.answered else None
        if verdict is not None:
            matches.n_graded += 1
            matches.n_passed += verdict.pass_
        label = labels.rows.get(row.id)
        if label is None:
            continue
        if row.id in matches.found:
            if label.output is UNSET:
                matches.repeated.add(row.id)
        elif label.output is not UNSET and label.output != row.output:
            seen.setdefault(row.id, "other output")
        elif verdict is None:
            seen[row.id] = "not graded"
        else:
            version = grader_version(verdict, row.grades or {})
            matches.found[row.id] = Match(
                id=row.id, label=label.label, spot=spot, verdict=verdict, version=version
            )
    missing = [row_id for row_id in labels.rows if row_id not in matches.found]
    matches.not_graded = [row_id for row_id in missing if seen.get(row_id) == "not graded"]
    matches.other_output = [row_id for row_id in missing if seen.get(row_id) == "other output"]
    matches.not_found = [row_id for row_id in missing if row_id not in seen]
    return matches


def _read_label(value: Any) -> bool | None:
    word = _word(value)
    if word in _YES:
        return True
    return False if word in _NO else None


def _word(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().casefold()
    return value if isinstance(value, bool | int | float) else None
