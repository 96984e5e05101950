"""Compare two runs over the same prompts: difference, interval, test, effect, amounts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import ArrayLike

from assay.records.text import counted_noun
from assay.stats.distributions import (
    Floats,
    Ints,
    as_counts,
    as_shares,
    as_tallies,
    as_values,
    binomial_pmf,
    require_same_length,
    t_cdf,
    two_sided_t,
)
from assay.stats.means import (
    FEWEST_FOR_BCA,
    N_RESAMPLES,
    MeanEstimate,
    bca_ratio_interval,
    estimate_mean,
    lognormal_means,
    widen_to_draws,
)
from assay.stats.noise import JudgeErrors, Noise, total_df, total_variance
from assay.stats.planning import smallest_difference
from assay.stats.rates import (
    Interval,
    count_open,
    extreme_tallies,
    make_interval,
    unseen_share,
    wilson_interval,
)
from assay.stats.significance import PermutationTest, flip_test, mcnemar_p

type Estimate = Callable[[Floats], MeanEstimate]


class Effect(msgspec.Struct, frozen=True, rename="camel"):
    """How large a difference is on a scale that does not depend on the metric.

    A high limit of None is unbounded (an odds ratio with no prompt on the other side).
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    level: float


def cohens_h(a: Floats, b: Floats, trials_per_prompt: float = 1.0, level: float = 0.95) -> Effect:
    """Return Cohen's h (0.2 small, 0.5 medium, 0.8 large) from per-prompt rates.

    Half a pseudo-prompt on either side, as in the interval of the difference, keeps the interval
    open when all prompts agree; the value itself is the plain one.
    """
    n, half = int(a.size), 0.5 * pseudo_size_of_rates(trials_per_prompt)
    weights = np.concatenate((np.ones(n), (0.5, 0.5)))
    padded_a = np.concatenate((a, (0.5 - half, 0.5 + half)))
    padded_b = np.concatenate((b, (0.5 + half, 0.5 - half)))
    rate_a, rate_b = (float(weights @ x) / (n + 1) for x in (padded_a, padded_b))
    # Delta method; the slope is that of the arcsine transform at each rate.
    influence = _angle_slope(rate_b) * (padded_b - rate_b)
    influence -= _angle_slope(rate_a) * (padded_a - rate_a)
    spread = math.sqrt(float(weights @ np.square(influence)) / (n + 1) ** 2)
    reach = two_sided_t(level, max(n - 1, 1)) * spread
    centre = _angle(rate_b) - _angle(rate_a)
    value = _angle(float(b.mean())) - _angle(float(a.mean()))
    low, high = max(-math.pi, centre - reach), min(math.pi, centre + reach)
    return Effect("Cohen's h", value, min(low, value), max(high, value), level)


def matched_odds_ratio(n_only_a: int, n_only_b: int, level: float = 0.95) -> Effect:
    """Return how many prompts only B passes for each one only A passes (Wilson, transformed)."""
    name = "matched odds ratio"
    interval = wilson_interval(n_only_b, n_only_a + n_only_b, level)
    if interval is None:
        return Effect(name, None, 0.0, None, level)
    value = n_only_b / n_only_a if n_only_a else None
    high = interval.high / (1.0 - interval.high) if interval.high < 1.0 else None
    return Effect(name, value, interval.low / (1.0 - interval.low), high, level)


def standardised_difference(d: Floats, level: float = 0.95) -> Effect:
    """Return the mean difference in units of its standard deviation (d_z, Hedges-corrected)."""
    name = "standardised paired difference"
    n = int(d.size)
    if n < 3 or np.ptp(d) <= 1e-12:
        return Effect(name, None, None, None, level)
    # Hedges' factor removes the upward bias of d in small samples.
    correction = 1.0 - 3.0 / (4.0 * (n - 1) - 1.0)
    value = correction * float(d.mean() / d.std(ddof=1))
    reach = two_sided_t(level, n - 1) * math.sqrt(1.0 / n + value * value / (2.0 * n))
    return Effect(name, value, value - reach, value + reach, level)


