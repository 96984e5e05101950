"""Finds places in all trials of some runs: the index names rows, which are then read."""

import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from assay.compare.columns import Columns, Ints
from assay.records.trial.files import entries_of
from assay.viewer.overview import OpenRun
from assay.viewer.prompts import Bools, Prompts
from assay.viewer.query import (
    NUMBERS,
    Part,
    Term,
    TrialFacts,
    hits,
    matches_trial,
    parse,
    snippet,
)
from assay.viewer.words import WordIndex, expression

MOST_HITS = 50
_MOST_OF_TRIAL = 5
_TIME_S = 0.7
"""After so long a search is interrupted; it continues with the next request."""


class Searcher:
    """Answers queries over the runs that a viewer has open."""

    def __init__(self) -> None:
        self._words: dict[str, WordIndex] = {}

    def prepare(self, shown: Sequence[OpenRun]) -> list[int]:
        """Have the words of all runs indexed; return how many rows of each are."""
        return [self._of(run).extend() for run in shown]

    def search(
        self, shown: Sequence[OpenRun], joined: Prompts, text: str, after: str
    ) -> dict[str, Any]:
        """Return some hits, and from where to search on; `after` is what an answer said."""
        terms = parse(text)
        n_indexed = self.prepare(shown)
        found: list[dict[str, Any]] = []
        first, last_row = _place(after, len(shown))
        until_s = time.monotonic() + _TIME_S
        following = None
        for number in range(first, len(shown)) if terms else ():
            look = _Look(shown[number], number, joined, terms)
            for row in self._candidates(look, n_indexed[number], last_row):
                if len(found) >= MOST_HITS or time.monotonic() > until_s:
                    following = f"{number}:{row - 1}"
                    break
                found += look.hits(row)
            if following is not None:
                break
            last_row = -1
        return {
            "hits": found,
            "next": following,
            "indexed": sum(n_indexed),
            "rows": sum(run.index.meta.n_rows for run in shown),
        }

    def _of(self, run: OpenRun) -> WordIndex:
        key = str(run.path)
        if key not in self._words:
            self._words[key] = WordIndex(run.index)
        return self._words[key]

    def _candidates(self, look: "_Look", n_indexed: int, after: int) -> Iterator[int]:
        """Yield the rows that may hold a hit, in the order of the file."""
        wanted = look.possible_rows()
        asked = expression(look.terms)
        if not asked:
            yield from (row for row in np.flatnonzero(wanted).tolist() if row > after)
            return
        for row in self._of(look.run).rows(asked, after):
            if row < min(n_indexed, len(wanted)) and wanted[row]:
                yield row


class _Look:
    """One run, and what is asked of it."""

    def __init__(self, run: OpenRun, number: int, joined: Prompts, terms: list[Term]) -> None:
        self.run, self.terms = run, terms
        self._number, self._joined = number, joined
        block = run.index.columns
        self._rows, self._trials = block.rows, block.trials
        n_trials = self._rows["n_trials"]
        self._first: Ints = np.concatenate(([0], np.cumsum(n_trials))).astype(np.int64)

    def possible_rows(self) -> Bools:
        """Tell rows that no trial-wide term rules out, by whole columns."""
        good = np.ones(len(self._trials["passed"]), dtype=bool)
        for term in self.terms:
            if term.field in NUMBERS and not term.negated:
                good &= _compared(term, _numbers(self._trials, term.field))
            elif term.field in ("failed", "passed") and term.value and not term.negated:
                good &= self._trials["passed"] == (term.field == "passed")
        n_before = np.concatenate(([0], np.cumsum(good)))
        possible: Bools = n_before[self._first[1:]] > n_before[self._first[:-1]]
        return possible

    def hits(self, row: int) -> list[dict[str, Any]]:
        """Look through one row."""
        first, last = self._first[row : row + 2].tolist()
        decoded = msgspec.json.decode(self.run.index.line(row))
        row_id = str(decoded.get("id"))
        found: list[dict[str, Any]] = []
        for trial, entry in zip(range(first, last), entries_of(decoded), strict=False):
            if matches_trial(self.terms, self._facts(row, trial, row_id)):
                matching = islice(hits(self.terms, entry, decoded.get("input")), _MOST_OF_TRIAL)
                found += [self._hit(row_id, trial, part) for part in matching]
        # Of rows with one id only the last is shown anywhere.
        return found if found and self._is_shown(row, row_id) else []

    def _is_shown(self, row: int, row_id: str) -> bool:
        prompt = self._joined.find(row_id)
        return prompt is not None and self._joined.file_row(self._number, prompt) == row

    def _facts(self, row: int, trial: int, row_id: str) -> TrialFacts:
        facts, column = self.run.index.meta.facts, self._trials
        passed = float(column["passed"][trial])
        numbers = {name: float(_numbers(column, name, trial)) for name in NUMBERS}
        known = {name: None if np.isnan(x) else x for name, x in numbers.items()}
        return TrialFacts(
            run=self.run.label,
            id=row_id,
            category=facts.categories[int(self._rows["category"][row])],
            cause=facts.causes[int(column["cause"][trial])],
            passed=None if np.isnan(passed) else bool(passed),
            cost=known["cost"],
            time=known["time"],
            steps=numbers["steps"],
            score=known["score"],
        )

    def _hit(self, row_id: str, trial: int, part: Part) -> dict[str, Any]:
        return {
            "run": self.run.label,
            "id": row_id,
            "n": int(self._trials["number"][trial]),
            "step": part.step,
            "kind": part.kind,
            "tool": str(part.call.get("name", "")) if part.call else "",
            "text": snippet(part.text, self.terms),
        }


def _numbers(trials: Columns, name: str, trial: int | slice = slice(None)) -> Any:
    field = {"cost": "cost_usd", "time": "duration_ms", "steps": "n_steps", "score": "score"}[name]
    values = trials[field][trial]
    return values / 1000 if name == "time" else values


def _compared(term: Term, values: Any) -> Bools:
    compared: Bools = {
        ">": np.greater,
        "<": np.less,
        ">=": np.greater_equal,
        "<=": np.less_equal,
    }.get(term.op, np.equal)(values, float(term.value or 0))
    return compared


def _place(after: str, n_runs: int) -> tuple[int, int]:
    """Read from where a search goes on: the number of the run and of its last row."""
    found = re.fullmatch(r"(\d{1,9}):(-1|\d{1,9})", after, re.ASCII)
    return (int(found[1]), int(found[2])) if found and int(found[1]) < n_runs else (0, -1)
