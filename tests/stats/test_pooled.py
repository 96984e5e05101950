"""Trials where they are worth most, and the gate against a pooled baseline."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.stats.noise import BuildNoise, total_df, total_variance
from assay.stats.paired import compare_rates
from assay.stats.planning import Difficulty
from assay.stats.pooled import allocate_trials, simulate_pooled_gate, trial_spread
from assay.stats.verdict import judge_gate


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.001, 0.5), min_size=1, max_size=60),
    st.integers(1, 12),
)
def test_all_trials_are_spent_and_every_prompt_has_one(spread, mean):
    trials = allocate_trials(np.array(spread), mean)
    assert trials.sum() == mean * len(spread)
    assert trials.min() >= 1
    order = np.argsort(spread)
    assert (np.diff(trials[order]) >= -1).all(), "more spread, not fewer trials"


def test_a_prompt_seen_seldom_is_not_taken_for_one_that_always_passes():
    passed, n = np.array([2, 40, 0, 20, 0]), np.array([2, 40, 40, 40, 0])
    always_twice, always, never, half, unseen = trial_spread(passed, n)
    assert half > unseen > always_twice > always
    assert always == pytest.approx(never, rel=0.5)


def test_allocation_makes_the_mean_surer_and_keeps_it_unbiased():
    rng, n, k = np.random.default_rng(3), 50, 3
    easy = Difficulty(0.8, 0.5).draw((1, n), rng)[0]
    trials = allocate_trials(trial_spread(rng.binomial(20, easy), np.full(n, 20)), k)
    means = {}
    for name, numbers in (("equal", np.full(n, k)), ("allocated", trials)):
        means[name] = (rng.binomial(numbers, easy, (4000, n)) / numbers).mean(axis=1)
    assert means["allocated"].mean() == pytest.approx(easy.mean(), abs=0.002)
    assert means["allocated"].var() < 0.85 * means["equal"].var()


def test_the_gate_is_right_against_a_baseline():
    found = simulate_pooled_gate(
        Difficulty(0.8, 0.5), (np.full(50, 24), np.full(50, 8)), margin=0.12, difference=0.1
    )
    assert found.good_passes >= 0.85
    assert found.bad_stopped >= 0.8
    assert found.good_trials < 0.75 * found.most_trials
    assert "of 100 builds of an unchanged agent" in found.words


def test_builds_that_vary_cost_passes_and_the_plan_names_a_margin():
    trials = np.full(50, 24), np.full(50, 8)
    noise = BuildNoise(n_builds=3, variance=0.03**2, seen=0.03**2, share=1 / 3)
    plans = [
        simulate_pooled_gate(
            Difficulty(0.8, 0.5), trials, margin=0.12, difference=0.1, builds=builds
        )
        for builds in (None, noise)
    ]
    assert plans[1].good_passes < plans[0].good_passes - 0.1
    assert plans[1].bad_stopped >= 0.9
    assert plans[1].margin_for_90 > 0.12
    assert "builds vary by 0.030; with a margin of 0." in plans[1].words
    assert (plans[0].build_sd, plans[1].build_sd) == (None, pytest.approx(0.03))


def test_two_baselines_bring_each_their_own_noise():
    """That of one with few builds does not decide how sure the other is."""
    few = BuildNoise(n_builds=3, variance=0.0009, seen=0.0012, share=1 / 3)
    many = BuildNoise(n_builds=10, variance=0.0001, seen=0.0002, share=0.1)
    noise = few.of_mean(), many.of_mean()
    assert total_variance(0.0, noise) == pytest.approx(0.0009 / 3 + 0.0001 / 10)
    # Welch and Satterthwaite: three builds among ten others and fifty prompts.
    rest = 0.0002
    total = rest + 0.0003 + 0.00001
    parts = rest**2 / 49 + (0.0012 / 3) ** 2 / 2 + (0.0002 / 10) ** 2 / 9
    assert total_df(rest, 49, noise) == pytest.approx(total**2 / parts)
    assert few.of_difference().variance == pytest.approx(0.0009 * (1 + 1 / 3))


def test_a_loss_of_the_margin_seldom_passes_with_many_trials_against_one():
    rng, n, size = np.random.default_rng(11), 100, 600
    passes = 0
    for easy in Difficulty(0.95, 0.2).draw((size, n), rng):
        pooled, fresh = np.full(n, 20), np.ones(n, dtype=int)
        a, b = rng.binomial(20, easy), rng.binomial(1, easy * (0.9 / 0.95))
        pair = compare_rates((a, pooled), (b, fresh), seed=1)
        passes += judge_gate("regression", pair, margin=0.05).outcome == "pass"
    assert passes / size <= 0.025 + 3 * (0.025 * 0.975 / size) ** 0.5


def test_a_baseline_that_saw_prompts_once_gives_a_wider_interval():
    rng, n = np.random.default_rng(5), 60
    widths = {}
    for many in (1, 20):
        found = []
        for easy in Difficulty(0.8, 0.5).draw((60, n), rng):
            pooled, fresh = np.full(n, many), np.full(n, 3)
            runs = (rng.binomial(many, easy), pooled), (rng.binomial(3, easy), fresh)
            interval = compare_rates(*runs, seed=1).interval
            found.append(interval.high - interval.low)
        widths[many] = np.mean(found)
    assert widths[1] > 1.5 * widths[20]


def test_a_margin_that_trials_refuses_promises_nothing():
    n = np.full(30, 8)
    refused = simulate_pooled_gate(Difficulty(0.8, 0.5), (n, n), margin=0.05, difference=0.05)
    assert (refused.good_passes, refused.bad_fails, refused.good_trials) == (0.0, 0.0, 0.0)
    assert "30 prompts can never show that a loss of 0.05 is absent" in refused.words
