"""pass@k and pass^k of a single prompt, with intervals from its own trials."""

from math import comb

from assay.records.trials import PassAtK
from assay.stats.interval import Interval
from assay.stats.rates import wilson_interval


def prompt_pass_k(n_passed: int, n_measured: int) -> list[PassAtK]:
    """Give the unbiased chances for every k <= n.

    The interval of the pass rate is carried through 1-(1-p)^k and p^k, which only ever grow with p.
    The unbiased estimate is not that function of the pass rate and may lie beyond; then the
    interval is widened to it.
    """
    interval = wilson_interval(n_passed, n_measured)
    if interval is None:
        return []
    return [_chances(n_passed, n_measured, k, interval) for k in range(1, n_measured + 1)]


def seed_pass_k(n_passed: int, n: int) -> tuple[float, float]:
    """Give the seed's plug-in passAtK and passExpK: biased, kept for those who read them."""
    if n < 1:
        msg = "no trial was measured, so there is no pass@k"
        raise ValueError(msg)
    rate = n_passed / n
    return 1 - (1 - rate) ** n, rate**n


def _chances(n_passed: int, n_measured: int, k: int, rate: Interval) -> PassAtK:
    at_k = 1 - comb(n_measured - n_passed, k) / comb(n_measured, k)
    exp_k = comb(n_passed, k) / comb(n_measured, k)
    return PassAtK(
        k=k,
        pass_at_k=at_k,
        pass_at_k_interval=_holding(at_k, 1 - (1 - rate.low) ** k, 1 - (1 - rate.high) ** k),
        pass_exp_k=exp_k,
        pass_exp_k_interval=_holding(exp_k, rate.low**k, rate.high**k),
    )


def _holding(estimate: float, low: float, high: float) -> tuple[float, float]:
    return min(low, estimate), max(high, estimate)
