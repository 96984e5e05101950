import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.rates import bound_difference


def bounds_of(passes, measured, planned):
    """Return the bounds of one run's rate: those of its difference to a run that always fails."""
    n = len(passes)
    return bound_difference(([0] * n, [1] * n, [1] * n), (passes, measured, planned))


prompts = st.lists(
    st.integers(1, 5).flatmap(
        lambda planned: st.integers(0, planned).flatmap(
            lambda measured: st.tuples(
                st.integers(0, measured), st.just(measured), st.just(planned)
            )
        )
    ),
    min_size=1,
    max_size=20,
)


@given(prompts, st.randoms())
def test_any_completion_lies_between_the_bounds(rows, random):
    passes, measured, planned = np.array(rows).T
    bounds = bounds_of(passes, measured, planned)
    filled = [c + random.randint(0, p - m) for c, m, p in rows]
    assert bounds.low - 1e-12 <= np.mean(np.array(filled) / planned) <= bounds.high + 1e-12
    assert bounds.n_not_measured == (planned - measured).sum()


def test_bounds_by_hand():
    bounds = bounds_of([2, 0], [3, 0], [4, 2])
    assert (bounds.low, bounds.high) == pytest.approx(((0.5 + 0) / 2, (0.75 + 1) / 2))


def test_the_difference_takes_the_worst_of_both():
    bounds = bound_difference(([1, 0], [1, 1], [1, 2]), ([1, 0], [1, 0], [1, 1]))
    # Prompt 2: A lies in 0..0.5 and B in 0..1, so the difference in -0.5..1.
    assert (bounds.low, bounds.high, bounds.n_not_measured) == (-0.25, 0.5, 2)


def test_complete_runs_leave_nothing_open():
    bounds = bound_difference(([1, 0], [1, 1], [1, 1]), ([0, 0], [1, 1], [1, 1]))
    assert bounds.low == bounds.high == -0.5


def test_no_prompts_and_impossible_plans():
    assert bound_difference(([], [], []), ([], [], [])) is None
    with pytest.raises(ValueError, match="planned"):
        bounds_of([1], [2], [1])
    with pytest.raises(ValueError, match="planned"):
        bounds_of([0], [0], [0])
