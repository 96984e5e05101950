"""Means over prompts, with bootstrap and other intervals."""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.distributions import (
    Floats,
    as_shares,
    as_values,
    normal_cdf,
    normal_quantile,
    quantiles,
    require_same_length,
    two_sided_t,
    two_sided_z,
)
from assay.stats.rates import Interval, make_interval, share_interval, unseen_share

N_RESAMPLES = 5_000
# With more prompts BCa's own limit (_closed_form_limits) replaces the resampling.
_DRAWN_PROMPTS = 1_000
_CHUNK_DRAWS = 1_000_000


def bca_mean_interval(
    values: ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
    small_sample: bool = True,
) -> Interval | None:
    """Return the BCa interval of a mean; None when the values are constant or fewer than two.

    `small_sample` widens the level as t widens z (Hesterberg's expanded percentiles): the plain
    bootstrap is too narrow by the factor sqrt((n-1)/n) and knows no t.
    """
    sample = as_values(values)
    if sample.size < 2 or np.ptp(sample) == 0.0:
        return None
    z = _reach(int(sample.size), level, small_sample)
    if sample.size > _DRAWN_PROMPTS:
        low, high = _closed_form_limits(sample, z)
        return make_interval(low, high, level, "BCa, closed form")
    means = _resample_means(sample[:, None], n_resamples, np.random.default_rng(seed))[:, 0]
    low, high = _bca_limits(means, float(sample.mean()), _acceleration(sample), z)
    return make_interval(low, high, level, f"BCa bootstrap, {n_resamples} resamples")


