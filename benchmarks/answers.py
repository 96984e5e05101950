"""What a verdict says, and whether it is so: two levels, same, plans, arms, categories, amounts.

Called by benchmarks.coverage; alone: python -m benchmarks.coverage --only answers [--quick].
"""

import re
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from assay.compare.planning import spread_of_rates
from assay.pipeline.until import UntilDecided
from assay.stats.distributions import Floats
from assay.stats.factorial import estimate_effects, two_level_design
from assay.stats.paired import compare_amounts, compare_rates
from assay.stats.planning import Difficulty, prompts_needed, reach_of_design
from assay.stats.sequential import decide_effect
from assay.stats.shrinkage import rank_arms, shrink_groups
from assay.stats.significance import stratified_p
from assay.stats.verdict import judge_difference
from benchmarks.study import Study

AGENT = Difficulty(0.5, 0.5)
ALPHA = 0.05


def study_answers(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Yield all studies of this file."""
    yield from two_levels(rng, n_repeats)
    yield same_intervals(rng, n_repeats)
    yield blind_same(rng, max(40, n_repeats // 5))
    yield losses(rng, n_repeats)
    yield from interactions(rng, max(100, n_repeats // 3))
    yield from winners(rng, max(100, n_repeats // 3))
    yield categories(rng, n_repeats)
    yield from runaways(rng, max(100, n_repeats // 3))


def two_levels(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """A difference on these very prompts, and what is said before a run."""
    false = Study("on these prompts: differs, equal agents", "alarm", n_repeats)
    missed = Study("on these prompts: +0.2 not shown, 10 x 5", "cost0.4", n_repeats)
    general = Study("(on prompts like these: +0.2 not shown, 10 x 5)", "info", n_repeats)
    told = Study("said before a run to be shown: not shown", "alarm200", n_repeats)
    for n, k, agent in product((10, 30), (3, 5), (AGENT, Difficulty(0.8, 0.3))):
        found = [_levels(rng, easy, k, 0.0, agent)[0] for easy in agent.draw((n_repeats, n), rng)]
        false.points[n, k, agent.rate] = float(np.mean(found))
    both = np.array([_levels(rng, easy, 5, 0.2) for easy in AGENT.draw((n_repeats, 10), rng)])
    missed.points[10, 5], general.points[10, 5] = (1.0 - both.mean(axis=0)).tolist()
    for n, k in ((10, 5), (20, 5), (50, 5), (50, 2)):
        reach = reach_of_design(n, k, AGENT)
        for level, size in enumerate((reach.on_these, reach.in_general or 1.0)):
            drawn = AGENT.draw((n_repeats, n), rng)
            found = [_levels(rng, easy, k, size)[level] for easy in drawn]
            told.points[n, k, ("these", "general")[level]] = 1.0 - float(np.mean(found))
    yield from (false, missed, general, told)


def _levels(
    rng: np.random.Generator, easy: Floats, k: int, change: float, agent: Difficulty = AGENT
) -> tuple[bool, bool]:
    """Return whether a gain is shown on these prompts, and on prompts like these."""
    now, all_ = agent.moved(easy, change), np.full(easy.size, k)
    runs = (rng.binomial(k, easy), all_), (rng.binomial(k, now), all_)
    found = judge_difference(compare_rates(*runs, seed=1), margin=0.02)
    return (stratified_p(*runs) or 1.0) <= ALPHA, found.code in ("better", "worse")


_RANGE = re.compile(r"\(([+-][\d.]+) to ([+-][\d.]+)\)")


def same_intervals(rng: np.random.Generator, n_repeats: int) -> Study:
    """The interval that "same" prints lies within what it rules out."""
    study = Study("same: the printed interval reaches the margin", "cost0", n_repeats)
    for n, margin in ((100, 0.1), (400, 0.05)):
        reaches, n_same = 0, 0
        for easy in Difficulty(0.8, 0.8).draw((n_repeats, n), rng):
            runs = [(rng.binomial(5, easy), np.full(n, 5)) for _ in range(2)]
            found = judge_difference(compare_rates(*runs, seed=1), margin=margin)
            if found.code != "same":
                continue
            ends = _RANGE.search(found.words)
            n_same += 1
            reaches += ends is None or max(map(abs, map(float, ends.groups()))) >= margin
        study.points[n, margin, n_same] = reaches / max(n_same, 1)
    return study


def blind_same(rng: np.random.Generator, n_repeats: int) -> Study:
    """ab runs prompts in one order; those that break are the last in it."""
    study = Study("ab: the last prompts break, no difference said", "alarm", n_repeats)
    for n, effect in ((40, 0.2), (40, 0.3), (60, 0.15)):
        wrong = 0
        for easy in Difficulty(0.9, 0.5).draw((n_repeats, n), rng):
            now = easy.copy()
            for prompt in range(n - 1, -1, -1):
                if easy.mean() - now.mean() >= effect:
                    break
                now[prompt] = 0.0
            wrong += _decided(rng, (easy, now), effect, 3) == "same"
        study.points[n, effect] = wrong / n_repeats
    return study


def _decided(
    rng: np.random.Generator, chances: tuple[Floats, Floats], effect: float, k: int
) -> str:
    plan: list[Any] = [
        SimpleNamespace(prompt=SimpleNamespace(id=str(i)), number=number, index=i, arm=arm)
        for number in range(1, k + 1)
        for i in range(chances[0].size)
        for arm in (0, 1)
    ]
    rule = UntilDecided(
        lambda look, extremes, last: decide_effect(
            look, effect=effect, extremes=extremes, is_last=last
        ),
        arm_of=lambda spec: spec.arm,  # type: ignore[attr-defined]
        plan=plan,
        order=None,
    )
    for spec in rule.begin(plan):
        passed = bool(rng.random() < chances[spec.arm][spec.index])
        if rule.add(spec, SimpleNamespace(passed=passed, failure=None)):  # type: ignore[arg-type]
            break
    return str(rule.finish().outcome)


def losses(rng: np.random.Generator, n_repeats: int) -> Study:
    """Of as many prompts as `plan -d -LOSS` names, how often a loss is not shown."""
    study = Study("plan -d -LOSS, power 0.8: the loss is not shown", "alarm200", n_repeats)
    for rate, loss, k in ((0.9, 0.08, 1), (0.7, 0.2, 1), (0.9, 0.08, 5), (0.7, 0.2, 5)):
        spread, _ = spread_of_rates(rate, -loss)
        n = prompts_needed(spread, -loss, n_trials=k)
        assert n is not None
        agent, all_ = Difficulty(rate, 0.5), np.full(n, k)
        shown = 0
        for easy in agent.draw((n_repeats, n), rng):
            now = agent.moved(easy, -loss)
            runs = (rng.binomial(k, easy), all_), (rng.binomial(k, now), all_)
            shown += judge_difference(compare_rates(*runs, seed=1), margin=0.0).code == "worse"
        study.points[rate, loss, k, n] = 1.0 - shown / n_repeats
    return study


def interactions(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Treatments that add up, that replace each other, and that cross over; 30 prompts x 3."""
    false = Study("ablate: an interaction of treatments that add up", "alarm", n_repeats)
    missed = Study("ablate: substitutes or a crossover not shown", "alarm200", n_repeats)
    for n_factors in (2, 3, 4):
        design = np.array(two_level_design(n_factors))
        first, second = design[:, 0], design[:, 1]
        shapes = {
            "adds up": 0.1 * design.sum(axis=1),
            "substitutes": 0.4 * (first | second),
            "crossover": 0.3 * (first == second),
        }
        for name, shape in shapes.items():
            found = 0
            for easy in rng.uniform(0.1, 0.5, (n_repeats, 30, 1)):
                rates = rng.binomial(3, np.clip(easy + shape, 0.0, 1.0)) / 3
                names = [str(i) for i in range(n_factors)]
                seen = estimate_effects(names, design.tolist(), rates, seed=1).interactions
                found += any(one.adjusted_p <= ALPHA for one in seen)
            study = false if name == "adds up" else missed
            share = found / n_repeats
            study.points[n_factors, name] = share if study is false else 1.0 - share
    yield from (false, missed)


def winners(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """The best of several arms: by how much it is overstated, and how likely it is the best."""
    raw = Study("(matrix: the winner is overstated by, as measured)", "info", n_repeats)
    shrunken = Study("matrix: the winner is overstated by, expected", "cost0.02", n_repeats)
    chance = Study("matrix: chance of being best, above what is so", "cost0.05", n_repeats)
    agent = Difficulty(0.6, 0.4)
    for (n, k, n_arms), sd in product(((10, 3, 6), (20, 3, 6), (20, 5, 3)), (0.0, 0.05, 0.1)):
        over, less, said, so = np.zeros((4, n_repeats))
        for i, easy in enumerate(agent.draw((n_repeats, n), rng)):
            effects = rng.normal(0.0, sd, n_arms)
            true = np.stack([agent.moved(easy, one) for one in effects], axis=1)
            rates = rng.binomial(k, true) / k
            arms = rank_arms(rates, seed=1)
            best = int(np.argmax([arm.expected.value for arm in arms]))
            mean = true.mean(axis=0)
            over[i] = arms[best].rate - mean[best]
            less[i] = arms[best].expected.value - mean[best]
            said[i], so[i] = arms[best].expected.best_chance, mean[best] >= mean.max() - 1e-9
        key = (n, k, n_arms, sd)
        raw.points[key], shrunken.points[key] = float(over.mean()), float(less.mean())
        if sd:  # of equal arms each is the best
            chance.points[key] = float(said.mean() - so.mean())
    yield from (raw, shrunken, chance)


def categories(rng: np.random.Generator, n_repeats: int) -> Study:
    """Differences of categories of 3 to 20 prompts, drawn towards that of all of them."""
    study = Study("category: interval of the shrunken difference", "floor", n_repeats)
    sizes, k = (3, 5, 8, 20), 5
    for spread in (0.0, 0.1, 0.2):
        held = 0
        for _ in range(n_repeats):
            changes = rng.normal(0.05, spread, len(sizes))
            groups, true = [], []
            for size, change in zip(sizes, changes, strict=True):
                easy = Difficulty(0.5, 0.3).draw((1, size), rng)[0]
                now = np.clip(easy + change, 0.0, 1.0)
                true.append(float((now - easy).mean()))
                groups.append((rng.binomial(k, now) - rng.binomial(k, easy)) / k)
            found = shrink_groups(list("abcd"), groups, seed=1)
            held += sum(one.interval.contains(t) for one, t in zip(found, true, strict=True))
        study.points[spread,] = held / (n_repeats * len(sizes))
    return study


def runaways(rng: np.random.Generator, n_repeats: int) -> Iterator[Study]:
    """Amounts of which 3 % are fifty times as large."""
    median = Study("amounts, 3 % runaways at 50x: median ratio", "floor", n_repeats)
    mean = Study("(the same: ratio of means)", "info", n_repeats)
    silent = Study("(the same: runaways are not mentioned)", "info", n_repeats)
    for n, sigma in product((20, 50, 100), (0.5, 1.0)):
        held = np.zeros(3)
        for _ in range(n_repeats):
            a, b = np.exp(rng.normal(0.0, sigma, (2, n)))
            far = rng.random((2, n)) < 0.03
            found = compare_amounts(
                a * np.where(far[0], 50.0, 1.0), b * np.where(far[1], 50.0, 1.0),
                seed=1, n_resamples=200,
            )  # fmt: skip
            two = found.median_ratio_interval, found.ratio_interval
            held += [one is None or one.contains(1.0) for one in two] + [
                bool(found.tail) < far.any()
            ]
        median.points[n, sigma], mean.points[n, sigma], silent.points[n, sigma] = (
            held / n_repeats
        ).tolist()
    yield from (median, mean, silent)
