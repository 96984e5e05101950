"""Plays one game by request: checks, limits, the engine, the log, and the answer to the player."""

import base64
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from assay_arc import LogProblem
from assay_arc.engine import Observation, ToolkitEngine
from assay_arc.log import (
    SIDE,
    DisplayOptions,
    End,
    Event,
    GameLog,
    Header,
    Limits,
    LogWriter,
    Outcome,
    Resumed,
    frames_digest,
)
from assay_arc.observe import DIGITS, change_text, frame_png, frames_text, grid_text
from assay_arc.replay import replay_events
from assay_arc.scoring import RESET, Tally, tally_events
from assay_arc.server import PlayerRequest

MAX_LOGGED_REJECTIONS = 10_000
MAX_LOGGED_LOOKS = 100_000


class GameSession:
    """One game being played. Nothing is answered before the log has it."""

    def __init__(
        self,
        engine: ToolkitEngine,
        log: LogWriter,
        limits: Limits,
        now: Callable[[], str],
        seen: Observation,
    ) -> None:
        self._engine = engine
        self._log = log
        self._now = now
        self.limits = limits
        self.tally = Tally()
        self.seen = seen
        # The picture before the last action; None when there is nothing useful to compare with.
        self.before: bytes | None = None
        self.closed = False
        self.shows = DisplayOptions()
        self._seq = 0
        self._n_shown = 0
        self._done_ids: set[str] = set()

    def begin(self) -> None:
        """Start a new log with the reset that the toolkit did by itself."""
        self._record("executed", {"op": "start"}, action=RESET, seen=self.seen)

    def resume(self, log: GameLog) -> None:
        """Continue after a log that was replayed in the engine."""
        done = [event for event in log.events if event.outcome == "executed"]
        self.tally = tally_events(log.events)
        self._done_ids = {i for event in done if (i := _id_of(event.received))}
        self._seq = len(log.records)
        self._log.append(Resumed(seq=self._seq, at=self._now(), replayed_actions=len(done)))
        self._seq += 1

    def handle(self, request: PlayerRequest, received: Any) -> dict[str, Any]:
        """Answer one request; the token was checked before."""
        match request.op:
            case "act" | "click" | "reset":
                return self._play(request, received)
            case "quit" | "close":
                reason = request.reason if request.op == "close" else "player_quit"
                self.end(reason, request.message)
                return describe(self, request, headline="closed")
            case _:
                self._show(received)
                return describe(self, request)

    def reject(
        self, message: str, received: Any, limit: Literal["steps", "resets"] | None = None
    ) -> dict[str, Any]:
        """Refuse a request; it costs no action."""
        # Counted only while it is logged: a replay compares the counters with the records.
        if self.tally.rejected < MAX_LOGGED_REJECTIONS:
            self.tally.rejected += 1
            self._record("rejected", received, message=message, limit=limit)
        return refuse(self, message)

    def end(self, reason: Literal["player_quit", "timeout", "crash"], message: str = "") -> None:
        if not self.closed:
            self.closed = True
            self._log.append(End(seq=self._seq, at=self._now(), reason=reason, message=message))
            self._seq += 1

    def _play(self, request: PlayerRequest, received: Any) -> dict[str, Any]:
        # A client whose connection broke asks again; the move is not done twice.
        if request.id is not None and request.id in self._done_ids:
            self._show(received, message="already done")
            return describe(self, request, headline="already done; this is how it stands")
        try:
            move = check_reset(self) if request.op == "reset" else check_action(self, request)
        except Refusal as refusal:
            return self.reject(refusal.message, received, refusal.limit)
        seen = self._engine.act(move.action, move.x, move.y)
        if seen is None:
            message = f"the game broke on {move.action}; no action was counted"
            self._record("failed", received, message=message, **msgspec.structs.asdict(move))
            return refuse(self, message)
        same_level = seen.levels_completed == self.seen.levels_completed and not seen.full_reset
        self.before = self.seen.frame if same_level else None
        self.seen = seen
        self._record("executed", received, seen=seen, **msgspec.structs.asdict(move))
        if request.id is not None:
            self._done_ids.add(request.id)
        return describe(self, request, headline=move.headline(seen))

    def _show(self, received: Any, message: str | None = None) -> None:
        """Log a look, up to a limit: a player that looks without end must not fill the disk."""
        self._n_shown += 1
        if self._n_shown <= MAX_LOGGED_LOOKS:
            self._record("shown", received, message=message)

    def _record(self, outcome: Outcome, received: Any, **fields: Any) -> None:
        seen: Observation | None = fields.pop("seen", None)
        answer = seen.to_answer() if seen else None
        if answer:
            self.tally.execute(self._seq, fields["action"], answer)
        event = Event(
            seq=self._seq,
            at=self._now(),
            received=received,
            outcome=outcome,
            answer=answer,
            counters=self.tally.counters(),
            **fields,
        )
        self._log.append(event)
        self._seq += 1