def bca_ratio_interval(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Interval | None:
    """Return the BCa interval of mean(numerator)/mean(denominator), paired by prompt.

    None when it cannot be estimated: fewer than two prompts, a mean of zero, or no variation.
    """
    top, bottom = as_values(numerator, "numerator"), as_values(denominator, "denominator")
    require_same_length(top, bottom, "numerator and denominator")
    if top.size < 2 or bottom.min() < 0.0 or bottom.mean() == 0.0:
        return None
    ratio = float(top.mean() / bottom.mean())
    influence = (top - ratio * bottom) / bottom.mean()  # of each prompt, by the delta method
    if np.ptp(influence) <= 1e-12 * abs(ratio):
        return None
    z = _reach(int(top.size), level, small_sample=True)
    if top.size > _DRAWN_PROMPTS:
        low, high = _closed_form_limits(influence, z)
        return make_interval(ratio + low, ratio + high, level, "BCa, closed form")
    columns = np.stack((top, bottom), axis=1)
    means = _resample_means(columns, n_resamples, np.random.default_rng(seed))
    usable = means[:, 1] > 0.0  # a resample may draw nothing but zeros
    ratios = means[usable, 0] / means[usable, 1]
    low, high = _bca_limits(ratios, ratio, _acceleration(influence), z)
    return make_interval(low, high, level, f"BCa bootstrap, {n_resamples} resamples")


def _reach(n: int, level: float, small_sample: bool) -> float:
    if not small_sample:
        return two_sided_z(level)
    return math.sqrt(n / (n - 1)) * two_sided_t(level, n - 1)


def _resample_means(columns: Floats, n_resamples: int, rng: "np.random.Generator") -> Floats:
    """Return the column means of resampled rows, in chunks so that memory stays bounded."""
    n = columns.shape[0]
    n_rows = max(1, _CHUNK_DRAWS // n)
    means = np.empty((n_resamples, columns.shape[1]))
    for start in range(0, n_resamples, n_rows):
        stop = min(start + n_rows, n_resamples)
        picked = rng.integers(0, n, size=(stop - start, n), dtype=np.int32)
        for column in range(columns.shape[1]):
            means[start:stop, column] = columns[:, column][picked].mean(axis=1)
    return means


def _acceleration(influence: Floats) -> float:
    # Skewness / (6 sqrt(n)): for a mean, exactly what the jackknife gives.
    centred = influence - influence.mean()
    squares = centred * centred
    return float((squares * centred).sum() / (6.0 * squares.sum() ** 1.5))


def _bca_limits(
    replicates: Floats, estimate: float, acceleration: float, z: float
) -> tuple[float, float]:
    # Ties count half, or few distinct values would look like bias.
    below = (replicates < estimate).mean() + 0.5 * (replicates == estimate).mean()
    # All replicates on one side would ask for an infinite quantile.
    edge = 0.5 / replicates.size
    bias = normal_quantile(float(min(max(below, edge), 1.0 - edge)))
    shares = [normal_cdf(_corrected(bias, acceleration, sign * z)) for sign in (-1.0, 1.0)]
    low, high = quantiles(replicates, shares)
    return low, high


def _corrected(bias: float, acceleration: float, z: float) -> float:
    moved = bias + z
    # Beyond this point the correction would change its sign; no sample of use comes near it.
    return bias + moved / max(1.0 - acceleration * moved, 0.05)


def _closed_form_limits(sample: Floats, z: float) -> tuple[float, float]:
    """Return what BCa tends to: bias and acceleration both equal skewness / (6 sqrt(n))."""
    tilt = _acceleration(sample)
    spread = float(sample.std()) / math.sqrt(sample.size)
    points = [_corrected(tilt, tilt, sign * z) for sign in (-1.0, 1.0)]
    low, high = [float(sample.mean()) + spread * (x + tilt * (x * x - 1.0)) for x in points]
    return low, high


# Fewer values have too few distinct resamples for a bootstrap quantile to mean anything.
FEWEST_FOR_BCA = 8
_DRAWS_PER_RESAMPLE = 0.8
"""So many log-normal draws, for each resample: 4,000 by default."""
_DOMINANT = 0.25
_MOST_CONDITION = 1e12
# A sample whose logarithms are more skewed than this many standard errors is no log-normal one.
_MOST_LOG_SKEW = 2.2


def lognormal_means(amounts: Floats, seed: int, n_resamples: int = N_RESAMPLES) -> Floats | None:
    """Draw the means that columns of log-normal amounts may have; None if they do not look so.

    A bootstrap cannot know of the rare large amounts that a small sample lacks: of strongly skewed
    amounts it holds the mean in 65 to 85 % of cases instead of 95 %. Where the logarithms look
    normal, their distribution tells how large those amounts are. Draws are generalised pivots
    (Krishnamoorthy and Mathew 2003), for two columns with a Wishart matrix, as they are paired.
    """
    n, columns = amounts.shape
    if n < FEWEST_FOR_BCA or amounts.min() <= 0.0:
        return None
    logs = np.log(amounts)
    if any(not _looks_normal(column) for column in logs.T):
        return None
    rng, n_draws = np.random.default_rng(seed), round(n_resamples * _DRAWS_PER_RESAMPLE)
    scatter = np.atleast_2d(np.cov(logs, rowvar=False)) * (n - 1)
    if np.linalg.cond(scatter) > _MOST_CONDITION:  # one column is a multiple of the other
        return None
    # Bartlett: the Cholesky factor of a Wishart matrix has chi values on its diagonal.
    factor = np.zeros((n_draws, columns, columns))
    for i in range(columns):
        factor[:, i, i] = np.sqrt(rng.chisquare(n - 1 - i, n_draws))
        factor[:, i, :i] = rng.standard_normal((n_draws, i))
    root = np.linalg.cholesky(scatter) @ np.linalg.inv(factor).transpose(0, 2, 1)
    noise = rng.standard_normal((n_draws, columns, 1))
    centres = logs.mean(axis=0) + (root @ noise)[:, :, 0] / math.sqrt(n)
    with np.errstate(over="ignore"):
        means: Floats = np.exp(centres + 0.5 * np.square(root).sum(axis=2))
    return means if np.isfinite(means).all() else None


def _looks_normal(values: Floats) -> bool:
    n, centred = values.size, values - values.mean()
    spread = float(np.square(centred).mean())
    if spread == 0.0:
        return False
    skewness = float((centred**3).mean()) / spread**1.5
    error = math.sqrt(6.0 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    return bool(abs(skewness) <= _MOST_LOG_SKEW * error)


def widen_to_draws(interval: Interval | None, draws: Floats) -> Interval | None:
    """Return the interval widened to the middle part of the draws, as large as its level."""
    if interval is None:
        return None
    tail = 0.5 - 0.5 * interval.level
    low, high = quantiles(draws, (tail, 1.0 - tail))
    low, high = min(low, interval.low), max(high, interval.high)
    return make_interval(low, high, interval.level, f"{interval.method}, log-normal tails")


class MeanEstimate(msgspec.Struct, frozen=True, rename="camel"):
    """A mean, its interval if one can be given, and what to know about it."""

    n: int
    mean: float | None
    interval: Interval | None
    note: str | None = None


def estimate_mean_score(
    scores: ArrayLike, level: float = 0.95, clusters: ArrayLike | None = None
) -> MeanEstimate:
    """Estimate the mean of per-prompt scores in 0..1.

    The effective-size Wilson interval, not BCa: near 1 with few prompts BCa covers 66-85 %
    where this one stays above 93 % (measured; benchmarks/coverage.py repeats it).
    """
    values = as_shares(scores, "scores")
    if values.size < 2:
        return _too_few(values)
    mean = float(values.mean())
    if np.ptp(values) == 0.0:
        n_units = int(values.size) if clusters is None else np.unique(clusters).size
        interval = constant_share_interval(mean, n_units, level)
        return MeanEstimate(int(values.size), mean, interval, "every prompt has the same score")
    return MeanEstimate(int(values.size), mean, share_interval(values, level, clusters=clusters))


def estimate_mean(
    values: ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
    signed: bool = False,
) -> MeanEstimate:
    """Estimate the mean of an unbounded quantity (cost, tokens, latency), one value per prompt.

    signed values are differences: they may be negative even where none of the sample is.
    """
    sample = as_values(values)
    if sample.size < 2:
        return _too_few(sample)
    n, mean = int(sample.size), float(sample.mean())
    interval: Interval | None
    if np.ptp(sample) == 0.0:
        return MeanEstimate(n, mean, None, "constant sample: its spread cannot be judged")
    if n < FEWEST_FOR_BCA:
        half = two_sided_t(level, n - 1) * float(sample.std(ddof=1)) / math.sqrt(n)
        floor = -math.inf if signed or sample.min() < 0.0 else 0.0
        interval = make_interval(mean - half, mean + half, level, "t", (floor, math.inf))
        note = "few prompts: t interval"
    else:
        interval = bca_mean_interval(sample, seed=seed, level=level, n_resamples=n_resamples)
        note = None
    if signed:
        return MeanEstimate(n, mean, interval, note)
    draws = lognormal_means(sample[:, None], seed, n_resamples)
    if draws is not None:
        interval = widen_to_draws(interval, draws[:, 0])
    elif sample.min() >= 0.0 and sample.max() > _DOMINANT * sample.sum():
        note = "one prompt makes a large part of the total: the interval may be too narrow"
    return MeanEstimate(n, mean, interval, note)


def constant_share_interval(value: float, n: int, level: float = 0.95) -> Interval:
    """Return the interval of a mean in 0..1 when all n prompts gave the same value.

    The rule of three: up to unseen_share of all prompts may be different from what was seen, and
    those could score anything.
    """
    unseen = unseen_share(n, level)
    low = value * (1.0 - unseen)
    return make_interval(low, low + unseen, level, "constant sample, rule of three", (0.0, 1.0))


def _too_few(values: Floats) -> MeanEstimate:
    if values.size == 0:
        return MeanEstimate(0, None, None, "nothing measured")
    return MeanEstimate(1, float(values[0]), None, "one prompt: no interval")
