"""The compact view of results, and the long one in Markdown."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET

from assay.records.capture import cause_words
from assay.records.reports import BalanceAnalysis, Summary
from assay.records.rows import RowFile
from assay.records.setup import Problems, SetupReader, counted
from assay.records.text import visible, visible_line, with_trial
from assay.records.trial.views import (
    DetailView,
    MessageText,
    SetupView,
    ShownStep,
    SummaryView,
    ThoughtText,
    ToolUse,
    asked,
)
from assay.report.text import fence, js_number, one_text, shorten


def write_summary(rows: RowFile, out: BinaryIO) -> list[str]:
    """Write summary.jsonl; return in how many trials something of the set-up was missing."""
    decoder = msgspec.json.Decoder(SummaryView)
    encoder = msgspec.json.Encoder()
    setups, n_rows, found = SetupReader(), 0, Counter[str]()

    def summarize(part: RowFile) -> tuple[bytes, int, list[str]]:
        texts, n_rows, problems = [], 0, list[str]()
        for block in part.blocks(decoder):
            short = [_summarize(row, setups) for row in block]
            texts.append(encoder.encode_lines(short))
            n_rows += len(short)
            for row in short:
                problems += row.setup_problems or ()
        return b"".join(texts), n_rows, problems

    for text, n_more, problems in rows.map(summarize):
        out.write(text)
        n_rows += n_more
        found.update(problems)
    return _counted(found, n_rows)


def _counted(found: Counter[str], n_rows: int) -> list[str]:
    return [visible_line(counted(words, n, n_rows)) for words, n in found.most_common()]


def _summarize(row: SummaryView, setups: SetupReader) -> Summary:
    score = row.score
    return Summary(
        id=row.id,
        number=row.number or UNSET,
        input=one_text(asked(row), "\n"),
        output=row.output,
        tool_calls=[step.name for step in row.trajectory if step.type == "tool_call"],
        duration=duration_ms(row.timing.start, row.timing.end),
        pass_=score.pass_ if score else UNSET,
        score=score.score if score else UNSET,
        cause=row.failure.cause or UNSET if row.failure else UNSET,
        setup_problems=list(setups.problems_in(row)) or UNSET,
    )


def duration_ms(start: float, end: float) -> float:
    """Return the duration; the clock's fractions are exact to a microsecond at best."""
    elapsed = end - start
    if type(elapsed) is int:
        return elapsed
    elapsed = round(elapsed, 3)
    return int(elapsed) if elapsed.is_integer() else elapsed


_FILE_KEYS = ("file_path", "path")
_CONTENT_KEYS = ("content", "new_string")
_LONG_CONTENT = 500
_HEAD_LINES = 8
_TAIL_LINES = 4


def write_summary_markdown(rows: RowFile, out: BinaryIO) -> list[str]:
    """Write one section per trial; above them what keeps the whole from being a result."""
    decoder = msgspec.json.Decoder(DetailView)
    setups = SetupReader()
    problems = _setup_lines(rows, setups)
    if problems:
        listed = "".join(f"- {line}\n" for line in problems)
        out.write(f"**UNHEALTHY: the agents did not have their set-up:**\n\n{listed}\n".encode())

    def sections(part: RowFile) -> bytes:
        texts = ("".join(_section(row, setups) for row in block) for block in part.blocks(decoder))
        return visible("".join(texts)).encode()

    out.writelines(rows.map(sections))
    return problems


def _setup_lines(rows: RowFile, setups: SetupReader) -> list[str]:
    decoder = msgspec.json.Decoder(SetupView)
    n_rows, found = 0, Counter[str]()

    def problems(part: RowFile) -> list[Problems]:
        return [setups.problems_in(row) for row in part.rows(decoder)]

    for some in rows.map(problems):
        n_rows += len(some)
        found.update(chain.from_iterable(some))
    return _counted(found, n_rows)


