import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.means import constant_share_interval, estimate_mean, estimate_mean_score


def test_nothing_and_one_prompt_have_no_interval():
    for estimate in (estimate_mean([], seed=1), estimate_mean_score([])):
        assert (estimate.n, estimate.mean, estimate.interval) == (0, None, None)
        assert estimate.note == "nothing measured"
    for estimate in (estimate_mean([0.5], seed=1), estimate_mean_score([0.5])):
        assert (estimate.n, estimate.mean, estimate.interval) == (1, 0.5, None)


def test_constant_amounts_say_so_instead_of_claiming_certainty():
    estimate = estimate_mean([3.0] * 20, seed=1)
    assert estimate.interval is None
    assert "constant" in estimate.note


@given(st.floats(0, 1), st.integers(2, 300))
def test_constant_scores_get_the_rule_of_three(score, n):
    estimate = estimate_mean_score([score] * n)
    unseen = 1 - 0.05 ** (1 / n)
    assert estimate.interval.high - estimate.interval.low == pytest.approx(unseen)
    assert estimate.interval.low <= score + 1e-12
    assert estimate.interval.high >= score - 1e-12


def test_rule_of_three_is_three_over_n():
    assert constant_share_interval(1.0, 1000).low == pytest.approx(1 - 3 / 1000, abs=2e-5)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_score_intervals_are_never_of_zero_width(scores):
    interval = estimate_mean_score(scores).interval
    assert interval.high > interval.low
    assert interval.low - 1e-9 <= np.mean(scores) <= interval.high + 1e-9


def test_few_amounts_use_t_and_stay_above_zero():
    estimate = estimate_mean([1.0, 9.0, 2.0], seed=1)
    assert estimate.interval.method == "t"
    assert estimate.interval.low == 0.0
    assert estimate.interval.high == pytest.approx(4 + 4.30265 * np.std([1, 9, 2], ddof=1) / 3**0.5)


def test_more_amounts_use_bca():
    assert "BCa" in estimate_mean(np.arange(20.0), seed=1).interval.method


def test_scores_near_one_are_covered_where_bca_fails():
    rng = np.random.default_rng(1)
    held = [
        estimate_mean_score(scores).interval.contains(0.95)
        for scores in rng.beta(0.8 * 0.95, 0.8 * 0.05, (400, 10))
    ]
    assert np.mean(held) >= 0.92


def test_nan_and_impossible_scores_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        estimate_mean([1.0, np.nan], seed=1)
    with pytest.raises(ValueError, match="scores must lie"):
        estimate_mean_score([0.2, 7.0])
