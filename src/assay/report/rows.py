"""Results in the formats of `assay format` (JSONL, CSV, Markdown), and as JUnit XML."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Literal
from xml.sax.saxutils import escape as escape_text
from xml.sax.saxutils import quoteattr

import msgspec

from assay.records.files import copy_stream, temporary_file
from assay.records.rows import RowFile
from assay.records.views import CsvView, GradeView, HasScoreView, MarkdownView
from assay.report.text import fence, fixed, js_number, one_text, shorten

type Style = Literal["jsonl", "markdown", "csv"]
STYLES: tuple[Style, ...] = ("jsonl", "markdown", "csv")


def write_rows(rows: RowFile, out: BinaryIO, style: Style, generated: str) -> None:
    """Write all rows in one style; generated is the time shown in a report."""
    if style == "csv":
        write_csv(rows, out)
    elif style == "markdown":
        write_markdown(rows, out, generated)
    else:
        write_jsonl(rows, out)


_COLUMNS = "id,input,hint,output,tool_errors,duration_ms"
_SCORE_COLUMNS = ",pass,score,reasoning"


def write_csv(rows: RowFile, out: BinaryIO) -> None:
    """Write header and rows: texts always quoted, a line feed as backslash n.

    The file is read twice: a single graded row adds the columns of the score to all.
    """
    graded = any(row.score for row in rows.rows(msgspec.json.Decoder(HasScoreView)))
    line = _graded_line if graded else _line
    out.write(f"{_COLUMNS}{_SCORE_COLUMNS if graded else ''}\n".encode())
    for block in rows.blocks(msgspec.json.Decoder(CsvView)):
        out.write("".join(map(line, block)).encode())


def inside(text: str) -> str:
    """Return a text as it stands between the quotes of a cell."""
    return text.replace('"', '""').replace("\n", "\\n")


def _line(row: CsvView, more: str = "") -> str:
    hint = inside(row.hint) if row.hint else ""
    errors = "true" if row.tool_errors else "false"
    return (
        f'"{inside(row.id)}","{inside(one_text(row.input, " | "))}","{hint}",'
        f'"{inside(row.output)}",{errors},{js_number(row.timing.total)}{more}\n'
    )


def _graded_line(row: CsvView) -> str:
    score = row.score
    if score is None:
        return _line(row, ",,,")
    verdict = "true" if score.pass_ else "false"
    reasoning = inside(score.reasoning) if score.reasoning else ""
    return _line(row, f',{verdict},{fixed(score.score, 3)},"{reasoning}"')


def write_jsonl(rows: RowFile, out: BinaryIO) -> None:
    """Write every row on a line of its own; each is checked to be a JSON object."""
    for text in rows.texts():
        out.write(text)


class _Totals(msgspec.Struct):
    """Counted while the rows go by."""

    n_rows: int = 0
    n_graded: int = 0
    n_passed: int = 0
    score_sum: float = 0.0


def write_markdown(rows: RowFile, out: BinaryIO, generated: str) -> None:
    """Write the report. The summary comes first but is known last: the rows wait in a file."""
    totals = _Totals()
    with temporary_file() as body:
        for text in _sections(rows, totals):
            body.write(text.encode())
        out.write(_top(totals, generated).encode())
        body.seek(0)
        copy_stream(body, out)


def _top(totals: _Totals, generated: str) -> str:
    summary = ""
    if totals.n_graded:
        rate = fixed(100 * totals.n_passed / totals.n_graded, 1)
        summary = (
            "## Summary\n\n"
            f"- **Pass rate**: {totals.n_passed}/{totals.n_graded} ({rate}%)\n"
            f"- **Average score**: {fixed(totals.score_sum / totals.n_graded, 3)}\n"
        )
        if totals.n_graded < totals.n_rows:
            summary += f"- **Not graded**: {totals.n_rows - totals.n_graded}\n"
        summary += "\n"
    return (
        f"# Evaluation Results\n\nGenerated: {generated}\nTotal: {totals.n_rows} test cases\n\n"
        f"{summary}## Results\n\n"
    )


def _sections(rows: RowFile, totals: _Totals) -> Iterator[str]:
    for block in rows.blocks(msgspec.json.Decoder(MarkdownView)):
        totals.n_rows += len(block)
        scores = [row.score for row in block if row.score is not None]
        totals.n_graded += len(scores)
        totals.n_passed += sum(score.pass_ for score in scores)
        totals.score_sum += sum(score.score for score in scores)
        yield "".join(map(_section, block))


def _section(row: MarkdownView) -> str:
    output = shorten(row.output, 500)
    mark = fence(output)
    hint = f"**Hint**: {row.hint}\n\n" if row.hint else ""
    verdict = _verdict(row.score) if row.score else ""
    troubles = _troubles(row) if row.tool_errors or row.failure or row.error or row.errors else ""
    return (
        f"### {row.id}\n\n**Input**: {shorten(one_text(row.input, ' → '), 100)}\n\n{hint}"
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
        text += f"❌ **Failure**: {row.failure.cause}: {row.failure.message}\n\n"
    texts = [row.error] if row.error else row.errors or []
    return text + "".join(f"❌ **Error**: {error}\n\n" for error in texts)


# What XML 1.0 forbids, even as a character reference.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_TEXT = 2000


def write_junit(out: BinaryIO, runs: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Write all runs; a suite is held until its counts are known."""
    out.write(b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="assay">\n')
    for label, lines in runs:
        out.write("".join(_suite(label, lines)).encode())
    out.write(b"</testsuites>\n")


def _suite(label: str, lines: Iterable[bytes]) -> Iterator[str]:
    cases = [case for line in lines for case in _cases(label, msgspec.json.decode(line))]
    kinds = [kind for kind, _, _ in cases]
    seconds = sum(time_s for _, time_s, _ in cases)
    yield (
        f'<testsuite name={_name(label)} tests="{len(cases)}" '
        f'failures="{kinds.count("failure")}" errors="0" '
        f'skipped="{kinds.count("skipped")}" time="{seconds:.3f}">\n'
    )
    yield from (text for _, _, text in cases)
    yield "</testsuite>\n"


def _cases(label: str, row: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    category = (row.get("metadata") or {}).get("category")
    where = f"{label}.{category}" if category is not None else label
    if "trials" not in row:
        score = row.get("score") or {}
        time_s = (row.get("timing") or {}).get("total") or 0
        yield _case(where, row["id"], row, score, time_s / 1000)
        return
    for trial in row["trials"]:
        name = f"{row['id']} [trial {trial['trialNum']}]"
        yield _case(where, name, trial, trial, (trial.get("duration") or 0) / 1000)


def _case(
    where: str, name: str, entry: dict[str, Any], grade: dict[str, Any], time_s: float
) -> tuple[str, float, str]:
    failure = entry.get("failure") or {}
    why = str(failure.get("message") or grade.get("reasoning") or "")
    cause = str(failure.get("cause") or "graded")
    passed = grade.get("pass")
    kind, inner = "passed", ""
    if passed is None:
        kind = "skipped"
        inner = f"<skipped message={_name(f'not measured: {cause}: {why}')}/>"
    elif not passed:
        kind = "failure"
        output = _clean(str(entry.get("output") or ""))
        inner = f"<failure type={_name(cause)} message={_name(why or 'failed')}>{output}</failure>"
    text = f'<testcase classname={_name(where)} name={_name(name)} time="{time_s:.3f}"'
    return kind, time_s, f"{text}>{inner}</testcase>\n" if inner else f"{text}/>\n"


def _name(text: str) -> str:
    # A parser turns a bare line feed in an attribute into a space.
    return quoteattr(_ILLEGAL.sub("�", text[:_MOST_TEXT]), {"\n": "&#10;", "\r": "&#13;"})


def _clean(text: str) -> str:
    return escape_text(_ILLEGAL.sub("�", text[:_MOST_TEXT]))
