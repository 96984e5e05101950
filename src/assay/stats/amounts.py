"""Compare what two runs used up (cost, tokens, latency), paired by prompt."""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.bootstrap import bca_ratio_interval
from assay.stats.checked import Floats, as_values, require_same_length
from assay.stats.interval import Interval, make_interval
from assay.stats.means import FEWEST_FOR_BCA, estimate_mean


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
    note: str | None = None


def compare_amounts(
    amounts_a: ArrayLike, amounts_b: ArrayLike, *, seed: int, level: float = 0.95
) -> AmountDifference:
    """Compare amounts of at least 0, one per prompt (a mean over its trials), in the same order."""
    a, b = as_values(amounts_a, "amounts of A"), as_values(amounts_b, "amounts of B")
    require_same_length(a, b, "the amounts of both runs")
    if a.size == 0:
        return AmountDifference(n_prompts=0, note="nothing measured in both runs")
    if min(a.min(), b.min()) < 0.0:
        msg = "cost, tokens and latency cannot be negative"
        raise ValueError(msg)
    difference = estimate_mean(b - a, seed=seed, level=level)
    typical, typical_interval = _typical_ratio(a, b, seed, level)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    return AmountDifference(
        n_prompts=int(a.size),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=mean_b - mean_a,
        difference_interval=difference.interval,
        ratio=mean_b / mean_a if mean_a > 0.0 else None,
        ratio_interval=_ratio_interval(a, b, seed, level),
        typical_ratio=typical,
        typical_ratio_interval=typical_interval,
        note=difference.note,
    )


def _ratio_interval(a: Floats, b: Floats, seed: int, level: float) -> Interval | None:
    if a.size >= FEWEST_FOR_BCA or a.mean() == 0.0:
        return bca_ratio_interval(b, a, seed=seed, level=level)
    ratio = float(b.mean() / a.mean())
    # With few prompts the ratio is as good as linear compared with what is not known.
    moved = estimate_mean((b - ratio * a) / a.mean(), seed=seed, level=level).interval
    if moved is None:
        return None
    limits = (ratio + moved.low, ratio + moved.high)
    return make_interval(*limits, level, moved.method, (0.0, math.inf))


def _typical_ratio(
    a: Floats, b: Floats, seed: int, level: float
) -> tuple[float | None, Interval | None]:
    """Return the geometric mean of per-prompt ratios; a zero amount has no ratio."""
    if min(a.min(), b.min()) <= 0.0:
        return None, None
    logs = estimate_mean(np.log(b) - np.log(a), seed=seed, level=level)
    value = math.exp(logs.mean) if logs.mean is not None else None
    if logs.interval is None:
        return value, None
    low, high = math.exp(logs.interval.low), math.exp(logs.interval.high)
    return value, make_interval(low, high, level, f"{logs.interval.method}, of logarithms")
