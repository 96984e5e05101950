"""Write results as a Markdown report: a summary on top, then every trial."""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from assay.records.row_file import RowFile
from assay.report.numbers import fixed
from assay.report.text import fence, one_text, shorten


class _MarkdownScore(msgspec.Struct, gc=False):
    pass_: bool = msgspec.field(name="pass")
    score: int | float
    reasoning: str | None = None


class _Failure(msgspec.Struct, gc=False):
    cause: str
    message: str = ""


class _MarkdownRow(msgspec.Struct, rename="camel", gc=False):
    id: str
    input: str | list[str]
    output: str
    hint: str | None = None
    tool_errors: bool | None = None
    score: _MarkdownScore | None = None
    error: str | None = None
    errors: list[str] | None = None
    failure: _Failure | None = None


class _Totals(msgspec.Struct):
    """Counted while the rows go by."""

    n_rows: int = 0
    n_graded: int = 0
    n_passed: int = 0
    score_sum: float = 0.0


def write_markdown(rows: RowFile, out: BinaryIO, generated: str) -> None:
    """Write the report. The summary stands above rows that are read once: they wait in a file."""
    import shutil
    import tempfile

    totals = _Totals()
    with tempfile.TemporaryFile() as body:
        for text in _sections(rows, totals):
            body.write(text.encode())
        out.write(_top(totals, generated).encode())
        body.seek(0)
        shutil.copyfileobj(body, out, 1 << 20)


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
    for block in rows.blocks(msgspec.json.Decoder(_MarkdownRow)):
        totals.n_rows += len(block)
        scores = [row.score for row in block if row.score is not None]
        totals.n_graded += len(scores)
        totals.n_passed += sum(score.pass_ for score in scores)
        totals.score_sum += sum(score.score for score in scores)
        yield "".join(map(_section, block))


def _section(row: _MarkdownRow) -> str:
    output = shorten(row.output, 500)
    mark = "```" if "```" not in output else fence(output)
    hint = f"**Hint**: {row.hint}\n\n" if row.hint else ""
    verdict = _verdict(row.score) if row.score else ""
    troubles = _troubles(row) if row.tool_errors or row.failure or row.error or row.errors else ""
    return (
        f"### {row.id}\n\n**Input**: {shorten(one_text(row.input, ' → '), 100)}\n\n{hint}"
        f"**Output**:\n{mark}\n{output}\n{mark}\n\n{verdict}{troubles}---\n\n"
    )


def _verdict(score: _MarkdownScore) -> str:
    reasoning = f"**Reasoning**: {score.reasoning}\n" if score.reasoning else ""
    icon = "✅" if score.pass_ else "❌"
    word = "PASS" if score.pass_ else "FAIL"
    return f"**Score**: {icon} {fixed(score.score, 3)} ({word})\n{reasoning}\n"


def _troubles(row: _MarkdownRow) -> str:
    said = "⚠️ **Tool errors detected**\n\n" if row.tool_errors else ""
    if row.failure:
        said += f"❌ **Failure**: {row.failure.cause}: {row.failure.message}\n\n"
    texts = [row.error] if row.error else row.errors or []
    return said + "".join(f"❌ **Error**: {text}\n\n" for text in texts)
