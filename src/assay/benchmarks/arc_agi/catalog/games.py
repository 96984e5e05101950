"""Lists and finds games in a folder of environment_files; fast, and without the toolkit."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.catalog.game import GameInfo, read_game
from assay.benchmarks.arc_agi.problems import GameProblem

BUILT_IN = Path(__file__).parent.parent / "games"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The games of a folder in order of their ids, and what could not be read, each with why."""

    games: tuple[GameInfo, ...]
    problems: tuple[str, ...] = ()


def list_games(folder: Path = BUILT_IN) -> Listing:
    """Read every metadata.json below a folder; a broken game is a problem, not an end."""
    if not folder.is_dir():
        message = f"{folder}: no such folder of games"
        raise GameProblem(message, hint="give a folder with <game>/<version>/metadata.json in it")
    games: dict[str, GameInfo] = {}
    problems: list[str] = []
    for path in sorted(folder.rglob("metadata.json")):
        try:
            info = read_game(path.parent)
        except GameProblem as problem:
            problems.append(problem.message)
            continue
        if info.game_id in games:
            problems.append(f"{path}: {info.game_id} is also in {games[info.game_id].folder}")
        else:
            games[info.game_id] = info
    return Listing(games=tuple(games[key] for key in sorted(games)), problems=tuple(problems))


def find_game(name: str, folder: Path = BUILT_IN) -> GameInfo:
    """Find a game by its id; without a version the newest one, as the toolkit chooses."""
    return pick_game(name, list_games(folder).games, folder)


def pick_game(name: str, games: Sequence[GameInfo], folder: Path) -> GameInfo:
    """Choose a game from a listing, or say which ids come near."""
    exact = [info for info in games if info.game_id == name]
    versions = exact or [info for info in games if info.base_id == name]
    if versions:
        return max(versions, key=lambda info: info.age)
    ids = [info.game_id for info in games]
    near = get_close_matches(name, ids, 5, 0.3) or [i for i in ids if i.startswith(name[:2])][:5]
    hint = f"Did you mean {', '.join(near)}?" if near else "The folder has no such game."
    message = f"Game {name} not found in {folder}"
    raise GameProblem(message, hint=hint)
