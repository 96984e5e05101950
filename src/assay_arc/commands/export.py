"""assay arc export: games of a run in the formats of others."""

import hashlib
from pathlib import Path
from typing import Any

import click

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option, overwrite_option
from assay.errors import OutputError
from assay_arc import StoreProblem
from assay_arc.cards import intact_log, read_card
from assay_arc.commands.shared import StoreOptions, store_options
from assay_arc.log import read_log
from assay_arc.recordings import recording_guid, recording_lines, recording_name
from assay_arc.report import missing_game
from assay_arc.store import StoredRun, TrialRow, write_bytes


class ExportOptions(StoreOptions, frozen=True, kw_only=True):
    games: tuple[str, ...]
    output: Path
    overwrite: bool


@click.command(
    short_help="Export games as recordings of the official toolkit.",
    epilog=examples(
        "assay arc export recording",
        "assay arc export recording previous --games ky01 -o elsewhere",
    ),
)
@click.argument("kind", type=click.Choice(["recording"]))
@click.argument("run", default="latest")
@click.option(
    "--games",
    multiple=True,
    metavar="LIST",
    help="Games to export: ids, separated by commas. May be repeated. Default: all of the run.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default="recordings",
    metavar="DIR",
    help="Folder to write to; the recordings go to a folder in it named after the run. "
    "Default: recordings.",
)
@overwrite_option
@with_options(store_options)
@help_option
def command(kind: str, run: str, **given: Any) -> None:
    """Write each game of RUN (default: latest) as the official toolkit records it, with all frames.

    A file is called OUTPUT/RUN/GAME-GUID.jsonl, as the toolkit calls it. `assay arc import
    recording` reads it back.
    """
    options = ExportOptions(**given)
    stored = options.store.find(run)
    chosen = _chosen(stored, options.games)
    folder = options.output / stored.meta.run_id
    for trial in chosen:
        name, data = _recording(stored, trial)
        target = folder / name
        if target.exists() and not options.overwrite:
            msg = f"{target} already exists"
            raise OutputError(msg, hint="use --overwrite to replace it")
        write_bytes(target, data)
        click.echo(target)


def _chosen(stored: StoredRun, games: tuple[str, ...]) -> list[TrialRow]:
    card = read_card(stored)
    names = [name for word in games for name in word.replace(",", " ").split()]
    if games and not names:
        msg = "--games names no game."
        raise click.UsageError(msg)
    known = {one for game in card.games for one in (game.id, game.id.split("-")[0])}
    if unknown := [name for name in names if name not in known]:
        raise missing_game(stored, card, unknown[0])
    if names:
        card.games = [g for g in card.games if g.id in names or g.id.split("-")[0] in names]
    logged = [trial for trial in card.trials if trial.log is not None]
    if not logged:
        msg = f"run {stored.meta.run_id} has no logs of these games: they cannot be exported"
        raise StoreProblem(msg, hint="only what was recorded or replayed has a log")
    return logged


def _recording(stored: StoredRun, trial: TrialRow) -> tuple[str, bytes]:
    path = intact_log(stored, str(trial.log))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    log = read_log(path)
    data = b"".join(recording_lines(log, recording_guid(digest)))
    return recording_name(log, digest), data
