"""assay summarize: results in, a compact view out."""

from pathlib import Path

import click

from assay.cli.help import examples
from assay.cli.output import derived_output, echo_folded, refuse_empty_stdin, refuse_same_file
from assay.cli.parameters import (
    debug_option,
    help_option,
    input_argument,
    output_option,
    replace_option,
)
from assay.records.trial.files import open_trials
from assay.report.summary import write_summary, write_summary_markdown


@click.command(
    short_help="Write a short row or section for each result.",
    epilog=examples(
        "assay summarize results.jsonl",
        "cat results.jsonl | assay summarize -",
        "assay summarize results.jsonl --markdown -o summary.md",
    ),
)
@input_argument("results")
@output_option
@click.option(
    "-m",
    "--markdown",
    is_flag=True,
    help="Write Markdown with every step, for people and LLM judges, instead of JSONL.",
)
@replace_option
@debug_option
@help_option
def command(
    results: Path | None, output: Path | None, *, markdown: bool, overwrite: bool, debug: bool
) -> None:
    """Write one short row per trial in the file RESULTS (default: stdin).

    A row has id, input, output, toolCalls and duration. Where they are known, pass, score and
    the cause of a failure are added. RESULTS is a file of capture, grade or trials; rows of trials
    have their number.
    """
    refuse_same_file(results, output)
    write = write_summary_markdown if markdown else write_summary
    with open_trials(results) as rows:
        refuse_empty_stdin(rows, results, "summarize reads what `assay capture` wrote")
        with derived_output(output, overwrite=overwrite) as out:
            problems = write(rows, out)
    for line in problems:
        echo_folded(f"UNHEALTHY: {line}", err=True)
