"""Designs of several treatments are balanced, and give the effect of each on its own."""

from itertools import combinations

import numpy as np
import pytest

from assay.stats.factorial import MOST_FACTORS, main_effects, two_level_design

SIZES = {1: 2, 2: 4, 3: 8, 4: 8, 5: 16, 6: 16, 7: 16, 8: 16}


@pytest.mark.parametrize("n", SIZES)
def test_main_effects_are_clear_of_each_other_and_of_interactions_of_two(n: int) -> None:
    design = two_level_design(n)
    assert len({*design}) == len(design) == SIZES[n]
    assert design[0] == (False,) * n
    signs = np.where(np.array(design), 1, -1)
    assert not signs.sum(axis=0).any()
    for one, other in combinations(range(n), 2):
        assert signs[:, one] @ signs[:, other] == 0
        both = signs[:, one] * signs[:, other]
        others = [factor for factor in range(n) if factor not in (one, other)]
        assert not (both @ signs[:, others]).any()


@pytest.mark.parametrize("n", [0, MOST_FACTORS + 1])
def test_other_numbers_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="1 to 8 treatments"):
        two_level_design(n)


def test_effects_of_rates_that_add_up() -> None:
    design = two_level_design(4)
    true = np.array([0.2, -0.1, 0.0, 0.05])
    easy = np.linspace(0.3, 0.6, 30)[:, None]
    rates = easy + np.array(design) @ true
    rates[3, 2] = np.nan  # a prompt that one arm did not measure is left out everywhere
    found = main_effects(["a", "b", "c", "d"], design, rates, seed=1)
    assert [effect.difference for effect in found] == pytest.approx(true.tolist())
    assert all(effect.interval is not None for effect in found)


def test_intervals_hold_the_truth_and_nothing_is_found_where_nothing_is() -> None:
    chance, design = np.random.default_rng(7), two_level_design(5)
    true, n_prompts, k = np.array([0.15, 0.0, 0.0, -0.1, 0.0]), 25, 3
    n_inside, n_false, n_runs = 0, 0, 200
    for run in range(n_runs):
        easy = chance.uniform(0.3, 0.7, size=(n_prompts, 1))
        chances = np.clip(easy + np.array(design) @ true, 0, 1)
        rates = chance.binomial(k, chances) / k
        found = main_effects("abcde", design, rates, seed=run)
        n_inside += sum(
            e.interval.low <= t <= e.interval.high for e, t in zip(found, true, strict=True)
        )
        n_false += any(e.adjusted_p <= 0.05 for e, t in zip(found, true, strict=True) if t == 0)
    assert n_inside / (5 * n_runs) > 0.94
    assert n_false / n_runs < 0.08
