"""assay compare: is one run better than another, and how sure is that?"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

import click
import msgspec

from assay.cli.help import COLOUR, examples, variables
from assay.cli.output import (
    derived_output,
    echo_folded,
    open_stdout,
    refuse_inputs,
    refuse_measured,
)
from assay.cli.parameters import (
    allow_replayed_option,
    calibration_option,
    category_option,
    debug_option,
    doubtful_option,
    fractions_option,
    help_option,
    labelled_option,
    margin_option,
    output_option,
    progress_option,
    replace_option,
    seed_option,
)
from assay.cli.runs import name_runs, pipes_as_files, with_arms
from assay.cli.strategy import (
    VARIABLES,
    Strategy,
    chosen_strategy,
    judge_option,
    strategy_option,
)
from assay.cli.tables import draw_table, terminal
from assay.compare.names import Named
from assay.errors import InputError
from assay.records.text import visible_line
from assay.report.comparison import (
    advice_lines,
    flip_lines,
    gate_lines,
    headlines,
    health_lines,
    markdown,
    outcome_words,
    tables,
    write_json,
)
from assay.report.page import markdown_page
from assay.report.sentence import word_verdicts

if TYPE_CHECKING:
    from assay.compare.pairs import Pair
    from assay.compare.report import Comparison
    from assay.records.trial.files import Kind
    from assay.stats.verdict import GateName


_WIDTH = 80
"""Of tables in a file or a pipe."""


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[str, ...]
    labelled: tuple[str, ...]
    strategy: str
    judge: Path | None
    grader: str | None
    output: Path | None
    overwrite: bool
    style: str | None
    input_format: 'Kind | Literal["auto"]'
    category_key: str
    cluster: str | None
    margin: float
    seed: int
    doubtful: Literal["fail", "keep", "show"] | None
    allow_replayed: bool
    fail_on: "GateName | None"
    sequential: bool
    strict: bool
    fractions: bool
    progress: bool
    debug: bool


@click.command(
    short_help="Compare runs, with confidence intervals and tests.",
    epilog=variables(*VARIABLES, *COLOUR)
    + examples(
        "assay compare before.jsonl after.jsonl",
        "assay compare before.jsonl after.jsonl -o comparison.md",
        "assay compare old:before.jsonl new:after.jsonl --fail-on regression --margin 0.05",
    ),
)
@click.argument("files", nargs=-1)
@labelled_option
@strategy_option
@judge_option
@calibration_option
@output_option
@replace_option
@click.option(
    "-f",
    "--format",
    "style",
    type=click.Choice(["json", "markdown", "html", "table"]),
    help="Output format. Default: by the extension of the output file, otherwise a table on a "
    "terminal and json elsewhere.",
)
@click.option(
    "--input-format",
    type=click.Choice(["auto", "capture", "trials"]),
    default="auto",
    help="Format of the runs. Default: auto, which detects it.",
)
@category_option
@click.option(
    "--cluster",
    metavar="KEY",
    help="Metadata key of prompts that are not independent, such as the repository they come from: "
    "whole clusters are then compared. Default: every prompt is independent.",
)
@margin_option
@seed_option
@doubtful_option
@allow_replayed_option
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "not-better"]),
    help="Exit with code 3 if the gate fails and 4 if it cannot be judged. Default: no gate.",
)
@click.option(
    "--sequential",
    is_flag=True,
    help="Judge --fail-on regression by a rule that may be asked again after every batch of "
    "trials: pass, fail, or go on (exit code 4). Prompts that a run lacks count as still to come. "
    "Default: one judgement of complete runs.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse to compare runs whose prompts, graders or settings differ.",
)
@fractions_option
@progress_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Compare two or more runs of the same prompts, each given as FILE, LABEL:FILE or with --run.

    The first run is the baseline for the others. With --fail-on the exit code is 3 if the gate
    fails, and 4 if it cannot be judged with this data.
    """
    options = _Options(**given)
    named = name_runs(with_arms(options.files), options.labelled)
    if len(named) < 2:
        msg = "Give at least two runs to compare."
        raise click.UsageError(msg)
    strategy = chosen_strategy(options.strategy, options.grader)
    if options.sequential and (options.fail_on != "regression" or options.margin == 0.0):
        msg = "--sequential needs --fail-on regression and a --margin above 0."
        raise click.UsageError(msg)
    refuse_inputs(options.output, options.grader, *(path for _, path in named))
    refuse_measured(options.output, overwrite=options.overwrite)
    with pipes_as_files(named) as files:
        code = _compare(files, strategy, options)
    if code:
        raise click.exceptions.Exit(code)


