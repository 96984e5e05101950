"""assay grade: rows in, the same rows with a verdict out."""

import shlex
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.batch import usage_errors
from assay.cli.help import examples
from assay.cli.options import (
    address_option,
    executor_option,
    executor_ref,
    grader_options,
    grader_refs,
    judge_tape_options,
    output_mode,
    tape_use,
    with_options,
)
from assay.cli.output import closing_lines, echo_folded, note_unmasked, refuse_inputs, write_row
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
    longest_wait_option,
    output_option,
    overwrite_option,
    progress_option,
    quiet_option,
)
from assay.errors import InputError
from assay.pipeline.doubts import Doubts, first_failure
from assay.pipeline.grade import GradeProgress, GradeRequest, execute, plan
from assay.pipeline.grading import GradedRow
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line
from assay.report.sentence import run_sentence


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
    longest_wait: float
    executor: str
    address: str | None
    env_names: tuple[str, ...]
    record: Path | None
    replay: Path | None
    record_misses: bool
    pace: float
    progress: bool
    quiet: bool
    debug: bool

    @property
    def request(self) -> GradeRequest:
        """What is asked for; graders and prompts are found."""
        path = {} if self.prompts == DASH else {"path": str(self.prompts)}
        return GradeRequest(
            rows=self.rows,
            filters=self.filters,
            graders=grader_refs(self.graders, self.grader_timeout),
            grader_timeout_s=self.grader_timeout,
            prompts=PluginRef(name="prompts", options=path) if self.prompts else None,
            jobs=self.concurrency,
            rate_per_s=self.rate_per_s,
            longest_wait_s=self.longest_wait,
            executor=executor_ref(self.executor, self.address),
            env_names=self.env_names,
            tape=tape_use(msgspec.structs.asdict(self)),
            output=self.output,
            mode=output_mode(self.output, self.resume, self.append, self.overwrite),
        )


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
@longest_wait_option
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
@with_options(judge_tape_options)
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
    refuse_inputs(options.output, options.rows, options.prompts, *options.graders)
    request = options.request
    if not options.quiet:
        note_unmasked()
    with usage_errors():
        grading = plan(request)
    tally = _Tally()
    count = partial(_counted, shows=options.progress)
    progress = _Progress(quiet=options.quiet)
    with closing(execute(grading, count, progress, write_row)) as parts:
        for part, shown in parts:
            tally.merge(part)
            for line in shown:
                echo_folded(line, err=True)
    tally.n_before = progress.n_before
    if options.rows is None and not tally.n_rows + tally.n_before:
        msg = "stdin: no rows"
        raise InputError(msg, hint="assay grade reads the output of capture, trials and extract")
    for line in tally.doubts.lines():
        echo_folded(line, err=True)
    if not options.quiet:
        echo_folded(tally.summary(str(options.output or "")), err=True)
        if options.output is not None and (result := tally.result(options.output)):
            echo_folded(result, err=True)
    if tally.n_broken:
        what = counted_noun(tally.n_broken, "trial" if tally.has_trials else "row")
        first = "" if tally.doubts.names_failure else f". The first: {tally.first_broken}"
        echo_folded(
            f"{what} {'was' if tally.n_broken == 1 else 'were'} not graded because a grader failed "
            f"(see graderFailures in the rows){first}",
            err=True,
        )
        raise click.exceptions.Exit(1)


class _Progress(GradeProgress):
    """Says when judges wait for a provider."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.n_before = 0

    def resumed(self, n_rows: int) -> None:
        self.n_before = n_rows

    def waiting(self, seconds: float, why: str) -> None:
        if not self._quiet:
            echo_folded(f"waiting {seconds:.0f} s {why}", err=True)


def _counted(rows: Iterable[GradedRow], *, shows: bool) -> "tuple[_Tally, list[str]]":
    """Count some rows; also return what --progress prints of them."""
    tally, shown = _Tally(), list[str]()
    for row in rows:
        tally.add(row)
        shown += _shown(row) if shows else ()
    return tally, shown


class _Tally:
    def __init__(self) -> None:
        self.n_rows = self.n_before = self.n_passed = self.n_graded = self.n_broken = 0
        self.n_ungraded = 0
        self.first_broken = ""
        self.has_trials = False
        self.spent_usd = 0.0
        self._passes, self._measured = array("I"), array("I")
        """Of each row: how many trials passed, and how many were measured."""
        self.doubts = Doubts()

    def add(self, row: GradedRow) -> None:
        self.has_trials |= row.trials is not None
        self.n_ungraded += not row.is_graded
        n_passed = n_measured = 0
        for number, verdict in enumerate(row.verdicts, 1):
            score, broken = verdict.score, verdict.broken
            self.spent_usd += verdict.spent_usd
            if verdict.grades or broken:
                self.doubts.add(verdict.grades, broken)
            self.n_rows += 1
            if score is not None:
                n_measured += 1
                n_passed += score.pass_
            elif broken:
                self.n_broken += 1
                self.first_broken = (
                    self.first_broken or f"{_name(row, number)}: {first_failure(broken)}"
                )
        self.n_graded += n_measured
        self.n_passed += n_passed
        self._measured.append(n_measured)
        self._passes.append(n_passed)

    def merge(self, other: "_Tally") -> None:
        """Add what was counted of the rows after these."""
        self.n_rows += other.n_rows
        self.spent_usd += other.spent_usd
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
        lines = [run_sentence(self._passes, self._measured)]
        if output.is_file():
            name, page = (
                visible_line(shlex.quote(str(path)))
                for path in (output, output.with_suffix(".html"))
            )
            failed = sum(self._passes) < sum(self._measured)
            report, then = f"assay report {name} -o {page}", f"assay view {name}"
            lines += closing_lines([output], failed=failed, report=report, then=then)
        return "\n".join(lines)

    def summary(self, target: str) -> str:
        what = "trials " if self.has_trials else ""
        parts = [f"{self.n_passed} of {self.n_graded} {what}passed"]
        unmeasured = self.n_rows - self.n_graded - self.n_broken - self.n_ungraded
        parts += [f"{self.n_before} were already graded"] if self.n_before else []
        parts += [f"{self.n_ungraded} without a grader"] if self.n_ungraded else []
        parts += [f"{unmeasured} do not measure the agent"] if unmeasured else []
        parts += [counted_noun(self.n_broken, "grader failure")] if self.n_broken else []
        parts += [f"${self.spent_usd:.4f} for judges"] if self.spent_usd else []
        return ", ".join(parts) + (f" -> {target}" if target else "")


def _shown(row: GradedRow) -> Iterator[str]:
    for number, verdict in enumerate(row.verdicts, 1):
        name, score, broken = _name(row, number), verdict.score, verdict.broken
        if score is not None:
            yield f"{'✓' if score.pass_ else '✗'} {name}: {score.score:g}"
        else:
            why = "not a measurement of the agent" if row.is_graded else "no grader"
            yield f"! {name}: {first_failure(broken) if broken else why}"


def _name(row: GradedRow, number: int) -> str:
    """What a trial of a row is called."""
    name = visible_line(str(row.id))
    return name if row.trials is None else f"{name}, trial {number}"
