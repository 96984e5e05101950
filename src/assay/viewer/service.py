"""The viewer's answers: overview, tables, rows, files and labels of the runs it was given."""

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay import __version__
from assay.compare.report import CompareOptions
from assay.records.files import read_regular
from assay.records.private import write_private
from assay.records.signatures import checked, signed
from assay.records.trial.files import entry_of
from assay.viewer.labels import LabelSheet, RunLabels, label_file, read_run_labels
from assay.viewer.library import Library, game_log, raw_files
from assay.viewer.overview import OpenRun, overview
from assay.viewer.prompts import Prompts, Query
from assay.viewer.requests import TapeOfTrial
from assay.viewer.search import Searcher
from assay.viewer.why import why

_MOST_AT_ONCE = 500
_PATIENCE = 10.0
"""A view that took one second to make is remade after ten at the earliest."""


class _View:
    """The overview of some runs, and for which sizes of their files it was made."""

    def __init__(self, sizes: tuple[int, ...], page: dict[str, Any], took_s: float) -> None:
        self.sizes, self.page, self.took_s = sizes, page, took_s
        self.made_s = time.monotonic()

    def is_good(self, sizes: tuple[int, ...]) -> bool:
        return sizes == self.sizes or time.monotonic() - self.made_s < _PATIENCE * self.took_s