def _compare(named: Named, strategy: Strategy, options: _Options) -> int:
    with _one_thread():  # numpy is imported here, with all that needs it
        from assay.compare import pairs, report

    def announce(label: str, path: Path) -> None:
        if options.progress:
            echo_folded(f"Reading {label}: {path}", err=True)

    runs = report.load_runs(
        named, options.input_format, options.category_key, announce, options.cluster
    )
    chosen = report.CompareOptions(
        **strategy.options,
        margin=options.margin,
        seed=options.seed,
        growing=options.sequential,
        calibration=options.judge,
        doubtful=options.doubtful,
        allow_replayed=options.allow_replayed,
    )
    comparison = report.compare(runs, chosen)
    for note in (*comparison.doubts, *comparison.warnings):
        echo_folded(f"note: {note}", err=True)
    if unknown := pairs.not_covered(runs):
        echo_folded(f"not covered, and may differ: {visible_line('; '.join(unknown))}", err=True)
    if options.strict and comparison.warnings:
        msg = f"the runs differ: {comparison.warnings[0]}"
        raise InputError(
            msg, hint="compare runs made with the same prompts and settings, or leave out --strict"
        )
    judged: Sequence[tuple[Pair, str, str]] = []
    if options.sequential:
        judged = comparison.judge_at_any_look(options.margin)
    elif options.fail_on:
        judged = comparison.judge(options.fail_on, options.margin)
    word_verdicts(comparison.sections, fractions=options.fractions)
    _write(comparison, options)
    for line in gate_lines(comparison.sections) if options.sequential else ():
        echo_folded(line, err=True)
    return _exit_code(judged, None if options.sequential else options.fail_on)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have numpy imported without BLAS threads, which cost more than they save here."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]


def _write(comparison: "Comparison", options: _Options) -> None:
    output = options.output
    style = options.style or _usual_style(output)
    if output is None:
        with open_stdout() as out:
            if style == "table":
                _show(comparison.sections, out, fractions=options.fractions)
            else:
                _put(comparison, style, out.buffer, fractions=options.fractions)
                out.buffer.flush()
        return
    with derived_output(output, overwrite=options.overwrite) as file:
        if style == "table":
            text = TextIOWrapper(file, encoding="utf-8")
            _show(comparison.sections, text, fractions=options.fractions)
            text.detach()
        else:
            _put(comparison, style, file, fractions=options.fractions)


_STYLES = dict.fromkeys((".md", ".markdown"), "markdown") | dict.fromkeys((".html", ".htm"), "html")


def _usual_style(output: Path | None) -> str:
    if output is not None:
        return _STYLES.get(output.suffix.lower(), "json")
    return "table" if sys.stdout is not None and sys.stdout.isatty() else "json"


def _put(comparison: "Comparison", style: str, file: BinaryIO, *, fractions: bool) -> None:
    if style == "markdown":
        file.write(markdown(comparison.sections, fractions=fractions).encode())
    elif style == "html":
        title = " · ".join(comparison.sections["meta"]["runs"])
        text = markdown(comparison.sections, fractions=fractions)
        file.write(markdown_page(title, text).encode())
    else:
        write_json(file, comparison.sections, comparison.rows(), comparison.rows_key)


def _show(sections: dict[str, Any], file: TextIO, *, fractions: bool) -> None:
    """Draw tables for a person at a terminal; the verdict comes last, where it stays on screen."""
    console = terminal(file, _WIDTH)
    for line in health_lines(sections):
        console.print(line, style="red" if "UNHEALTHY" in line else "dim", overflow="fold")
    for title, header, rows in tables(sections, fractions=fractions):
        if rows:
            draw_table(console, title, header, rows)
    intervals = sections["meta"]["intervals"]
    for line in (*flip_lines(sections), *advice_lines(sections), intervals):
        console.print(line, style="dim", overflow="fold")
    colours = {"better": "green", "worse": "red", "same": "cyan", "not-worse": "cyan"}
    for code, text in reversed([*headlines(sections)]):
        console.print(text, style=f"bold {colours.get(code, 'yellow')}", overflow="fold")


def _exit_code(judged: "Sequence[tuple[Pair, str, str]]", gate: "GateName | None") -> int:
    """Print the outcomes of a gate; the worst one decides."""
    worst = 0
    for pair, outcome, reason in judged:
        words = outcome_words(outcome)
        if gate is not None:
            echo_folded(f"{gate}, {pair.run_b} against {pair.run_a}: {words} ({reason})", err=True)
        worst = max(worst, {"pass": 0, "cannot-judge": 1, "go-on": 1, "fail": 2}[outcome])
    return (0, 4, 3)[worst]  # the exit codes, in the order of the ranks above
