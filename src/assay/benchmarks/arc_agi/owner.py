"""What the world needs to run a game process: what to start, when it is ready, how to close it."""

import secrets
import sys
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay.benchmarks.arc_agi.client.connection import SOCKET, TOKEN, GameConnection, GameGone
from assay.benchmarks.arc_agi.log.records import Limits
from assay.benchmarks.arc_agi.problems import ServeProblem
from assay.benchmarks.arc_agi.server.config import VARIABLE, ServeConfig, write_config


class GamePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A game process that may be started, and what its player is given."""

    config: ServeConfig

    @property
    def argv(self) -> tuple[str, ...]:
        """What to start; it says nothing of which game or where."""
        return (sys.executable, "-m", "assay.benchmarks.arc_agi.serve_game")

    @property
    def env(self) -> dict[str, str]:
        """What to add to the game process's environment."""
        return {VARIABLE: write_config(self.config)}

    @property
    def player_env(self) -> dict[str, str]:
        """What to add to the player's environment."""
        return {SOCKET: str(self.config.socket), TOKEN: self.config.token}


def plan_game(
    game: Path, log: Path, socket: Path, *, seed: int = 0, limits: Limits | None = None
) -> GamePlan:
    """Plan a game process with fresh tokens; the socket's folder must be private to the game."""
    return GamePlan(
        config=ServeConfig(
            game=game.resolve(),
            log=log.resolve(),
            socket=socket.absolute(),
            token=secrets.token_hex(16),
            owner_token=secrets.token_hex(16),
            seed=seed,
            limits=limits or Limits(),
        )
    )


def wait_ready(plan: GamePlan, timeout_s: float = 60.0) -> dict[str, Any]:
    """Wait until the game answers; loading the toolkit takes a few seconds."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return _ask(plan, op="status")
        except GameGone as error:
            if time.monotonic() > until:
                message = f"the game process did not answer within {timeout_s:.0f} s"
                raise ServeProblem(message) from error
            time.sleep(0.05)


def close_game(
    plan: GamePlan, reason: Literal["player_quit", "timeout", "crash"], message: str = ""
) -> bool:
    """Close the game and write down why; False when its process is gone already."""
    try:
        return bool(_ask(plan, op="close", reason=reason, message=message)["ok"])
    except GameGone:
        return False


def _ask(plan: GamePlan, **request: str) -> dict[str, Any]:
    game = GameConnection(str(plan.config.socket), plan.config.owner_token, retry_s=0.0)
    try:
        return game.ask(**request)
    finally:
        game.close()
