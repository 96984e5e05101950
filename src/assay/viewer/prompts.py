"""The prompts of several runs as one table: joined by id, filtered, sorted, a page at a time."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.viewer.index import Index, Records, id_hash

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Bools = NDArray[np.bool_]
_KEY_BYTES = 24
_FIELDS = {"score": "score", "time": "ms", "cost": "usd", "steps": "steps"}


class Query(msgspec.Struct, frozen=True):
    """What a reader wants to see."""

    q: str = ""
    status: str = ""
    category: str = ""
    cause: str = ""
    sort: str = ""
    down: bool = False
    offset: int = 0
    limit: int = 100


class Column(NamedTuple):
    """One run, grouped: its trials in the order of the table's prompts."""

    order: Ints
    """Numbers of trials, those of one prompt together."""
    first: Ints
    """Where the trials of a prompt begin in order; one more at the end."""
    single: bool = False
    """Every prompt has exactly one trial: nothing to sum up."""

    def trials(self, prompt: int) -> Ints:
        """Give the trials of a prompt."""
        return self.order[self.first[prompt] : self.first[prompt + 1]]


class Prompts:
    """All prompts of some runs, in the order in which they are first met."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._indexes = list(indexes)
        self._records = [index.records for index in indexes]
        self.ids, parts = _joined(self._records)
        self.columns = [
            _grouped(records, part, len(self.ids))
            for records, part in zip(self._records, parts, strict=True)
        ]

    def find(self, prompt_id: str) -> int | None:
        """Give the number of a prompt."""
        found = np.flatnonzero(self.ids == np.uint64(id_hash(prompt_id)))
        return int(found[0]) if found.size else None

    def page(self, query: Query) -> dict[str, Any]:
        """Give one page of the table, and how many prompts there are."""
        chosen = self._chosen(query)
        chosen = self._sorted(chosen, query)
        rows = chosen[query.offset : query.offset + query.limit]
        return {"total": len(chosen), "rows": [self.row(int(n)) for n in rows]}

    def row(self, prompt: int) -> dict[str, Any]:
        """Give one prompt with its trials in every run."""
        cells = [self._cell(run, prompt) for run in range(len(self._indexes))]
        run = next(n for n, cell in enumerate(cells) if cell is not None)
        last = int(self.columns[run].trials(prompt)[-1])
        prompt_id, head = self._indexes[run].text(last)
        number = int(self._records[run]["category"][last])
        category = self._indexes[run].meta.categories[number]
        return {"id": prompt_id, "head": head, "category": category, "cells": cells}

    def trial(self, run: int, prompt: int) -> int | None:
        """Give the number of the last trial of a prompt: its line is the prompt's row."""
        trials = self.columns[run].trials(prompt)
        return int(trials[-1]) if trials.size else None

    @cached_property
    def rates(self) -> Floats:
        """Pass rate of each prompt (rows) in each run (columns); NaN is not measured."""
        return np.column_stack([self._mean(run, _passed(r)) for run, r in self._runs()])

    def means(self, field: str) -> Floats:
        """Mean of a field over the trials of each prompt, for each run."""
        return np.column_stack([self._mean(run, r[field].astype(float)) for run, r in self._runs()])

    def _runs(self) -> list[tuple[int, Records]]:
        return list(enumerate(self._records))

    def _mean(self, run: int, values: Floats) -> Floats:
        column = self.columns[run]
        if column.single:
            return values
        mine = values[column.order]
        known = ~np.isnan(mine)
        ends = np.concatenate(([0.0], np.cumsum(np.where(known, mine, 0.0))))
        counts = np.concatenate(([0], np.cumsum(known)))
        sums = ends[column.first[1:]] - ends[column.first[:-1]]
        n = counts[column.first[1:]] - counts[column.first[:-1]]
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Floats = sums / n
        return means

    def _any(self, run: int, flags: Bools) -> Bools:
        """Say of each prompt whether any of its trials bears the flag."""
        column = self.columns[run]
        if column.single:
            return flags
        ends = np.concatenate(([0], np.cumsum(flags[column.order])))
        found: Bools = ends[column.first[1:]] > ends[column.first[:-1]]
        return found

    def _chosen(self, query: Query) -> Ints:
        good = np.ones(len(self.ids), dtype=bool)
        if query.status:
            good &= self._has_status(query.status)
        for field, wanted, names in (
            ("category", query.category, [index.meta.categories for index in self._indexes]),
            ("cause", query.cause, [index.meta.causes for index in self._indexes]),
        ):
            if wanted:
                good &= self._has(field, wanted, names)
        if query.q:
            good &= self._says(query.q)
        return np.flatnonzero(good)

    def _has(self, field: str, wanted: str, names: list[list[str]]) -> Bools:
        found = np.zeros(len(self.ids), dtype=bool)
        for run, records in self._runs():
            if wanted in names[run]:
                found |= self._any(run, records[field] == names[run].index(wanted))
        return found

    def _has_status(self, status: str) -> Bools:
        rates = self.rates
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
            for run, records in self._runs():
                found |= self._any(run, records["passed"] < 0)
        return found

    def _says(self, words: str) -> Bools:
        """Search id and beginning of the input, block by block from disk."""
        pattern = re.compile(re.escape(msgspec.json.encode(words.lower())[1:-1]))
        found = np.zeros(len(self.ids), dtype=bool)
        for run, index in enumerate(self._indexes):
            hits = np.zeros(len(self._records[run]), dtype=bool)
            offsets = np.ascontiguousarray(self._records[run]["text"])
            for start, block in index.text_blocks():
                found_at = (start + hit.start() for hit in pattern.finditer(block.lower()))
                places = np.fromiter(found_at, np.uint64)
                hits[np.searchsorted(offsets, places, side="right") - 1] = True
            found |= self._any(run, hits)
        return found

    def _sorted(self, chosen: Ints, query: Query) -> Ints:
        if query.sort in _FIELDS:
            keys = _row_mean(self.means(_FIELDS[query.sort]))
        elif query.sort == "rate":
            keys = _row_mean(self.rates)
        elif query.sort in ("id", "category"):
            keys = self._names(query.sort)
        else:
            return chosen
        mine = keys[chosen]
        if query.sort in ("id", "category"):
            order = np.argsort(mine, kind="stable")
            return chosen[order[::-1] if query.down else order]
        # Not measured goes to the end, whichever way.
        unknown = np.isnan(mine)
        order = np.argsort(np.where(unknown, np.inf, -mine if query.down else mine), kind="stable")
        return chosen[order]

    def _names(self, sort: str) -> NDArray[Any]:
        """Give something that sorts as the names do."""
        names = np.zeros(len(self.ids), dtype=f"S{_KEY_BYTES}")
        for run in reversed(range(len(self._indexes))):
            column, records = self.columns[run], self._records[run]
            here = np.flatnonzero(column.first[1:] > column.first[:-1])
            last = column.order[column.first[here + 1] - 1]
            if sort == "category":
                known = [name.encode()[:_KEY_BYTES] for name in self._indexes[run].meta.categories]
                names[here] = np.array(known, names.dtype)[records["category"][last]]
            else:
                offsets, keys = self._id_keys(run)
                names[here] = keys[np.searchsorted(offsets, records["text"][last])]
        return names

    def _id_keys(self, run: int) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Give where each text begins, and the beginning of the id that stands there."""
        offsets, keys = [], []
        for start, block in self._indexes[run].text_blocks():
            for line in block.splitlines(keepends=True):
                offsets.append(start)
                keys.append(line[2 : 2 + _KEY_BYTES].partition(b'","')[0])
                start += len(line)
        return np.array(offsets, np.uint64), np.array(keys, f"S{_KEY_BYTES}")

    def _cell(self, run: int, prompt: int) -> dict[str, Any] | None:
        trials = self.columns[run].trials(prompt)
        if not trials.size:
            return None
        causes = self._indexes[run].meta.causes
        records = self._records[run][trials]
        told: list[dict[str, Any]] = [
            {
                "n": int(record["number"]),
                "passed": None if record["passed"] < 0 else int(record["passed"]),
                "cause": causes[int(record["cause"])],
                "score": _number(record["score"]),
                "ms": _number(record["ms"]),
                "usd": _number(record["usd"]),
                "steps": int(record["steps"]),
            }
            for record in records
        ]
        passed = [one["passed"] for one in told if one["passed"] is not None]
        return {
            "trials": told,
            "measured": len(passed),
            "rate": _average(passed),
            **{name: _average([one[name] for one in told]) for name in ("score", "ms", "usd")},
            "steps": _average([one["steps"] for one in told]),
        }


def _joined(parts: Sequence[Records]) -> tuple[NDArray[np.uint64], list[Ints]]:
    """Number the prompts of all runs in the order in which they are first met."""
    if len(parts) == 1 and _distinct(parts[0]["id"]):
        return np.ascontiguousarray(parts[0]["id"]), [np.arange(len(parts[0]))]
    everything = np.concatenate([records["id"] for records in parts]) if parts else np.zeros(0)
    ids, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
    rank = np.empty(len(ids), dtype=np.int64)
    by_first = np.argsort(first, kind="stable")
    rank[by_first] = np.arange(len(ids))
    numbers = rank[inverse]
    ends = np.cumsum([0, *(len(records) for records in parts)])
    return ids[by_first].astype(np.uint64), [numbers[a:b] for a, b in pairwise(ends.tolist())]


def _distinct(ids: NDArray[np.uint64]) -> bool:
    """Say whether no id comes twice: the usual case, and much less work."""
    ordered = np.sort(ids)
    return bool((ordered[1:] != ordered[:-1]).all())


def _grouped(records: Records, prompts: Ints, n_prompts: int) -> Column:
    """Bring the trials of each prompt together; of rows with one id the last counts."""
    counts = np.bincount(prompts, minlength=n_prompts)
    if len(prompts) == n_prompts and (prompts[1:] > prompts[:-1]).all():
        return Column(prompts, np.arange(n_prompts + 1), single=True)
    order = np.argsort(prompts, kind="stable")
    if counts.size and counts.max() > 1:
        last = np.zeros(n_prompts, dtype=np.uint64)
        np.maximum.at(last, prompts, records["offset"])
        alive = records["offset"] == last[prompts]
        order = order[alive[order]]
        counts = np.bincount(prompts[alive], minlength=n_prompts)
    first = np.concatenate(([0], np.cumsum(counts)))
    return Column(order, first)


def _passed(records: Records) -> Floats:
    passed = records["passed"]
    return np.where(passed < 0, np.nan, passed.astype(float))


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
