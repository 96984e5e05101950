"""assay arc demo: two built-in players, six games; a part of `assay demo`."""

import io
from contextlib import redirect_stdout
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
    """Play all games of the package with random and search, and show how far they came.

    Takes some ten seconds: each of the twelve games is a process of its own with the real engine.
    """
    if find_spec("arc_agi") is None:
        click.echo("  skipped: needs the extra arc (pip install '.[arc]')")
        return
    store = folder / ".arc-agi-benchmarks"
    for line in _step(["arc", "run", *RUN, "-j", "4", "--store", str(store)]):
        if line.startswith(("random:", "search:")):
            click.echo(f"  {line}")
    runs = " ".join(run.meta.run_id[:8] for run in Store(store).native()[-2:])
    click.echo(f"  To compare the players: assay arc compare {runs} --store {store}")


def _step(args: list[str]) -> list[str]:
    """Run a command; return what it prints, which has a line for each game."""
    click.echo(f"  $ assay {' '.join(args)}")
    with redirect_stdout(io.StringIO()) as printed:
        code = run_command(args)
    if code != 0:
        raise click.exceptions.Exit(code)
    return printed.getvalue().splitlines()
