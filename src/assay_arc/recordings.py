"""Recordings of the official toolkit: one JSON line for each answer of a game.

A recording is written from an event log, and read to be played again in the engine.
"""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from assay_arc import LogProblem
from assay_arc.engine import Observation, ToolkitEngine
from assay_arc.log import (
    FRAME_BYTES,
    MAX_LINE_BYTES,
    SIDE,
    End,
    Event,
    GameLog,
    Header,
    LogWriter,
    unpack_frames,
)
from assay_arc.scoring import RESET, Tally

ACTIONS = (RESET, *(f"ACTION{number}" for number in range(1, 8)))
MOST_ANSWERS = 1_000_000


class _Input(msgspec.Struct):
    """What was done; older recordings have a number instead of a name."""

    id: str | int
    data: dict[str, Any] | None = None
    reasoning: Any = None


class _Data(msgspec.Struct, omit_defaults=False):
    game_id: str
    state: str
    levels_completed: int | None = None
    score: int | None = None
    """What older recordings call levels_completed."""
    win_levels: int | None = None
    action_input: _Input | None = None
    guid: str | None = None
    full_reset: bool | None = None
    available_actions: tuple[int, ...] | None = None
    frame: list[list[list[int]]] | None = None


class _Line(msgspec.Struct):
    timestamp: str
    data: _Data


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a recording: an action and the game's answer, null where it was not recorded."""

    line: int
    at: str
    action: str
    x: int | None = None
    y: int | None = None
    state: str
    levels_completed: int | None
    win_levels: int | None
    full_reset: bool | None
    available_actions: tuple[int, ...] | None
    frames: tuple[bytes, ...] | None


class RecordedGame(msgspec.Struct, frozen=True, kw_only=True):
    game_id: str
    guid: str | None
    answers: tuple[RecordedAnswer, ...]


def recording_name(log: GameLog, log_sha256: str) -> str:
    """The toolkit's name of a file: the game and a guid, here one that follows from the log."""
    return f"{log.header.game_id}-{recording_guid(log_sha256)}.jsonl"


def recording_guid(log_sha256: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"assay-arc-log:{log_sha256}"))


def recording_lines(log: GameLog, guid: str) -> Iterator[bytes]:
    """Write what the toolkit would have recorded of this game, with all frames."""
    for event in log.events:
        answer = event.answer
        if event.outcome != "executed" or answer is None:
            continue
        data = {"x": event.x, "y": event.y} if event.x is not None else {}
        line = {
            "timestamp": event.at,
            "data": {
                "game_id": log.header.game_id,
                "state": answer.state,
                "levels_completed": answer.levels_completed,
                "win_levels": answer.win_levels,
                "action_input": {"id": event.action, "data": data, "reasoning": None},
                "guid": guid,
                "full_reset": answer.full_reset,
                "available_actions": list(answer.available_actions),
                "frame": [_rows(frame) for frame in unpack_frames(answer.frames)],
            },
        }
        yield msgspec.json.encode(line) + b"\n"


def _rows(frame: bytes) -> list[list[int]]:
    return [list(frame[y * SIDE : (y + 1) * SIDE]) for y in range(SIDE)]


def read_recording(path: Path) -> RecordedGame:
    """Read a recording; raise LogProblem with the line that is wrong."""
    answers: list[RecordedAnswer] = []
    game_id, guid = "", None
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
            if not line.strip():
                continue
            if len(answers) >= MOST_ANSWERS or len(line) > MAX_LINE_BYTES:
                message = f"{path}:{number}: larger than any recording"
                raise LogProblem(message)
            data, answer = _read_line(path, number, line)
            if game_id and data.game_id != game_id:
                message = f"{path}:{number}: game {data.game_id}, but the recording is of {game_id}"
                raise LogProblem(message)
            game_id, guid = data.game_id, guid or data.guid
            answers.append(answer)
    if not answers or answers[0].action != RESET:
        message = f"{path}:1: not a recording of the toolkit: it must begin with a RESET"
        raise LogProblem(message)
    return RecordedGame(game_id=game_id, guid=guid, answers=tuple(answers))


