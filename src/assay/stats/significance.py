"""Exact McNemar and sign-flip permutation tests, and Holm's correction for many of them."""

import math
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.distributions import (
    Floats,
    Ints,
    as_shares,
    as_values,
    binomial_pmf,
    normal_cdf,
    normal_quantile,
)


def mcnemar_p(n_only_a: int, n_only_b: int, *, mid_p: bool = False) -> float:
    """Return the two-sided p from the two discordant counts; 1 when there are none.

    The exact p is conservative. The mid-p, which the verdict uses, is closer to its nominal level:
    at alpha = 0.05 it is wrong in at most 4.8 % of cases.
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


@lru_cache(maxsize=65_536)
def chance_of_drop(passed_a: int, n_a: int, passed_b: int, n_b: int) -> float:
    """Return the chance that B passes so few of its trials, or fewer, if it is as good as A.

    Fisher's exact test of one prompt, one-sided: all ways to share out the passes are as likely.
    """
    passed, n = passed_a + passed_b, n_a + n_b
    fewest = max(0, passed - n_a)
    ways = sum(
        math.comb(passed, x) * math.comb(n - passed, n_b - x) for x in range(fewest, passed_b + 1)
    )
    return ways / math.comb(n, n_b)


def losses_differ(lost_a: int, n_a: int, lost_b: int, n_b: int, alpha: float = 0.1) -> bool:
    """Whether two arms lost different shares of their trials: Fisher's exact test, two-sided.

    Its level is high on purpose: equality is what has to be plausible. Of many trials the test of
    two proportions takes its place, which is the same there.
    """
    if not n_a or not n_b or not lost_a + lost_b:
        return False
    if n_a + n_b > _MOST_EXACT:
        share = (lost_a + lost_b) / (n_a + n_b)
        se = math.sqrt(share * (1.0 - share) * (1.0 / n_a + 1.0 / n_b))
        return abs(lost_a / n_a - lost_b / n_b) > normal_quantile(1.0 - 0.5 * alpha) * se
    down = chance_of_drop(lost_a, n_a, lost_b, n_b)
    return min(down, chance_of_drop(lost_b, n_b, lost_a, n_a)) <= 0.5 * alpha


_MOST_EXACT = 5000


def stratified_p(run_a: tuple[Ints, Ints], run_b: tuple[Ints, Ints]) -> float | None:
    """Return the two-sided p of no difference on these very prompts; None if none is measured.

    Each run is (passes, measured trials) of each prompt. Given how many trials of a prompt passed
    in both runs together, all ways to share them out are as likely (Mantel and Haenszel, mid-p).
    It says nothing about other prompts: one that alone gets much better decides it.
    """
    both = (run_a[1] > 0) & (run_b[1] > 0)
    if not both.any():
        return None
    passed_b = run_b[0][both]
    n_a, n_b = run_a[1][both], run_b[1][both]
    passed = run_a[0][both] + passed_b
    mixed = (passed > 0) & (passed < n_a + n_b)
    passed, n_a, n_b, passed_b = (x[mixed] for x in (passed, n_a, n_b, passed_b))
    if not passed.size:
        return 1.0
    seen = int(passed_b.sum())
    if passed.size * int(n_b.sum()) > _MOST_CONVOLVED:
        n = n_a + n_b
        variance = float((n_a * n_b * passed * (n - passed) / (n * n * (n - 1.0))).sum())
        z = (seen - float((passed * n_b / n).sum())) / math.sqrt(variance)
        return 2.0 * normal_cdf(-abs(z))
    chances = np.ones(1)
    for key in zip(passed.tolist(), n_a.tolist(), n_b.tolist(), strict=True):
        chances = np.convolve(chances, _shared_out(*key))
    low = float(chances[:seen].sum()) + 0.5 * float(chances[seen])
    return min(1.0, 2.0 * min(low, 1.0 - low))


_MOST_CONVOLVED = 20_000_000


@lru_cache(maxsize=4_096)
def _shared_out(passed: int, n_a: int, n_b: int) -> Floats:
    """Return the chance that B has 0, 1, ... of the passes (hypergeometric)."""
    all_ways = math.comb(n_a + n_b, passed)
    ways = [math.comb(n_b, x) * math.comb(n_a, passed - x) for x in range(min(passed, n_b) + 1)]
    return np.array([way / all_ways for way in ways])


def smallest_p(n_prompts: int) -> float:
    """Return the smallest p that n prompts can ever give: all of them differ, one way.

    It holds for the exact tests, McNemar's and flipping whole prompts; five prompts give 0.0625.
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
    """Return the chance that the mid-p test on n prompts gives p <= alpha."""
    discordant = rate_only_a + rate_only_b
    if discordant <= 0.0 or n_prompts == 0:
        return 0.0
    chance_of_n = binomial_pmf(n_prompts, min(discordant, 1.0))
    power = 0.0
    for n, chance in enumerate(chance_of_n.tolist()):
        if chance > 1e-12:
            power += chance * _chance_to_reject(n, rate_only_b / discordant, alpha)
    return power


def _chance_to_reject(n: int, share_b: float, alpha: float) -> float:
    fair = binomial_pmf(n, 0.5)
    tail = 2.0 * np.cumsum(fair) - fair
    # Below edge wins on the smaller side the test rejects; the factor lets p == alpha count.
    edge = int(np.searchsorted(tail, alpha * (1 + 1e-12), side="right"))
    pmf = binomial_pmf(n, min(max(share_b, 0.0), 1.0))
    return float(pmf[:edge].sum() + pmf[n - edge + 1 :].sum()) if edge else 0.0


