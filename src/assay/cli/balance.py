"""assay balance: how the prompts spread over their categories."""

from pathlib import Path

import click
import msgspec

from assay.cli.output import refuse_same_file, whole_output
from assay.cli.parameters import Number
from assay.pipeline.prompts import analyse, category_of
from assay.records.prompt import Prompt
from assay.records.rows import open_rows
from assay.report.summary import balance_lines


@click.command(short_help="Show how prompts spread over their categories.")
@click.argument("prompts", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; stdout if none.")
@click.option("-k", "--key", default="category", help="Metadata key; default: category.")
@click.option(
    "-t",
    "--threshold",
    type=Number(min=0),
    default=50.0,
    metavar="PERCENT",
    help="Less than this share of an even spread is too little; default 50.",
)
@click.option("--overwrite", is_flag=True, help="Throw an existing output away.")
@click.option("-q", "--quiet", is_flag=True, help="Show no chart.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.help_option("-h", "--help")
def command(
    prompts: Path,
    output: Path | None,
    key: str,
    threshold: float,
    *,
    overwrite: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Count the PROMPTS of each category, name those with too few, and suggest what to add."""
    refuse_same_file(prompts, output)
    with open_rows(prompts) as rows:
        decoder = msgspec.json.Decoder(Prompt)
        found = analyse((category_of(prompt, key) for prompt in rows.rows(decoder)), threshold)
    if not quiet:
        for line in balance_lines(found, key):
            click.echo(line, err=True)
    with whole_output(output, overwrite=overwrite) as out:
        out.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
