"""A player that searches breadth-first, knowing only pictures, moves and reset.

`python -m assay_arc.players.search_play`
"""

import argparse
import sys
from collections import deque
from typing import Any

from assay_arc.client.connection import (
    GameConnection,
    GameGone,
    connect_from_environment,
)
from assay_arc.players.narrate import NarratedGame, emit_result

Move = tuple[str, int, int]
SIDE = 64
MAX_CLICKS = 48


class LevelMap:
    """Pictures as nodes, moves as edges; finds the shortest known way to an untried move."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.edges: dict[str, dict[Move, str]] = {}
        self.untried: dict[str, list[Move]] = {}

    def add(self, picture: str, moves: list[Move]) -> None:
        """Note a picture and what could be tried in it, unless it is known already."""
        if picture not in self.untried:
            self.untried[picture] = list(moves)
            self.edges[picture] = {}

    def tried(self, picture: str, move: Move, result: str) -> None:
        """Note what a move did."""
        self.edges[picture][move] = result
        if move in self.untried[picture]:
            self.untried[picture].remove(move)

    def forget(self, picture: str, move: Move) -> None:
        """Drop a move that did not do what it did before: the picture hides something."""
        self.edges[picture].pop(move, None)

    def way_to_untried(self, picture: str) -> list[Move] | None:
        """Give the shortest known way to a picture with an untried move, that move included."""
        queue: deque[str] = deque([picture])
        came: dict[str, tuple[str, Move] | None] = {picture: None}
        while queue:
            here = queue.popleft()
            if self.untried.get(here):
                return [*_way(came, here), self.untried[here][0]]
            for move, there in self.edges.get(here, {}).items():
                if there not in came:
                    came[there] = (here, move)
                    queue.append(there)
        return None


def possible_moves(picture: str, actions: list[str]) -> list[Move]:
    """List what can be tried in a picture: plain actions, and a click in each patch of colour."""
    moves: list[Move] = [(name, -1, -1) for name in actions if name != "ACTION6"]
    if "ACTION6" in actions:
        moves += [("ACTION6", x, y) for x, y in patches(picture)[:MAX_CLICKS]]
    return moves


def patches(picture: str) -> list[tuple[int, int]]:
    """Give one pixel of each patch of equal colour, small patches first."""
    unseen = set(range(SIDE * SIDE))
    found = []
    while unseen:
        patch = _flood(picture, unseen)
        middle = sorted(patch)[len(patch) // 2]
        found.append((len(patch), middle % SIDE, middle // SIDE))
    return [(x, y) for _, x, y in sorted(found)]


def _flood(picture: str, unseen: set[int]) -> list[int]:
    first = unseen.pop()
    patch, stack = [first], [first]
    while stack:
        at = stack.pop()
        for near in _neighbours(at):
            if near in unseen and picture[near] == picture[first]:
                unseen.discard(near)
                patch.append(near)
                stack.append(near)
    return patch


def _neighbours(at: int) -> list[int]:
    near = [at - SIDE, at + SIDE]
    if at % SIDE:
        near.append(at - 1)
    if at % SIDE < SIDE - 1:
        near.append(at + 1)
    return [n for n in near if 0 <= n < SIDE * SIDE]


def _way(came: dict[str, tuple[str, Move] | None], end: str) -> list[Move]:
    way: list[Move] = []
    step = came[end]
    while step is not None:
        way.append(step[1])
        step = came[step[0]]
    return way[::-1]


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
