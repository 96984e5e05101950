import numpy as np
import pytest

from assay.stats.agreement import correct_rate, measure_agreement


def label(hits, passes, rejects, fails):
    """Return the agreement of a grader that finds hits of passes and rejects of fails."""
    human = [True] * passes + [False] * fails
    grader = [i < hits for i in range(passes)] + [i >= rejects for i in range(fails)]
    return measure_agreement(human, grader)


def test_rogan_and_gladen_by_hand():
    found = correct_rate(0.7, 200, label(90, 100, 80, 100))
    assert found.rate == pytest.approx((0.7 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.interval.contains(found.rate)
    assert found.note is None


@pytest.mark.parametrize(
    ("observed", "n", "agreement", "limits"),
    [
        (27 / 650, 650, label(50, 100, 199, 200), (0.0274600, 0.1145830)),
        (0.65, 200, label(90, 100, 80, 100), (0.5250341, 0.7615413)),
    ],
)
def test_interval_is_the_published_formula(observed, n, agreement, limits):
    """Pinned: computed apart from this code, from Lang and Reiczigel (2014)."""
    interval = correct_rate(observed, n, agreement).interval
    assert (interval.low, interval.high) == pytest.approx(limits, abs=1e-6)


def test_a_perfect_grader_changes_nothing():
    found = correct_rate(0.64, 300, label(5000, 5000, 5000, 5000))
    assert found.rate == pytest.approx(0.64)
    assert found.interval.high - found.interval.low == pytest.approx(
        2 * 1.96 * 0.48 / 300**0.5, abs=0.01
    )


def test_rates_beyond_the_possible_are_cut():
    assert correct_rate(0.05, 100, label(90, 100, 80, 100)).rate == 0.0
    assert correct_rate(0.99, 100, label(90, 100, 80, 100)).rate == 1.0


def test_a_grader_like_chance_corrects_nothing():
    found = correct_rate(0.7, 100, label(50, 100, 50, 100))
    assert found.rate is None
    assert (found.interval.low, found.interval.high) == (0.0, 1.0)
    assert found.note == "the grader is no better than chance"


def test_a_doubtful_grader_is_named():
    assert (
        correct_rate(0.7, 100, label(7, 10, 5, 10)).note
        == "the grader may be no better than chance"
    )


@pytest.mark.parametrize(
    ("observed", "n", "agreement"),
    [
        (42 / 85, 85, label(224, 231, 1, 1)),
        (458 / 461, 461, label(1, 1, 99, 100)),
        (5 / 367, 367, label(136, 142, 1, 1)),
    ],
)
def test_the_interval_holds_the_rate_with_few_labels_of_a_kind(observed, n, agreement):
    found = correct_rate(observed, n, agreement)
    assert found.interval.contains(found.rate)
    assert found.interval.low < found.interval.high


def test_labels_of_one_kind_are_not_enough():
    found = correct_rate(0.7, 100, label(9, 10, 0, 0))
    assert found.rate is found.interval is None
    assert "fails" in found.note


@pytest.mark.parametrize("truth", [0.3, 0.8])
def test_interval_covers(truth):
    rng = np.random.default_rng(1)
    held = []
    for _ in range(400):
        human = rng.random(100) < 0.6
        grader = np.where(human, rng.random(100) < 0.9, rng.random(100) >= 0.8)
        observed = rng.binomial(100, truth * 0.9 + (1 - truth) * 0.2) / 100
        held.append(
            correct_rate(observed, 100, measure_agreement(human, grader)).interval.contains(truth)
        )
    assert 0.92 <= np.mean(held) <= 0.99


def test_impossible_rates_are_refused():
    with pytest.raises(ValueError, match="possible"):
        correct_rate(1.2, 10, label(9, 10, 9, 10))
