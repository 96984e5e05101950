import numpy as np
import pytest

from assay.stats import means as bootstrap
from assay.stats.means import bca_mean_interval, bca_ratio_interval


@pytest.mark.parametrize("seed", range(4))
def test_bca_limits_of_the_same_resamples_are_scipys(seed):
    # Rounded, so that many resamples tie with the mean of the sample.
    import scipy.stats

    sample = np.random.default_rng(seed).lognormal(0, 0.8, 25).round()
    theirs = scipy.stats.bootstrap((sample,), np.mean, n_resamples=3_000, rng=2)
    ours = bootstrap._bca_limits(
        theirs.bootstrap_distribution,
        sample.mean(),
        bootstrap._acceleration(sample),
        bootstrap._reach(25, 0.95, small_sample=False),
    )
    expected = theirs.confidence_interval
    assert ours == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_bca_of_a_mean_is_scipys_up_to_chance():
    import scipy.stats

    sample = np.random.default_rng(7).lognormal(0, 0.8, 40)
    ours = bca_mean_interval(sample, seed=1, n_resamples=20_000, small_sample=False)
    theirs = scipy.stats.bootstrap((sample,), np.mean, n_resamples=20_000, rng=2)
    expected = theirs.confidence_interval
    width = expected.high - expected.low
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=0.06 * width)


def test_bca_of_a_ratio_is_scipys():
    import scipy.stats

    rng = np.random.default_rng(5)
    bottom = rng.lognormal(1, 0.4, 60)
    top = bottom * rng.lognormal(0.1, 0.3, 60)
    theirs = scipy.stats.bootstrap(
        (top, bottom),
        lambda x, y, axis: x.mean(axis) / y.mean(axis),
        paired=True,
        n_resamples=9_999,
        vectorized=True,
        rng=2,
    ).confidence_interval
    ours = bca_ratio_interval(top, bottom, seed=1, n_resamples=9_999)
    width = theirs.high - theirs.low
    # Ours is widened for the small sample by about 2 %.
    assert ours.low == pytest.approx(theirs.low, abs=0.06 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.06 * width)


def test_small_samples_get_a_wider_interval():
    sample = np.random.default_rng(1).normal(size=10)
    plain = bca_mean_interval(sample, seed=1, small_sample=False)
    wide = bca_mean_interval(sample, seed=1)
    ratio = (wide.high - wide.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(np.sqrt(10 / 9) * 2.262 / 1.96, abs=0.12)


def test_closed_form_continues_the_bootstrap():
    sample = np.random.default_rng(2).lognormal(0, 0.7, 1_000)
    drawn = bca_mean_interval(sample, seed=1, n_resamples=40_000)
    closed = bootstrap._closed_form_limits(sample, bootstrap._reach(1_000, 0.95, small_sample=True))
    width = drawn.high - drawn.low
    assert closed == pytest.approx((drawn.low, drawn.high), abs=0.03 * width)
    # A long tail, against its own formula: both limits move to the right.
    tail = np.random.default_rng(2).lognormal(0, 1.5, 1_000)
    low, high = bootstrap._closed_form_limits(tail, 1.96)
    drawn = bca_mean_interval(tail, seed=1, n_resamples=40_000, small_sample=False)
    width = drawn.high - drawn.low
    assert (low, high) == pytest.approx((drawn.low, drawn.high), abs=0.02 * width)
    long = np.concatenate((sample, sample))
    assert bca_mean_interval(long, seed=1).method == "BCa, closed form"
    assert bca_ratio_interval(long * 2, long + 1, seed=1).method == "BCa, closed form"


def test_chunks_do_not_change_the_distribution(monkeypatch):
    sample = np.random.default_rng(3).normal(size=50)
    whole = bca_mean_interval(sample, seed=1)
    monkeypatch.setattr(bootstrap, "_CHUNK_DRAWS", 1_000)
    pieces = bca_mean_interval(sample, seed=1)
    assert pieces.low == pytest.approx(whole.low, abs=0.05)
    assert pieces.high == pytest.approx(whole.high, abs=0.05)


def test_every_resample_is_drawn_from_the_sample(monkeypatch):
    """Also the first one, and those of the last chunk, which is shorter than the others."""
    monkeypatch.setattr(bootstrap, "_CHUNK_DRAWS", 12)
    sample = np.linspace(10.0, 11.0, 4)[:, None]
    drawn = bootstrap._resample_means(sample, 8, np.random.default_rng(1))
    assert np.all((drawn >= 10.0) & (drawn <= 11.0))


def test_the_seed_decides():
    sample = np.random.default_rng(4).normal(size=30)
    assert bca_mean_interval(sample, seed=1) == bca_mean_interval(sample, seed=1)
    assert bca_mean_interval(sample, seed=1) != bca_mean_interval(sample, seed=2)


@pytest.mark.parametrize("sample", [[], [1.0], [2.0, 2.0, 2.0]])
def test_no_spread_no_interval(sample):
    assert bca_mean_interval(sample, seed=1) is None


def test_ratios_that_cannot_be_told():
    assert bca_ratio_interval([1.0], [1.0], seed=1) is None
    assert bca_ratio_interval([1.0, 2.0], [0.0, 0.0], seed=1) is None
    assert bca_ratio_interval([2.0, 4.0], [1.0, 2.0], seed=1) is None
    with pytest.raises(ValueError, match="same length"):
        bca_ratio_interval([1.0], [1.0, 2.0], seed=1)
