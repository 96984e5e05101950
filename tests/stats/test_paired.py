import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.paired import (
    compare_rates,
    compare_scores,
    paired_interval,
    score_difference_interval,
)
from assay.stats.significance import flip_test, mcnemar_p

flags = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def single(pairs):
    a, b = np.array(pairs, dtype=int).T
    ones = np.ones(len(pairs), dtype=int)
    return compare_rates((a, ones), (b, ones), seed=1)


@given(flags)
def test_single_trials_are_judged_by_mcnemar(pairs):
    found = single(pairs)
    only_a, only_b = pairs.count((True, False)), pairs.count((False, True))
    assert (found.wins, found.losses) == (only_b, only_a)
    assert found.wins + found.ties + found.losses == found.n_prompts == len(pairs)
    assert found.test == "McNemar, mid-p"
    assert found.p_value == pytest.approx(mcnemar_p(only_a, only_b, mid_p=True))
    assert found.exact_p_value == pytest.approx(mcnemar_p(only_a, only_b))
    assert found.difference == pytest.approx((only_b - only_a) / len(pairs))
    assert found.interval.contains(found.difference * len(pairs) / (len(pairs) + 1))


@given(flags)
def test_swapping_the_runs_mirrors_everything(pairs):
    one, other = single(pairs), single([(b, a) for a, b in pairs])
    assert one.difference == pytest.approx(-other.difference)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.interval.low, one.interval.high) == pytest.approx(
        (-other.interval.high, -other.interval.low)
    )
    assert one.effects[0].value == pytest.approx(-other.effects[0].value)


def test_single_trials_follow_the_formula_of_bonett_and_price_with_half_a_prompt():
    found = single([(True, False)] * 3 + [(False, True)] * 9 + [(True, True)] * 28)
    n, only_a, only_b = 40, 3, 9
    p_b, p_a = (only_b + 0.5) / (n + 1), (only_a + 0.5) / (n + 1)
    reach = 2.022691 * np.sqrt((p_a + p_b - (p_b - p_a) ** 2) / (n + 1))
    expected = (p_b - p_a - reach, p_b - p_a + reach)
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, abs=1e-6)


def test_k_trials_flip_whole_prompts():
    rng = np.random.default_rng(1)
    a, b, k = rng.binomial(5, 0.6, 30), rng.binomial(5, 0.8, 30), np.full(30, 5)
    found = compare_rates((a, k), (b, k), seed=1)
    assert found.trials_per_prompt == pytest.approx(5)
    assert found.p_value == pytest.approx(flip_test((b - a) / 5, seed=1).p_value)
    assert found.difference == pytest.approx((b - a).mean() / 5)
    assert [effect.name for effect in found.effects] == ["Cohen's h"]


def test_repeating_identical_trials_adds_no_certainty_to_the_test():
    a, b = np.array([1, 0] * 10), np.array([1, 1] * 10)
    one = compare_rates((a, np.ones(20)), (b, np.ones(20)), seed=1)
    five = compare_rates((5 * a, np.full(20, 5)), (5 * b, np.full(20, 5)), seed=1)
    assert one.exact_p_value == pytest.approx(five.p_value)
    assert five.interval.high - five.interval.low > 0.9 * (one.interval.high - one.interval.low)


def test_prompts_not_measured_in_both_are_counted_and_left_out():
    found = compare_rates(([1, 0, 0, 1], [1, 0, 1, 1]), ([1, 1, 0, 0], [1, 1, 0, 1]), seed=1)
    assert (found.n_prompts, found.n_left_out) == (2, 2)
    assert (found.mean_a, found.mean_b) == (1.0, 0.5)


def test_no_prompt_in_both_is_no_difference_rather_than_zero():
    for found in (
        compare_rates(([1], [1]), ([0], [0]), seed=1),
        compare_rates(([], []), ([], []), seed=1),
        compare_scores([], [], seed=1),
    ):
        assert found.n_prompts == 0
        assert found.difference is found.interval is found.p_value is None


