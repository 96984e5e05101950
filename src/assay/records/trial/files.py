"""Trials out of result files: rows of capture and rows of trials alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from assay.errors import InputError
from assay.records.capture import AgentInfo, AnyStep, Failure, Grade, SimulatedUser, Timing, Usage
from assay.records.files import temporary_file
from assay.records.rows import (
    UNREADABLE,
    Place,
    RowFile,
    Spot,
    decode_line,
    explain,
    open_rows,
    read_lines,
    refuse_other_bytes,
    without_lone_surrogates,
)
from assay.records.trial import (
    NUMBER,
    PASS_FIELDS,
    CaptureRow,
    Trial,
    TrialEntry,
    entry_grade,
    of_entry,
)
from assay.records.trial.views import NO_JSON, RowForm

HINT = "give what `assay capture`, `grade` or `trials` wrote"

# What a row holds.

type Kind = Literal["capture", "trials"]


class _Form(RowForm, msgspec.Struct, gc=False):
    trials: msgspec.Raw = NO_JSON
    output: msgspec.Raw = NO_JSON


class _WholeForm(RowForm, msgspec.Struct, gc=False):
    k: Any = None
    trials: Any = None
    output: Any = None
    trajectory: Any = None
    timing: Any = None


_FORMS, _WHOLE_FORMS = msgspec.json.Decoder(_Form), msgspec.json.Decoder(_WholeForm)


def is_trials_row(line: bytes) -> bool:
    """Whether a line holds all trials of a prompt, as `assay trials` writes them."""
    if b'"trials"' not in line:
        return False
    try:
        return _FORMS.decode(line).is_trials
    except UNREADABLE:
        repaired = without_lone_surrogates(line)
        return repaired is not None and is_trials_row(repaired)


def kind_of(line: bytes) -> Kind | None:
    """Return what a row holds, None if it is neither a capture nor trials; raises UNREADABLE."""
    row = _WHOLE_FORMS.decode(line)
    if row.is_trials:
        whole = isinstance(row.trials, list) and isinstance(row.k, int | float)
        return "trials" if whole else None
    whole = isinstance(row.trajectory, list) and isinstance(row.timing, dict)
    return "capture" if whole else None


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


def holds_trials(row: dict[str, Any]) -> bool:
    """Whether a decoded row is one of trials, as RowForm.is_trials."""
    return row.get("trials") is not None and not row.get("output")


def entries_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trials of a decoded row as they stand there; a capture is its own and only one."""
    if not holds_trials(row):
        return [row]
    trials = row["trials"]
    return [one for one in trials if isinstance(one, dict)] if isinstance(trials, list) else []


def entry_of(row: dict[str, Any], number: int) -> dict[str, Any] | None:
    """Return one of these; a capture has no number."""
    found = (one for one in entries_of(row) if one is row or one.get(NUMBER) == number)
    return next(found, None)


def number_of(entry: dict[str, Any]) -> int:
    """Return which trial of its prompt one of these is."""
    return int(entry.get(NUMBER, 1))


# The trials of a file.


class _OwnRow(RowForm, CaptureRow, kw_only=True, rename="camel"):
    """A row of either form as Assay writes it: everything in it is read."""

    output: str | UnsetType = UNSET  # type: ignore[assignment]
    trajectory: list[AnyStep] = msgspec.field(default_factory=list)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    timing: Timing | UnsetType = UNSET  # type: ignore[assignment]
    trials: list[TrialEntry] | None = None


# Any program may have written a file, so that a row may have less than ours, or null for it.


class _Attempt(msgspec.Struct, kw_only=True, rename="camel"):
    """What a capture and an entry of trials have in common, as far as it is read here."""

    trajectory: list[AnyStep] = []
    tool_errors: bool = False
    grades: dict[str, Grade] | None = None
    usage: Usage | UnsetType = UNSET
    turn_usage: list[Usage] = []
    failure: Failure | None = None
    agent: AgentInfo | None = None
    session_id: str | None = None
    simulated_user: SimulatedUser | None = None
    setup: dict[str, Any] | None = None


class _Entry(_Attempt, kw_only=True, rename="camel"):
    number: int = msgspec.field(name=NUMBER)
    output: str
    duration: float = 0
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    reasoning: str | None = None
    first_response: float | None = None


