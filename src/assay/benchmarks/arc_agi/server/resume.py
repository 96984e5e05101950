"""Goes on with a game whose process died: replays its log in a fresh engine, then carries on."""

from collections.abc import Callable

import msgspec

from assay.benchmarks.arc_agi.engine.answer import Engine, Observation
from assay.benchmarks.arc_agi.engine.replay import replay_events
from assay.benchmarks.arc_agi.log.reader import GameLog
from assay.benchmarks.arc_agi.log.records import Header
from assay.benchmarks.arc_agi.log.writer import LogWriter
from assay.benchmarks.arc_agi.problems import LogProblem
from assay.benchmarks.arc_agi.server.session import Session


def resume_session(
    log: GameLog, expected: Header, engine: Engine, writer: LogWriter, now: Callable[[], str]
) -> Session:
    """Replay a log and give the session at its end; refuse when anything differs."""
    _same_header(log.header, expected)
    last = _LastSeen(engine)
    replay = replay_events(log, last)
    if not replay.replayed:
        message = f"the log can not be resumed: {replay.difference}"
        raise LogProblem(message)
    seen = last.seen if last.seen is not None else engine.start()
    if seen is None:
        message = "the log can not be resumed: the game gives no first picture"
        raise LogProblem(message)
    session = Session(engine, writer, log.header.limits, now, seen)
    session.resume(log)
    if not log.events:
        session.begin()
    return session


def _same_header(logged: Header, expected: Header) -> None:
    """Compare all but the time of the start."""
    ours = msgspec.structs.replace(expected, started_at=logged.started_at)
    for field in Header.__struct_fields__:
        if getattr(logged, field) != getattr(ours, field):
            message = (
                f"the log can not be resumed: its {field} is {getattr(logged, field)!r} "
                f"and this game process has {getattr(ours, field)!r}"
            )
            raise LogProblem(message)


class _LastSeen:
    """Passes everything on to an engine and remembers its last answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seen: Observation | None = None

    def start(self) -> Observation | None:
        self.seen = self._engine.start()
        return self.seen

    def act(self, action: str, x: int | None = None, y: int | None = None) -> Observation | None:
        seen = self._engine.act(action, x, y)
        self.seen = seen or self.seen
        return seen
