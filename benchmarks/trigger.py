"""Whether `trigger --optimize` shows that a proposed description is better, and only then.

Called by benchmarks.coverage; alone: python -m benchmarks.coverage --only trigger [--quick]. Trials
are drawn; the cases are split, the best proposal is chosen and the verdict is made by the functions
that the command calls.
"""

from collections.abc import Iterator

import numpy as np

from assay.pipeline.descriptions import Attempt, best_of
from assay.pipeline.trigger import split_cases
from assay.records.reports import CaseFires, TriggerRun
from assay.records.skills import SHOULD_TRIGGER
from assay.records.spec import Prompt
from assay.stats.distributions import Floats, Ints
from assay.stats.paired import compare_rates
from assay.stats.planning import Difficulty
from assay.stats.verdict import judge_difference
from benchmarks.study import Study

N, K, PROPOSALS, MARGIN = 20, 5, 3, 0.02
PRESENT = Difficulty(0.6, 0.4)
"""How often the present description does right."""


def study_trigger(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Proposals that change nothing, and three of which one helps."""
    size = f"{N} cases x {K}"
    false = Study("trigger --optimize: useless proposals are better", "alarm25", n_repeats)
    missed = Study(f"trigger --optimize: +0.2 not shown, {size}", "alarm300", n_repeats)
    half = Study("(the same, judged on half of the cases)", "info", n_repeats)
    for gain in (0.0, 0.2):
        found = [optimize(rng, easy, gain) for easy in PRESENT.draw((n_repeats, N), rng)]
        shown, on_half = (float(np.mean(each)) for each in zip(*found, strict=True))
        if gain:
            missed.points[gain,], half.points[gain,] = 1.0 - shown, 1.0 - on_half
        else:
            false.points[gain,] = shown
    yield from (false, missed, half)


def optimize(rng: np.random.Generator, easy: Floats, gain: float) -> tuple[bool, bool]:
    """Return whether the best proposals of both halves are shown to be better, and that of one."""
    cases = [
        (Prompt(id=f"c{i}", input="", metadata={SHOULD_TRIGGER: i % 2 == 0}), {}) for i in range(N)
    ]
    halves = split_cases(cases, int(rng.integers(1 << 31)))
    places = [np.array([int(prompt.id[1:]) for prompt, _ in half]) for half in halves]
    passes, measured = np.zeros((2, N), dtype=np.int64), np.zeros(N, dtype=np.int64)
    shown = []
    for train, test in (places, places[::-1]):
        # One of three proposals helps, the others do nothing.
        moved = [easy, *(PRESENT.moved(easy, gain * (n % 2)) for n in range(PROPOSALS))]
        attempts = [_attempt(n, rng.binomial(K, one[train])) for n, one in enumerate(moved)]
        best = moved[int(best_of(attempts).description)]
        if best is not easy:
            passes[0, test], passes[1, test] = (rng.binomial(K, one[test]) for one in (easy, best))
            measured[test] = K
        shown.append(_is_better(passes, measured))
    return shown[1], shown[0]


def _attempt(number: int, passes: Ints) -> Attempt:
    cases = [
        CaseFires(id=str(i), should_trigger=True, n_fired=int(n), n_measured=K, n_trials=K)
        for i, n in enumerate(passes)
    ]
    run = TriggerRun(
        agent="", recall=None, false_fires=None, instead={}, cases=cases, n_trials=0,
        n_not_measured=0, n_ended_early=0, cost_usd=0.0, invalid=[],
    )  # fmt: skip
    return Attempt(description=str(number), run=run, inputs={})


def _is_better(passes: Ints, measured: Ints) -> bool:
    found = compare_rates((passes[0], measured), (passes[1], measured), seed=1)
    return judge_difference(found, margin=MARGIN).code == "better"
