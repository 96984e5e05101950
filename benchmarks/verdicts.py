"""Simulate verdicts on measurements with losses, and gates whose prompts break in any order.

Called by benchmarks/coverage.py; python -m benchmarks.coverage --only verdicts runs these alone.
The gate is pipeline/until.py itself with the settings of docs/ci.md: ten builds of eight trials in
the baseline, and up to eight fresh trials of each prompt.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from assay.pipeline.until import Order, UntilDecided
from assay.records.capture import Cause
from assay.records.experiment import RETRIES
from assay.stats.paired import compare_extremes, compare_rates
from assay.stats.sequential import decide_gate
from assay.stats.verdict import judge_difference

RECIPE = {40: 0.14, 50: 0.12, 100: 0.08}
"""Prompts and margin, as docs/ci.md chooses it."""
TRIALS, BASELINE = 8, 80


def false_wins(rng: np.random.Generator, size: int) -> dict[tuple[object, ...], float]:
    """Of two equal agents the second loses 8 % of its trials, all of them failures."""
    return {(n,): np.mean([_false_win(rng, n) for _ in range(size)]) for n in (20, 50, 100)}


def _false_win(rng: np.random.Generator, n: int, k: int = 5) -> bool:
    easy, all_ = rng.beta(2, 2, n), np.full(n, k)
    a, b = rng.binomial(k, easy), rng.binomial(k, easy)
    failed = rng.permutation(np.repeat(np.arange(n), k - b))[: round(0.08 * n * k)]
    measured = k - np.bincount(failed, minlength=n)
    seen = compare_rates((a, all_), (b, measured), seed=1)
    extremes = compare_extremes((a, all_, all_), (b, measured, all_))
    return judge_difference(seen, margin=0.02, extremes=extremes).code == "better"


def missing_at_random(
    rng: np.random.Generator, size: int
) -> Iterator[tuple[str, dict[tuple[object, ...], float]]]:
    """Yield how often an unchanged agent does not pass, and one that lost the margin does."""
    red: dict[tuple[object, ...], float] = {}
    wrong: dict[tuple[object, ...], float] = {}
    for n, margin in RECIPE.items():
        for lost in (0.0, 0.05):
            builds = [_draw(rng, n) for _ in range(size)]
            found = [play(rng, easy, easy, margin, lost)[0] for easy in builds]
            red[n, margin, lost] = 1.0 - found.count("pass") / size
            broken = [(easy, _break(rng.permutation(n), easy, margin)) for easy in builds]
            found = [play(rng, easy, bad, margin, lost)[0] for easy, bad in broken]
            wrong[n, margin, lost] = found.count("pass") / size
    yield "gate: unchanged, not passed, 0/5 % of attempts lost", red
    yield "gate: lost the margin, passed, 0/5 % lost", wrong


def blind_spots(
    rng: np.random.Generator, size: int
) -> Iterator[tuple[str, dict[tuple[object, ...], float]]]:
    """Yield how often a gate passes whatever set of prompts breaks, and what that costs."""
    wrong: dict[tuple[object, ...], float] = {}
    cost: dict[tuple[object, ...], float] = {}
    for n, margin in RECIPE.items():
        builds = [_draw(rng, n) for _ in range(size)]
        sets: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "first ids": lambda easy: np.arange(easy.size),
            "last ids": lambda easy: np.arange(easy.size)[::-1],
            "surest": lambda easy: np.argsort(-easy),
        }
        for name, order in sets.items():
            broken = ((easy, _break(order(easy), easy, margin)) for easy in builds)
            found = [play(rng, easy, bad, margin)[0] for easy, bad in broken]
            wrong[n, margin, name] = found.count("pass") / size
        seeds = rng.integers(1 << 31, size=2 * size).tolist()  # the same trials with both rules
        old, new = (np.mean([_cost(seed, n, margin, waits) for seed in seeds]) for waits in (0, 1))
        cost[n, margin, round(float(old)), round(float(new))] = float(new / old)
    yield "gate: a set of prompts breaks, passed", wrong
    yield "gate: trials, every prompt once / as before", cost


def _cost(seed: int, n: int, margin: float, waits: int) -> int:
    rng = np.random.default_rng(seed)
    easy = _draw(rng, n)
    return play(rng, easy, easy, margin, waits=bool(waits))[1]


def play(
    rng: np.random.Generator,
    easy: np.ndarray,
    now: np.ndarray,
    margin: float,
    lost: float = 0.0,
    *,
    waits: bool = True,
) -> tuple[str, int]:
    """Run a gate to its end; return the outcome and the trials that it took.

    lost is the chance that an attempt is lost; it is made again up to RETRIES times.
    """
    passed = rng.binomial(BASELINE, easy)
    baseline = {f"p{i}": (int(x), BASELINE) for i, x in enumerate(passed)}
    failed = {f"p{i}" for i, x in enumerate(rng.random(easy.size) * BASELINE > passed) if x}
    order = Order(seed=int(rng.integers(1 << 31)), first=failed if waits else (), least=-margin / 2)
    decide = partial(_decide, margin)
    rule = (UntilDecided if waits else _AsBefore)(decide, baseline=baseline, order=order)
    plan: list[Any] = [
        SimpleNamespace(prompt=SimpleNamespace(id=f"p{i}"), number=number, index=i)
        for i in range(easy.size)
        for number in range(1, TRIALS + 1)
    ]
    lots = rng.random((2, easy.size, TRIALS))
    for spec in rule.begin(plan):
        went_away, went_well = lots[:, spec.index, spec.number - 1]
        is_lost = went_away < lost ** (RETRIES + 1)
        result: Any = SimpleNamespace(
            passed=None if is_lost else bool(went_well < now[spec.index]),
            failure=SimpleNamespace(cause=Cause.PROVIDER) if is_lost else None,
        )
        if rule.add(spec, result):
            break
    return str(rule.finish().outcome), rule.n_trials


class _AsBefore(UntilDecided):
    """Passes as soon as a loss is ruled out, whether all prompts have run or not."""

    def _wait_for_all(self, worst: Any) -> None:
        pass


def _decide(margin: float, look: Any, extremes: Any, is_last: bool) -> Any:
    return decide_gate(look, margin=margin, extremes=extremes, is_last=is_last)


def _draw(rng: np.random.Generator, n: int) -> np.ndarray:
    """Chances of n prompts to pass, 0.8 on average."""
    return rng.beta(0.8 * 1.5, 0.2 * 1.5, n)


def _break(order: np.ndarray, easy: np.ndarray, loss: float) -> np.ndarray:
    """Let prompts fail always, in this order, until the mean has lost so much."""
    now = easy.copy()
    for i in order:
        if easy.mean() - now.mean() >= loss:
            break
        now[i] = 0.0
    return now