def _angle(rate: float) -> float:
    # The arcsine transform, on which the variance of a rate hardly depends on the rate.
    return 2.0 * math.asin(math.sqrt(min(max(rate, 0.0), 1.0)))


def _angle_slope(rate: float) -> float:
    return 1.0 / math.sqrt(rate * (1.0 - rate))


_TIE = 1e-9


class PairedDifference(msgspec.Struct, frozen=True, rename="camel"):
    """B minus A in a pass rate or score; numbers are None when no prompt was measured in both.

    Wins and losses are B's. With single trials they are the discordant pairs. `variance` is that of
    one unit's difference, which planning needs; a unit is a prompt, or a cluster of prompts if
    there are any. trials_per_prompt is known for rates only. exact_p_value is the p of the exact
    test where `p_value` is another one.
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
    exact_p_value: float | None = None
    test: str | None = None
    n_units: int = 0
    effects: tuple[Effect, ...] = ()
    smallest_detectable: float | None = None
    skew: float | None = None
    """Third central moment of one unit's difference: rare large losses make it negative."""
    noise: tuple[Noise, ...] | UnsetType = UNSET
    """What is in the interval beside prompts and trials: see with_noise."""


def compare_rates(
    run_a: tuple[ArrayLike, ArrayLike],
    run_b: tuple[ArrayLike, ArrayLike],
    *,
    seed: int,
    level: float = 0.95,
    clusters: ArrayLike | None = None,
) -> PairedDifference:
    """Compare pass rates; each run is (passes, measured trials) per prompt, in the same order.

    Single trials: McNemar. As many trials in both runs: whole prompts, or clusters, are flipped.
    Otherwise, see studentised_test. clusters has the number of each prompt's cluster.
    """
    passes_a, measured_a = as_tallies(*run_a)
    passes_b, measured_b = as_tallies(*run_b)
    require_same_length(measured_a, measured_b, "the prompts of both runs")
    both: Any = (measured_a > 0) & (measured_b > 0)
    n_left_out = int((~both).sum())
    both = both if n_left_out else slice(None)  # all of them, without a copy
    n_a, n_b = measured_a[both], measured_b[both]
    a, b = passes_a[both] / n_a, passes_b[both] / n_b
    if a.size == 0:
        return _not_compared("passRate", n_left_out)
    k = float(2.0 / (1.0 / n_a + 1.0 / n_b).mean())  # harmonic mean: variances go with 1/n
    single, unequal = bool((n_a == 1).all() and (n_b == 1).all()), bool((n_a != n_b).any())
    groups = None if clusters is None else as_counts(clusters, "clusters")[both]
    # Of a million prompts, what is not needed any more takes more memory than the rest.
    del run_a, run_b, passes_a, passes_b, measured_a, measured_b, n_a, n_b, both
    units = cluster_differences(b - a, groups)
    effects: tuple[Effect, ...] = (cohens_h(a, b, k, level),)
    only_a, only_b = int((a - b > _TIE).sum()), int((b - a > _TIE).sum())
    exact_p = None
    if groups is None and single:
        test = PermutationTest(mcnemar_p(only_a, only_b, mid_p=True), "McNemar, mid-p")
        exact_p = mcnemar_p(only_a, only_b)
        effects = (*effects, matched_odds_ratio(only_a, only_b, level))
    elif unequal:
        test = studentised_test(units, pseudo_size_of_rates(k))
    else:
        test = flip_test(cluster_sums(b - a, groups), seed=seed)
    interval, variance = paired_interval(units, pseudo_size_of_rates(k), level)
    reach = smallest_difference(variance, int(units.size), n_trials=k, alpha=1.0 - level)
    numbers = _Numbers(
        "passRate", n_left_out, k, interval, variance, test, effects, reach, units, exact_p
    )
    return _record(a, b, numbers)


