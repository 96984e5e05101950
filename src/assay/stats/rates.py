"""Intervals of a rate: Wilson, clustered by prompt, and bounds for what was not measured."""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.distributions import (
    Floats,
    Ints,
    as_counts,
    as_shares,
    as_tallies,
    require_level,
    require_same_length,
    two_sided_t,
    two_sided_z,
)


class Interval(msgspec.Struct, frozen=True, rename="camel"):
    """A two-sided confidence interval; `method` is for the reader of a report."""

    low: float
    high: float
    level: float
    method: str

    def contains(self, value: float) -> bool:
        """Whether the value lies inside, limits included."""
        return self.low <= value <= self.high


def make_interval(
    low: float,
    high: float,
    level: float,
    method: str,
    bounds: tuple[float, float] = (float("-inf"), float("inf")),
) -> Interval:
    """Build an interval from any float-like limits, cut to what is possible at all."""
    require_level(level)
    return Interval(
        low=float(min(max(low, bounds[0]), bounds[1])),
        high=float(max(min(high, bounds[1]), bounds[0])),
        level=float(level),
        method=method,
    )


# Evidence (in prompts' worth of variance) that repeats are worth nothing. It keeps a few
# lucky prompts from claiming that the variance is nearly zero. Chosen by simulation:
# 0.1 undercovers skewed scores near 1, 0.5 overcovers (benchmarks/coverage.py).
_PRIOR_VARIANCE = 0.25


def wilson_interval(n_passed: int, n_measured: int, level: float = 0.95) -> Interval | None:
    """Return Wilson's score interval of independent trials; None without trials."""
    if not 0 <= n_passed <= n_measured:
        msg = f"{n_passed} passes of {n_measured} trials are not possible"
        raise ValueError(msg)
    if n_measured == 0:
        return None
    low, high = wilson_limits(n_passed / n_measured, n_measured, two_sided_z(level))
    return make_interval(low, high, level, "Wilson", (0.0, 1.0))


def rate_interval(
    passes: ArrayLike,
    measured: ArrayLike,
    level: float = 0.95,
    clusters: ArrayLike | None = None,
) -> tuple[float, Interval] | tuple[None, None]:
    """Return the mean pass rate over prompts and its interval, trials clustered in prompts.

    Prompts without a measured trial are left out; with none left there is no rate. clusters has
    the number of the cluster of each prompt, where prompts are not independent.
    """
    n_passed, n_measured = as_tallies(passes, measured)
    seen = n_measured > 0
    if not seen.any():
        return None, None
    rates = n_passed[seen] / n_measured[seen]
    chosen = None if clusters is None else as_counts(clusters, "clusters")[seen]
    interval = share_interval(rates, level, n_trials=int(n_measured.max()), clusters=chosen)
    return float(rates.mean()), interval


