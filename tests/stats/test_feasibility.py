import numpy as np
import pytest

from assay.stats.paired import compare_rates
from assay.stats.planning import PairedSpread
from assay.stats.verdict import judge_gate, narrowest_margin, reach_of_gate


def test_five_prompts_can_neither_pass_nor_fail():
    reach = reach_of_gate("regression", [1] * 5, [1] * 5, margin=0.02)
    assert (reach.can_pass, reach.can_fail, reach.smallest_p) == (False, False, 0.0625)
    assert "0.0625" in reach.words


def test_a_run_that_passes_all_cannot_be_beaten():
    reach = reach_of_gate("not-better", [5] * 50, [5] * 50, margin=0.02)
    assert not reach.can_pass
    assert "never pass" in reach.words


def test_a_run_that_fails_all_cannot_regress():
    reach = reach_of_gate("regression", [0] * 50, [1] * 50, margin=0.02)
    assert (reach.can_pass, reach.can_fail) == (True, False)


def test_enough_prompts_can_do_both():
    reach = reach_of_gate("regression", [1, 0] * 100, [1] * 200, margin=0.02)
    assert (reach.can_pass, reach.can_fail, reach.if_identical) == (True, True, "pass")
    assert (
        reach_of_gate("regression", [1, 0] * 30, [1] * 60, margin=0.02).if_identical
        == "cannot-judge"
    )


def test_no_prompts_reach_nothing():
    assert not reach_of_gate("regression", [], [], margin=0.02).can_pass


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