def with_noise(
    found: PairedDifference, noise: tuple[Noise, ...], of: str = "noise between builds"
) -> PairedDifference:
    """Widen the interval by what more prompts do not reduce, and raise p to that of a t test."""
    interval, difference = found.interval, found.difference
    if not noise or interval is None or difference is None:
        return found
    df, level = max(found.n_units - 1, 1), interval.level
    centre, reach = 0.5 * (interval.low + interval.high), 0.5 * (interval.high - interval.low)
    rest = (reach / two_sided_t(level, df)) ** 2
    error = math.sqrt(total_variance(rest, noise))
    all_df = total_df(rest, df, noise)
    reach = max(reach, two_sided_t(level, all_df) * error)
    method = f"{interval.method}, with {of}"
    p_value = 2.0 * t_cdf(-abs(difference) / error, all_df)
    is_larger = found.p_value is None or p_value > found.p_value
    return msgspec.structs.replace(
        found,
        interval=make_interval(centre - reach, centre + reach, level, method, (-1.0, 1.0)),
        p_value=p_value if is_larger else found.p_value,
        test=f"t, with {of}" if is_larger else found.test,
        noise=noise,
    )


def with_judge(
    found: PairedDifference, judge: JudgeErrors | None, margin: float
) -> PairedDifference:
    """Return the difference that people would see, where a judge errs alike in both runs.

    A judge leaves only its gain of a difference. What is not known of the gain counts for a
    difference as large as the margin, at least: that is what a gate has to rule out.
    """
    interval, difference = found.interval, found.difference
    if judge is None or interval is None or difference is None:
        return found
    gain = judge.gain
    limits = interval.low / gain, interval.high / gain
    method = f"{interval.method}, corrected for the judge's errors"
    scaled = msgspec.structs.replace(
        found,
        difference=min(max(difference / gain, -1.0), 1.0),
        interval=make_interval(*limits, interval.level, method, (-1.0, 1.0)),
        variance=None if found.variance is None else found.variance / gain**2,
        skew=None if found.skew is None else found.skew / gain**3,
        noise=UNSET,
    )
    size = max(abs(difference / gain), margin)
    # The noise that was there is in the interval already; both are in the limits of a margin.
    noise = judge.noise(size, found.noise or ())
    return msgspec.structs.replace(with_noise(scaled, noise[-1:], "the judge"), noise=noise)


class Extremes(NamedTuple):
    """The difference if all that was not measured had gone against B, or for it."""

    worst: PairedDifference
    best: PairedDifference
    n_not_measured: int = 0


def compare_extremes(
    run_a: tuple[Ints, Ints, Ints], run_b: tuple[Ints, Ints, Ints], clusters: Ints | None = None
) -> Extremes | None:
    """Compare the worst and the best case, for limits only: without tests and effects.

    Each run is (passes, measured, planned trials) of each prompt. None if all were measured.
    """
    cases = extreme_tallies(run_a, run_b)
    if cases is None:
        return None
    worst, best = (_for_limits(*case, clusters) for case in cases)
    return Extremes(worst, best, count_open(run_a, run_b))


def _for_limits(
    run_a: tuple[Ints, Ints], run_b: tuple[Ints, Ints], clusters: Ints | None
) -> PairedDifference:
    (passes_a, n_a), (passes_b, n_b) = run_a, run_b
    a, b = passes_a / n_a, passes_b / n_b
    k = float(2.0 / (1.0 / n_a + 1.0 / n_b).mean())
    units = cluster_differences(b - a, clusters)
    interval, variance = paired_interval(units, pseudo_size_of_rates(k))
    none = PermutationTest(math.nan, "none")
    return _record(
        a, b, _Numbers("passRate", 0, k, interval, variance, none, (), None, units, None)
    )


