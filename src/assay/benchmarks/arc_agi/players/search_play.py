"""A player that searches breadth-first, knowing only pictures, moves and reset.

`python -m assay.benchmarks.arc_agi.players.search_play`
"""

import argparse
import sys
from typing import Any

from assay.benchmarks.arc_agi.client.connection import (
    GameConnection,
    GameGone,
    connect_from_environment,
)
from assay.benchmarks.arc_agi.players.explore import LevelMap, Move, possible_moves
from assay.benchmarks.arc_agi.players.narrate import NarratedGame, emit_result

RESET: Move = ("RESET", -1, -1)


class Searcher:
    """Explores a level as a graph of pictures: always the nearest move never tried."""

    def __init__(self, game: GameConnection | NarratedGame, max_actions: int) -> None:
        self._game = game
        self._left = max_actions
        self._seen = game.ask(op="look", grid=True)
        self._map = LevelMap(self._seen["grid"])
        self._fresh = True
        self._note()

    def play(self) -> dict[str, Any]:
        """Search until the game is won, nothing is left to try, or the budget is spent."""
        while self._seen["ok"] and self._seen["state"] != "WIN" and self._left > 0:
            way = self._next_way()
            if way is None:
                break
            self._walk(way)
        return self._seen

    def _next_way(self) -> list[Move] | None:
        """Go on from here if anything is reachable; else reset the level and go on from there."""
        if self._seen["state"] != "GAME_OVER":
            way = self._map.way_to_untried(self._seen["grid"])
            if way is not None or self._fresh:
                return way
        return [RESET] if self._map.way_to_untried(self._map.start) else None

    def _walk(self, way: list[Move]) -> None:
        """Do the moves; stop when one leads elsewhere than it did before, or ends the level."""
        for move in way:
            before, level = self._seen["grid"], self._seen["levelsCompleted"]
            expected = self._map.edges.get(before, {}).get(move)
            reply = self._do(move)
            if not reply["ok"]:
                self._seen = reply
                return
            self._seen = reply
            if reply["levelsCompleted"] != level:
                self._map, self._fresh = LevelMap(reply["grid"]), True
                self._note()
                return
            self._note()
            if move != RESET:
                self._map.tried(before, move, reply["grid"])
            if expected not in (None, reply["grid"]) or reply["state"] != "NOT_FINISHED":
                return

    def _do(self, move: Move) -> dict[str, Any]:
        name, x, y = move
        self._left -= 1
        self._fresh = name == RESET[0]
        if name == RESET[0]:
            return self._game.ask(op="reset", grid=True)
        if x >= 0:
            return self._game.ask(op="click", x=x, y=y, grid=True)
        return self._game.ask(op="act", action=name, grid=True)

    def _note(self) -> None:
        """Put the picture on the map; a lost game has nothing to try in it."""
        over = self._seen["state"] == "GAME_OVER"
        actions = [] if over else self._seen["availableActions"]
        picture = self._seen["grid"]
        if picture not in self._map.untried:
            self._map.add(picture, possible_moves(picture, actions))


def main() -> int:
    """Play the game of the environment."""
    parser = argparse.ArgumentParser(description="Play by breadth-first search.")
    parser.add_argument("--max-actions", type=int, default=100_000)
    parser.add_argument("--events", action="store_true", help="print each move as JSON")
    args = parser.parse_args()
    try:
        game = connect_from_environment()
        seen = Searcher(NarratedGame(game) if args.events else game, args.max_actions).play()
    except GameGone as error:
        sys.stderr.write(f"search: {error}\n")
        return 1
    if args.events:
        emit_result(seen)
    else:
        sys.stdout.write(seen["text"] + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
