import numpy as np
import pytest

from assay.stats.paired import compare_amounts


def test_differences_and_ratios_of_amounts():
    a, b = np.array([1.0, 2.0, 3.0, 4.0] * 5), np.array([2.0, 2.0, 6.0, 5.0] * 5)
    found = compare_amounts(a, b, seed=1)
    assert found.difference == pytest.approx(1.25)
    assert found.ratio == pytest.approx(15 / 10)
    assert found.typical_ratio == pytest.approx((2 * 1 * 2 * 1.25) ** 0.25)
    assert found.difference_interval.contains(1.25)
    assert found.ratio_interval.contains(1.5)
    assert found.typical_ratio_interval.contains(found.typical_ratio)


@pytest.mark.parametrize("n", [5, 20, 60])
def test_ratio_intervals_cover(n):
    rng = np.random.default_rng(n)
    held = []
    for _ in range(150):
        a = rng.lognormal(0, 0.5, n)
        b = a * rng.lognormal(np.log(1.2) - 0.02, 0.2, n)
        found = compare_amounts(a, b, seed=1)
        held.append(
            (
                found.ratio_interval.contains(1.2),
                found.typical_ratio_interval.contains(1.2 / np.exp(0.02)),
            )
        )
    assert np.all(np.mean(held, axis=0) >= 0.86)


def test_free_runs_have_a_difference_but_no_ratio():
    found = compare_amounts([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], seed=1)
    assert found.difference == 2.0
    assert found.ratio is found.ratio_interval is found.typical_ratio is None


def test_nothing_and_one_prompt():
    assert compare_amounts([], [], seed=1).difference is None
    one = compare_amounts([1.0], [3.0], seed=1)
    assert (one.difference, one.difference_interval, one.ratio_interval) == (2.0, None, None)


def test_constant_differences_say_so():
    found = compare_amounts([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], seed=1)
    assert found.difference == 0.0
    assert found.difference_interval is None
    assert "constant" in found.note


def test_negative_amounts_and_unequal_runs_are_refused():
    with pytest.raises(ValueError, match="negative"):
        compare_amounts([-1.0], [1.0], seed=1)
    with pytest.raises(ValueError, match="same length"):
        compare_amounts([1.0], [1.0, 2.0], seed=1)
    with pytest.raises(ValueError, match="NaN"):
        compare_amounts([np.nan], [1.0], seed=1)


def test_same_seed_same_answer():
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(size=40), rng.lognormal(size=40)
    assert compare_amounts(a, b, seed=7) == compare_amounts(a, b, seed=7)


def test_a_difference_may_be_negative_where_no_prompt_of_the_sample_is():
    up = compare_amounts([100, 100, 100], [101, 150, 400], seed=1)
    down = compare_amounts([101, 150, 400], [100, 100, 100], seed=1)
    assert up.difference_interval.low == pytest.approx(-down.difference_interval.high)
    assert up.difference_interval.low < 0
