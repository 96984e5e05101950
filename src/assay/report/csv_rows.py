"""Write results as CSV for spreadsheets; score columns only where some row is graded."""

from typing import BinaryIO

import msgspec

from assay.records.row_file import RowFile
from assay.report.numbers import fixed, js_number
from assay.report.text import one_text

_COLUMNS = "id,input,hint,output,tool_errors,duration_ms"
_SCORE_COLUMNS = ",pass,score,reasoning"


class _Timing(msgspec.Struct, gc=False):
    total: int | float


class _CsvScore(msgspec.Struct, gc=False):
    pass_: bool = msgspec.field(name="pass")
    score: int | float
    reasoning: str | None = None


class _CsvRow(msgspec.Struct, rename="camel", gc=False):
    id: str
    input: str | list[str]
    output: str
    timing: _Timing
    hint: str | None = None
    tool_errors: bool | None = None
    score: _CsvScore | None = None


class _Anything(msgspec.Struct, gc=False):
    pass


class _Graded(msgspec.Struct, gc=False):
    score: _Anything | None = None


def write_csv(rows: RowFile, out: BinaryIO) -> None:
    """Write header and rows: texts always quoted, a line feed as backslash n."""
    graded = any(row.score for row in rows.rows(msgspec.json.Decoder(_Graded)))
    line = _graded_line if graded else _line
    out.write(f"{_COLUMNS}{_SCORE_COLUMNS if graded else ''}\n".encode())
    for block in rows.blocks(msgspec.json.Decoder(_CsvRow)):
        out.write("".join(map(line, block)).encode())


def inside(text: str) -> str:
    """Give a text as it stands between the quotes of a cell."""
    return text.replace('"', '""').replace("\n", "\\n")


def _line(row: _CsvRow, more: str = "") -> str:
    hint = inside(row.hint) if row.hint else ""
    errors = "true" if row.tool_errors else "false"
    return (
        f'"{inside(row.id)}","{inside(one_text(row.input, " | "))}","{hint}",'
        f'"{inside(row.output)}",{errors},{js_number(row.timing.total)}{more}\n'
    )


def _graded_line(row: _CsvRow) -> str:
    score = row.score
    if score is None:
        return _line(row, ",,,")
    verdict = "true" if score.pass_ else "false"
    reasoning = inside(score.reasoning) if score.reasoning else ""
    return _line(row, f',{verdict},{fixed(score.score, 3)},"{reasoning}"')
