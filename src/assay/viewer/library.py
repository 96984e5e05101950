"""The runs that a viewer was given, and the files beside their rows."""

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.live import read_live
from assay.records.raw_streams import Attempt, KeptStream, named_streams, place_inside
from assay.records.rows import UNREADABLE, read_lines
from assay.records.trial import NUMBER
from assay.records.trial.files import detect_kind
from assay.records.trial.views import MadeByView
from assay.viewer.index import Index
from assay.viewer.leaderboard import Leaderboard
from assay.viewer.overview import OpenRun

_DEEPEST = 6
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_FILES = 2000
_NOT_RUNS = (".raw", ".workspaces", ".assay-index")
_PASSED_OVER = frozenset(
    {"raw", "logs", "workspaces", "node_modules", ".git", ".venv", "__pycache__", "site-packages"}
)


class Library:
    """Knows every run by a short key; opens an index when a run is first looked at."""

    def __init__(
        self, files: Sequence[tuple[str, Path]], folders: Sequence[Path], by: str = "category"
    ) -> None:
        self._files = [(label, path) for label, path in files]
        self._folders = list(folders)
        self._by = by
        self._open: dict[str, OpenRun] = {}
        self._labels: dict[str, tuple[str, Path]] = {}
        self._kinds: dict[tuple[str, int], str | None] = {}
        self.lock = threading.RLock()
        self.version = 0
        """Counts up with every change that was seen."""
        self._board = Leaderboard(self._note_news)
        self._scan()

    @property
    def has_folders(self) -> bool:
        """Whether there is a list to choose from."""
        return bool(self._folders)

    def listing(self) -> list[dict[str, Any]]:
        """Describe every run there is; counts only of those that are open."""
        with self.lock:
            self._scan()
            return [self._listed(key) for key in self._labels]

    def chosen(self, keys: str) -> list[OpenRun]:
        """Open the runs of a comma-separated list of keys; of an empty one, the given files."""
        with self.lock:
            wanted = [key for key in keys.split(",") if key in self._labels]
            if not keys:
                wanted = [_key(path) for _, path in self._files]
            return [self._opened(key) for key in wanted]

    def live(self, keys: str) -> list[dict[str, Any]]:
        """Say how far the chosen runs are; nothing of those that are not being written."""
        with self.lock:
            found = [(run.label, read_live(run.path)) for run in self.chosen(keys)]
        return [{"run": label, **msgspec.to_builtins(state)} for label, state in found if state]

    def refresh(self) -> int:
        """Read what was added to the open runs; return the version."""
        with self.lock:
            changed = [run.index.refresh() for run in self._open.values() if run.path.is_file()]
            if any(changed):
                self.version += 1
            return self.version

    def close(self) -> None:
        """Close all indexes."""
        self._board.close()
        with self.lock:
            for run in self._open.values():
                run.index.close()
            self._open.clear()

    def _note_news(self) -> None:
        with self.lock:
            self.version += 1

    def _scan(self) -> None:
        found = dict(self._labels)
        for label, path in self._files:
            found.setdefault(_key(path), (label, path))
        for folder in self._folders:
            for path in _result_files(folder):
                if _key(path) not in found and self._kind(path) is not None:
                    taken = {label for label, _ in found.values()}
                    found[_key(path)] = (_name(folder, path, taken), path)
        self._labels = found

    def _kind(self, path: Path) -> str | None:
        """Return what a file holds, remembered once it is not empty any more."""
        size = path.stat().st_size
        known = (str(path), min(size, 1))  # again when an empty file has got its first row
        if known not in self._kinds:
            try:
                self._kinds[known] = detect_kind(path) if size else None
            except InputError:
                self._kinds[known] = None
        return self._kinds[known]

    def _listed(self, key: str) -> dict[str, Any]:
        label, path = self._labels[key]
        about = path.stat() if path.is_file() else None
        shown = self._open.get(key)
        return {
            "key": key,
            "name": label,
            "kind": self._kind(path) if about else "gone",
            "size": about.st_size if about else 0,
            "changed": about.st_mtime if about else 0,
            "trials": shown.index.meta.n_trials if shown else None,
            "live": read_live(path),
            "summary": self._board.summary(path, shown.index if shown else None) if about else None,
        }

    def _opened(self, key: str) -> OpenRun:
        if key not in self._open:
            label, path = self._labels[key]
            index = Index(path, self._by)
            index.refresh()
            self._open[key] = OpenRun(label, index)
        return self._open[key]


