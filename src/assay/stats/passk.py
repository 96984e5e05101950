"""pass@k and pass^k: the seed's plug-in formulas, and the unbiased ones with intervals."""

from collections.abc import Iterable
from functools import partial
from math import comb
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import ArrayLike

from assay.records.trial import PassAtK
from assay.stats.distributions import Floats, Ints, as_counts, as_tallies, binomial_pmf
from assay.stats.rates import Interval, share_interval, wilson_interval


class PassK(msgspec.Struct, frozen=True, rename="camel"):
    """Mean over prompts for one k, the same prompts for every k; others are left out.

    Bounds are over all prompts, if the trials that were not measured had all failed, or passed;
    None when all were measured.
    """

    k: int
    n_prompts: int
    n_left_out: int
    pass_at_k: float
    pass_at_k_interval: Interval
    pass_exp_k: float
    pass_exp_k_interval: Interval
    pass_at_k_bounds: tuple[float, float] | None = None
    pass_exp_k_bounds: tuple[float, float] | None = None


def pass_at_each_k(passes: ArrayLike, measured: ArrayLike, k_max: int) -> Floats:
    """Return the unbiased 1 - C(n-c,k)/C(n,k), a row per prompt and a column per k = 1..k_max.

    NaN marks k > n: with fewer than k trials the quantity cannot be estimated.
    """
    n_passed, n_measured = as_tallies(passes, measured)
    return 1.0 - _all_of_k(n_measured - n_passed, n_measured, k_max)


def pass_exp_each_k(passes: ArrayLike, measured: ArrayLike, k_max: int) -> Floats:
    """Return the unbiased C(c,k)/C(n,k), a row per prompt and a column per k = 1..k_max."""
    n_passed, n_measured = as_tallies(passes, measured)
    return _all_of_k(n_passed, n_measured, k_max)


