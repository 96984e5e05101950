import numpy as np
import pytest

from assay.stats.paired import compare_rates
from assay.stats.planning import Difficulty, PairedSpread
from assay.stats.verdict import judge_gate, narrowest_margin, simulate_gate


def chances(gate, rate, size, *, margin, icc=0.5, difference=0.1):
    difficulty = Difficulty(rate, icc)
    return simulate_gate(gate, difficulty, size, margin=margin, difference=difference)


def test_five_prompts_stop_every_run():
    found = chances("regression", 0.9, (5, 1), margin=0.02)
    assert (found.good_passes, found.bad_fails, found.bad_stopped) == (0.0, 0.0, 1.0)


def test_a_run_that_passes_all_cannot_be_beaten():
    assert chances("not-better", 1.0, (50, 5), margin=0.02).good_passes == 0.0


def test_a_narrow_margin_stops_an_unchanged_agent():
    """The setting of the old CI recipe: 50 prompts, three trials, a margin of two points."""
    found = chances("regression", 0.8, (50, 3), margin=0.02)
    assert found.good_passes < 0.2
    assert found.bad_stopped > 0.99
    assert found.prompts_for_80 > 500


@pytest.mark.parametrize(("margin", "icc"), [(0.05, 0.5), (0.1, 0.5), (0.1, 0.2)])
def test_the_prompts_for_80_percent_pass_in_80_percent(margin, icc):
    needed = chances("regression", 0.8, (50, 3), margin=margin, icc=icc).prompts_for_80
    found = chances("regression", 0.8, (needed, 3), margin=margin, icc=icc, difference=margin)
    assert 0.70 <= found.good_passes <= 0.90
    assert found.bad_stopped >= 0.95


def test_not_better_is_as_sure_as_planned():
    found = chances("not-better", 0.7, (200, 1), margin=0.02, difference=0.15)
    assert found.good_passes > 0.8
    assert found.bad_stopped > 0.9


def test_narrowest_margin_is_cleared_about_half_the_time():
    rng = np.random.default_rng(1)
    margin = narrowest_margin(PairedSpread(between=0.0, within=2 * 0.21), 120, n_trials=3)
    k, passed = np.full(120, 3), 0
    for _ in range(300):
        a, b = rng.binomial(3, 0.7, (2, 120))
        passed += (
            judge_gate("regression", compare_rates((a, k), (b, k), seed=1), margin=margin).outcome
            == "pass"
        )
    assert 0.38 <= passed / 300 <= 0.62
    with pytest.raises(ValueError, match="one prompt"):
        narrowest_margin(PairedSpread(0.1, 0.1), 0)
