import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.stats.planning import split_rate_variance


@given(st.integers(0, 2**32 - 1))
def test_mean_squares_are_scipys(seed):
    from scipy.stats import f_oneway

    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, 8)
    groups = [rng.integers(0, 2, n) for n in sizes]
    split = split_rate_variance([group.sum() for group in groups], sizes)
    assume(split.within)
    n0 = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / 7
    f = f_oneway(*groups).statistic
    assert split.between == pytest.approx(max(0.0, (f - 1) * split.within / n0))
    assert split.total == pytest.approx(split.between + split.within)
    assert split.icc == pytest.approx(split.between / split.total)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=20))
def test_prompts_without_trials_are_left_out_and_single_trials_tell_nothing_within(rows):
    passes, measured = [min(c, n) for c, n in rows], [n for _, n in rows]
    split = split_rate_variance(passes, measured)
    counted = zip(passes, measured, strict=True)
    groups = [np.repeat([1.0, 0.0], [c, n - c]) for c, n in counted if n]
    n_trials = sum(measured)
    assert (split.n_prompts, split.n_trials) == (len(groups), n_trials)
    if len(groups) > 1 and n_trials > len(groups):
        squares = sum(np.square(group - group.mean()).sum() for group in groups)
        assert split.within == pytest.approx(squares / (n_trials - len(groups)), abs=1e-9)
    else:
        assert split.within is None


@pytest.mark.parametrize("icc", [0.1, 0.5, 0.9])
def test_icc_of_beta_binomial_prompts_is_found(icc):
    rng = np.random.default_rng(1)
    total = 1 / icc - 1
    difficulty = rng.beta(0.6 * total, 0.4 * total, 4000)
    split = split_rate_variance(rng.binomial(5, difficulty), np.full(4000, 5))
    assert split.icc == pytest.approx(icc, abs=0.03)
    assert split.total == pytest.approx(0.24, abs=0.01)


def test_noise_within_prompts_asks_for_trials():
    rng = np.random.default_rng(2)
    split = split_rate_variance(rng.binomial(3, 0.5, 200), np.full(200, 3))
    assert split.advice == "add-trials"


def test_prompts_that_always_agree_with_themselves_ask_for_prompts():
    split = split_rate_variance([5, 0, 5, 0], [5] * 4)
    assert (split.advice, split.within, split.icc, split.trial_share) == (
        "add-prompts",
        0.0,
        1.0,
        0.0,
    )


def test_single_trials_cannot_be_split():
    split = split_rate_variance([1, 0, 1, 1], [1] * 4)
    assert split.between is split.within is split.icc is None
    assert split.total == pytest.approx(0.25)
    assert split.advice == "add-prompts"
    assert "cannot tell" in split.words


def test_all_alike_and_next_to_nothing():
    alike = split_rate_variance([5, 5], [5, 5])
    assert (alike.icc, alike.total, alike.advice) == (None, 0.0, "add-prompts")
    for split in (
        split_rate_variance([], []),
        split_rate_variance([2], [3]),
    ):
        assert split.total is None
        assert "fewer than two prompts" in split.words
