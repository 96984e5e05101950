"""Plays one game by request: checks, limits, the engine, the log, and the answer to the player."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from assay.benchmarks.arc_agi.engine.answer import Engine, Observation
from assay.benchmarks.arc_agi.log.reader import GameLog
from assay.benchmarks.arc_agi.log.records import End, Event, Limits, Outcome, Resumed
from assay.benchmarks.arc_agi.log.result import tally_events
from assay.benchmarks.arc_agi.log.tally import RESET, Tally
from assay.benchmarks.arc_agi.log.writer import LogWriter
from assay.benchmarks.arc_agi.server.moves import Refusal, check_action, check_reset
from assay.benchmarks.arc_agi.server.reply import describe, refuse
from assay.benchmarks.arc_agi.server.request import Request

MAX_LOGGED_REJECTIONS = 10_000
MAX_LOGGED_LOOKS = 100_000


class Session:
    """One game being played. Nothing is answered before the log has it."""

    def __init__(
        self,
        engine: Engine,
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
        self._seq = 0
        self._n_shown = 0
        self._done_ids: set[str] = set()

    def begin(self) -> None:
        """Start a new log with the reset that the toolkit did by itself."""
        self._record("executed", {"op": "start"}, action=RESET, seen=self.seen)

    def resume(self, log: GameLog) -> None:
        """Go on after a log that was replayed in the engine."""
        done = [event for event in log.events if event.outcome == "executed"]
        self.tally = tally_events(log.events)
        self._done_ids = {i for event in done if (i := _id_of(event.received))}
        self._seq = len(log.records)
        self._log.append(Resumed(seq=self._seq, at=self._now(), replayed_actions=len(done)))
        self._seq += 1

    def handle(self, request: Request, received: Any) -> dict[str, Any]:
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
        """Say no; it costs no action."""
        if self.tally.rejected < MAX_LOGGED_REJECTIONS:
            self.tally.rejected += 1
            self._record("rejected", received, message=message, limit=limit)
        return refuse(self, message)

    def end(self, reason: Literal["player_quit", "timeout", "crash"], message: str = "") -> None:
        """Write down why the game was closed."""
        if not self.closed:
            self.closed = True
            self._log.append(End(seq=self._seq, at=self._now(), reason=reason, message=message))
            self._seq += 1

    def _play(self, request: Request, received: Any) -> dict[str, Any]:
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
        self._take(seen)
        self._record("executed", received, seen=seen, **msgspec.structs.asdict(move))
        if request.id is not None:
            self._done_ids.add(request.id)
        return describe(self, request, headline=move.headline(seen))

    def _show(self, received: Any, message: str | None = None) -> None:
        """Note a look; one that looks without end does not fill the disk."""
        self._n_shown += 1
        if self._n_shown <= MAX_LOGGED_LOOKS:
            self._record("shown", received, message=message)

    def _take(self, seen: Observation) -> None:
        same_level = seen.levels_completed == self.seen.levels_completed and not seen.full_reset
        self.before = self.seen.frame if same_level else None
        self.seen = seen

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
