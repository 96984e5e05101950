"""Describe each run by itself: the seed's sections with intervals; null where nothing is known."""

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from assay.compare.columns import Floats
from assay.compare.head_to_head import pass_k
from assay.compare.runs import Run
from assay.stats.distributions import summarize_values
from assay.stats.means import N_RESAMPLES, MeanEstimate, estimate_mean, estimate_mean_score
from assay.stats.planning import split_rate_variance
from assay.stats.rates import Interval, rate_interval

_BINS = ("0.0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1.0")
_EDGES = (0.2, 0.4, 0.6, 0.8)
_LATENCY = ("p50", "p90", "p99", "mean", "min", "max")
_MOST_FLAKY = 10


def describe_quality(run: Run) -> dict[str, Any]:
    """Scores and passes of single trials; null where nothing was measured."""
    scores = known(run.score)
    rate, interval = rate_interval(run.n_passed, run.n_measured, clusters=run.clusters)
    n_passed = int(np.nansum(run.passed))
    per_prompt = _mean_score(run)
    return {
        "type": "run",
        "avgScore": per_prompt.mean,
        "passRate": rate,
        "passCount": n_passed,
        "failCount": int(run.n_measured.sum()) - n_passed,
        "nMeasured": int(run.n_measured.sum()),
        "scoreDistribution": dict(zip(_BINS, _binned(scores), strict=True)),
        "confidenceIntervals": _present(
            avgScore=_limits(per_prompt.interval),
            passRate=_limits(interval),
        ),
    }


def describe_trial_quality(run: Run) -> dict[str, Any] | None:
    """Scores and passes of all trials; None when no trial was graded.

    Averages are over prompts, however many trials each has, as are their intervals.
    """
    summary = summarize_values(known(run.score))
    rate, interval = rate_interval(run.n_passed, run.n_measured, clusters=run.clusters)
    if summary is None and rate is None:
        return None
    per_prompt = _mean_score(run)
    return {
        "type": "trial",
        "passRate": rate,
        "avgScore": per_prompt.mean,
        "medianScore": summary.p50 if summary else None,
        "p25Score": summary.p25 if summary else None,
        "p75Score": summary.p75 if summary else None,
        "confidenceIntervals": _present(
            avgScore=_limits(per_prompt.interval), passRate=_limits(interval)
        ),
    }


def describe_performance(run: Run, seed: int, n_resamples: int = N_RESAMPLES) -> dict[str, Any]:
    """How long trials took, and where known what they cost."""
    durations = known(run.duration_ms)
    section: dict[str, Any] = {"latency": _latency(durations)}
    if run.kind == "capture" and (first := known(run.first_response_ms)).size:
        section["firstResponse"] = _latency(first)
    section["totalDuration"] = float(durations.sum())
    # The interval is over prompts: trials of one prompt are not independent.
    per_prompt = known(run.mean_of(run.duration_ms))
    section["confidenceIntervals"] = _present(
        latencyMean=_limits(estimate_mean(per_prompt, seed=seed, n_resamples=n_resamples).interval)
    )
    for name, column in (("costUsd", run.cost_usd), ("tokens", run.tokens)):
        if (values := known(column)).size:
            section[name] = {"total": float(values.sum()), "mean": mean(values), "n": values.size}
    return section


def describe_reliability(run: Run) -> dict[str, Any]:
    """How surely single trials come to an end."""
    return {"type": "run"} | describe_completion(run)


def describe_completion(run: Run) -> dict[str, Any]:
    """How often tools failed, time ran out, and trials completed."""
    n = run.health.n_trials or 1
    errors, timeouts = int(run.tool_error.sum()), int(run.timed_out.sum())
    return {
        "toolErrors": errors,
        "toolErrorRate": errors / n,
        "timeouts": timeouts,
        "timeoutRate": timeouts / n,
        "completionRate": float(run.complete.sum()) / n if run.health.n_trials else 1.0,
    }


def describe_trajectories(run: Run) -> dict[str, Any]:
    """How much of the agents' work can be seen."""
    derived = "minimal" if not run.n_steps.any() else "messages-only"
    return {"richness": run.richness or derived, "avgStepCount": mean(run.n_steps) or 0}