def share_interval(
    values: ArrayLike,
    level: float = 0.95,
    n_trials: int | None = None,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return the interval of a mean of per-prompt values in 0..1 (rates, scores, pass@k).

    Wilson's interval with an effective sample size n/deff and Student's t for z. deff compares
    the variance seen between prompts with that of pass/fail prompts; it is never above 1
    (repeats do no harm) and, when the number of trials is known, never below 1/n_trials (nor
    are they worth more than as many new prompts). With clusters of prompts, what is compared is
    the variance between clusters; then deff may reach the size of a cluster.
    """
    shares = as_shares(values)
    if shares.size == 0:
        msg = "an interval needs at least one prompt"
        raise ValueError(msg)
    n, mean = int(shares.size), float(shares.mean())
    if clusters is None:
        n_units, deff = n, _design_effect(shares, n_trials)
    else:
        n_units, deff = _cluster_effect(shares, as_counts(clusters, "clusters"))
    # One prompt says nothing about the variance: t with one degree of freedom is honest.
    low, high = wilson_limits(mean, n / deff, two_sided_t(level, max(n_units - 1, 1)))
    return make_interval(low, high, level, "Wilson, clustered by prompt", (0.0, 1.0))


def _design_effect(shares: Floats, n_trials: int | None) -> float:
    mean = float(shares.mean())
    # Kish's design effect from sums of squares, with the prior added to both.
    seen = float(np.square(shares - mean).sum())
    pass_fail = (shares.size - 1) * mean * (1.0 - mean)
    deff = min(1.0, (seen + _PRIOR_VARIANCE) / (pass_fail + _PRIOR_VARIANCE))
    return max(deff, 1.0 / n_trials) if n_trials else deff


def _cluster_effect(shares: Floats, clusters: Ints) -> tuple[int, float]:
    """Return the number of clusters, and the design effect of drawing clusters, not prompts."""
    _, where = np.unique(clusters, return_inverse=True)
    sizes, mean = np.bincount(where), float(shares.mean())
    seen = float(np.square(np.bincount(where, weights=shares - mean)).sum())
    pass_fail = (shares.size - 1) * mean * (1.0 - mean)
    largest = float(np.square(sizes).sum()) / shares.size  # Kish: all prompts of a cluster alike
    prior = _PRIOR_VARIANCE * largest
    return sizes.size, min(largest, (seen + prior) / (pass_fail + _PRIOR_VARIANCE))


def wilson_limits(rate: float, n: float, z: float) -> tuple[float, float]:
    shrink = 1.0 + z * z / n
    centre = (rate + z * z / (2.0 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n))
    # At the ends the formula is exact on paper and off by one ulp in floats.
    return (0.0 if rate == 0.0 else centre - half), (1.0 if rate == 1.0 else centre + half)


def unseen_share(n: int, level: float) -> float:
    """Return what share of all prompts may behave unlike all n that were seen (rule of three)."""
    return 1.0 - math.pow(1.0 - level, 1.0 / n)


type Extreme = tuple[tuple[Ints, Ints], tuple[Ints, Ints]]
"""Passes and trials of each prompt, of run A and of run B."""


class Bounds(msgspec.Struct, frozen=True, rename="camel"):
    """Worst and best case (Manski bounds): certain, but silent about sampling error."""

    low: float
    high: float
    n_not_measured: int


def bound_difference(
    run_a: tuple[ArrayLike, ArrayLike, ArrayLike], run_b: tuple[ArrayLike, ArrayLike, ArrayLike]
) -> Bounds | None:
    """Return the bounds of rate B minus rate A; each run is (passes, measured, planned)."""
    low_a, high_a, missing_a = _extreme_rates(*run_a)
    low_b, high_b, missing_b = _extreme_rates(*run_b)
    require_same_length(low_a, low_b, "the prompts of both runs")
    if low_a.size == 0:
        return None
    low, high = float((low_b - high_a).mean()), float((high_b - low_a).mean())
    return Bounds(low, high, missing_a + missing_b)


def excused_shares(
    lost: tuple[int, int], n_trials: tuple[int, int], *, differ: bool
) -> tuple[float, float]:
    """Return what share of each arm's losses leaves nothing open: as much as both arms lost alike.

    A provider that fails as often in both arms takes trials at random from both; what one of them
    lost beyond that may have been lost because of what the agent did. differ: a test says that
    they did not lose alike.
    """
    rates = [of / max(n, 1) for of, n in zip(lost, n_trials, strict=True)]
    least = 0.0 if differ else min(rates)
    first, second = (least / rate if rate else 0.0 for rate in rates)
    return first, second


def extreme_tallies(
    run_a: tuple[Ints, Ints, Ints], run_b: tuple[Ints, Ints, Ints]
) -> tuple[Extreme, Extreme] | None:
    """Return the worst and the best case for B, each as (passes, trials) of A and of B.

    Each run is (passes, measured, planned) of each prompt. None if every trial was measured.
    """
    missing_a, missing_b = run_a[2] - run_a[1], run_b[2] - run_b[1]
    if not missing_a.any() and not missing_b.any():
        return None
    worst = (run_a[0] + missing_a, run_a[2]), (run_b[0], run_b[2])
    best = (run_a[0], run_a[2]), (run_b[0] + missing_b, run_b[2])
    return worst, best


def count_open(run_a: tuple[Ints, Ints, Ints], run_b: tuple[Ints, Ints, Ints]) -> int:
    """Return how many trials were planned and not measured in both runs."""
    return round(sum(float((run[2] - run[1]).sum()) for run in (run_a, run_b)))


def _extreme_rates(
    passes: ArrayLike, measured: ArrayLike, planned: ArrayLike
) -> tuple[Floats, Floats, int]:
    n_passed, n_measured = as_tallies(passes, measured)
    n_planned = as_counts(planned, "planned")
    require_same_length(n_measured, n_planned, "measured and planned")
    if (n_planned < n_measured).any() or (n_planned == 0).any():
        msg = "every prompt needs at least one planned trial and no more measured than planned"
        raise ValueError(msg)
    missing = n_planned - n_measured
    return n_passed / n_planned, (n_passed + missing) / n_planned, int(missing.sum())
