"""Check an adapter on recordings: how much of them it maps, and whether it reads what is expected.

A recording is a folder: 1.out, 2.out, … (the lines of each turn), end.json (how the last turn
ended), files/ (the agent's own session files) and expected.json (what is to be read from them).
"""

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from assay.pipeline.extract import failure_of
from assay.plugin import Adapter, Reading
from assay.records.recording import RawLine, Recording, Turn, TurnEnd

_TIMES = ("timestamp", "duration")


@dataclass(frozen=True)
class Conformity:
    """What an adapter made of recordings."""

    n_events: int = 0
    n_mapped: int = 0
    n_bytes: int = 0
    n_bytes_mapped: int = 0
    problems: tuple[str, ...] = ()
    """Event types never seen before, lines that are no events, and what was read wrongly."""
    unknown: dict[str, int] = field(default_factory=dict)

    @property
    def event_share(self) -> float:
        """The part of all events that was mapped."""
        return self.n_mapped / self.n_events if self.n_events else 1.0

    @property
    def byte_share(self) -> float:
        """The part of all bytes that was mapped."""
        return self.n_bytes_mapped / self.n_bytes if self.n_bytes else 1.0

    def __add__(self, other: "Conformity") -> "Conformity":
        """Put the findings on two recordings together."""
        kinds = {*self.unknown, *other.unknown}
        return Conformity(
            n_events=self.n_events + other.n_events,
            n_mapped=self.n_mapped + other.n_mapped,
            n_bytes=self.n_bytes + other.n_bytes,
            n_bytes_mapped=self.n_bytes_mapped + other.n_bytes_mapped,
            problems=(*self.problems, *other.problems),
            unknown={k: self.unknown.get(k, 0) + other.unknown.get(k, 0) for k in kinds},
        )

    def __str__(self) -> str:
        """Say it in a line, and one for each problem."""
        shares = f"{self.event_share:.1%} of events, {self.byte_share:.1%} of bytes mapped"
        return "\n  ".join([shares, *self.problems])


def check(adapter: Adapter, folder: Path) -> Conformity:
    """Check one recording; what is wrong with it stands in the problems."""
    recording = load_recording(folder)
    reading = adapter.read(recording)
    n_bytes, n_bytes_mapped = _bytes(adapter, recording)
    problems = [
        f"{folder.name}: unknown event {kind!r}, {n} times"
        for kind, n in reading.events.unknown.items()
    ]
    if reading.events.unparsed:
        problems.append(f"{folder.name}: {reading.events.unparsed} lines are not events")
    expected = folder / "expected.json"
    if expected.exists():
        wanted = msgspec.json.decode(expected.read_bytes())
        found = summary(recording, reading)
        problems += [f"{folder.name}: {text}" for text in _differences(wanted, found)]
    return Conformity(
        n_events=reading.events.total,
        n_mapped=reading.events.mapped,
        n_bytes=n_bytes,
        n_bytes_mapped=n_bytes_mapped,
        problems=tuple(problems),
        unknown=dict(reading.events.unknown),
    )


def load_recording(folder: Path) -> Recording:
    """Read a recording from its folder."""
    note: dict[str, Any] = msgspec.json.decode((folder / "end.json").read_bytes())
    ended = note["end"]
    last = TurnEnd(
        exit_code=ended.get("exitCode"),
        signal=ended.get("signal"),
        timed_out=bool(ended.get("timedOut")),
        lingered=bool(ended.get("lingered")),
    )
    paths = sorted(folder.glob("*.out"), key=lambda path: int(path.stem))
    ends = [TurnEnd(exit_code=0)] * (len(paths) - 1) + [last]
    kept = folder / "files"
    return Recording(
        start_ms=note.get("startMs", 0),
        end_ms=note.get("endMs", 0),
        turns=tuple(
            Turn(text="", end=end, lines=partial(_lines, path))
            for path, end in zip(paths, ends, strict=True)
        ),
        stderr=note.get("stderr", ""),
        kept=kept if kept.is_dir() else None,
    )


def summary(recording: Recording, reading: Reading) -> dict[str, Any]:
    """Give what is compared: steps without their times, answers, tokens, cause of a failure."""
    failure = failure_of(recording, reading)
    steps: list[dict[str, Any]] = msgspec.to_builtins(reading.steps)
    return {
        "steps": [{k: v for k, v in step.items() if k not in _TIMES} for step in steps],
        "outputs": reading.outputs,
        "usage": msgspec.to_builtins(reading.usage) if reading.usage else None,
        "cause": failure.cause.value if failure else None,
        "sessionId": reading.session_id,
    }


def write_expected(adapter: Adapter, recording: Recording, folder: Path) -> Path:
    """Write what is read today as what is expected from now on. Look it over before you keep it."""
    path = folder / "expected.json"
    found = summary(recording, adapter.read(recording))
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _lines(path: Path) -> list[RawLine]:
    return [RawLine(number, line) for number, line in enumerate(path.read_bytes().splitlines())]


def _bytes(adapter: Adapter, recording: Recording) -> tuple[int, int]:
    """Count the bytes of all lines, and of those that were mapped."""
    total = mapped = 0
    for turn in recording.turns:
        watch = adapter.watch()
        events = getattr(watch, "events", None)
        for line in turn.lines():
            before = events.mapped if events is not None else 0
            changed = watch.feed(line)
            total += len(line.text)
            if events.mapped > before if events is not None else changed:
                mapped += len(line.text)
    return total, mapped


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Say where a reading is not what was expected; what is not expected may be anything."""
    said: list[str] = []
    for name in sorted({*wanted} - {"steps"}):
        if wanted[name] != found.get(name):
            said.append(f"{name}: expected {_short(wanted[name])}, read {_short(found.get(name))}")
    steps, read = wanted.get("steps"), found["steps"]
    if steps is None:
        return said
    if len(steps) != len(read):
        said.append(f"steps: expected {len(steps)}, read {len(read)}")
    for number, (step, other) in enumerate(zip(steps, read, strict=False), 1):
        for key in step:
            if step[key] != other.get(key):
                place = f"step {number} ({step.get('type')}): {key}"
                said.append(f"{place}: expected {_short(step[key])}, read {_short(other.get(key))}")
    return said


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"
