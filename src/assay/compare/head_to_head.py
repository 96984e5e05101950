"""Who wins which prompt by the chosen strategy, and how often each run beats each other."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from assay.compare.columns import Floats, Ints
from assay.compare.packed import texts_at
from assay.compare.pairs import Aligned
from assay.compare.runs import Run
from assay.stats.passk import resampled_pass_at_k

_ROWS_AT_ONCE = 2_000
type Totals = list[Floats]
"""For each run the strategy's total of each of its prompts; NaN is not measured."""


def pairwise(aligned: Aligned, totals: Totals) -> list[dict[str, Any]]:
    """Count wins between every two runs, each pair on its own; equal totals are a tie."""
    rows = []
    for a, b in combinations(range(len(aligned.runs)), 2):
        in_a, in_b = aligned.both(a, b)
        left, right = totals[a][in_a], totals[b][in_b]
        rows.append(
            {
                "runA": aligned.runs[a].label,
                "runB": aligned.runs[b].label,
                "aWins": int((left > right).sum()),
                "bWins": int((right > left).sum()),
                "ties": int((left == right).sum()),
                "notMeasured": int((np.isnan(left) | np.isnan(right)).sum()),
            }
        )
    return rows


def capture_prompts(aligned: Aligned, totals: Totals) -> Iterator[list[bytes]]:
    """Yield a JSON row for each prompt that two or more runs have, many rows at a time."""
    latencies = [run.mean_of(run.duration_ms) for run in aligned.runs]
    errors = [run.mean_of(run.tool_error) > 0 for run in aligned.runs]
    rows = _Rows(aligned)
    return rows.write(
        {
            "winner": rows.winners(totals),
            "scores": totals,
            "latencies": latencies,
            "hadErrors": errors,
        }
    )


def trials_prompts(aligned: Aligned) -> Iterator[list[bytes]]:
    """Yield a JSON row for each prompt that two or more runs have repeated, many at a time."""
    both = [pass_k(run) for run in aligned.runs]
    at_k, exp_k = [pair[0] for pair in both], [pair[1] for pair in both]
    rows = _Rows(aligned)
    return rows.write(
        {
            "capabilityWinner": rows.winners(at_k),
            "reliabilityWinner": rows.winners(exp_k),
            "passAtK": at_k,
            "passExpK": exp_k,
            "flakiness": [np.maximum(0.0, a - e) for a, e in both],
        }
    )


class _Rows:
    """The prompts that several runs have, written as rows of a report.

    Columns are encoded some thousand values at a time and split again: many times faster than row
    by row, and memory holds no more than that.
    """

    def __init__(self, aligned: Aligned) -> None:
        self._aligned = aligned
        self._chosen = aligned.in_several
        self._where = aligned.where[self._chosen]
        self._labels = [run.label for run in aligned.runs]

    def write(self, fields: dict[str, Any]) -> Iterator[list[bytes]]:
        """Yield the rows as JSON; a field holds a winner per prompt, or a column per run."""
        for start in range(0, len(self._where), _ROWS_AT_ONCE):
            yield self._write(fields, slice(start, start + _ROWS_AT_ONCE))

    def _write(self, fields: dict[str, Any], some: slice) -> list[bytes]:
        where = self._where[some]
        ids = _texts(texts_at(self._aligned.ids, self._chosen[some]))
        columns: list[tuple[int | None, list[bytes]]] = [(None, ids)]
        for value in fields.values():
            if isinstance(value, _Winners):
                columns.append((None, value.tokens(some)))
            else:
                columns += [(r, _tokens(column, where[:, r])) for r, column in enumerate(value)]
        present = where >= 0
        if present.all():  # the usual case: one pattern for all rows
            pattern = self._pattern(fields, tuple([True] * len(self._labels)))
            values = zip(*(tokens for _, tokens in columns), strict=True)
            return list(map(pattern.__mod__, values))
        return [
            self._pattern(fields, here)
            % tuple(tokens[i] for r, tokens in columns if r is None or here[r])
            for i, here in enumerate(map(tuple, present.tolist()))
        ]

    def winners(self, totals: Totals) -> "_Winners":
        """Return the winner of each prompt: the one run that has the highest total alone."""
        table = np.full(self._where.shape, -np.inf)
        unknown = np.zeros(len(self._where), dtype=bool)
        for r, values in enumerate(totals):
            here = self._where[:, r] >= 0
            table[here, r] = values[self._where[here, r]]
            unknown |= here & np.isnan(table[:, r])
        # -inf stands for a run without the prompt; one that was not measured leaves no winner.
        best = np.argmax(np.nan_to_num(table, nan=-np.inf), axis=1)
        top = table[np.arange(len(table)), best]
        no_winner = unknown | ((table == top[:, None]).sum(axis=1) > 1)
        return _Winners(self._labels, np.where(no_winner, len(self._labels), best))

    def _pattern(self, fields: dict[str, Any], present: tuple[bool, ...]) -> bytes:
        text = b'{"id":%b'
        for name, value in fields.items():
            text += b"," + msgspec.json.encode(name) + b":"
            if isinstance(value, _Winners):
                text += b"%b"
                continue
            # The row is filled in with %: a percent sign in a label is doubled.
            keys = [msgspec.json.encode(label).replace(b"%", b"%%") for label in self._labels]
            slots = [key + b":%b" for key, here in zip(keys, present, strict=True) if here]
            text += b"{" + b",".join(slots) + b"}"
        return text + b"}"