class _Timing(msgspec.Struct, rename="camel", frozen=True):
    total: float = 0
    first_response: float | None = None


class _Row(RowForm, _Attempt, kw_only=True, rename="camel"):
    id: str
    input: str | list[str]
    output: str | UnsetType = UNSET
    hint: str | None = None
    metadata: dict[str, Any] | None = None
    timing: _Timing = _Timing()
    score: Grade | None = None
    k: int | None = None
    trials: list[_Entry] | None = None


_OWN_ROWS, _OTHER_ROWS = msgspec.json.Decoder(_OwnRow), msgspec.json.Decoder(_Row)


class _Rows:
    """Decodes a row as one of ours or, if it is not quite one, what is needed of it."""

    type = _Row  # for errors

    def decode(self, line: bytes) -> _OwnRow | _Row:
        try:
            row = _OWN_ROWS.decode(line)
        except msgspec.ValidationError:
            return _OTHER_ROWS.decode(line)
        is_whole = row.is_trials or row.timing is not UNSET
        return row if is_whole else _OTHER_ROWS.decode(line)


_ROWS: Any = _Rows()


def trials_of(rows: RowFile, *, whole: bool = False) -> Iterator[tuple[Spot, Trial]]:
    """Yield every trial of a file, in the order of the file, with the spot of its row.

    Tables and training data need no more than any program's row has, which is read in a third of
    the time; whole trials have everything that stands in the row.
    """
    for spot, row in rows.placed_rows(_ROWS if whole else _OTHER_ROWS):
        for trial in _trials(row, rows.place(spot)):
            yield spot, trial


def trial_at(rows: RowFile, spot: Spot, number: int) -> Trial:
    """Read one trial again."""
    row = rows.row_at(spot, _OTHER_ROWS)
    return next(one for one in _trials(row, rows.place(spot)) if one.number == number)


def trials_in(line: bytes, place: Place) -> Iterator[Trial]:
    """Yield the trials of one row, with everything that stands in it."""
    try:
        row = _ROWS.decode(line)
    except UNREADABLE as error:
        refuse_other_bytes(place, line)
        msg = f"{place}: {explain(error)}"
        raise InputError(msg, hint=HINT) from error
    yield from _trials(row, place)


def _trials(row: _OwnRow | _Row, place: Place) -> Iterator[Trial]:
    if isinstance(row, _OwnRow):
        yield from _own_trials(row)
        return
    if row.is_trials:
        for entry in row.trials or ():
            timing = _Timing(entry.duration, entry.first_response)
            grade = entry_grade(entry.pass_, entry.score, entry.reasoning)
            yield _trial(row, entry, entry.output, timing, grade, entry.number)
        return
    if row.output is UNSET:
        msg = f"{place}: missing field `output`: neither a capture nor trials of a prompt"
        raise InputError(msg, hint=HINT)
    yield _trial(row, row, row.output, row.timing, row.score or UNSET, UNSET)


def _own_trials(row: _OwnRow) -> Iterator[Trial]:
    if not row.is_trials:
        yield Trial(**{name: getattr(row, name) for name in CaptureRow.__struct_fields__})
        return
    for entry in row.trials or ():
        trial = of_entry(entry, row)
        # In tables and queries, metadata is that of the prompt: it is the same for all its trials.
        trial.metadata = row.metadata
        trial.cwd = entry.cwd or entry.workspace_dir
        trial.spec_hash = row.spec_hash
        yield trial


def _trial(
    row: _Row,
    attempt: _Attempt,
    output: str,
    timing: _Timing,
    grade: Grade | UnsetType,
    number: int | UnsetType,
) -> Trial:
    first_ms = timing.first_response
    return Trial(
        id=row.id,
        entry_number=number,
        input=row.input,
        hint=UNSET if row.hint is None else row.hint,
        output=output,
        trajectory=attempt.trajectory,
        metadata=row.metadata or {},
        timing=Timing(
            start=0,
            end=timing.total,
            first_response=UNSET if first_ms is None else first_ms,
            total=timing.total,
        ),
        tool_errors=attempt.tool_errors,
        grade=grade,
        grades=attempt.grades or UNSET,
        usage=attempt.usage,
        turn_usage=attempt.turn_usage or UNSET,
        failure=attempt.failure or UNSET,
        agent=attempt.agent or UNSET,
        session_id=UNSET if attempt.session_id is None else attempt.session_id,
        simulated_user=attempt.simulated_user or UNSET,
        setup=attempt.setup or UNSET,
    )


