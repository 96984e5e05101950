"""The sequential rule: what it decides, and that looking often does not spoil it."""

import math

import numpy as np
import pytest

from assay.stats.planning import Difficulty
from assay.stats.rates import make_interval
from assay.stats.sequential import (
    ERROR,
    ExtremeLooks,
    Look,
    _last_boundary,
    _line,
    _range,
    _t_of_z,
    decide_effect,
    decide_gate,
    describe_use,
    look_at_extremes,
    look_at_rates,
    smallest_margin,
)


@pytest.mark.parametrize(
    ("look", "outcome"),
    [
        (Look(100, 0.0, 0.1), "pass"),
        (Look(40, 0.0, 0.1), "go-on"),
        (Look(60, -0.1, 0.1), "go-on"),
        (Look(200, -0.1, 0.1), "fail"),
        (Look(20, -0.8, 0.2), "fail"),  # broken: a few prompts are enough
        (Look(5, -1.0, 0.2), "go-on"),  # but never fewer than six
        (Look(0), "go-on"),
    ],
)
def test_the_gate(look, outcome):
    assert decide_gate(look, margin=0.1).outcome == outcome


@pytest.mark.parametrize(
    ("look", "outcome"),
    [
        (Look(200, 0.0, 0.1), "same"),
        (Look(60, 0.0, 0.1), "go-on"),
        (Look(200, 0.1, 0.1), "better"),
        (Look(200, -0.1, 0.1), "worse"),
        (Look(20, 0.8, 0.2), "better"),
    ],
)
def test_the_effect(look, outcome):
    assert decide_effect(look, effect=0.1).outcome == outcome


def test_the_interval_is_what_decides():
    for difference in np.linspace(-0.3, 0.1, 41):
        decided = decide_gate(Look(150, float(difference), 0.12), margin=0.1)
        assert decided.interval.low < difference < decided.interval.high
        assert (decided.outcome == "fail") == (decided.interval.high < 0.0)
        assert (decided.outcome == "pass") == (decided.interval.low > -0.1)


def test_a_small_sure_loss_is_the_nearer_of_the_two():
    assert decide_gate(Look(5000, -0.04, 0.1), margin=0.1).outcome == "pass"
    assert decide_gate(Look(5000, -0.06, 0.1), margin=0.1).outcome == "fail"


def test_a_loss_in_few_prompts_may_hide_among_those_not_seen():
    """Thirty prompts without any change: one of ten may be lost, and not be among them."""
    assert decide_gate(Look(30, 0.0, 0.001), margin=0.1).outcome == "go-on"
    assert decide_gate(Look(70, 0.0, 0.001), margin=0.1).outcome == "pass"


def test_successes_that_are_rare_are_not_missed_at_once():
    """A passes 2 of 20 trials of each prompt, B none of one: that is no loss yet."""
    n = np.ones(30, dtype=np.int64)
    look = look_at_rates((2 * n, 20 * n), (0 * n, n))
    assert look.least_variance == pytest.approx(0.1 * 0.9 * 20 / 19 * 1.05)
    assert look.least_variance > look.variance
    assert decide_gate(look, margin=0.05).outcome == "go-on"
    blind = Look(look.n_units, look.difference, look.variance)
    assert decide_gate(blind, margin=0.05).outcome == "fail"


def test_what_was_not_measured_withholds_a_pass():
    look = Look(100, 0.0, 0.1)
    few = ExtremeLooks(Look(101, -0.01, 0.1), look)
    assert decide_gate(look, margin=0.1).outcome == "pass"
    assert decide_gate(Look(150, 0.0, 0.1), margin=0.1, extremes=few).outcome == "pass"
    hidden = decide_gate(look, margin=0.1, extremes=ExtremeLooks(Look(120, -0.2, 0.2), look))
    assert hidden.outcome == "go-on"
    assert "-20.0 points" in hidden.words
    alike = Look(200, 0.0, 0.1)
    for worst, best in ((-0.2, 0.0), (0.0, 0.2)):
        cases = ExtremeLooks(Look(200, worst, 0.1), Look(200, best, 0.1))
        assert decide_effect(alike, effect=0.1, extremes=cases).outcome != "same"
    assert decide_effect(alike, effect=0.1, extremes=ExtremeLooks(alike, alike)).outcome == "same"


def test_nothing_missing_leaves_nothing_open():
    n = np.ones(30, dtype=np.int64)
    assert look_at_extremes((2 * n, 3 * n, 3 * n), (n, n, n)) is None
    worst, best, n_open = look_at_extremes((2 * n, 2 * n, 4 * n), (0 * n, n, 2 * n))
    assert (worst.difference, best.difference, n_open) == (-1.0, 0.0, 90)


