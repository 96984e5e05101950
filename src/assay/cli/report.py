"""assay report: everything about some runs in one HTML file, or in short for CI."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from assay.cli.help import EDITOR, examples, variables
from assay.cli.output import (
    derived_output,
    echo_folded,
    refuse_inputs,
    refuse_measured,
    refuse_same_file,
)
from assay.cli.parameters import (
    DASH,
    OutFile,
    calibration_option,
    category_option,
    debug_option,
    doubtful_option,
    help_option,
    labelled_option,
    margin_option,
    quiet_option,
    replace_option,
    seed_option,
)
from assay.cli.runs import name_runs, pipes_as_files
from assay.cli.strategy import VARIABLES, chosen_strategy, judge_option, strategy_option
from assay.compare.decided import kept_for
from assay.compare.ledger import arm_verdict
from assay.compare.names import Named
from assay.compare.report import CompareOptions
from assay.errors import InputError
from assay.export.junit import write_junit
from assay.records.rows import read_lines, refuse_other_bytes
from assay.report.pull_request import MOST_REGRESSIONS, pull_request_markdown
from assay.viewer.bundle import lines, write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview
from assay.viewer.regressions import worst_regressions

_ADDRESS = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w./~%+,=@-]*)?", re.ASCII)

_STYLES = {".md": "markdown", ".markdown": "markdown", ".xml": "junit"}


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[str, ...]
    labelled: tuple[str, ...]
    output: Path | None
    style: str | None
    title: str | None
    link: str | None
    category_key: str
    strategy: str
    judge: Path | None
    grader: str | None
    margin: float
    seed: int
    doubtful: Literal["fail", "keep", "show"] | None
    sequential: bool
    overwrite: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Report on runs as one HTML file, Markdown or JUnit.",
    epilog=variables(*VARIABLES, *EDITOR)
    + examples(
        "assay report before.jsonl after.jsonl -o report.html",
        "assay report results.jsonl --format markdown",
        "assay report results.jsonl -o junit.xml",
    ),
)
@click.argument("files", nargs=-1)
@labelled_option
@click.option(
    "-o",
    "--output",
    type=OutFile(stdout=DASH),
    metavar="FILE",
    help="Write to this file; - is stdout. Default: report.html, or stdout for markdown and junit.",
)
@click.option(
    "-f",
    "--format",
    "style",
    type=click.Choice(["html", "markdown", "junit"]),
    help="Output format. Default: by the extension of the output file, otherwise html.",
)
@click.option(
    "--title", metavar="TEXT", help="Title of the report. Default: the labels of the runs."
)
@click.option(
    "--link",
    metavar="URL",
    callback=lambda _ctx, _option, url: _report_address(url),
    help="Address of the HTML report; the prompts in the Markdown link to it. Default: none.",
)
@category_option
@strategy_option
@judge_option
@calibration_option
@margin_option
@seed_option
@doubtful_option
@click.option(
    "--sequential",
    is_flag=True,
    help="Report what the gate of assay trials --until decided says with this --margin, in place "
    "of a verdict for complete runs: prompts that a run lacks count as still to come. Default: "
    "runs are complete.",
)
@replace_option
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Report on result files of `assay capture`, `trials` or `arc run`: FILE or LABEL:FILE.

    Several runs are compared, with the first as the baseline.
    """
    options = _Options(**given)
    if options.sequential and options.margin == 0.0:
        msg = "--sequential needs a --margin above 0."
        raise click.UsageError(msg)
    strategy = chosen_strategy(options.strategy, options.grader)
    named = name_runs(options.files, options.labelled, raw=True)
    suffix = options.output.suffix if options.output is not None else ""
    style = options.style or _STYLES.get(suffix, "html")
    output = options.output
    if style == "html" and output is None:
        output = Path("report.html")
    with pipes_as_files(named) as files:
        _check_files(files, options.output)
        refuse_inputs(options.output, options.grader)
        refuse_measured(output, overwrite=options.overwrite)
        with (
            derived_output(output, overwrite=options.overwrite) as out,
            _opened(files, options) as shown,
        ):
            chosen = CompareOptions(
                **strategy.options,
                margin=options.margin,
                seed=options.seed,
                growing=options.sequential,
                calibration=options.judge,
                doubtful=options.doubtful,
            )
            title = options.title or " · ".join(run.label for run in shown)
            if style == "html":
                write_bundle(out, overview(title, shown, chosen), shown)
            elif style == "markdown":
                page = overview(title, shown, chosen)
                worst = worst_regressions(page, shown, MOST_REGRESSIONS)
                out.write(pull_request_markdown(page, worst, options.title, options.link).encode())
            else:
                write_junit(
                    out,
                    (
                        (run.label, lines(run.index), kept_for(run.path) or arm_verdict(run.path))
                        for run in shown
                    ),
                )
    if output is not None and output != DASH and not options.quiet:
        echo_folded(f"{output} ({output.stat().st_size / 1e6:.2f} MB)", err=True)


def _report_address(url: str | None) -> str | None:
    """Refuse what could be anything but the address of a page in a Markdown link."""
    if url is not None and not _ADDRESS.fullmatch(url):
        msg = f"--link {url!r} is not the address of a report, such as https://example.org/r.html"
        raise click.UsageError(msg)
    return url


def _check_files(named: Named, output: Path | None) -> None:
    if not named:
        msg = "No runs given. Name one or more result files."
        raise click.UsageError(msg)
    for _, path in named:
        if not os.access(path, os.F_OK) or not path.is_file():
            folder = os.access(path, os.F_OK) and path.is_dir()
            msg = f"{path}: {'is a folder' if folder else 'no such file'}"
            raise InputError(
                msg, hint="give result files; `assay view FOLDER` lists the runs in a folder"
            )
        refuse_same_file(path, output)


@contextmanager
def _opened(named: Named, options: _Options) -> Iterator[list[OpenRun]]:
    shown = []
    try:
        for label, path in named:
            shown.append(OpenRun(label, Index(path, options.category_key, keep=False)))
            shown[-1].index.refresh()
            _check(path, shown[-1].index)
        yield shown
    finally:
        for run in shown:
            run.index.close()


def _check(path: Path, index: Index) -> None:
    """Refuse a file without a single valid row; name the lines that are left out."""
    meta = index.meta
    if not meta.n_trials:
        for place, line in islice(read_lines(path), 1):
            refuse_other_bytes(place, line)
        what = "neither captures nor trials" if meta.n_bad else "no rows"
        msg = f"{path}: {what}"
        raise InputError(
            msg, hint="assay report reads the output of capture, grade, trials or arc run"
        )
    if meta.n_bad:
        lines = ", ".join(map(str, meta.bad))
        echo_folded(f"note: {path}: {meta.n_bad} lines cannot be read: line {lines}", err=True)
