"""What all adapters use to read: JSON lines, the trial's clock, steps built from events."""

import contextlib
import json
import stat
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import UNSET

from assay.plugin import Watch
from assay.records.capture import (
    AnyStep,
    Events,
    Message,
    Plan,
    Thought,
    ToolCall,
    possible_usd,
)
from assay.records.recording import RawLine, Recording


def parse_line(line: bytes) -> Any:
    """Return the JSON value of a line, or None when it is not JSON.

    Invalid UTF-8, lone surrogates, NaN and 1e999 are replaced (by U+FFFD, ?, null), and the line is
    kept.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _parse_leniently(line)
    except RecursionError:  # nested too deeply: not worth a second try
        return None


_TOO_LARGE = 2**63
"""A number like this means nothing, and the next sum with it may fail."""


def value_at(value: Any, *names: str) -> Any:
    """Follow names through nested objects; None where one is missing.

    What an agent writes may have any shape, so nothing here raises.
    """
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def object_at(value: Any, *names: str) -> dict[str, Any]:
    """The same for an object; empty where there is none."""
    found = value_at(value, *names)
    return found if isinstance(found, dict) else {}


def text_at(value: Any, *names: str) -> str | None:
    """The same for a text."""
    found = value_at(value, *names)
    return found if isinstance(found, str) else None


def list_at(value: Any, *names: str) -> list[Any]:
    """The same for a list; empty where there is none."""
    found = value_at(value, *names)
    return found if isinstance(found, list) else []


def objects_at(value: Any, *names: str) -> list[dict[str, Any]]:
    """The same for a list; only the objects in it."""
    return [item for item in list_at(value, *names) if isinstance(item, dict)]


def number_at(value: Any, *names: str) -> float | None:
    """The same for a number."""
    found = value_at(value, *names)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if abs(found) < _TOO_LARGE else None


def cost_at(value: Any, *names: str) -> float | None:
    """The same for what a call of the model cost in USD, IMPOSSIBLE_USD if that cannot be true."""
    found = value_at(value, *names)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return possible_usd(found) if is_number else None


def integer_at(value: Any, *names: str) -> int | None:
    """The same for a whole number."""
    found = value_at(value, *names)
    return found if isinstance(found, int) and number_at(found) is not None else None


def join_texts(parts: list[Any]) -> str | None:
    """Join content blocks that are all texts; None if there is anything else among them."""
    texts = [text for part in parts if (text := text_at(part, "text")) is not None]
    return "\n".join(texts) if len(texts) == len(parts) else None


def or_unset(value: Any) -> Any:
    """Return the value for a field that is left out where nothing is known."""
    return UNSET if value is None else value


MOST_READ = 48 * 1024 * 1024
"""Bytes of a trial's events that become steps; the rest stands in the raw stream only."""
_MOST_ENDS = 32 * 1024 * 1024
"""Bytes of the events beyond that which tell how a turn ended."""
_PER_EVENT = 200
"""What an event counts for besides its bytes: the shortest takes memory, too."""


