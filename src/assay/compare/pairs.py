"""Compare every two runs, paired by prompt: what differs, how sure that is, and what it cost."""

from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from assay.compare.align import Aligned
from assay.compare.columns import Floats, Run
from assay.stats.amounts import compare_amounts
from assay.stats.bounds import bound_difference
from assay.stats.gates import GateName, GateResult, judge_gate
from assay.stats.multiple import adjust_holm
from assay.stats.paired import PairedDifference, compare_rates, compare_scores
from assay.stats.verdict import Verdict, judge_difference

_AMOUNTS = ("duration_ms", "cost_usd", "tokens")
_NAMES = {"duration_ms": "latencyMs", "cost_usd": "costUsd", "tokens": "tokens"}


class Pair(msgspec.Struct, kw_only=True, rename="camel"):
    """Run B against run A, over the prompts both have."""

    run_a: str
    run_b: str
    n_shared: int
    pass_rate: PairedDifference
    score: PairedDifference
    adjusted_p: float | None = None
    """Holm over all pairs, of the pass rate's p."""
    adjusted_p_score: float | None = None
    verdict: Verdict | None = None
    bounds: Any = None
    """What not-measured trials leave open: the difference if they had all failed or passed."""
    amounts: dict[str, Any] = {}
    regressed: list[str] = []
    improved: list[str] = []
    """Prompts whose pass rate went down or up, worst first."""


def compare_pairs(aligned: Aligned, *, margin: float, seed: int) -> list[Pair]:
    """Compare every two runs, and adjust for how many comparisons that is."""
    pairs = [_compare(aligned, a, b, seed) for a, b in combinations(range(len(aligned.runs)), 2)]
    for name, field in (("adjusted_p", "pass_rate"), ("adjusted_p_score", "score")):
        tested = [p for p in pairs if getattr(p, field).p_value is not None]
        adjusted = adjust_holm([getattr(p, field).p_value for p in tested])
        for pair, p_value in zip(tested, adjusted.tolist(), strict=True):
            setattr(pair, name, p_value)
    for pair in pairs:
        pair.verdict = judge_difference(
            pair.pass_rate,
            margin=margin,
            adjusted_p=pair.adjusted_p,
            names=(pair.run_a, pair.run_b),
        )
    return pairs


def judge(pair: Pair, gate: GateName, margin: float) -> GateResult:
    """Judge run B of a pair against run A, for CI."""
    return judge_gate(gate, pair.pass_rate, margin=margin, adjusted_p=pair.adjusted_p)


def _compare(aligned: Aligned, a: int, b: int, seed: int) -> Pair:
    run_a, run_b = aligned.runs[a], aligned.runs[b]
    _, in_a, in_b = aligned.both(a, b)
    tallies_a = run_a.n_passed[in_a], run_a.n_measured[in_a]
    tallies_b = run_b.n_passed[in_b], run_b.n_measured[in_b]
    score_a, score_b = run_a.mean_of(run_a.score)[in_a], run_b.mean_of(run_b.score)[in_b]
    scored = ~(np.isnan(score_a) | np.isnan(score_b))
    regressed, improved = _flips(run_a, run_b, in_a, in_b)
    graded = bool(run_a.n_measured.any() and run_b.n_measured.any())
    bounds = (
        bound_difference((*tallies_a, run_a.k[in_a]), (*tallies_b, run_b.k[in_b]))
        if graded
        else None
    )
    return Pair(
        run_a=run_a.label,
        run_b=run_b.label,
        n_shared=len(in_a),
        pass_rate=compare_rates(tallies_a, tallies_b, seed=seed),
        score=compare_scores(score_a[scored], score_b[scored], seed=seed),
        bounds=bounds,
        amounts=_amounts(run_a, run_b, in_a, in_b, seed),
        regressed=regressed,
        improved=improved,
    )


def _flips(run_a: Run, run_b: Run, in_a: Any, in_b: Any) -> tuple[list[str], list[str]]:
    with np.errstate(invalid="ignore", divide="ignore"):
        change: Floats = (run_b.n_passed / run_b.n_measured)[in_b] - (
            run_a.n_passed / run_a.n_measured
        )[in_a]
    order = np.argsort(change, kind="stable")
    down = in_a[order[change[order] < 0]].tolist()
    up = in_a[np.flatnonzero(change > 0)[np.argsort(-change[change > 0], kind="stable")]].tolist()
    return [run_a.ids[i] for i in down], [run_a.ids[i] for i in up]


def _amounts(run_a: Run, run_b: Run, in_a: Any, in_b: Any, seed: int) -> dict[str, Any]:
    told = {}
    for name in _AMOUNTS:
        left = run_a.mean_of(getattr(run_a, name))[in_a]
        right = run_b.mean_of(getattr(run_b, name))[in_b]
        both = ~(np.isnan(left) | np.isnan(right))
        if both.any():
            told[_NAMES[name]] = compare_amounts(left[both], right[both], seed=seed)
    return told