def _section(row: DetailView, setups: SetupReader) -> str:
    trial = f"-trial-{row.number}" if row.number else ""
    mark = f"[→{row.id}{trial}-step-"
    steps = [f"{n}. {_step(step, f'{mark}{n}]')}\n" for n, step in enumerate(row.trajectory, 1)]
    lacked = "; ".join(setups.problems_in(row))
    warning = f"**UNHEALTHY:** {visible_line(lacked)}\n\n" if lacked else ""
    return (
        f"## Evaluation Record: {with_trial(row.id, row.number)}\n\n{warning}"
        f"**Input:** {one_text(asked(row), '\n')}\n\n"
        f"**Trajectory:**\n{''.join(steps)}\n"
        f"**Output:** {shorten(row.output, 200)}\n\n{'\n'.join(_facts(row))}\n\n---\n\n"
    )


def _facts(row: DetailView) -> Iterator[str]:
    if row.metadata:
        pairs = ", ".join(f"{key}={_value(value)}" for key, value in row.metadata.items())
        yield f"**Metadata:** {pairs}"
    yield f"**Tool Errors:** {'true' if row.tool_errors else 'false'}"
    yield f"**Duration:** {js_number(duration_ms(row.timing.start, row.timing.end))}ms"
    if row.failure:
        yield f"**Failure:** {cause_words(row.failure.cause)}: {row.failure.message}"
    if row.score:
        verdict = "PASS" if row.score.pass_ else "FAIL"
        yield f"**Score:** {verdict} ({js_number(row.score.score)})"
        if row.score.reasoning:
            yield f"**Reasoning:** {row.score.reasoning}"


def _step(step: ShownStep, mark: str) -> str:
    if isinstance(step, ToolUse):
        took = "" if step.duration is None else f" ({js_number(step.duration)}ms)"
        shown = _file(step.input) if isinstance(step.input, dict) else ""
        return f"[TOOL:{step.name}] -> {step.status}{took} {mark}{shown}"
    if isinstance(step, ThoughtText):
        return f"[THOUGHT] {shorten(step.content, 100)} {mark}"
    if isinstance(step, MessageText):
        return f"[MESSAGE] {shorten(step.content, 100)} {mark}"
    return f"[PLAN] {shorten(', '.join(map(_entry, step.entries)), 80)} {mark}"


def _entry(entry: Any) -> str:
    if isinstance(entry, dict) and "content" in entry:
        return f"{_value(entry['content'])}: {_value(entry.get('status', 'pending'))}"
    return _value(entry)


def _file(arguments: dict[str, Any]) -> str:
    """Show what a tool wrote to a file; long content by its head and tail."""
    path, content = _first_text(arguments, _FILE_KEYS), _first_text(arguments, _CONTENT_KEYS)
    if path is None or content is None:
        return ""
    mark = fence(content)
    name = path.rpartition("/")[2]
    language = name.rpartition(".")[2] if "." in name else "typescript"
    shown = _excerpt(content).replace("\n", "\n   ")
    return f"\n   File: {path} ({len(content)} chars)\n   {mark}{language}\n   {shown}\n   {mark}"


def _first_text(arguments: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        if isinstance(value := arguments.get(key), str):
            return value
    return None


def _excerpt(content: str) -> str:
    if len(content) <= _LONG_CONTENT:
        return content
    lines = content.split("\n")
    left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
    if left_out <= 0:
        return content
    note = f"// ... {left_out} lines omitted ..."
    return "\n".join([*lines[:_HEAD_LINES], "", note, "", *lines[-_TAIL_LINES:]])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_PERCENT_PER_BLOCK = 5


def balance_lines(balance: BalanceAnalysis, key: str) -> Iterator[str]:
    """Yield the lines: a bar per category (one block for 5 %), then what to do."""
    yield f"{balance.total_cases} prompts by {key!r}"
    if balance.categories:
        yield ""
        yield "Category Distribution:"
    for each in balance.categories:
        # At least one block, so that a small category is still seen.
        bar = "█" * max(1, round(each.percentage / _PERCENT_PER_BLOCK))
        yield f"  {visible_line(each.name)}: {each.count} ({each.percentage}%) {bar}"
    if balance.underrepresented:
        yield ""
        yield f"Underrepresented: {', '.join(map(visible_line, balance.underrepresented))}"
    yield ""
    yield "Suggestions:"
    yield from (f"  - {visible_line(text)}" for text in balance.suggestions)
