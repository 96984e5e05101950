import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.stats import planning as power
from assay.stats.paired import compare_rates
from assay.stats.planning import PairedSpread, measure_spread, split_rate_variance

spread = PairedSpread(between=0.04, within=0.3)


@given(st.floats(0.05, 1.2), st.integers(6, 300))
def test_power_with_several_trials_is_that_of_a_t_test(effect, n):
    # Far beyond, statsmodels' noncentral t gives NaN where the power is 1.
    from statsmodels.stats.power import TTestPower

    assume(effect * n**0.5 < 6)
    unit = PairedSpread(between=1.0, within=0.0)
    found = power.power_at(unit, effect, n, n_trials=3)
    # Ours leaves out the chance to be significant on the wrong side.
    expected = TTestPower().power(effect, n, 0.05, alternative="two-sided")
    assert found == pytest.approx(expected, abs=0.02)


@settings(max_examples=30)
@given(
    st.sampled_from([0.03, 0.1, 0.25]), st.sampled_from([1, 3, 5, 10]), st.sampled_from([0.8, 0.9])
)
def test_prompts_needed_is_the_inverse_of_power(difference, k, wanted):
    n = power.prompts_needed(spread, difference, n_trials=k, power=wanted)
    assert power.power_at(spread, difference, n, n_trials=k) >= wanted
    assert power.power_at(spread, difference, int(0.8 * n), n_trials=k) < wanted


def test_trials_help_only_within_prompts():
    rows = power.plan_trials(PairedSpread(between=0.1, within=0.4), 0.1)
    needed = [row.n_prompts for row in rows]
    assert [row.n_trials for row in rows] == [1, 3, 5, 10]
    assert needed == sorted(needed, reverse=True)
    # However many trials, the variance between prompts stays: 0.1 needs (2.8/0.1)^2 * 0.1 = 79.
    assert needed[-1] > 79
    assert [row.n_runs_of_agent for row in rows] == [
        2 * n * k for n, k in zip(needed, (1, 3, 5, 10), strict=True)
    ]
    fixed = power.plan_trials(PairedSpread(between=0.3, within=0.0), 0.1, trials=(3, 10))
    assert fixed[0].n_prompts == fixed[1].n_prompts


def test_five_prompts_have_no_power_and_no_difference_needs_no_plan():
    assert power.power_at(spread, 1.0, 5) == 0.0
    assert power.prompts_needed(spread, 0.0) is None
    assert power.power_at(spread, 0.0, 100) == 0.0
    assert power.prompts_needed(spread, 1e-6) is None


@pytest.mark.parametrize("k", [1, 5])
def test_planned_prompts_do_show_the_difference(k):
    """Plan from a large pilot, then simulate the experiment that was planned."""
    rng = np.random.default_rng(k)

    def draw(n):
        difficulty = rng.beta(3, 2, n)
        moved = difficulty + 0.15 * (1 - difficulty) / 0.4
        return rng.binomial(k, difficulty), rng.binomial(k, np.minimum(moved, 1.0))

    a, b = draw(4000)
    trials = np.full(4000, k)
    within = [split_rate_variance(passes, trials).within for passes in (a, b)]
    pilot = measure_spread((b - a) / k, None if k == 1 else sum(within), k)
    difference = float((b - a).mean() / k)
    n = power.prompts_needed(pilot, difference, n_trials=k)
    few = np.full(n, k)
    shown = []
    for _ in range(400):
        a, b = draw(n)
        shown.append(compare_rates((a, few), (b, few), seed=1).p_value <= 0.05)
    assert 0.72 <= np.mean(shown) <= 0.92


def test_smallest_difference():
    assert power.smallest_difference(0.25, 5) is None
    assert power.smallest_difference(0.25, 100) == pytest.approx((1.984 + 0.845) * 0.05, abs=1e-3)
    # Without any spread McNemar still needs six discordant prompts; 7.9 are expected to give them.
    assert power.smallest_difference(0.0, 100, n_trials=1) == pytest.approx(0.079, abs=1e-3)
    assert power.smallest_difference(0.0, 6, n_trials=1) is None


def test_prompts_to_decide_takes_the_nearer_decision():
    assert power.prompts_to_decide(0.1, 0.25, 0.02) == pytest.approx(
        0.25 * (2.80159 / 0.1) ** 2, abs=1
    )
    assert power.prompts_to_decide(0.0, 0.25, 0.02) == pytest.approx(
        0.25 * (2.80159 / 0.02) ** 2, abs=1
    )
    assert power.prompts_to_decide(0.0, 0.25, 0.0) is None


def test_enough_prompts_must_differ_however_small_the_spread():
    calm = PairedSpread(between=0.0, within=1e-6)
    # 7.9 differing prompts are expected to bring the six that the exact test needs.
    assert power.prompts_needed(calm, 0.02, n_trials=5) == 80
    assert power.prompts_needed(calm, 0.02, n_trials=5, pass_fail=False) == 6
