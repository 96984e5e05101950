"""The builds of a pooled baseline: how much they vary, and whether they still measure the same.

Builds vary: another hour, another load, another revision behind the same name of a model. That is
noise, and part of every comparison with a baseline (BuildNoise). Drift is what such noise does not
explain: a steady trend, one build far from the others, or builds further apart than builds are.
"""

import math

import msgspec
import numpy as np

from assay.stats.distributions import Floats, Ints, f_tail, t_cdf
from assay.stats.noise import BuildNoise
from assay.stats.paired import cluster_sums

_ALPHA = 0.02
"""Small, because no gate is judged against a baseline that drifts."""
_ALIKE = 0.1
_FEWEST_PROMPTS = 6
FEWEST_BUILDS = 3
"""Fewer say nothing about how builds vary."""
LARGEST_NOISE = 0.05
"""Standard deviation of builds beyond which they are not taken for builds of one agent."""
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
    """Of builds that vary by no more than LARGEST_NOISE."""
    found: bool = False
    outlier: int | None = None
    """Number of the build that differs most, where builds differ."""
    outlier_p: float | None = None
    """Of no build that differs from the others more than they do among each other."""
    noise: BuildNoise | None = None

    @property
    def p_value(self) -> float | None:
        """Of no drift, from all tests together (Bonferroni)."""
        ps = [p for p in (self.trend_p, self.heterogeneity_p, self.outlier_p) if p is not None]
        return min(1.0, len(ps) * min(ps)) if ps else None


class _Effects(msgspec.Struct, frozen=True):
    """The builds' deviations from the mean of the same prompts, and their noise."""

    values: Floats
    chance: Floats
    """Variance of each by chance between trials."""
    sizes: Ints
    n_units: int


def measure_drift(passes: Ints, measured: Ints, clusters: Ints | None = None) -> Drift:
    """Test builds in the order of time; both tables have a row per prompt, a column per build.

    Each prompt is compared with itself, so that builds need not have the same prompts. Drift has to
    be beyond chance between prompts (or clusters of them) and beyond the noise of builds, and is
    found at 2 % for all tests together.
    """
    seen = (measured > 0).sum(axis=1) >= 2
    passes, measured = passes[seen], measured[seen]
    n_prompts, n_builds = measured.shape
    if n_builds < 2 or n_prompts < _FEWEST_PROMPTS:
        return Drift(n_builds=n_builds, n_prompts=n_prompts)
    if clusters is not None:
        clusters = clusters[seen]
    excess = passes - measured * (passes.sum(axis=1) / measured.sum(axis=1))[:, None]
    effects = _effects(excess, measured, clusters)
    trend, trend_p = _trend(excess, measured, clusters)
    if trend_p is not None:
        trend_p = max(trend_p, _trend_beyond_noise(effects))
    differ_p = _spread_p(effects) if n_builds >= FEWEST_BUILDS else None
    outlier, outlier_p = _outlier(effects)
    drift = Drift(
        n_builds=n_builds,
        n_prompts=n_prompts,
        trend=trend,
        trend_p=trend_p,
        heterogeneity_p=differ_p,
        outlier_p=outlier_p,
        noise=_noise(effects),
    )
    if drift.p_value is None or drift.p_value > _ALPHA:
        return drift
    return msgspec.structs.replace(drift, found=True, outlier=outlier)


def count_alike(passes: Ints, measured: Ints, clusters: Ints | None = None) -> int:
    """Return how many of the newest builds show no drift among each other."""
    n_builds = int(measured.shape[1])
    for first in range(n_builds):
        drift = measure_drift(passes[:, first:], measured[:, first:], clusters)
        # Where there was drift, builds are alike only if nothing speaks against it.
        if drift.p_value is None or drift.p_value > _ALIKE:
            return n_builds - first
    return 1


def _effects(excess: Floats, measured: Ints, clusters: Ints | None) -> _Effects:
    n_builds, sizes = excess.shape[1], measured.sum(axis=0)
    values = excess.sum(axis=0) / np.maximum(sizes, 1)
    rest = excess - measured * values
    units = np.stack([cluster_sums(column, clusters) for column in rest.T], axis=1)
    # Each prompt is compared with its own mean, which has taken its part of the chance.
    scale = n_builds / (n_builds - 1) / np.maximum(sizes, 1) ** 2
    chance: Floats = np.square(units).sum(axis=0) * scale
    return _Effects(values - values.mean(), chance, sizes, len(units))


def _noise(effects: _Effects) -> BuildNoise | None:
    n = len(effects.values)
    if n < FEWEST_BUILDS:
        return None
    seen = float(np.square(effects.values).sum()) / (n - 1)
    shares = effects.sizes / effects.sizes.sum()
    return BuildNoise(
        n_builds=n,
        variance=max(0.0, seen - float(effects.chance.mean())),
        seen=seen,
        share=float(np.square(shares).sum()),
    )


def _trend(
    excess: Floats, measured: Ints, clusters: Ints | None
) -> tuple[float | None, float | None]:
    """Return the steady change from first to last build, and p of none by chance of prompts.

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


def _trend_beyond_noise(effects: _Effects) -> float:
    """Return p of no trend if each build has an effect of its own.

    Their variance is what the trend leaves, or of very few builds the largest that is taken for
    noise.
    """
    n = len(effects.values)
    times = np.linspace(-0.5, 0.5, n)
    information = float(times @ times)
    slope = float(effects.values @ times) / information
    chance = float(effects.chance.mean())
    variance, df = LARGEST_NOISE**2 + chance, float(effects.n_units - 1)
    if n > FEWEST_BUILDS:
        left = float(np.square(effects.values - slope * times).sum()) / (n - 2)
        variance, df = _with_chance(left, n - 2, effects)
    return 2.0 * t_cdf(-abs(slope) / math.sqrt(max(variance, _TIE) / information), df)


def _with_chance(seen: float, df: int, effects: _Effects) -> tuple[float, float]:
    """Return a variance of builds, no less than chance between trials makes, and its df."""
    variance = max(seen, float(effects.chance.mean()))
    ratio = max(variance, _TIE) / max(seen, _TIE)
    return variance, min(df * ratio**2, float(max(effects.n_units - 1, df)))


def _spread_p(effects: _Effects) -> float:
    """Return p of builds that vary by no more than the largest noise."""
    df = len(effects.values) - 1
    expected = LARGEST_NOISE**2 + effects.chance
    form = float((np.square(effects.values) / expected).sum())
    return f_tail(form / df, df, max(effects.n_units - 1, 1))


def _outlier(effects: _Effects) -> tuple[int, float | None]:
    """Return the build that differs most from the others, and p of none that does so."""
    n, values = len(effects.values), effects.values
    number = int(np.abs(values).argmax())
    if n < FEWEST_BUILDS + 1:
        return number, None
    others = np.delete(values, number)
    variance, df = _with_chance(float(others.var(ddof=1)), n - 2, effects)
    t = abs(values[number] - others.mean()) / math.sqrt(max(variance, _TIE) * n / (n - 1))
    return number, min(1.0, n * 2.0 * t_cdf(-float(t), df))


def _self_normalised_p(units: Floats) -> float:
    scale = float(np.square(units).sum()) ** 0.5
    if scale == 0.0:
        return 1.0
    n = max(2, int((np.abs(units) > _TIE).sum()))
    return 2.0 * t_cdf(-abs(float(units.sum())) / scale, n - 1)
