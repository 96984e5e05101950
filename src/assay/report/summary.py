"""Make the compact view of results: one short row per trial."""

from typing import Annotated, BinaryIO

import msgspec
from msgspec import UNSET

from assay.records.row_file import RowFile
from assay.records.summary import Summary
from assay.report.text import one_text

_SHARE = msgspec.Meta(ge=0, le=1)


class _Step(msgspec.Struct, tag_field="type", gc=False):
    """Only its kind and, of a tool call, its name."""


class _Thought(_Step, tag="thought", gc=False):
    pass


class _Message(_Step, tag="message", gc=False):
    pass


class _Plan(_Step, tag="plan", gc=False):
    pass


class _ToolCall(_Step, tag="tool_call", gc=False):
    name: str = "unknown"


class _Timing(msgspec.Struct, gc=False):
    start: int | float
    end: int | float


class _Score(msgspec.Struct, gc=False):
    pass_: bool = msgspec.field(name="pass")
    score: Annotated[int, _SHARE] | Annotated[float, _SHARE]


class _Failure(msgspec.Struct, gc=False):
    cause: str


class _Row(msgspec.Struct, gc=False):
    id: str
    input: str | list[str]
    output: str
    trajectory: list[_Thought | _Message | _Plan | _ToolCall]
    timing: _Timing
    score: _Score | None = None
    failure: _Failure | None = None


def write_summary(rows: RowFile, out: BinaryIO) -> None:
    """Write summary.jsonl."""
    decoder = msgspec.json.Decoder(_Row)
    encoder = msgspec.json.Encoder()
    for block in rows.blocks(decoder):
        out.write(encoder.encode_lines([_summarize(row) for row in block]))


def _summarize(row: _Row) -> Summary:
    score = row.score
    return Summary(
        id=row.id,
        input=one_text(row.input, "\n"),
        output=row.output,
        tool_calls=[step.name for step in row.trajectory if type(step) is _ToolCall],
        duration=duration_ms(row.timing.start, row.timing.end),
        pass_=score.pass_ if score else UNSET,
        score=score.score if score else UNSET,
        cause=row.failure.cause if row.failure else UNSET,
    )


def duration_ms(start: float, end: float) -> float:
    """Give the length; the clock's fractions are exact to a microsecond at best."""
    length = end - start
    if type(length) is int:
        return length
    length = round(length, 3)
    return int(length) if length.is_integer() else length