# Up to here all 2^n sign patterns are enumerated.
_ENUMERATED_PROMPTS = 16
_LATTICE_POINTS = 8_000
_FINEST_LATTICE = 60
_FEW_GROUPS = 64
# With more prompts, and few of equal size, the normal limit replaces the sampling.
_SAMPLED_PROMPTS = 5_000
_CHUNK_BYTES = 4_000_000
# Sums that should tie differ in their last bits; counting them as ties keeps the test valid.
_TIE = 1e-9


class PermutationTest(msgspec.Struct, frozen=True, rename="camel"):
    """A two-sided p and how it was reached."""

    p_value: float
    method: str


def flip_test(differences: ArrayLike, *, seed: int, n_resamples: int = 9_999) -> PermutationTest:
    """Test that per-prompt differences are symmetric about zero; statistic: their sum."""
    all_differences = as_values(differences, "differences")
    d = all_differences[np.abs(all_differences) > _TIE]
    if d.size == 0:
        return PermutationTest(1.0, "sign flip: no prompt differs")
    lattice = _as_lattice(d)
    if lattice is not None and 2 * int(np.abs(lattice).sum()) < _LATTICE_POINTS:
        return PermutationTest(_lattice_p(lattice), "sign flip, exact")
    if d.size <= _ENUMERATED_PROMPTS:
        return PermutationTest(_enumerated_p(d), "sign flip, exact")
    sizes, counts = np.unique(np.round(np.abs(d), 12), return_counts=True)
    if sizes.size > _FEW_GROUPS and d.size > _SAMPLED_PROMPTS:
        z = abs(float(d.sum())) / math.sqrt(float(np.square(d).sum()))
        return PermutationTest(math.erfc(z / math.sqrt(2.0)), "sign flip, normal limit")
    rng = np.random.default_rng(seed)
    if sizes.size <= _FEW_GROUPS:
        sums = _sample_groups(sizes, counts, n_resamples, rng)
    else:
        sums = _sample_signs(np.abs(d), n_resamples, rng)
    n_extreme = int((np.abs(sums) >= _edge(d)).sum())
    # The observed signs count as one resample, so that a sampled p is never zero.
    p_value = (n_extreme + 1) / (n_resamples + 1)
    return PermutationTest(p_value, f"sign flip, {n_resamples} resamples")


def _as_lattice(d: Floats) -> Ints | None:
    """Return the differences as whole multiples of one fraction, as rates of k trials are."""
    for parts in range(1, _FINEST_LATTICE + 1):
        scaled = d * parts
        whole = np.rint(scaled)
        if abs(scaled[0] - whole[0]) < _TIE and np.abs(scaled - whole).max() < _TIE * parts:
            return whole.astype(np.int64)
    return None


def _lattice_p(steps: Ints) -> float:
    """Build the exact distribution of the flipped sum, one group of equal sizes at a time."""
    sizes, counts = np.unique(np.abs(steps), return_counts=True)
    distribution = np.ones(1)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        # Each flip moves the sum by twice the size; how many flip is binomial.
        kernel = np.zeros(2 * size * count + 1)
        kernel[:: 2 * size] = binomial_pmf(count, 0.5)
        distribution = np.convolve(distribution, kernel)
    middle = distribution.size // 2
    observed = abs(int(steps.sum()))
    if observed == 0:
        return 1.0
    return min(1.0, 2.0 * float(distribution[middle + observed :].sum()))


def _enumerated_p(d: Floats) -> float:
    sums = np.zeros(1)
    for size in np.abs(d):
        sums = np.concatenate((sums - size, sums + size))
    return float((np.abs(sums) >= _edge(d)).mean())


def _sample_groups(
    sizes: Floats, counts: Ints, n_resamples: int, rng: "np.random.Generator"
) -> Floats:
    """Draw how many of each size stay positive, instead of drawing every sign."""
    positive = rng.binomial(counts, 0.5, size=(n_resamples, sizes.size))
    sums: Floats = (2.0 * positive - counts) @ sizes
    return sums


def _sample_signs(sizes: Floats, n_resamples: int, rng: "np.random.Generator") -> Floats:
    # One random bit for each sign, drawn as bytes.
    n_bytes = -(-sizes.size // 8)
    n_rows = max(1, _CHUNK_BYTES // (8 * sizes.size))
    chunks = []
    for start in range(0, n_resamples, n_rows):
        shape = (min(n_rows, n_resamples - start), n_bytes)
        coins = np.unpackbits(rng.integers(0, 256, size=shape, dtype=np.uint8), axis=1)
        positive = coins[:, : sizes.size].astype(np.float64) @ sizes
        chunks.append(2.0 * positive - sizes.sum())
    return np.concatenate(chunks)


def _edge(d: Floats) -> float:
    # The observed sum, lowered so that sums equal but for rounding count as extreme too.
    return abs(float(d.sum())) - _TIE * float(np.abs(d).sum())


def adjust_holm(p_values: ArrayLike) -> Floats:
    """Return Holm-adjusted p-values in the given order; compare each with the desired alpha."""
    p = as_shares(p_values, "p-values")
    order = np.argsort(p, kind="stable")
    # Step-down: the smallest times n, the next times n - 1, none below the one before it.
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted
