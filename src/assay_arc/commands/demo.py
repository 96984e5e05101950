"""assay arc demo: two built-in players, six games, one comparison; a part of `assay demo`."""

from importlib.util import find_spec
from pathlib import Path

import click

from assay.cli.group import run_command
from assay.cli.parameters import help_option
from assay_arc.store import Store

RUN = ["random", "search", "--env-dir", "builtin", "--max-steps", "800", "--max-resets", "40", "-q"]


@click.command(short_help="Play the built-in games with the built-in players.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    default="demo-out",
    help="Folder to write the runs to. Default: demo-out.",
)
@help_option
def command(folder: Path) -> None:
    """Play all games of the package with random and search, then compare the two runs.

    Takes some ten seconds: each of the twelve games is a process of its own with the real engine.
    """
    if find_spec("arc_agi") is None:
        click.echo("  skipped: needs the extra arc (pip install '.[arc]')")
        return
    store = folder / ".arc-agi-benchmarks"
    _step(["arc", "run", *RUN, "-j", "4", "--store", str(store)])
    runs = [run.meta.run_id[:8] for run in Store(store).native()[-2:]]
    _step(["arc", "compare", *runs, "--store", str(store)])


def _step(args: list[str]) -> None:
    click.echo(f"  $ assay {' '.join(args)}")
    code = run_command(args)
    if code != 0:
        raise click.exceptions.Exit(code)
