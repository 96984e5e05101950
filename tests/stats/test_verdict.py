import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.paired import compare_rates, compare_scores
from assay.stats.verdict import judge_difference


def compare(only_a, only_b, both, k=1):
    a = np.repeat([k, 0, k], [only_a, only_b, both])
    b = np.repeat([0, k, k], [only_a, only_b, both])
    trials = np.full(a.size, k)
    return compare_rates((a, trials), (b, trials), seed=1)


def test_clear_winners_and_losers():
    assert judge_difference(compare(2, 20, 30), margin=0.02).code == "better"
    assert judge_difference(compare(20, 2, 30), margin=0.02).code == "worse"


@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from([1, 5]), st.floats(0, 0.9))
def test_five_prompts_are_never_enough(only_a, only_b, k, margin):
    only_b = min(only_b, 5 - only_a)
    comparison = compare(only_a, only_b, 5 - only_a - only_b, k)
    assert judge_difference(comparison, margin=margin).code == "not-enough-data"


@pytest.mark.parametrize("n", [1, 5, 20, 100])
def test_identical_runs_have_no_winner_and_say_how_many_more(n):
    verdict = judge_difference(compare(0, 0, n), margin=0.02)
    assert verdict.code == "not-enough-data"
    assert verdict.n_more_prompts > 0


def test_identical_runs_of_many_prompts_are_the_same():
    assert judge_difference(compare(0, 0, 180), margin=0.02).code == "not-enough-data"
    assert judge_difference(compare(0, 0, 200), margin=0.02).code == "same"


def test_a_shown_difference_smaller_than_the_margin_is_the_same():
    verdict = judge_difference(compare(10, 60, 9930), margin=0.02)
    assert verdict.code == "same"
    assert judge_difference(compare(10, 60, 9930), margin=0.001).code == "better"


def test_no_grades_is_not_enough_data():
    nothing = compare_rates(([0], [0]), ([0], [0]), seed=1)
    verdict = judge_difference(nothing, margin=0.02)
    assert verdict.code == "not-enough-data"


def test_the_adjusted_p_decides_among_several_pairs():
    comparison = compare(2, 12, 30)
    assert comparison.p_value < 0.05
    assert judge_difference(comparison, margin=0.02).code == "better"
    assert judge_difference(comparison, margin=0.02, adjusted_p=0.2).code == "not-enough-data"


def test_scores_are_judged_alike():
    rng = np.random.default_rng(1)
    a = rng.uniform(0.3, 0.6, 40)
    assert judge_difference(compare_scores(a, a + 0.3, seed=1), margin=0.02).code == "better"


def test_as_many_more_prompts_as_said_do_decide():
    """Let the truth be as seen and draw that many prompts: four verdicts of five settle."""
    verdict = judge_difference(compare(1, 5, 34), margin=0.02)
    n = 40 + verdict.n_more_prompts
    rng = np.random.default_rng(2)
    codes = [
        judge_difference(compare(*rng.multinomial(n, [1 / 40, 5 / 40, 34 / 40])), margin=0.02).code
        for _ in range(300)
    ]
    assert 0.65 <= np.mean([code == "better" for code in codes]) <= 0.95


@pytest.mark.parametrize(("n", "k"), [(10, 1), (10, 5), (50, 1), (50, 5), (200, 5)])
def test_identical_agents_are_rarely_told_apart(n, k):
    rng = np.random.default_rng(n + k)
    trials, alarms = np.full(n, k), 0
    for difficulty in rng.beta(2.1, 0.9, (400, n)):
        runs = (rng.binomial(k, difficulty), trials), (rng.binomial(k, difficulty), trials)
        alarms += judge_difference(compare_rates(*runs, seed=1), margin=0.02).code in (
            "better",
            "worse",
        )
    assert alarms / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_a_margin_of_2_is_a_slip():
    with pytest.raises(ValueError, match=r"0\.02"):
        judge_difference(compare(1, 1, 10), margin=2)


@pytest.mark.parametrize(("n", "margin"), [(200, 0.02), (60, 0.1), (400, 0.05)])
def test_same_prints_the_interval_that_decided(n, margin):
    verdict = judge_difference(compare(0, 0, n), margin=margin)
    assert verdict.code == "same"
    assert -margin < verdict.interval.low <= verdict.interval.high < margin
