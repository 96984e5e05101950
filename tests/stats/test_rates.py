import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.distributions import binomial_pmf
from assay.stats.rates import (
    rate_interval,
    share_interval,
    wilson_interval,
)


@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_statsmodels(n, data, level):
    from statsmodels.stats.proportion import proportion_confint

    passed = data.draw(st.integers(0, n))
    interval = wilson_interval(passed, n, level)
    expected = proportion_confint(passed, n, alpha=1 - level, method="wilson")
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-12)


def test_wilson_needs_trials_and_possible_counts():
    assert wilson_interval(0, 0) is None
    with pytest.raises(ValueError, match="not possible"):
        wilson_interval(3, 2)


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_single_trials_are_wilson_with_t(flags):
    rate, interval = rate_interval(flags, np.ones(len(flags)))
    plain = wilson_interval(sum(flags), len(flags))
    assert rate == pytest.approx(np.mean(flags))
    # t is wider than z, and nothing else differs.
    assert interval.low <= plain.low + 1e-12
    assert interval.high >= plain.high - 1e-12


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=40))
def test_interval_holds_its_rate_and_has_width(pairs):
    passes = [min(c, n) for c, n in pairs]
    rate, interval = rate_interval(passes, [n for _, n in pairs])
    assert 0.0 <= interval.low <= rate + 1e-12
    assert rate - 1e-12 <= interval.high <= 1.0
    assert interval.high - interval.low > 0.0


def test_repeats_are_not_sample_size():
    """Five trials that agree are worth one trial; five independent ones are worth more."""
    alike = rate_interval([5, 0] * 20, [5] * 40)[1]
    single = rate_interval([1, 0] * 20, [1] * 40)[1]
    spread = rate_interval([3, 2] * 20, [5] * 40)[1]
    assert (alike.low, alike.high) == pytest.approx((single.low, single.high))
    assert spread.high - spread.low < 0.6 * (alike.high - alike.low)


def test_no_more_than_k_times_the_prompts():
    """Suspiciously even prompts are held to be worth at most all their trials."""
    from scipy.stats import t as student

    interval, n, t = share_interval([0.5] * 100, n_trials=2), 200, student.ppf(0.975, 99)
    half = t / (1 + t * t / n) * math.sqrt(0.25 / n + t * t / (4 * n * n))
    assert (interval.low, interval.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_unmeasured_prompts_are_left_out():
    assert rate_interval([1, 0, 0], [1, 1, 0]) == rate_interval([1, 0], [1, 1])
    assert rate_interval([0, 0], [0, 0]) == (None, None)
    assert rate_interval([], []) == (None, None)


def test_all_passed_is_not_certainty():
    rate, interval = rate_interval([5] * 10, [5] * 10)
    assert rate == 1.0
    assert interval.high == 1.0
    assert 0.6 < interval.low < 0.75


def test_one_prompt_says_next_to_nothing():
    interval = share_interval([1.0])
    assert interval.low < 0.05


@pytest.mark.parametrize("n", [10, 15, 30, 100])
def test_coverage_of_single_trials_is_at_least_93_percent(n):
    limits = [rate_interval(np.arange(n) < c, np.ones(n))[1] for c in range(n + 1)]
    for p in np.arange(0.5, 0.9501, 0.01):
        held = [limit.contains(p) for limit in limits]
        assert binomial_pmf(n, p)[held].sum() >= 0.93


def test_coverage_of_five_trials_with_unequal_prompts():
    rng = np.random.default_rng(5)
    held = []
    for difficulty in rng.beta(0.9 * 4, 0.1 * 4, (600, 20)):
        held.append(rate_interval(rng.binomial(5, difficulty), np.full(20, 5))[1].contains(0.9))
    assert 0.92 <= np.mean(held) <= 0.995


def test_empty_and_nan_are_refused():
    with pytest.raises(ValueError, match="at least one prompt"):
        share_interval([])
    with pytest.raises(ValueError, match="NaN"):
        share_interval([0.5, np.nan])
