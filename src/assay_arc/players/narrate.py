"""Prints what a built-in player does, one JSON line for each move, like a real agent's stream."""

import json
import sys
from typing import Any

from assay_arc.client.connection import GameConnection

MOVES = ("act", "click", "reset")


class NarratedGame:
    """Passes requests on to a game and prints each move with what became of it."""

    def __init__(self, game: GameConnection) -> None:
        self._game = game

    def ask(self, **request: Any) -> dict[str, Any]:
        """Do one request."""
        reply = self._game.ask(**request)
        if request.get("op") in MOVES:
            said = {key: value for key, value in request.items() if key not in ("op", "grid")}
            emit(
                {
                    "type": "move",
                    "op": request["op"],
                    "input": said,
                    "ok": reply["ok"],
                    "state": reply["state"],
                    "levelsCompleted": reply["levelsCompleted"],
                }
            )
        return reply


def emit(event: dict[str, Any]) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event) + "\n")


def emit_result(seen: dict[str, Any]) -> None:
    """Print how it ended: the terminal event."""
    emit({"type": "result", "text": seen["text"].split("\ngrid")[0], "state": seen["state"]})
    sys.stdout.flush()
