"""Rank runs prompt by prompt: the seed's weighted sum, a statistic, or a user's own judgement."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from assay.compare.columns import Floats, Run
from assay.stats.passk import resampled_pass_at_k

_CAPTURE_WEIGHTS = {
    "COMPARE_QUALITY": 0.5,
    "COMPARE_LATENCY": 0.3,
    "COMPARE_RELIABILITY": 0.2,
}
_TRIALS_WEIGHTS = {
    "COMPARE_CAPABILITY": 0.4,
    "COMPARE_RELIABILITY": 0.4,
    "COMPARE_CONSISTENCY": 0.2,
}


class Weights(NamedTuple):
    """Three weights in the order of their formula, and what was wrong with the environment."""

    values: tuple[float, float, float]
    warnings: list[str]


def read_weights(env: Mapping[str, str], kind: str) -> Weights:
    """Take weights from the environment; what is no number of at least 0 is not taken."""
    defaults = _TRIALS_WEIGHTS if kind == "trials" else _CAPTURE_WEIGHTS
    values, warnings = [], []
    for name, default in defaults.items():
        value = _number(env.get(name))
        if value is None and env.get(name):
            warnings.append(f"{name}={env[name]!r} is no weight; {default} is used")
        values.append(default if value is None else value)
    return Weights((values[0], values[1], values[2]), warnings)


def weigh(run: Run, weights: tuple[float, float, float]) -> Floats:
    """Give the seed's total of each prompt; NaN where it was not measured."""
    if run.kind == "trials":
        at_k, exp_k = pass_k(run)
        flaky = np.maximum(0.0, at_k - exp_k)
        return at_k * weights[0] + exp_k * weights[1] + (1.0 - flaky) * weights[2]
    score = run.mean_of(run.score)
    length_ms = run.mean_of(run.duration_ms)
    length_ms = np.where(np.isnan(length_ms), 10_000.0, length_ms)
    clean = 1.0 - run.mean_of(run.tool_error)
    return score * weights[0] + (1.0 / (1.0 + length_ms / 1000.0)) * weights[1] + clean * weights[2]


def rank_statistically(run: Run) -> Floats:
    """Give the score of each prompt, or for trials the resampled median of pass@k."""
    if run.kind != "trials":
        return run.mean_of(run.score)
    totals = np.full(len(run.ids), np.nan)
    seen = run.n_measured > 0
    if seen.any():
        totals[seen] = resampled_pass_at_k(run.n_passed[seen], run.n_measured[seen])[0]
    return totals


def pass_k(run: Run) -> tuple[Floats, Floats]:
    """Give the seed's passAtK and passExpK: as the rows have them, else from their trials."""
    n, c = run.n_measured, run.n_passed
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = c / n
        at_k = np.where(np.isnan(run.pass_at_k), 1.0 - (1.0 - rate) ** n, run.pass_at_k)
        exp_k = np.where(np.isnan(run.pass_exp_k), rate**n, run.pass_exp_k)
    return np.where(n > 0, at_k, np.nan), np.where(n > 0, exp_k, np.nan)


def _number(text: str | None) -> float | None:
    if not text or "_" in text or not text.isascii():  # numbers to Python, to nobody else
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
