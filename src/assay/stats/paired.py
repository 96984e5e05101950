"""Compare two runs over the same prompts: difference, interval, test, effect, reach."""

from typing import NamedTuple

import msgspec
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, as_shares, as_tallies, require_same_length
from assay.stats.effects import (
    Effect,
    cohens_h,
    matched_odds_ratio,
    standardised_difference,
)
from assay.stats.interval import Interval
from assay.stats.mcnemar import mcnemar_p
from assay.stats.paired_interval import (
    paired_interval,
    pseudo_size_of_rates,
    pseudo_size_of_scores,
)
from assay.stats.permutation import PermutationTest, flip_test
from assay.stats.power import smallest_difference

_TIE = 1e-9


class PairedDifference(msgspec.Struct, frozen=True, rename="camel"):
    """B minus A in a pass rate or score; numbers are None when no prompt was measured in both.

    Wins and losses are B's. With single trials they are the discordant pairs. `variance` is that of
    one prompt's difference, which planning needs; trials_per_prompt is known for rates only.
    """

    metric: str
    n_prompts: int
    n_left_out: int
    trials_per_prompt: float | None
    wins: int
    ties: int
    losses: int
    mean_a: float | None = None
    mean_b: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    variance: float | None = None
    p_value: float | None = None
    test: str | None = None
    effects: tuple[Effect, ...] = ()
    smallest_detectable: float | None = None


def compare_rates(
    run_a: tuple[ArrayLike, ArrayLike],
    run_b: tuple[ArrayLike, ArrayLike],
    *,
    seed: int,
    level: float = 0.95,
) -> PairedDifference:
    """Compare pass rates; each run is (passes, measured trials) per prompt, in the same order.

    Single trials: exact McNemar. Otherwise whole prompts are flipped.
    """
    passes_a, measured_a = as_tallies(*run_a)
    passes_b, measured_b = as_tallies(*run_b)
    require_same_length(measured_a, measured_b, "the prompts of both runs")
    both = (measured_a > 0) & (measured_b > 0)
    n_a, n_b = measured_a[both], measured_b[both]
    a, b = passes_a[both] / n_a, passes_b[both] / n_b
    n_left_out = int((~both).sum())
    if a.size == 0:
        return _nothing("passRate", n_left_out)
    k = float(2.0 / (1.0 / n_a + 1.0 / n_b).mean())
    single = bool((n_a == 1).all() and (n_b == 1).all())
    only_a, only_b = int((a - b > _TIE).sum()), int((b - a > _TIE).sum())
    effects: tuple[Effect, ...] = (cohens_h(a, b, k, level),)
    if single:
        test = PermutationTest(mcnemar_p(only_a, only_b), "exact McNemar")
        effects = (*effects, matched_odds_ratio(only_a, only_b, level))
    else:
        test = flip_test(b - a, seed=seed)
    interval, variance = paired_interval(b - a, pseudo_size_of_rates(k), level)
    reach = smallest_difference(variance, int(a.size), n_trials=k, alpha=1.0 - level)
    numbers = _Numbers("passRate", n_left_out, k, interval, variance, test, effects, reach)
    return _record(a, b, numbers)


def compare_scores(
    scores_a: ArrayLike, scores_b: ArrayLike, *, seed: int, level: float = 0.95
) -> PairedDifference:
    """Compare per-prompt mean scores in 0..1 of the same prompts in the same order."""
    a, b = as_shares(scores_a, "scores of A"), as_shares(scores_b, "scores of B")
    require_same_length(a, b, "the scores of both runs")
    if a.size == 0:
        return _nothing("score", 0)
    d = b - a
    interval, variance = paired_interval(d, pseudo_size_of_scores(d), level)
    reach = smallest_difference(variance, int(d.size), alpha=1.0 - level)
    test, effects = flip_test(d, seed=seed), (standardised_difference(d, level),)
    return _record(a, b, _Numbers("score", 0, None, interval, variance, test, effects, reach))


class _Numbers(NamedTuple):
    metric: str
    n_left_out: int
    trials_per_prompt: float | None
    interval: Interval
    variance: float
    test: PermutationTest
    effects: tuple[Effect, ...]
    smallest_detectable: float | None


def _record(a: Floats, b: Floats, numbers: _Numbers) -> PairedDifference:
    d = b - a
    wins, losses = int((d > _TIE).sum()), int((d < -_TIE).sum())
    return PairedDifference(
        metric=numbers.metric,
        n_prompts=int(d.size),
        n_left_out=numbers.n_left_out,
        trials_per_prompt=numbers.trials_per_prompt,
        wins=wins,
        ties=int(d.size) - wins - losses,
        losses=losses,
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        difference=float(d.mean()),
        interval=numbers.interval,
        variance=numbers.variance,
        p_value=numbers.test.p_value,
        test=numbers.test.method,
        effects=numbers.effects,
        smallest_detectable=numbers.smallest_detectable,
    )


def _nothing(metric: str, n_left_out: int) -> PairedDifference:
    return PairedDifference(metric, 0, n_left_out, None, 0, 0, 0)
