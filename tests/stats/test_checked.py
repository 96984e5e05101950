import numpy as np
import pytest

from assay.stats.distributions import as_counts, as_shares, as_tallies, as_values, require_level


def test_nan_is_refused_and_named():
    with pytest.raises(ValueError, match="latency contains NaN"):
        as_values([1.0, float("nan")], "latency")
    with pytest.raises(ValueError, match="infinity"):
        as_values([float("inf")])


def test_only_flat_lists_are_values():
    with pytest.raises(ValueError, match="2-dimensional"):
        as_values([[1.0]])


def test_shares_lie_in_0_to_1_up_to_rounding():
    assert as_shares([1.0 + 1e-12, -1e-12]).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        as_shares([1.1])


def test_counts_are_whole():
    assert as_counts([3.0, 0]).dtype == np.int64
    for wrong in ([1.5], [-1]):
        with pytest.raises(ValueError, match="whole numbers"):
            as_counts(wrong)


def test_tallies_must_fit_together():
    with pytest.raises(ValueError, match="more passes"):
        as_tallies([2], [1])
    with pytest.raises(ValueError, match="same length"):
        as_tallies([1, 1], [1])


@pytest.mark.parametrize("level", [95, 1.5, 1.0, 0.0, -0.5])
def test_a_level_of_95_is_a_slip(level):
    with pytest.raises(ValueError, match=r"0\.95"):
        require_level(level)
