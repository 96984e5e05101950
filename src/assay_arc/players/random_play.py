"""A player that acts at random: `python -m assay_arc.players.random_play`."""

import argparse
import os
import random
import sys
from typing import Any

from assay_arc.client.connection import (
    GameConnection,
    GameGone,
    connect_from_environment,
)
from assay_arc.players.narrate import NarratedGame, emit_result

CLICK = "ACTION6"
SEED = "ARC_PLAYER_SEED"


def play_randomly(
    game: GameConnection | NarratedGame, rng: random.Random, max_actions: int
) -> dict[str, Any]:
    """Act until the game is won, refused further, or the budget is spent; give the last answer."""
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


def main() -> int:
    """Play the game of the environment."""
    parser = argparse.ArgumentParser(description="Play at random.")
    parser.add_argument("--seed", type=int, default=int(os.environ.get(SEED) or 0))
    parser.add_argument("--events", action="store_true", help="print each move as JSON")
    parser.add_argument("--max-actions", type=int, default=100_000)
    args = parser.parse_args()
    try:
        game = connect_from_environment()
        player = NarratedGame(game) if args.events else game
        seen = play_randomly(player, random.Random(args.seed), args.max_actions)
    except GameGone as error:
        sys.stderr.write(f"random: {error}\n")
        return 1
    if args.events:
        emit_result(seen)
    else:
        sys.stdout.write(seen["text"] + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
