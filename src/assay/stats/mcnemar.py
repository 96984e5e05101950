"""Exact McNemar test for single trials: only prompts where the two runs differ can speak."""

from functools import lru_cache

import numpy as np

from assay.stats.distributions import binomial_pmf


def mcnemar_p(n_only_a: int, n_only_b: int, *, mid_p: bool = False) -> float:
    """Return the two-sided p from the two discordant counts; 1 when there are none.

    The exact p never alarms too often. The mid-p is less cautious and close to its level.
    """
    if n_only_a < 0 or n_only_b < 0:
        msg = f"discordant counts cannot be negative, got {n_only_a} and {n_only_b}"
        raise ValueError(msg)
    n, fewer = n_only_a + n_only_b, min(n_only_a, n_only_b)
    if n == 0:
        return 1.0
    pmf = binomial_pmf(n, 0.5)
    tail = 2.0 * float(pmf[: fewer + 1].sum())
    if mid_p:
        tail -= float(pmf[fewer])
    return min(1.0, tail)


def smallest_p(n_prompts: int) -> float:
    """Return the smallest p that n prompts can ever give: all of them differ, one way.

    It holds for McNemar and for flipping whole prompts alike; five prompts give 0.0625.
    """
    return min(1.0, 2.0 * 0.5**n_prompts)


@lru_cache
def fewest_prompts(alpha: float) -> int:
    """Return how many prompts it takes before any result at all could be significant."""
    n = 1
    while smallest_p(n) > alpha:
        n += 1
    return n


def mcnemar_power(n_prompts: int, rate_only_a: float, rate_only_b: float, alpha: float) -> float:
    """Return the chance that the exact test on n prompts gives p <= alpha."""
    discordant = rate_only_a + rate_only_b
    if discordant <= 0.0 or n_prompts == 0:
        return 0.0
    chance_of_n = binomial_pmf(n_prompts, min(discordant, 1.0))
    power = 0.0
    for n, chance in enumerate(chance_of_n.tolist()):
        if chance > 1e-12 and smallest_p(n) <= alpha:
            power += chance * _chance_to_reject(n, rate_only_b / discordant, alpha)
    return power


def _chance_to_reject(n: int, share_b: float, alpha: float) -> float:
    tail = 2.0 * np.cumsum(binomial_pmf(n, 0.5))
    edge = int(np.searchsorted(tail, alpha * (1 + 1e-12), side="right"))
    pmf = binomial_pmf(n, min(max(share_b, 0.0), 1.0))
    return float(pmf[:edge].sum() + pmf[n - edge + 1 :].sum()) if edge else 0.0
