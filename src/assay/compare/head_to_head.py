"""Who wins which prompt, and how often each run beats each other one."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.compare.align import Aligned
from assay.compare.columns import Floats, Run
from assay.compare.strategy import pass_k

type Totals = list[Floats]
"""For each run the strategy's total of each of its prompts; NaN is not measured."""


def pairwise(aligned: Aligned, totals: Totals) -> list[dict[str, Any]]:
    """Count wins between every two runs, each pair for itself.

    As in the seed a prompt on which the totals are equal goes to the run named first, unless the
    two runs cannot be told apart on it at all: that is a tie.
    """
    rows = []
    for a, b in combinations(range(len(aligned.runs)), 2):
        _, in_a, in_b = aligned.both(a, b)
        left, right = totals[a][in_a], totals[b][in_b]
        same = _same(aligned.runs[a], in_a, aligned.runs[b], in_b)
        known = ~(np.isnan(left) | np.isnan(right))
        equal = known & (left == right)
        rows.append(
            {
                "runA": aligned.runs[a].label,
                "runB": aligned.runs[b].label,
                "aWins": int(((left > right) | (equal & ~same)).sum()),
                "bWins": int((right > left).sum()),
                "ties": int((equal & same).sum()),
                "notMeasured": int((~known).sum()),
            }
        )
    return rows


def strict_pairwise(aligned: Aligned, values: Totals) -> list[dict[str, Any]]:
    """Count wins of the higher value between every two runs; equal values are ties."""
    rows = []
    for a, b in combinations(range(len(aligned.runs)), 2):
        _, in_a, in_b = aligned.both(a, b)
        left, right = values[a][in_a], values[b][in_b]
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


def capture_prompts(aligned: Aligned, totals: Totals) -> Iterator[dict[str, Any]]:
    """Give a row for each prompt that two or more runs have."""
    latencies = [run.mean_of(run.duration_ms) for run in aligned.runs]
    errors = [run.mean_of(run.tool_error) > 0 for run in aligned.runs]
    for prompt in aligned.in_several:
        places = _places(aligned, prompt)
        yield {
            "id": aligned.ids[prompt],
            "winner": _winner(aligned, places, totals),
            "scores": _known(aligned, places, totals),
            "latencies": _known(aligned, places, latencies),
            "hadErrors": {aligned.runs[r].label: bool(errors[r][p]) for r, p in places},
        }


def trials_prompts(aligned: Aligned) -> Iterator[dict[str, Any]]:
    """Give a row for each prompt that two or more runs have repeated."""
    both = [pass_k(run) for run in aligned.runs]
    at_k, exp_k = [pair[0] for pair in both], [pair[1] for pair in both]
    flaky = [np.maximum(0.0, a - e) for a, e in both]
    for prompt in aligned.in_several:
        places = _places(aligned, prompt)
        yield {
            "id": aligned.ids[prompt],
            "capabilityWinner": _highest(aligned, places, at_k),
            "reliabilityWinner": _highest(aligned, places, exp_k),
            "passAtK": _known(aligned, places, at_k),
            "passExpK": _known(aligned, places, exp_k),
            "flakiness": _known(aligned, places, flaky),
        }


def _same(run_a: Run, in_a: Any, run_b: Run, in_b: Any) -> NDArray[np.bool_]:
    """Whether two runs cannot be told apart on a prompt."""
    alike = np.ones(len(in_a), dtype=bool)
    for name in ("passed", "score", "duration_ms", "tool_error"):
        left = run_a.mean_of(getattr(run_a, name))[in_a]
        right = run_b.mean_of(getattr(run_b, name))[in_b]
        alike &= (left == right) | (np.isnan(left) & np.isnan(right))
    return alike


def _places(aligned: Aligned, prompt: int) -> list[tuple[int, int]]:
    return [(r, p) for r, p in enumerate(aligned.where[prompt].tolist()) if p >= 0]


def _winner(aligned: Aligned, places: list[tuple[int, int]], totals: Totals) -> str | None:
    best, tied = None, False
    for r, p in places:
        total = totals[r][p]
        if np.isnan(total):
            return None
        if best is None or total > totals[best[0]][best[1]]:
            best, tied = (r, p), False
        elif total == totals[best[0]][best[1]]:
            tied = tied or bool(_same(aligned.runs[best[0]], [best[1]], aligned.runs[r], [p])[0])
    return None if best is None or tied else aligned.runs[best[0]].label


def _highest(aligned: Aligned, places: list[tuple[int, int]], values: Totals) -> str | None:
    found = [(values[r][p], r) for r, p in places]
    if any(np.isnan(value) for value, _ in found):
        return None
    top = max(value for value, _ in found)
    winners = [r for value, r in found if value == top]
    return aligned.runs[winners[0]].label if len(winners) == 1 else None


def _known(
    aligned: Aligned, places: list[tuple[int, int]], values: Totals
) -> dict[str, float | None]:
    return {
        aligned.runs[r].label: None if np.isnan(values[r][p]) else float(values[r][p])
        for r, p in places
    }
