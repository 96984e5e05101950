"""Results in the formats of `assay format`: JSONL, CSV, Markdown."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO, Literal

import msgspec

from assay.errors import InputError
from assay.records.capture import cause_words
from assay.records.files import copy_part, temporary_file
from assay.records.rows import RowFile
from assay.records.text import visible, with_trial
from assay.records.trial.reference import reference_row
from assay.records.trial.views import CsvView, GradeView, HasScoreView, MarkdownView, asked
from assay.report.text import fence, fixed, js_number, one_text, shorten

type Style = Literal["jsonl", "markdown", "csv"]
STYLES: tuple[Style, ...] = ("jsonl", "markdown", "csv")


def write_rows(
    rows: RowFile, out: BinaryIO, style: Style, generated: str, *, safe: bool = False
) -> None:
    """Write all rows in one style; generated is the time shown in a report.

    With safe, no cell of a CSV is a formula.
    """
    if style == "csv":
        write_csv(rows, out, safe=safe)
    elif style == "markdown":
        write_markdown(rows, out, generated)
    else:
        write_jsonl(rows, out)


_COLUMNS = "id,input,hint,output,tool_errors,duration_ms"
_SCORE_COLUMNS = ",pass,score,reasoning"


def write_csv(rows: RowFile, out: BinaryIO, *, safe: bool = False) -> None:
    """Write header and rows: texts always quoted, a line feed as backslash n.

    The file is read twice: a single graded row adds the columns of the score to all.
    """
    graded = _is_graded(rows)
    line = partial(_graded_line if graded else _line, _inside_safely if safe else _inside)
    columns = _COLUMNS.replace("id,", "id,trial,", 1) if rows.has_trials else _COLUMNS
    out.write(f"{columns}{_SCORE_COLUMNS if graded else ''}\n".encode())
    decoder = msgspec.json.Decoder(CsvView)

    def cells(part: RowFile) -> bytes:
        return b"".join("".join(map(line, block)).encode() for block in part.blocks(decoder))

    out.writelines(rows.map(cells))


def _is_graded(rows: RowFile) -> bool:
    """Whether any row has a score; mostly the first rows tell, without a look at all."""
    decoder = msgspec.json.Decoder(HasScoreView)

    def has_score(part: RowFile) -> bool:
        return any(row.score for row in part.rows(decoder))

    first = next(rows.blocks(decoder), [])
    return any(row.score for row in first) or any(rows.map(has_score))


def _inside(text: str) -> str:
    """Return a text as it stands between the quotes of a cell."""
    return text.replace('"', '""').replace("\n", "\\n")


# What a spreadsheet reads as a formula, also in full width and behind blanks; a number is none.
_FORMULA = re.compile(r"(?![-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?%?\Z)[\s\x00]*[=+\-@\t\r＝＋－＠]")


def _inside_safely(text: str) -> str:
    """The same, with an apostrophe before what a spreadsheet would run: it shows the text then."""
    return _inside(f"'{text}" if _FORMULA.match(text) else text)


def _line(inside: Callable[[str], str], row: CsvView, more: str = "") -> str:
    hint = inside(row.hint) if row.hint else ""
    errors = "true" if row.tool_errors else "false"
    trial = "" if row.number is None else f",{row.number}"
    return (
        f'"{inside(row.id)}"{trial},"{inside(one_text(asked(row), " | "))}","{hint}",'
        f'"{inside(row.output)}",{errors},{js_number(row.timing.total)}{more}\n'
    )


def _graded_line(inside: Callable[[str], str], row: CsvView) -> str:
    score = row.score
    if score is None:
        return _line(inside, row, ",,,")
    verdict = "true" if score.pass_ else "false"
    reasoning = inside(score.reasoning) if score.reasoning else ""
    return _line(inside, row, f',{verdict},{fixed(score.score, 3)},"{reasoning}"')


def write_jsonl(rows: RowFile, out: BinaryIO) -> None:
    """Write every row on a line of its own; each is checked to be a JSON object."""
    rows.write_texts(out)


def write_reference(rows: RowFile, out: BinaryIO) -> None:
    """Write every row with the fields that agent-eval-harness knows, and no others."""
    decoder = msgspec.json.Decoder(dict[str, Any])

    def lines(part: RowFile) -> bytes:
        made = []
        for spot, row in part.placed_rows(decoder):
            try:
                made.append(msgspec.json.encode(reference_row(row)))
            except InputError as error:
                msg = f"{part.place(spot)}: {error.message}"
                raise InputError(msg, hint=error.hint) from error
        return b"".join(line + b"\n" for line in made)

    out.writelines(rows.map(lines))


class _Totals(msgspec.Struct):
    """Counted while the rows go by."""

    n_rows: int = 0
    n_graded: int = 0
    n_failed: int = 0
    """Not graded, and still counted as failed: a failure of the agent's own."""
    n_passed: int = 0
    score_sum: float = 0.0

    def add(self, more: "_Totals") -> None:
        self.n_rows += more.n_rows
        self.n_graded += more.n_graded
        self.n_failed += more.n_failed
        self.n_passed += more.n_passed
        self.score_sum += more.score_sum


