"""The rows of result files, reduced to the fields that count."""

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from assay.compare.columns import Kind
from assay.errors import InputError
from assay.records.jsonl import BOM, read_lines

_BLOCK = 1024 * 1024
_LINE_FEED = ord("\n")
_HINT = "compare reads the output of capture, grade or trials"


class Score(msgspec.Struct, frozen=True, gc=False):
    """The grade of a capture; half a grade is none."""

    pass_: bool | None = msgspec.field(name="pass")
    score: float | None


class Version(msgspec.Struct, gc=False):
    """Which grader it was."""

    version: str | None = None


class CauseOf(msgspec.Struct, frozen=True, gc=False):
    """Why a trial did not go well."""

    cause: str = ""
    answered: bool = False


class Used(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What a trial used up."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None


class Clock(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """When it began and ended."""

    start: float | None = None
    end: float | None = None
    total: float | None = None
    first_response: float | None = None


class AgentOf(msgspec.Struct, frozen=True, gc=False):
    """Which agent it was."""

    adapter: str = ""
    version: str | None = None
    model: str | None = None


NO_FAILURE, NOTHING_USED, NO_AGENT = CauseOf(), Used(), AgentOf()
"""What most rows have; one object for all of them, so that a whole column is looked at quickly."""
NOT_GRADED = Score(None, None)


class Step(msgspec.Struct, gc=False):
    """Only counted."""


class About(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The metadata that counts; the category stands under a name of the user's choice."""

    category: Any = None
    trajectory_richness: Any = None
    timed_out: Any = None


class Attempt(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """What a capture and an entry of trials have in common."""

    trajectory: list[Step]
    tool_errors: bool = False
    grades: dict[str, Version] | None = None
    grader_failures: dict[str, str] | None = None
    failure: CauseOf = NO_FAILURE
    usage: Used = NOTHING_USED
    agent: AgentOf = NO_AGENT
    permission_denials: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0


class CaptureRow(Attempt, rename="camel", kw_only=True, gc=False):
    """A row of results.jsonl, or of what grade wrote."""

    id: str
    input: msgspec.Raw
    output: msgspec.Raw
    timing: Clock
    metadata: About = About()
    errors: tuple[str, ...] = ()
    score: Score = NOT_GRADED


class EntryRow(Attempt, rename="camel", kw_only=True, gc=False):
    """One trial in a row of trials.jsonl."""

    duration: float
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    first_response: float | None = None


class TrialsRow(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """A row of trials.jsonl."""

    id: str
    input: msgspec.Raw
    k: float | None
    trials: list[EntryRow]
    metadata: About = About()
    pass_at_k: float | None = None
    pass_exp_k: float | None = None


class _StepKind(msgspec.Struct, gc=False):
    type: Any = None


class _Steps(msgspec.Struct, gc=False):
    trajectory: list[_StepKind]


class _Probe(msgspec.Struct):
    k: Any = None
    trials: Any = None
    trajectory: Any = None
    timing: Any = None


def detect_kind(path: Path) -> Kind:
    """Say what a file holds, from its first row."""
    for place, line in read_lines(path):
        probe = decode(_PROBE, place, line)
        if isinstance(probe.trials, list) and isinstance(probe.k, int | float):
            return "trials"
        if isinstance(probe.trajectory, list) and isinstance(probe.timing, dict):
            return "capture"
        msg = f"{place}: neither a capture (trajectory, timing) nor trials (trials, k)"
        raise InputError(msg, hint=_HINT)
    msg = f"{path}: no rows"
    raise InputError(msg)


def rows_about(kind: Kind, category_key: str) -> type[Any]:
    """Give the row type whose category stands under this name."""
    row = TrialsRow if kind == "trials" else CaptureRow
    if category_key == "category":
        return row
    fields: list[tuple[str, Any, Any]] = [
        ("trajectory_richness", Any, msgspec.field(name="trajectoryRichness", default=None)),
        ("timed_out", Any, msgspec.field(name="timedOut", default=None)),
    ]
    read_anyway = next((name for name, _, field in fields if field.name == category_key), None)
    known = {"category": property(attrgetter(read_anyway))} if read_anyway else {}
    if not read_anyway:
        fields.append(("category", Any, msgspec.field(name=category_key, default=None)))
    try:
        about = msgspec.defstruct("About", fields, namespace=known, frozen=True)
    except ValueError as error:
        msg = f"--by {category_key!r}: {error}"
        raise InputError(msg, hint="choose another field of the metadata") from error
    return msgspec.defstruct(
        row.__name__, [("metadata", about, about())], bases=(row,), kw_only=True
    )


def shows_work(path: Path) -> bool:
    """Say whether any step of any row is more than a message; nothing else needs their kinds."""
    return any(
        step.type in ("thought", "tool_call")
        for rows in read_blocks(path, _Steps)
        for row in rows
        for step in row.trajectory
    )


def read_blocks(path: Path, kind: type[Any]) -> Iterator[list[Any]]:
    """Give the rows of a file, some megabytes at a time, through one buffer.

    Raw fields of a row point into that buffer: they are gone with the next block.
    """
    decoder = msgspec.json.Decoder(kind)
    buffer, held = bytearray(_BLOCK), 0
    try:
        with path.open("rb", buffering=0) as file:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            first = True
            while n_read := file.readinto(memoryview(buffer)[held:]):
                held += n_read
                cut = buffer.rfind(b"\n", 0, held) + 1
                if cut:
                    yield _decode_block(decoder, path, buffer, cut, look=first)
                    first = False
                    buffer[: held - cut] = buffer[cut:held]
                    held -= cut
                elif held == len(buffer):
                    buffer = buffer + bytearray(len(buffer))
            if held and not buffer[:held].isspace():
                yield _decode_block(decoder, path, buffer, held, look=True)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


def _decode_block(
    decoder: msgspec.json.Decoder[Any], path: Path, buffer: bytearray, end: int, *, look: bool
) -> list[Any]:
    """Decode a block; look at its line feeds too, at the beginning and the end of a file."""
    why = "a row does not stand on a line of its own"
    try:
        rows = decoder.decode_lines(memoryview(buffer)[:end])
        if not look or _one_each(buffer, end, len(rows)):
            return rows
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = str(error)
    for place, line in read_lines(path):  # find the line to name it
        decode(decoder, place, line)
    msg = f"{path}: {why}"
    raise InputError(msg, hint=_HINT)


def _one_each(buffer: bytearray, end: int, n_rows: int) -> bool:
    """Say whether there are as many lines as rows: a decoder of lines takes other JSON too."""
    n_lines = np.count_nonzero(np.frombuffer(buffer, np.uint8, end) == _LINE_FEED)
    if n_lines == n_rows and buffer[end - 1] == _LINE_FEED:
        return True
    lines = bytes(buffer[:end]).split(b"\n")
    return sum(bool(line) and not line.isspace() for line in lines) == n_rows


def decode[T](decoder: msgspec.json.Decoder[T], place: str, line: bytes) -> T:
    """Read one row; the error names file, line and field."""
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{place}: {error}"
        raise InputError(msg, hint=_HINT) from error


_PROBE = msgspec.json.Decoder(_Probe)
