"""assay balance: how the prompts are distributed over categories."""

from pathlib import Path

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import derived_output, echo_folded, refuse_empty_stdin, refuse_same_file
from assay.cli.parameters import (
    Number,
    debug_option,
    help_option,
    input_argument,
    output_option,
    replace_option,
)
from assay.pipeline.balance import analyse, category_of
from assay.records.cases import open_prompts
from assay.records.spec import HINT, Prompt
from assay.report.summary import balance_lines


@click.command(
    short_help="Show how the prompts are distributed over categories.",
    epilog=examples(
        "assay balance evals/prompts.jsonl",
        "assay balance evals/prompts.jsonl --key category --threshold 80 -o balance.json",
    ),
)
@input_argument("prompts")
@output_option
@click.option(
    "-k",
    "--key",
    default="category",
    metavar="KEY",
    help="Metadata key that holds the category. Default: category.",
)
@click.option(
    "-t",
    "--threshold",
    type=Number(min=0),
    default=50.0,
    metavar="PERCENT",
    help="Report a category that has less than this percentage of an even share. Default: 50.",
)
@replace_option
@click.option("-q", "--quiet", is_flag=True, help="Do not print the chart.")
@debug_option
@help_option
def command(
    prompts: Path | None,
    output: Path | None,
    key: str,
    threshold: float,
    *,
    overwrite: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Count the prompts per category in the file PROMPTS (default: stdin).

    Categories with too few prompts are reported. The chart goes to stderr, the counts and
    suggestions as JSON to the output.
    """
    refuse_same_file(prompts, output)
    with open_prompts(prompts) as rows:
        refuse_empty_stdin(rows, prompts, HINT)
        decoder = msgspec.json.Decoder(Prompt)
        found = analyse((category_of(prompt, key) for prompt in rows.rows(decoder)), threshold)
    if not quiet:
        for line in balance_lines(found, key):
            echo_folded(line, err=True)
    with derived_output(output, overwrite=overwrite) as out:
        out.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
