import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.significance import adjust_holm


def rejected(p_values: list[float], alpha: float) -> set[int]:
    """Holm's step-down procedure as he describes it: go on until one is not small enough."""
    found: set[int] = set()
    for i in sorted(range(len(p_values)), key=p_values.__getitem__):
        if p_values[i] * (len(p_values) - len(found)) > alpha:
            return found
        found.add(i)
    return found


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 0.999))
def test_an_adjusted_p_is_the_level_at_which_holm_rejects(p_values, alpha):
    adjusted = adjust_holm(p_values)
    assert ((adjusted >= np.array(p_values)) & (adjusted <= 1)).all()
    for level in (alpha, *adjusted[adjusted < 1]):
        # A hair to both sides: the level itself is a rounded product.
        assert {*np.flatnonzero(adjusted <= level)} <= rejected(p_values, level * (1 + 1e-12))
        assert rejected(p_values, level * (1 - 1e-12)) <= {*np.flatnonzero(adjusted <= level)}


def test_holm_is_statsmodels():
    """What multipletests(method="holm") of statsmodels 0.14 gives; loading it takes a second."""
    p_values = [0.011, 0.5, 0.0004, 0.02, 0.02, 0.3, 0.009, 1.0]
    expected = [0.066, 1.0, 0.0032, 0.1, 0.1, 0.8999999999999999, 0.063, 1.0]
    assert adjust_holm(p_values).tolist() == pytest.approx(expected, rel=1e-12)


def test_holm_by_hand():
    assert adjust_holm([0.04, 0.01, 0.03]).tolist() == pytest.approx([0.06, 0.03, 0.06])


def test_nothing_to_adjust_and_nan():
    assert adjust_holm([]).size == 0
    with pytest.raises(ValueError, match="NaN"):
        adjust_holm([0.1, np.nan])
