import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.distributions import (
    binomial_pmf,
    normal_cdf,
    normal_quantile,
    t_cdf,
    t_quantile,
    two_sided_t,
    two_sided_z,
)


@given(st.floats(-30, 30), st.floats(0.5, 5000))
def test_t_distribution_is_scipys(t, df):
    import scipy.stats

    assert t_cdf(t, df) == pytest.approx(scipy.stats.t.cdf(t, df), rel=1e-8, abs=1e-12)


@given(st.floats(0.001, 0.999), st.integers(1, 100_000))
def test_t_quantile_is_scipys(probability, df):
    import scipy.stats

    expected = scipy.stats.t.ppf(probability, df)
    assert t_quantile(probability, df) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@given(st.integers(0, 300), st.sampled_from([0.0, 1.0]) | st.floats(1e-6, 1 - 1e-6))
def test_binomial_pmf_is_scipys(n, p):
    import scipy.stats

    expected = scipy.stats.binom.pmf(np.arange(n + 1), n, p)
    np.testing.assert_allclose(binomial_pmf(n, p), expected, rtol=1e-8, atol=1e-13)


def test_large_binomials_stay_finite():
    pmf = binomial_pmf(200_000, 0.3)
    assert pmf.sum() == pytest.approx(1.0)
    assert pmf @ np.arange(200_001) == pytest.approx(60_000)


def test_normal_tail_keeps_its_digits():
    import scipy.stats

    assert normal_cdf(-20.0) == pytest.approx(scipy.stats.norm.cdf(-20.0), rel=1e-10)
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


def test_multipliers_of_intervals():
    assert two_sided_z(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert two_sided_t(0.95, 9) == pytest.approx(2.262157, abs=1e-6)
    assert two_sided_t(0.95, 1e9) == pytest.approx(two_sided_z(0.95))


def test_impossible_distributions_are_refused():
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_cdf(1.0, 0)
    with pytest.raises(ValueError, match="binomial"):
        binomial_pmf(3, 1.5)
