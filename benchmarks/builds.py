"""Life around one comparison: builds that vary, main that erodes, judges that err.

Called by benchmarks.coverage; alone: python -m benchmarks.coverage --only builds [--quick]. Each
study draws the trials and then uses the functions that the command line calls.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec
import numpy as np

from assay.compare.calibration import calibration_of
from assay.errors import InputError
from assay.pipeline.gate import settled_anchor
from assay.stats.agreement import LabelledFile, clustered_rate, measure_agreement
from assay.stats.distributions import Floats, Ints
from assay.stats.drift import Drift, measure_drift
from assay.stats.planning import Difficulty
from assay.stats.rates import rate_interval
from assay.stats.sequential import (
    Look,
    SequentialDecision,
    decide_gate,
    judged_look,
    look_at_rates,
)
from benchmarks.study import Study

AGENT = Difficulty(0.8, 0.5)
MARGINS = {50: 0.12, 100: 0.08}
"""Of docs/ci.md, by the number of prompts."""
TRIALS = 8

type Pool = tuple[Ints, Ints]
"""Passes and trials; a row per prompt, a column per build."""


def draw_build(easy: Floats, effect: float, rng: np.random.Generator) -> Ints:
    """Return the passes of one build whose pass rate is higher or lower by so much."""
    return rng.binomial(TRIALS, AGENT.moved(easy, effect))


def gate_outcome(
    pools: Sequence[Pool], chances: Floats, margin: float, rng: np.random.Generator
) -> tuple[str, int]:
    """Run a branch until it is decided against every baseline, as pipeline/gate.py does.

    Return what the gates say together, and how many trials that took.
    """
    drifts = [measure_drift(*pool) for pool in pools]
    if drifts[0].found:
        return "drift", 0
    sides = [side for side in zip(pools, drifts, strict=True) if not side[1].found]
    passed, done = np.zeros((2, chances.size), dtype=np.int64)
    found: dict[int, str] = {}
    for number in range(1, TRIALS + 1):
        passed += rng.random(chances.size) < chances
        done += 1
        for side, (pool, drift) in enumerate(sides):
            if side not in found:
                look = _look(pool, drift, (passed, done))
                decision = _decide(look, margin, number == TRIALS)
                if side:
                    decision = settled_anchor(decision, margin)
                found |= {side: str(decision.outcome)} if decision.outcome != "go-on" else {}
        if "fail" in found.values() or len(found) == len(sides):
            break
    order = ("fail", "undecided", "pass")
    return min(found.values(), key=order.index), int(done.sum())


def _decide(look: Look, margin: float, is_last: bool) -> SequentialDecision:
    decision = decide_gate(look, margin=margin, is_last=is_last)
    if decision.outcome == "go-on" and decision.repeats_are_idle:
        decision = decide_gate(look, margin=margin, is_last=True)
    return decision


def _look(pool: Pool, drift: Drift, fresh: tuple[Ints, Ints]) -> Look:
    look = look_at_rates((pool[0].sum(axis=1), pool[1].sum(axis=1)), fresh)
    noise = (drift.noise.of_difference(),) if drift.noise else ()
    return msgspec.structs.replace(look, noise=noise)


def study_builds(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Unchanged builds that vary, and a loss of 0.1."""
    false = Study("builds vary: unchanged agent fails", "alarm", n_repeats)
    refused = Study("builds vary: refused as drift", "alarm100", n_repeats)
    missed = Study("builds vary: a loss of 0.1 passes, 10 builds", "alarm200", n_repeats)
    open_ = Study("(builds vary: unchanged agent is not decided)", "info", n_repeats)
    for n, n_builds, sd in product(MARGINS, (3, 10), (0.0, 0.01, 0.02, 0.03, 0.05)):
        good = _outcomes(n, n_builds, sd, 0.0, n_repeats, rng)
        key = (n, n_builds, sd)
        false.points[key] = good.count("fail") / n_repeats
        refused.points[key] = good.count("drift") / n_repeats
        open_.points[key] = good.count("undecided") / n_repeats
        if n_builds == 10:
            bad = _outcomes(n, n_builds, sd, -0.1, n_repeats, rng)
            missed.points[key] = bad.count("pass") / n_repeats
    yield from (false, refused, missed, open_)