class ViewerService:
    """Answers questions about runs; every answer is ready to be sent as JSON."""

    def __init__(
        self, library: Library, options: CompareOptions, by: str, labels: Path | None = None
    ) -> None:
        self._library, self._options, self._by = library, options, by
        self._labels = labels
        self._views: dict[str, _View] = {}
        self._reasons: dict[str, _View] = {}
        self._prompts: dict[str, tuple[tuple[int, ...], Prompts]] = {}
        self._sheets: dict[str, LabelSheet] = {}
        self._searcher = Searcher()
        self._label_cache: dict[Path, tuple[tuple[int, int], RunLabels]] = {}
        self._making = threading.Lock()

    def overview(self, runs: str) -> dict[str, Any]:
        """Describe the chosen runs, with the list of all there are."""
        version = self._library.refresh()
        shown = self._library.chosen(runs)
        view = self._viewed(runs, shown)
        if view.sizes != _sizes(shown):
            version = -1  # the view is older than the files: the page asks again
        labels = self._run_labels(shown)
        about = [
            one | {"labels": found.shown}
            for one, found in zip(view.page["runs"], labels, strict=True)
        ]
        listed = self._library.listing() if self._library.has_folders else None
        can_label = any(run.index.kind == "capture" for run in shown)
        more = {"runs": about, "version": version, "library": listed, "canLabel": can_label}
        return view.page | more

    def state(self, runs: str) -> dict[str, Any]:
        """Return the version, which changes when a file does, and how far the runs are."""
        version = self._library.refresh()
        now = time.time()  # of the same clock as in the states
        return {"version": version, "live": self._library.live(runs), "now": now}

    def prompts(self, runs: str, query: Query) -> dict[str, Any]:
        """Return a page of the table."""
        limited = msgspec.structs.replace(query, limit=min(query.limit, _MOST_AT_ONCE))
        return self._joined(runs).page(limited)

    def around(self, runs: str, query: Query, prompt_id: str) -> dict[str, Any] | None:
        """Return the prompts before and after one in the table."""
        return self._joined(runs).around(query, prompt_id)

    def prompt(self, runs: str, prompt_id: str) -> dict[str, Any] | None:
        """Return one prompt of the table."""
        joined = self._joined(runs)
        number = joined.find(prompt_id)
        return None if number is None else joined.row(number)

    def line(self, runs: str, label: str, prompt_id: str) -> bytes | None:
        """Return the row of a prompt in a run, as it stands in the file."""
        found = self._found(runs, label, prompt_id)
        return found[1] if found else None

    def game(self, runs: str, label: str, prompt_id: str, number: int) -> dict[str, Any] | None:
        """Return the log of a game, line by line."""
        path, entry = self._entry(runs, label, prompt_id, number)
        log = game_log(path.parent, entry) if path and entry else None
        if log is None:
            return None
        return {"lines": log.read_text(encoding="utf-8", errors="replace").splitlines()}

    def raw(self, runs: str, label: str, prompt_id: str, number: int) -> dict[str, Any] | None:
        """Return the raw streams of a trial."""
        path, entry = self._entry(runs, label, prompt_id, number)
        return {"files": raw_files(path.parent, prompt_id, entry)} if path and entry else None

    def requests(self, runs: str, label: str, prompt_id: str, number: int) -> dict[str, Any] | None:
        """List what the agent of a trial asked its models."""
        path, entry = self._entry(runs, label, prompt_id, number)
        if not path or not entry:
            return None
        with TapeOfTrial(path.parent, prompt_id, entry) as tape:
            return tape.listing(entry.get("trajectory") or [])

    def request(
        self, runs: str, label: str, prompt_id: str, number: int, request: int
    ) -> dict[str, Any] | None:
        """Return one of these requests in full."""
        path, entry = self._entry(runs, label, prompt_id, number)
        if not path or not entry:
            return None
        with TapeOfTrial(path.parent, prompt_id, entry) as tape:
            return tape.request(request)

    def why(self, runs: str) -> dict[str, Any]:
        """Say why trials of the chosen runs failed."""
        shown = self._library.chosen(runs)
        kept = self._reasons.get(runs)
        if kept is None or not kept.is_good(_sizes(shown)):
            began_s = time.monotonic()
            kept = _View(_sizes(shown), why(shown), time.monotonic() - began_s)
            self._reasons[runs] = kept
        return kept.page

    def search(self, runs: str, text: str, after: str) -> dict[str, Any]:
        """Find places in the trials; an empty query only has the words indexed."""
        shown = self._library.chosen(runs)
        return self._searcher.search(shown, self._joined(runs), text, after)

    def sheet(self, runs: str) -> dict[str, Any]:
        """Return the rows to label, without the grader's verdicts."""
        sheet = self._sheet(runs)
        return sheet if isinstance(sheet, dict) else sheet.shown()

    def set_label(self, runs: str, number: int, label: str | None) -> dict[str, Any]:
        sheet = self._sheet(runs)
        return sheet if isinstance(sheet, dict) else sheet.set(number, label)

    def _viewed(self, runs: str, shown: Sequence[OpenRun]) -> _View:
        sizes = _sizes(shown)
        with self._making:  # requests that come meanwhile wait instead of computing the same
            view = self._views.get(runs)
            if view is None or not view.is_good(sizes):
                began_s = time.monotonic()
                page = self._stored_overview(shown, sizes)
                view = self._views[runs] = _View(sizes, page, time.monotonic() - began_s)
        return view

    def _stored_overview(self, shown: Sequence[OpenRun], sizes: tuple[int, ...]) -> dict[str, Any]:
        """Read the overview of runs that have not changed since; else make it and keep it."""
        title = " · ".join(run.label for run in shown) or "Runs"
        if not shown:
            return overview(title, shown, self._options)
        names = [(run.label, str(run.path.resolve())) for run in shown]
        about = (__version__, names, sizes, self._options.margin, self._options.seed, self._by)
        mark = hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:24]
        folder = shown[0].index.folder
        target = folder / f"overview-{mark}.json"
        try:
            kept = checked(read_regular(target), mark)
            if kept is not None:
                stored: dict[str, Any] = msgspec.json.decode(kept)
                return stored
        except (OSError, msgspec.MsgspecError):
            pass
        page = overview(title, shown, self._options)
        data = msgspec.json.encode(page)
        # One overview is kept in a folder: the sizes in its name change with every new row.
        for old in folder.glob("overview-*.json"):
            old.unlink(missing_ok=True)
        write_private(target, signed(data, mark))
        # Decoded again, so that it has the same types as one read from disk.
        plain: dict[str, Any] = msgspec.json.decode(data)
        return plain

    def _joined(self, runs: str) -> Prompts:
        shown = self._library.chosen(runs)
        sizes = _sizes(shown)
        with self._making:
            known = self._prompts.get(runs)
            if known is None or known[0] != sizes:
                known = self._prompts[runs] = (sizes, Prompts([run.index for run in shown]))
            known[1].labels = [found.words for found in self._run_labels(shown)]
        return known[1]

    def _run_labels(self, shown: Sequence[OpenRun]) -> list[RunLabels]:
        """Read the labels of each run; again only when the sheet or the run has changed."""
        found = []
        for number, run in enumerate(shown):
            own = self._labels if number == 0 else None
            sheet = own or label_file(run.path)
            about = sheet.stat() if sheet.is_file() else None
            mark = (run.index.meta.size, about.st_mtime_ns if about else 0)
            kept = self._label_cache.get(run.path)
            if kept is None or kept[0] != mark:
                labels = read_run_labels(run.index, sheet) if about else RunLabels()
                kept = self._label_cache[run.path] = (mark, labels)
            found.append(kept[1])
        return found

    def _found(self, runs: str, label: str, prompt_id: str) -> tuple[OpenRun, bytes] | None:
        shown = self._library.chosen(runs)
        number = next((n for n, run in enumerate(shown) if run.label == label), None)
        joined = self._joined(runs)
        prompt = joined.find(prompt_id)
        if number is None or prompt is None:
            return None
        row = joined.file_row(number, prompt)
        return None if row is None else (shown[number], shown[number].index.line(row))

    def _entry(
        self, runs: str, label: str, prompt_id: str, number: int
    ) -> tuple[Path | None, dict[str, Any] | None]:
        found = self._found(runs, label, prompt_id)
        if found is None:
            return None, None
        return found[0].path, entry_of(msgspec.json.decode(found[1]), number)

    def _sheet(self, runs: str) -> LabelSheet | dict[str, Any]:
        shown = [run for run in self._library.chosen(runs) if run.index.kind == "capture"]
        if not shown:
            return {"why": "Labels are for captures; these are repeated trials."}
        if runs not in self._sheets:
            target = self._labels or label_file(shown[0].path)
            sheet = LabelSheet.open(shown[0].path, target, self._by)
            if isinstance(sheet, str):
                return {"why": sheet}
            self._sheets[runs] = sheet
        return self._sheets[runs]


def _sizes(shown: Sequence[OpenRun]) -> tuple[int, ...]:
    return tuple(run.index.meta.size for run in shown)
