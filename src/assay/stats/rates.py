"""Intervals of a rate: Wilson for plain counts, and a prompt-clustered one for trials."""

import math

import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, as_shares, as_tallies
from assay.stats.distributions import two_sided_t, two_sided_z
from assay.stats.interval import Interval, make_interval

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
    low, high = _wilson_limits(n_passed / n_measured, n_measured, two_sided_z(level))
    return make_interval(low, high, level, "Wilson", (0.0, 1.0))


def rate_interval(
    passes: ArrayLike, measured: ArrayLike, level: float = 0.95
) -> tuple[float, Interval] | tuple[None, None]:
    """Return the mean pass rate over prompts and its interval, trials clustered in prompts.

    Prompts without a measured trial are left out; with none left there is no rate.
    """
    n_passed, n_measured = as_tallies(passes, measured)
    seen = n_measured > 0
    if not seen.any():
        return None, None
    rates = n_passed[seen] / n_measured[seen]
    interval = share_interval(rates, level, n_trials=int(n_measured.max()))
    return float(rates.mean()), interval


def share_interval(values: ArrayLike, level: float = 0.95, n_trials: int | None = None) -> Interval:
    """Return the interval of a mean of per-prompt values in 0..1 (rates, scores, pass@k).

    Wilson's interval with an effective sample size n/deff and Student's t for z. deff compares
    the variance seen between prompts with that of pass/fail prompts; it is never above 1
    (repeats do no harm) and, when the number of trials is known, never below 1/n_trials (nor
    are they worth more than as many new prompts).
    """
    shares = as_shares(values)
    if shares.size == 0:
        msg = "an interval needs at least one prompt"
        raise ValueError(msg)
    n, mean = int(shares.size), float(shares.mean())
    deff = _design_effect(shares, n_trials)
    # One prompt says nothing about the variance: t with one degree of freedom is honest.
    low, high = _wilson_limits(mean, n / deff, two_sided_t(level, max(n - 1, 1)))
    return make_interval(low, high, level, "Wilson, clustered by prompt", (0.0, 1.0))


def effective_sample_size(values: ArrayLike, n_trials: int | None = None) -> float:
    """Return how many independent pass/fail prompts the given per-prompt values are worth."""
    shares = as_shares(values)
    return shares.size / _design_effect(shares, n_trials) if shares.size else 0.0


def _design_effect(shares: Floats, n_trials: int | None) -> float:
    mean = float(shares.mean())
    seen = float(np.square(shares - mean).sum())
    pass_fail = (shares.size - 1) * mean * (1.0 - mean)
    deff = min(1.0, (seen + _PRIOR_VARIANCE) / (pass_fail + _PRIOR_VARIANCE))
    return max(deff, 1.0 / n_trials) if n_trials else deff


def _wilson_limits(rate: float, n: float, z: float) -> tuple[float, float]:
    shrink = 1.0 + z * z / n
    centre = (rate + z * z / (2.0 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n))
    # At the ends the formula is exact on paper and off by one ulp in floats.
    return (0.0 if rate == 0.0 else centre - half), (1.0 if rate == 1.0 else centre + half)
