"""The command `arc-play`: look, act, click, reset and status for players that only have a shell."""

import binascii
import sys
from typing import Any

from assay_arc.client import GameConnection, GameGone, connect_from_environment

USAGE = """usage: arc-play look [--frames] [--png FILE]   see the whole picture
       arc-play act ACTION1 [ACTION2 ...]      do actions in order (each costs one action)
       arc-play click X Y                      do ACTION6 at a pixel, 0 to 63 each
       arc-play reset                          restart the level; twice in a row: the whole game
       arc-play status                         see state, level and what is left
       arc-play quit                           give up
"""


class WrongUsage(Exception):
    """The arguments are not those of any request."""


def main() -> int:
    """Run one command; return 0 if done, 1 if refused or without a game, 2 for wrong usage."""
    try:
        requests, png = read_arguments(sys.argv[1:])
        return play(connect_from_environment(), requests, png)
    except WrongUsage:
        sys.stderr.write(USAGE)
        return 2
    except GameGone as error:
        sys.stderr.write(f"arc-play: {error}\n")
        return 1


def play(game: GameConnection, requests: list[dict[str, Any]], png: str | None) -> int:
    """Send the requests in order; stop at the first that is refused or ends a level or the game."""
    level = None
    for request in requests:
        reply = game.ask(**request)
        sys.stdout.write(reply["text"] + "\n")
        if not reply["ok"]:
            return 1
        if png and "image" in reply:
            _save(png, reply["image"])
        changed = level is not None and reply["levelsCompleted"] != level
        level = reply["levelsCompleted"]
        if changed or reply["state"] in ("WIN", "GAME_OVER"):
            break
    return 0


def read_arguments(argv: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    match argv:
        case ["look", *options]:
            return _look(options)
        case ["act", *names] if names and all(_is_action(name) for name in names):
            return [{"op": "act", "action": name} for name in names], None
        case ["act", name, x, y] if _is_number(x) and _is_number(y):
            return [{"op": "act", "action": name, "x": int(x), "y": int(y)}], None
        case ["click", x, y] if _is_number(x) and _is_number(y):
            return [{"op": "click", "x": int(x), "y": int(y)}], None
        case [("reset" | "status" | "quit") as op]:
            return [{"op": op}], None
    raise WrongUsage


def _save(file: str, image: str) -> None:
    with open(file, "wb") as out:  # noqa: PTH123 - pathlib takes long to load
        out.write(binascii.a2b_base64(image))


def _look(options: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    request: dict[str, Any] = {"op": "look"}
    png = None
    while options:
        match options:
            case ["--frames", *rest]:
                request["frames"] = True
            case ["--png", file, *rest]:
                request["image"], png = True, file
            case _:
                raise WrongUsage
        options = rest
    return [request], png


def _is_action(name: str) -> bool:
    return name.upper().startswith(("ACTION", "RESET"))


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()


if __name__ == "__main__":
    raise SystemExit(main())
