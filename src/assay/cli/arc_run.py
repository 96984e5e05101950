"""assay arc run: agents play games; everything is kept, and the score comes from the game's log."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from assay.benchmarks.arc_agi.catalog.choose import choose_games
from assay.benchmarks.arc_agi.problems import StoreProblem
from assay.benchmarks.arc_agi.store.layout import StoredRun
from assay.cli.arc_runner import ArcRun, new_run, say_result
from assay.cli.arc_shared import Place, need_toolkit, open_place, place_options
from assay.cli.options import agent_ref, with_options
from assay.cli.progress import Progress

DEFAULT_TIMEOUT_MS = 1_800_000
positive = click.FloatRange(min=0, min_open=True)


@click.command(short_help="Let agents play, and keep everything.")
@click.argument("agents", nargs=-1)
@click.option("--games", multiple=True, metavar="LIST", help="Ids, tags or all; commas may part.")
@with_options(place_options)
@click.option("--seed", type=int, help="For games that take one; 0.")
@click.option("--max-steps", type=click.IntRange(min=0), help="Actions in a game; 500. 0: no end.")
@click.option("--max-resets", type=click.IntRange(min=0), help="Resets in a game; 10.")
@click.option("-k", "--k", "k", type=click.IntRange(min=1), default=1, help="Trials of each game.")
@click.option("-j", "--concurrency", type=click.IntRange(min=1), default=1, help="Games at once.")
@click.option("--mcp/--no-mcp", default=True, help="Offer the MCP server; else only the command.")
@click.option("--model", help="Model the agents are to use.")
@click.option("--agent-arg", "agent_args", multiple=True, metavar="ARG", help="One more argument.")
@click.option("-t", "--timeout", type=positive, metavar="MS", help="For a game; 30 minutes.")
@click.option("--stall", type=positive, metavar="SECONDS", help="End an agent silent for so long.")
@click.option("--isolate", is_flag=True, help="Own HOME and only declared environment per trial.")
@click.option("--env", "env_names", multiple=True, metavar="NAME", help="Let through.")
@click.option("--retries", type=click.IntRange(min=0), default=0, help="For what is not theirs.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="Stop at so much.")
@click.option("--resume", metavar="RUN", help="Go on with an unfinished run, or with the latest.")
@click.option("--progress", is_flag=True, help="Say on stderr what happens.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and the result.")
@click.help_option("-h", "--help")
def command(agents: Sequence[str], **options: Any) -> None:
    """Let each AGENT play: a schema file, the name of an adapter, or the players random and search.

    Every trial is a capture like any other (results.jsonl), and each game has an event log that
    the game's own process wrote. Scores follow from that log alone.
    """
    if bool(agents) == bool(options["resume"]):
        msg = "which agent? for example: assay arc run random --games ky01; or --resume RUN"
        raise click.UsageError(msg)
    need_toolkit()
    place = open_place(options["root"], options["env_dir"])
    if options["resume"]:
        _play(unfinished(place, options["resume"]), options)
        return
    games = choose_games(options["games"], place.games)
    refs = [agent_ref({**options, "schema": agent, "mcp": None}) for agent in agents]
    runs = [_play(new_run(place, ref, *_plan(place, games, options)), options) for ref in refs]
    if len(runs) > 1:
        click.echo(f"\nCompare: assay arc compare {' '.join(run[:8] for run in runs)}")


def unfinished(place: Place, name: str) -> StoredRun:
    """Find the run to go on with."""
    if name != "latest":
        run = place.store.find(name)
        if run.meta.agent is None:
            msg = f"run {name} was not made by assay arc run"
            raise StoreProblem(msg)
        return run
    open_runs = [run for run in place.store.native() if run.meta.status != "completed"]
    if not open_runs:
        msg = "there is no unfinished run"
        raise StoreProblem(msg, hint="begin one: assay arc run AGENT")
    return open_runs[-1]


def _plan(
    place: Place, games: list[Any], options: dict[str, Any]
) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """Give what the benchmark is built with, the games, and what the run is planned with."""
    config = place.config
    steps, resets, seed = options["max_steps"], options["max_resets"], options["seed"]
    benchmark = {
        "games": [info.game_id for info in games],
        "games_dir": str(place.games.resolve()),
        "seed": config.default_seed if seed is None else seed,
        "max_steps": config.default_max_steps if steps is None else steps or None,
        "max_resets": config.default_max_resets if resets is None else resets,
        "mcp": options["mcp"],
    }
    planned = {
        "k": options["k"],
        "timeout_ms": options["timeout"] or DEFAULT_TIMEOUT_MS,
        "stall_s": options["stall"],
        "isolate": options["isolate"],
        "env_names": list(options["env_names"]),
        "game_set": ",".join(options["games"]) or "all",
    }
    return benchmark, games, planned


def _play(stored: StoredRun, options: dict[str, Any]) -> str:
    run = ArcRun(stored)
    plain = options["progress"] or options["debug"]
    card = run.play(
        concurrency=options["concurrency"],
        retries=options["retries"],
        max_cost=options["max_cost"],
        progress=partial(Progress, plain=plain, quiet=options["quiet"]),
    )
    say_result(run, card)
    if run.meta.status != "completed":
        click.echo(f"not finished; go on with: assay arc run --resume {run.meta.run_id}", err=True)
        raise click.exceptions.Exit(1)
    return run.meta.run_id