class EventReader(Watch):
    """The base of every reader of a turn: takes its lines, counts events, returns steps.

    A subclass reads one event in `_read` and calls `_unknown` for events it has no rule for.
    """

    ending: ClassVar[frozenset[str]] = frozenset()
    """Types of the events that tell how a turn ended or what it cost; they are few and short."""

    def __init__(self) -> None:
        self.events: Events = Events()
        self.n_read = 0
        """Bytes of the events so far; in a reader of a later turn, also those of earlier turns."""
        self._n_unknown = 0

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; return the steps it started or changed."""
        if not line.text or line.text.isspace():
            return ()
        self.events.total += 1
        if line.oversized:
            self.events.oversized += 1
            return ()
        size = len(line.text) + _PER_EVENT
        is_beyond = self.n_read + size > MOST_READ
        if is_beyond and not self._may_end(line.text):
            return self._leave_out()
        event = parse_line(line.text)
        if is_beyond and not self._is_ending(event):
            return self._leave_out()
        self.n_read += size
        if isinstance(event, dict):
            return self._count(event, line.t_ms)
        return self._read_other(event, line)

    def output(self) -> str:
        """The answer, as far as it is known."""
        raise NotImplementedError

    def _read(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        """Take one event; return the steps it started or changed."""
        raise NotImplementedError

    def _may_end(self, text: bytes) -> bool:
        """Whether a line is parsed although there were too many before it."""
        if self.n_read + len(text) + _PER_EVENT > MOST_READ + _MOST_ENDS:
            return False
        return not self.ending or any(name.encode() in text for name in self.ending)

    def _is_ending(self, event: Any) -> bool:
        """Whether an event is read although there were too many before it."""
        return text_at(event, "type") in self.ending

    def _leave_out(self) -> Sequence[AnyStep]:
        self.events.oversized += 1
        self.events.left_out = (self.events.left_out or 0) + 1
        return ()

    def _read_other(self, value: Any, line: RawLine) -> Sequence[AnyStep]:
        """Take a line that is not a JSON object; value is None when it is not JSON at all."""
        self.events.unparsed += 1
        return ()

    def _count(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        # An event with one unknown part counts as unknown, not as mapped.
        before = self._n_unknown
        steps = self._read(event, t_ms)
        self.events.mapped += self._n_unknown == before
        return steps

    def _unknown(self, kind: str) -> None:
        self._n_unknown += 1
        self.events.unknown[kind] = self.events.unknown.get(kind, 0) + 1


def read_turns[R: EventReader](
    recording: Recording, reader_of: Callable[[int | None], R]
) -> list[R]:
    """Read each turn with its own reader; turns are numbered only if there are several."""
    several = len(recording.turns) > 1
    readers: list[R] = []
    for number, turn in enumerate(recording.turns, 1):
        reader = reader_of(number if several else None)
        reader.n_read = readers[-1].n_read if readers else 0
        for line in turn.lines():
            reader.feed(line)
        readers.append(reader)
    return readers


def add_events(readers: Sequence[EventReader]) -> Events:
    """Add the counts of all turns; the last turn decides whether the agent finished."""
    total = Events(terminal=bool(readers) and readers[-1].ended)
    for events in (reader.events for reader in readers):
        for name in ("total", "mapped", "unparsed", "oversized"):
            setattr(total, name, getattr(total, name) + getattr(events, name))
        if events.left_out:
            total.left_out = (total.left_out or 0) + events.left_out
        for kind, n in events.unknown.items():
            total.unknown[kind] = total.unknown.get(kind, 0) + n
    return total


def last_session(readers: Sequence[EventReader]) -> str | None:
    """Return the id of the last known session."""
    return next((reader.session_id for reader in reversed(readers) if reader.session_id), None)


def _parse_leniently(line: bytes) -> Any:
    # The standard library's parser accepts what msgspec refuses; plain text is not worth a try.
    if not line.lstrip().startswith((b"{", b"[")):
        return None
    try:
        text = line.decode("utf-8", "replace")
        value = json.loads(text, parse_constant=lambda _name: None, parse_float=_finite)
        # Lone surrogates survive json.loads; encoding with "replace" turns them into "?".
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None


_SLACK_MS = 1000
"""Moments this far outside the trial are moved to its start or end."""


class TrialClock:
    """Converts epoch times into times since the start of the trial, for times within it."""

    def __init__(self, start_ms: float, end_ms: float) -> None:
        self._start_ms = start_ms
        self._length_ms = end_ms - start_ms

    def at(self, epoch_ms: float | None) -> float | None:
        """Return milliseconds since the start of the trial; None if that is outside of it."""
        if epoch_ms is None:
            return None
        # An agent's session file may also hold earlier turns, from before the trial.
        passed_ms = epoch_ms - self._start_ms
        if not -_SLACK_MS <= passed_ms <= self._length_ms + _SLACK_MS:
            return None
        return float(min(max(round(passed_ms), 0), self._length_ms))


class Segment(Protocol):
    """What a session file holds of one turn."""

    at_ms: float | None
    """When it started, since the epoch."""


def assign_segments[S: Segment](
    turns: Sequence[EventReader], segments: list[S], clock: TrialClock
) -> list[S | None]:
    """Assign each turn its part of a session file, which may be older than the trial."""
    within = [segment for segment in segments if clock.at(segment.at_ms) is not None]
    own = (within or segments)[-len(turns) :] if turns else []
    # A process that never opened the session has written nothing into its file.
    started = [turn for turn in turns if turn.session_id is not None]
    by_turn = dict(zip(map(id, started), own, strict=False))
    return [by_turn.get(id(turn)) for turn in turns]


def epoch_ms(text: Any) -> float | None:
    """Parse an ISO 8601 time stamp; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp() * 1000
    except ValueError:
        return None


