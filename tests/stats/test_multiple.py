import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.stats.significance import adjust_holm


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_is_statsmodels(p_values):
    from statsmodels.stats.multitest import multipletests

    expected = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(adjust_holm(p_values), expected, rtol=1e-12, atol=1e-12)


def test_holm_by_hand():
    assert adjust_holm([0.04, 0.01, 0.03]).tolist() == pytest.approx([0.06, 0.03, 0.06])


def test_nothing_to_adjust_and_nan():
    assert adjust_holm([]).size == 0
    with pytest.raises(ValueError, match="NaN"):
        adjust_holm([0.1, np.nan])
