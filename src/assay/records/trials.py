"""The trials of a result file, one at a time: rows of capture and rows of trials alike."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from assay.errors import InputError
from assay.records.capture import AgentInfo, AnyStep, Failure, Grade, Usage
from assay.records.rows import (
    UNREADABLE,
    Place,
    RowFile,
    Spot,
    explain,
    read_lines,
    refuse_other_bytes,
)
from assay.records.trial import Judged
from assay.records.views import KindView

HINT = "give what `assay capture`, `grade` or `trials` wrote"

type Kind = Literal["capture", "trials"]
_KIND = msgspec.json.Decoder(KindView)


def kind_of(line: bytes) -> Kind | None:
    """Return what a row holds, None if it is neither a capture nor trials; raises UNREADABLE."""
    row = _KIND.decode(line)
    if isinstance(row.trials, list) and isinstance(row.k, int | float):
        return "trials"
    if isinstance(row.trajectory, list) and isinstance(row.timing, dict):
        return "capture"
    return None


def detect_kind(path: Path) -> Kind:
    """Return what a file holds, judged by its first row."""
    for place, line in read_lines(path):
        try:
            kind = kind_of(line)
        except UNREADABLE as error:
            refuse_other_bytes(place, line)
            msg = f"{place}: {explain(error)}"
            raise InputError(msg, hint=HINT) from error
        if kind is not None:
            return kind
        msg = f"{place}: neither a capture (trajectory, timing) nor trials (trials, k)"
        raise InputError(msg, hint=HINT)
    msg = f"{path}: no rows"
    raise InputError(msg)


class _Attempt(msgspec.Struct, kw_only=True, rename="camel"):
    """What a capture and an entry of trials have in common; a row of another harness has less."""

    trajectory: list[AnyStep] = []
    tool_errors: bool = False
    grades: dict[str, Grade] | None = None
    usage: Usage = Usage()
    turn_usage: list[Usage] = []
    failure: Failure | None = None
    agent: AgentInfo | None = None
    session_id: str | None = None
    setup: dict[str, Any] | None = None


class _Entry(_Attempt, kw_only=True, rename="camel"):
    trial_num: int
    output: str
    duration: float = 0
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    reasoning: str | None = None
    first_response: float | None = None


class _Timing(msgspec.Struct, rename="camel", frozen=True):
    total: float = 0
    first_response: float | None = None


class _Row(_Attempt, kw_only=True, rename="camel"):
    id: str
    input: str | list[str]
    output: str | UnsetType = UNSET
    hint: str | None = None
    metadata: dict[str, Any] | None = None
    timing: _Timing = _Timing()
    score: Grade | None = None
    k: int | None = None
    trials: list[_Entry] | None = None


_ROWS = msgspec.json.Decoder(_Row)


class FinishedTrialRow(Judged, msgspec.Struct, frozen=True, kw_only=True):
    """One trial as a file has it, whichever command wrote it. None is unknown."""

    place: Place
    spot: Spot
    id: str
    input: str | list[str]
    number: int
    """Which trial of the prompt, from 1."""
    output: str
    steps: list[AnyStep]
    hint: str | None
    metadata: dict[str, Any]
    verdict: bool | None
    score: float | None
    reasoning: str | None
    duration_ms: float
    first_response_ms: float | None
    tool_errors: bool
    grades: dict[str, Grade]
    usage: Usage
    turn_usage: list[Usage]
    failure: Failure | None
    agent: AgentInfo | None
    session_id: str | None
    setup: dict[str, Any]

    @property
    def turns(self) -> tuple[str, ...]:
        return (self.input,) if isinstance(self.input, str) else tuple(self.input)


def trials_of(rows: RowFile) -> Iterator[FinishedTrialRow]:
    """Yield every trial of a file, in the order of the file."""
    for spot, row in rows.placed_rows(_ROWS):
        yield from _trials(row, spot, rows.place(spot))


def trial_at(rows: RowFile, spot: Spot, number: int) -> FinishedTrialRow:
    """Read one trial again."""
    row = rows.row_at(spot, _ROWS)
    return next(one for one in _trials(row, spot, rows.place(spot)) if one.number == number)


def _trials(row: _Row, spot: Spot, place: Place) -> Iterator[FinishedTrialRow]:
    if row.trials is not None:
        for entry in row.trials:
            yield _of_entry(row, entry, spot, place)
        return
    if row.output is UNSET:
        msg = f"{place}: missing field `output`: neither a capture nor trials of a prompt"
        raise InputError(msg, hint=HINT)
    grade = row.score
    reasoning = (grade.reasoning or None) if grade else None
    yield FinishedTrialRow(
        number=1,
        output=row.output,
        verdict=grade.pass_ if grade else None,
        score=grade.score if grade else None,
        reasoning=reasoning,
        duration_ms=row.timing.total,
        first_response_ms=row.timing.first_response,
        **_shared(row, row, spot, place),
    )


def _of_entry(row: _Row, entry: _Entry, spot: Spot, place: Place) -> FinishedTrialRow:
    return FinishedTrialRow(
        number=entry.trial_num,
        output=entry.output,
        verdict=entry.pass_,
        score=entry.score,
        reasoning=entry.reasoning,
        duration_ms=entry.duration,
        first_response_ms=entry.first_response,
        **_shared(row, entry, spot, place),
    )


def _shared(row: _Row, attempt: _Attempt, spot: Spot, place: Place) -> dict[str, Any]:
    return {
        "place": place,
        "spot": spot,
        "id": row.id,
        "input": row.input,
        "hint": row.hint,
        "metadata": row.metadata or {},
        "steps": attempt.trajectory,
        "tool_errors": attempt.tool_errors,
        "grades": attempt.grades or {},
        "usage": attempt.usage,
        "turn_usage": attempt.turn_usage,
        "failure": attempt.failure,
        "agent": attempt.agent,
        "session_id": attempt.session_id,
        "setup": attempt.setup or {},
    }


def trials_in(line: bytes, place: Place) -> Iterator[FinishedTrialRow]:
    """Yield the trials of one row."""
    try:
        row = _ROWS.decode(line)
    except UNREADABLE as error:
        refuse_other_bytes(place, line)
        msg = f"{place}: {explain(error)}"
        raise InputError(msg, hint=HINT) from error
    yield from _trials(row, Spot(0, len(line)), place)
