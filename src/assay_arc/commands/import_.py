"""assay arc import: check, replay and score another harness's result."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import plugins
from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.pipeline.stages import local_machine
from assay.records.capture import Thought, Usage
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef
from assay.report.text import money, number
from assay_arc import ResultProblem
from assay_arc.catalog import list_games, pick_game
from assay_arc.commands.generate import check_harness
from assay_arc.commands.shared import (
    Place,
    PlaceOptions,
    count_levels,
    need_toolkit,
    place_options,
)
from assay_arc.import_recordings import RecordingSource, find_recordings, import_recordings
from assay_arc.importing import (
    MAX_LOG_BYTES,
    ImportedRun,
    ImportSource,
    KnownGame,
    RunUsage,
    Transcript,
    import_results,
)
from assay_arc.report import actions_words, verified_words
from assay_arc.store import Store


class ImportOptions(PlaceOptions, frozen=True, kw_only=True):
    sessions: Path | None
    harness_name: str | None
    model: str | None
    seed: int | None
    transcripts: tuple[Path, ...]


RECORDING = "recording"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")


def _check_source(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    return value if value == RECORDING else check_harness(ctx, parameter, value)


def _check_name(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _NAME.fullmatch(value):
        msg = "It becomes the name of a folder: use small letters, digits, '.', '_' and '-'."
        raise click.BadParameter(msg)
    return value


@click.command(
    short_help="Import, check and score results of other harnesses, or recordings.",
    epilog=examples(
        "assay arc import codex codex/result.json",
        "assay arc import codex first second --transcript first/codex.jsonl",
        "assay arc import recording my-recordings --model my-model",
    ),
)
@click.argument("harness", callback=_check_source)
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option(
    "--sessions",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of session logs. Default: the folder sessions beside the result, if it exists.",
)
@click.option(
    "--transcript",
    "transcripts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="What the agent printed as JSON while it played: kept with the run, and read for tokens "
    "and cost. May be repeated. Default: none.",
)
@click.option(
    "--harness",
    "harness_name",
    metavar="NAME",
    callback=_check_name,
    help="With `recording`, the name of the harness that played. Default: recording.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="With `recording`, the model that played. Default: unknown.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="With `recording`, the seed of games that use one. Default: 0.",
)
@with_options(place_options)
@help_option
def command(harness: str, paths: Sequence[Path], **given: Any) -> None:
    """Import the result at PATH: a file, or a folder that contains result.json and sessions/.

    Every value is checked, and every score is computed again. Session logs are replayed in the
    engine; the run is then marked as verified, or refused with the first difference.

    Several results of one harness and model are one run: each is a trial of its games.

    With `recording` as HARNESS, PATH is a recording of the official toolkit or a folder of them.
    Each is played again in the engine; several recordings of a game are its trials.
    """
    options = ImportOptions(**given)
    if harness == RECORDING:
        done = _import_recordings(paths, options)
    else:
        done = _import_result(harness, paths, options)
    for warning in done.warnings:
        click.echo(f"WARNING: {warning}", err=True)
    _print_import(done, options.store)


def _import_recordings(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    if options.sessions is not None or options.transcripts:
        msg = "--sessions and --transcript are for results; a recording is its own log."
        raise click.UsageError(msg)
    need_toolkit()
    files = find_recordings(paths)
    place = options.open()
    source = RecordingSource(
        files=files,
        harness=options.harness_name or RECORDING,
        model=options.model or "unknown",
        seed=options.seed or 0,
        games=_known_games(place),
    )
    return import_recordings(source, place.store, local_machine())


def _import_result(harness: str, paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    if (options.harness_name, options.model, options.seed) != (None, None, None):
        msg = "--harness, --model and --seed are for recordings; a result says these itself."
        raise click.UsageError(msg)
    if len(paths) > 1 and options.sessions is not None:
        msg = "With several results each has its own sessions; leave out --sessions."
        raise click.UsageError(msg)
    place = options.open()
    games = _known_games(place)
    sources = [_source(harness, path, options, place, games) for path in paths]
    transcripts = [read_transcript(harness, path) for path in options.transcripts]
    if len({transcript.name for transcript in transcripts}) < len(transcripts):
        transcripts = [
            msgspec.structs.replace(one, name=f"{number}-{one.name}")
            for number, one in enumerate(transcripts, 1)
        ]
    return import_results(sources, place.store, local_machine(), transcripts)


def _source(
    harness: str, path: Path, options: ImportOptions, place: Place, games: dict[str, KnownGame]
) -> ImportSource:
    result = path / "result.json" if path.is_dir() else path
    sessions = options.sessions
    if sessions is None and (result.parent / "sessions").is_dir():
        sessions = result.parent / "sessions"
    return ImportSource(
        harness=harness, result=result, sessions=sessions, games_dir=place.games, games=games
    )


def read_transcript(harness: str, path: Path) -> Transcript:
    """Read what an agent printed, as its adapter reads it, for tokens, cost and reasoning."""
    if path.stat().st_size > MAX_LOG_BYTES:
        msg = f"{path}: larger than {MAX_LOG_BYTES} bytes; not a transcript"
        raise ResultProblem(msg)
    data = path.read_bytes()
    lines = [RawLine(0, line) for line in data.splitlines() if line.strip()]
    turn = Turn("", TurnEnd(exit_code=0), lambda: lines)
    reading = plugins.adapter(PluginRef(name=harness)).read(
        Recording(start_ms=0, end_ms=0, turns=(turn,))
    )
    if not reading.events.mapped:
        msg = f"{path}: not what {harness} prints as JSON: no line of it is understood"
        raise ResultProblem(msg, hint="give the output of its JSON mode, one event on each line")
    used = reading.usage or Usage()
    counts = [n for n in (used.input_tokens, used.output_tokens) if isinstance(n, int)]
    thoughts = [len(step.content) for step in reading.steps if isinstance(step, Thought)]
    spent = RunUsage(
        cost_usd=used.cost_usd or None,
        tokens=sum(counts) if counts else None,
        reasoning_chars=sum(thoughts),
    )
    return Transcript(name=path.name, data=data, spent=spent)


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


def _print_import(done: ImportedRun, store: Store) -> None:
    """Print what was imported and what to type next, as the reference does."""
    meta, card = done.run.meta, done.card
    click.echo(f"Imported results from {meta.harness}:")
    click.echo(f"  Run ID:          {meta.run_id}")
    names = ", ".join(game.id for game in card.games if not game.is_played)
    unplayed = f", of which not played, and counted as 0: {names}" if names else ""
    click.echo(f"  Games:           {len(meta.game_ids)}{unplayed}")
    click.echo(f"  Overall Score:   {number(card.percent, 2)} / 100 ({card.scorer})")
    click.echo(f"  Levels Complete: {card.total_levels_completed} / {card.total_levels}")
    click.echo(f"  Total Actions:   {actions_words(card)}")
    if card.cost_usd is not None or card.tokens is not None:
        tokens = "-" if card.tokens is None else f"{card.tokens:,}"
        click.echo(f"  Cost:            {money(card.cost_usd)}, {tokens} tokens")
    click.echo(f"  Verified:        {verified_words(done.run)}")
    click.echo(f"  Stored at:       {done.run.folder}/")
    native = [run for run in store.native() if run.meta.status == "completed"]
    if native:
        latest = native[-1].meta
        click.echo(f"\nA run of {latest.harness} is available (latest: {latest.run_id}).")
        click.echo(f"To compare: assay arc compare {latest.run_id} {meta.run_id}{store.option}")
    else:
        words = f"assay arc compare RUN {meta.run_id}{store.option}"
        click.echo(f"\nTo compare with a run of your own: {words}")
