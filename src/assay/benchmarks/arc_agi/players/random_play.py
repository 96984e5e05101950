"""A player that acts at random: `python -m assay.benchmarks.arc_agi.players.random_play`."""

import argparse
import random
import sys
from typing import Any

from assay.benchmarks.arc_agi.client.connection import (
    GameConnection,
    GameGone,
    connect_from_environment,
)

CLICK = "ACTION6"


def play_randomly(game: GameConnection, rng: random.Random, max_actions: int) -> dict[str, Any]:
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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-actions", type=int, default=100_000)
    args = parser.parse_args()
    try:
        seen = play_randomly(connect_from_environment(), random.Random(args.seed), args.max_actions)
    except GameGone as error:
        sys.stderr.write(f"random: {error}\n")
        return 1
    sys.stdout.write(seen["text"] + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
