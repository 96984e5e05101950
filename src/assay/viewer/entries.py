"""One line of a result file, reduced to what a table of trials shows."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_HEAD = 160
_MOST_NAME = 200
_NO_CATEGORY = "(uncategorized)"


class Entry(NamedTuple):
    """One trial; None is not known or not measured."""

    number: int
    passed: bool | None
    score: float | None
    ms: float | None
    usd: float | None
    tokens: float | None
    n_steps: int
    cause: str
    tools: list[tuple[str, bool]]
    """Name of each tool call, and whether it failed."""


class Line(NamedTuple):
    """One line: the prompt and its trials."""

    id: str
    head: str
    category: str
    entries: list[Entry]
    is_trials: bool


class _Step(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    name: str = "unknown"
    status: str = ""


class _Cause(msgspec.Struct, gc=False):
    cause: str = ""


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None


class _Grade(msgspec.Struct, gc=False):
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None


class _Timing(msgspec.Struct, gc=False):
    start: float | None = None
    end: float | None = None
    total: float | None = None


class _Trial(msgspec.Struct, gc=False, rename="camel"):
    trial_num: int
    trajectory: list[_Step] = []
    duration: float | None = None
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    usage: _Usage | None = None
    failure: _Cause | None = None


class _Row(msgspec.Struct, gc=False):
    id: str
    input: str | list[str] = ""
    metadata: dict[str, Any] | None = None
    trajectory: list[_Step] | None = None
    timing: _Timing | None = None
    score: _Grade | None = None
    usage: _Usage | None = None
    failure: _Cause | None = None
    trials: list[_Trial] | None = None


_DECODER = msgspec.json.Decoder(_Row)
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


def read_line(line: bytes, category_key: str) -> Line:
    """Read one line; raises one of UNREADABLE when it is no row of ours."""
    row = _DECODER.decode(line)
    if row.trials is not None:
        entries = [_trial(trial) for trial in row.trials]
    elif row.trajectory is not None and row.timing is not None:
        entries = [_capture(row)]
    else:
        msg = "neither a capture (trajectory, timing) nor trials (trials)"
        raise ValueError(msg)
    text = row.input if isinstance(row.input, str) else " → ".join(row.input)
    category = (row.metadata or {}).get(category_key)
    return Line(
        id=row.id,
        head=" ".join(text[:_HEAD].split()),
        category=_NO_CATEGORY if category is None else str(category)[:_MOST_NAME],
        entries=entries,
        is_trials=row.trials is not None,
    )


def id_hash(prompt_id: str) -> int:
    """Name an id by eight bytes: what a table of a million rows can be joined by."""
    return int.from_bytes(hashlib.blake2b(prompt_id.encode(), digest_size=8).digest(), "little")


def _capture(row: _Row) -> Entry:
    grade, timing = row.score or _Grade(), row.timing or _Timing()
    length = timing.total
    if length is None and timing.start is not None and timing.end is not None:
        length = timing.end - timing.start
    return _entry(1, grade, length, row.usage, row.failure, row.trajectory or [])


def _trial(trial: _Trial) -> Entry:
    grade = _Grade(trial.pass_, trial.score)
    steps = trial.trajectory
    return _entry(trial.trial_num, grade, trial.duration, trial.usage, trial.failure, steps)


def _entry(
    number: int,
    grade: _Grade,
    ms: float | None,
    usage: _Usage | None,
    failure: _Cause | None,
    steps: list[_Step],
) -> Entry:
    used = usage or _Usage()
    return Entry(
        number=number,
        passed=grade.pass_,
        score=grade.score,
        ms=ms,
        usd=used.cost_usd,
        tokens=_sum(used.input_tokens, used.output_tokens),
        n_steps=len(steps),
        cause=failure.cause[:_MOST_NAME] if failure else "",
        tools=list(_tools(steps)),
    )


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def _tools(steps: list[_Step]) -> Iterator[tuple[str, bool]]:
    return (
        (step.name[:_MOST_NAME], step.status == "failed")
        for step in steps
        if step.type == "tool_call"
    )
