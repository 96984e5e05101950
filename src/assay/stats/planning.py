"""How many prompts and trials a difference needs, from a pilot or from assumptions."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.distributions import (
    Floats,
    Ints,
    as_tallies,
    as_values,
    normal_cdf,
    normal_quantile,
    t_quantile,
)
from assay.stats.significance import fewest_prompts, mcnemar_power

# Below this share of the mean's variance, new prompts gain nothing that repeats would not.
_TRIALS_SHARE = 0.8


class VarianceSplit(msgspec.Struct, frozen=True, rename="camel"):
    """One-way random effects; None where the data cannot tell.

    `between` prompts, `within` one prompt (of a single trial), `total` of a single trial, and
    `trial_share`: how much of the mean's variance is chance between trials.
    """

    between: float | None
    within: float | None
    total: float | None
    icc: float | None
    n_prompts: int
    n_trials: int
    trials_per_prompt: float
    trial_share: float | None
    advice: str
    words: str


def split_rate_variance(passes: ArrayLike, measured: ArrayLike) -> VarianceSplit:
    """Split pass/fail trials given as counts per prompt."""
    n_passed, n_measured = as_tallies(passes, measured)
    seen = n_measured > 0
    sizes = n_measured[seen]
    rates = n_passed[seen] / sizes
    return _split(rates, sizes, float((sizes * rates * (1.0 - rates)).sum()))


def _split(means: Floats, sizes: Ints, within_ss: float) -> VarianceSplit:
    n_prompts, n_trials = int(sizes.size), int(sizes.sum())
    per_prompt = n_trials / n_prompts if n_prompts else 0.0
    if n_prompts < 2 or n_trials == n_prompts:
        total = float(means.var(ddof=1)) if n_prompts >= 2 else None
        return _unsplit(total, n_prompts, n_trials, per_prompt)
    # Random-effects ANOVA by the method of moments, for groups of different sizes.
    within = within_ss / (n_trials - n_prompts)
    grand = float((sizes * means).sum()) / n_trials
    between_ms = float((sizes * np.square(means - grand)).sum()) / (n_prompts - 1)
    # n0 is the size of a balanced design with the same information.
    n0 = (n_trials - float(np.square(sizes).sum()) / n_trials) / (n_prompts - 1)
    between = max(0.0, (between_ms - within) / n0)  # by chance it can fall below zero
    total = between + within
    of_mean = between + within / per_prompt
    share = within / per_prompt / of_mean if of_mean > 0 else None
    advice, words = _advise(share, per_prompt)
    return VarianceSplit(
        between=between,
        within=within,
        total=total,
        icc=between / total if total > 0 else None,
        n_prompts=n_prompts,
        n_trials=n_trials,
        trials_per_prompt=per_prompt,
        trial_share=share,
        advice=advice,
        words=words,
    )


def _advise(share: float | None, per_prompt: float) -> tuple[str, str]:
    if share is None:
        return "add-prompts", "all trials gave the same result; only new prompts can tell more"
    percent = round(100 * share)
    seen = f"chance between trials makes {percent} % of the uncertainty"
    if share >= _TRIALS_SHARE:
        return "add-trials", f"{seen}; more trials of the same prompts help as much as new prompts"
    return (
        "add-prompts",
        f"{seen} at {per_prompt:.3g} trials a prompt; only new prompts cut the rest",
    )


def _unsplit(
    total: float | None, n_prompts: int, n_trials: int, per_prompt: float
) -> VarianceSplit:
    words = "one trial a prompt cannot tell chance from difficulty; new prompts always help"
    if n_prompts < 2:
        words = "fewer than two prompts have no spread; add prompts"
    return VarianceSplit(
        between=None,
        within=None,
        total=total,
        icc=None,
        n_prompts=n_prompts,
        n_trials=n_trials,
        trials_per_prompt=per_prompt,
        trial_share=None,
        advice="add-prompts",
        words=words,
    )


def advise_on_difference(run_a: tuple[Ints, Ints], run_b: tuple[Ints, Ints]) -> str:
    """Say whether new prompts or more trials would make a difference surer.

    Each run is (passes, measured trials) of the prompts that both measured. What both runs find
    hard cancels out of the difference, so that its advice may be another than that of one run.
    """
    splits = [split_rate_variance(*run) for run in (run_a, run_b)]
    within = [split.within for split in splits]
    if splits[0].n_prompts < 2 or within[0] is None or within[1] is None:
        return splits[0].words
    seen = float(np.var(run_b[0] / run_b[1] - run_a[0] / run_a[1], ddof=1))
    per_trial = float((within[0] / run_a[1] + within[1] / run_b[1]).mean())
    share = None if seen <= 0.0 else min(1.0, per_trial / seen)
    per_prompt = 0.5 * (splits[0].trials_per_prompt + splits[1].trials_per_prompt)
    return _advise(share, per_prompt)[1]


class PairedSpread(msgspec.Struct, frozen=True, rename="camel"):
    """Variance of one prompt's difference between two runs; repeats reduce only `within`."""

    between: float
    within: float

    def variance(self, n_trials: float) -> float:
        """Return the variance of one prompt's difference with n_trials in each run."""
        return self.between + self.within / n_trials


