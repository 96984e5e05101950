import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.significance import fewest_prompts, mcnemar_p, mcnemar_power, smallest_p

counts = st.integers(0, 200)


@given(counts, counts)
def test_exact_p_is_scipys_and_statsmodels(only_a, only_b):
    from scipy.stats import binomtest
    from statsmodels.stats.contingency_tables import mcnemar

    p = mcnemar_p(only_a, only_b)
    if only_a + only_b:
        assert p == pytest.approx(binomtest(only_a, only_a + only_b).pvalue, rel=1e-9)
    table = [[5, only_a], [only_b, 5]]
    assert p == pytest.approx(mcnemar(table, exact=True).pvalue, rel=1e-9)


@given(counts, counts)
def test_mid_p_is_half_a_tie_less(only_a, only_b):
    from scipy.stats import binomtest

    mid = mcnemar_p(only_a, only_b, mid_p=True)
    assert 0.0 <= mid <= mcnemar_p(only_a, only_b)
    if only_a + only_b and only_a != only_b:
        same = binomtest(only_a, only_a + only_b).pvalue
        pmf = np.exp(_log_choose(only_a + only_b, only_a)) * 0.5 ** (only_a + only_b)
        assert mid == pytest.approx(same - pmf, rel=1e-6)


def test_no_discordant_prompt_shows_nothing():
    assert mcnemar_p(0, 0) == 1.0
    with pytest.raises(ValueError, match="negative"):
        mcnemar_p(-1, 0)


def test_five_prompts_cannot_be_significant():
    assert smallest_p(5) == 0.0625
    assert smallest_p(0) == 1.0
    assert fewest_prompts(0.05) == 6
    assert mcnemar_power(4, 0.0, 1.0, 0.05) == 0.0
    assert mcnemar_power(6, 0.0, 1.0, 0.05) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("n", "only_a", "only_b"), [(30, 0.05, 0.3), (80, 0.1, 0.25), (40, 0.1, 0.1)]
)
def test_power_is_what_simulation_finds(n, only_a, only_b):
    rng = np.random.default_rng(1)
    cells = rng.multinomial(n, [only_a, only_b, 1 - only_a - only_b], size=4000)
    found = np.mean([mcnemar_p(a, b, mid_p=True) <= 0.05 for a, b, _ in cells.tolist()])
    assert mcnemar_power(n, only_a, only_b, 0.05) == pytest.approx(found, abs=0.025)


@pytest.mark.parametrize("n", [6, 10, 20, 50, 100, 200])
@pytest.mark.parametrize("discordant", [0.05, 0.2, 0.5])
def test_false_alarms_are_at_most_the_level(n, discordant):
    """Not simulated: the exact size of the mid-p test between identical agents.

    They differ on at most half of all prompts.
    """
    assert mcnemar_power(n, discordant / 2, discordant / 2, 0.05) <= 0.05


def _log_choose(n, k):
    from math import lgamma

    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
