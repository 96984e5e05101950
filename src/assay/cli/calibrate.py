"""assay calibrate: is the grader right? Failures to look at, sheets to label, labels to compare."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.options import grader_options, grader_refs, with_options
from assay.cli.output import refuse_same_file, whole_output
from assay.errors import InputError
from assay.pipeline.sampling import (
    FAILURES_DRAWN,
    SHEET_ROWS,
    draw_failures,
    draw_sheet,
    read_samples,
    rescored,
    sheet_lines,
)
from assay.pipeline.stages import grade_all
from assay.records.reports import LabelReport, SampleReport
from assay.records.rows import RowFile, open_rows
from assay.report.calibration import label_markdown, sample_markdown


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    results: Path
    output: Path | None
    sample: int | None
    seed: int
    graders: tuple[str, ...]
    grader_timeout: float
    labels: Path | None
    export: Path | None
    key: str
    concurrency: int
    as_json: bool
    overwrite: bool
    quiet: bool
    debug: bool


@click.command(short_help="Check a grader: sample its failures, compare it with human labels.")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; stdout if none.")
@click.option(
    "-s",
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Rows to draw; default {FAILURES_DRAWN}, for a sheet {SHEET_ROWS}.",
)
@click.option("--seed", type=int, default=0, help="For the draw; default 0.")
@with_options(grader_options)
@click.option("--labels", type=click.Path(path_type=Path), help="Compare with these human labels.")
@click.option("--export", type=click.Path(path_type=Path), help="Write a blind labelling sheet.")
@click.option("--key", default="category", help="Metadata key a sheet is stratified by.")
@click.option("-j", "--concurrency", type=click.IntRange(min=1), default=1, help="Rows at once.")
@click.option("--json", "as_json", is_flag=True, help="Give the report as JSON.")
@click.option("--overwrite", is_flag=True, help="Throw an existing output away.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.help_option("-h", "--help")
def command(**given: Any) -> None:
    """Check the grader that graded RESULTS, or another one (-g).

    \b
      assay calibrate results.jsonl                     failures to look at
      assay calibrate results.jsonl -g other.py         the same, with a second opinion
      assay calibrate results.jsonl --export s.jsonl    blind sheet: fill in "label"
      assay calibrate results.jsonl --labels s.jsonl    grader against people
    """
    options = _Options(**given)
    if options.labels and options.export:
        msg = "--labels and --export exclude each other: first export, then label, then compare"
        raise click.UsageError(msg)
    for target in (options.output, options.export):
        refuse_same_file(options.results, target)
        refuse_same_file(options.labels, target)
    with open_rows(options.results) as rows:
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
        _say(options, f"{drawn.n_undecided} trials failed before a grader was asked: left out")
    if not drawn.n_rows:
        click.echo("No failures found in results", err=True)
        return
    samples = read_samples(rows, drawn.spots)
    if graders:
        lines = [(rows.place(at), rows.line_at(at)) for at in drawn.spots]
        graded = grade_all(lines, graders, options.concurrency)
        samples = [
            rescored(*pair) for pair in zip(samples, (g.verdict for g in graded), strict=True)
        ]
    report = SampleReport(
        seed=options.seed,
        failures=drawn.n_rows,
        undecided=drawn.n_undecided,
        samples=samples,
    )
    _write(report, sample_markdown, options)
    _say(options, f"{len(samples)} of {drawn.n_rows} failures, seed {options.seed}")
    n_broken = sum(bool(sample.grader_failure) for sample in samples)
    if n_broken:
        click.echo(f"{n_broken} samples are not re-scored: the grader failed", err=True)
        raise click.exceptions.Exit(1)


def _export(rows: RowFile, options: _Options) -> None:
    if options.graders:
        msg = "--export draws from the verdicts in the results; grade them first: assay grade -g"
        raise click.UsageError(msg)
    size = SHEET_ROWS if options.sample is None else options.sample
    drawn = draw_sheet(rows, size, options.seed, options.key)
    if not drawn.n_rows:
        msg = f"{rows.name}: no graded rows"
        raise InputError(msg, hint="grade them first: assay grade -g GRADER")
    lines = sheet_lines(rows, drawn.spots)
    with whole_output(options.export, overwrite=options.overwrite) as out:
        out.write(msgspec.json.Encoder().encode_lines(lines))
    _say(
        options,
        f"{len(lines)} of {drawn.n_rows} graded rows in {drawn.n_strata} strata, "
        f"seed {options.seed} -> {options.export}\n"
        'fill in "label": "pass", "fail" or "ambiguous"; '
        f"then: assay calibrate {rows.name} --labels {options.export}",
    )


def _compare(rows: RowFile, options: _Options) -> None:
    from assay.pipeline.labels import compare_with_labels  # needs numpy, the others do not

    with open_rows(options.labels) as sheet:
        graders = grader_refs(options.graders, options.grader_timeout)
        report = compare_with_labels(rows, sheet, graders, options.concurrency)
    _write(report, label_markdown, options)
    for warning in report.warnings:
        _say(options, f"note: {warning}")
    if report.grader_failures:
        n_broken = len(report.grader_failures)
        click.echo(f"{n_broken} labelled rows are not compared: the grader failed", err=True)
        raise click.exceptions.Exit(1)


def _write[R: SampleReport | LabelReport](
    report: R, to_markdown: Callable[[R, str], str], options: _Options
) -> None:
    if options.as_json:
        text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    else:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = to_markdown(report, now).encode()
    with whole_output(options.output, overwrite=options.overwrite) as out:
        out.write(text)


def _say(options: _Options, text: str) -> None:
    if not options.quiet:
        click.echo(text, err=True)
