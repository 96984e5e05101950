"""Words the answer to a player: where it stands, what changed; no baselines, source or scores."""

import base64
from typing import Any, Protocol

from assay.benchmarks.arc_agi.engine.answer import Observation
from assay.benchmarks.arc_agi.log.frames import frames_digest
from assay.benchmarks.arc_agi.log.records import Limits
from assay.benchmarks.arc_agi.log.tally import Tally
from assay.benchmarks.arc_agi.observe.palette import DIGITS
from assay.benchmarks.arc_agi.observe.png import frame_png
from assay.benchmarks.arc_agi.observe.text import change_text, frames_text, grid_text
from assay.benchmarks.arc_agi.server.moves import action_names
from assay.benchmarks.arc_agi.server.request import Request

_NEXT = {
    "GAME_OVER": "game over: reset plays this level again",
    "WIN": "all levels are done: you have won",
}


class ReplyContext(Protocol):
    """What an answer is made from."""

    limits: Limits
    tally: Tally
    seen: Observation
    before: bytes | None


def describe(table: ReplyContext, request: Request, headline: str = "") -> dict[str, Any]:
    """Answer a request that was done."""
    parts = [headline, status_line(table), _NEXT.get(table.tally.state, ""), _body(table, request)]
    reply: dict[str, Any] = {"ok": True, "text": "\n".join(part for part in parts if part)}
    reply |= _status(table)
    if request.grid:
        reply["grid"] = table.seen.frame.translate(DIGITS).decode("ascii")
        reply["digest"] = frames_digest(table.seen.frames[-1:])
    if request.image:
        reply["image"] = base64.b64encode(frame_png(table.seen.frame)).decode("ascii")
    return reply


def refuse(table: ReplyContext, message: str) -> dict[str, Any]:
    """Answer a request that was not done."""
    text = f"not done: {message}\n{status_line(table)}"
    return {"ok": False, "error": message, "text": text} | _status(table)


def status_line(table: ReplyContext) -> str:
    """Say in one line where the game stands."""
    seen, tally, limits = table.seen, table.tally, table.limits
    level = min(seen.levels_completed + 1, seen.win_levels)
    steps = f"actions {_of(tally.steps, limits.max_steps)}"
    resets = f"resets {_of(tally.resets, limits.max_resets)}"
    return f"{tally.state} level {level} of {seen.win_levels}, {steps}, {resets}"


def _body(table: ReplyContext, request: Request) -> str:
    seen, before = table.seen, table.before
    actions = f"available: {' '.join(action_names(seen))}"
    if request.op in ("status", "quit", "close"):
        return actions
    if request.frames and len(seen.frames) > 1 and before is not None:
        return frames_text(seen.frames, before)
    if request.op == "look" or request.full or before is None:
        changed = change_text(before, seen.frame) if request.full and before is not None else ""
        return "\n".join(part for part in (changed, actions, grid_text(seen.frame)) if part)
    note = f"animation of {len(seen.frames)} frames; " if len(seen.frames) > 1 else ""
    return note + change_text(before, seen.frame)


def _status(table: ReplyContext) -> dict[str, Any]:
    seen, tally = table.seen, table.tally
    return {
        "state": tally.state,
        "levelsCompleted": seen.levels_completed,
        "levels": seen.win_levels,
        "steps": tally.steps,
        "maxSteps": table.limits.max_steps,
        "resets": tally.resets,
        "maxResets": table.limits.max_resets,
        "availableActions": action_names(seen),
    }


def _of(used: int, most: int | None) -> str:
    return f"{used}" if most is None else f"{used} of {most}"
