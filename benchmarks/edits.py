"""A team that edits a skill again and again: a control of another day, and the twentieth edit.

Called by benchmarks.coverage; alone: python -m benchmarks.edits [--seed N] [--repeats N]. Each
study draws the trials and then goes the way of library/experiment.py, with the same functions.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay.pipeline.reuse import FEWEST_CHECKS, ROUNDS_FOR_CLAIM, claim, compare_days
from assay.records.experiment import Standing
from assay.stats.distributions import Floats, Ints
from assay.stats.planning import Difficulty
from benchmarks.study import Study

N, K, MARGIN = 50, 5, 0.02
AGENTS = (Difficulty(0.5, 0.5), Difficulty(0.7, 0.3))
DRIFTS = (0.0, 0.02, 0.05, 0.1, 0.3)
EDITS, HELPFUL_EDIT, GAIN = 20, 10, 0.15
OPEN = "not-enough-data"
type Gain = Literal["failures", "uniform", "smaller"]
"""What an edit does: it ends a share of the failures, or adds as much to each prompt; both add GAIN
on average. The last adds GAIN to each prompt whose chance leaves room for it."""


@dataclass
class Day:
    """The chance of each prompt on one day, with and without an edit."""

    control: Floats
    treatment: Floats

    def rounds(self, rng: np.random.Generator, chances: Floats, n: int = K) -> Ints:
        """Return the results of n trials of each prompt, a row for each round."""
        return (rng.random((n, chances.size)) < chances).astype(np.int64)


def judged(old: Ints, day: Day, rng: np.random.Generator) -> tuple[str, float]:
    """Judge an edit against a control of another day; return the share of it that was run again.

    old has a row for each round of the earlier control.
    """
    treated, fresh = day.rounds(rng, day.treatment), day.rounds(rng, day.control)
    arm = treated.sum(axis=0), np.full(N, K)
    again = rng.permutation(N)[: max(FEWEST_CHECKS, -(-N // 4))]
    all_fresh = fresh.sum(axis=0), np.full(N, K)
    check = compare_days(
        (old.sum(axis=0)[again], np.full(again.size, K)),
        (fresh[0][again], np.ones(again.size, dtype=np.int64)),
        again.size,
    )
    if not check.agrees:
        return claim(all_fresh, arm, MARGIN), 1.0
    mixed = old.copy()
    mixed[0][again] = fresh[0][again]
    seen = claim((mixed.sum(axis=0), np.full(N, K)), arm, MARGIN)
    if seen == OPEN:
        return seen, again.size / (N * K)
    rounds = fresh[:ROUNDS_FOR_CLAIM].sum(axis=0), np.full(N, ROUNDS_FOR_CLAIM)
    check = compare_days((old.sum(axis=0), np.full(N, K)), rounds, again.size)
    if check.agrees and claim(rounds, arm, MARGIN, is_early=True) == seen:
        pooled = np.vstack([fresh[:ROUNDS_FOR_CLAIM], old[ROUNDS_FOR_CLAIM:]]).sum(axis=0)
        return claim((pooled, np.full(N, K)), arm, MARGIN), ROUNDS_FOR_CLAIM / K
    return claim(all_fresh, arm, MARGIN), 1.0


def study_edits(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Yield what a reused control and a chain of edits come to."""
    yield from study_reuse(rng, n_repeats)
    yield from study_chains(rng, max(n_repeats // 4, 50))


def study_reuse(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Useless edits against a control of another day."""
    false = Study("reused control: a useless edit helps", "alarm35", n_repeats)
    cost = Study("reused control, no drift: share run again", "cost0.4", n_repeats)
    naive = Study("(reused control without a check: helps)", "info", n_repeats)
    for agent in AGENTS:
        for drift in DRIFTS:
            found = []
            plain = 0
            for easy in agent.draw((n_repeats, N), rng):
                now = np.clip(easy + drift, 0.0, 1.0)
                day = Day(now, now)
                old = day.rounds(rng, easy)
                found.append(judged(old, day, rng))
                arm = day.rounds(rng, now).sum(axis=0), np.full(N, K)
                plain += claim((old.sum(axis=0), np.full(N, K)), arm, MARGIN) == "better"
            key = agent.rate, drift
            false.points[key] = sum(code == "better" for code, _ in found) / n_repeats
            naive.points[key] = plain / n_repeats
            if not drift:
                cost.points[key] = float(np.mean([share for _, share in found]))
    yield from (false, cost, naive)


def study_chains(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Twenty useless edits; a promising one is confirmed by new trials of both arms."""
    confirmed = Study("20 useless edits: one is confirmed", "alarm25", n_repeats)
    at_once = Study("20 useless edits, each confirmed twice: one is", "alarm25", n_repeats)
    seen = Study("(20 useless edits: one is promising or helps)", "info", n_repeats)
    missed = Study(f"+{GAIN} at edit {HELPFUL_EDIT}: not confirmed", "alarm100", n_repeats)
    smaller = Study("(the same, a gain of 0.117 to 0.125)", "info", n_repeats)
    for agent in AGENTS:
        n_confirmed = n_at_once = n_seen = 0
        n_missed: Counter[Gain] = Counter()
        step = uniform_step(agent)
        for easy in agent.draw((n_repeats, N), rng):
            same = Day(easy, easy)
            old = same.rounds(rng, easy)
            codes = [_standing(number, judged(old, same, rng)[0]) for number in range(EDITS)]
            n_seen += any(code in ("better", "promising") for code in codes)
            promising = codes.count("promising")
            n_confirmed += any(_confirmed(same, rng) for _ in range(promising))
            n_at_once += any(_confirmed(same, rng) and _confirmed(same, rng) for _ in range(EDITS))
            gains: dict[Gain, Floats] = {
                "failures": agent.moved(easy, GAIN),
                "uniform": np.clip(easy + step, 0.0, 1.0),
                "smaller": np.clip(easy + GAIN, 0.0, 1.0),
            }
            for gain, now in gains.items():
                helps = Day(easy, now)
                code = _standing(HELPFUL_EDIT, judged(old, helps, rng)[0])
                n_missed[gain] += not (code == "promising" and _confirmed(helps, rng))
        confirmed.points[agent.rate,] = n_confirmed / n_repeats
        at_once.points[agent.rate,] = n_at_once / n_repeats
        seen.points[agent.rate,] = n_seen / n_repeats
        smaller.points[agent.rate,] = n_missed.pop("smaller") / n_repeats
        for gain, n in n_missed.items():
            missed.points[agent.rate, gain] = n / n_repeats
    yield from (confirmed, at_once, seen, missed, smaller)


def uniform_step(agent: Difficulty) -> float:
    """Return what an edit adds to each prompt, up to a chance of 1, if it adds GAIN on average.

    Where many prompts nearly always pass, adding GAIN to each adds less than that on average.
    """
    easy = agent.draw((1, 200_000), np.random.default_rng(1))
    steps = np.arange(GAIN, 0.5, 0.001)
    gains = [float((np.clip(easy + step, 0.0, 1.0) - easy).mean()) for step in steps]
    return float(steps[np.searchsorted(gains, GAIN)])


def _standing(n_before: int, code: str) -> str:
    return Standing(edit=n_before + 1, n_tries=n_before).code(code)


def _confirmed(day: Day, rng: np.random.Generator) -> bool:
    arms = [
        (day.rounds(rng, one).sum(axis=0), np.full(N, K)) for one in (day.control, day.treatment)
    ]
    code = claim(arms[0], arms[1], MARGIN)
    return Standing(edit=1, is_confirmation=True).code(code) == "confirmed"


def main() -> None:
    """Print the studies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--repeats", type=int, default=400)
    given = parser.parse_args()
    for study in study_edits(np.random.default_rng(given.seed), given.repeats):
        print(study.row(), flush=True)


if __name__ == "__main__":
    main()
