"""Effect sizes of a paired comparison, each with an interval."""

import math

import msgspec
import numpy as np

from assay.stats.checked import Floats
from assay.stats.distributions import two_sided_t
from assay.stats.paired_interval import pseudo_size_of_rates
from assay.stats.rates import wilson_interval


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
    wide_a = np.concatenate((a, (0.5 - half, 0.5 + half)))
    wide_b = np.concatenate((b, (0.5 + half, 0.5 - half)))
    rate_a, rate_b = (float(weights @ x) / (n + 1) for x in (wide_a, wide_b))
    influence = _angle_slope(rate_b) * (wide_b - rate_b) - _angle_slope(rate_a) * (wide_a - rate_a)
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
    correction = 1.0 - 3.0 / (4.0 * (n - 1) - 1.0)
    value = correction * float(d.mean() / d.std(ddof=1))
    reach = two_sided_t(level, n - 1) * math.sqrt(1.0 / n + value * value / (2.0 * n))
    return Effect(name, value, value - reach, value + reach, level)


def _angle(rate: float) -> float:
    return 2.0 * math.asin(math.sqrt(min(max(rate, 0.0), 1.0)))


def _angle_slope(rate: float) -> float:
    return 1.0 / math.sqrt(rate * (1.0 - rate))
