"""Chooses games as a user names them: ids, ids without a version, tags, or all."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.benchmarks.arc_agi.catalog.game import GameInfo
from assay.benchmarks.arc_agi.catalog.games import list_games, pick_game
from assay.benchmarks.arc_agi.problems import GameProblem

ALL = "all"


def choose_games(words: Iterable[str], folder: Path) -> list[GameInfo]:
    """Give the games that are meant, each once; a tag means all games that have it."""
    games = list_games(folder).games
    if not games:
        msg = f"No ARC-AGI environments found in {folder}."
        raise GameProblem(msg, hint="see: assay arc setup")
    names = [name for word in words for name in word.replace(",", " ").split()]
    if not names or ALL in names:
        return list(games)
    chosen: dict[str, GameInfo] = {}
    for name in names:
        for info in tagged(games, name) or [pick_game(name, games, folder)]:
            chosen[info.game_id] = info
    return list(chosen.values())


def tagged(games: Sequence[GameInfo], tag: str) -> list[GameInfo]:
    """Give the games with a tag, unless it is the name of a game."""
    if any(tag in (info.game_id, info.base_id) for info in games):
        return []
    wanted = tag.lower()
    return [info for info in games if wanted in (known.lower() for known in info.tags)]
