"""assay format: results in; JSONL, Markdown or CSV out."""

from datetime import UTC, datetime
from pathlib import Path

import click

from assay.cli.help import examples
from assay.cli.output import derived_output, refuse_empty_stdin, refuse_same_file
from assay.cli.parameters import (
    debug_option,
    help_option,
    input_argument,
    output_option,
    progress_option,
    replace_option,
)
from assay.records.rows import open_rows
from assay.records.trial.files import open_trials
from assay.report.rows import STYLES, Style, write_reference, write_rows


@click.command(
    short_help="Convert results to JSONL, Markdown or CSV.",
    epilog=examples(
        "assay format results.jsonl --style markdown",
        "assay format results.jsonl --style csv --safe -o results.csv",
        "assay format results.jsonl --as reference -o reference.jsonl",
    ),
)
@input_argument("results")
@click.option(
    "-f",
    "--style",
    type=click.Choice(STYLES),
    default="jsonl",
    help="Output format. Default: jsonl.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["assay", "reference"]),
    default="assay",
    help="Which fields a row of JSONL has: all, or only those that the JSON Schemas of "
    "agent-eval-harness allow. Default: assay.",
)
@click.option(
    "--safe",
    is_flag=True,
    help="In CSV, put an apostrophe before cells that a spreadsheet would run as a formula "
    "(those that begin with = + - @). Default: cells are written as they are.",
)
@output_option
@replace_option
@progress_option
@debug_option
@help_option
def command(
    results: Path | None, output: Path | None, *, style: Style, form: str, **flags: bool
) -> None:
    """Convert the file RESULTS (default: stdin) to JSONL, Markdown or CSV.

    JSONL keeps every row and field. CSV and Markdown have one line or section per trial, also for
    a file of `assay trials`. CSV has score columns only if some rows are graded.
    """
    if flags["safe"] and style != "csv":
        msg = "--safe is for CSV only; add -f csv."
        raise click.UsageError(msg)
    if form == "reference" and style != "jsonl":
        msg = "--as reference is for JSONL only; leave out -f."
        raise click.UsageError(msg)
    refuse_same_file(results, output)
    generated = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # As JSONL, a row of trials stays one row.
    opened = open_rows if style == "jsonl" else open_trials
    with opened(results) as rows:
        refuse_empty_stdin(rows, results, "give a file, or pipe the rows in")
        with derived_output(output, overwrite=flags["overwrite"], rows=style == "jsonl") as out:
            if form == "reference":
                write_reference(rows, out)
            else:
                write_rows(rows, out, style, generated, safe=flags["safe"])
    if flags["progress"]:
        click.echo(f"{rows.name} as {style} -> {output or 'stdout'}", err=True)
