"""assay arc setup: check that everything needed is here, and write config.json."""

import platform
import shutil
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.errors import AssayError
from assay.pipeline.stages import local_machine
from assay.records.recording import TurnEnd
from assay_arc.catalog import BUILT_IN, GameInfo, list_games
from assay_arc.commands.shared import count_levels, need_toolkit, open_place, place_options
from assay_arc.log import Limits
from assay_arc.store import BUILT_IN_NAME, CONFIG, StoreConfig, read_config, write_json
from assay_arc.world import open_world

AGENTS = ("claude", "codex", "gemini", "opencode")
type Check = tuple[str, bool, str]


@click.command(
    short_help="Check this machine and write the configuration.",
    epilog=examples(
        "assay arc setup",
        "assay arc setup --env-dir builtin",
    ),
)
@with_options(place_options)
@help_option
def command(root: Path, env_dir: Path | None, debug: bool) -> None:
    """Check Python, arc-agi, the games and the agents, play one action, and write config.json.

    Running it again keeps the configuration and updates only the time of the last check.
    """
    place = open_place(root, env_dir)
    checks = [_python(), _toolkit()]
    config, is_new = _write_config(place.store.root, env_dir)
    found = list_games(place.games)
    where = "built in" if place.games == BUILT_IN else f"in {place.games}"
    checks.append(("Games", bool(found.games), f"{len(found.games)} {where}"))
    if all(ok for _, ok, _ in checks):
        levels = count_levels(found.games, place.store)
        broken = [game_id for game_id, n in levels.items() if n is None]
        if broken:
            checks.append(("Levels", True, f"these games do not start: {', '.join(broken)}"))
        playable = [info for info in found.games if levels[info.game_id]]
        checks.append(_smoke(playable))
    config.cached_env_count = len(found.games)
    write_json(place.store.root / CONFIG, config)
    verb = "written" if is_new else "kept, checked again"
    checks.append(("Config", True, f"{place.store.root / CONFIG} ({verb})"))
    agents = [name for name in AGENTS if shutil.which(name)]
    checks.append(("Agents", True, ", ".join(agents) or "none on PATH; random and search can play"))
    _print_summary(checks, list(found.problems))


def _python() -> Check:
    ok = sys.version_info >= (3, 12)
    return "Python", ok, platform.python_version() + ("" if ok else "; 3.12 or later is needed")


def _toolkit() -> Check:
    try:
        return "arc-agi", True, f"{need_toolkit()}, used offline"
    except AssayError as error:
        return "arc-agi", False, f"{error.message}: {error.hint}"


def _write_config(root: Path, env_dir: Path | None) -> tuple[StoreConfig, bool]:
    is_new = not (root / CONFIG).is_file()
    config = read_config(root)
    now = datetime.now(UTC).isoformat()
    config.created_at = config.created_at or now
    config.updated_at = now
    if env_dir is not None:
        is_built_in = str(env_dir) == BUILT_IN_NAME
        config.environments_dir = BUILT_IN_NAME if is_built_in else str(env_dir.absolute())
    return config, is_new


def _smoke(games: list[GameInfo]) -> Check:
    """Play one move with everything that a real game uses: process, socket, engine, log."""
    if not games:
        return "Test play", False, "no game can be started"
    try:
        with open_world(games[0], None, local_machine(), seed=0, limits=Limits()) as world:
            with closing(world.connect()) as game:
                action = game.ask(op="status")["availableActions"][0]
                place = {"x": 0, "y": 0} if action == "ACTION6" else {}
                done = game.ask(op="act", action=action, **place)
            played = world.evidence(TurnEnd())["result"]["steps"]
    except AssayError as error:
        return "Test play", False, error.message
    return "Test play", done["ok"] and played == 1, f"{games[0].game_id}: one action, log written"


def _print_summary(checks: list[Check], problems: list[str]) -> None:
    for name, ok, detail in checks:
        click.echo(f"  {'ok' if ok else 'NO':3} {name + ':':12}{detail}")
    for problem in problems:
        click.echo(f"  WARNING: {problem}", err=True)
    missing = [f"{name}: {detail}" for name, ok, detail in checks if not ok]
    click.echo("Status: READY" if not missing else f"Status: NOT READY ({'; '.join(missing)})")
    if missing:
        raise click.exceptions.Exit(1)
