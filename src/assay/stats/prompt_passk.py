"""pass@k and pass^k of a single prompt, with intervals from its own trials."""

from math import comb

from assay.records.trials import PassAtK
from assay.stats.rates import wilson_interval


def prompt_pass_k(n_passed: int, n_measured: int) -> list[PassAtK]:
    """Give the unbiased chances for every k <= n.

    The interval of the pass rate is carried through 1-(1-p)^k and p^k, which only ever grow with p.
    """
    interval = wilson_interval(n_passed, n_measured)
    if interval is None:
        return []
    low, high = interval.low, interval.high
    return [
        PassAtK(
            k=k,
            pass_at_k=1 - comb(n_measured - n_passed, k) / comb(n_measured, k),
            pass_at_k_interval=(1 - (1 - low) ** k, 1 - (1 - high) ** k),
            pass_exp_k=comb(n_passed, k) / comb(n_measured, k),
            pass_exp_k_interval=(low**k, high**k),
        )
        for k in range(1, n_measured + 1)
    ]


def seed_pass_k(n_passed: int, n: int) -> tuple[float, float]:
    """Give the seed's plug-in passAtK and passExpK: biased, kept for those who read them."""
    rate = n_passed / n
    return 1 - (1 - rate) ** n, rate**n
