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


def test_a_few_runaways_do_not_move_the_median_ratio() -> None:
    rng = np.random.default_rng(72)
    held = {"median": 0, "mean": 0}
    for _ in range(200):
        a, b = (np.exp(rng.normal(0.0, 0.5, 50)) for _ in range(2))
        a[rng.random(50) < 0.03] *= 50
        b[rng.random(50) < 0.03] *= 50
        found = compare_amounts(a, b, seed=1, n_resamples=200)
        assert found.median_ratio_interval is not None
        held["median"] += found.median_ratio_interval.contains(1.0)
        held["mean"] += found.difference_interval.contains(0.0)
        is_far = max(a.max(), b.max()) > 30
        assert (found.tail is not None) >= is_far
    assert held["median"] / 200 >= 0.92


def test_log_normal_amounts_are_no_runaways() -> None:
    rng = np.random.default_rng(5)
    found = [
        compare_amounts(*np.exp(rng.normal(0.0, 1.0, (2, 50))), seed=1, n_resamples=50).tail
        for _ in range(100)
    ]
    assert sum(tail is not None for tail in found) <= 5


@pytest.mark.parametrize("n", [5, 6, 200, 5000])
def test_the_interval_of_the_median_ratio_comes_from_the_order(n: int) -> None:
    ratios = np.linspace(0.5, 2.0, n)
    found = compare_amounts(np.ones(n), ratios, seed=1, n_resamples=50)
    assert found.median_ratio == pytest.approx(1.25)
    interval = found.median_ratio_interval
    if n == 5:
        assert interval is None
        return
    assert interval is not None
    assert interval.low < 1.25 < interval.high
    assert interval.high - interval.low < 4 / n**0.5