@given(st.integers(1, 400))
def test_identical_runs_keep_the_width_of_the_rule_of_three(n):
    interval, _ = paired_interval(np.zeros(n), 1.0)
    assert interval.high >= 1 - 0.05 ** (1 / n) - 1e-12
    assert interval.low == pytest.approx(-interval.high)


def test_scores_are_compared_by_prompt():
    rng = np.random.default_rng(2)
    a = rng.beta(4, 2, 80)
    b = np.clip(a + rng.normal(0.05, 0.05, 80), 0, 1)
    found = compare_scores(a, b, seed=1)
    assert found.p_value < 0.01
    assert found.interval.low > 0
    assert found.effects[0].name == "standardised paired difference"
    assert found.effects[0].low > 0


def test_the_smallest_detectable_difference_is_detected_four_times_in_five():
    rng = np.random.default_rng(3)
    k = np.full(80, 5)

    def pair(shift):
        return compare_rates(
            (rng.binomial(5, 0.6, 80), k), (rng.binomial(5, 0.6 + shift, 80), k), seed=1
        )

    shift = np.mean([pair(0.0).smallest_detectable for _ in range(50)])
    shown = [pair(shift).p_value <= 0.05 for _ in range(400)]
    assert 0.74 <= np.mean(shown) <= 0.92


def test_five_prompts_can_detect_nothing():
    assert single([(True, False)] * 5).smallest_detectable is None


def test_runs_of_different_length_and_nan_are_refused():
    with pytest.raises(ValueError, match="same length"):
        compare_rates(([1], [1]), ([1, 1], [1, 1]), seed=1)
    with pytest.raises(ValueError, match="NaN"):
        compare_scores([0.5, np.nan], [0.5, 0.5], seed=1)


def test_more_trials_in_one_run_than_in_the_other_are_no_effect():
    """Ten trials show failures that one trial misses: a sign flip would call that better."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(400):
        a, b = rng.binomial(10, 0.95, 50), rng.binomial(1, 0.95, 50)
        found = compare_rates((a, np.full(50, 10)), (b, np.ones(50)), seed=1)
        alarms += found.p_value <= 0.05
    assert "studentised" in found.test
    assert alarms / 400 <= 0.08
    flipped = compare_rates((a, np.full(50, 10)), (a, np.full(50, 10)), seed=1)
    assert "sign flip" in flipped.test


@pytest.mark.parametrize("jitter", [0.0, 0.005, 0.05])
@pytest.mark.parametrize("n", [20, 50])
def test_rare_large_drops_of_scores_stay_in_the_interval(n, jitter):
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(400):
        drops = np.where(rng.random(n) < 0.05, -1.0, rng.normal(0.0, 1.0, n) * jitter)
        held += score_difference_interval(drops)[0].contains(-0.05)
    assert held / 400 >= 0.90


def test_no_cliff_between_ties_and_jitter():
    tied = score_difference_interval(np.zeros(20))[0]
    jittered = score_difference_interval(np.array([0.005, -0.005] * 10))[0]
    assert jittered.high == pytest.approx(tied.high, rel=0.05)


def test_clusters_widen_the_interval_where_their_prompts_move_together():
    rng = np.random.default_rng(5)
    clusters = np.repeat(np.arange(20), 10)
    moved = np.repeat(rng.random(20) < 0.3, 10)
    a, ones = np.ones(200), np.ones(200)
    alone = compare_rates((a, ones), (a - moved, ones), seed=1)
    together = compare_rates((a, ones), (a - moved, ones), seed=1, clusters=clusters)
    assert together.difference == pytest.approx(alone.difference)
    assert (together.n_units, alone.n_units) == (20, 200)
    assert _width(together) > 2.5 * _width(alone)
    own = compare_rates((a, ones), (a - moved, ones), seed=1, clusters=np.arange(200))
    assert _width(own) == pytest.approx(_width(alone))


def _width(found):
    return found.interval.high - found.interval.low