def compare_scores(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    equal_trials: bool = True,
    clusters: ArrayLike | None = None,
) -> PairedDifference:
    """Compare per-prompt mean scores in 0..1 of the same prompts in the same order."""
    a, b = as_shares(scores_a, "scores of A"), as_shares(scores_b, "scores of B")
    require_same_length(a, b, "the scores of both runs")
    if a.size == 0:
        return _not_compared("score", 0)
    d = b - a
    groups = None if clusters is None else as_counts(clusters, "clusters")
    units = cluster_differences(d, groups)
    interval, variance = score_difference_interval(units, level)
    reach = smallest_difference(variance, int(units.size), alpha=1.0 - level)
    if equal_trials:
        test = flip_test(cluster_sums(d, groups), seed=seed)
    else:
        test = studentised_test(units, pseudo_size_of_scores(d))
    effects = (standardised_difference(d, level),)
    return _record(
        a, b, _Numbers("score", 0, None, interval, variance, test, effects, reach, units, None)
    )


def cluster_differences(differences: Floats, clusters: Ints | None) -> Floats:
    """Return one number for each cluster whose mean is that of all differences.

    It is the cluster's influence on the mean over prompts: clusters may be of different sizes.
    """
    if clusters is None:
        return differences
    sums, sizes = cluster_sums(differences, clusters), np.unique(clusters, return_counts=True)[1]
    mean = float(differences.mean())
    units: Floats = mean + (sums - mean * sizes) * (sizes.size / differences.size)
    return units


def cluster_sums(values: Floats, clusters: Ints | None) -> Floats:
    """Return the sum of each cluster. Of differences between agents that are the same, its sign is
    a coin toss."""
    if clusters is None:
        return values
    _, where = np.unique(clusters, return_inverse=True)
    return np.bincount(where, weights=values)


def studentised_test(differences: Floats, pseudo_size: float) -> PermutationTest:
    """Test that the mean is zero by the t that paired_interval uses.

    With more trials in one run than in the other, differences are skewed even where both agents
    are the same: ten trials often show a failure that one trial misses. A sign flip would take
    that for an effect.
    """
    n = int(differences.size)
    centre, variance = _smoothed(differences, pseudo_size)
    t = abs(centre) / math.sqrt(variance / (n + 1))
    p_value = 2.0 * t_cdf(-t, max(n - 1, 1))
    return PermutationTest(p_value, "studentised: trials per prompt differ between the runs")


class _Numbers(NamedTuple):
    metric: str
    n_left_out: int
    trials_per_prompt: float | None
    interval: Interval
    variance: float
    test: PermutationTest
    effects: tuple[Effect, ...]
    smallest_detectable: float | None
    units: Floats
    exact_p_value: float | None


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
        exact_p_value=numbers.exact_p_value,
        test=numbers.test.method,
        n_units=int(numbers.units.size),
        effects=numbers.effects,
        smallest_detectable=numbers.smallest_detectable,
        skew=float(((numbers.units - numbers.units.mean()) ** 3).mean()),
    )


def _not_compared(metric: str, n_left_out: int) -> PairedDifference:
    return PairedDifference(metric, 0, n_left_out, None, 0, 0, 0)


def paired_interval(
    differences: Floats, pseudo_size: float, level: float = 0.95
) -> tuple[Interval, float]:
    """Return the interval of the mean and the (smoothed) variance of one prompt's difference.

    Bonett and Price's idea for paired proportions: half a pseudo-prompt is added on either side
    and t replaces z. Where no prompt differs the rule of three takes over: up to
    1 - (1-level)^(1/n) of all prompts may differ, unseen, and all one way. So it never has zero
    width. Its coverage is measured in benchmarks/coverage.py.
    """
    n = int(differences.size)
    centre, variance = _smoothed(differences, pseudo_size)
    reach = two_sided_t(level, max(n - 1, 1)) * math.sqrt(variance / (n + 1))
    if not differences.any():
        reach = max(reach, unseen_share(n, level))
    limits = (centre - reach, centre + reach)
    return make_interval(*limits, level, "paired by prompt, adjusted t", (-1.0, 1.0)), variance


