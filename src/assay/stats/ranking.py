"""Rank three or more runs by Bradley-Terry strength from prompt-by-prompt wins, ties and losses."""

from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.stats.distributions import Floats, as_values, two_sided_z
from assay.stats.rates import Interval, make_interval

RANKING_RESAMPLES = 1_000
_TIE = 1e-9
# Half a win either way for each pair: a run that won everything stays finite.
_PRIOR_WINS = 0.5
_NEWTON_STEPS = 100
_CHUNK_CELLS = 2_000_000
_DRAWN_PROMPTS = 2_000
# A's result against B on one prompt, in half wins; the last is "not measured in both".
_LOSS, _DRAW, _WIN, _MISSING = 0, 1, 2, 3

type Codes = NDArray[np.int8]


class Strength(msgspec.Struct, frozen=True, rename="camel"):
    """One run's place; runs of equal strength share a rank.

    Strength is in log-odds about the average run (0); `win_chance` is the chance to beat such a run
    on one prompt. Without at least two prompts there is no interval.
    """

    run: int
    rank: int
    strength: float
    interval: Interval | None
    win_chance: float


def rank_runs(
    scores: ArrayLike,
    *,
    seed: int,
    measured: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = RANKING_RESAMPLES,
) -> list[Strength]:
    """Rank runs from a table of scores, a row per prompt and a column per run; best first.

    On each prompt the higher score wins against each lower one and ties are half wins. Where
    `measured` is false, the score is ignored. Prompts are resampled for the intervals; thousands of
    prompts have a closed form that resampling would only blur.
    """
    table, known = _check_table(scores, measured)
    n_prompts, n_runs = table.shape
    outcomes = _pair_outcomes(table, known)
    wins = _win_matrices(np.ones((1, n_prompts)), outcomes, n_runs)[0] + _prior(n_runs)
    strengths = fit_strengths(wins[None])[0]
    low = high = strengths
    method = "bootstrap over prompts"
    if n_prompts > _DRAWN_PROMPTS:
        method = "cluster-robust"
        reach = two_sided_z(level) * _robust_errors(outcomes, wins, strengths)
        low, high = strengths - reach, strengths + reach
    elif n_prompts >= 2:
        draws = _resample_strengths(outcomes, n_runs, n_resamples, seed)
        low, high = np.quantile(draws, (0.5 - 0.5 * level, 0.5 + 0.5 * level), axis=0)
    ranks = 1 + (strengths[None, :] > strengths[:, None] + _TIE).sum(axis=1)
    rows = []
    for run, strength in enumerate(strengths.tolist()):
        limits = (min(low[run], strength), max(high[run], strength))
        interval = make_interval(*limits, level, method) if n_prompts >= 2 else None
        chance = float(1.0 / (1.0 + np.exp(-strength)))
        rows.append(Strength(run, int(ranks[run]), strength, interval, chance))
    return sorted(rows, key=lambda row: (row.rank, row.run))


def fit_strengths(wins: Floats) -> Floats:
    """Return maximum-likelihood strengths (sum zero) for win matrices of shape (m, runs, runs).

    wins[m, i, j] is how often i beat j. Newton's method, all matrices at once; steps are
    clipped to 1, so that lopsided tables converge too.
    """
    games = wins + wins.transpose(0, 2, 1)
    strengths = np.zeros(wins.shape[:2])
    for _ in range(_NEWTON_STEPS):
        chance = _chances(strengths)
        gradient = (wins - games * chance).sum(axis=2)
        step = np.linalg.solve(_curvature(games, chance), gradient[:, :, None])[:, :, 0]
        strengths += np.clip(step, -1.0, 1.0)
        if np.abs(step).max(initial=0.0) < 1e-10:
            break
    centred: Floats = strengths - strengths.mean(axis=1, keepdims=True)
    return centred


def _chances(strengths: Floats) -> Floats:
    chance: Floats = 1.0 / (1.0 + np.exp(strengths[..., None, :] - strengths[..., :, None]))
    return chance


def _curvature(games: Floats, chance: Floats) -> Floats:
    """Return the negative Hessian of the log-likelihood, made invertible."""
    weight = games * chance * (1.0 - chance)
    diagonal = np.arange(games.shape[-1])
    curvature = -weight
    curvature[..., diagonal, diagonal] += weight.sum(axis=-1)
    # Only differences of strengths matter; a one in each cell pins their sum to zero.
    return curvature + 1.0


