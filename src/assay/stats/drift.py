"""Whether the builds of a pooled baseline still measure the same thing: trend and heterogeneity."""

import msgspec
import numpy as np

from assay.stats.distributions import Floats, Ints, f_tail, t_cdf
from assay.stats.paired import cluster_sums

_ALPHA = 0.01
"""Small, because no gate is judged against a baseline that drifts."""
_FEWEST_PROMPTS = 6
_MOST_PERIODS = 8
"""Builds are put together into this many periods; few prompts allow fewer, see _periods."""
_PROMPTS_PER_PERIOD = 5
_TIE = 1e-9


class Drift(msgspec.Struct, frozen=True, rename="camel"):
    """What the builds show; p values are None where there is too little to test.

    `trend` is the change of the pass rate from the first build to the last, if it is steady.
    """

    n_builds: int
    n_prompts: int
    trend: float | None = None
    trend_p: float | None = None
    heterogeneity_p: float | None = None
    found: bool = False
    outlier: int | None = None
    """Number of the build that differs most, where builds differ."""


def measure_drift(passes: Ints, measured: Ints, clusters: Ints | None = None) -> Drift:
    """Test builds in the order of time; both tables have a row per prompt, a column per build.

    Each prompt is compared with itself, so that builds need not have the same prompts. Prompts (or
    clusters of them) are the units, whatever trials of one build have in common. Drift is found at
    1 % for both tests together.
    """
    seen = (measured > 0).sum(axis=1) >= 2
    passes, measured = passes[seen], measured[seen]
    n_prompts, n_builds = measured.shape
    if n_builds < 2 or n_prompts < _FEWEST_PROMPTS:
        return Drift(n_builds=n_builds, n_prompts=n_prompts)
    if clusters is not None:
        clusters = clusters[seen]
    excess = passes - measured * (passes.sum(axis=1) / measured.sum(axis=1))[:, None]
    trend, trend_p = _trend(excess, measured, clusters)
    differ_p = _heterogeneity(excess, clusters) if n_builds > 2 else None
    tested = [p for p in (trend_p, differ_p) if p is not None]
    found = bool(tested) and len(tested) * min(tested) <= _ALPHA
    return Drift(
        n_builds=n_builds,
        n_prompts=n_prompts,
        trend=trend,
        trend_p=trend_p,
        heterogeneity_p=differ_p,
        found=found,
        outlier=_outlier(excess) if found else None,
    )


def count_alike(passes: Ints, measured: Ints, clusters: Ints | None = None) -> int:
    """Return how many of the newest builds show no drift among each other."""
    n_builds = int(measured.shape[1])
    for first in range(n_builds):
        if not measure_drift(passes[:, first:], measured[:, first:], clusters).found:
            return n_builds - first
    return 1


def _trend(
    excess: Floats, measured: Ints, clusters: Ints | None
) -> tuple[float | None, float | None]:
    """Return the steady change from first to last build, and p of none.

    A prompt that was in the later builds only must not count as a rise: times are centred within
    each prompt.
    """
    times = np.linspace(0.0, 1.0, measured.shape[1])
    n = measured.sum(axis=1)
    centred = times[None, :] - ((measured * times).sum(axis=1) / n)[:, None]
    information = float((measured * centred**2).sum())
    if information <= 0.0:
        return None, None
    units = cluster_sums(excess @ times, clusters)
    return float(units.sum()) / information, _self_normalised_p(units)


def _heterogeneity(excess: Floats, clusters: Ints | None) -> float | None:
    """Return p of no difference between periods of builds: Hotelling's test over prompts."""
    periods = _periods(excess, clusters)
    if periods is None:
        return None
    n = len(periods)
    total, spread = periods.sum(axis=0), periods.T @ periods
    # The last period is what the others leave: excesses of a prompt add up to zero.
    form = float(total @ np.linalg.pinv(spread) @ total)
    rank = int(np.linalg.matrix_rank(spread))
    if rank < 1 or n <= rank or form >= n:
        return None
    return f_tail((n - rank) / rank * form / (n - form), rank, n - rank)


def _periods(excess: Floats, clusters: Ints | None) -> Floats | None:
    """Add up neighbouring builds, and the prompts of a cluster; one period is left out."""
    units = np.stack([cluster_sums(column, clusters) for column in excess.T], axis=1)
    # What always passes or always fails says nothing, and must not pass for a large sample.
    units = units[np.abs(units).max(axis=1) > _TIE]
    n_periods = min(excess.shape[1], _MOST_PERIODS, len(units) // _PROMPTS_PER_PERIOD)
    if n_periods < 2:
        return None
    groups = np.array_split(np.arange(excess.shape[1]), n_periods)
    periods: Floats = np.stack([units[:, some].sum(axis=1) for some in groups[:-1]], axis=1)
    return periods


def _self_normalised_p(units: Floats) -> float:
    scale = float(np.square(units).sum()) ** 0.5
    if scale == 0.0:
        return 1.0
    n = max(2, int((np.abs(units) > _TIE).sum()))
    return 2.0 * t_cdf(-abs(float(units.sum())) / scale, n - 1)


def _outlier(excess: Floats) -> int:
    scale = np.sqrt(np.square(excess).sum(axis=0))
    distance = np.abs(excess.sum(axis=0)) / np.where(scale > 0.0, scale, np.inf)
    return int(distance.argmax())