def _result_files(folder: Path) -> Iterator[Path]:
    n_seen = 0
    root = folder.resolve()
    for name, folders, files in os.walk(root):
        here = Path(name)
        deep = len(here.relative_to(root).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(one for one in folders if _may_hold_runs(one))
        for file in sorted(files):
            if file.endswith(".jsonl") and not (here / file).is_symlink():
                n_seen += 1
                if n_seen > _MOST_FILES:
                    return
                yield folder / here.relative_to(root) / file


def _may_hold_runs(name: str) -> bool:
    return name not in _PASSED_OVER and not name.endswith(_NOT_RUNS)


def _name(folder: Path, path: Path, taken: set[str]) -> str:
    """Name a run for people: by its path, or by its agent where the path says nothing."""
    whole = path.relative_to(folder).with_suffix("")
    name = whole.as_posix()
    if _UUID.fullmatch(whole.parent.name):
        name = f"{_first_agent(path)} {whole.parent.name[:8]}".strip()
    if name in taken:
        name = f"{folder.name}/{whole.as_posix()}"
    return name if name not in taken else f"{name} {_key(path)}"


def _first_agent(path: Path) -> str:
    for _, line in read_lines(path):
        with contextlib.suppress(*UNREADABLE):
            return msgspec.json.decode(line, type=MadeByView).agent.adapter
        break
    return ""


def _key(path: Path) -> str:
    return hashlib.blake2b(str(path.resolve()).encode(), digest_size=5).hexdigest()


MOST_RAW = 2 * 1024 * 1024
MOST_LOG = 64 * 1024 * 1024
_MOST_KEPT_FILES = 40
_LOG_HEAD = b'{"type": "header",'


def game_log(base: Path, entry: dict[str, Any]) -> Path | None:
    """Find the event log of a game; evidence names it relative to the folder of the results."""
    metadata = entry.get("metadata")
    evidence = metadata.get("evidence") if isinstance(metadata, dict) else None
    name = evidence.get("log") if isinstance(evidence, dict) else None
    raw = place_inside(base, entry.get("raw"))
    for folder in (base, raw):  # without a folder for logs, it lies with the raw streams
        path = place_inside(folder, name) if folder is not None else None
        if path is not None and _is_log(path):
            return path
    return None


def _is_log(path: Path) -> bool:
    """Whether this is an event log; a row must not lead us to any other file of the folder."""
    if path.suffix != ".jsonl" or not path.is_file() or path.stat().st_size > MOST_LOG:
        return False
    with path.open("rb") as file:
        return file.read(len(_LOG_HEAD)).replace(b" ", b"").startswith(b'{"type":"header"')


def raw_files(
    base: Path, prompt_id: str, entry: dict[str, Any], most: int = MOST_RAW
) -> list[dict[str, Any]]:
    """Read what an agent printed in a trial, turn by turn; of long streams the beginning."""
    retried = entry.get("retried")
    attempt = Attempt(
        prompt_id,
        entry.get(NUMBER, 1),
        len(retried) if isinstance(retried, list) else 0,
    )
    streams = filter(_is_printed, named_streams(base, entry.get("raw"), attempt))
    return [_shown(one, most) for one in islice(streams, _MOST_KEPT_FILES)]


def _is_printed(stream: KeptStream) -> bool:
    return "/" not in stream.name and stream.name.endswith((".out", ".err")) and stream.size > 0


def _shown(stream: KeptStream, most: int) -> dict[str, Any]:
    text = stream.read(most).decode("utf-8", "replace")
    return {"name": stream.name, "size": stream.size, "cut": stream.size > most, "text": text}