class _Winners:
    """The winner of each prompt as the number of its run; one past the last run is no winner."""

    def __init__(self, labels: list[str], numbers: Ints) -> None:
        self._names = [*map(msgspec.json.encode, labels), b"null"]
        self._numbers = numbers

    def tokens(self, some: slice) -> list[bytes]:
        """Return encoded labels, or null."""
        return [self._names[number] for number in self._numbers[some].tolist()]


def _texts(texts: list[str]) -> list[bytes]:
    encoded = msgspec.json.encode(texts)
    if b"\\" in encoded:  # with escaped quotes a text may contain the separator
        return [msgspec.json.encode(text) for text in texts]
    return [b'"%b"' % text for text in encoded[2:-2].split(b'","')]


def _tokens(column: Any, where: Ints) -> list[bytes]:
    # Where a run lacks the prompt (-1), any value will do: the pattern has no slot for it.
    values = column[np.maximum(where, 0)].tolist()
    return msgspec.json.encode(values)[1:-1].split(b",")


_CAPTURE_WEIGHTS = {
    "COMPARE_QUALITY": 0.5,
    "COMPARE_LATENCY": 0.3,
    "COMPARE_RELIABILITY": 0.2,
}
_TRIALS_WEIGHTS = {
    "COMPARE_CAPABILITY": 0.4,
    "COMPARE_RELIABILITY": 0.4,
    "COMPARE_CONSISTENCY": 0.2,
}
type Weights = tuple[float, float, float]
"""In the order of their formula."""


def weights_of(given: Mapping[str, float], kind: str) -> Weights:
    """Return the weights of one kind of run, by the seed's names for them."""
    usual = _TRIALS_WEIGHTS if kind == "trials" else _CAPTURE_WEIGHTS
    first, second, third = (given.get(name, value) for name, value in usual.items())
    return first, second, third


def weigh(run: Run, weights: Weights) -> Floats:
    """Return the seed's total of each prompt; NaN where it was not measured."""
    if run.kind == "trials":
        at_k, exp_k = pass_k(run)
        flaky = np.maximum(0.0, at_k - exp_k)
        return at_k * weights[0] + exp_k * weights[1] + (1.0 - flaky) * weights[2]
    score = run.mean_of(run.score)
    duration_ms = run.mean_of(run.duration_ms)
    duration_ms = np.where(np.isnan(duration_ms), 10_000.0, duration_ms)
    clean = 1.0 - run.mean_of(run.tool_error)
    speed = 1.0 / (1.0 + duration_ms / 1000.0)
    return score * weights[0] + speed * weights[1] + clean * weights[2]


def rank_statistically(run: Run) -> Floats:
    """Return the score of each prompt, or for trials the resampled median of pass@k."""
    if run.kind != "trials":
        return run.mean_of(run.score)
    totals = np.full(len(run.ids), np.nan)
    seen = run.n_measured > 0
    if seen.any():
        totals[seen] = resampled_pass_at_k(run.n_passed[seen], run.n_measured[seen])[0]
    return totals


def pass_k(run: Run) -> tuple[Floats, Floats]:
    """Return the seed's passAtK and passExpK: as the rows have them, else from their trials."""
    n, c = run.n_measured, run.n_passed
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = c / n
        at_k = np.where(np.isnan(run.pass_at_k), 1.0 - (1.0 - rate) ** n, run.pass_at_k)
        exp_k = np.where(np.isnan(run.pass_exp_k), rate**n, run.pass_exp_k)
    return np.where(n > 0, at_k, np.nan), np.where(n > 0, exp_k, np.nan)
