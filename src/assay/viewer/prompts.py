"""The prompts of several runs as one table: joined by id, filtered, sorted, a page at a time."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.compare.columns import Columns, Floats, Ints, tool_bit
from assay.compare.runs import mean_by_group
from assay.viewer.index import Index, id_hash

type Bools = NDArray[np.bool_]
_KEY_BYTES = 24  # ids and categories are sorted by their beginning, to keep the keys small
_FIELDS = {"score": "score", "time": "duration_ms", "cost": "cost_usd", "steps": "n_steps"}

_SHOWN = {
    "n": "number",
    "passed": "passed",
    "cause": "cause",
    "score": "score",
    "ms": "duration_ms",
    "usd": "cost_usd",
    "steps": "n_steps",
    "setup": "setup",
    "tools": "tools",
}


class Query(msgspec.Struct, frozen=True):
    """Filters, order and page of the table."""

    q: str = ""
    status: str = ""
    category: str = ""
    cause: str = ""
    label: str = ""
    """labelled, disagree, or what people said: pass, fail, ambiguous."""
    tool: str = ""
    in_run: int | None = None
    """Number of the run that status, cause, tool and time are about; None is any run."""
    least_ms: float | None = None
    most_ms: float | None = None
    """Prompts with a trial that took at least this long, and less than that."""
    pair: str = ""
    """Numbers of the two runs whose difference counts, such as 0,1: the first and the second."""
    sort: str = ""
    down: bool = False
    offset: int = 0
    limit: int = 100


class Prompts:
    """All prompts of some runs, in the order of their first appearance."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._indexes = list(indexes)
        columns = [index.columns for index in indexes]
        self._trials = [block.trials for block in columns]
        self._first_trial = [first_trials(block.rows) for block in columns]
        self.ids, self._where = _joined([block.rows for block in columns])
        self.labels: list[dict[str, dict[int, str]]] = [{} for _ in indexes]
        """Of each run what people said, by prompt and trial."""

    def find(self, prompt_id: str) -> int | None:
        """Return the number of a prompt."""
        found = np.flatnonzero(self.ids == np.uint64(id_hash(prompt_id)))
        return int(found[0]) if found.size else None

    def page(self, query: Query) -> dict[str, Any]:
        """Return one page of the table, and how many prompts there are."""
        chosen = self._sorted(self._chosen(query), query)
        rows = chosen[query.offset : query.offset + query.limit]
        return {"total": len(chosen), "rows": [self.row(int(n)) for n in rows]}

    def around(self, query: Query, prompt_id: str) -> dict[str, Any] | None:
        """Return the place of a prompt in the table, and the rows before and after it."""
        number = self.find(prompt_id)
        chosen = self._sorted(self._chosen(query), query)
        place = np.flatnonzero(chosen == number) if number is not None else chosen[:0]
        if not place.size:
            return None
        here = int(place[0])
        return {
            "position": here + 1,
            "total": len(chosen),
            "previous": self.row(int(chosen[here - 1])) if here else None,
            "next": self.row(int(chosen[here + 1])) if here + 1 < len(chosen) else None,
        }

    def row(self, prompt: int) -> dict[str, Any]:
        """Return one prompt with its trials in every run."""
        run = int(np.argmax(self._where[prompt] >= 0))
        index, row = self._indexes[run], int(self._where[prompt, run])
        prompt_id, head = index.text(row)
        category = index.meta.facts.categories[int(index.columns.rows["category"][row])]
        cells = [self._cell(run, prompt, prompt_id) for run in range(len(self._indexes))]
        return {"id": prompt_id, "head": head, "category": category, "cells": cells}

    def file_row(self, run: int, prompt: int) -> int | None:
        """Return which row of a run's file holds a prompt."""
        row = int(self._where[prompt, run])
        return None if row < 0 else row

    @cached_property
    def rates(self) -> Floats:
        """Pass rate of each prompt (rows) in each run (columns); NaN is not measured."""
        return self.means("passed")

    def tallies(self, run: int) -> tuple[Ints, Ints]:
        """How many trials of each prompt of a run passed, and how many were measured."""
        first, passed = self._first_trial[run], self._trials[run]["passed"]
        measured = ~np.isnan(passed)
        rows = self._where[self._where[:, run] >= 0, run]
        n_before = [
            np.concatenate(([0], np.cumsum(flags))) for flags in (measured & (passed > 0), measured)
        ]
        n_passed, n_measured = (n[first[rows + 1]] - n[first[rows]] for n in n_before)
        return n_passed.astype(np.int64), n_measured.astype(np.int64)

    def means(self, field: str) -> Floats:
        """Mean of a field over the trials of each prompt, for each run."""
        table = np.full(self._where.shape, np.nan)
        for run, trials in enumerate(self._trials):
            values, first = trials[field].astype(np.float64), self._first_trial[run]
            if len(values) != len(first) - 1:
                owners = np.repeat(np.arange(len(first) - 1), np.diff(first))
                values = mean_by_group(values, owners, len(first) - 1)
            here = self._where[:, run] >= 0
            table[here, run] = values[self._where[here, run]]
        return table

    def _any_trial(self, run: int, flags: Bools) -> Bools:
        """Return for each prompt whether any of its trials in a run has the flag."""
        first = self._first_trial[run]
        # The trials of a row are neighbours: flags before its end less those before its start.
        n_before = np.concatenate(([0], np.cumsum(flags)))
        return self._any_row(run, n_before[first[1:]] > n_before[first[:-1]])

    def _any_row(self, run: int, flags: Bools) -> Bools:
        """Return for each prompt whether its row in a run has the flag."""
        found = np.zeros(len(self.ids), dtype=bool)
        here = self._where[:, run] >= 0
        found[here] = flags[self._where[here, run]]
        return found

    def _chosen(self, query: Query) -> Ints:
        good = np.ones(len(self.ids), dtype=bool)
        if query.status:
            good &= self._has_status(query)
        if query.category:
            good &= self._has_category(query.category)
        if query.cause:
            good &= self._has_cause(query)
        if query.tool:
            good &= self._has_tool(query)
        if query.least_ms is not None or query.most_ms is not None:
            good &= self._has_duration(query)
        if query.label:
            good &= self._has_label(query)
        if query.q:
            good &= self._contains(query.q)
        return np.flatnonzero(good)

    def _has_label(self, query: Query) -> Bools:
        found = np.zeros(len(self.ids), dtype=bool)
        for run, _ in self._asked(query):
            for prompt_id in self.labels[run]:
                number = self.find(prompt_id)
                cell = self._cell(run, number, prompt_id) if number is not None else None
                trials = cell["trials"] if cell else ()
                if number is not None and any(_is_labelled(one, query.label) for one in trials):
                    found[number] = True
        return found

    def _asked(self, query: Query) -> Iterator[tuple[int, Index]]:
        """Yield the runs that a query is about."""
        for run, index in enumerate(self._indexes):
            if query.in_run is None or query.in_run == run:
                yield run, index

    def _has_category(self, wanted: str) -> Bools:
        found = np.zeros(len(self.ids), dtype=bool)
        for run, index in enumerate(self._indexes):
            names = index.meta.facts.categories
            if wanted in names:
                found |= self._any_row(run, index.columns.rows["category"] == names.index(wanted))
        return found

    def _has_cause(self, query: Query) -> Bools:
        found = np.zeros(len(self.ids), dtype=bool)
        for run, index in self._asked(query):
            names = index.meta.facts.causes
            if query.cause in names:
                wanted = index.columns.trials["cause"] == names.index(query.cause)
                found |= self._any_trial(run, wanted)
        return found

    def _has_tool(self, query: Query) -> Bools:
        found = np.zeros(len(self.ids), dtype=bool)
        for run, index in self._asked(query):
            bit = tool_bit(list(index.meta.facts.tools), query.tool)
            if bit:
                found |= self._any_trial(run, (index.columns.trials["tools"] & np.uint64(bit)) != 0)
        return found

    def _has_duration(self, query: Query) -> Bools:
        least = 0.0 if query.least_ms is None else query.least_ms
        most = np.inf if query.most_ms is None else query.most_ms
        found = np.zeros(len(self.ids), dtype=bool)
        for run, index in self._asked(query):
            times = index.columns.trials["duration_ms"]
            found |= self._any_trial(run, (times >= least) & (times < most))
        return found

    def _has_status(self, query: Query) -> Bools:
        status = query.status
        if status in _CHANGES:
            return self._changed(query)
        runs = [run for run, _ in self._asked(query)]
        rates = self.rates[:, runs]
        if status == "pass":
            found: Bools = (rates == 1).any(axis=1)
        elif status == "fail":
            found = (rates == 0).any(axis=1)
        elif status == "flaky":
            found = ((rates > 0) & (rates < 1)).any(axis=1)
        elif status == "differ":
            low = np.min(np.where(np.isnan(rates), np.inf, rates), axis=1)
            high = np.max(np.where(np.isnan(rates), -np.inf, rates), axis=1)
            found = low < high
        else:
            found = np.zeros(len(self.ids), dtype=bool)
            for run in runs:
                found |= self._any_trial(run, np.isnan(self._trials[run]["passed"]))
        return found

    def _changed(self, query: Query) -> Bools:
        """Return which prompts changed: in pass rate, or in score alone."""
        by_rate, by_score = self._differences(query.pair)
        with np.errstate(invalid="ignore"):
            found: Bools = {
                "regressed": by_rate < 0,
                "improved": by_rate > 0,
                "lower": ~((by_rate < 0) | (by_rate > 0)) & (by_score < 0),
                "higher": ~((by_rate < 0) | (by_rate > 0)) & (by_score > 0),
            }[query.status]
        return found

    def _differences(self, pair: str) -> tuple[Floats, Floats]:
        """Return what the second run has more than the first: of the pass rate, of the score."""
        n_runs = len(self._indexes)
        a, b = _pair(pair, n_runs)
        if b >= n_runs:  # a single run has no differences
            unknown = np.full(len(self.ids), np.nan)
            return unknown, unknown
        rates, scores = self.rates, self.means("score")
        return rates[:, b] - rates[:, a], scores[:, b] - scores[:, a]

    def _contains(self, words: str) -> Bools:
        """Search id and beginning of the input, block by block from disk."""
        # The texts are stored as JSON, so the words are encoded too. bytes.lower() changes ASCII
        # only, which keeps every offset.
        pattern = re.compile(re.escape(msgspec.json.encode(words.lower())[1:-1]))
        found = np.zeros(len(self.ids), dtype=bool)
        for run, index in enumerate(self._indexes):
            offsets = np.ascontiguousarray(index.columns.rows["text"])
            hits = np.zeros(len(offsets), dtype=bool)
            for start, block in index.text_blocks():
                found_at = (start + hit.start() for hit in pattern.finditer(block.lower()))
                places = np.fromiter(found_at, np.uint64)
                hits[np.searchsorted(offsets, places, side="right") - 1] = True
            found |= self._any_row(run, hits)
        return found

    def _sorted(self, chosen: Ints, query: Query) -> Ints:
        if query.sort in _FIELDS:
            keys = _row_mean(self.means(_FIELDS[query.sort]))
        elif query.sort == "rate":
            keys = _row_mean(self.rates)
        elif query.sort == "difference":
            by_rate, by_score = self._differences(query.pair)
            # Scores lie in 0..1: a hundredth of a thousandth of them only breaks ties.
            keys = by_rate + np.nan_to_num(by_score) * 1e-5
            keys = np.where(np.isnan(by_rate), by_score * 1e-5, keys)
        elif query.sort in ("id", "category"):
            keys = self._names(query.sort)
        else:
            return chosen
        mine = keys[chosen]
        if query.sort in ("id", "category"):
            order = np.argsort(mine, kind="stable")
            return chosen[order[::-1] if query.down else order]
        # What was not measured goes to the end in either direction.
        unknown = np.isnan(mine)
        order = np.argsort(np.where(unknown, np.inf, -mine if query.down else mine), kind="stable")
        return chosen[order]

    def _names(self, sort: str) -> NDArray[Any]:
        """Return keys that sort as the names do."""
        keys = np.zeros(len(self.ids), dtype=f"S{_KEY_BYTES}")
        for run in reversed(range(len(self._indexes))):  # the first run that has a prompt names it
            index = self._indexes[run]
            if sort == "category":
                names = [name.encode()[:_KEY_BYTES] for name in index.meta.facts.categories]
                mine = np.array(names, keys.dtype)[index.columns.rows["category"]]
            else:
                mine = np.array(list(_id_keys(index)), keys.dtype)
            here = self._where[:, run] >= 0
            keys[here] = mine[self._where[here, run]]
        return keys

    def _cell(self, run: int, prompt: int, prompt_id: str) -> dict[str, Any] | None:
        row = self._where[prompt, run]
        if row < 0:
            return None
        labels = self.labels[run].get(prompt_id, {})
        facts = self._indexes[run].meta.facts
        causes, setups = facts.causes, facts.setups
        first, last = self._first_trial[run][row : row + 2]
        columns = {name: self._trials[run][field][first:last] for name, field in _SHOWN.items()}
        trials: list[dict[str, Any]] = [
            {
                "n": int(columns["n"][i]),
                "passed": None if np.isnan(columns["passed"][i]) else int(columns["passed"][i]),
                "cause": causes[int(columns["cause"][i])],
                **{name: _number(columns[name][i]) for name in ("score", "ms", "usd")},
                "steps": int(columns["steps"][i]),
                "tools": int(columns["tools"][i]),
                **({"label": word} if (word := labels.get(int(columns["n"][i]))) else {}),
                **({"problems": lacked} if (lacked := setups[int(columns["setup"][i])]) else {}),
            }
            for i in range(last - first)
        ]
        passed = [one["passed"] for one in trials if one["passed"] is not None]
        return {
            "trials": trials,
            "measured": len(passed),
            "rate": _average(passed),
            **{name: _average([one[name] for one in trials]) for name in ("score", "ms", "usd")},
            "steps": _average([one["steps"] for one in trials]),
        }


