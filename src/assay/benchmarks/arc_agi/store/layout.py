"""Finds runs: by id, by the beginning of an id, as latest or previous; native and imported."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.problems import StoreProblem
from assay.benchmarks.arc_agi.store.card import Scorecard
from assay.benchmarks.arc_agi.store.files import read_json
from assay.benchmarks.arc_agi.store.meta import RunMeta

FOLDER = ".arc-agi-benchmarks"
HARNESSES = ("codex", "gemini", "opencode")
META, CARD, SCORES = "run-meta.json", "scorecard.json", "environment-scores.json"
SHORT = 8


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run folder with its meta data."""

    folder: Path
    meta: RunMeta
    imported: bool = False

    def card(self) -> Scorecard:
        """Read its scorecard."""
        try:
            return read_json(self.folder / CARD, Scorecard)
        except StoreProblem as problem:
            msg = f"run {self.meta.run_id}: {problem.message} (status: {self.meta.status})"
            raise StoreProblem(msg, hint="make it again with: assay arc rescore --write") from None

    @property
    def label(self) -> str:
        """Name it for people: who played, and which run."""
        return f"{self.meta.harness} {self.meta.run_id[:SHORT]}"


class Store:
    """One .arc-agi-benchmarks folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs_dir = root / "runs"
        self.cross_dir = root / "cross-harness"

    def import_dir(self, harness: str) -> Path:
        """Where imported runs of a harness are kept."""
        return self.cross_dir / harness / "runs"

    def native(self) -> list[StoredRun]:
        """Give our own runs, oldest first."""
        return _sorted(self._read(self.runs_dir, imported=False))

    def imported(self) -> list[StoredRun]:
        """Give the runs of all harnesses, oldest first."""
        if not self.cross_dir.is_dir():
            return []
        folders = [path / "runs" for path in sorted(self.cross_dir.iterdir())]
        return _sorted(run for f in folders for run in self._read(f, imported=True))

    def completed(self) -> list[StoredRun]:
        """Give every finished run, native and imported, oldest first."""
        runs = [*self.native(), *self.imported()]
        return _sorted(run for run in runs if run.meta.status == "completed")

    def find(self, name: str) -> StoredRun:
        """Find a run by its id, the beginning of it, `latest` or `previous`."""
        completed = self.completed()
        if name in ("latest", "previous"):
            place = -1 if name == "latest" else -2
            if not completed:
                msg = "No completed runs found."
                raise StoreProblem(msg, hint="play first: assay arc run random --games all")
            if len(completed) < -place:
                msg = "Only one completed run exists."
                raise StoreProblem(msg, hint="play another: assay arc run AGENT")
            return completed[place]
        matches = [r for r in (*self.native(), *self.imported()) if r.meta.run_id.startswith(name)]
        exact = [run for run in matches if run.meta.run_id == name]
        found = exact or (matches if len(name) >= 4 else [])
        if len(found) == 1:
            return found[0]
        if found:
            msg = f"Run {name} is not clear: {', '.join(run.meta.run_id for run in found)}"
            raise StoreProblem(msg, hint="give more of the id")
        raise _not_found(name, completed)

    def _read(self, folder: Path, *, imported: bool) -> Iterator[StoredRun]:
        """Read the runs of a folder; what is not a run is passed over."""
        if not folder.is_dir():
            return
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") or not (path / META).is_file():
                continue
            try:
                meta = read_json(path / META, RunMeta)
            except StoreProblem:
                continue
            if meta.run_id == path.name:
                yield StoredRun(folder=path, meta=meta, imported=imported)


def _sorted(runs: Iterator[StoredRun]) -> list[StoredRun]:
    return sorted(runs, key=lambda run: (run.meta.timestamp, run.meta.run_id))


def _not_found(name: str, completed: list[StoredRun]) -> StoreProblem:
    msg = f"Run {name} not found."
    if not completed:
        return StoreProblem(msg, hint="there are no completed runs; play: assay arc run random")
    lines = [f"{r.meta.run_id}  {r.meta.harness}  {r.meta.timestamp[:16]}" for r in completed[-10:]]
    return StoreProblem(msg, hint="Available runs:\n    " + "\n    ".join(lines))
