"""What `assay arc run --online` adds to a run: games and scorecard of the official server."""

import click
import msgspec

from assay.cli.parameters import Decorator
from assay.pipeline.stages import local_machine
from assay_arc import GameProblem
from assay_arc.catalog import list_games
from assay_arc.commands.shared import Place
from assay_arc.online import (
    BASE_URL,
    KEY_NAME,
    OnlineRun,
    close_card,
    fetch_games,
    open_card,
    read_online_run,
)
from assay_arc.store import META, OfficialCard, RunMeta, StoredRun, write_json

OFFICIAL = "official-scorecard.json"

online_options: list[Decorator] = [
    click.option(
        "--online",
        is_flag=True,
        help="Play on the official server, under an official scorecard. Default: offline.",
    ),
    click.option(
        "--api-key-env",
        metavar="NAME",
        help=f"With --online, the environment variable that holds your key. Default: {KEY_NAME}.",
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help=f"With --online, the address of the server. Default: {BASE_URL}.",
    ),
]


def check_online(online: bool, api_key_env: str | None, base_url: str | None) -> None:
    """Refuse options that would have no effect."""
    if not online and (api_key_env is not None or base_url is not None):
        msg = "--api-key-env and --base-url are for --online."
        raise click.UsageError(msg)
    for name, value in (("--api-key-env", api_key_env), ("--base-url", base_url)):
        # An empty one must not stand for the default: the key would go to another server.
        if value is not None and not value.strip():
            msg = f"{name} is empty."
            raise click.UsageError(msg)


def ask_for_games(place: Place, api_key_env: str | None, base_url: str | None) -> OnlineRun:
    """Ask the server for its games; copies of them that are here say what it does not."""
    copies = list_games(place.games).games
    names = (base_url or BASE_URL, api_key_env or KEY_NAME)
    return fetch_games(*names, copies, local_machine())


def open_official(meta: RunMeta, online: OnlineRun) -> None:
    """Open a scorecard for a run, and note it in its metadata."""
    chosen = tuple(game for game in online.games if game.game_id in meta.game_ids)
    online = msgspec.structs.replace(online, games=chosen)
    opened = open_card(online, ["assay", meta.harness], local_machine())
    meta.benchmark = {**(meta.benchmark or {}), "online": msgspec.to_builtins(opened)}
    meta.official = OfficialCard(card_id=opened.card_id, url=opened.card_url)


def close_official(run: StoredRun) -> None:
    """Close the scorecard of a run that is complete, and keep it as the server scored it."""
    meta = run.meta
    if meta.official is None or meta.official.closed or meta.status != "completed":
        return
    online = read_online_run((meta.benchmark or {})["online"])
    try:
        card = close_card(online, local_machine())
    except GameProblem as problem:
        click.echo(f"WARNING: the official scorecard stays open: {problem.message}", err=True)
        return
    write_json(run.folder / OFFICIAL, card)
    score = card.get("score")
    meta.official.closed = True
    meta.official.score_percent = float(score) if isinstance(score, int | float) else None
    write_json(run.folder / META, meta)
