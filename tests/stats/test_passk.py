from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats import passk
from assay.stats.rates import rate_interval

tallies = st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(st.lists(tallies, min_size=1, max_size=20))
def test_unbiased_formulas_are_the_closed_forms(pairs):
    passes, trials = zip(*pairs, strict=True)
    at_k = passk.pass_at_each_k(passes, trials, 12)
    exp_k = passk.pass_exp_each_k(passes, trials, 12)
    for row, (c, n) in enumerate(pairs):
        for k in range(1, 13):
            if k > n:
                assert np.isnan(at_k[row, k - 1])
                assert np.isnan(exp_k[row, k - 1])
                continue
            assert at_k[row, k - 1] == pytest.approx(1 - comb(n - c, k) / comb(n, k))
            assert exp_k[row, k - 1] == pytest.approx(comb(c, k) / comb(n, k))


@given(tallies, st.data())
def test_pass_at_k_counts_subsets(tally, data):
    c, n = tally
    k = data.draw(st.integers(1, n))
    flags = [True] * c + [False] * (n - c)
    subsets = list(combinations(flags, k))
    assert passk.pass_at_each_k([c], [n], k)[0, -1] == pytest.approx(
        np.mean([any(s) for s in subsets])
    )
    assert passk.pass_exp_each_k([c], [n], k)[0, -1] == pytest.approx(
        np.mean([all(s) for s in subsets])
    )


@given(tallies)
def test_seed_formulas(tally):
    c, k = tally
    at = 1.0 if c >= k else 0.0 if c == 0 else 1 - (1 - c / k) ** k
    exp = 1.0 if c == k else 0.0 if c == 0 else (c / k) ** k
    assert passk.seed_pass_k(c, k) == pytest.approx((at, exp))


def test_unbiased_where_the_seed_is_not():
    """p = 0.2, k = 5 of n = 10 trials: the truth is 0.6723, the seed's n = k = 5 expects 0.5217."""
    c = np.arange(11)
    weights = [comb(10, x) * 0.2**x * 0.8 ** (10 - x) for x in c]
    assert weights @ passk.pass_at_each_k(c, [10] * 11, 5)[:, -1] == pytest.approx(0.67232)
    c = np.arange(6)
    weights = [comb(5, x) * 0.2**x * 0.8 ** (5 - x) for x in c]
    seeds = np.array([passk.seed_pass_k(int(x), 5)[0] for x in c])
    assert weights @ seeds == pytest.approx(0.5217, abs=1e-4)


def test_all_k_are_averaged_over_the_same_prompts():
    rows = passk.average_pass_k([3, 1, 0, 0], [3, 2, 1, 0])
    assert [(row.k, row.n_prompts, row.n_left_out) for row in rows] == [(1, 2, 2), (2, 2, 2)]
    assert rows[0].pass_at_k == rows[0].pass_exp_k == pytest.approx((1 + 0.5) / 2)
    assert rows[1].pass_at_k == pytest.approx(1.0)
    assert rows[1].pass_exp_k == pytest.approx(0.5)


def test_missing_trials_of_hard_prompts_never_make_pass_exp_k_rise():
    """Five trials each, one of them missing on every hard prompt."""
    hard = np.arange(100) < 45
    passes, measured = np.where(hard, 1, 5), np.where(hard, 4, 5)
    rows = passk.average_pass_k(passes, measured, np.full(100, 5))
    exp_k = [row.pass_exp_k for row in rows]
    assert exp_k == sorted(exp_k, reverse=True)
    assert rows[-1].k == 5
    low, high = rows[-1].pass_exp_k_bounds
    assert (low, high) == (pytest.approx(0.55), pytest.approx(0.55))
    low, high = rows[0].pass_exp_k_bounds
    assert (low, high) == (pytest.approx(0.55 + 0.45 * 0.2), pytest.approx(0.55 + 0.45 * 0.4))
    assert passk.average_pass_k(passes, measured)[0].pass_exp_k_bounds is None


def test_k_of_one_is_the_rate():
    passes, trials = [5, 3, 0, 4], [5, 5, 5, 5]
    row = passk.average_pass_k(passes, trials)[0]
    assert (row.pass_at_k, row.pass_at_k_interval) == rate_interval(passes, trials)


def test_nothing_measured_has_no_rows():
    assert passk.average_pass_k([], []) == []
    assert passk.average_pass_k([0], [0]) == []


def test_trials_of_none_have_no_seed_formula():
    with pytest.raises(ValueError, match="without trials"):
        passk.resampled_pass_at_k([0], [0])


@given(tallies)
def test_resampled_median_is_what_the_seed_tends_to(tally):
    c, k = tally
    flags = np.arange(k) < c
    rng = np.random.default_rng(1)
    means = flags[rng.integers(0, k, (4001, k))].mean(axis=1)
    drawn = np.sort(1 - (1 - means) ** k)
    median, low, high = passk.resampled_pass_at_k([c], [k])
    # Sampling may land on a neighbouring count when the distribution is nearly split there.
    step = [1 - (1 - x / k) ** k for x in range(k + 1)]
    gap = max(np.diff(step, prepend=0.0)) + 1e-9
    assert abs(median[0] - drawn[2000]) <= gap
    assert low[0] <= median[0] <= high[0]


def test_resampled_values_of_known_prompts():
    median, low, high = passk.resampled_pass_at_k([0, 5, 1], [5, 5, 2])
    assert median.tolist() == [0.0, 1.0, 0.75]
    assert (low[:2].tolist(), high[:2].tolist()) == ([0.0, 1.0], [0.0, 1.0])
    assert (low[2], high[2]) == (0.0, 1.0)
