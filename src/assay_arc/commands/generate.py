"""assay arc generate: what another harness needs to play the same games."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.records.text import counted_noun
from assay_arc import StoreProblem
from assay_arc.catalog import choose_known_games
from assay_arc.commands.shared import Place, PlaceOptions, place_options
from assay_arc.generate import HarnessPlan, generate, is_built_in
from assay_arc.store import HARNESSES, StoredRun


def check_harness(ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse an unknown harness, in the words of the reference."""
    if value not in HARNESSES:
        msg = f"Invalid harness `{value}`. Supported harnesses: {', '.join(HARNESSES)}"
        raise click.UsageError(msg)
    return value


class GenerateOptions(PlaceOptions, frozen=True, kw_only=True):
    """The command line of `assay arc generate`; None stands for the reference or the default."""

    ref: str | None
    seed: int | None
    games: Sequence[str]
    max_steps: int | None
    max_resets: int | None
    with_games: bool | None
    as_json: bool


@click.command(
    short_help="Write instructions and scripts for another harness.",
    epilog=examples(
        "assay arc generate codex --games ky01,mx01",
        "assay arc generate gemini --ref latest",
    ),
)
@click.argument("harness", callback=check_harness)
@click.option(
    "--ref",
    metavar="RUN",
    help="Take games, seed and limits from this run; `latest` means the most recent one.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Seed of the games. Default: that of --ref or of the configuration, normally 0.",
)
@click.option(
    "--games",
    multiple=True,
    metavar="LIST",
    help="Games to play: ids or tags, separated by commas. May be repeated. "
    "Unknown ones are named and left out. Default: those of --ref, otherwise all.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Allow at most N actions in a game. Default: that of --ref, otherwise 500.",
)
@click.option(
    "--max-resets",
    type=click.IntRange(min=0),
    metavar="N",
    help="Allow at most N resets in a game. Default: that of --ref, otherwise 10.",
)
@click.option(
    "--with-games/--no-games",
    default=None,
    help="Copy the games into the folder, or leave them out. "
    "Default: copied only for built-in games, which other machines may not have.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the paths as a JSON object.")
@with_options(place_options)
@help_option
def command(harness: str, **given: Any) -> None:
    """Write instructions.md, game_driver.py and collect_results.py for codex, gemini or opencode.

    The other machine needs only this folder, Python 3.12 and arc-agi.
    """
    options = GenerateOptions(**given)
    place = options.open()
    reference = _reference(place, options.ref) if options.ref else None
    plan = _plan(place, harness, reference, options)
    summary = generate(plan, place.store.cross_dir / harness)
    if options.as_json:
        click.echo(msgspec.json.encode(summary).decode())
        return
    click.echo(f"Instructions generated: {summary['instructions']}")
    click.echo(f"Game driver:            {summary['game_driver']}")
    click.echo(f"Result collector:       {summary['collect_results']}")
    games = counted_noun(summary["game_count"], "game")
    click.echo(f"Game set:               {games}, seed={summary['seed']}")
    click.echo(f"Reference run:          {summary['ref_run_id']}")
    if "earlier" in summary:
        click.echo(f"What was played before: moved to {summary['earlier']}")
    click.echo("\nNext steps:")
    click.echo("1. Open the instructions file and follow the setup steps in the target harness")
    click.echo("2. Run the benchmark on the target harness")
    click.echo("3. Save the result JSON file and the sessions folder")
    click.echo(f"4. Import with: assay arc import {harness} <result-file-path>{place.store.option}")


def _reference(place: Place, name: str) -> StoredRun:
    if name == "latest":
        done = [run for run in place.store.native() if run.meta.status == "completed"]
        if not done:
            msg = "No completed runs found."
            hint = f"play first with: assay arc run AGENT{place.store.option}"
            raise StoreProblem(msg, hint=hint)
        return done[-1]
    return place.store.find(name)


def _plan(
    place: Place, harness: str, reference: StoredRun | None, options: GenerateOptions
) -> HarnessPlan:
    meta = reference.meta if reference else None
    games, unknown = choose_known_games(
        options.games or (meta.game_ids if meta else ()), place.games
    )
    if unknown:  # as in the reference
        click.echo(f"WARNING: Games not found: {', '.join(unknown)}", err=True)
    chosen, config = options.with_games, place.config

    def pick(name: str, fallback: Any) -> Any:
        given = getattr(options, name)
        if given is not None:
            return given
        return getattr(meta, name) if meta else fallback

    return HarnessPlan(
        harness=harness,
        games=tuple(games),
        seed=pick("seed", config.default_seed),
        max_steps=pick("max_steps", config.default_max_steps),
        max_resets=pick("max_resets", config.default_max_resets),
        ref_run_id=meta.run_id if meta else "none",
        generated=datetime.now(UTC).isoformat(),
        with_games=is_built_in(place.games) if chosen is None else chosen,
        # Another machine does not have the games where they are installed here.
        env_dir="" if is_built_in(place.games) else str(place.games.resolve()),
    )