def measure_spread(
    differences: ArrayLike, within: float | None = None, n_trials: float = 1.0
) -> PairedSpread:
    """Return the spread seen in a pilot of two runs.

    `within` is the within-prompt variance of run A plus that of run B; unknown with single trials,
    and then all variance counts as `between` (the cautious reading).
    """
    d = as_values(differences, "differences")
    if d.size < 2:
        msg = "a pilot needs at least two prompts to show a spread"
        raise ValueError(msg)
    seen = float(np.var(d, ddof=1))
    if within is None:
        return PairedSpread(between=seen, within=0.0)
    return PairedSpread(between=max(0.0, seen - within / n_trials), within=within)


def spread_from_one_run(
    split: VarianceSplit, *, icc: float = 0.5, prompt_correlation: float = 0.5
) -> PairedSpread:
    """Return the spread to expect against a second run that is as noisy as this one.

    How far two agents find the same prompts hard cannot be seen in one run: it is assumed. With
    one trial a prompt, so is the share of the variance that lies between prompts (icc).
    """
    if split.total is None:
        msg = "a pilot needs at least two prompts to show a spread"
        raise ValueError(msg)
    between, within = split.between, split.within
    if between is None or within is None:
        between, within = icc * split.total, (1.0 - icc) * split.total
    return PairedSpread(between=2.0 * between * (1.0 - prompt_correlation), within=2.0 * within)


def assume_spread(
    rate_a: float, rate_b: float, *, icc: float = 0.5, prompt_correlation: float = 0.5
) -> PairedSpread:
    """Return the spread of pass/fail trials from assumed rates, without a pilot."""
    if not all(0.0 <= x <= 1.0 for x in (rate_a, rate_b, icc, prompt_correlation)):
        msg = "rates, icc and prompt correlation must lie between 0 and 1"
        raise ValueError(msg)
    var_a, var_b = rate_a * (1.0 - rate_a), rate_b * (1.0 - rate_b)
    shared = prompt_correlation * math.sqrt(var_a * var_b)
    between = icc * (var_a + var_b - 2.0 * shared)
    return PairedSpread(between=between, within=(1.0 - icc) * (var_a + var_b))


class Difficulty(msgspec.Struct, frozen=True, rename="camel"):
    """How hard prompts are: the pass rate of an agent, and how alike the trials of a prompt are.

    An icc of 0 makes all prompts equally hard, 1 makes each pass always or never.
    """

    rate: float
    icc: float

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        """Draw the chance to pass of each prompt."""
        if self.icc <= 0.0 or self.rate in (0.0, 1.0):
            return np.full(shape, self.rate)
        if self.icc >= 1.0:
            return (rng.random(shape) < self.rate).astype(np.float64)
        total = 1.0 / self.icc - 1.0
        return rng.beta(self.rate * total, (1.0 - self.rate) * total, shape)

    def moved(self, chances: Floats, change: float) -> Floats:
        """Return the chances of an agent whose pass rate is higher or lower by so much."""
        if change <= 0.0:
            lower: Floats = chances * max(0.0, 1.0 + change / self.rate) if self.rate else chances
            return lower
        if self.rate == 1.0:
            return chances
        higher: Floats = 1.0 - (1.0 - chances) * max(0.0, 1.0 - change / (1.0 - self.rate))
        return higher

    def spread(self) -> PairedSpread:
        """Return the spread between two runs of one and the same agent."""
        variance = self.rate * (1.0 - self.rate)
        return PairedSpread(between=0.0, within=2.0 * (1.0 - self.icc) * variance)


