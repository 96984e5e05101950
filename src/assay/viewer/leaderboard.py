"""The list of runs as a leaderboard: rate with interval, agent, cost and time of every file.

A file is read in the background when it is first listed; what was found is kept in the cache folder
of the user, so that the list is complete at once the next time.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay.records.private import private_folder, write_private
from assay.stats.rates import rate_interval
from assay.viewer.index import Index, indexed_size
from assay.viewer.prompts import Prompts

_VERSION = 1
_LARGE = 256 * 1024 * 1024
"""Larger files are read only when somebody opens them, unless their index is kept."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run in one row of the list."""

    version: int = _VERSION
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
        known = self._known.get(path) or _stored(path)
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
            with contextlib.suppress(OSError, ValueError):  # gone, or not a run after all
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
            write_private(_kept(path), msgspec.json.encode(summary))


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


def _kept(path: Path) -> Path:
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return private_folder("runs") / f"{name}.json"


def _stored(path: Path) -> RunSummary | None:
    try:
        kept: Any = msgspec.json.decode(_kept(path).read_bytes(), type=RunSummary)
    except (OSError, msgspec.MsgspecError):
        return None
    return kept if kept.version == _VERSION else None
