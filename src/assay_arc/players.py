"""The built-in players, random and search: their adapters, and the program that these start.

`python -m assay_arc.players random|search` plays through the same socket as any other agent.
"""

import argparse
import json
import os
import random
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Reading, Watch
from assay.records.capture import AgentInfo, AnyStep, Events, Message, ToolCall
from assay.records.recording import RawLine, Recording
from assay_arc.client import GameConnection, GameGone, connect_from_environment

PROGRAM = (sys.executable, "-m", "assay_arc.players")
HERE = Path(__file__).parent
VISIBLE = (
    HERE.with_name("assay"),
    *(HERE / name for name in ("__init__.py", "players.py", "client")),
)
"""What these players are made of; in a sandbox they see no more of us, and no game."""
VERSION = "1"


def random_player(argument: str | None = None, args: Sequence[str] = ()) -> "PlayerAdapter":
    """Build the random player; random:7 fixes its seed, otherwise each trial has its own."""
    seed = ("--seed", argument) if argument is not None else ()
    if argument is not None and not argument.isdigit():
        msg = f"random:{argument}: the seed must be a number"
        raise InputError(msg, hint="for example: random:7")
    return PlayerAdapter(name="random", args=(*seed, *args))


def search_player(args: Sequence[str] = ()) -> "PlayerAdapter":
    return PlayerAdapter(name="search", args=tuple(args))


class _Event(msgspec.Struct):
    type: str
    op: str = ""
    input: dict[str, Any] = {}
    ok: bool = True
    state: str = ""
    levelsCompleted: int = 0
    text: str = ""


class _PlayerWatch(Watch):
    def __init__(self) -> None:
        self._output = ""
        self.n_unparsed = 0

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        try:
            event = _DECODER.decode(line.text)
        except msgspec.MsgspecError:
            self.n_unparsed += 1
            return ()
        if event.type == "result":
            self.ended, self._output = True, event.text
            return (Message(content=event.text, timestamp=line.t_ms),)
        return (
            ToolCall(
                name=event.op,
                status="completed" if event.ok else "failed",
                timestamp=line.t_ms,
                input=event.input,
                output=f"{event.state}, {event.levelsCompleted} levels done",
            ),
        )

    def output(self) -> str:
        return self._output


@dataclass(frozen=True)
class PlayerAdapter(Adapter):
    """One built-in player; it does not read the prompt, only the game."""

    name: str
    args: tuple[str, ...] = ()

    def command(self, ask: Ask) -> Command:
        """Start the player; it finds its game through environment variables."""
        argv = (*PROGRAM, self.name, "--events", *self.args)
        # Where we are found, if not by the interpreter; other players do not get to know it.
        env = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
        return Command(argv=argv, env=env, visible=tuple(map(str, VISIBLE)))

    def watch(self) -> Watch:
        return _PlayerWatch()

    def read(self, recording: Recording) -> Reading:
        """Read moves as tool calls and the last line as the answer."""
        steps: list[AnyStep] = []
        outputs: list[str] = []
        events = Events()
        for turn in recording.turns:
            watch = _PlayerWatch()
            for line in turn.lines():
                events.total += 1
                steps += watch.feed(line)
            events.unparsed += watch.n_unparsed
            events.terminal = watch.ended
            outputs.append(watch.output())
        events.mapped = events.total - events.unparsed
        agent = AgentInfo(adapter=self.name, version=VERSION)
        return Reading(steps=steps, outputs=outputs, events=events, agent=agent)


_DECODER = msgspec.json.Decoder(_Event)


MOVES = ("act", "click", "reset")


class NarratedGame:
    """Passes requests on to a game and prints each move with its outcome."""

    def __init__(self, game: GameConnection) -> None:
        self._game = game

    def ask(self, **request: Any) -> dict[str, Any]:
        reply = self._game.ask(**request)
        if request.get("op") in MOVES:
            arguments = {key: value for key, value in request.items() if key not in ("op", "grid")}
            emit(
                {
                    "type": "move",
                    "op": request["op"],
                    "input": arguments,
                    "ok": reply["ok"],
                    "state": reply["state"],
                    "levelsCompleted": reply["levelsCompleted"],
                }
            )
        return reply