def _id_of(received: Any) -> str | None:
    value = received.get("id") if isinstance(received, dict) else None
    return value if isinstance(value, str) else None


CLICK = "ACTION6"


class Refusal(Exception):
    """Why a move is not done; limit is set when a budget is spent."""

    def __init__(self, message: str, limit: Literal["steps", "resets"] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.limit = limit


class Move(msgspec.Struct, frozen=True, kw_only=True):
    action: str
    x: int | None = None
    y: int | None = None

    def headline(self, seen: Observation) -> str:
        """The first line of the answer to the player."""
        if self.action == RESET:
            return "RESET, new game from level 1" if seen.full_reset else "RESET, level restarted"
        return f"{self.action} x{self.x} y{self.y}" if self.x is not None else self.action


def check_reset(session: GameSession) -> Move:
    """Allow a reset while the budget lasts."""
    most = session.limits.max_resets
    if most is not None and session.tally.resets >= most:
        message = f"reset limit reached: all {most} resets are used"
        raise Refusal(message, "resets")
    return Move(action=RESET)


def check_action(session: GameSession, request: PlayerRequest) -> Move:
    """Allow an action that exists, is available now, and is within the budget."""
    move = _click(request) if request.op == "click" else _named(request)
    _check_running(session.tally.state)
    names = action_names(session.seen)
    if move.action not in names:
        message = f"{move.action} is not available in this game; available: {' '.join(names)}"
        raise Refusal(message)
    most = session.limits.max_steps
    if most is not None and session.tally.steps >= most:
        message = f"step limit reached: all {most} actions are used"
        raise Refusal(message, "steps")
    return move


def action_names(seen: Observation) -> list[str]:
    return [f"ACTION{number}" for number in seen.available_actions]


def _named(request: PlayerRequest) -> Move:
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


def _click(request: PlayerRequest) -> Move:
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


_ADVICE = {
    "GAME_OVER": "game over: reset plays this level again",
    "WIN": "all levels are done: you have won",
}


def describe(session: GameSession, request: PlayerRequest, headline: str = "") -> dict[str, Any]:
    """The answer to a request that was done."""
    advice = _ADVICE.get(session.tally.state, "")
    parts = [headline, status_line(session), advice, _body(session, request)]
    reply: dict[str, Any] = {"ok": True, "text": "\n".join(part for part in parts if part)}
    reply |= _status(session)
    if request.grid and session.shows.grid:
        reply["grid"] = session.seen.frame.translate(DIGITS).decode("ascii")
        reply["digest"] = frames_digest(session.seen.frames[-1:])
    if request.image and session.shows.image:
        reply["image"] = base64.b64encode(frame_png(session.seen.frame)).decode("ascii")
    return reply


def refuse(session: GameSession, message: str) -> dict[str, Any]:
    """The answer to a request that was not done."""
    text = f"not done: {message}\n{status_line(session)}"
    return {"ok": False, "error": message, "text": text} | _status(session)


def status_line(session: GameSession) -> str:
    """The state of the game in one line."""
    seen, tally, limits = session.seen, session.tally, session.limits
    level = min(seen.levels_completed + 1, seen.win_levels)
    steps = f"actions {_of(tally.steps, limits.max_steps)}"
    resets = f"resets {_of(tally.resets, limits.max_resets)}"
    return f"{tally.state} level {level} of {seen.win_levels}, {steps}, {resets}"


def _body(session: GameSession, request: PlayerRequest) -> str:
    seen, before = session.seen, session.before
    actions = f"available: {' '.join(action_names(seen))}"
    if request.op in ("status", "tools", "quit", "close"):
        return actions
    if session.shows != DisplayOptions():
        return _partial_body(session, request, actions)
    if request.frames and len(seen.frames) > 1 and before is not None:
        return frames_text(seen.frames, before)
    if request.op == "look" or request.full or before is None:
        changed = change_text(before, seen.frame) if request.full and before is not None else ""
        return "\n".join(part for part in (changed, actions, grid_text(seen.frame)) if part)
    note = f"animation of {len(seen.frames)} frames; " if len(seen.frames) > 1 else ""
    return note + change_text(before, seen.frame)


def _partial_body(session: GameSession, request: PlayerRequest, actions: str) -> str:
    """The same where the player is not shown everything."""
    seen, before, shows = session.seen, session.before, session.shows
    grid = grid_text(seen.frame) if shows.grid else ""
    asked_for_all = request.op == "look" or request.full or before is None
    changed = ""
    if shows.diff and before is not None and (request.op != "look" or request.frames):
        animated = request.frames and len(seen.frames) > 1
        changed = frames_text(seen.frames, before) if animated else change_text(before, seen.frame)
        if not shows.grid:  # most of a picture that changed is shown as a grid
            changed = changed.partition("\ngrid ")[0]
    missing = "" if shows.image or not request.image else "images are not offered in this game"
    if asked_for_all:
        return "\n".join(part for part in (missing, changed, actions, grid) if part)
    return changed if shows.diff else grid


def _status(session: GameSession) -> dict[str, Any]:
    seen, tally = session.seen, session.tally
    return {
        "state": tally.state,
        "levelsCompleted": seen.levels_completed,
        "levels": seen.win_levels,
        "steps": tally.steps,
        "maxSteps": session.limits.max_steps,
        "resets": tally.resets,
        "maxResets": session.limits.max_resets,
        "availableActions": action_names(seen),
    }


def _of(used: int, most: int | None) -> str:
    return f"{used}" if most is None else f"{used} of {most}"


def resume_session(
    log: GameLog, expected: Header, engine: ToolkitEngine, writer: LogWriter, now: Callable[[], str]
) -> GameSession:
    """Replay a log and return the session at its end; raise when anything differs."""
    _check_header(log.header, expected)
    replay = replay_events(log, engine)
    if not replay.replayed:
        message = f"the log cannot be resumed: {replay.difference}"
        raise LogProblem(message)
    seen = engine.seen or engine.start()
    if seen is None:
        message = "the log cannot be resumed: the game gives no first picture"
        raise LogProblem(message)
    session = GameSession(engine, writer, log.header.limits, now, seen)
    session.resume(log)
    if not log.events:  # killed between the header and the first event
        session.begin()
    return session


def _check_header(logged: Header, expected: Header) -> None:
    """Refuse a log of another game, version, seed or limits; only the start time may differ."""
    here = msgspec.structs.replace(expected, started_at=logged.started_at)
    for field in Header.__struct_fields__:
        if getattr(logged, field) != getattr(here, field):
            message = (
                f"the log cannot be resumed: its {field} is {getattr(logged, field)!r} "
                f"and this game process has {getattr(here, field)!r}"
            )
            raise LogProblem(message)
