"""Keys and mouse of a terminal as moves of a game."""

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

MOUSE_ON, MOUSE_OFF = "\x1b[?1000h\x1b[?1006h", "\x1b[?1000l\x1b[?1006l"
CLICK = re.compile(r"\x1b\[<0;(\d+);(\d+)M")
_ACTIONS = {
    "\x1b[A": 1,
    "w": 1,
    "\x1b[B": 2,
    "s": 2,
    "\x1b[D": 3,
    "a": 3,
    "\x1b[C": 4,
    "d": 4,
    " ": 5,
    "u": 7,
    **{str(n): n for n in (1, 2, 3, 4, 5, 7)},
}
KEYS: dict[str, dict[str, Any]] = {
    **{key: {"op": "act", "action": f"ACTION{n}"} for key, n in _ACTIONS.items()},
    "r": {"op": "reset"},
    "q": {"op": "quit"},
    "\x03": {"op": "quit"},
    "\x04": {"op": "quit"},
}


def read_keys() -> Iterator[dict[str, Any]]:
    """Give a request for each key or click; the terminal is as it was afterwards."""
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    sys.stdout.write(MOUSE_ON)
    sys.stdout.flush()
    try:
        while data := os.read(fd, 1024):
            yield from moves_of(data.decode("utf-8", "replace"))
    finally:
        sys.stdout.write(MOUSE_OFF)
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def moves_of(text: str) -> list[dict[str, Any]]:
    """Read what a terminal sent; a click is in characters, each two pixels high."""
    moves = []
    while text:
        click = CLICK.match(text)
        if click:
            x, y = int(click[1]) - 1, (int(click[2]) - 1) * 2
            if 0 <= x < 64 and 0 <= y < 64:
                moves.append({"op": "click", "x": x, "y": y})
            text = text[click.end() :]
            continue
        key = next((key for key in KEYS if text.startswith(key)), None)
        if key is not None:
            moves.append(KEYS[key])
        escape = re.match(r"\x1b\[[0-9;<]*[A-Za-z]", text)
        text = text[len(key) if key else escape.end() if escape else 1 :]
    return moves
