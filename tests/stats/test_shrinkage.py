"""Several estimates seen together are drawn towards their mean, as far as chance explains them."""

import numpy as np
import pytest

from assay.stats.planning import Difficulty
from assay.stats.shrinkage import rank_arms, shrink, shrink_groups


def test_what_chance_explains_is_nearly_equal() -> None:
    values = np.array([0.55, 0.5, 0.45])
    found = shrink(values, np.full(3, 0.01), seed=1)
    assert max(one.value for one in found) < 0.53
    assert sum(one.best_chance for one in found) == pytest.approx(1.0)
    assert found[0].best_chance < 0.6


def test_what_chance_does_not_explain_stays() -> None:
    found = shrink(np.array([0.9, 0.5, 0.5]), np.full(3, 1e-4), seed=1)
    assert found[0].value == pytest.approx(0.9, abs=0.01)
    assert found[0].best_chance > 0.99
    assert found[1].best_chance == pytest.approx(found[2].best_chance, abs=0.01)


def test_few_prompts_are_drawn_further_than_many() -> None:
    few, many = np.array([1.0, 1.0, 0.0]), np.tile([0.5, -0.5], 30)
    groups = shrink_groups(["few", "many"], [few, many], seed=1)
    assert groups[0].difference == pytest.approx(2 / 3)
    assert 0.0 < groups[0].shrunken < 0.5
    assert abs(groups[1].shrunken) < 0.1
    assert groups[0].interval.high - groups[0].interval.low > 0.3


def test_one_estimate_alone_is_itself() -> None:
    (one,) = shrink(np.array([0.3]), np.array([0.01]), seed=1)
    assert one.value == pytest.approx(0.3)
    assert one.best_chance == 1.0
    assert shrink(np.zeros(0), np.zeros(0), seed=1) == []


def test_the_winner_of_equal_arms_is_hardly_overstated() -> None:
    rng, agent = np.random.default_rng(7), Difficulty(0.6, 0.4)
    raw, expected = [], []
    for easy in agent.draw((100, 20), rng):
        rates = rng.binomial(3, np.broadcast_to(easy[:, None], (20, 6))) / 3
        arms = rank_arms(rates, seed=1)
        best = max(arms, key=lambda arm: arm.rate)
        raw.append(best.rate - rates.mean())
        expected.append(best.expected.value - rates.mean())
    assert np.mean(raw) > 0.05
    assert np.mean(expected) < 0.03
