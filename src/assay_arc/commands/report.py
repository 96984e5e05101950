"""assay arc report: what one run achieved."""

from pathlib import Path

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay_arc.cards import read_card
from assay_arc.commands.shared import show_markdown, store_options
from assay_arc.report import report_json, report_markdown, report_page, report_summary
from assay_arc.store import Store, write_bytes


@click.command(
    short_help="Report on one run.",
    epilog=examples(
        "assay arc report",
        "assay arc report latest --format summary",
        "assay arc report previous --format html",
    ),
)
@click.argument("run", default="latest")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json", "summary", "html"]),
    help="Output format. Default: table on a terminal, otherwise markdown.",
)
@with_options(store_options)
@help_option
def command(run: str, form: str | None, root: Path, debug: bool) -> None:
    """Report on RUN: its id, the beginning of its id, `latest` (the default) or `previous`.

    The report is also written to the folder of the run, as report.md, report.json or report.html,
    except for the summary.
    """
    store = Store(root.absolute())
    stored = store.find(run)
    card = read_card(stored)
    for other in store.unfinished()[-1:]:
        of = "This run" if other.meta.run_id == stored.meta.run_id else f"Run {other.label}"
        click.echo(f"{of} is unfinished. Continue it with: {other.resume_command}", err=True)
    if form == "summary":
        click.echo(report_summary(stored, card))
        return
    text = report_markdown(stored, card)
    write_bytes(stored.folder / "report.md", text.encode())
    if form == "json":
        data = msgspec.json.encode(report_json(stored, card))
        text = msgspec.json.format(data, indent=2).decode() + "\n"
        write_bytes(stored.folder / "report.json", text.encode())
    elif form == "html":
        target = stored.folder / "report.html"
        write_bytes(target, report_page(stored, card).encode())
        text = f"{target}\n"
    if form in ("json", "html"):
        click.echo(text, nl=False)
    else:
        show_markdown(text, form)
