"""Drift over builds: found where it is, rarely where it is not."""

import numpy as np
import pytest

from assay.stats.distributions import f_tail
from assay.stats.drift import measure_drift
from assay.stats.planning import Difficulty


def draw(rng, n, effects, k=5, rate=0.8, icc=0.5):
    easy = Difficulty(rate, icc).draw((1, n), rng)[0]
    chances = np.clip(easy[:, None] * (1.0 + np.array(effects) / rate), 0.0, 1.0)
    measured = np.full(chances.shape, k)
    return rng.binomial(measured, chances), measured


def found(effects, n=50, repeats=200, **given):
    rng = np.random.default_rng(7)
    return [measure_drift(*draw(rng, n, effects, **given)) for _ in range(repeats)]


@pytest.mark.parametrize(("rate", "icc", "k"), [(0.8, 0.5, 5), (0.95, 0.2, 1), (0.5, 0.0, 1)])
def test_builds_that_are_alike_seldom_drift(rate, icc, k):
    share = np.mean([d.found for d in found([0.0] * 10, rate=rate, icc=icc, k=k)])
    assert share <= 0.01 + 3 * (0.01 * 0.99 / 200) ** 0.5


def test_a_steady_fall_is_found_and_measured():
    drifts = found(np.linspace(0.0, -0.12, 10))
    assert np.mean([d.found for d in drifts]) > 0.85
    assert np.mean([d.trend for d in drifts]) == pytest.approx(-0.12, abs=0.01)


@pytest.mark.parametrize(("n_builds", "sd"), [(3, 0.02), (3, 0.05), (10, 0.03), (10, 0.05)])
def test_builds_that_vary_are_noise_and_no_drift(n_builds, sd):
    rng, difficulty, drifts = np.random.default_rng(41), Difficulty(0.8, 0.5), []
    for easy in difficulty.draw((200, 50), rng):
        effects = rng.normal(0.0, sd, n_builds)
        chances = np.stack([difficulty.moved(easy, effect) for effect in effects], axis=1)
        drifts.append(measure_drift(rng.binomial(5, chances), np.full(chances.shape, 5)))
    assert np.mean([d.found for d in drifts]) <= 0.1
    assert np.mean([d.noise.variance for d in drifts]) == pytest.approx(sd**2, rel=0.3, abs=1e-4)


def test_two_builds_do_not_tell_how_builds_vary():
    assert measure_drift(*draw(np.random.default_rng(1), 50, [0.0, 0.1])).noise is None


def test_one_odd_build_is_found_and_named():
    drifts = found(np.where(np.arange(8) == 5, -0.15, 0.0))
    seen = [d for d in drifts if d.found]
    assert len(seen) > 0.8 * len(drifts)
    assert np.mean([d.outlier == 5 for d in seen]) > 0.9


def test_a_hard_prompt_that_came_later_is_no_drift():
    rng = np.random.default_rng(1)
    passes, measured = draw(rng, 40, [0.0] * 6, rate=0.95, icc=0.1)
    passes[20:], measured[20:, :3] = rng.binomial(measured[20:], 0.1), 0
    passes[20:, :3] = 0
    drift = measure_drift(passes, measured)
    assert abs(drift.trend) < 0.15
    assert not drift.found


@pytest.mark.parametrize("shape", [(50, 1), (5, 10), (0, 4)])
def test_too_little_is_not_tested(shape):
    drift = measure_drift(np.ones(shape, dtype=int), np.ones(shape, dtype=int))
    assert (drift.trend_p, drift.heterogeneity_p, drift.found) == (None, None, False)


def test_all_the_same_is_no_drift():
    drift = measure_drift(np.full((20, 5), 3), np.full((20, 5), 3))
    assert drift.trend_p == 1.0
    assert not drift.found


def test_f_tail_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    for value, above, below in ((0.5, 3, 20), (2.5, 7, 43), (9.0, 1, 5), (1.0, 10, 10)):
        assert f_tail(value, above, below) == pytest.approx(stats.f.sf(value, above, below))
    assert f_tail(0.0, 3, 4) == 1.0
