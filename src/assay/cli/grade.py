"""assay grade: rows in, the same rows with a verdict out."""

import shlex
import time
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import plugins
from assay.cli.doubts import Doubts
from assay.cli.help import examples
from assay.cli.options import (
    address_option,
    executor_option,
    executor_ref,
    grader_options,
    grader_refs,
    output_mode,
    with_options,
)
from assay.cli.output import note_unmasked, refuse_inputs, write_row
from assay.cli.parameters import (
    DASH,
    InFile,
    Rate,
    append_option,
    concurrency_option,
    debug_option,
    filter_option,
    help_option,
    input_argument,
    output_option,
    overwrite_option,
    progress_option,
    quiet_option,
)
from assay.errors import InputError
from assay.pipeline.grading import Elsewhere, GradedRow, only_computes, rows_wait
from assay.pipeline.prompts import matching_rows, read_prompts
from assay.pipeline.row_settings import RowGraders
from assay.pipeline.sink import Sink, open_sink
from assay.pipeline.stages import AskingHost, grade_all, grade_computing
from assay.records.journal import Mode
from assay.records.rows import Place, decode_line, read_lines
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line
from assay.records.trial.views import AnyIdView

_BATCH_BYTES = 64 * 1024
_BATCH_S = 0.02
_ID = msgspec.json.Decoder(AnyIdView)


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    rows: Path | None
    graders: tuple[str, ...]
    grader_timeout: float
    prompts: Path | None
    filters: tuple[str, ...]
    output: Path | None
    resume: bool
    append: bool
    overwrite: bool
    concurrency: int
    rate_per_s: float | None
    executor: str
    address: str | None
    env_names: tuple[str, ...]
    progress: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Grade the results of an agent.",
    epilog=examples(
        "assay grade results.jsonl -g evals/grader.py -o graded.jsonl",
        "assay grade results.jsonl -g contains -g regex:'[a-z]+' -j 2 -o both.jsonl",
        "assay extract raw.jsonl -s demo | assay grade -g contains",
    ),
)
@input_argument("rows", metavar="[FILE]")
@with_options(grader_options)
@click.option(
    "--prompts",
    type=InFile(DASH, exists=True),
    metavar="FILE",
    help="Take the graders that prompts bring along from the prompts in this file, by id. By "
    "default, they are taken from the rows, except for those that start programs.",
)
@filter_option("Grade and write only matching rows, by id, metadata or tags (tags=NAME)")
@output_option
@click.option(
    "--resume", is_flag=True, help="Grade only the rows that are missing in the output file."
)
@append_option
@overwrite_option
@concurrency_option(
    "Grade up to N rows at once. Graders that only compute, such as contains, take all cores for "
    "large files anyway. Default: 1."
)
@click.option(
    "--rate",
    "rate_per_s",
    type=Rate(),
    metavar="N/min",
    help="Put at most N questions a minute to each provider and model of a judge; N/s and N/h work "
    "too. If a provider answers 429, the question is put again after the pause that it asks for, "
    "up to four times. Default: no limit.",
)
@executor_option(
    "Where graders run: on this machine, or on a Ray cluster, where N rows reserve N CPUs. "
    "Default: local."
)
@address_option
@click.option(
    "--env",
    "env_names",
    multiple=True,
    metavar="NAME",
    help="With --executor ray, pass this environment variable to the graders. May be repeated. "
    "By default, only those that a judge's agent needs are passed.",
)
@progress_option
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Grade the rows that capture, trials or extract wrote to FILE (default: stdin).

    Rows are written in the order they were read; the pass rates of trials are computed again.
    Grades of earlier graders are kept in earlierGrades. A grader (-g) is a file or a name:

    \b
      ./grader.py            a Python file with a function `grade`, or any program
      ./grader.ts            a TypeScript or JavaScript module that exports `grade`
      serve:./grader.py      a program that is started once and answers line by line
      contains:Paris         a built-in grader: exact, contains, regex, numeric, json-schema,
      command:'pytest -q'    command, git, file, tools, skill or judge (see docs/graders.md)

    Rows whose prompts have `graders` or `expect` are graded by these as well, and need no -g.
    """
    options = _Options(**given)
    mode = output_mode(
        options.output, resume=options.resume, append=options.append, overwrite=options.overwrite
    )
    refuse_inputs(options.output, options.rows, options.prompts, *options.graders)
    if not options.quiet:
        note_unmasked()
    _limit_questions(options)
    tally = _grade(options, mode)
    if options.rows is None and not tally.n_rows + tally.n_before:
        msg = "stdin: no rows"
        raise InputError(msg, hint="assay grade reads the output of capture, trials and extract")
    for line in tally.doubts.lines():
        click.echo(line, err=True)
    if not options.quiet:
        click.echo(tally.summary(str(options.output or "")), err=True)
        if options.output is not None and (result := tally.result(options.output)):
            click.echo(result, err=True)
    if tally.n_broken:
        what = counted_noun(tally.n_broken, "trial" if tally.has_trials else "row")
        first = "" if tally.doubts.names_failure else f". The first: {tally.first_broken}"
        click.echo(
            f"{what} {'was' if tally.n_broken == 1 else 'were'} not graded because a grader failed "
            f"(see graderFailures in the rows){first}",
            err=True,
        )
        raise click.exceptions.Exit(1)


def _limit_questions(options: _Options) -> None:
    """Let judges keep to the rate, and say when they wait for a provider."""

    def waiting(seconds: float, why: str) -> None:
        click.echo(f"waiting {seconds:.0f} s {why}", err=True)

    limiter = AskingHost.limiter
    limiter.interval_s = 1 / options.rate_per_s if options.rate_per_s else 0.0
    limiter.on_wait = None if options.quiet else waiting


def _grade(options: _Options, mode: Mode) -> "_Tally":
    graders = grader_refs(options.graders, options.grader_timeout)
    own = RowGraders(options.grader_timeout)
    if options.prompts is not None:
        path = {} if options.prompts == DASH else {"path": str(options.prompts)}
        source = PluginRef(name="prompts", options=path)
        own.take(source, (prompt for prompt, _ in read_prompts(source)))
    tally = _Tally()
    lines = matching_rows(read_lines(options.rows), options.filters)
    if options.filters:
        lines = _some(lines, options)
    if not graders:
        lines = _judged(lines, own, options)
    elsewhere = _elsewhere(options, [*graders, *own.to_prepare])
    with open_sink(options.output, mode, guarded=False, write=write_row) as sink:
        if mode == "resume" and options.output is not None:
            tally.n_before = _skip_graded(lines, options.output)
        if _takes_all_cores(options, mode, graders):
            _grade_parts(options, graders, own, sink, tally)
            return tally
        with _Batch(sink) as batch:
            waits = rows_wait(options.rows)
            for row in grade_all(lines, graders, options.concurrency, waits, own, elsewhere):
                # From a pipe that is slower than the graders, each row is written at once; from
                # other machines too, where the next one may take long.
                is_slow = elsewhere is not None or (waits is not None and not waits())
                batch.add(row.line, at_once=is_slow)
                tally.add(row)
                for shown in _shown(row) if options.progress else ():
                    click.echo(shown, err=True)
    return tally


def _takes_all_cores(options: _Options, mode: Mode, graders: list[PluginRef]) -> bool:
    """Whether all rows of a file are graded, and by graders that only compute."""
    is_whole = options.rows is not None and options.rows.is_file() and mode != "resume"
    is_plain = not options.filters and options.prompts is None and options.executor == "local"
    if not is_whole or not is_plain or options.concurrency > 1:
        return False
    return bool(graders) and only_computes(graders)


def _grade_parts(
    options: _Options, graders: list[PluginRef], own: RowGraders, sink: Sink, tally: "_Tally"
) -> None:
    """Grade a file with all cores; each process counts its rows itself."""
    assert options.rows is not None

    def note(rows: Iterable[GradedRow]) -> tuple[_Tally, list[str]]:
        here, shown = _Tally(), list[str]()
        for row in rows:
            here.add(row)
            shown += _shown(row) if options.progress else ()
        return here, shown

    for part in grade_computing(options.rows, graders, own, note):
        if part.text:
            sink.append(part.text)
        here, shown = part.noted
        tally.merge(here)
        for line in shown:
            click.echo(line, err=True)
        if part.error is not None:
            raise part.error


def _elsewhere(options: _Options, graders: list[PluginRef]) -> Elsewhere | None:
    """Join the cluster on which the graders are to run, if there is one."""
    ref = executor_ref(options.executor, options.address)
    if ref.name == "local":
        if options.env_names:
            msg = "--env needs --executor ray: on this machine, graders have all variables."
            raise click.UsageError(msg)
        return None
    from assay.pipeline.remote_grading import RemoteGraders  # late: few runs need it

    remote = RemoteGraders(graders, options.env_names)
    remote.join(plugins.executor(ref).connect())
    return remote.asking


def _some(lines: Iterator[tuple[Place, bytes]], options: _Options) -> Iterator[tuple[Place, bytes]]:
    """Return the rows that match; refuse none before anything is written."""
    first = next(lines, None)
    if first is None:
        msg = f"{options.rows or 'stdin'}: no rows that match the filter"
        raise InputError(msg)
    return chain([first], lines)


def _judged(
    lines: Iterator[tuple[Place, bytes]], own: RowGraders, options: _Options
) -> Iterator[tuple[Place, bytes]]:
    """Return the rows; refuse them, before anything is written, if none brings a grader along."""
    is_file = options.rows is not None and options.rows.is_file()
    read: list[tuple[Place, bytes]] = []
    for row in lines:
        if not is_file:  # what comes from a pipe cannot be read again
            read.append(row)
        if own.of(*row):
            if is_file:
                return matching_rows(read_lines(options.rows), options.filters)
            return chain(read, lines)
    msg = "No grader given. Use -g GRADER."
    raise click.UsageError(msg)


class _Batch:
    """Writes rows together while they come fast, but holds none back longer than a moment."""

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
    def __init__(self) -> None:
        self.n_rows = self.n_before = self.n_passed = self.n_graded = self.n_broken = 0
        self.n_ungraded = 0
        self.first_broken = ""
        self.has_trials = False
        self._passes, self._measured = array("I"), array("I")
        """Of each row: how many trials passed, and how many were measured."""
        self.doubts = Doubts()

    def add(self, row: GradedRow) -> None:
        self.has_trials |= row.trials is not None
        self.n_ungraded += not row.is_graded
        n_passed = n_measured = 0
        for number, verdict in enumerate(row.verdicts, 1):
            score, broken = verdict.score, verdict.broken
            if verdict.grades or broken:
                self.doubts.add(verdict.grades, broken)
            self.n_rows += 1
            if score is not None:
                n_measured += 1
                n_passed += score.pass_
            elif broken:
                self.n_broken += 1
                self.first_broken = self.first_broken or f"{_name(row, number)}: {_first(broken)}"
        self.n_graded += n_measured
        self.n_passed += n_passed
        self._measured.append(n_measured)
        self._passes.append(n_passed)

    def merge(self, other: "_Tally") -> None:
        """Add what was counted of the rows after these."""
        self.n_rows += other.n_rows
        self.n_passed += other.n_passed
        self.n_graded += other.n_graded
        self.n_broken += other.n_broken
        self.n_ungraded += other.n_ungraded
        self.first_broken = self.first_broken or other.first_broken
        self.has_trials |= other.has_trials
        self._passes += other._passes
        self._measured += other._measured
        self.doubts.merge(other.doubts)

    def result(self, output: Path) -> str:
        """The pass rate with its interval, and what to do next."""
        if not self.n_graded or self.n_before:
            return ""
        from assay.stats.rates import rate_interval  # late: numpy

        rate, ends = rate_interval(self._passes, self._measured)
        words = "" if ends is None else f" (95% interval {ends.low:.0%} to {ends.high:.0%})"
        name = visible_line(shlex.quote(str(output)))
        following = f" Next: assay view {name}" if output.is_file() else ""
        return f"Pass rate {rate:.0%}{words}.{following}"

    def summary(self, target: str) -> str:
        what = "trials " if self.has_trials else ""
        parts = [f"{self.n_passed} of {self.n_graded} {what}passed"]
        unmeasured = self.n_rows - self.n_graded - self.n_broken - self.n_ungraded
        parts += [f"{self.n_before} were already graded"] if self.n_before else []
        parts += [f"{self.n_ungraded} without a grader"] if self.n_ungraded else []
        parts += [f"{unmeasured} do not measure the agent"] if unmeasured else []
        parts += [counted_noun(self.n_broken, "grader failure")] if self.n_broken else []
        return ", ".join(parts) + (f" -> {target}" if target else "")


def _shown(row: GradedRow) -> Iterator[str]:
    for number, verdict in enumerate(row.verdicts, 1):
        name, score, broken = _name(row, number), verdict.score, verdict.broken
        if score is not None:
            yield f"{'✓' if score.pass_ else '✗'} {name}: {score.score:g}"
        else:
            why = "not a measurement of the agent" if row.is_graded else "no grader"
            yield f"! {name}: {_first(broken) if broken else why}"


def _name(row: GradedRow, number: int) -> str:
    """What a trial of a row is called."""
    name = visible_line(str(row.id))
    return name if row.trials is None else f"{name}, trial {number}"


def _first(broken: dict[str, str]) -> str:
    """How a grader failed, in one line; the last line of a traceback often says most."""
    name, why = next(iter(broken.items()))
    lines = why.splitlines() or [""]
    return f"{name}: {lines[0]}" + (f" … {lines[-1].strip()}" if len(lines) > 1 else "")


def _skip_graded(lines: Iterator[tuple[Place, bytes]], output: Path) -> int:
    """Skip the rows that the output has; refuse an output that was made from others."""
    n_rows = 0
    for n_rows, (place, done) in enumerate(read_lines(output), 1):  # noqa: B007
        here = next(lines, None)
        if here is None or _id(*here) != _id(place, done):
            msg = f"{place}: this is not the row at the same position of the input"
            raise InputError(msg, hint="resume with the same input, or use --overwrite")
    return n_rows


def _id(place: Place, line: bytes) -> Any:
    return decode_line(_ID, place, line).id
