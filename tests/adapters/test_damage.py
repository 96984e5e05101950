"""Whatever stands in a stream or a session file, reading it never breaks."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay import plugins
from assay.records.capture import AgentInfo, AnyStep, Failure, Usage
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef
from assay.testing.conformance import load_recording

RECORDINGS = Path(__file__).parents[1] / "recordings"
FOLDERS = sorted(
    path.parent
    for agent in ("claude", "codex", "gemini", "opencode")
    for path in RECORDINGS.glob(f"{agent}-*/*/end.json")
)
JUNK: list[Any] = [
    None,
    True,
    -1,
    1.5,
    1e300,
    10**30,
    10**400,
    "",
    "ünï\ud83c",
    [],
    [None],
    [[]],
    {},
    {"x": None},
    "x" * 99,
]


def damaged(value: Any, dice: random.Random) -> Any:
    """Replace some part of a value by something that does not belong there."""
    if dice.random() < 0.06:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {k: damaged(v, dice) for k, v in value.items() if dice.random() > 0.03}
    if isinstance(value, list):
        return [damaged(entry, dice) for entry in value]
    return value


def damaged_line(line: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.05:
        return line[: dice.randrange(len(line) + 1)]
    return json.dumps(damaged(json.loads(line), dice)).encode("utf-8", "surrogatepass")


def same(lines: list[RawLine]) -> list[RawLine]:
    return lines


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_damaged_recordings_are_read(folder: Path, tmp_path: Path) -> None:
    agent = folder.parent.name.partition("-")[0]
    adapter = plugins.adapter(PluginRef(name=agent, options={"max_turns": 3}))
    whole = load_recording(folder)
    for seed in range(40):
        dice = random.Random(seed)
        kept = tmp_path / str(seed)
        kept.mkdir()
        for path in sorted(folder.glob("files/*")):
            lines = [damaged_line(line, dice) for line in path.read_bytes().splitlines()]
            (kept / path.name).write_bytes(b"\n".join(lines))
        turns = []
        for turn in whole.turns:
            lines = [RawLine(t, damaged_line(text, dice)) for t, text, _ in turn.lines()]
            turns.append(Turn(text="", end=TurnEnd(exit_code=0), lines=partial(same, lines)))
        made = Recording(
            start_ms=whole.start_ms, end_ms=whole.end_ms, turns=tuple(turns), kept=kept
        )
        reading = adapter.read(made)
        assert len(reading.outputs) == len(turns)
        # A row with a field of another type could never be read again.
        for value, kind in (
            (reading.steps, list[AnyStep]),
            (reading.usage, Usage | None),
            (reading.agent, AgentInfo | None),
            (reading.failure, Failure | None),
            (reading.session_id, str | None),
            (reading.outputs, list[str]),
        ):
            assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == value
        for turn in made.turns:
            watch = adapter.watch()
            for line in turn.lines():
                watch.feed(line)
            assert isinstance(watch.output(), str)
