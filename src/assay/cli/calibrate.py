"""assay calibrate: check a grader by a sample of failures, or against human labels."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import grader_options, grader_refs, with_options
from assay.cli.output import (
    derived_output,
    echo_folded,
    refuse_empty_stdin,
    refuse_existing,
    refuse_inputs,
    whole_output,
)
from assay.cli.parameters import (
    DASH,
    InFile,
    OutFile,
    concurrency_option,
    debug_option,
    help_option,
    input_argument,
    output_option,
    overwrite_option,
    quiet_option,
)
from assay.compare.sampling import (
    FAILURES_DRAWN,
    SHEET_ROWS,
    RowSample,
    draw_failures,
    draw_sheet,
    read_samples,
    rescored,
    sheet_lines,
)
from assay.errors import InputError
from assay.pipeline.doubts import first_failure
from assay.pipeline.grade import grade_all
from assay.records.reports import LabelReport, SampleReport
from assay.records.rows import Place, RowFile, open_rows
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line
from assay.records.trial import Verdict
from assay.records.trial.files import open_trials
from assay.report.calibration import label_markdown, sample_markdown


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    results: Path | None
    output: Path | None
    sample: int | None
    seed: int
    graders: tuple[str, ...]
    grader_timeout: float
    labels: Path | None
    save: Path | None
    export: Path | None
    key: str
    concurrency: int
    as_json: bool
    overwrite: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Check a grader: sample failures, compare it with human labels.",
    epilog=examples(
        "assay calibrate results.jsonl --sample 5 -o failures.md",
        "assay calibrate results.jsonl --export sheet.jsonl",
        "assay calibrate results.jsonl --labels labels.jsonl",
    ),
)
@input_argument("results")
@output_option
@click.option(
    "-s",
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Draw N rows at random. Default: {FAILURES_DRAWN}, or {SHEET_ROWS} with --export.",
)
@click.option(
    "--seed", type=int, default=0, metavar="N", help="Random seed for drawing rows. Default: 0."
)
@with_options(grader_options)
@click.option(
    "--save",
    type=OutFile(),
    metavar="FILE",
    help="Keep the errors of the grader in this file, with --labels, for assay ab, compare, trials "
    "and report (--judge FILE), which correct for them. Default: keep nothing.",
)
@click.option(
    "--labels",
    type=InFile(stdin=DASH),
    metavar="FILE",
    help="Compare the grader with the human labels in this sheet.",
)
@click.option(
    "--export",
    type=OutFile(stdout=DASH),
    metavar="FILE",
    help="Write a sheet for people to label, without the grader's verdicts.",
)
@click.option(
    "--key",
    default="category",
    metavar="KEY",
    help="Metadata key by which --export stratifies its sample. Default: category.",
)
@concurrency_option("Grade up to N rows at once. Default: 1.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write the report as JSON instead of Markdown."
)
@overwrite_option
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Check the grader that graded the file RESULTS (default: stdin), or another one (-g).

    RESULTS is what capture, grade or trials wrote.

    Without --export and --labels it writes a random sample of failures to read; with -g each is
    graded again. --export writes a sheet in which people fill in "label"; --labels reads that
    sheet and reports how well the grader agrees with them.
    """
    options = _Options(**given)
    if options.save is not None and options.labels is None:
        msg = "--save needs --labels: what is kept is how the grader differs from people."
        raise click.UsageError(msg)
    if options.labels and options.export:
        msg = "--labels and --export cannot be used together: export, label, then compare."
        raise click.UsageError(msg)
    for target in (options.output, options.export):
        refuse_inputs(target, options.results, options.labels, *options.graders)
    # People fill in the sheet, and graders may cost money: refused before anything is asked.
    refuse_existing(options.export, overwrite=options.overwrite)
    if options.graders:
        refuse_existing(options.output, overwrite=options.overwrite)
    with open_trials(options.results) as rows:
        refuse_empty_stdin(rows, options.results, "calibrate reads what `assay grade` wrote")
        if options.export:
            _export(rows, options)
        elif options.labels:
            _compare(rows, options)
        else:
            _sample(rows, options)


