"""Passes that are in doubt: honeypots that passed, edited tests, answers that were read."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from assay.compare.detectors import findings
from assay.compare.explain import ROWS
from assay.compare.runs import Run
from assay.errors import InputError
from assay.records.explanation import ON_A_PASS, Doubts
from assay.records.rows import UNREADABLE, Place, RowFile, open_rows
from assay.records.trial.files import is_trials_row, split_trials
from assay.records.trial.views import ExplainedRow

type Treatment = Literal["fail", "keep", "show"]
"""What becomes of doubtful passes: count as failures, as passes, or as passes that are told."""
MOST_BYTES = 32 * 1024 * 1024
"""Larger files are searched only if somebody asks: it takes longer than all the rest."""
_MOST_CACHED = 64


class DoubtfulPasses(msgspec.Struct, frozen=True):
    """The passes of a file that are in doubt, each by its prompt and its place among the trials."""

    hacked: tuple[tuple[str, int], ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    n_honeypots: int = 0

    def counted(self, n_passed: int) -> Doubts:
        """Return how many they are, of so many passes of honest prompts."""
        return Doubts(
            n_passed=n_passed,
            n_doubtful=len(self.others),
            n_hacked=len(self.hacked),
            n_honeypots=self.n_honeypots,
        )


def doubts_of(run: Run, treatment: Treatment | None) -> Doubts:
    """Count the passes of a run that are in doubt; they may count as failures from now on.

    Without a treatment they are shown, but a large file is not searched.
    """
    if treatment == "keep" or (treatment is None and is_too_large(run.path)):
        return Doubts()
    found = doubtful_in(run.path)
    counted = found.counted(int(np.nansum(run.passed)) - len(found.hacked))
    if treatment == "fail" and counted:
        run.count_as_failed((*found.hacked, *found.others))
    return counted


def is_too_large(path: Path) -> bool:
    """Whether a file is searched only if somebody asks for it."""
    try:
        return path.stat().st_size > MOST_BYTES
    except OSError:
        return False


def doubt_sentences(sections: dict[str, Any]) -> list[str]:
    """Return what the sections of a comparison say of doubtful passes; nothing if there are none.

    For whatever words a verdict: sections["doubts"]["runs"] has the numbers of each run.
    """
    return list(sections["doubts"]["sentences"]) if "doubts" in sections else []


def doubtful_in(path: Path) -> DoubtfulPasses:
    """Find them in a file; what was found is kept while the file does not change."""
    try:
        about = os.stat(path)  # noqa: PTH116 - of a path that may be no file any more
    except OSError:
        return DoubtfulPasses()
    key = (str(path), about.st_ino, about.st_size, about.st_mtime_ns)
    if key not in _found:
        if len(_found) >= _MOST_CACHED:
            _found.clear()
        _found[key] = _look(path)
    return _found[key]


_found: dict[tuple[str, int, int, int], DoubtfulPasses] = {}


def _look(path: Path) -> DoubtfulPasses:
    last: dict[str, tuple[list[int], list[int], int]] = {}
    with open_rows(path) as rows:
        for part in rows.map(lambda part: list(_look_at_lines(part))):
            last.update(part)  # of rows with the same id the last one counts
    return DoubtfulPasses(
        hacked=tuple((name, n) for name, (found, _, _) in last.items() for n in found),
        others=tuple((name, n) for name, (_, found, _) in last.items() for n in found),
        n_honeypots=sum(n for _, _, n in last.values()),
    )


def _look_at_lines(part: RowFile) -> Iterator[tuple[str, tuple[list[int], list[int], int]]]:
    for place, line in part.placed_lines():
        if b'"tool_call"' not in line and b'"honeypot"' not in line:
            continue  # most rows of simple questions: nothing to find
        try:
            trials = list(_trials(place, line))
        except (*UNREADABLE, InputError):
            continue  # other commands say so
        hacked, others = list[int](), list[int]()
        for number, row in enumerate(trials):
            if row.is_hacked:
                hacked.append(number)
            elif row.passed and findings(row, tuple(ON_A_PASS)):
                others.append(number)
        if trials:
            n_honeypots = sum(row.honeypot is True for row in trials)
            yield trials[0].id, (hacked, others, n_honeypots)


def _trials(place: Place, line: bytes) -> Iterator[ExplainedRow]:
    lines = split_trials(place, line) if is_trials_row(line) else [line]
    return map(ROWS.decode, lines)