def _is_labelled(trial: dict[str, Any], wanted: str) -> bool:
    """Whether a trial fulfils the filter; the page has the same for reports without a server."""
    label, passed = trial.get("label"), trial["passed"]
    if wanted == "labelled" or label is None:
        return label is not None
    if wanted != "disagree":
        return bool(label == wanted)
    return label != "ambiguous" and passed is not None and (label == "pass") != bool(passed)


_CHANGES = ("regressed", "improved", "lower", "higher")


def _pair(text: str, n_runs: int) -> tuple[int, int]:
    """Read the numbers of two runs; without any, or with wrong ones, the first two."""
    found = re.fullmatch(r"(\d{1,5}),(\d{1,5})", text, re.ASCII)
    if found and max(int(found[1]), int(found[2])) < n_runs:
        return int(found[1]), int(found[2])
    return 0, 1


def _joined(runs: Sequence[Columns]) -> tuple[NDArray[np.uint64], Ints]:
    """Number the prompts of all runs in the order of their first appearance.

    Returns their fingerprints and, for each prompt and run, the row of the file that holds it, -1
    where the run does not have it. Of rows with one id the last counts; rows without trials do not.
    """
    places = [np.flatnonzero(rows["n_trials"]) for rows in runs]
    found = [rows["id"][place] for rows, place in zip(runs, places, strict=True)]
    if len(found) == 1:  # the usual case, and much less work
        ordered = np.sort(found[0])
        if (ordered[1:] != ordered[:-1]).all():
            return found[0], places[0][:, None]
    everything = np.concatenate([np.zeros(0, np.uint64), *found])
    ids, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
    by_first = np.argsort(first, kind="stable")
    rank = np.empty(len(ids), dtype=np.int64)
    rank[by_first] = np.arange(len(ids))
    where = np.full((len(ids), len(runs)), -1, dtype=np.int64)
    start = 0
    for run, place in enumerate(places):
        where[rank[inverse[start : start + len(place)]], run] = place  # of equal ids the last stays
        start += len(place)
    return ids[by_first], where


def first_trials(rows: Columns) -> Ints:
    """Return where the trials of each row begin, and at the end their number."""
    return np.concatenate(([0], np.cumsum(rows["n_trials"]))).astype(np.int64)


def _id_keys(index: Index) -> Iterator[bytes]:
    """Yield the beginning of each id; a text is the JSON array of id and input."""
    for _, block in index.text_blocks():
        for line in block.splitlines():
            yield line[2 : 2 + _KEY_BYTES].partition(b'","')[0]


def _row_mean(table: Floats) -> Floats:
    known = ~np.isnan(table)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = np.where(known, table, 0.0).sum(axis=1) / known.sum(axis=1)
    return mean


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def _average(values: Sequence[float | None]) -> float | None:
    good = [value for value in values if value is not None]
    return sum(good) / len(good) if good else None
