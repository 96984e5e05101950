"""The first page: comparison, health and charts of the chosen runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay import __version__
from assay.compare.columns import Floats
from assay.compare.report import CompareOptions, compare
from assay.report.sentence import effects_section, word_verdicts
from assay.stats.means import N_RESAMPLES, estimate_mean
from assay.viewer.index import Index
from assay.viewer.prompts import Prompts


@dataclass(frozen=True)
class OpenRun:
    """A run with the index of its file."""

    label: str
    index: Index

    @property
    def path(self) -> Path:
        return self.index.path


def overview(title: str, shown: Sequence[OpenRun], options: CompareOptions) -> dict[str, Any]:
    """Describe the runs; captures and trials cannot be compared, so each kind is a group."""
    categories = {name for run in shown for name in run.index.meta.facts.categories}
    causes = {name for run in shown for name in run.index.meta.facts.causes if name}
    return {
        "title": title,
        "made": f"Made by assay {__version__}.",
        "runs": [_about(run) for run in shown],
        "categories": sorted(categories),
        "causes": sorted(causes),
        "groups": [
            _group(group, options)
            for kind in ("capture", "trials")
            if (group := [r for r in shown if r.index.kind == kind and r.index.meta.n_trials])
        ],
    }


def _about(run: OpenRun) -> dict[str, Any]:
    meta = run.index.meta
    return {
        "label": run.label,
        "kind": run.index.kind,
        "file": run.path.name,
        "trials": meta.n_trials,
        "size": meta.size,
        "nBad": meta.n_bad,
        "bad": meta.bad,
        "tools": list(meta.facts.tools)[:_MOST_NAMED_TOOLS],
    }


def _group(shown: list[OpenRun], options: CompareOptions) -> dict[str, Any]:
    comparison = compare([run.index.run(run.label) for run in shown], options)
    if options.growing and comparison.pairs and not options.decisions:
        comparison.judge_at_any_look(options.margin)
    sections = word_verdicts(comparison.sections)
    if options.effects and all(health["healthy"] for health in sections["health"].values()):
        sections["effects"] = effects_section(sections, msgspec.to_builtins(options.effects))
    indexes = [run.index for run in shown]
    labels = [run.label for run in shown]
    return {
        "kind": shown[0].index.kind,
        "sections": sections,
        "charts": charts(
            labels, indexes, Prompts(indexes), options.seed, options.n_resamples or N_RESAMPLES
        ),
    }


_MOST_NAMED_TOOLS = 50
_BINS = 40
_MOST_DOTS = 1000
_MOST_TOOLS = 40
_DAY_MS = 86_400_000.0


def charts(
    labels: Sequence[str],
    indexes: Sequence[Index],
    prompts: Prompts,
    seed: int,
    n_resamples: int = N_RESAMPLES,
) -> dict[str, Any]:
    """Return the data of all charts that show single trials, small enough to send."""
    named = list(zip(labels, indexes, strict=True))
    return {
        "latency": _latency(labels, indexes),
        "causes": {label: _causes(index) for label, index in named},
        "tools": {label: _tools(index) for label, index in named},
        "steps": {
            label: float(index.columns.trials["n_steps"].mean()) if index.meta.n_trials else None
            for label, index in named
        },
        "cost": {
            label: _cost(index, prompts.means("cost_usd")[:, run], seed, n_resamples)
            for run, (label, index) in enumerate(named)
        },
        "differences": _differences(labels, indexes, prompts),
    }


def _latency(labels: Sequence[str], indexes: Sequence[Index]) -> dict[str, Any]:
    """Count trials in bins that all runs share, of equal width on a logarithmic axis."""
    columns = [index.columns.trials["duration_ms"].astype(float) for index in indexes]
    times = [column[np.isfinite(column) & (column > 0)] for column in columns]
    seen = [column for column in times if column.size]
    low = max(1.0, min((column.min() for column in seen), default=1.0))
    high = min(30 * _DAY_MS, max((column.max() for column in seen), default=10.0))
    # A little beyond the longest, and of some width even where all took equally long.
    edges = np.geomspace(low, max(high * 1.001, low * 1.5), _BINS + 1)
    runs = {}
    for label, column in zip(labels, times, strict=True):
        counts, _ = np.histogram(column, edges)
        p50, p90 = np.percentile(column, (50, 90)).tolist() if column.size else (None, None)
        runs[label] = {"counts": counts.tolist(), "p50": p50, "p90": p90, "n_trials": column.size}
    return {"edges": edges.tolist(), "runs": runs}


def _cost(index: Index, per_prompt: Floats, seed: int, n_resamples: int) -> dict[str, Any] | None:
    """Return the mean cost of a trial with its interval, and of how many trials it is known."""
    costs = index.columns.trials["cost_usd"]
    n_known = int((~np.isnan(costs)).sum())
    if not n_known:
        return None
    known = per_prompt[~np.isnan(per_prompt)]
    estimate = estimate_mean(known, seed=seed, n_resamples=n_resamples)
    ends = estimate.interval
    return {
        "mean": estimate.mean,
        "interval": [ends.low, ends.high] if ends else None,
        "known": n_known,
        "trials": len(costs),
    }


def _causes(index: Index) -> dict[str, int]:
    names = index.meta.facts.causes
    counts = np.bincount(index.columns.trials["cause"], minlength=len(names)).tolist()
    return {name: n for name, n in zip(names, counts, strict=True) if name and n}


def _tools(index: Index) -> dict[str, list[int]]:
    ranked = sorted(index.meta.facts.tools.items(), key=lambda item: -item[1][0])
    return dict(ranked[:_MOST_TOOLS])


def _differences(
    labels: Sequence[str], indexes: Sequence[Index], prompts: Prompts
) -> list[dict[str, Any]]:
    """Return for every two runs the differences per prompt, sorted and evenly thinned out."""
    if len(labels) < 2:
        return []
    scores, rates = prompts.means("score"), prompts.rates
    charts = []
    # Of many runs only the pairs with the first, which is the baseline.
    pairs = [(a, b) for a, b in combinations(range(len(labels)), 2) if a == 0 or len(labels) <= 3]
    for a, b in pairs:
        by_score = _is_graded(scores[:, a]) and _is_graded(scores[:, b])
        values = scores if by_score else rates
        change = values[:, b] - values[:, a]
        known = np.flatnonzero(~np.isnan(change))
        order = known[np.argsort(change[known], kind="stable")]
        n = len(order)
        if n > _MOST_DOTS:
            order = order[np.linspace(0, n - 1, _MOST_DOTS).astype(int)]
        charts.append(
            {
                "runA": labels[a],
                "runB": labels[b],
                "what": "score" if by_score else "pass rate",
                "n": n,
                "shown": len(order),
                "diffs": [[prompts.row(int(i))["id"], round(float(change[i]), 6)] for i in order],
            }
        )
    return charts


def _is_graded(column: Floats) -> bool:
    return bool((~np.isnan(column)).any())
