"""assay grade: rows in, the same rows with a verdict out."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.options import grader_options, grader_refs, output_mode, with_options
from assay.cli.output import Sink, open_sink
from assay.cli.parameters import refuse_terminal
from assay.errors import InputError
from assay.pipeline.grading import GradedRow, rows_wait
from assay.pipeline.stages import grade_all
from assay.records.rows import Place, read_lines

_BATCH_BYTES = 64 * 1024
_BATCH_S = 0.02


@click.command(short_help="Grade what an agent did.")
@click.argument("rows", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@with_options(grader_options)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; stdout if none.")
@click.option("--resume", is_flag=True, help="Grade only what is missing in the output.")
@click.option("--append", is_flag=True, help="Add to an existing output.")
@click.option("--overwrite", is_flag=True, help="Throw an existing output away.")
@click.option("-j", "--concurrency", type=click.IntRange(min=1), default=1, help="Rows at once.")
@click.option("--progress", is_flag=True, help="Say on stderr what happens.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.help_option("-h", "--help")
def command(**options: Any) -> None:
    """Grade rows of `capture` or `extract` (stdin if no file); they come out in their order.

    A grader (-g) is a file or a name; see docs/graders.md.

    \b
      ./grader.py            Python file with a function `grade`, or any program
      serve:./grader.py      program that is started once and answers line by line
      contains:Paris         built-in: exact contains regex numeric json-schema
      command:'pytest -q'              command git tools judge
    """
    if not options["graders"]:
        msg = "by which grader? give -g GRADER"
        raise click.UsageError(msg)
    source: Path | None = options["rows"]
    output: Path | None = options["output"]
    graders = grader_refs(options)
    mode = output_mode(options)
    if source is None:
        refuse_terminal()
    elif output is not None and output.exists() and output.samefile(source):
        msg = f"-o is the file that is read: {output}"
        raise click.UsageError(msg)
    tally = _Tally()
    with open_sink(output, mode) as sink:
        lines = read_lines(source)
        if mode == "resume" and output is not None:
            tally.n_before = _skip_graded(lines, output)
        with _Batch(sink) as batch:
            waits = rows_wait(source)
            for row in grade_all(lines, graders, options["concurrency"], waits):
                batch.add(row.line, at_once=not waits())
                tally.add(row)
                if options["progress"]:
                    click.echo(_shown(row), err=True)
    if source is None and not tally.n_rows + tally.n_before:
        msg = "stdin: no rows"
        raise InputError(msg, hint="grade reads what `assay capture` or `assay extract` wrote")
    if not options["quiet"]:
        click.echo(tally.summary(str(output or "")), err=True)
    if tally.n_broken:
        click.echo(
            f"{tally.n_broken} rows are not graded: their grader failed "
            f"(see graderFailures in the rows). The first: {tally.first_broken}",
            err=True,
        )
        raise click.exceptions.Exit(1)


class _Batch:
    """Writes rows together while they come fast; never holds back more than a moment's work."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lines: list[bytes] = []
        self._n_bytes = 0
        self._written_s = time.monotonic()

    def __enter__(self) -> "_Batch":
        return self

    def __exit__(self, *error: object) -> None:
        self._write()

    def add(self, line: bytes, *, at_once: bool) -> None:
        self._lines.append(line)
        self._n_bytes += len(line)
        if (
            at_once
            or self._n_bytes >= _BATCH_BYTES
            or time.monotonic() - self._written_s >= _BATCH_S
        ):
            self._write()

    def _write(self) -> None:
        lines, self._lines, self._n_bytes = self._lines, [], 0
        if lines:
            self._sink.append(b"\n".join(lines))
        self._written_s = time.monotonic()


class _Tally:
    """Counts what came out."""

    def __init__(self) -> None:
        self.n_rows = self.n_before = self.n_passed = self.n_graded = self.n_broken = 0
        self.first_broken = ""

    def add(self, row: GradedRow) -> None:
        score, broken = row.verdict.score, row.verdict.broken
        self.n_rows += 1
        if score is not None:
            self.n_graded += 1
            self.n_passed += score.pass_
        elif broken:
            self.n_broken += 1
            self.first_broken = self.first_broken or f"{row.id}: {_first(broken)}"

    def summary(self, target: str) -> str:
        parts = [f"{self.n_passed} of {self.n_graded} passed"]
        unmeasured = self.n_rows - self.n_graded - self.n_broken
        parts += [f"{self.n_before} were there before"] if self.n_before else []
        parts += [f"{unmeasured} do not measure the agent"] if unmeasured else []
        parts += [f"{self.n_broken} grader failures"] if self.n_broken else []
        return ", ".join(parts) + (f" -> {target}" if target else "")


def _shown(row: GradedRow) -> str:
    score, broken = row.verdict.score, row.verdict.broken
    if score is not None:
        return f"{'✓' if score.pass_ else '✗'} {row.id}: {score.score:g}"
    return f"! {row.id}: {_first(broken) if broken else 'not a measurement of the agent'}"


def _first(broken: dict[str, str]) -> str:
    """Say in one line how a grader failed; the last line of what it said often tells most."""
    name, why = next(iter(broken.items()))
    lines = why.splitlines() or [""]
    return f"{name}: {lines[0]}" + (f" … {lines[-1].strip()}" if len(lines) > 1 else "")


def _skip_graded(lines: Iterator[tuple[Place, bytes]], output: Path) -> int:
    """Pass over the rows that the output has; refuse an output that was made from others."""
    n_rows = 0
    for n_rows, (place, done) in enumerate(read_lines(output), 1):  # noqa: B007
        here = next(islice(lines, 1), None)
        if here is None or _id(*here) != _id(place, done):
            msg = f"{place}: not the row that stands at this place of the input"
            raise InputError(msg, hint="go on with the same input, or use --overwrite")
    return n_rows


def _id(place: Place, line: bytes) -> Any:
    class Key(msgspec.Struct):
        id: Any = None

    try:
        return msgspec.json.decode(line, type=Key).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{place}: not a JSON object: {error}"
        raise InputError(msg) from error
