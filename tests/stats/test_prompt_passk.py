"""pass@k and pass^k of one prompt: unbiased, and inside their own interval."""

from itertools import combinations
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.passk import prompt_pass_k, seed_pass_k

counts = st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(("n_passed", "n"), [(0, 1), (1, 1), (2, 5), (3, 5), (5, 5), (4, 7)])
def test_the_estimate_is_the_share_of_all_choices_of_k_trials(n_passed: int, n: int):
    trials = [True] * n_passed + [False] * (n - n_passed)
    for told in prompt_pass_k(n_passed, n):
        chosen = list(combinations(trials, told.k))
        assert isclose(told.pass_at_k, sum(map(any, chosen)) / len(chosen), abs_tol=1e-12)
        assert isclose(told.pass_exp_k, sum(map(all, chosen)) / len(chosen), abs_tol=1e-12)


@given(counts)
def test_every_interval_holds_its_estimate(pair: tuple[int, int]):
    told = prompt_pass_k(*pair)
    assert [row.k for row in told] == list(range(1, pair[1] + 1))
    for row in told:
        low, high = row.pass_at_k_interval
        assert 0.0 <= low <= row.pass_at_k <= high <= 1.0
        low, high = row.pass_exp_k_interval
        assert 0.0 <= low <= row.pass_exp_k <= high <= 1.0


def test_an_estimate_beyond_the_carried_interval_widens_it():
    """3 of 5: any three trials hold a pass, so pass@3 is 1, above what the rate's limit gives."""
    told = prompt_pass_k(3, 5)[2]
    assert told.pass_at_k == 1.0
    assert told.pass_at_k_interval[1] == 1.0
    assert told.pass_at_k_interval[0] < 0.6
    nothing = prompt_pass_k(2, 5)[2]
    assert nothing.pass_exp_k == 0.0
    assert nothing.pass_exp_k_interval[0] == 0.0


def test_k_is_one_for_the_plain_rate():
    told = prompt_pass_k(3, 10)[0]
    assert told.pass_at_k == pytest.approx(0.3)
    assert told.pass_exp_k == pytest.approx(0.3)
    assert told.pass_at_k_interval == pytest.approx((0.1078, 0.6032), abs=1e-4)  # Wilson


def test_nothing_measured_gives_nothing():
    assert prompt_pass_k(0, 0) == []
    with pytest.raises(ValueError, match="no trial was measured"):
        seed_pass_k(0, 0)


@pytest.mark.parametrize(
    ("n_passed", "n", "wanted"),
    [(0, 5, (0.0, 0.0)), (5, 5, (1.0, 1.0)), (2, 4, (1 - 0.5**4, 0.5**4))],
)
def test_the_seeds_numbers(n_passed: int, n: int, wanted: tuple[float, float]):
    assert seed_pass_k(n_passed, n) == pytest.approx(wanted)
