"""What a pooled baseline is good for: trials where they are worth most, and a surer gate."""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from assay.stats.distributions import Floats, Ints, as_tallies
from assay.stats.drift import measure_drift
from assay.stats.noise import BuildNoise, Noise
from assay.stats.planning import Difficulty, split_rate_variance
from assay.stats.sequential import SequentialOutcome, decide_gate, look_at_rates, smallest_margin
from assay.stats.verdict import describe_chances

_ASSUMED_ICC = 0.5
_ICCS = (0.05, 0.95)
"""Prompts are never taken to be all alike, nor to pass always or never."""
_RATES = (0.02, 0.98)
_LOOKS_PER_ROUND = 4
_PASSES = 0.9
_FEW_REPEATS = 100
_MOST_MARGIN = 30
"""Points: a gate with a wider margin is none."""


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
    build_sd: float | None = None
    """How much builds vary; None if it is not known."""
    margin_for_90: float | None = None
    """With this margin 90 of 100 builds of the unchanged agent pass, where fewer do now."""


def simulate_pooled_gate(
    difficulty: Difficulty,
    trials: tuple[Ints, Ints],
    *,
    margin: float,
    difference: float,
    builds: BuildNoise | None = None,
    n_repeats: int = 200,
    seed: int = 1,
) -> PooledChances:
    """Run `trials --until decided` on simulated agents against a baseline.

    trials has how many trials of each prompt the baseline has and the branch may have. As many
    builds are drawn of the unchanged agent as of the one that is worse by `difference`. builds is
    how the baseline's builds vary: those that are simulated vary as much, and so does the branch.
    """
    baseline, fresh = trials
    smallest = smallest_margin(int(fresh.size))
    if smallest is None or margin < smallest:
        return _refused(baseline, fresh, margin, difference, smallest)
    rng, world = np.random.default_rng(seed), _World(difficulty, baseline, fresh, builds)
    good, good_trials = world.outcomes(margin, 0.0, n_repeats, rng)
    bad, bad_trials = world.outcomes(margin, -difference, n_repeats, rng)
    passes, fails = good.count("pass") / n_repeats, bad.count("fail") / n_repeats
    stopped = 1.0 - bad.count("pass") / n_repeats
    most = int(fresh.sum())
    chances = describe_chances("regression", difference, passes, fails, stopped)
    words = (
        f"{chances}; that takes {good_trials:.0f} and {bad_trials:.0f} of {most} trials on average"
    )
    wider = world.margin_for_90(margin, rng) if passes < _PASSES else None
    if builds is not None:
        words += f"; builds vary by {builds.sd:.3f}"
    if wider is not None:
        words += f"; with a margin of {wider:g}, 90 of 100 unchanged builds would pass"
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
        build_sd=builds.sd if builds else None,
        margin_for_90=wider,
    )


def _refused(
    baseline: Ints, fresh: Ints, margin: float, difference: float, smallest: float | None
) -> PooledChances:
    """trials --until decided starts no agent for a margin that so few prompts can never show."""
    words = (
        f"{fresh.size} prompts can never show that a loss of {margin:g} is absent, and the gate "
        f"starts no trial; use a margin of {smallest or 0.5:g} or more, or more prompts"
    )
    return PooledChances(
        n_prompts=int(fresh.size),
        baseline_trials=float(baseline.mean()),
        most_trials=int(fresh.sum()),
        margin=margin,
        difference=difference,
        good_passes=0.0,
        bad_fails=0.0,
        bad_stopped=1.0,
        good_trials=0.0,
        bad_trials=0.0,
        words=words,
    )


class _World(NamedTuple):
    """What is simulated: prompts, trials of the baseline and of a branch, and noise of builds."""

    difficulty: Difficulty
    baseline: Ints
    fresh: Ints
    builds: BuildNoise | None

    def outcomes(
        self, margin: float, change: float, n_repeats: int, rng: np.random.Generator
    ) -> tuple[list[SequentialOutcome], float]:
        """Return what the gate says of agents changed by so much, and the mean number of trials."""
        found: list[SequentialOutcome] = []
        n_used = 0
        for easy in self.difficulty.draw((n_repeats, self.fresh.size), rng):
            pooled, noise, drifts = self._pool(easy, rng)
            chances = self.difficulty.moved(easy, change)
            if self.builds is not None:
                chances = self.difficulty.moved(chances, float(rng.normal(0.0, self.builds.sd)))
            outcome, n = _one_build(pooled, chances, self.fresh, (margin, noise), rng)
            found.append("undecided" if drifts else outcome)
            n_used += n
        return found, n_used / n_repeats

    def _pool(
        self, easy: Floats, rng: np.random.Generator
    ) -> tuple[tuple[Ints, Ints], tuple[Noise, ...], bool]:
        """Draw a baseline; return it with what its builds seem to add, and whether they drift."""
        if self.builds is None:
            return (rng.binomial(self.baseline, easy), self.baseline), (), False
        effects = rng.normal(0.0, self.builds.sd, self.builds.n_builds)
        chances = np.stack([self.difficulty.moved(easy, one) for one in effects], axis=1)
        parts = (self.baseline[:, None] + np.arange(effects.size)) // effects.size
        passes = rng.binomial(parts, chances)
        drift = measure_drift(passes, parts)
        noise = (drift.noise.of_difference(),) if drift.noise else ()
        return (passes.sum(axis=1), self.baseline), noise, drift.found

    def margin_for_90(self, margin: float, rng: np.random.Generator) -> float | None:
        """Return the smallest margin, in whole points, with which 90 % of good builds pass."""
        for points in range(math.floor(100.0 * margin) + 1, _MOST_MARGIN + 1):
            outcomes, _ = self.outcomes(points / 100, 0.0, _FEW_REPEATS, rng)
            if outcomes.count("pass") >= _PASSES * _FEW_REPEATS:
                return points / 100
        return None


def _one_build(
    pooled: tuple[Ints, Ints],
    chances: Floats,
    fresh: Ints,
    rule: tuple[float, tuple[Noise, ...]],
    rng: np.random.Generator,
) -> tuple[SequentialOutcome, int]:
    """Look at one build several times in each round, in which every prompt gets one trial."""
    margin, noise = rule
    passed, done = np.zeros_like(fresh), np.zeros_like(fresh)
    order, rounds = rng.permutation(fresh.size), int(fresh.max())
    has_passed = False
    for number in range(1, rounds + 1):
        due = order[fresh[order] >= number]
        for some in np.array_split(due, min(_LOOKS_PER_ROUND, due.size)):
            passed[some] += rng.random(some.size) < chances[some]
            done[some] += 1
            look = msgspec.structs.replace(look_at_rates(pooled, (passed, done)), noise=noise)
            decision = decide_gate(look, margin=margin)
            if decision.outcome == "fail":
                return decision.outcome, int(done.sum())
            # As in pipeline/until.py: a pass waits until every prompt has run.
            has_passed = has_passed or decision.outcome == "pass"
            if has_passed and done.all() and (look.difference or 0.0) > -0.5 * margin:
                return "pass", int(done.sum())
        # As in pipeline/until.py: the last look comes early if repeats would add nothing.
        if number == rounds or (due.size == fresh.size and decision.repeats_are_idle):
            break
    return decide_gate(look, margin=margin, is_last=True).outcome, int(done.sum())
