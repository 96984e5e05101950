"""assay arc play: a person plays a game in the terminal, by the same rules as any agent."""

import os
import re
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.output import echo_raw
from assay.cli.parameters import help_option
from assay.pipeline.stages import local_machine
from assay.records.recording import TurnEnd
from assay.records.text import counted_noun
from assay_arc.catalog import find_game
from assay_arc.client import GameConnection
from assay_arc.commands.shared import PlaceOptions, Screen, need_toolkit, place_options
from assay_arc.log import Limits, read_log
from assay_arc.observe import grid_frame
from assay_arc.scoring import derive_result, score_game
from assay_arc.world import open_world

HELP = "arrows: 1-4, space: 5, click: 6, u: 7, or the digits; r: reset, q: quit"


class PlayOptions(PlaceOptions, frozen=True, kw_only=True):
    seed: int | None
    max_steps: int | None


@click.command(
    short_help="Play a game yourself, in the terminal.",
    epilog=examples(
        "assay arc play ky01",
        "echo ACTION1 | assay arc play ky01 --seed 0",
    ),
)
@click.argument("game")
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Seed for games that use one. Default: that of the configuration, normally 0.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Allow at most N actions. Default: no limit.",
)
@with_options(place_options)
@help_option
def command(game: str, **given: Any) -> None:
    """Play GAME with arrow keys, space and mouse, or with lines such as `click 3 4` from a pipe.

    The log is kept in the folder plays/ of the store, and the score is printed at the end.
    """
    need_toolkit()
    options = PlayOptions(**given)
    place = options.open()
    info = find_game(game, place.games)
    seed = place.config.default_seed if options.seed is None else options.seed
    name = f"{info.game_id}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    log = place.store.root / "plays" / name
    limits = Limits(max_steps=options.max_steps)
    click.echo(f"Starting {info.game_id} ...", err=True)
    with open_world(info, log, local_machine(), seed=seed, limits=limits) as world:
        with closing(world.connect()) as connection:
            _play(connection)
        world.evidence(TurnEnd())
    result = derive_result(read_log(log))
    score = score_game(result)
    percent = "no score: " + (score.reason or "") if score.score_percent is None else ""
    click.echo(
        f"{result.game_id}: {result.levels_completed}/{result.level_count} levels, "
        f"{counted_noun(result.steps, 'action')}, {counted_noun(result.resets, 'reset')}, "
        f"stopped: {result.stop_reason.replace('_', ' ')}; "
        f"{percent or f'{score.score_percent:.1f} / 100'}"
    )
    click.echo(f"Log: {os.path.relpath(log)}")


def _play(game: GameConnection) -> None:
    screen = Screen() if sys.stdin.isatty() and sys.stdout.isatty() else None
    _show(game.ask(op="look", grid=True), screen)
    for request in read_keys(screen) if screen else _lines():
        if request["op"] == "quit":
            return
        reply = game.ask(**request, grid=True)
        _show(reply, screen)
        if reply["state"] == "WIN":
            return


def _show(reply: dict[str, Any], screen: Screen | None) -> None:
    if screen is None:
        click.echo(reply["text"])
        return
    text = reply["text"].splitlines()
    head = [line for line in text if not line.startswith(("changed", "y", "grid", "colours"))]
    frame = grid_frame(reply["grid"]) if "grid" in reply else None
    # With the two lines at the end, all of it stays in a window of 80 x 24.
    screen.draw(frame, below=[*head[:3], HELP])


def _lines() -> Iterator[dict[str, Any]]:
    """Read moves from a pipe: ACTION1, click X Y, reset, look, status, quit."""
    for line in sys.stdin:
        words = line.split()
        match [word.lower() for word in words]:
            case []:
                continue
            case ["click", x, y] if x.isdigit() and y.isdigit():
                yield {"op": "click", "x": int(x), "y": int(y)}
            case [("reset" | "look" | "status" | "quit") as op]:
                yield {"op": op}
            case [digit] if digit in KEYS:
                yield KEYS[digit]
            case _:
                yield {"op": "act", "action": words[0]}


# Report clicks (1000), as decimal numbers (1006, "SGR").
MOUSE_ON, MOUSE_OFF = "\x1b[?1000h\x1b[?1006h", "\x1b[?1000l\x1b[?1006l"
CLICK = re.compile(r"\x1b\[<0;(\d+);(\d+)M")
_ARROWS = {"\x1b[A": 1, "\x1b[B": 2, "\x1b[D": 3, "\x1b[C": 4}
_LETTERS = {"w": 1, "s": 2, "a": 3, "d": 4, " ": 5, "u": 7}
_ACTIONS = {**_ARROWS, **_LETTERS, **{str(n): n for n in (1, 2, 3, 4, 5, 7)}}
KEYS: dict[str, dict[str, Any]] = {
    **{key: {"op": "act", "action": f"ACTION{n}"} for key, n in _ACTIONS.items()},
    "r": {"op": "reset"},
    **{key: {"op": "quit"} for key in ("q", "\x03", "\x04")},
}


def read_keys(screen: Screen) -> Iterator[dict[str, Any]]:
    """Yield a request for each key or click; restore the terminal at the end."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    echo_raw(MOUSE_ON, nl=False)
    try:
        while data := os.read(fd, 1024):
            yield from parse_keys(data.decode("utf-8", "replace"), screen.scale)
    finally:
        echo_raw(MOUSE_OFF, nl=False)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def parse_keys(text: str, scale: int = 1) -> list[dict[str, Any]]:
    """Parse what a terminal sent; one drawn pixel stands for this many of the frame."""
    moves = []
    while text:
        click = CLICK.match(text)
        if click:
            # Terminals count from 1, and a character shows two pixels, one above the other.
            x, y = (int(click[1]) - 1) * scale, (int(click[2]) - 1) * 2 * scale
            if 0 <= x < 64 and 0 <= y < 64:
                moves.append({"op": "click", "x": x, "y": y})
            text = text[click.end() :]
            continue
        key = next((key for key in KEYS if text.startswith(key)), None)
        if key is not None:
            moves.append(KEYS[key])
        # Skip an unknown escape sequence whole: its letters are not keys.
        escape = re.match(r"\x1b\[[0-9;<]*[A-Za-z]", text)
        text = text[len(key) if key else escape.end() if escape else 1 :]
    return moves