def describe_capability(run: Run) -> dict[str, Any]:
    """Solves at least once: the unbiased numbers for every k, and the seed's passAtK."""
    at_k = known(pass_k(run)[0])
    last = run.per_k[-1].pass_at_k_interval if run.per_k else None
    numbers = _seed_numbers(at_k, "PassAtK", last)
    return numbers | {"perK": [msgspec.to_builtins(row) for row in run.per_k]}


def describe_trial_reliability(run: Run) -> dict[str, Any]:
    """Solves every time: the seed's passExpK."""
    last = run.per_k[-1].pass_exp_k_interval if run.per_k else None
    return {"type": "trial"} | _seed_numbers(known(pass_k(run)[1]), "PassExpK", last)


def describe_flakiness(run: Run) -> dict[str, Any]:
    """The gap between passAtK and passExpK, and the prompts where it is widest."""
    at_k, exp_k = pass_k(run)
    flaky = np.maximum(0.0, at_k - exp_k)
    seen = known(flaky)
    # Worst first; equal ones stay in the order of the file.
    order = np.argsort(-np.nan_to_num(flaky), kind="stable")[:_MOST_FLAKY]
    summary = summarize_values(seen)
    return {
        "avgFlakiness": mean(seen),
        "medianFlakiness": summary.p50 if summary else None,
        "flakyPromptCount": int((seen > 0).sum()),
        "topFlakyPrompts": [
            {"id": run.ids[i], "flakiness": float(flaky[i])} for i in order if flaky[i] > 0
        ],
    }


def describe_variance(run: Run) -> dict[str, Any]:
    """Whether more prompts or more trials would make the numbers more certain."""
    parts: dict[str, Any] = msgspec.to_builtins(split_rate_variance(run.n_passed, run.n_measured))
    return parts


def describe_categories(run: Run) -> dict[str, Any]:
    """Pass rate of each category, with its interval."""
    section = {}
    for name, number in sorted(
        zip(run.category_names, range(len(run.category_names)), strict=True)
    ):
        chosen = run.categories == number
        clusters = None if run.clusters is None else run.clusters[chosen]
        rate, interval = rate_interval(
            run.n_passed[chosen], run.n_measured[chosen], clusters=clusters
        )
        section[name] = {
            "n": int(chosen.sum()),
            "nMeasured": int(run.n_measured[chosen].sum()),
            "passRate": rate,
            "interval": _limits(interval),
        }
    return section


def _mean_score(run: Run) -> MeanEstimate:
    scores = run.mean_of(run.score)
    seen = ~np.isnan(scores)
    clusters = None if run.clusters is None else run.clusters[seen]
    return estimate_mean_score(scores[seen], clusters=clusters)


def known(column: Floats) -> Floats:
    """Return the values that are not NaN."""
    values: Floats = column[~np.isnan(column)]
    return values


def mean(values: Floats) -> float | None:
    """Return the mean, or None of no values."""
    return float(values.mean()) if values.size else None


def _seed_numbers(values: Floats, name: str, unbiased: Interval | None) -> dict[str, Any]:
    """Describe the seed's numbers; unbiased is the interval of the largest k.

    The seed's formula is biased, and no interval around it would hold the truth: so the unbiased
    one is given, widened to the number that it stands beside.
    """
    summary, average = summarize_values(values), mean(values)
    limits = _limits(unbiased)
    if limits is not None and average is not None:
        limits = [min(limits[0], average), max(limits[1], average)]
    return {
        f"avg{name}": average,
        f"median{name}": summary.p50 if summary else None,
        f"p25{name}": summary.p25 if summary else None,
        f"p75{name}": summary.p75 if summary else None,
        "formula": "seed formula",
        "confidenceIntervals": _present(**{f"avg{name}": limits}),
    }


def _binned(scores: Floats) -> list[int]:
    # A score on an edge belongs to the bin above it; 1.0 to the last.
    below = [0, *(int((scores < edge).sum()) for edge in _EDGES), scores.size]
    return [after - before for before, after in pairwise(below)]


def _latency(values: Floats) -> dict[str, float] | None:
    summary = summarize_values(values)
    return None if summary is None else {name: getattr(summary, name) for name in _LATENCY}


def _limits(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _present(**values: list[float] | None) -> dict[str, list[float]]:
    return {name: value for name, value in values.items() if value is not None}