def _read_line(path: Path, number: int, line: bytes) -> tuple[_Data, RecordedAnswer]:
    where = f"{path}:{number}"
    try:
        record = msgspec.json.decode(line, type=_Line)
        frames = _frames(record.data.frame)
        at = _time(record.timestamp)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        message = f"{where}: not a line of a recording: {error}"
        raise LogProblem(message) from error
    data = record.data
    if data.action_input is None:
        message = f"{where}: does not say which action was done, so it cannot be played again"
        raise LogProblem(message)
    place = data.action_input.data or {}
    return data, RecordedAnswer(
        line=number,
        at=at,
        action=_action(data.action_input.id, where),
        x=_pixel(place.get("x"), where),
        y=_pixel(place.get("y"), where),
        state=data.state,
        levels_completed=data.score if data.levels_completed is None else data.levels_completed,
        win_levels=data.win_levels,
        full_reset=data.full_reset,
        available_actions=data.available_actions,
        frames=frames,
    )


def _time(text: str) -> str:
    """A time with its zone, which older recordings leave out."""
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).isoformat()


def _action(name: str | int, where: str) -> str:
    if isinstance(name, int) and 0 <= name < len(ACTIONS):
        return ACTIONS[name]
    if name not in ACTIONS:
        message = f"{where}: unknown action {name!r}"
        raise LogProblem(message)
    return str(name)


def _pixel(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < SIDE:
        message = f"{where}: {value!r} is not a pixel of the picture"
        raise LogProblem(message)
    return value


def _frames(layers: list[list[list[int]]] | None) -> tuple[bytes, ...] | None:
    if layers is None:
        return None
    frames = tuple(b"".join(bytes(row) for row in layer) for layer in layers)
    if any(len(frame) != FRAME_BYTES for frame in frames):
        message = "a frame is not 64x64"
        raise ValueError(message)
    return frames


class Replayer:
    """Plays a recording again in the engine, and writes the event log of what happened."""

    def __init__(self, engine: ToolkitEngine, log: LogWriter) -> None:
        self._engine = engine
        self._log = log
        self._tally = Tally()
        self._seq = 0
        self._has_frames = True

    def play(
        self, recorded: RecordedGame, make_header: Callable[[int, str], Header]
    ) -> tuple[str | None, bool]:
        """Return the first difference, and whether every frame was there to be compared."""
        for answered in recorded.answers:
            if self._is_over and answered.action != RESET:
                continue  # the toolkit answers, but nothing happens and nothing is counted
            seen = self._do(answered)
            if seen is None:
                return f"line {answered.line} ({answered.action}): the game breaks here", False
            if self._seq == 0:
                self._log.append(make_header(seen.win_levels, answered.at))
            if difference := _difference(answered, seen):
                return f"line {answered.line} ({answered.action}): {difference}", False
            self._has_frames &= answered.frames is not None
            self._record(answered, seen)
        last = recorded.answers[-1]
        self._log.append(End(seq=self._seq, at=last.at, reason="player_quit"))
        return None, self._has_frames

    @property
    def _is_over(self) -> bool:
        return self._tally.state in ("WIN", "GAME_OVER")

    def _do(self, answered: RecordedAnswer) -> Observation | None:
        # The toolkit resets a game when it makes it, so the first line needs no action.
        if self._seq == 0:
            return self._engine.start()
        return self._engine.act(answered.action, answered.x, answered.y)

    def _record(self, answered: RecordedAnswer, seen: Observation) -> None:
        answer = seen.to_answer()
        self._tally.execute(self._seq, answered.action, answer)
        self._log.append(
            Event(
                seq=self._seq,
                at=answered.at,
                received={"recording": answered.line},
                outcome="executed",
                action=answered.action,
                x=answered.x,
                y=answered.y,
                answer=answer,
                counters=self._tally.counters(),
            )
        )
        self._seq += 1


def _difference(answered: RecordedAnswer, seen: Observation) -> str | None:
    """Where the recording differs from the engine; what it leaves out is not compared."""
    pairs: list[tuple[str, object, object]] = [
        ("state", answered.state, seen.state),
        ("levels_completed", answered.levels_completed, seen.levels_completed),
        ("win_levels", answered.win_levels, seen.win_levels),
        ("full_reset", answered.full_reset, seen.full_reset),
        ("available_actions", answered.available_actions, seen.available_actions),
    ]
    for name, recorded_value, seen_value in pairs:
        if recorded_value is not None and recorded_value != seen_value:
            return f"{name} is {recorded_value!r} in the recording and {seen_value!r} in the engine"
    if answered.frames is not None and answered.frames != seen.frames:
        return "the frames differ"
    return None
