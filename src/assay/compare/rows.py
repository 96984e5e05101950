"""The rows of result files, reduced to the fields that count."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.compare.columns import Kind
from assay.errors import InputError

_HINT = "compare reads the output of capture, grade or trials"


class Score(msgspec.Struct):
    """The grade of a capture."""

    pass_: bool = msgspec.field(name="pass")
    score: float


class Version(msgspec.Struct):
    """Which grader it was."""

    version: str | None = None


class CauseOf(msgspec.Struct):
    """Why a trial did not go well."""

    cause: str = ""
    answered: bool = False


class Used(msgspec.Struct, rename="camel"):
    """What a trial used up."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None


class Clock(msgspec.Struct, rename="camel"):
    """When it began and ended."""

    start: float | None = None
    end: float | None = None
    total: float | None = None
    first_response: float | None = None


class AgentOf(msgspec.Struct):
    """Which agent it was."""

    adapter: str = ""
    version: str | None = None
    model: str | None = None


class Step(msgspec.Struct):
    """Only counted."""


class Attempt(msgspec.Struct, rename="camel", kw_only=True):
    """What a capture and an entry of trials have in common."""

    trajectory: list[Step]
    tool_errors: bool = False
    grades: dict[str, Version] | None = None
    grader_failures: dict[str, str] | None = None
    failure: CauseOf | None = None
    usage: Used | None = None
    agent: AgentOf | None = None
    permission_denials: int = 0


class CaptureRow(Attempt, rename="camel", kw_only=True):
    """A row of results.jsonl, or of what grade wrote."""

    id: str
    input: msgspec.Raw
    output: msgspec.Raw
    timing: Clock
    metadata: dict[str, Any] | None = None
    errors: list[str] | None = None
    score: Score | None = None


class EntryRow(Attempt, rename="camel", kw_only=True):
    """One trial in a row of trials.jsonl."""

    duration: float
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    first_response: float | None = None


class TrialsRow(msgspec.Struct, rename="camel", kw_only=True):
    """A row of trials.jsonl."""

    id: str
    input: msgspec.Raw
    k: float | None = None
    trials: list[EntryRow]
    metadata: dict[str, Any] | None = None
    pass_at_k: float | None = None
    pass_exp_k: float | None = None


class _Probe(msgspec.Struct):
    k: Any = None
    trials: Any = None
    trajectory: Any = None
    timing: Any = None


def detect_kind(path: Path) -> Kind:
    """Say what a file holds, from its first row."""
    for place, line, _offset in lines_of(path):
        probe = decode(_PROBE, place, line)
        if isinstance(probe.trials, list) and isinstance(probe.k, int | float):
            return "trials"
        if isinstance(probe.trajectory, list) and isinstance(probe.timing, dict):
            return "capture"
        msg = f"{place}: neither a capture (trajectory, timing) nor trials (trials, k)"
        raise InputError(msg, hint=_HINT)
    msg = f"{path}: no rows"
    raise InputError(msg)


def lines_of(path: Path) -> Iterator[tuple[str, bytes, int]]:
    """Give place, text and offset of each line that is not blank."""
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield f"{path}:{number}", line, offset
                offset += len(line)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


def decode[T](decoder: msgspec.json.Decoder[T], place: str, line: bytes) -> T:
    """Read one row; the error names file, line and field."""
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        msg = f"{place}: {error}"
        raise InputError(
            msg, hint="compare reads the output of capture, grade or trials"
        ) from error


_PROBE = msgspec.json.Decoder(_Probe)