def write_markdown(rows: RowFile, out: BinaryIO, generated: str) -> None:
    """Write the report. The summary comes first but is known last: the rows wait in a file."""
    totals = _Totals()
    decoder = msgspec.json.Decoder(MarkdownView)
    with temporary_file() as body:
        for text, some in rows.map(lambda part: _sections(part.blocks(decoder))):
            body.write(text)
            totals.add(some)
        what = "trials" if rows.has_trials else "test cases"
        out.write(_top(totals, generated, what).encode())
        body.flush()
        copy_part(body, out, 0, body.tell())


def _top(totals: _Totals, generated: str, what: str) -> str:
    summary = ""
    if totals.n_graded:
        n_measured = totals.n_graded + totals.n_failed
        rate = fixed(100 * totals.n_passed / n_measured, 1)
        summary = (
            "## Summary\n\n"
            f"- **Pass rate**: {totals.n_passed}/{n_measured} ({rate}%)\n"
            f"- **Average score**: {fixed(totals.score_sum / n_measured, 3)}\n"
        )
        if n_measured < totals.n_rows:
            summary += f"- **Not graded**: {totals.n_rows - n_measured}\n"
        summary += "\n"
    return (
        f"# Evaluation Results\n\nGenerated: {generated}\nTotal: {totals.n_rows} {what}\n\n"
        f"{summary}## Results\n\n"
    )


def _sections(blocks: Iterable[list[MarkdownView]]) -> tuple[bytes, _Totals]:
    texts, totals = [], _Totals()
    for block in blocks:
        scores = [row.score for row in block if row.score is not None]
        totals.n_rows += len(block)
        totals.n_graded += len(scores)
        if len(scores) < len(block):
            totals.n_failed += sum(row.passed is False for row in block if row.score is None)
        totals.n_passed += sum(score.pass_ for score in scores)
        totals.score_sum += sum(score.score for score in scores)
        texts.append(visible("".join(map(_section, block))).encode())
    return b"".join(texts), totals


def _section(row: MarkdownView) -> str:
    output = shorten(row.output, 500)
    mark = fence(output)
    hint = f"**Hint**: {row.hint}\n\n" if row.hint else ""
    verdict = _verdict(row.score) if row.score else ""
    troubles = _troubles(row) if row.tool_errors or row.failure or row.error or row.errors else ""
    question = shorten(one_text(asked(row), " → "), 100)
    return (
        f"### {with_trial(row.id, row.number)}\n\n**Input**: {question}\n\n{hint}"
        f"**Output**:\n{mark}\n{output}\n{mark}\n\n{verdict}{troubles}---\n\n"
    )


def _verdict(score: GradeView) -> str:
    reasoning = f"**Reasoning**: {score.reasoning}\n" if score.reasoning else ""
    icon = "✅" if score.pass_ else "❌"
    word = "PASS" if score.pass_ else "FAIL"
    return f"**Score**: {icon} {fixed(score.score, 3)} ({word})\n{reasoning}\n"


def _troubles(row: MarkdownView) -> str:
    text = "⚠️ **Tool errors detected**\n\n" if row.tool_errors else ""
    if row.failure:
        text += f"❌ **Failure**: {cause_words(row.failure.cause)}: {row.failure.message}\n\n"
    texts = [row.error] if row.error else row.errors or []
    return text + "".join(f"❌ **Error**: {error}\n\n" for error in texts)


# What XML 1.0 forbids, even as a character reference.
