import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.distributions import quantiles, summarize_values


def test_quantiles_interpolate():
    summary = summarize_values(range(100, 1001, 100))
    assert summary is not None
    assert (summary.p50, summary.p90, summary.p25) == pytest.approx((550, 910, 325))
    assert (summary.min, summary.max, summary.mean, summary.n) == (100, 1000, 550, 10)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_quantile_lies_at_its_share(values, share):
    ordered, position = sorted(values), share * (len(values) - 1)
    low, rest = int(position), position - int(position)
    high = min(low + 1, len(values) - 1)
    expected = ordered[low] + rest * (ordered[high] - ordered[low])
    assert quantiles(np.array(values), (share,)) == [pytest.approx(expected, abs=1e-6)]


def test_nothing_measured_is_not_zero():
    assert summarize_values([]) is None


def test_one_value_is_all_its_quantiles():
    summary = summarize_values([7.0])
    assert summary is not None
    assert {summary.p25, summary.p50, summary.p99, summary.mean} == {7.0}


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        summarize_values([1.0, np.nan])
