"""The part of the demo that plays games: two built-in players, six games, one comparison."""

from pathlib import Path

import click

from assay.cli.group import run_command
from assay_arc.store import Store

RUN = ["random", "search", "--env-dir", "builtin", "--max-steps", "800", "--max-resets", "40", "-q"]


def play_and_compare(folder: Path) -> int:
    """Play all games of the package with random and search, then compare; give the exit code.

    Takes some ten seconds: each of the twelve games is a process of its own with the real engine.
    """
    store = folder / ".arc-agi-benchmarks"
    code = _step(["arc", "run", *RUN, "-j", "4", "--store", str(store)])
    if code != 0:
        return code
    runs = [run.meta.run_id[:8] for run in Store(store).native()[-2:]]
    return _step(["arc", "compare", *runs, "--store", str(store)])


def _step(words: list[str]) -> int:
    click.echo(f"  $ assay {' '.join(words)}")
    return run_command(words)
