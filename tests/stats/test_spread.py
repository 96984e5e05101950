import numpy as np
import pytest

from assay.stats import planning as spread
from assay.stats.planning import split_rate_variance


def test_spread_of_a_pilot_pair():
    d = np.array([0.2, 0.4, -0.2, 0.0])
    seen = d.var(ddof=1)
    assert spread.measure_spread(d) == spread.PairedSpread(seen, 0.0)
    split = spread.measure_spread(d, within=0.1, n_trials=5)
    assert split.between == pytest.approx(seen - 0.02)
    assert split.variance(5) == pytest.approx(seen)
    assert spread.measure_spread(d, within=10.0, n_trials=5).between == 0.0


def test_spread_of_one_run_and_of_assumptions():
    rng = np.random.default_rng(1)
    split = split_rate_variance(rng.binomial(5, rng.beta(3, 2, 3000)), np.full(3000, 5))
    one = spread.spread_from_one_run(split, prompt_correlation=0.5)
    assumed = spread.assume_spread(0.6, 0.6, icc=1 / 6, prompt_correlation=0.5)
    assert one.between == pytest.approx(assumed.between, abs=0.01)
    assert one.within == pytest.approx(assumed.within, abs=0.01)
    single = spread.spread_from_one_run(
        split_rate_variance([1, 0, 1, 0], [1] * 4), icc=1.0, prompt_correlation=0.0
    )
    assert single.variance(1) == pytest.approx(2 / 3)


def test_bad_pilots_are_refused():
    with pytest.raises(ValueError, match="two prompts"):
        spread.measure_spread([0.1])
    with pytest.raises(ValueError, match="two prompts"):
        spread.spread_from_one_run(split_rate_variance([1], [1]))
    with pytest.raises(ValueError, match="between 0 and 1"):
        spread.assume_spread(0.5, 1.5)
