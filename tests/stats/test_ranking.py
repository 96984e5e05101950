import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.stats import ranking
from assay.stats.ranking import fit_strengths, rank_runs


def plain_likelihood_fit(wins):
    from scipy.optimize import minimize

    n = len(wins)

    def loss(free):
        s = np.append(free, 0.0)
        return (wins * np.logaddexp(0.0, s[None, :] - s[:, None])).sum()

    s = np.append(minimize(loss, np.zeros(n - 1), tol=1e-12).x, 0.0)
    return s - s.mean()


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_strengths_are_the_maximum_likelihood(n_runs, seed):
    wins = np.random.default_rng(seed).integers(1, 30, (n_runs, n_runs)).astype(float)
    np.fill_diagonal(wins, 0.0)
    np.testing.assert_allclose(fit_strengths(wins[None])[0], plain_likelihood_fit(wins), atol=1e-4)


def test_two_runs_have_the_closed_form():
    strengths = fit_strengths(np.array([[[0.0, 30.0], [10.0, 0.0]]]))[0]
    assert strengths[0] - strengths[1] == pytest.approx(np.log(3))


def test_lopsided_tables_converge():
    strengths = fit_strengths(np.array([[[0.0, 1e6], [0.5, 0.0]]]))[0]
    assert strengths[0] - strengths[1] == pytest.approx(np.log(2e6))


def test_a_run_that_wins_everything_stays_finite_and_uncertain():
    rows = rank_runs(np.tile([0.0, 0.5, 1.0], (10, 1)), seed=1)
    assert [row.run for row in rows] == [2, 1, 0]
    assert [row.rank for row in rows] == [1, 2, 3]
    assert all(np.isfinite(row.strength) for row in rows)
    assert all(row.interval.high - row.interval.low > 0.3 for row in rows)


@pytest.mark.parametrize("n_prompts", [20, 5_000])
def test_identical_runs_share_the_first_rank(n_prompts):
    rows = rank_runs(np.ones((n_prompts, 3)), seed=1)
    assert [row.rank for row in rows] == [1, 1, 1]
    assert all(row.strength == pytest.approx(0.0) for row in rows)
    assert all(row.interval.low < 0.0 < row.interval.high for row in rows)
    assert rows[0].win_chance == pytest.approx(0.5)


def test_ties_are_half_wins():
    halves = rank_runs([[1.0, 1.0], [1.0, 1.0]] * 10, seed=1)
    evens = rank_runs([[1.0, 0.0], [0.0, 1.0]] * 10, seed=1)
    assert halves[0].strength == pytest.approx(evens[0].strength)


def test_unmeasured_cells_are_no_losses():
    scores = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]] * 10)
    measured = np.ones_like(scores, dtype=bool)
    measured[::2, 1] = False
    free = {row.run: row.strength for row in rank_runs(scores, seed=1)}
    held = {row.run: row.strength for row in rank_runs(scores, seed=1, measured=measured)}
    assert held[1] > free[1] + 0.5


def test_closed_form_continues_the_bootstrap(monkeypatch):
    scores = np.random.default_rng(1).normal((0.0, 0.2, 0.5), 1.0, (1500, 3))
    drawn = rank_runs(scores, seed=1, n_resamples=4000)
    monkeypatch.setattr(ranking, "_DRAWN_PROMPTS", 100)
    closed = rank_runs(scores, seed=1)
    for one, other in zip(drawn, closed, strict=True):
        assert one.interval.low == pytest.approx(other.interval.low, abs=0.01)
        assert one.interval.high == pytest.approx(other.interval.high, abs=0.01)


def test_intervals_cover():
    rng = np.random.default_rng(2)
    truth = np.array([-0.5, 0.0, 0.5])
    held = []
    for _ in range(150):
        # Scores with Gumbel noise give exactly Bradley-Terry chances.
        rows = rank_runs(rng.gumbel(truth, 1.0, (40, 3)), seed=1, n_resamples=300)
        held += [row.interval.contains(truth[row.run]) for row in rows]
    assert 0.90 <= np.mean(held) <= 0.985


def test_the_same_seed_gives_the_same_ranking():
    scores = np.random.default_rng(3).random((30, 4))
    assert rank_runs(scores, seed=5) == rank_runs(scores, seed=5)
    assert rank_runs(scores, seed=5) != rank_runs(scores, seed=6)


def test_one_prompt_or_none_has_no_interval():
    assert rank_runs([[1.0, 0.0, 0.5]], seed=1)[0].interval is None
    assert [row.rank for row in rank_runs(np.zeros((0, 3)), seed=1)] == [1, 1, 1]


def test_bad_tables_are_refused():
    with pytest.raises(ValueError, match="row per prompt"):
        rank_runs([1.0, 2.0], seed=1)
    with pytest.raises(ValueError, match="NaN"):
        rank_runs([[1.0, np.nan]], seed=1)
    with pytest.raises(ValueError, match="shape"):
        rank_runs([[1.0, 0.0]], seed=1, measured=[[True]])
    assert len(rank_runs([[1.0, np.nan]] * 3, seed=1, measured=[[True, False]] * 3)) == 2
