import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.paired import cohens_h, matched_odds_ratio, standardised_difference

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=40)


@given(pairs)
def test_cohens_h_is_statsmodels(counts):
    from statsmodels.stats.proportion import proportion_effectsize

    a, b = np.array(counts).T / 5
    found = cohens_h(a, b, 5)
    assert found.value == pytest.approx(proportion_effectsize(b.mean(), a.mean()), abs=1e-9)
    assert found.low <= found.value <= found.high
    assert found.high > found.low


def test_cohens_h_interval_covers():
    from statsmodels.stats.proportion import proportion_effectsize

    rng = np.random.default_rng(1)
    truth = proportion_effectsize(0.8, 0.6)
    held = []
    for _ in range(500):
        found = cohens_h(rng.binomial(1, 0.6, 50) * 1.0, rng.binomial(1, 0.8, 50) * 1.0)
        held.append(found.low <= truth <= found.high)
    assert 0.92 <= np.mean(held) <= 0.985


def test_matched_odds_ratio():
    found = matched_odds_ratio(5, 15)
    assert found.value == pytest.approx(3.0)
    assert found.low > 1.0
    mirrored = matched_odds_ratio(15, 5)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_matched_odds_ratio_with_one_side_only_is_unbounded():
    found = matched_odds_ratio(0, 8)
    assert (found.value, found.high) == (None, None)
    assert found.low == pytest.approx(0.6756 / 0.3244, rel=1e-3)
    nothing = matched_odds_ratio(0, 0)
    assert (nothing.value, nothing.low, nothing.high) == (None, 0.0, None)


def test_standardised_difference_is_hedges_corrected():
    d = np.array([0.1, 0.3, 0.2, 0.0, 0.4])
    found = standardised_difference(d)
    assert found.value == pytest.approx((1 - 3 / 15) * d.mean() / d.std(ddof=1))
    reach = 2.776445 * math.sqrt(1 / 5 + found.value**2 / 10)
    assert (found.low, found.high) == pytest.approx((found.value - reach, found.value + reach))


def test_constant_differences_have_no_standard_deviation():
    assert standardised_difference(np.full(9, 0.2)).value is None
    assert standardised_difference(np.array([0.1, 0.2])).value is None
