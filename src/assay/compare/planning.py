"""Plan a comparison: how many prompts and trials a difference needs, and what that costs."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from assay.compare.describe import known, mean
from assay.compare.pairs import align
from assay.compare.runs import Run
from assay.errors import InputError
from assay.stats.planning import (
    PairedSpread,
    assume_spread,
    measure_spread,
    plan_trials,
    power_at,
    split_rate_variance,
    spread_from_one_run,
)
from assay.stats.significance import fewest_prompts
from assay.stats.verdict import GateName, GateReach, narrowest_margin, reach_of_gate

# A sum such as 0.7 + 0.3 may miss 1 by a rounding error.
_ROUNDING = 1e-9


class Rates(msgspec.Struct, frozen=True):
    """What one trial costs, from a pilot."""

    cost_usd: float | None = None
    seconds: float | None = None


def spread_of_pilot(runs: Sequence[Run]) -> tuple[PairedSpread, str]:
    """Return the spread seen in one or two pilot runs, and where it comes from."""
    if len(runs) == 1:
        run = runs[0]
        split = split_rate_variance(run.n_passed, run.n_measured)
        if not split.total:
            msg = f"{run.label}: the pilot shows no variation (few graded prompts, or all the same)"
            raise InputError(msg, hint="use a larger pilot, or plan from an assumed --rate")
        return spread_from_one_run(split), "one pilot run; correlation of 0.5 between runs assumed"
    aligned = align(runs[:2])
    _, in_a, in_b = aligned.both(0, 1)
    a, b = runs[0], runs[1]
    measured = (a.n_measured[in_a] > 0) & (b.n_measured[in_b] > 0)
    in_a, in_b = in_a[measured], in_b[measured]
    if len(in_a) < 2:
        msg = f"{a.path} and {b.path} share fewer than two graded prompts"
        raise InputError(msg, hint="grade both, or plan from an assumed --rate")
    rate_a, rate_b = a.n_passed[in_a] / a.n_measured[in_a], b.n_passed[in_b] / b.n_measured[in_b]
    if np.array_equal(rate_a, rate_b):
        msg = "the two pilot runs differ on no prompt, so they show no variation"
        raise InputError(msg, hint="plan from one of them, or from an assumed --rate")
    splits = [split_rate_variance(r.n_passed, r.n_measured) for r in (a, b)]
    parts = [split.within for split in splits]
    within = None if None in parts else float(sum(part or 0.0 for part in parts))
    per_prompt = float(np.mean([a.n_measured[in_a].mean(), b.n_measured[in_b].mean()]))
    return measure_spread(rate_b - rate_a, within, per_prompt), "two pilot runs"


def spread_of_rates(rate: float, difference: float) -> tuple[PairedSpread, str]:
    """Return the spread to expect from an assumed pass rate that goes up, or if it cannot, down."""
    other = next((r for r in (rate + difference, rate - difference) if _is_rate(r)), None)
    if other is None:
        msg = f"a pass rate of {rate:g} cannot go up or down by {difference:g}"
        raise InputError(msg, hint="ask for a smaller --difference")
    other = min(1.0, max(0.0, other))
    return assume_spread(rate, other), "assumed rates; half of the variance between prompts"


def _is_rate(value: float) -> bool:
    return -_ROUNDING <= value <= 1.0 + _ROUNDING


def rates_of_pilot(runs: Sequence[Run]) -> Rates:
    """Return the mean cost and duration of one trial."""
    cost = known(np.concatenate([run.cost_usd for run in runs]))
    mean_ms = mean(known(np.concatenate([run.duration_ms for run in runs])))
    return Rates(cost_usd=mean(cost), seconds=None if mean_ms is None else mean_ms / 1000)


def plan_rows(
    spread: PairedSpread,
    difference: float,
    *,
    trials: Sequence[int],
    power: float,
    rates: Rates,
    concurrency: int,
) -> list[dict[str, Any]]:
    """Return for each number of trials the prompts needed, and the money and time of both runs."""
    rows = []
    for row in plan_trials(spread, difference, trials=trials, power=power):
        n = row.n_runs_of_agent
        plan: dict[str, Any] = msgspec.to_builtins(row)
        plan["costUsd"] = None if n is None or rates.cost_usd is None else n * rates.cost_usd
        plan["hours"] = (
            None if n is None or rates.seconds is None else n * rates.seconds / concurrency / 3600
        )
        rows.append(plan)
    return rows


def power_with(
    spread: PairedSpread, difference: float, n_prompts: int, n_trials: int
) -> dict[str, Any]:
    """Return the power that this many prompts have, and the narrowest margin they can clear."""
    return {
        "nPrompts": n_prompts,
        "nTrials": n_trials,
        "power": power_at(spread, difference, n_prompts, n_trials=n_trials),
        "fewestPrompts": fewest_prompts(0.05),
        "narrowestMargin": narrowest_margin(spread, n_prompts, n_trials),
    }


def reach(run: Run, gate: GateName, margin: float, n_prompts: int | None = None) -> GateReach:
    """Return whether a gate against this run, or n_prompts like it, could pass, and fail."""
    n = n_prompts or len(run.ids)
    # np.resize repeats the prompts in their order until there are n.
    passed, measured = np.resize(run.n_passed, n), np.resize(run.n_measured, n)
    return reach_of_gate(gate, passed, measured, margin=margin)


def reach_of_rate(rate: float, size: tuple[int, int], gate: GateName, margin: float) -> GateReach:
    """Return the same for a run of (prompts, trials) that passes as often as assumed."""
    n_prompts, n_trials = size
    # Spread evenly: as many prompts pass all their trials as the rate asks for.
    passed = np.diff(np.rint(rate * np.arange(n_prompts + 1))).astype(np.int64) * n_trials
    return reach_of_gate(gate, passed, np.full(n_prompts, n_trials), margin=margin)