def _sample(rows: RowFile, options: _Options) -> None:
    graders = grader_refs(options.graders, options.grader_timeout)
    size = FAILURES_DRAWN if options.sample is None else options.sample
    drawn = draw_failures(rows, size, options.seed)
    if drawn.n_undecided:
        _note(
            options,
            f"Left out: {counted_noun(drawn.n_undecided, 'trial')} that failed before grading",
        )
    _refuse_ungraded(rows, drawn)
    if drawn.n_ungraded:
        _note(options, f"Left out: {counted_noun(drawn.n_ungraded, 'row')} without a grade")
    if not drawn.n_rows:
        echo_folded("No failures found in results", err=True)
        return
    samples = read_samples(rows, drawn.spots)
    if graders:
        lines = [(rows.place(at), rows.line_at(at)) for at in drawn.spots]
        verdicts = _verdicts(graders, options.concurrency, lines)
        samples = [rescored(*pair) for pair in zip(samples, verdicts, strict=True)]
    report = SampleReport(
        seed=options.seed,
        failures=drawn.n_rows,
        undecided=drawn.n_undecided,
        samples=samples,
    )
    _write(report, sample_markdown, options)
    _note(
        options, f"{len(samples)} of {counted_noun(drawn.n_rows, 'failure')}, seed {options.seed}"
    )
    broken = {one.id: one.grader_failure for one in samples if one.grader_failure}
    if broken:
        were = f"{counted_noun(len(broken), 'sample')} {'was' if len(broken) == 1 else 'were'}"
        first = visible_line(first_failure(broken))
        echo_folded(
            f"{were} not graded again because the grader failed. The first: {first}", err=True
        )
        raise click.exceptions.Exit(1)


def _verdicts(
    graders: Sequence[PluginRef], workers: int, lines: Sequence[tuple[Place, bytes]]
) -> Iterator[Verdict]:
    return (row.verdict for row in grade_all(lines, graders, workers))


def _refuse_ungraded(rows: RowFile, drawn: RowSample) -> None:
    what = "trials" if rows.has_trials else "rows"
    if not drawn.n_graded and drawn.n_ungraded:
        msg = f"{rows.name}: none of the {drawn.n_ungraded} {what} is graded"
        raise InputError(msg, hint=f"grade them first: assay grade {rows.name} -g GRADER -o FILE")
    if not drawn.n_graded and drawn.n_unmeasured:
        msg = f"{rows.name}: none of the {drawn.n_unmeasured} {what} measures the agent"
        raise InputError(msg, hint="run them again: --resume of the command that wrote the file")


def _export(rows: RowFile, options: _Options) -> None:
    if options.graders:
        msg = "--export uses the verdicts in the results and takes no -g; run assay grade -g first."
        raise click.UsageError(msg)
    size = SHEET_ROWS if options.sample is None else options.sample
    drawn = draw_sheet(rows, size, options.seed, options.key)
    if not drawn.n_rows:
        msg = f"{rows.name}: no graded rows"
        raise InputError(msg, hint="grade them first with: assay grade -g GRADER")
    lines = sheet_lines(rows, drawn.spots)
    with whole_output(options.export, overwrite=options.overwrite) as out:
        out.write(msgspec.json.Encoder().encode_lines(lines))
    _note(
        options,
        f"{len(lines)} of {drawn.n_rows} graded rows in {drawn.n_strata} strata, "
        f"seed {options.seed} -> {options.export}\n"
        'Fill in "label" with "pass", "fail" or "ambiguous", '
        f"then run: assay calibrate {rows.name} --labels {options.export}",
    )


def _compare(rows: RowFile, options: _Options) -> None:
    from assay.compare.labels import compare_with_labels  # needs numpy, the others do not

    with open_rows(None if options.labels == DASH else options.labels) as sheet:
        graders = grader_refs(options.graders, options.grader_timeout)
        grade_again = partial(_verdicts, graders, options.concurrency) if graders else None
        report = compare_with_labels(rows, sheet, grade_again, options.save)
    _write(report, label_markdown, options)
    for warning in report.warnings:
        _note(options, f"note: {warning}")
    if report.grader_failures:
        first = visible_line(first_failure(report.grader_failures))
        rows_were = counted_noun(len(report.grader_failures), "labelled row")
        verb = "was" if len(report.grader_failures) == 1 else "were"
        echo_folded(
            f"{rows_were} {verb} not compared because the grader failed. The first: {first}",
            err=True,
        )
        raise click.exceptions.Exit(1)


def _write[R: SampleReport | LabelReport](
    report: R, to_markdown: Callable[[R, str], str], options: _Options
) -> None:
    if options.as_json:
        text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    else:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = to_markdown(report, now).encode()
    with derived_output(options.output, overwrite=options.overwrite) as out:
        out.write(text)


def _note(options: _Options, text: str) -> None:
    if not options.quiet:
        echo_folded(text, err=True)