def average_pass_k(
    passes: ArrayLike,
    measured: ArrayLike,
    planned: ArrayLike | None = None,
    level: float = 0.95,
    clusters: ArrayLike | None = None,
) -> list[PassK]:
    """Return pass@k and pass^k averaged over prompts for every k that half of the prompts allow.

    All k are averaged over the same prompts, those that allow the largest: else pass^5 could be
    above pass^4 where the trials of hard prompts are missing.
    """
    n_passed, n_measured = as_tallies(passes, measured)
    n_planned = n_measured if planned is None else as_counts(planned, "planned")
    if not n_measured.any():
        return []
    k_max = max(1, int(np.sort(n_measured)[n_measured.size // 2]))
    enough = n_measured >= k_max
    at_k = pass_at_each_k(n_passed[enough], n_measured[enough], k_max)
    exp_k = pass_exp_each_k(n_passed[enough], n_measured[enough], k_max)
    chosen = None if clusters is None else as_counts(clusters, "clusters")[enough]
    interval = partial(share_interval, level=level, n_trials=k_max, clusters=chosen)
    at_bounds, exp_bounds = _bounds_of_each_k(n_passed, n_measured, n_planned, k_max)
    return [
        PassK(
            k=k + 1,
            n_prompts=int(enough.sum()),
            n_left_out=int((~enough).sum()),
            pass_at_k=float(at_k[:, k].mean()),
            pass_at_k_interval=interval(at_k[:, k]),
            pass_exp_k=float(exp_k[:, k].mean()),
            pass_exp_k_interval=interval(exp_k[:, k]),
            pass_at_k_bounds=at_bounds[k],
            pass_exp_k_bounds=exp_bounds[k],
        )
        for k in range(k_max)
    ]


type _BoundsOfEachK = list[tuple[float, float] | None]


def _bounds_of_each_k(
    passed: Ints, measured: Ints, planned: Ints, k_max: int
) -> tuple[_BoundsOfEachK, _BoundsOfEachK]:
    """Return the bounds of pass@k and of pass^k for k = 1..k_max."""
    missing = np.maximum(planned - measured, 0)
    whole = planned >= k_max  # a prompt with fewer planned trials has no pass@k to bound
    if not missing.any() or not whole.any():
        return [None] * k_max, [None] * k_max
    total, low, high = planned[whole], passed[whole], (passed + missing)[whole]
    at_low, at_high = (pass_at_each_k(c, total, k_max).mean(axis=0) for c in (low, high))
    exp_low, exp_high = (pass_exp_each_k(c, total, k_max).mean(axis=0) for c in (low, high))
    at = list(zip(at_low.tolist(), at_high.tolist(), strict=True))
    exp = list(zip(exp_low.tolist(), exp_high.tolist(), strict=True))
    return [*at], [*exp]


def resampled_pass_at_k(
    passes: ArrayLike, trials: ArrayLike, level: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Return median, low and high of 1-(1-mean)^k over resampled trials, per prompt.

    The seed draws resamples to rank prompts. The resampled pass count is exactly binomial(k, c/k),
    so its quantiles are read off directly: what the seed's answer tends to, without noise.
    """
    n_passed, n_trials = as_tallies(passes, trials)
    if (n_trials == 0).any():
        msg = "a prompt without trials has no pass rate; leave it out"
        raise ValueError(msg)
    # Prompts with equal counts share one distribution, and there are few distinct pairs.
    pairs, where = np.unique(np.stack((n_passed, n_trials), axis=1), axis=0, return_inverse=True)
    shares = (0.5, 0.5 - 0.5 * level, 0.5 + 0.5 * level)
    table = np.empty((len(pairs), len(shares)))
    for row, (c, k) in enumerate(pairs.tolist()):
        cdf = np.cumsum(binomial_pmf(k, c / k))
        counts = np.minimum(np.searchsorted(cdf, shares, side="right"), k)
        table[row] = 1.0 - (1.0 - counts / k) ** k
    picked = table[where.reshape(-1)]
    return picked[:, 0], picked[:, 1], picked[:, 2]


def _all_of_k(hits: Ints, n: Ints, k_max: int) -> Floats:
    """Return the chance that k trials drawn without replacement are all hits, for k = 1..k_max."""
    # C(h,k)/C(n,k) as a running product of (h-i)/(n-i): no large binomials, all k in one pass.
    steps = np.arange(k_max)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (hits[:, None] - steps) / (n[:, None] - steps)
    chance: Floats = np.cumprod(np.maximum(factors, 0.0), axis=1)
    return np.where(n[:, None] > steps, chance, np.nan)


def prompt_pass_k(n_passed: int, n_measured: int) -> list[PassAtK]:
    """Return the unbiased chances for every k <= n.

    Wilson's limits of the pass rate are carried through 1-(1-p)^k and p^k, which both increase
    with p. The unbiased estimate is not that function of the pass rate and may lie beyond; then the
    interval is widened to include it.
    """
    interval = wilson_interval(n_passed, n_measured)
    if interval is None:
        return []
    return [_chances(n_passed, n_measured, k, interval) for k in range(1, n_measured + 1)]


def seed_pass_k(n_passed: int, n: int) -> tuple[float, float]:
    """Return the seed's plug-in passAtK and passExpK: biased, kept for compatibility."""
    if n < 1:
        msg = "no trial was measured, so there is no pass@k"
        raise ValueError(msg)
    rate = n_passed / n
    return 1 - (1 - rate) ** n, rate**n


def pass_numbers(passes: Iterable[bool | UnsetType]) -> dict[str, Any]:
    """Return what the row of a prompt says about its trials; UNSET is one without a verdict."""
    measured = [passed for passed in passes if passed is not UNSET]
    n_passed, n_measured = sum(measured), len(measured)
    numbers: dict[str, Any] = dict.fromkeys(("pass_rate", "pass_at_k", "pass_exp_k"), UNSET)
    if n_measured:
        at_k, exp_k = seed_pass_k(n_passed, n_measured)
        rate = n_passed / n_measured
        numbers = {"pass_rate": rate, "pass_at_k": at_k, "pass_exp_k": exp_k}
    return {**numbers, "n_measured": n_measured, "per_k": prompt_pass_k(n_passed, n_measured)}


def _chances(n_passed: int, n_measured: int, k: int, rate: Interval) -> PassAtK:
    at_k = 1 - comb(n_measured - n_passed, k) / comb(n_measured, k)
    exp_k = comb(n_passed, k) / comb(n_measured, k)
    return PassAtK(
        k=k,
        pass_at_k=at_k,
        pass_at_k_interval=_widened_to(at_k, 1 - (1 - rate.low) ** k, 1 - (1 - rate.high) ** k),
        pass_exp_k=exp_k,
        pass_exp_k_interval=_widened_to(exp_k, rate.low**k, rate.high**k),
    )


def _widened_to(estimate: float, low: float, high: float) -> tuple[float, float]:
    return min(low, estimate), max(high, estimate)