def emit(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")


def emit_result(seen: dict[str, Any]) -> None:
    """Print the terminal event: how the game ended."""
    emit({"type": "result", "text": seen["text"].split("\ngrid")[0], "state": seen["state"]})
    sys.stdout.flush()


CLICK = "ACTION6"
SEED = "ARC_PLAYER_SEED"


def play_randomly(
    game: GameConnection | NarratedGame, rng: random.Random, max_actions: int
) -> dict[str, Any]:
    """Act until the game is won, refuses, or the budget is spent; return the last answer."""
    seen = game.ask(op="status")
    for _ in range(max_actions):
        if seen["state"] == "WIN":
            break
        seen = game.ask(**_choose(seen, rng))
        if not seen["ok"]:
            break
    return seen


def _choose(seen: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    if seen["state"] == "GAME_OVER":
        return {"op": "reset"}
    action = rng.choice(seen["availableActions"])
    if action == CLICK:
        return {"op": "click", "x": rng.randrange(64), "y": rng.randrange(64)}
    return {"op": "act", "action": action}


type Move = tuple[str, int, int]
SIDE = 64
MAX_CLICKS = 48


class LevelMap:
    """Pictures as nodes, moves as edges; finds the shortest known path to an untried move."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.edges: dict[str, dict[Move, str]] = {}
        self.untried: dict[str, list[Move]] = {}

    def add(self, picture: str, moves: list[Move]) -> None:
        """Add a picture and the moves to try in it, unless it is known already."""
        if picture not in self.untried:
            self.untried[picture] = list(moves)
            self.edges[picture] = {}

    def tried(self, picture: str, move: Move, result: str) -> None:
        self.edges[picture][move] = result
        if move in self.untried[picture]:
            self.untried[picture].remove(move)

    def path_to_untried(self, picture: str) -> list[Move] | None:
        """Search breadth first for the nearest untried move; the path ends with it."""
        queue: deque[str] = deque([picture])
        came_from: dict[str, tuple[str, Move] | None] = {picture: None}
        while queue:
            here = queue.popleft()
            if self.untried.get(here):
                return [*_path_to(came_from, here), self.untried[here][0]]
            for move, there in self.edges.get(here, {}).items():
                if there not in came_from:
                    came_from[there] = (here, move)
                    queue.append(there)
        return None


def possible_moves(picture: str, actions: list[str]) -> list[Move]:
    """List the moves to try in a picture: plain actions, and a click in each patch of colour."""
    moves: list[Move] = [(name, -1, -1) for name in actions if name != CLICK]
    if CLICK in actions:
        moves += [(CLICK, x, y) for x, y in patches(picture)[:MAX_CLICKS]]
    return moves


def patches(picture: str) -> list[tuple[int, int]]:
    """Return one pixel of each patch of equal colour, small patches first."""
    unseen = set(range(SIDE * SIDE))
    found = []
    while unseen:
        patch = _flood(picture, unseen)
        # One of its own pixels: the centre of a ring would lie outside it.
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


def _path_to(came_from: dict[str, tuple[str, Move] | None], end: str) -> list[Move]:
    path: list[Move] = []
    step = came_from[end]
    while step is not None:
        path.append(step[1])
        step = came_from[step[0]]
    return path[::-1]


RESET: Move = ("RESET", -1, -1)


class Searcher:
    """Explores a level as a graph of pictures: always tries the nearest move never tried."""

    def __init__(self, game: GameConnection | NarratedGame, max_actions: int) -> None:
        self._game = game
        self._left = max_actions
        self._seen = game.ask(op="look", grid=True)
        self._map = LevelMap(self._seen["grid"])
        # No action since the last reset: another one would restart the whole game.
        self._fresh = True
        self._note()

    def play(self) -> dict[str, Any]:
        """Search until the game is won, nothing is left to try, or the budget is spent."""
        while self._seen["ok"] and self._seen["state"] != "WIN" and self._left > 0:
            path = self._next_path()
            if path is None:
                break
            self._follow(path)
        return self._seen

    def _next_path(self) -> list[Move] | None:
        """The path to an untried move; a reset if there is none from here, but from the start."""
        if self._seen["state"] != "GAME_OVER":
            path = self._map.path_to_untried(self._seen["grid"])
            if path is not None or self._fresh:
                return path
        return [RESET] if self._map.path_to_untried(self._map.start) else None

    def _follow(self, path: list[Move]) -> None:
        """Do the moves; stop when one leads elsewhere than it did before, or ends the level."""
        for move in path:
            before, level = self._seen["grid"], self._seen["levelsCompleted"]
            expected = self._map.edges.get(before, {}).get(move)
            self._seen = reply = self._do(move)
            if not reply["ok"]:
                return
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
        """Put the picture on the map; in a lost game there is nothing to try."""
        over = self._seen["state"] == "GAME_OVER"
        actions = [] if over else self._seen["availableActions"]
        picture = self._seen["grid"]
        if picture not in self._map.untried:  # finding the patches of a known one is wasted
            self._map.add(picture, possible_moves(picture, actions))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="assay_arc.players", description="Play one game.")
    parser.add_argument("player", choices=["random", "search"])
    parser.add_argument("--seed", type=int, default=int(os.environ.get(SEED) or 0))
    parser.add_argument("--events", action="store_true", help="print each move as JSON")
    parser.add_argument("--max-actions", type=int, default=100_000)
    args = parser.parse_args(argv)
    try:
        game = connect_from_environment()
        player = NarratedGame(game) if args.events else game
        if args.player == "search":
            seen = Searcher(player, args.max_actions).play()
        else:
            seen = play_randomly(player, random.Random(args.seed), args.max_actions)
    except GameGone as error:
        sys.stderr.write(f"{args.player}: {error}\n")
        return 1
    if args.events:
        emit_result(seen)
    else:
        sys.stdout.write(seen["text"] + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