def _check_table(scores: ArrayLike, measured: ArrayLike | None) -> tuple[Floats, NDArray[np.bool_]]:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        msg = "scores must be a table with a row per prompt and a column for each of >= 2 runs"
        raise ValueError(msg)
    known = np.ones(table.shape, bool) if measured is None else np.asarray(measured, dtype=bool)
    if known.shape != table.shape:
        msg = f"measured has shape {known.shape}, scores {table.shape}"
        raise ValueError(msg)
    as_values(table[known], "scores")
    return np.where(known, table, 0.0), known


def _pair_outcomes(table: Floats, known: NDArray[np.bool_]) -> Codes:
    """Return a row per prompt and a column per pair: loss, draw or win of the first run."""
    columns = []
    for i, j in combinations(range(table.shape[1]), 2):
        gap = table[:, i] - table[:, j]
        code = np.where(gap > _TIE, _WIN, np.where(gap < -_TIE, _LOSS, _DRAW))
        columns.append(np.where(known[:, i] & known[:, j], code, _MISSING).astype(np.int8))
    return np.stack(columns, axis=1)


def _win_matrices(weights: Floats, patterns: Codes, n_runs: int) -> Floats:
    """Return one win matrix per row of weights (how often each pattern of outcomes occurs)."""
    seen = patterns != _MISSING
    share = np.where(seen, 0.5 * patterns, 0.0)
    wins = np.zeros((weights.shape[0], n_runs, n_runs))
    first, second = np.triu_indices(n_runs, 1)
    wins[:, first, second] = weights @ share
    wins[:, second, first] = weights @ np.where(seen, 1.0 - share, 0.0)
    return wins


def _prior(n_runs: int) -> Floats:
    prior: Floats = _PRIOR_WINS * (1.0 - np.eye(n_runs))
    return prior


def _robust_errors(outcomes: Codes, wins: Floats, strengths: Floats) -> Floats:
    """Return standard errors by the sandwich estimator, clustered by prompt."""
    chance = _chances(strengths)
    codes, weights = _with_pseudo_prompts(outcomes, np.ones(len(outcomes)))
    pull = np.zeros((len(codes), len(strengths)))
    for pair, (i, j) in enumerate(combinations(range(len(strengths)), 2)):
        code = codes[:, pair]
        surprise = np.where(code == _MISSING, 0.0, 0.5 * code - chance[i, j])
        pull[:, i] += surprise
        pull[:, j] -= surprise
    influence = np.linalg.solve(_curvature(wins + wins.T, chance), pull.T)
    errors: Floats = np.sqrt(np.square(influence) @ weights)
    return errors


def _resample_strengths(outcomes: Codes, n_runs: int, n_resamples: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    # Few patterns of outcomes occur: drawing how often each comes up equals drawing prompts.
    seen, counts = np.unique(outcomes, axis=0, return_counts=True)
    patterns, weights = _with_pseudo_prompts(seen, counts.astype(np.float64))
    n_draws, shares = round(weights.sum()), weights / weights.sum()
    n_rows = max(1, _CHUNK_CELLS // len(shares))
    fits = []
    for start in range(0, n_resamples, n_rows):
        drawn = rng.multinomial(n_draws, shares, size=min(n_rows, n_resamples - start))
        wins = _win_matrices(drawn.astype(np.float64), patterns, n_runs)
        # The pseudo-prompts carry the prior already; this little only keeps a rare draw finite.
        fits.append(fit_strengths(wins + 0.1 * _prior(n_runs)))
    return np.concatenate(fits)


def _with_pseudo_prompts(patterns: Codes, weights: Floats) -> tuple[Codes, Floats]:
    """Add for each pair half a prompt won and half a prompt lost.

    Otherwise ten wins of ten would come back as ten of ten in each resample and claim certainty.
    """
    n_pairs = patterns.shape[1]
    lone = np.full((2 * n_pairs, n_pairs), _MISSING, dtype=np.int8)
    pairs = np.arange(n_pairs)
    lone[pairs, pairs], lone[n_pairs + pairs, pairs] = _WIN, _LOSS
    halves = np.full(2 * n_pairs, _PRIOR_WINS)
    return np.concatenate((patterns, lone)), np.concatenate((weights, halves))
