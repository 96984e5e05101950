"""Checks a move before the engine sees it: what is refused here costs the player nothing."""

from typing import Literal, Protocol

import msgspec

from assay.benchmarks.arc_agi.engine.answer import Observation
from assay.benchmarks.arc_agi.log.frames import SIDE
from assay.benchmarks.arc_agi.log.records import Limits
from assay.benchmarks.arc_agi.log.tally import RESET, Tally
from assay.benchmarks.arc_agi.server.request import Request

CLICK = "ACTION6"


class Refusal(Exception):
    """Why a move is not done; limit is set when a budget is spent."""

    def __init__(self, message: str, limit: Literal["steps", "resets"] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.limit = limit


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A move that may be done."""

    action: str
    x: int | None = None
    y: int | None = None

    def headline(self, seen: Observation) -> str:
        """Name what was done in the answer to the player."""
        if self.action == RESET:
            return "RESET, new game from level 1" if seen.full_reset else "RESET, level restarted"
        return f"{self.action} x{self.x} y{self.y}" if self.x is not None else self.action


class MoveContext(Protocol):
    """What a check looks at."""

    limits: Limits
    tally: Tally
    seen: Observation


def check_reset(table: MoveContext) -> Move:
    """Allow a reset while the budget lasts."""
    most = table.limits.max_resets
    if most is not None and table.tally.resets >= most:
        message = f"reset limit reached: all {most} resets are used"
        raise Refusal(message, "resets")
    return Move(action=RESET)


def check_action(table: MoveContext, request: Request) -> Move:
    """Allow an action that exists, is available now, and is within the budget."""
    move = _click(request) if request.op == "click" else _named(request)
    _check_running(table.tally.state)
    names = action_names(table.seen)
    if move.action not in names:
        message = f"{move.action} is not available in this game; available: {' '.join(names)}"
        raise Refusal(message)
    most = table.limits.max_steps
    if most is not None and table.tally.steps >= most:
        message = f"step limit reached: all {most} actions are used"
        raise Refusal(message, "steps")
    return move


def action_names(seen: Observation) -> list[str]:
    """Name the actions available now."""
    return [f"ACTION{number}" for number in seen.available_actions]


def _named(request: Request) -> Move:
    name = (request.action or "").strip().upper()
    if name == RESET:
        message = "RESET is not an action; use the reset command"
        raise Refusal(message)
    if name == CLICK:
        return _click(request)
    if name not in {f"ACTION{number}" for number in range(1, 8)}:
        message = f"unknown action {request.action!r}; actions are ACTION1 to ACTION7"
        raise Refusal(message)
    return Move(action=name)


def _click(request: Request) -> Move:
    if request.x is None or request.y is None:
        message = f"{CLICK} needs x and y, whole numbers from 0 to {SIDE - 1}"
        raise Refusal(message)
    if not (0 <= request.x < SIDE and 0 <= request.y < SIDE):
        message = (
            f"x {request.x} y {request.y} is outside the picture; both go from 0 to {SIDE - 1}"
        )
        raise Refusal(message)
    return Move(action=CLICK, x=request.x, y=request.y)


def _check_running(state: str) -> None:
    if state == "WIN":
        message = "the game is won; nothing is left to do (a reset would start a new game)"
        raise Refusal(message)
    if state == "GAME_OVER":
        message = "game over; use the reset command to play this level again"
        raise Refusal(message)
