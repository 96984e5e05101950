"""assay arc import: check, replay and score another harness's result."""

from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.group import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.pipeline.stages import local_machine
from assay_arc.catalog import list_games, pick_game
from assay_arc.commands.generate import check_harness
from assay_arc.commands.shared import Place, PlaceOptions, count_levels, place_options
from assay_arc.importing import ImportedRun, ImportSource, KnownGame, import_result
from assay_arc.report import actions_words, number, verified_words
from assay_arc.store import Scorecard, Store


class ImportOptions(PlaceOptions, frozen=True, kw_only=True):
    sessions: Path | None


@click.command(
    short_help="Import, check and score the result of another harness.",
    epilog=examples(
        "assay arc import codex codex/result.json",
        "assay arc import gemini gemini",
    ),
)
@click.argument("harness", callback=check_harness)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--sessions",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of session logs. Default: the folder sessions beside the result, if it exists.",
)
@with_options(place_options)
@help_option
def command(harness: str, path: Path, **given: Any) -> None:
    """Import the result at PATH: a file, or a folder that contains result.json and sessions/.

    Every value is checked, and every score is computed again. Session logs are replayed in the
    engine; the run is then marked as verified, or refused with the first difference.
    """
    options = ImportOptions(**given)
    place, sessions = options.open(), options.sessions
    result = path / "result.json" if path.is_dir() else path
    if sessions is None and (result.parent / "sessions").is_dir():
        sessions = result.parent / "sessions"
    source = ImportSource(
        harness=harness,
        result=result,
        sessions=sessions,
        games_dir=place.games,
        games=_known_games(place),
    )
    done = import_result(source, place.store, local_machine())
    for warning in done.warnings:
        click.echo(f"WARNING: {warning}", err=True)
    _print_import(done, place.store)


def _known_games(place: Place) -> dict[str, KnownGame]:
    """Our games by id, and the newest of each by its id without the version."""
    games = list_games(place.games).games
    levels = count_levels(games, place.store)
    by_id = {
        info.game_id: KnownGame(**msgspec.structs.asdict(info), level_count=levels[info.game_id])
        for info in games
    }
    for base in {info.base_id for info in games}:
        by_id.setdefault(base, by_id[pick_game(base, games, place.games).game_id])
    return by_id


def _unplayed(card: Scorecard) -> str:
    names = [game.id for game in card.games if not game.is_played]
    return f", of which not played, and counted as 0: {', '.join(names)}" if names else ""


def _print_import(done: ImportedRun, store: Store) -> None:
    """Print what was imported and what to type next, as the reference does."""
    meta, card = done.run.meta, done.card
    click.echo(f"Imported results from {meta.harness}:")
    click.echo(f"  Run ID:          {meta.run_id}")
    click.echo(f"  Games:           {len(meta.game_ids)}{_unplayed(card)}")
    click.echo(f"  Overall Score:   {number(card.percent, 2)} / 100 ({card.scorer})")
    click.echo(f"  Levels Complete: {card.total_levels_completed} / {card.total_levels}")
    click.echo(f"  Total Actions:   {actions_words(card)}")
    click.echo(f"  Verified:        {verified_words(done.run)}")
    click.echo(f"  Stored at:       {done.run.folder}/")
    native = [run for run in store.native() if run.meta.status == "completed"]
    if native:
        latest = native[-1].meta
        click.echo(f"\nA run of {latest.harness} is available (latest: {latest.run_id}).")
        click.echo(f"To compare: assay arc compare {latest.run_id} {meta.run_id}")
    else:
        click.echo(f"\nTo compare with a run of your own: assay arc compare RUN {meta.run_id}")
