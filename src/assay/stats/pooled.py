"""What a pooled baseline is good for: trials where they are worth most, and a surer gate."""

import msgspec
import numpy as np

from assay.stats.distributions import Floats, Ints, as_tallies
from assay.stats.planning import Difficulty, split_rate_variance
from assay.stats.sequential import SequentialOutcome, decide_gate, look_at_rates

_ASSUMED_ICC = 0.5
_ICCS = (0.05, 0.95)
"""Prompts are never taken to be all alike, nor to pass always or never."""
_RATES = (0.02, 0.98)
_LOOKS_PER_ROUND = 4


def trial_spread(passes: Ints, measured: Ints) -> Floats:
    """Return the standard deviation of one trial to expect of each prompt.

    What was seen of a prompt is put together with how prompts differ in general (a beta
    distribution fitted to all of them), so that one that passed twice of two is not taken for one
    that always passes, and one that was never seen has the spread of an unknown prompt.
    """
    n_passed, n = as_tallies(passes, measured)
    seen = n > 0
    icc = split_rate_variance(n_passed[seen], n[seen]).icc if seen.any() else None
    icc = float(np.clip(_ASSUMED_ICC if icc is None else icc, *_ICCS))
    rate = float(np.clip((n_passed[seen] / n[seen]).mean() if seen.any() else 0.5, *_RATES))
    weight = 1.0 / icc - 1.0
    passed, failed = n_passed + weight * rate, n - n_passed + weight * (1.0 - rate)
    total = passed + failed
    spread: Floats = np.sqrt(passed * failed / (total * (total + 1.0)))
    return spread


def allocate_trials(spread: Floats, mean_trials: int) -> Ints:
    """Return how many trials each prompt gets: in proportion to its spread, but at least one.

    That makes the variance of the mean over prompts smallest for this many trials (Neyman). Every
    prompt is tried and the mean is that of the prompts' rates, so it is unbiased without weights.
    """
    total = mean_trials * spread.size
    low, high = 0.0, float(total) / max(float(spread.min(initial=1.0)), 1e-9)
    for _ in range(80):  # bisection: the shares add up to the total
        scale = 0.5 * (low + high)
        low, high = (low, scale) if np.maximum(1.0, scale * spread).sum() > total else (scale, high)
    shares = np.maximum(1.0, low * spread)
    trials = np.floor(shares + 1e-9).astype(np.int64)
    largest_rest = np.argsort(trials - shares, kind="stable")
    trials[largest_rest[: total - int(trials.sum())]] += 1
    return trials


class PooledChances(msgspec.Struct, frozen=True, rename="camel"):
    """How often the sequential gate is right against a baseline, found by simulation with it."""

    n_prompts: int
    baseline_trials: float
    """Mean number of the baseline's trials of a prompt."""
    most_trials: int
    """Fresh trials of all prompts, if nothing is decided early."""
    margin: float
    difference: float
    good_passes: float
    bad_fails: float
    bad_stopped: float
    """Fails, or cannot be judged."""
    good_trials: float
    bad_trials: float
    """Fresh trials that were needed on average."""
    words: str


def simulate_pooled_gate(
    difficulty: Difficulty,
    baseline: Ints,
    fresh: Ints,
    *,
    margin: float,
    difference: float,
    n_repeats: int = 200,
    seed: int = 1,
) -> PooledChances:
    """Run `trials --until decided` on simulated agents against a baseline.

    baseline and fresh have the number of trials of each prompt. The unchanged agent and the one
    that is worse by `difference` take as many builds.
    """
    rng = np.random.default_rng(seed)
    good, good_trials = _outcomes(difficulty, (baseline, fresh), (margin, 0.0), n_repeats, rng)
    bad, bad_trials = _outcomes(
        difficulty, (baseline, fresh), (margin, -difference), n_repeats, rng
    )
    passes, fails = good.count("pass") / n_repeats, bad.count("fail") / n_repeats
    stopped = 1.0 - bad.count("pass") / n_repeats
    most = int(fresh.sum())
    words = (
        f"of 100 builds of an unchanged agent, {100 * passes:.0f} pass; of 100 builds of one that "
        f"is worse by {difference:g}, {100 * stopped:.0f} are stopped, {100 * fails:.0f} of them "
        "because the gate fails and the others because it cannot be judged; that takes "
        f"{good_trials:.0f} and {bad_trials:.0f} of {most} trials on average"
    )
    return PooledChances(
        n_prompts=int(fresh.size),
        baseline_trials=float(baseline.mean()),
        most_trials=most,
        margin=margin,
        difference=difference,
        good_passes=passes,
        bad_fails=fails,
        bad_stopped=stopped,
        good_trials=good_trials,
        bad_trials=bad_trials,
        words=words,
    )


def _outcomes(
    difficulty: Difficulty,
    trials: tuple[Ints, Ints],
    setting: tuple[float, float],
    n_repeats: int,
    rng: np.random.Generator,
) -> tuple[list[SequentialOutcome], float]:
    """Return what the gate says of agents changed by so much, and the mean number of trials."""
    (baseline, fresh), (margin, change) = trials, setting
    found: list[SequentialOutcome] = []
    n_used = 0
    for easy in difficulty.draw((n_repeats, fresh.size), rng):
        pooled = rng.binomial(baseline, easy), baseline
        outcome, n = _one_build(pooled, difficulty.moved(easy, change), fresh, margin, rng)
        found.append(outcome)
        n_used += n
    return found, n_used / n_repeats


def _one_build(
    pooled: tuple[Ints, Ints],
    chances: Floats,
    fresh: Ints,
    margin: float,
    rng: np.random.Generator,
) -> tuple[SequentialOutcome, int]:
    """Look at one build several times in each round, in which every prompt gets one trial."""
    passed, done = np.zeros_like(fresh), np.zeros_like(fresh)
    order, rounds = rng.permutation(fresh.size), int(fresh.max())
    for number in range(1, rounds + 1):
        due = order[fresh[order] >= number]
        for some in np.array_split(due, min(_LOOKS_PER_ROUND, due.size)):
            passed[some] += rng.random(some.size) < chances[some]
            done[some] += 1
            look = look_at_rates(pooled, (passed, done))
            decision = decide_gate(look, margin=margin)
            if decision.is_decided:
                return decision.outcome, int(done.sum())
        # As in pipeline/until.py: the last look comes early if repeats would add nothing.
        if number == rounds or (due.size == fresh.size and decision.repeats_are_idle):
            break
    return decide_gate(look, margin=margin, is_last=True).outcome, int(done.sum())
