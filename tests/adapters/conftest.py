"""Recordings of the real agents, as an adapter gets them."""

import json
import shutil
import signal
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from assay.records.recording import RawLine, Recording, Turn, TurnEnd

TESTS = Path(__file__).parents[1]


def _lines(path: Path) -> list[RawLine]:
    return [RawLine(0, line) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack tests/recordings.tar.xz (made by scripts/pack_recordings.sh), once for each worker."""
    folder = tmp_path_factory.mktemp("archive")
    with tarfile.open(TESTS / "recordings.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "recordings"


@pytest.fixture
def archived_recording(recordings: Path) -> Callable[..., Recording]:
    """Give a recording of tests/recordings.tar.xz: AGENT, and a name for each turn."""

    def load(agent: str, *names: str) -> Recording:
        folder = recordings / agent
        turns, stderr = [], ""
        for name in names:
            code = int((folder / f"{name}.rc").read_text())
            killed = signal.Signals(-code).name if code < 0 else None
            end = TurnEnd(exit_code=abs(code) + 128 if killed else code, signal=killed)
            lines = partial(_lines, folder / f"{name}.jsonl")
            turns.append(Turn(text="x", end=end, lines=lines))
            stderr = (folder / f"{name}.stderr.txt").read_text(errors="replace").strip()
        return Recording(start_ms=0, end_ms=0, turns=tuple(turns), stderr=stderr)

    return load


@pytest.fixture
def own_recording(tmp_path: Path) -> Callable[[str, str], Recording]:
    """Give a recording of tests/recordings: AGENT-VERSION and scenario."""

    def load(agent: str, name: str) -> Recording:
        folder = TESTS / "recordings" / agent / name
        note = json.loads((folder / "end.json").read_text())
        home = tmp_path / f"{agent}-{name}"
        kept = home / ".local/share/opencode"
        shutil.rmtree(home, ignore_errors=True)
        (kept / "log").mkdir(parents=True)
        if (folder / "opencode.sql").exists():
            with closing(sqlite3.connect(kept / "opencode.db")) as connection:
                connection.executescript((folder / "opencode.sql").read_text())
        if (folder / "opencode.log").exists():
            (kept / "log/opencode.log").write_text((folder / "opencode.log").read_text())
        ended = note["end"]
        end = TurnEnd(
            exit_code=ended["exitCode"],
            signal=ended["signal"],
            timed_out=ended["timedOut"],
            lingered=bool(ended["lingered"]),
        )
        files = sorted(folder.glob("*.out"))
        ends = [TurnEnd(exit_code=0)] * (len(files) - 1) + [end]
        turns = [
            Turn(text="x", end=end, lines=partial(_lines, path))
            for path, end in zip(files, ends, strict=True)
        ]
        return Recording(
            start_ms=note["startMs"],
            end_ms=note["endMs"],
            turns=tuple(turns),
            stderr=note["stderr"],
            kept=home,
        )

    return load
