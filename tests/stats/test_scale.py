"""100 000 prompts of five trials: everything stays quick and small."""

import time
import tracemalloc

import numpy as np
import pytest

from assay.stats.means import estimate_mean
from assay.stats.paired import compare_amounts, compare_rates, compare_scores
from assay.stats.passk import average_pass_k, resampled_pass_at_k
from assay.stats.planning import split_rate_variance
from assay.stats.ranking import rank_runs

N = 100_000
rng = np.random.default_rng(1)
k = np.full(N, 5)
a, b = rng.binomial(5, 0.7, N), rng.binomial(5, 0.7, N)
x, y = rng.lognormal(size=N), rng.lognormal(size=N)


@pytest.mark.parametrize(
    "work",
    [
        lambda: compare_rates((a, k), (b, k), seed=1),
        lambda: compare_scores(x / (1 + x), y / (1 + y), seed=1),
        lambda: compare_amounts(x, y, seed=1),
        lambda: estimate_mean(x, seed=1),
        lambda: average_pass_k(a, k),
        lambda: resampled_pass_at_k(a, k),
        lambda: split_rate_variance(a, k),
        lambda: rank_runs(np.stack((x, y, x + y, x * y), axis=1), seed=1),
        lambda: estimate_mean(x[:1000], seed=1),
    ],
    ids=["rates", "scores", "amounts", "mean", "pass-k", "resampled", "variance", "ranking", "bca"],
)
def test_large_runs(work):
    start = time.process_time()
    work()
    assert time.process_time() - start < 2.0
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