def _outcomes(
    n: int, n_builds: int, sd: float, change: float, n_repeats: int, rng: np.random.Generator
) -> list[str]:
    found = []
    for easy in AGENT.draw((n_repeats, n), rng):
        effects = rng.normal(0.0, sd, n_builds + 1)
        passes = np.stack([draw_build(easy, effect, rng) for effect in effects[1:]], axis=1)
        chances = AGENT.moved(AGENT.moved(easy, change), effects[0])
        pool = passes, np.full(passes.shape, TRIALS)
        found.append(gate_outcome([pool], chances, MARGINS[n], rng)[0])
    return found


LOSS, MOST_LOST = 0.02, 0.08


def study_erosion(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Ten merged losses of 0.02: whether one is stopped before main has lost 0.08."""
    with_anchor = Study("erosion: main loses 0.08, with an anchor", "alarm200", n_repeats)
    alone = Study("(erosion: main loses 0.08, without an anchor)", "info", n_repeats)
    wrong = Study("(erosion: unchanged is stopped, with an anchor)", "info", n_repeats)
    for n, sd in product(MARGINS, (0.0, 0.01, 0.02)):
        for study, anchored in ((with_anchor, True), (alone, False)):
            lost = [_lost(n, sd, rng, anchored=anchored) for _ in range(n_repeats)]
            study.points[n, sd] = float(np.mean(np.array(lost) >= MOST_LOST - 1e-9))
        first = [_lost(n, sd, rng, anchored=True, loss=0.0) for _ in range(n_repeats)]
        wrong.points[n, sd] = float(np.mean(np.array(first) == 0.0))
    yield from (with_anchor, alone, wrong)


def _lost(
    n: int, sd: float, rng: np.random.Generator, *, anchored: bool, loss: float = LOSS
) -> float:
    """Merge until the gate stops; return what main has lost by then.

    The release had five builds. A merge changes the set-up, so that the baseline starts again: with
    three builds when the next pull request comes. With a loss of 0 there is one pull request, and 1
    is returned if it was merged.
    """
    easy = AGENT.draw((1, n), rng)[0]
    builds = [draw_build(easy, rng.normal(0.0, sd), rng) for _ in range(5)]
    anchor = _pool(builds)
    for merged in range(10 if loss else 1):
        change = -loss * (merged + 1)
        chances = AGENT.moved(AGENT.moved(easy, change), rng.normal(0.0, sd))
        pools = [_pool(builds), anchor] if anchored else [_pool(builds)]
        if gate_outcome(pools, chances, MARGINS[n], rng)[0] != "pass":
            return loss * merged
        now = AGENT.moved(easy, change)
        builds = [draw_build(now, rng.normal(0.0, sd), rng) for _ in range(3)]
    return 1.0


def _pool(builds: Sequence[Ints]) -> Pool:
    passes = np.stack(builds, axis=1)
    return passes, np.full(passes.shape, TRIALS)


def study_judge(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """A loss of exactly the margin, seen by a judge of .85/.7 that was calibrated with labels."""
    corrected = Study("judge .85/.7: a loss of the margin passes", "alarm", n_repeats)
    plain = Study("(the same, errors of the judge ignored)", "info", n_repeats)
    false = Study("judge .85/.7: unchanged agent fails", "alarm", n_repeats)
    for n, n_labels in product(MARGINS, (100, 200)):
        passes, ignored, fails = 0, 0, 0
        for easy in AGENT.draw((n_repeats, n), rng):
            file, _ = _labelled(rng, (50, 10), AGENT, n_labels)
            try:
                errors = calibration_of(file, ["1"]).errors
            except InputError:
                continue  # refused: nothing is judged
            for change in (-MARGINS[n], 0.0):
                look = _judged_look(easy, change, rng)
                found = [
                    decide_gate(one, margin=MARGINS[n], is_last=True).outcome
                    for one in (judged_look(look, errors, MARGINS[n]), look)
                ]
                passes += change < 0.0 and found[0] == "pass"
                ignored += change < 0.0 and found[1] == "pass"
                fails += change == 0.0 and found[0] == "fail"
        for study, count in ((corrected, passes), (plain, ignored), (false, fails)):
            study.points[n, n_labels] = count / n_repeats
    yield from (corrected, plain, false)


def _judged_look(easy: Floats, change: float, rng: np.random.Generator) -> Look:
    """Look at a baseline of 24 trials a prompt and a branch of 8, as the judge sees them."""
    sides = []
    for chances, k in ((easy, 3 * TRIALS), (AGENT.moved(easy, change), TRIALS)):
        seen = GOOD * chances + (1.0 - BAD) * (1.0 - chances)
        sides.append((rng.binomial(k, seen), np.full(easy.size, k)))
    return look_at_rates(*sides)


def study_labels(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """20 prompts × 10 rows, a judge of .85/.7, and 50 or 200 labels drawn by verdict, or at random.

    The truth is the pass rate over all prompts such as these. The judge's errors are independent,
    or it errs more on some prompts than on others (ICC 0.2).
    """
    names = ("observed rate", "post-stratified rate", "Rogan-Gladen rate", "sensitivity")
    studies = {name: Study(f"labels in clusters: {name}", "coverage", n_repeats) for name in names}
    grid = product((0.2, 0.5), (50, 200), (0.6, 0.8), (0.0, 0.2))
    for icc, n_labels, rate, judge_icc in grid:
        held = np.zeros(4)
        for _ in range(n_repeats):
            file, drawn = _labelled(rng, (20, 10), Difficulty(rate, icc), n_labels, judge_icc)
            observed = rate_interval(file.passed, file.graded)[1]
            found = (clustered_rate(drawn, drawn=True), clustered_rate(file, drawn=False))
            good = measure_agreement(file.human, file.grader, prompts=file.prompts).sensitivity
            truth = (GOOD * rate + (1.0 - BAD) * (1.0 - rate), rate, rate, GOOD)
            intervals = (observed, *(one and one.interval for one in found), good.interval)
            held += [i is None or i.contains(t) for i, t in zip(intervals, truth, strict=True)]
        for name, share in zip(names, held / n_repeats, strict=True):
            studies[name].points[icc, n_labels, rate, judge_icc] = float(share)
    yield from studies.values()


GOOD, BAD = 0.85, 0.7
"""Sensitivity and specificity of the simulated judge."""


def _labelled(
    rng: np.random.Generator,
    shape: tuple[int, int],
    difficulty: Difficulty,
    n_labels: int,
    judge_icc: float = 0.0,
) -> tuple[LabelledFile, LabelledFile]:
    """Draw a file with labels at random, and the same with labels in proportion to verdicts."""
    human = rng.random(shape) < difficulty.draw((1, shape[0]), rng)[0][:, None]
    good, bad = (Difficulty(one, judge_icc).draw((1, shape[0]), rng).T for one in (GOOD, BAD))
    grader = rng.random(shape) < np.where(human, good, 1.0 - bad)
    prompts = np.broadcast_to(np.arange(shape[0])[:, None], shape).ravel()
    by_verdict = [rng.permutation(np.flatnonzero(grader.ravel() == v)) for v in (True, False)]
    n_pass = round(n_labels * grader.mean())
    chosen = (
        rng.permutation(grader.size)[:n_labels],
        np.concatenate([by_verdict[0][:n_pass], by_verdict[1][: n_labels - n_pass]]),
    )
    at_random, drawn = (
        LabelledFile(
            graded=np.full(shape[0], shape[1]),
            passed=grader.sum(axis=1),
            prompts=prompts[some],
            human=human.ravel()[some],
            grader=grader.ravel()[some],
        )
        for some in chosen
    )
    return at_random, drawn