def recent_files(folder: Path, pattern: str, since_ms: float) -> list[Path]:
    """Return files that were written since then, by name; none of what cannot be read.

    An agent may leave anything there: devices, pipes, links to nowhere, files of terabytes.
    """
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(OSError):
                about = path.stat()
                is_file = stat.S_ISREG(about.st_mode) and about.st_size <= _LONGEST_SESSION
                if is_file and about.st_mtime * 1000 >= since_ms:
                    found.append(path)
    return found


_LONGEST_SESSION = 1024**3

ENDED = frozenset(
    {
        *("completed", "complete", "success", "succeeded", "done", "finished"),
        *("failed", "error", "cancelled", "canceled", "rejected"),
    }
)
_RUNNING = frozenset({"in_progress", "running"})
_MOST_OPEN = 1000
"""Calls without an id among which a result without one looks for its own."""


class StepBuilder:
    """Collects the steps of one turn; tool calls are updated in place until they end."""

    def __init__(self, turn: int | None = None) -> None:
        self.steps: list[AnyStep] = []
        self._turn: Any = or_unset(turn)
        self._by_id: dict[str, int] = {}
        self._open: dict[int, None] = {}
        """The calls that have not ended, as an ordered set."""

    @property
    def has_open_call(self) -> bool:
        """Whether a call has not ended yet."""
        return bool(self._open)

    def thought(self, content: str, t_ms: int, parent: str | None = None) -> AnyStep:
        return self._add(
            Thought(content=content, timestamp=t_ms, turn=self._turn, parent=or_unset(parent))
        )

    def message(self, content: str, t_ms: int, parent: str | None = None) -> AnyStep:
        return self._add(
            Message(content=content, timestamp=t_ms, turn=self._turn, parent=or_unset(parent))
        )

    def plan(
        self, entries: list[Any], t_ms: int, content: str | None = None, parent: str | None = None
    ) -> AnyStep:
        return self._add(
            Plan(
                entries=entries,
                timestamp=t_ms,
                content=or_unset(content),
                turn=self._turn,
                parent=or_unset(parent),
            )
        )

    def tool(
        self, t_ms: int, *, status: str | None = None, guessed_id: bool = False, **known: Any
    ) -> AnyStep:
        """Start a tool call, or update the one that this event belongs to.

        known: name, call_id, input, output, error, exit_code, parent, duration; None is unknown.
        guessed_id: the id may be something else (the event's own id), so also match by name.
        """
        known = {name: value for name, value in known.items() if value is not None}
        # News of a call repeats no input; with one, a second call of the same name has begun.
        is_news = status in ENDED or (status in _RUNNING and "input" not in known)
        by_name = is_news and (guessed_id or "call_id" not in known)
        index = self._find(known, by_name=by_name, pending=status in _RUNNING)
        if index is None:
            return self._begin(t_ms, "pending" if status is None else status, known)
        step = self.steps[index]
        assert isinstance(step, ToolCall)
        if "name" in known and known["name"] == known.get("call_id"):
            del known["name"]  # a result that names its call only by id
        changes: dict[str, Any] = {k: v for k, v in known.items() if k != "call_id"}
        if status is not None:
            changes["status"] = status
        if status in ENDED and "duration" not in changes:
            changes["duration"] = t_ms - step.timestamp
        self.steps[index] = msgspec.structs.replace(step, **changes)
        self._close(index, status)
        return self.steps[index]

    def _begin(self, t_ms: int, status: str, known: dict[str, Any]) -> AnyStep:
        step = ToolCall(status=status, timestamp=t_ms, turn=self._turn, **known)
        index = len(self.steps)
        self.steps.append(step)
        if step.call_id is not UNSET:
            self._by_id[step.call_id] = index
        self._open[index] = None
        self._close(index, status)
        return step

    def _find(self, known: dict[str, Any], *, by_name: bool, pending: bool) -> int | None:
        """Find the call by id; a result without an id ends the oldest open call of its name.

        One without a name, too, ends the oldest call. pending: only a call that has not begun.
        """
        by_id = self._by_id.get(known.get("call_id", ""))
        if by_id is not None:
            return by_id
        if not by_name:
            return None
        for index in islice(self._open, _MOST_OPEN):
            step = self.steps[index]
            assert isinstance(step, ToolCall)
            if step.name == known.get("name", step.name) and not (
                pending and step.status != "pending"
            ):
                return index
        return None

    def _close(self, index: int, status: str | None) -> None:
        if status in ENDED:
            self._open.pop(index, None)

    def _add(self, step: AnyStep) -> AnyStep:
        self.steps.append(step)
        return step
