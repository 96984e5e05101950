"""Check an adapter on recordings: how much of them it maps, and whether it reads what is expected.

A recording is a folder: 1.out, 2.out, … (the lines of each turn), end.json (how the last turn
ended), files/ (the agent's own session files) and expected.json (the expected reading).
"""

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from assay.pipeline.extract import failure_of
from assay.plugin import Adapter, Reading, Watch
from assay.plugins import with_defaults
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.text import shortened

_TIMES = ("timestamp", "duration")


@dataclass(frozen=True)
class Conformity:
    """How well an adapter reads recordings."""

    n_events: int = 0
    n_mapped: int = 0
    n_bytes: int = 0
    n_bytes_mapped: int = 0
    problems: tuple[str, ...] = ()
    """Unknown event types, lines that are not events, and differences from what is expected."""
    unknown: dict[str, int] = field(default_factory=dict)

    @property
    def event_share(self) -> float:
        return self.n_mapped / self.n_events if self.n_events else 1.0

    @property
    def byte_share(self) -> float:
        return self.n_bytes_mapped / self.n_bytes if self.n_bytes else 1.0

    def __add__(self, other: "Conformity") -> "Conformity":
        """Combine the results for two recordings."""
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
        """One line with the shares, and one for each problem."""
        shares = f"{self.event_share:.1%} of events, {self.byte_share:.1%} of bytes mapped"
        return "\n  ".join([shares, *self.problems])


def check(adapter: Adapter, folder: Path) -> Conformity:
    """Check one recording; errors are listed in its problems."""
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
    # A turn that was followed by another one ended well.
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
    """Return what is compared: steps without times, answers, usage, cause of a failure."""
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
    """Write the current reading as the expected one. Check it before you keep it."""
    path = folder / "expected.json"
    found = summary(recording, adapter.read(recording))
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _lines(path: Path) -> list[RawLine]:
    return [RawLine(number, line) for number, line in enumerate(path.read_bytes().splitlines())]


def _bytes(adapter: Adapter, recording: Recording) -> tuple[int, int]:
    """Return the bytes of all lines, and of those that were mapped.

    A watch without event counts (a plugin's own) has mapped a line if it returned steps for it.
    """
    total = mapped = 0
    for turn in recording.turns:
        watch = with_defaults(Watch, adapter.watch())
        events = watch.events
        for line in turn.lines():
            before = events.mapped if events is not None else 0
            changed = watch.feed(line)
            total += len(line.text)
            if events.mapped > before if events is not None else changed:
                mapped += len(line.text)
    return total, mapped


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Describe how a reading differs from the expected one; what that omits may be anything."""
    lines: list[str] = []
    for name in sorted({*wanted} - {"steps"}):
        if wanted[name] != found.get(name):
            lines.append(f"{name}: expected {_short(wanted[name])}, read {_short(found.get(name))}")
    steps, read = wanted.get("steps"), found["steps"]
    if steps is None:
        return lines
    if len(steps) != len(read):
        lines.append(f"steps: expected {len(steps)}, read {len(read)}")
    for number, (step, other) in enumerate(zip(steps, read, strict=False), 1):
        for key in step:
            if step[key] != other.get(key):
                place = f"step {number} ({step.get('type')}): {key}"
                lines.append(
                    f"{place}: expected {_short(step[key])}, read {_short(other.get(key))}"
                )
    return lines


def _short(value: Any) -> str:
    return shortened(repr(value), 120)
