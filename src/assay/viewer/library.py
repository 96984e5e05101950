"""The runs that a viewer was given, listed as a leaderboard, and the files beside their rows."""

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay.errors import InputError
from assay.records.files import read_regular
from assay.records.live import read_live
from assay.records.private import private_folder, write_private
from assay.records.raw_streams import Attempt, named_streams, place_inside
from assay.records.rows import UNREADABLE, read_lines
from assay.records.signatures import checked, signed
from assay.records.trial import NUMBER
from assay.records.trial.files import detect_kind
from assay.records.trial.views import MadeByView
from assay.stats.rates import rate_interval
from assay.viewer.index import Index, indexed_size
from assay.viewer.overview import OpenRun
from assay.viewer.prompts import Prompts

_DEEPEST = 6
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_FILES = 2000
_NOT_RUNS = (".raw", ".workspaces", ".assay-index")  # the last of earlier versions
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
        self._board = Leaderboard(self._raise_version)
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

    def names(self) -> dict[str, Path]:
        """Return the file of every run there is, by its name."""
        with self.lock:
            self._scan()
            return dict(self._labels.values())

    def opened(self, names: Sequence[str]) -> list[OpenRun]:
        """Open the runs of these names, and read what was added to them."""
        keys = {label: key for key, (label, _) in self._labels.items()}
        with self.lock:
            found = [self._opened(keys[name]) for name in names]
        for run in found:
            run.index.refresh()
        return found

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

    def _raise_version(self) -> None:
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
        folders[:] = sorted(
            one
            for one in folders
            if not deep and one not in _PASSED_OVER and not one.endswith(_NOT_RUNS)
        )
        for file in sorted(files):
            if file.endswith(".jsonl") and not (here / file).is_symlink():
                n_seen += 1
                if n_seen > _MOST_FILES:
                    return
                yield folder / here.relative_to(root) / file


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


# The list of runs as a leaderboard. A file is read in the background when it is first listed; what
# was found is kept in the cache folder of the user, so that the list is complete at once the next
# time.

_SUMMARY_VERSION = 1
_LARGE = 256 * 1024 * 1024
"""Larger files are read only when somebody opens them, unless their index is kept."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run in one row of the list."""

    version: int = _SUMMARY_VERSION
    size: int = 0
    changed_ns: int = 0
    rate: float | None = None
    interval: tuple[float, float] | None = None
    agents: list[str] = []
    models: list[str] = []
    prompts: int = 0
    trials: int = 0
    cost_usd: float | None = None
    n_priced: int = 0
    median_ms: float | None = None


class Leaderboard:
    """Knows the summaries; reads one file after another in a thread of its own."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._known: dict[Path, RunSummary] = {}
        self._waiting: list[Path] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def summary(self, path: Path, opened: Index | None) -> RunSummary | None:
        """Return what is known of a run now; what is not known yet comes later."""
        try:
            about = path.stat()
        except OSError:
            return None
        known = self._known.get(path) or _stored_summary(path)
        if known and (known.size, known.changed_ns) == (about.st_size, about.st_mtime_ns):
            self._known[path] = known
            return known
        if opened is not None and opened.meta.n_trials:
            self._known[path] = summarize(opened, about)
            return self._known[path]
        if about.st_size < _LARGE or indexed_size(path) == about.st_size:
            self._ask_for(path)
        return known  # of a growing file the last that was seen

    def close(self) -> None:
        self._closed = True

    def _ask_for(self, path: Path) -> None:
        with self._lock:
            if path not in self._waiting:
                self._waiting.append(path)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._waiting:
                    self._thread = None
                    return
                path = self._waiting[0]
            # Gone, not a run after all, or not as it was recorded.
            with contextlib.suppress(OSError, ValueError, InputError):
                self._read(path)
                self._on_news()
            with self._lock:
                self._waiting.remove(path)

    def _read(self, path: Path) -> None:
        about = path.stat()
        index = Index(path, keep=indexed_size(path) > 0)
        try:
            index.refresh()
            summary = summarize(index, about)
        finally:
            index.close()
        self._known[path] = summary
        with contextlib.suppress(OSError):
            data = signed(msgspec.json.encode(summary), str(path.resolve()))
            write_private(_summary_file(path), data)


def summarize(index: Index, about: os.stat_result) -> RunSummary:
    """Describe one run by its columns."""
    prompts, trials = Prompts([index]), index.columns.trials
    rate, ends = rate_interval(*prompts.tallies(0))
    costs, times = trials["cost_usd"], trials["duration_ms"]
    known, took = costs[~np.isnan(costs)], times[~np.isnan(times)]
    agents = index.meta.facts.agents
    return RunSummary(
        size=about.st_size,
        changed_ns=about.st_mtime_ns,
        rate=rate,
        interval=(ends.low, ends.high) if ends else None,
        agents=sorted({" ".join(filter(None, agent[:2])) for agent in agents}),
        models=sorted({agent[2] for agent in agents if agent[2]}),
        prompts=len(prompts.ids),
        trials=index.meta.n_trials,
        cost_usd=float(known.sum()) if known.size else None,
        n_priced=int(known.size),
        median_ms=float(np.median(took)) if took.size else None,
    )


def _summary_file(path: Path) -> Path:
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return private_folder("runs") / f"{name}.json"


def _stored_summary(path: Path) -> RunSummary | None:
    try:
        data = checked(read_regular(_summary_file(path)), str(path.resolve()))
        kept: Any = msgspec.json.decode(data or b"", type=RunSummary)
    except (OSError, msgspec.MsgspecError):
        return None
    return kept if kept.version == _SUMMARY_VERSION else None


# The files beside the rows.

MOST_RAW = 2 * 1024 * 1024
MOST_LOG = 64 * 1024 * 1024
_MOST_KEPT_FILES = 40
_LOG_HEAD = b'{"type": "header",'


def game_log(base: Path, entry: dict[str, Any]) -> Path | None:
    """Find the event log of a game; evidence names it relative to the folder of the results."""
    metadata = entry.get("metadata")
    evidence = metadata.get("evidence") if isinstance(metadata, dict) else None
    name = evidence.get("log") if isinstance(evidence, dict) else None
    if not isinstance(name, str):  # as a rule
        return None
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
    printed = (
        one
        for one in named_streams(base, entry.get("raw"), attempt)
        if "/" not in one.name and one.name.endswith((".out", ".err")) and one.size > 0
    )
    return [
        {
            "name": one.name,
            "size": one.size,
            "cut": one.size > most,
            "text": one.read(most).decode("utf-8", "replace"),
        }
        for one in islice(printed, _MOST_KEPT_FILES)
    ]
