from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.stats import significance as permutation
from assay.stats.significance import flip_test, mcnemar_p


def enumerate_p(d):
    sums = np.array([np.dot(signs, d) for signs in product((-1, 1), repeat=len(d))])
    return np.mean(np.abs(sums) >= abs(sum(d)) - 1e-9)


# Differences that are nearer to each other than rounding errors count as equal.
@given(st.lists(st.floats(-1, 1).map(lambda d: round(d, 6)), min_size=1, max_size=9))
def test_few_prompts_are_enumerated(differences):
    kept = [d for d in differences if abs(d) > 1e-9]
    expected = enumerate_p(kept) if kept else 1.0
    assert flip_test(differences, seed=1).p_value == pytest.approx(expected)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=10))
def test_rates_of_five_trials_are_exact(fifths):
    d = np.array(fifths) / 5
    assert flip_test(d, seed=1).p_value == pytest.approx(enumerate_p(d))


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=80))
def test_single_trials_give_mcnemar(signs):
    expected = mcnemar_p(signs.count(-1), signs.count(1))
    result = flip_test(signs, seed=1)
    assert result.p_value == pytest.approx(expected, rel=1e-9)


def test_scipy_agrees():
    import scipy.stats

    rng = np.random.default_rng(3)
    d = rng.normal(0.25, 1, 12)
    found = scipy.stats.permutation_test(
        (d, np.zeros(12)),
        lambda a, b: np.mean(a - b),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    assert flip_test(d, seed=1).p_value == pytest.approx(found.pvalue)


def test_lattice_and_sampling_agree():
    rng = np.random.default_rng(4)
    d = rng.integers(-4, 6, 60) / 5
    exact = flip_test(d, seed=1)
    sampled = flip_test(d + rng.normal(0, 1e-7, 60), seed=1)
    assert exact.method == "sign flip, exact"
    assert "resamples" in sampled.method
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.012)


def test_groups_and_signs_draw_from_one_distribution():
    import scipy.stats

    rng = np.random.default_rng(5)
    sizes, counts = np.array([0.1, 0.25, 0.7]), np.array([10, 20, 5])
    groups = permutation._sample_groups(sizes, counts, 20_000, rng)
    signs = permutation._sample_signs(np.repeat(sizes, counts), 20_000, rng)
    # Rounded, because the two ways to add up differ in the last bits of the same sum.
    assert scipy.stats.ks_2samp(groups.round(9), signs.round(9)).pvalue > 1e-4
    assert groups.std() == pytest.approx(np.sqrt(counts @ sizes**2), rel=0.03)


def test_thousands_of_prompts_use_the_normal_limit():
    import scipy.stats

    d = np.random.default_rng(6).normal(0.02, 1, 6000)
    result = flip_test(d, seed=1)
    assert result.method == "sign flip, normal limit"
    expected = 2 * scipy.stats.norm.sf(abs(d.sum()) / np.sqrt((d**2).sum()))
    assert result.p_value == pytest.approx(expected)


def test_many_prompts_on_a_lattice_are_sampled_by_group():
    d = np.random.default_rng(7).integers(-5, 6, 20_000) / 5
    assert 0.0 < flip_test(d, seed=1).p_value <= 1.0
    assert flip_test(d + 0.2, seed=1, n_resamples=999).p_value == pytest.approx(1 / 1000)


def test_the_seed_decides():
    d = np.random.default_rng(8).normal(0.2, 1, 50)
    assert flip_test(d, seed=1) == flip_test(d, seed=1)
    assert flip_test(d, seed=1) != flip_test(d, seed=2)


@settings(max_examples=20)
@given(st.integers(0, 40))
def test_identical_runs_show_nothing(n):
    assert flip_test(np.zeros(n), seed=1).p_value == 1.0


def test_level_holds_for_exchangeable_runs():
    rng = np.random.default_rng(9)
    alarms = [flip_test(rng.integers(-3, 4, 30) / 3, seed=1).p_value <= 0.05 for _ in range(600)]
    assert 0.02 <= np.mean(alarms) <= 0.08


def test_nan_is_refused():
    with pytest.raises(ValueError, match="differences contains NaN"):
        flip_test([0.1, np.nan], seed=1)
