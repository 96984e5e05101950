"""assay summarize: results in, a compact view out."""

from pathlib import Path

import click

from assay.cli.output import refuse_same_file, whole_output
from assay.records.rows import open_rows
from assay.report.summary import write_summary, write_summary_markdown


@click.command(short_help="Make a compact view of results.")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; stdout if none.")
@click.option("-m", "--markdown", is_flag=True, help="Markdown with every step, for LLM judges.")
@click.option("--overwrite", is_flag=True, help="Throw an existing output away.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.help_option("-h", "--help")
def command(
    results: Path, output: Path | None, *, markdown: bool, overwrite: bool, debug: bool
) -> None:
    """Write one short row per trial of RESULTS: id, input, output, toolCalls, duration.

    Where they are known, pass, score and the cause of a failure stand behind them.
    """
    refuse_same_file(results, output)
    write = write_summary_markdown if markdown else write_summary
    with open_rows(results) as rows, whole_output(output, overwrite=overwrite) as out:
        write(rows, out)
