import numpy as np
import pytest

from assay.stats.paired import Extremes, compare_extremes, compare_rates
from assay.stats.verdict import judge_difference, judge_gate


def compare(only_a, only_b, both):
    a = np.repeat([1, 0, 1], [only_a, only_b, both])
    b = np.repeat([0, 1, 1], [only_a, only_b, both])
    ones = np.ones(a.size)
    return compare_rates((a, ones), (b, ones), seed=1)


@pytest.mark.parametrize(
    ("cells", "margin", "outcome"),
    [
        ((20, 1, 79), 0.02, "fail"),  # -0.19, far beyond the margin
        ((12, 1, 87), 0.05, "cannot-judge"),  # worse for sure, but perhaps by less than 0.05
        ((5, 5, 90), 0.02, "cannot-judge"),  # 100 prompts cannot clear two points
        ((5, 5, 90), 0.10, "pass"),
        ((0, 0, 200), 0.02, "pass"),
        ((2, 30, 68), 0.0, "pass"),  # better, so surely not worse
        ((60, 10, 9930), 0.02, "pass"),  # a shown loss that the margin allows
        ((5, 0, 0), 0.02, "cannot-judge"),  # five prompts cannot show anything
    ],
)
def test_regression(cells, margin, outcome):
    assert judge_gate("regression", compare(*cells), margin=margin).outcome == outcome


@pytest.mark.parametrize(
    ("cells", "margin", "outcome"),
    [
        ((1, 20, 79), 0.02, "pass"),
        ((5, 5, 90), 0.02, "cannot-judge"),
        ((20, 1, 79), 0.02, "fail"),
        ((0, 0, 200), 0.02, "fail"),  # an improvement of two points is ruled out
        ((5, 5, 990), 0.0, "cannot-judge"),
        ((0, 5, 0), 0.02, "cannot-judge"),
    ],
)
def test_not_better(cells, margin, outcome):
    assert judge_gate("not-better", compare(*cells), margin=margin).outcome == outcome


def test_worse_within_the_margin_is_said_in_words():
    assert "perhaps by no more" in judge_gate("regression", compare(12, 1, 87), margin=0.05).words


def test_no_grades_cannot_be_judged():
    nothing = compare_rates(([0], [0]), ([0], [0]), seed=1)
    for gate in ("regression", "not-better"):
        assert judge_gate(gate, nothing, margin=0.02).outcome == "cannot-judge"


def test_the_adjusted_p_can_withhold_a_failure():
    comparison = compare(9, 1, 30)
    assert judge_gate("regression", comparison, margin=0.0).outcome == "fail"
    assert (
        judge_gate("regression", comparison, margin=0.0, adjusted_p=0.3).outcome == "cannot-judge"
    )


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_a_run_that_respects_the_margin_rarely_fails(shift):
    rng = np.random.default_rng(4)
    k, fails = np.full(60, 5), 0
    for difficulty in rng.beta(8, 2, (400, 60)):
        a, b = rng.binomial(5, difficulty), rng.binomial(5, difficulty * (0.8 - shift) / 0.8)
        fails += (
            judge_gate("regression", compare_rates((a, k), (b, k), seed=1), margin=shift).outcome
            == "fail"
        )
    assert fails / 400 <= 0.05
    assert shift or fails > 0


def test_a_lost_margin_is_rarely_passed():
    rng = np.random.default_rng(5)
    ones, passed = np.ones(60), 0
    for flags in rng.random((500, 2, 60)):
        a, b = flags[0] < 0.99, flags[1] < 0.94
        pair = compare_rates((a, ones), (b, ones), seed=1)
        passed += judge_gate("regression", pair, margin=0.05).outcome == "pass"
    assert passed / 500 <= 0.06


def test_margin_is_a_share():
    with pytest.raises(ValueError, match="margin"):
        judge_gate("regression", compare(1, 1, 8), margin=-0.1)


@pytest.mark.parametrize(("n", "k", "margin"), [(200, 1, 0.02), (100, 10, 0.05), (50, 3, 0.1)])
def test_a_regression_in_few_prompts_is_not_waved_through(n, k, margin):
    """Prompts that always passed and now always fail, as many as the margin allows just not."""
    rng = np.random.default_rng(6)
    trials, passes = np.full(n, k), 0
    for broken in rng.random((2000, n)) < margin:
        pair = compare_rates((trials, trials), (np.where(broken, 0, k), trials), seed=1)
        passes += judge_gate("regression", pair, margin=margin).outcome == "pass"
    assert passes / 2000 <= 0.025 + 3 * (0.025 * 0.975 / 2000) ** 0.5


def test_several_runs_share_one_chance_of_a_wrong_pass():
    pair = compare(2, 2, 146)
    alone = judge_gate("regression", pair, margin=0.05)
    among_many = judge_gate("regression", pair, margin=0.05, n_judged=20)
    assert (alone.outcome, among_many.outcome) == ("pass", "cannot-judge")


def missing(n: int, n_missing: int) -> Extremes | None:
    """What is open if all prompts passed in both runs, but of the first ones B has no trial."""
    ones = np.ones(n, dtype=np.int64)
    measured = (np.arange(n) >= n_missing).astype(np.int64)
    return compare_extremes((ones, ones, ones), (measured, measured, ones))


def test_what_was_not_measured_can_withhold_a_pass():
    pair = compare(0, 0, 191)
    many, few = missing(200, 18), missing(200, 2)
    found = judge_gate("regression", pair, margin=0.05, extremes=many)
    assert found.outcome == "cannot-judge"
    assert "-9.0 points" in found.words
    assert judge_difference(pair, margin=0.05, extremes=many).code == "not-enough-data"
    assert judge_gate("regression", pair, margin=0.05, extremes=few).outcome == "pass"
    assert missing(200, 0) is None


def test_a_pass_holds_with_the_missing_trials_as_failures():
    """Nine of 100 lost is not within 0.1 for certain: nor if the nine were not measured."""
    failed = compare(9, 0, 91)
    assert judge_gate("regression", failed, margin=0.1).outcome == "cannot-judge"
    found = judge_gate("regression", compare(0, 0, 91), margin=0.1, extremes=missing(100, 9))
    assert found.outcome == "cannot-judge"


def test_losses_that_are_not_measured_pass_as_rarely_as_others():
    rng, n, margin, passes = np.random.default_rng(2), 100, 0.1, 0
    ones = np.ones(n, dtype=np.int64)
    for broken in rng.random((1000, n)) < margin:
        b = (~broken).astype(np.int64)
        pair = compare_rates((ones, ones), (b, b), seed=1)
        extremes = compare_extremes((ones, ones, ones), (b, b, ones))
        outcome = judge_gate("regression", pair, margin=margin, extremes=extremes).outcome
        passes += outcome == "pass"
    assert passes / 1000 <= 0.025 + 3 * (0.025 * 0.975 / 1000) ** 0.5
