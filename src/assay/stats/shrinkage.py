"""Several estimates of the same kind seen together: each is drawn towards their mean.

The largest of several estimates is too large: it was chosen for its luck as well. A hierarchical
normal model says by how much. The spread of the true values is not known, so all spreads count by
how well they explain what was seen; where chance alone explains it, all values are nearly equal.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from assay.stats.distributions import Floats, normal_quantile
from assay.stats.rates import Interval, make_interval

_MOST_SPREAD, _N_SPREADS = 0.6, 121
_USUAL_SPREAD = 0.15
"""Pass rates of set-ups and of categories seldom differ by more than a few times this."""
_N_DRAWS = 4_000
_LEAST_VARIANCE = 1e-6


class ShrunkenEstimate(msgspec.Struct, frozen=True, rename="camel"):
    """What is expected of one of several values, given all of them."""

    value: float
    interval: Interval
    best_chance: float
    """That it is the largest."""


def shrink(
    values: Floats, variances: Floats, *, seed: int, limits: tuple[float, float] = (-1.0, 1.0)
) -> list[ShrunkenEstimate]:
    """Return what is expected of each of these estimates with independent errors."""
    if values.size == 0:
        return []
    spreads = np.linspace(0.0, _MOST_SPREAD, _N_SPREADS)[:, None]
    errors = np.maximum(variances, _LEAST_VARIANCE)
    weights = 1.0 / (errors + np.square(spreads))
    mean_variance = 1.0 / weights.sum(axis=1, keepdims=True)
    mean = (weights * values).sum(axis=1, keepdims=True) * mean_variance
    fit = 0.5 * (np.log(weights) - weights * np.square(values - mean)).sum(axis=1)
    fit += 0.5 * np.log(mean_variance[:, 0]) - 0.5 * np.square(spreads[:, 0] / _USUAL_SPREAD)
    chance = np.exp(fit - fit.max())
    chance /= chance.sum()
    kept = np.square(spreads) * weights
    centres = kept * values + (1.0 - kept) * mean
    own = kept * errors
    apart = own + np.square(1.0 - kept) * mean_variance
    centre = chance @ centres
    spread = np.sqrt(chance @ (apart + np.square(centres - centre)))
    # Of one spread and one mean the values are independent.
    rng = np.random.default_rng(seed)
    drawn = rng.choice(_N_SPREADS, _N_DRAWS, p=chance)
    normal = rng.standard_normal((_N_DRAWS, values.size + 1))
    means = mean[drawn] + np.sqrt(mean_variance[drawn]) * normal[:, :1]
    values_drawn = kept[drawn] * values + (1.0 - kept[drawn]) * means
    values_drawn += np.sqrt(own[drawn]) * normal[:, 1:]
    best = _best_chances(values_drawn)
    z = normal_quantile(0.975)
    return [
        ShrunkenEstimate(
            float(c), make_interval(c - z * s, c + z * s, 0.95, "hierarchical", limits), float(b)
        )
        for c, s, b in zip(centre.tolist(), spread.tolist(), best.tolist(), strict=True)
    ]


def _best_chances(drawn: Floats) -> Floats:
    """Return how often each column is the largest; equal ones share it."""
    best = drawn >= drawn.max(axis=1, keepdims=True) - 1e-12
    shares: Floats = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares


class RankedArm(msgspec.Struct, frozen=True, rename="camel"):
    """An arm among several on the same prompts."""

    rate: float
    """As it was measured."""
    expected: ShrunkenEstimate


def rank_arms(rates: Floats, *, seed: int) -> list[RankedArm]:
    """Rank arms by their pass rates: a row for each prompt, a column for each arm, none missing.

    Prompts are the same in all arms, so what is hard for all of them is no error of a difference.
    """
    n, n_arms = rates.shape
    if n == 0:
        return []
    means = rates.mean(axis=0)
    rest = rates - rates.mean(axis=1, keepdims=True) - means + rates.mean()
    df = max(1, (n - 1) * (n_arms - 1))
    # Half a prompt of each arm stands alone: few prompts may all agree.
    variance = (float(np.square(rest).sum()) + 0.5) / (df + 1)
    found = shrink(means, np.full(n_arms, variance / n), seed=seed, limits=(0.0, 1.0))
    return [RankedArm(rate, expected) for rate, expected in zip(means.tolist(), found, strict=True)]


class GroupDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The difference between two runs in one group of prompts."""

    name: str
    n_prompts: int
    difference: float
    shrunken: float
    interval: Interval
    """Of the shrunken difference."""


def shrink_groups(
    names: Sequence[str], groups: Sequence[Floats], *, seed: int
) -> list[GroupDifference]:
    """Draw the mean differences of groups of prompts towards the one of all groups.

    groups has the differences of the prompts in each group; none of them is empty.
    """
    sizes = np.array([group.size for group in groups])
    means = np.array([float(group.mean()) for group in groups])
    inside = sum(float(np.square(group - group.mean()).sum()) for group in groups)
    df = int(sizes.sum()) - len(groups)
    # One prompt more that differs by a half: few prompts may all agree.
    variance = (inside + 0.25) / (max(df, 0) + 1)
    found = shrink(means, variance / sizes, seed=seed)
    return [
        GroupDifference(
            name=name,
            n_prompts=int(n),
            difference=mean,
            shrunken=one.value,
            interval=one.interval,
        )
        for name, n, mean, one in zip(names, sizes, means.tolist(), found, strict=True)
    ]