@pytest.mark.parametrize(("n", "margin"), [(50, 0.12), (100, 0.08), (30, 0.18)])
def test_losses_that_are_not_measured_pass_no_more_often_than_others(n: int, margin: float):
    """The agent loses the margin, and every trial that it would lose ends as a provider failure."""
    rng, size, passes = np.random.default_rng(1), 150, 0
    ones = np.ones(n, dtype=np.int64)
    for broken in rng.random((size, n)) < margin:
        passed = (~broken).astype(np.int64)
        for seen in (*range(n // 2, n, 5), n):
            b = passed[:seen], passed[:seen]
            a = (8 * ones)[:seen], (8 * ones)[:seen]
            extremes = look_at_extremes((*a, a[1]), (*b, ones[:seen]))
            look = look_at_rates(a, b)
            decided = decide_gate(look, margin=margin, extremes=extremes, is_last=seen == n)
            if decided.is_decided:
                break
        passes += decided.outcome == "pass"
    assert passes / size <= 0.05 + 2 * (0.05 * 0.95 / size) ** 0.5


def test_the_last_look_decides_what_the_others_leave_open():
    look = Look(50, -0.01, 0.05)
    assert decide_gate(look, margin=0.1).outcome == "go-on"
    assert decide_gate(look, margin=0.1, is_last=True).outcome == "pass"
    assert decide_gate(Look(50, -0.05, 0.05), margin=0.1, is_last=True).outcome == "undecided"


def test_several_runs_need_more():
    look = Look(72, 0.0, 0.1)
    assert decide_gate(look, margin=0.1).outcome == "pass"
    assert decide_gate(look, margin=0.1, n_judged=5).outcome == "go-on"


def test_no_margin_no_rule():
    for decide in (
        lambda: decide_gate(Look(9), margin=0.0),
        lambda: decide_effect(Look(9), effect=0),
    ):
        with pytest.raises(ValueError, match="above 0"):
            decide()


def test_the_smallest_margin_that_can_pass():
    assert smallest_margin(5) is None
    margin = smallest_margin(50)
    assert decide_gate(Look(50, 0.0, 0.0), margin=margin, is_last=True).outcome == "pass"
    below = decide_gate(Look(50, 0.0, 0.0), margin=margin - 0.001, is_last=True)
    assert below.outcome == "undecided"
    assert smallest_margin(400) < margin


def test_what_was_saved():
    from scipy import stats

    use = describe_use(decide_gate(Look(100, 0.0, 0.1), margin=0.1), 100)
    assert use.fixed_trials == math.ceil(0.1 * (2 * stats.norm.ppf(0.95) / 0.1) ** 2)
    assert use.words.startswith("100 trials used; a fixed design with the same errors needs about ")
    assert "saved" in use.words
    assert describe_use(decide_gate(Look(0), margin=0.1), 0).fixed_trials is None
    # Repeats of prompts that always pass are not worth more prompts.
    alike = decide_gate(Look(100, 0.0, 0.01), margin=0.1)
    assert alike.repeats_are_idle
    assert describe_use(alike, 500).fixed_trials == describe_use(alike, 100).fixed_trials


@pytest.mark.parametrize("df", [5, 10, 30, 200])
def test_t_from_z(df):
    from scipy import stats

    for z in (0.5, 1.645, 3.0, 5.0):
        exact = stats.t.isf(stats.norm.sf(z), df)
        assert 0.99 * exact <= _t_of_z(z, df) <= 1.1 * exact  # never too near


def test_the_last_boundary_makes_the_whole_error():
    """A random walk, looked at 400 times, and a last time with what is left."""
    rng, n_looks, information = np.random.default_rng(1), 400, 9.0
    times = np.arange(1, n_looks + 1) * information / n_looks
    walks = rng.standard_normal((20_000, n_looks)) * math.sqrt(information / n_looks)
    walks = walks.cumsum(axis=1)
    line = _line(0.03)
    crossed = (walks[:, :-1] >= line.intercept + line.slope * times[:-1]).any(axis=1)
    last = _last_boundary(line, information, ERROR)
    assert last < line.intercept + line.slope * information
    assert (crossed | (walks[:, -1] >= last)).mean() == pytest.approx(ERROR, abs=0.008)


@pytest.mark.parametrize(("loss", "wrong"), [(0.0, "fail"), (0.2, "pass")])
def test_a_look_after_each_prompt_makes_no_more_errors(loss, wrong):
    rng, n, n_wrong, n_repeats = np.random.default_rng(2), 90, 0, 300
    easy = Difficulty(0.7, 0.2)
    for _ in range(n_repeats):
        hard = easy.draw((1, n), rng)[0]
        passed = rng.random((2, n)) < (hard, easy.moved(hard, -loss))
        ones = np.ones(n, dtype=np.int64)
        for seen in range(6, n + 1, 2):
            a, b = ((arm[:seen].astype(np.int64), ones[:seen]) for arm in passed)
            decided = decide_gate(look_at_rates(a, b), margin=0.2, is_last=seen == n)
            if decided.is_decided:
                break
        n_wrong += decided.outcome == wrong
    assert n_wrong / n_repeats <= ERROR + 3 * math.sqrt(ERROR * (1 - ERROR) / n_repeats)


def test_limits_are_not_rounded_onto_the_margin():
    assert _range(make_interval(-0.09996, 0.05, 0.9, ""), 0.1) == "-9.996 to +5.000 points"
    assert _range(make_interval(-0.3, -0.0004, 0.9, ""), 0.1) == "-30.00 to -0.04 points"
    assert _range(make_interval(-0.3, 0.2, 0.9, ""), 0.1) == "-30.0 to +20.0 points"