# The trials of a file of trials as rows of capture: what reads captures reads both.


@contextmanager
def open_trials(
    path: Path | None, *, hint: str = "", skip_unreadable: bool = False
) -> Iterator[RowFile]:
    """Open a file of `assay capture` or of `assay trials`, or stdin, as one row for each trial.

    The trials of a file of trials look like rows of capture, see split_trials. They are in a
    temporary file: memory holds one row.
    """
    with open_rows(path, hint=hint, skip_unreadable=skip_unreadable) as rows:
        first = next(rows.placed_rows(_FORMS), None)
        if first is None or not first[1].is_trials:
            yield rows
            return
        with temporary_file() as file:
            split = rows.rewritten(file, _split_if_trials)
            split.has_trials = True
            yield split


def _split_if_trials(place: Place, line: bytes) -> list[bytes]:
    return split_trials(place, line) if is_trials_row(line) else [line.strip() + b"\n"]


def split_trials(place: Place, line: bytes) -> list[bytes]:
    """Return the trials of a row of `assay trials`, each as a row that capture would have written.

    Each has the id of the prompt and its number. When it started is not known: its timing begins
    at 0. Unknown fields are kept.
    """
    try:
        return _split(place, line)
    except InputError:
        repaired = without_lone_surrogates(line)
        if repaired is None:
            raise
    return _split(place, repaired)


_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OF_PROMPT = PASS_FIELDS | {"k", "trials", "failures"}
"""What a row of trials says about all of them together."""
_MOVED = frozenset(("duration", "firstResponse", "workspaceDir", "pass", "score", "reasoning"))
"""What an entry has elsewhere than a row of capture."""


class _MovedView(msgspec.Struct, rename="camel", gc=False):
    output: str  # must be there
    duration: float = 0
    first_response: float | UnsetType = UNSET
    workspace_dir: str | UnsetType = UNSET
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None


_METADATA = msgspec.json.Decoder(dict[str, Any] | None)
_ENTRIES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None)
_MOVED_VIEWS = msgspec.json.Decoder(list[_MovedView] | None)


def _split(place: Place, line: bytes) -> list[bytes]:
    row = decode_line(_PIECES, place, line)
    shared = {name: value for name, value in row.items() if name not in _OF_PROMPT}
    try:
        metadata = _METADATA.decode(row.get("metadata") or b"null") or {}
        entries = _ENTRIES.decode(row["trials"]) or []
        moved = _MOVED_VIEWS.decode(row["trials"]) or []
    except UNREADABLE as error:
        msg = f"{place}: {explain(error)}"
        raise InputError(msg) from error
    if not entries:
        msg = f"{place}: `trials` is empty"
        raise InputError(msg, hint="each row of `assay trials` has at least one trial")
    return [
        msgspec.json.encode(_as_capture(number, shared, metadata, *both)) + b"\n"
        for number, both in enumerate(zip(entries, moved, strict=True), 1)
    ]


def _as_capture(
    number: int,
    shared: dict[str, msgspec.Raw],
    metadata: dict[str, Any],
    entry: dict[str, msgspec.Raw],
    moved: _MovedView,
) -> dict[str, Any]:
    about = {name: value for name, value in metadata.items() if name != "workspaceDir"}
    if moved.workspace_dir is not UNSET:
        about["workspaceDir"] = moved.workspace_dir
    timing = {"start": 0, "end": moved.duration, "total": moved.duration}
    if moved.first_response is not UNSET:
        timing["firstResponse"] = moved.first_response
    row: dict[str, Any] = {"id": shared.get("id"), NUMBER: number, **shared}
    row |= {name: value for name, value in entry.items() if name not in _MOVED}
    row |= {"metadata": about, "timing": timing}
    if moved.pass_ is not None:
        score = float(moved.pass_) if moved.score is None else moved.score
        more = {name: entry[name] for name in ("reasoning", "outcome") if name in entry}
        row["score"] = {"pass": moved.pass_, "score": score, **more}
    return row
