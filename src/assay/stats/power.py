"""How many prompts a difference needs, and what a number of prompts can show.

Repeats are not sample size: they thin out the variance within a prompt (see spread.py), and only
prompts divide all of it.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from assay.stats.distributions import normal_cdf, normal_quantile, t_quantile
from assay.stats.mcnemar import fewest_prompts, mcnemar_power
from assay.stats.spread import PairedSpread

# Above this the exact sum is slow and the normal formula is as good.
_EXACT_PROMPTS = 1_000
_MOST_PROMPTS = 10_000_000


class PlanRow(msgspec.Struct, frozen=True, rename="camel"):
    """One way to see the difference; n_prompts None: no number of prompts that makes sense."""

    n_trials: int
    n_prompts: int | None
    n_runs_of_agent: int | None


def power_at(
    spread: PairedSpread,
    difference: float,
    n_prompts: int,
    *,
    n_trials: int = 1,
    alpha: float = 0.05,
    pass_fail: bool = True,
) -> float:
    """Return the chance that n prompts show the difference at the two-sided level alpha."""
    if n_prompts < fewest_prompts(alpha) or difference == 0.0:
        return 0.0
    variance = spread.variance(n_trials)
    if pass_fail and n_trials == 1 and n_prompts <= _EXACT_PROMPTS:
        discordance = min(1.0, max(variance + difference**2, abs(difference)))
        only_b = 0.5 * (discordance + abs(difference))
        return mcnemar_power(n_prompts, discordance - only_b, only_b, alpha)
    if variance == 0.0:
        return 1.0
    shift = abs(difference) * math.sqrt(n_prompts / variance)
    return _chance_beyond_t(shift, t_quantile(1.0 - 0.5 * alpha, n_prompts - 1), n_prompts - 1)


def prompts_needed(
    spread: PairedSpread,
    difference: float,
    *,
    n_trials: int = 1,
    power: float = 0.8,
    alpha: float = 0.05,
    pass_fail: bool = True,
) -> int | None:
    """Return how many prompts show the difference with the wanted power; None: out of reach."""
    if difference == 0.0:
        return None

    def enough(n_prompts: int) -> bool:
        reached = power_at(
            spread, difference, n_prompts, n_trials=n_trials, alpha=alpha, pass_fail=pass_fail
        )
        return reached >= power

    at_least = fewest_prompts(alpha)
    if pass_fail:
        step = abs(difference) * n_trials
        at_least = max(at_least, math.ceil(_differing_prompts(alpha, power) / step))
    return _first_true(enough, at_least)


def plan_trials(
    spread: PairedSpread,
    difference: float,
    *,
    trials: Sequence[int] = (1, 3, 5, 10),
    power: float = 0.8,
    alpha: float = 0.05,
) -> list[PlanRow]:
    """Return the prompts needed for each number of trials, and the agent runs of both sides."""
    rows = []
    for k in trials:
        n = prompts_needed(spread, difference, n_trials=k, power=power, alpha=alpha)
        rows.append(PlanRow(k, n, None if n is None else 2 * n * k))
    return rows


def smallest_difference(
    variance: float,
    n_prompts: int,
    *,
    n_trials: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> float | None:
    """Return the smallest difference of rates or scores that n prompts would show; None: none.

    n_trials is for rates, whose differences come in steps of one trial.
    """
    if n_prompts < fewest_prompts(alpha):
        return None
    df = n_prompts - 1
    reach = t_quantile(1.0 - 0.5 * alpha, df) + t_quantile(power, df)
    smallest = reach * math.sqrt(variance / n_prompts)
    if n_trials is not None:
        # However small the spread, the exact test is mute until enough prompts differ.
        smallest = max(smallest, _differing_prompts(alpha, power) / (n_prompts * n_trials))
    return smallest if smallest <= 1.0 else None


def prompts_to_decide(
    difference: float, variance: float, margin: float, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Return how many prompts would settle it, were the difference truly the one seen.

    Settled is either way: shown to differ from zero, or shown to lie within the margin.
    """
    needs = []
    reach = normal_quantile(1.0 - 0.5 * alpha) + normal_quantile(power)
    for distance in (abs(difference), margin - abs(difference)):
        if distance > 1e-9:
            needs.append(math.ceil(variance * (reach / distance) ** 2))
    best = max(min(needs, default=_MOST_PROMPTS), fewest_prompts(alpha))
    return best if best < _MOST_PROMPTS else None


def _first_true(enough: Callable[[int], bool], start: int) -> int | None:
    low, high = start - 1, start
    while not enough(high):
        low, high = high, high * 2
        if high > _MOST_PROMPTS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _chance_beyond_t(shift: float, critical: float, df: int) -> float:
    """Return P(T > critical) for a noncentral t (Abramowitz & Stegun 26.7.10)."""
    top = shift - critical * (1.0 - 1.0 / (4.0 * df))
    return normal_cdf(top / math.sqrt(1.0 + critical * critical / (2.0 * df)))


@lru_cache
def _differing_prompts(alpha: float, power: float) -> float:
    """Return the expected number of differing prompts at which enough of them turn up."""
    fewest = fewest_prompts(alpha)
    low, high = 0.0, 10.0 * fewest + 100.0
    for _ in range(60):
        mean = 0.5 * (low + high)
        fewer = math.exp(-mean) * sum(mean**i / math.factorial(i) for i in range(fewest))
        low, high = (mean, high) if 1.0 - fewer < power else (low, mean)
    return high