def _smoothed(differences: Floats, pseudo_size: float) -> tuple[float, float]:
    """Return mean and variance with half a pseudo-prompt of this size on either side."""
    n = int(differences.size)
    centre = float(differences.sum()) / (n + 1)
    return centre, (float(np.square(differences).sum()) + pseudo_size**2) / (n + 1) - centre**2


def score_difference_interval(differences: Floats, level: float = 0.95) -> tuple[Interval, float]:
    """Return the interval of the mean difference of scores, and the variance of one.

    Rare large changes are what few prompts do not show: up to unseen_share of all prompts may have
    changed by the whole scale. So the limits reach at least that far, less what such a change was
    seen to be: one that was seen is in the variance already. That is the rule of three where all
    scores tie, and the plain interval where scores are spread over the whole scale.
    """
    n = int(differences.size)
    interval, variance = paired_interval(differences, pseudo_size_of_scores(differences), level)
    unseen, mean = unseen_share(n, level), float(differences.mean())
    largest_drop, largest_gain = max(0.0, -differences.min()), max(0.0, differences.max())
    low = min(interval.low, mean - unseen * max(0.0, 1.0 - largest_drop))
    high = max(interval.high, mean + unseen * max(0.0, 1.0 - largest_gain))
    return make_interval(low, high, level, interval.method, (-1.0, 1.0)), variance


def pseudo_size_of_rates(trials_per_prompt: float) -> float:
    """Return how far apart the two rates of a pseudo-prompt are.

    Chosen by simulation over k = 1..10: 1 is too wide for k trials, 1/sqrt(k) too narrow.
    """
    return math.pow(trials_per_prompt, -0.25)


def pseudo_size_of_scores(differences: Floats) -> float:
    """Return the geometric mean of the largest difference seen and the largest possible, 1.

    Finely graded scores that move by hundredths would drown in pseudo-prompts of size 1; the
    largest difference alone is too sure of itself where most prompts tie.
    """
    largest = float(np.abs(differences).max())
    return math.sqrt(largest) if largest > 0.0 else 1.0


class AmountDifference(msgspec.Struct, frozen=True, rename="camel"):
    """B against A: difference of means, ratio of means (totals), typical ratio (geometric mean).

    Intervals are None where the data cannot give one; `note` says why.
    """

    n_prompts: int
    mean_a: float | None = None
    mean_b: float | None = None
    difference: float | None = None
    difference_interval: Interval | None = None
    ratio: float | None = None
    ratio_interval: Interval | None = None
    typical_ratio: float | None = None
    typical_ratio_interval: Interval | None = None
    median_ratio: float | None = None
    """Median of the ratios of single prompts: a few that run away do not move it."""
    median_ratio_interval: Interval | None = None
    tail: str | None = None
    """Says that a few prompts took far more than the rest, so that means are hardly known."""
    note: str | None = None


