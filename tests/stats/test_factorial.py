"""Designs of several treatments are balanced, and give the effect of each on its own."""

from itertools import combinations

import numpy as np
import pytest

from assay.stats.factorial import MOST_FACTORS, estimate_effects, two_level_design

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
    rates[3, 2] = np.nan  # the other arms tell what this one lacks
    found = estimate_effects(["a", "b", "c", "d"], design, rates, seed=1).effects
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
        found = estimate_effects("abcde", design, rates, seed=run).effects
        n_inside += sum(
            e.interval.low <= t <= e.interval.high for e, t in zip(found, true, strict=True)
        )
        n_false += any(e.adjusted_p <= 0.05 for e, t in zip(found, true, strict=True) if t == 0)
    assert n_inside / (5 * n_runs) > 0.94
    assert n_false / n_runs < 0.08


def test_treatments_that_replace_each_other_are_seen() -> None:
    """Either of them helps, both together no more than one: half of each effect is an accident."""
    chance, design = np.random.default_rng(3), two_level_design(2)
    chances = 0.2 + 0.5 * np.array(design).any(axis=1)
    rates = chance.binomial(5, np.broadcast_to(chances, (30, 4))) / 5
    found = estimate_effects(["a", "b"], design, rates, seed=1)
    (one,) = found.interactions
    assert one.pairs == [("a", "b")]
    assert one.interval.low < one.difference < one.interval.high < -0.2
    assert one.interval.low <= -0.5
    assert one.adjusted_p < 0.01
    assert one.alone == pytest.approx(0.5, abs=0.1)
    assert one.together == pytest.approx(0.0, abs=0.1)


def test_a_crossover_shows_no_effect_but_an_interaction() -> None:
    chance, design = np.random.default_rng(4), two_level_design(3)
    on = np.array(design)
    chances = np.where(on[:, 0] == on[:, 2], 0.7, 0.3)
    rates = chance.binomial(5, np.broadcast_to(chances, (30, 8))) / 5
    found = estimate_effects("abc", design, rates, seed=1)
    assert all(effect.adjusted_p > 0.05 for effect in found.effects)
    clear = [one.pairs for one in found.interactions if one.adjusted_p < 0.01]
    assert clear == [[("a", "c")]]


def test_pairs_that_the_arms_do_not_tell_apart_are_named_together() -> None:
    rates = np.random.default_rng(5).uniform(size=(20, 8))
    found = estimate_effects("abcd", two_level_design(4), rates, seed=1)
    named = [sorted("".join(pair) for pair in one.pairs) for one in found.interactions]
    assert sorted(named) == [["ab", "cd"], ["ac", "bd"], ["ad", "bc"]]
    assert all(one.alone is None for one in found.interactions)


def test_prompts_that_some_arms_lack_count_as_far_as_they_go() -> None:
    design, true = two_level_design(2), np.array([0.2, -0.1])
    rates = np.linspace(0.3, 0.6, 10)[:, None] + np.array(design) @ true
    rates[0, 1] = rates[1, :2] = np.nan
    found = estimate_effects("ab", design, rates, seed=1)
    assert [effect.difference for effect in found.effects] == pytest.approx(true.tolist())
    assert (found.n_prompts, found.n_incomplete, found.n_left_out) == (9, 1, 1)