# Above this the exact sum is slow and the normal formula is as good.
_EXACT_PROMPTS = 1_000
_MOST_PROMPTS = 10_000_000
_MOST_ROUNDS = 30


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
        # For pass/fail trials E[d^2] is the share of discordant prompts, E[d] the difference of
        # the two kinds: from both follow McNemar's two rates.
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
        # Most prompts differ when each differs by one trial only; the exact test needs enough.
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
        # Prompts that the difference moves add to the spread that was seen without it: by
        # moved (1 - moved) if each moves all its trials, by 1/k of it if it moves one of k. The
        # power found by simulation is 0.8 with what lies between.
        for _ in range(_MOST_ROUNDS):
            moved = min(smallest, 0.5)
            spread = variance + moved * (1.0 - moved) / math.sqrt(n_trials)
            smallest = reach * math.sqrt(spread / n_prompts)
        # However small the spread, the exact test is mute until enough prompts differ.
        smallest = max(smallest, _differing_prompts(alpha, power) / (n_prompts * n_trials))
    return smallest if smallest <= 1.0 else None


class DesignReach(msgspec.Struct, frozen=True, rename="camel"):
    """What a comparison of so many prompts and trials can show, with a power of 0.8."""

    in_general: float | None
    """The smallest difference on prompts like these; None if no difference is shown."""
    on_these: float
    """The smallest difference on these very prompts."""


def reach_of_design(
    n_prompts: int, n_trials: int, difficulty: Difficulty, *, alpha: float = 0.05
) -> DesignReach:
    """Say what a run can show before it is paid for; prompts are as hard as is assumed."""
    spread = difficulty.spread().variance(n_trials)
    general = smallest_difference(spread, n_prompts, n_trials=n_trials, alpha=alpha)
    df = max(1, n_prompts - 1)  # how hard the prompts are that were drawn is chance, too
    reach = t_quantile(1.0 - 0.5 * alpha, df) + t_quantile(0.8, df)
    rate, fails = difficulty.rate, 1.0 - difficulty.rate
    squared = fails**2 + difficulty.icc * rate * fails
    here = reach * math.sqrt(spread / n_prompts)
    for _ in range(_MOST_ROUNDS):
        # Prompts that nearly always failed, and now do not, vary more than before.
        kept = max(0.0, 1.0 - min(here, fails) / fails) if fails else 0.0
        moved = (spread * n_trials / 2.0 + kept * fails - kept**2 * squared) / n_trials
        here = reach * math.sqrt(max(spread, moved) / n_prompts)
    # However small the spread, a test needs some trials that differ.
    least = _differing_prompts(alpha, 0.8) / (n_prompts * n_trials)
    return DesignReach(general, min(1.0, max(here, least)))


def prompts_to_decide(
    difference: float, variance: float, margin: float, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Return how many prompts would settle it if the difference seen is the true one.

    Either way counts as settled: shown to differ from zero, or shown to lie within the margin.
    """
    needs = []
    reach = normal_quantile(1.0 - 0.5 * alpha) + normal_quantile(power)
    # To clear the margin takes the variance that verdict.margin_limits assumes.
    assumed = max(variance, margin * (1.0 - margin))
    for distance, spread in ((abs(difference), variance), (margin - abs(difference), assumed)):
        if distance > 1e-9:
            needs.append(math.ceil(spread * (reach / distance) ** 2))
    best = max(min(needs, default=_MOST_PROMPTS), fewest_prompts(alpha))
    return best if best < _MOST_PROMPTS else None


def _first_true(enough: Callable[[int], bool], start: int) -> int | None:
    # Double until it holds, then bisect: power grows with the number of prompts.
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
    """Return the Poisson mean at which enough prompts differ, with the wanted power, for a test."""
    fewest = fewest_prompts(alpha)
    low, high = 0.0, 10.0 * fewest + 100.0
    for _ in range(60):  # bisection, down to the last bit of a float
        mean = 0.5 * (low + high)
        fewer = math.exp(-mean) * sum(mean**i / math.factorial(i) for i in range(fewest))
        low, high = (mean, high) if 1.0 - fewer < power else (low, mean)
    return high