def compare_amounts(
    amounts_a: ArrayLike,
    amounts_b: ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> AmountDifference:
    """Compare amounts of at least 0, one per prompt (a mean over its trials), in the same order."""
    a, b = as_values(amounts_a, "amounts of A"), as_values(amounts_b, "amounts of B")
    require_same_length(a, b, "the amounts of both runs")
    if a.size == 0:
        return AmountDifference(n_prompts=0, note="nothing measured in both runs")
    if min(a.min(), b.min()) < 0.0:
        msg = "cost, tokens and latency cannot be negative"
        raise ValueError(msg)
    estimate = partial(estimate_mean, seed=seed, level=level, n_resamples=n_resamples, signed=True)
    difference = estimate(b - a)
    typical, typical_interval = _typical_ratio(a, b, estimate, level)
    drawn = partial(bca_ratio_interval, seed=seed, level=level, n_resamples=n_resamples)
    difference_interval = difference.interval
    ratio_interval = _ratio_interval(a, b, estimate, drawn, level)
    draws = lognormal_means(np.stack((a, b), axis=1), seed, n_resamples)
    if draws is not None:
        difference_interval = widen_to_draws(difference_interval, draws[:, 1] - draws[:, 0])
        ratio_interval = widen_to_draws(ratio_interval, draws[:, 1] / draws[:, 0])
    mean_a, mean_b = float(a.mean()), float(b.mean())
    ratios = np.sort(b / a) if a.min() > 0.0 else None
    return AmountDifference(
        n_prompts=int(a.size),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=mean_b - mean_a,
        difference_interval=difference_interval,
        ratio=mean_b / mean_a if mean_a > 0.0 else None,
        ratio_interval=ratio_interval,
        typical_ratio=typical,
        typical_ratio_interval=typical_interval,
        median_ratio=None if ratios is None else float(np.median(ratios)),
        median_ratio_interval=None if ratios is None else _median_interval(ratios, level),
        tail=_tail_words(a, b),
        note=difference.note,
    )


_FAR = 4.0
"""In robust standard deviations of logarithms: log-normal amounts of 50 prompts are as far out in 3
of 1,000 cases."""
_MAD_TO_SD = 1.4826


def _tail_words(a: Floats, b: Floats) -> str | None:
    """Say how many prompts lie beyond what a log-normal distribution explains; None for none."""
    n_far = 0
    for amounts in (a, b):
        if amounts.min() <= 0.0:
            return None
        logs = np.log(amounts)
        apart = logs - float(np.median(logs))
        spread = _MAD_TO_SD * float(np.median(np.abs(apart)))
        n_far = max(n_far, int((apart > _FAR * spread).sum()) if spread > 0.0 else 0)
    if not n_far:
        return None
    prompts = counted_noun(n_far, "prompt")
    return (
        f"{prompts} took far more than the rest: how often that happens is hardly known, so that "
        "the means and their ratio may lie beyond their intervals; the median ratio does not"
    )


def _median_interval(ordered: Floats, level: float) -> Interval | None:
    """Return the interval of a median, whatever the distribution; None of too few values, and of
    values that are all equal, whose spread cannot be judged."""
    n = int(ordered.size)
    if ordered[-1] - ordered[0] <= _TIE * ordered[-1]:
        return None
    if n > _MOST_ORDERED:
        reach = 0.5 * two_sided_t(level, n) * math.sqrt(n)
        first = max(0, math.floor(0.5 * n - reach) - 1)
    else:
        below = np.cumsum(binomial_pmf(n, 0.5))
        first = int(np.searchsorted(below, 0.5 * (1.0 - level), side="right")) - 1
    if first < 0:
        return None
    limits = float(ordered[first]), float(ordered[n - 1 - first])
    return make_interval(*limits, level, "order statistics", (0.0, math.inf))


_MOST_ORDERED = 1_000


def _ratio_interval(
    a: Floats, b: Floats, estimate: Estimate, drawn: Callable[..., Interval | None], level: float
) -> Interval | None:
    if a.size >= FEWEST_FOR_BCA or a.mean() == 0.0:
        return drawn(b, a)
    ratio = float(b.mean() / a.mean())
    # With few prompts the error of linearising the ratio is small beside the sampling error.
    moved = estimate((b - ratio * a) / a.mean()).interval
    if moved is None:
        return None
    limits = (ratio + moved.low, ratio + moved.high)
    return make_interval(*limits, level, moved.method, (0.0, math.inf))


def _typical_ratio(
    a: Floats, b: Floats, estimate: Estimate, level: float
) -> tuple[float | None, Interval | None]:
    """Return the geometric mean of per-prompt ratios; a zero amount has no ratio."""
    if min(a.min(), b.min()) <= 0.0:
        return None, None
    logs = estimate(np.log(b) - np.log(a))
    value = math.exp(logs.mean) if logs.mean is not None else None
    if logs.interval is None:
        return value, None
    low, high = math.exp(logs.interval.low), math.exp(logs.interval.high)
    return value, make_interval(low, high, level, f"{logs.interval.method}, of logarithms")
