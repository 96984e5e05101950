"""The recordings of tests/recordings.tar.xz as trials, read by the real adapters."""

import re
import shutil
import signal
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from assay import plugins
from assay.adapters.reading import epoch_ms
from assay.pipeline.extract import extract
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef, Prompt
from assay.records.trial import Trial

ARCHIVE = Path(__file__).parents[2] / "tests/recordings.tar.xz"
AGENTS = ("claude", "codex", "gemini", "opencode")


def unpack(folder: Path) -> Path:
    """Unpack the archive into a folder; returns the folder of the recordings."""
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    return folder / "recordings"


def trials(base: Path) -> Iterator[Trial]:
    """Yield every recording of a single turn; its id is AGENT/NAME."""
    for agent in AGENTS:
        for line in (base / agent / "INDEX.tsv").read_text().splitlines()[1:]:
            cells = line.split("\t")
            if (base / agent / f"{cells[0]}.jsonl").exists():
                # The indexes of two agents have the signal behind the memory, two behind the time.
                killed = cells[4 if agent in ("codex", "gemini") else 5]
                yield _trial(base / agent, agent, cells[0], int(cells[1]), bool(killed))


def _trial(base: Path, agent: str, name: str, code: int, killed: bool) -> Trial:
    kept = base / "kept" / name
    kept.mkdir(parents=True, exist_ok=True)
    sessions = [*base.glob(f"sessions/{name}.jsonl"), *base.glob(f"sessions/{name}.rollout-*")]
    start_ms, end_ms = _times(sessions, kept)
    end = TurnEnd(
        exit_code=abs(code) + 128 if code < 0 else code,
        signal=signal.Signals(-code).name if code < 0 else None,
        timed_out=killed,
        end_ms=end_ms - start_ms,
    )
    lines = partial(_lines, base / f"{name}.jsonl")
    stderr = next(base.glob(f"{name}.stderr*"))
    recording = Recording(
        start_ms=start_ms,
        end_ms=end_ms,
        turns=(Turn(text="do the task", end=end, lines=lines),),
        stderr=stderr.read_text(errors="replace")[-4096:].strip(),
        kept=kept if sessions else None,
    )
    adapter = plugins.adapter(PluginRef(name=agent))
    return extract(Prompt(id=f"{agent}/{name}", input="do the task"), recording, adapter)


def _times(sessions: list[Path], kept: Path) -> tuple[int, int]:
    """Return when a recording began and ended, as its session files tell; they go into kept."""
    times: list[float] = []
    for path in sessions:
        shutil.copy(path, kept)
        found = map(epoch_ms, re.findall(r'"timestamp":"([^"]+)"', path.read_text()))
        times += [moment for moment in found if moment is not None]
    return (round(min(times)) - 100, round(max(times)) + 100) if times else (0, 1000)


def _lines(path: Path) -> list[RawLine]:
    return [RawLine(n, line) for n, line in enumerate(path.read_bytes().splitlines())]
