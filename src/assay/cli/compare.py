"""assay compare: is one run better than another, and how sure is that?"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

import click
import msgspec

from assay.cli.output import open_stdout, refuse_same_file, whole_output
from assay.cli.parameters import Number
from assay.cli.runs import Named, name_runs, pipes_as_files
from assay.errors import InputError
from assay.report.comparison import (
    advice_lines,
    flip_lines,
    health_lines,
    markdown,
    tables,
    verdict_lines,
    write_json,
)

if TYPE_CHECKING:
    from assay.compare.columns import Kind
    from assay.compare.report import Comparison, Judge
    from assay.stats.verdict import GateName

_SEED = 20_260_101
_TWO = 2


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[str, ...]
    labelled: tuple[str, ...]
    strategy: str
    grader: str | None
    output: Path | None
    style: str | None
    input_format: 'Kind | Literal["auto"]'
    category_key: str
    margin: float
    seed: int
    fail_on: "GateName | None"
    strict: bool
    progress: bool
    debug: bool


@click.command(short_help="Compare runs, with honest statistics.")
@click.argument("files", nargs=-1)
@click.option("--run", "labelled", multiple=True, metavar="LABEL:PATH", help="A run by name.")
@click.option(
    "-s",
    "--strategy",
    type=click.Choice(["weighted", "statistical", "custom"]),
    default="weighted",
    help="Who wins a single prompt.",
)
@click.option("-g", "--grader", help="File that ranks the runs; for --strategy custom.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; stdout if none.")
@click.option(
    "-f",
    "--format",
    "style",
    type=click.Choice(["json", "markdown", "table"]),
    help="Default: by the output's ending; a table on a terminal, else json.",
)
@click.option("--input-format", type=click.Choice(["auto", "capture", "trials"]), default="auto")
@click.option("--by", "category_key", default="category", help="Metadata field to break down by.")
@click.option(
    "--margin",
    type=Number(0, 1, max_open=True),
    default=0.02,
    help="Difference in pass rate that is none; 0.02.",
)
@click.option("--seed", type=click.IntRange(min=0), default=_SEED, help="For resampling.")
@click.option("--fail-on", type=click.Choice(["regression", "not-better"]), help="Gate for CI.")
@click.option("--strict", is_flag=True, help="Refuse runs that are unlike.")
@click.option("--progress", is_flag=True, help="Say on stderr what happens.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.help_option("-h", "--help")
def command(**given: Any) -> None:
    """Compare two or more runs of the same prompts: FILES, label:FILE, or --run.

    The first run is what the others are judged against. Exit 3: --fail-on says no; 4: it cannot
    be judged with this data.
    """
    options = _Options(**given)
    named = name_runs(options.files, options.labelled)
    if len(named) < _TWO:
        msg = "compare needs at least two runs"
        raise click.UsageError(msg)
    if options.strategy == "custom" and not options.grader:
        msg = "--strategy custom needs --grader"
        raise click.UsageError(msg)
    for _, path in named:
        refuse_same_file(path, options.output)
    with pipes_as_files(named) as files:
        code = _compare(files, options)
    if code:
        raise click.exceptions.Exit(code)


def _compare(named: Named, options: _Options) -> int:
    with _one_thread():
        from assay.compare.report import CompareOptions, compare, load_runs

    def announce(label: str, path: Path) -> None:
        if options.progress:
            click.echo(f"reading {label}: {path}", err=True)

    runs = load_runs(named, options.input_format, options.category_key, announce)
    chosen = CompareOptions(
        strategy=options.strategy,
        margin=options.margin,
        seed=options.seed,
        env=os.environ,
        judge=_judge(options.grader) if options.strategy == "custom" and options.grader else None,
    )
    comparison = compare(runs, chosen)
    for warning in comparison.warnings:
        click.echo(f"note: {warning}", err=True)
    if options.strict and comparison.n_differences:
        msg = f"the runs are not alike: {comparison.warnings[0]}"
        raise InputError(msg, hint="compare like with like, or leave out --strict")
    _write(comparison, options)
    return _gate(comparison, options.fail_on, options.margin) if options.fail_on else 0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let numpy be imported without threads: here they cost more than they bring."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]


def _judge(grader: str) -> "Judge":
    """Make the user's strategy; only here is the machinery needed that starts programs."""
    from assay.compare.custom import custom_judge
    from assay.pipeline.stages import AskingHost

    return custom_judge(grader, AskingHost())


def _write(comparison: "Comparison", options: _Options) -> None:
    output = options.output
    style = options.style or _usual_style(output)
    if output is None:
        with open_stdout() as out:
            if style == "table":
                _show(comparison.sections, out)
            else:
                _put(comparison, style, out.buffer)
                out.buffer.flush()
        return
    with whole_output(output, overwrite=True) as file:
        if style == "table":
            text = TextIOWrapper(file, encoding="utf-8")
            _show(comparison.sections, text)
            text.detach()
        else:
            _put(comparison, style, file)


def _usual_style(output: Path | None) -> str:
    if output is not None:
        return "markdown" if output.suffix.lower() in (".md", ".markdown") else "json"
    return "table" if sys.stdout is not None and sys.stdout.isatty() else "json"


def _put(comparison: "Comparison", style: str, file: BinaryIO) -> None:
    if style == "markdown":
        file.write(markdown(comparison.sections).encode())
    else:
        write_json(file, comparison.sections, comparison.rows(), comparison.rows_key)


def _show(sections: dict[str, Any], file: TextIO) -> None:
    """Draw tables for a person at a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # In a file or a pipe nobody scrolls, and a cut cell cannot be read.
    console = Console(file=file, width=None if file.isatty() else 160, highlight=False)
    for line in health_lines(sections):
        console.print(escape(line), style="red" if "UNHEALTHY" in line else "dim")
    colours = {"better": "green", "worse": "red", "same": "cyan"}
    for code, words in verdict_lines(sections):
        console.print(escape(words), style=f"bold {colours.get(code, 'yellow')}")
    for title, header, rows in tables(sections):
        table = Table(*map(escape, header), title=escape(title), title_justify="left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
    for line in (*flip_lines(sections), *advice_lines(sections)):
        console.print(escape(line), style="dim")


def _gate(comparison: "Comparison", gate: "GateName", margin: float) -> int:
    """Judge every other run against the first; the worst outcome decides."""
    worst = 0
    for pair, outcome, words in comparison.judge(gate, margin):
        click.echo(f"{gate}, {pair.run_b} against {pair.run_a}: {outcome} ({words})", err=True)
        worst = max(worst, {"pass": 0, "cannot-judge": 1, "fail": 2}[outcome])
    return (0, 4, 3)[worst]
