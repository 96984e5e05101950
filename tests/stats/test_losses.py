"""Whether two arms lost alike, and what of their losses leaves nothing open."""

import pytest
import scipy.stats

from assay.stats.rates import excused_shares
from assay.stats.significance import losses_differ

CASES = [((3, 2), (100, 100)), ((0, 8), (100, 100)), ((0, 3), (80, 17)), ((9, 40), (3000, 3000))]


@pytest.mark.parametrize(("lost", "n"), CASES)
def test_unequal_losses_are_those_of_fishers_test(lost, n):
    table = [[lost[0], n[0] - lost[0]], [lost[1], n[1] - lost[1]]]
    sides = [scipy.stats.fisher_exact(table, way).pvalue for way in ("less", "greater")]
    assert losses_differ(lost[0], n[0], lost[1], n[1]) == (min(sides) <= 0.05)


def test_only_what_both_arms_lost_is_excused():
    assert excused_shares((3, 5), (100, 100), differ=False) == (1.0, 0.6)
    assert excused_shares((0, 5), (100, 100), differ=False) == (0.0, 0.0)
    assert excused_shares((3, 5), (100, 100), differ=True) == (0.0, 0.0)
