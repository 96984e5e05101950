"""BCa bootstrap intervals of a mean and of a ratio of means; one value per prompt goes in.

Resampling whole prompts keeps the trials of a prompt together. Above a few thousand prompts the
resampled distribution is known in closed form (Cornish-Fisher) to more digits than resampling
could show, so nothing is drawn.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, as_values, require_same_length
from assay.stats.distributions import normal_cdf, normal_quantile, two_sided_t, two_sided_z
from assay.stats.interval import Interval, make_interval
from assay.stats.quantiles import quantiles

N_RESAMPLES = 5_000
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

    None when it cannot be told: fewer than two prompts, a mean of zero, or no variation.
    """
    top, bottom = as_values(numerator, "numerator"), as_values(denominator, "denominator")
    require_same_length(top, bottom, "numerator and denominator")
    if top.size < 2 or bottom.min() < 0.0 or bottom.mean() == 0.0:
        return None
    ratio = float(top.mean() / bottom.mean())
    influence = (top - ratio * bottom) / bottom.mean()
    if np.ptp(influence) <= 1e-12 * abs(ratio):
        return None
    z = _reach(int(top.size), level, small_sample=True)
    if top.size > _DRAWN_PROMPTS:
        low, high = _closed_form_limits(influence, z)
        return make_interval(ratio + low, ratio + high, level, "BCa, closed form")
    columns = np.stack((top, bottom), axis=1)
    means = _resample_means(columns, n_resamples, np.random.default_rng(seed))
    usable = means[:, 1] > 0.0
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
    centred = influence - influence.mean()
    squares = centred * centred
    return float((squares * centred).sum() / (6.0 * squares.sum() ** 1.5))


def _bca_limits(
    replicates: Floats, estimate: float, acceleration: float, z: float
) -> tuple[float, float]:
    below = (replicates < estimate).mean() + 0.5 * (replicates == estimate).mean()
    # All replicates on one side would ask for an infinite quantile.
    edge = 0.5 / replicates.size
    bias = normal_quantile(float(min(max(below, edge), 1.0 - edge)))
    shares = [normal_cdf(_corrected(bias, acceleration, sign * z)) for sign in (-1.0, 1.0)]
    low, high = quantiles(replicates, shares)
    return low, high


def _corrected(bias: float, acceleration: float, z: float) -> float:
    moved = bias + z
    # Beyond this point the correction would turn round; no sample of use comes near it.
    return bias + moved / max(1.0 - acceleration * moved, 0.05)


def _closed_form_limits(sample: Floats, z: float) -> tuple[float, float]:
    """Return what BCa tends to: bias and acceleration both equal skewness / (6 sqrt(n))."""
    tilt = _acceleration(sample)
    spread = float(sample.std()) / math.sqrt(sample.size)
    points = [_corrected(tilt, tilt, sign * z) for sign in (-1.0, 1.0)]
    low, high = [float(sample.mean()) + spread * (x + tilt * (x * x - 1.0)) for x in points]
    return low, high
