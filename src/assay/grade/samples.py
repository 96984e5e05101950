"""Read drawn rows whole: as samples for a report, or as lines of a blind labelling sheet."""

import msgspec
from msgspec import UNSET

from assay.grade.verdicts import Verdict
from assay.grade.versions import grader_version
from assay.records.calibration import CalibrationSample, LabelRow
from assay.records.grade import Grade
from assay.records.row_file import RowFile, Spot
from assay.records.trajectory import AnyStep

_SHOWN_STEPS = 5


class _SampleRow(msgspec.Struct):
    id: str
    input: str | list[str]
    output: str
    score: Grade
    hint: str | None = None
    trajectory: list[AnyStep] = []
    grades: dict[str, Grade] | None = None


def read_samples(rows: RowFile, spots: list[Spot]) -> list[CalibrationSample]:
    """Read the drawn failures."""
    decoder = msgspec.json.Decoder(_SampleRow)
    found = [rows.row_at(spot, decoder) for spot in spots]
    return [
        CalibrationSample(
            id=row.id,
            input=row.input,
            output=row.output,
            hint=row.hint or UNSET,
            original_score=row.score,
            trajectory_snippet=snippet(row.trajectory),
        )
        for row in found
    ]


def sheet_lines(rows: RowFile, spots: list[Spot]) -> list[LabelRow]:
    """Give what a person needs to judge the drawn rows, and nothing of what the grader said."""
    decoder = msgspec.json.Decoder(_SampleRow)
    found = [rows.row_at(spot, decoder) for spot in spots]
    return [
        LabelRow(
            id=row.id,
            input=row.input,
            output=row.output,
            hint=row.hint,
            grader_version=grader_version(row.score, row.grades or {}),
        )
        for row in found
    ]


def rescored(sample: CalibrationSample, verdict: Verdict) -> CalibrationSample:
    """Add what a second grader said."""
    broken = "; ".join(f"{name}: {why}" for name, why in verdict.broken.items())
    return msgspec.structs.replace(
        sample, rescored_result=verdict.score or UNSET, grader_failure=broken or UNSET
    )


def snippet(steps: list[AnyStep]) -> list[AnyStep]:
    """Give all of a short trajectory; of a long one the first two, the middle, the last two."""
    if len(steps) <= _SHOWN_STEPS:
        return steps
    return [*steps[:2], steps[len(steps) // 2], *steps[-2:]]
