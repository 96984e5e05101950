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
    Difficulty,
    PairedSpread,
    assume_spread,
    measure_spread,
    plan_trials,
    power_at,
    split_rate_variance,
    spread_from_one_run,
)
from assay.stats.pooled import simulate_pooled_gate
from assay.stats.rates import rate_interval
from assay.stats.significance import fewest_prompts
from assay.stats.verdict import GateName, narrowest_margin, simulate_gate

# A sum such as 0.7 + 0.3 may miss 1 by a rounding error.
_ROUNDING = 1e-9
_TRIALS = (1, 3, 5, 10)
_MOST_FRESH = 5


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison is planned for, and what is assumed where no pilot shows it."""

    difference: float
    power: float
    rate: float | None
    icc: float
    correlation: float
    trials: tuple[int, ...]
    n_prompts: int | None
    concurrency: int
    fail_on: GateName | None
    margin: float

    @property
    def most_fresh(self) -> int:
        """Trials of each prompt at most, against a baseline."""
        return self.trials[0] if self.trials else _MOST_FRESH


def make_plan(runs: Sequence[Run], request: PlanRequest) -> dict[str, Any]:
    """Plan from one or two pilot runs, or from the assumed rate; see docs/plan.md."""
    if runs:
        spread, source = spread_of_pilot(
            runs, request.difference, icc=request.icc, correlation=request.correlation
        )
        rates = rates_of_pilot(runs)
    else:
        spread, source = spread_of_rates(
            request.rate or 0.0,
            request.difference,
            icc=request.icc,
            correlation=request.correlation,
        )
        rates = Rates()
    rows = plan_rows(
        spread,
        request.difference,
        trials=request.trials or _TRIALS,
        power=request.power,
        rates=rates,
        concurrency=request.concurrency,
    )
    plan: dict[str, Any] = {"source": source, "difference": request.difference}
    plan |= {"power": request.power, "spread": msgspec.to_builtins(spread), "rows": rows}
    n = request.n_prompts or (len(runs[0].ids) if runs else None)
    k = request.trials[0] if request.trials else int(runs[0].k.max()) if runs else 1
    plan["atHand"] = None if n is None else power_with(spread, request.difference, n, k)
    if request.fail_on and n is not None:
        plan["gate"] = _gate_chances(runs, request.fail_on, (n, k), request)
    return plan


def _gate_chances(
    runs: Sequence[Run], gate: GateName, size: tuple[int, int], request: PlanRequest
) -> dict[str, Any]:
    """Try the gate on runs like the pilot, or like what is assumed."""
    if runs:
        difficulty, source = difficulty_of(runs[0], request.icc)
    else:
        difficulty = Difficulty(request.rate or 0.0, request.icc)
        source = f"assumed: rate {difficulty.rate:g}, ICC {difficulty.icc:g}"
    chances = simulate_gate(
        gate, difficulty, size, margin=request.margin, difference=abs(request.difference)
    )
    return {"source": source, **msgspec.to_builtins(chances)}


def chances_against(baseline: Run, request: PlanRequest) -> dict[str, Any]:
    """Return how often the gate is right if a branch is compared with a pooled baseline."""
    difficulty, source = difficulty_of(baseline, request.icc)
    measured = baseline.n_measured[baseline.n_measured > 0]
    chances = simulate_pooled_gate(
        difficulty,
        (measured, np.full(len(measured), request.most_fresh)),
        margin=request.margin,
        difference=abs(request.difference),
        builds=baseline.builds.noise if baseline.builds else None,
    )
    return {"source": source, **msgspec.to_builtins(chances)}


class Rates(msgspec.Struct, frozen=True):
    """What one trial costs, from a pilot."""

    cost_usd: float | None = None
    seconds: float | None = None


def spread_of_pilot(
    runs: Sequence[Run], difference: float = 0.0, *, icc: float = 0.5, correlation: float = 0.5
) -> tuple[PairedSpread, str]:
    """Return the spread to expect from one or two pilot runs, and what it rests on.

    correlation says how far two agents find the same prompts hard. Two pilot runs show it for
    these two agents. If they are alike, it says nothing about an agent that differs: so no less
    spread is planned for than one of them alone, with the assumed correlation, would give.
    """
    alone, words = _spread_of_one(runs[0], icc, correlation)
    alone = _spread_of_loss(alone, runs[0], difference)
    if len(runs) == 1:
        return alone, f"one pilot run; {words}"
    seen = _spread_of_two(runs)
    if seen.variance(1.0) >= alone.variance(1.0):
        return seen, "two pilot runs"
    return alone, f"two pilot runs, with no less spread than one of them would give; {words}"


def _spread_of_one(run: Run, icc: float, correlation: float) -> tuple[PairedSpread, str]:
    split = split_rate_variance(run.n_passed, run.n_measured)
    if not split.total:
        msg = f"{run.label}: the pilot shows no variation (few graded prompts, or all the same)"
        raise InputError(msg, hint="use a larger pilot, or plan from an assumed --rate")
    assumed = f"correlation of {correlation:g} between the agents assumed"
    if split.within is None:
        assumed = f"ICC {icc:g} and {assumed}"
    return spread_from_one_run(split, icc=icc, prompt_correlation=correlation), assumed


def _spread_of_loss(spread: PairedSpread, pilot: Run, difference: float) -> PairedSpread:
    """Return the spread against an agent that has lost so much, if that is more.

    Where nearly all trials pass, an agent that passes fewer of them varies more than the pilot.
    """
    rate, _ = rate_interval(pilot.n_passed, pilot.n_measured)
    if rate is None or difference >= 0.0:
        return spread
    if rate + difference < 0.0:
        msg = f"{pilot.path}: a pass rate of {rate:.2g} cannot go down by {-difference:g}"
        raise InputError(msg, hint="ask for a smaller --difference")
    alike, lost = assume_spread(rate, rate), assume_spread(rate, rate + difference)
    return PairedSpread(
        between=spread.between * max(1.0, lost.between / alike.between),
        within=spread.within * max(1.0, lost.within / alike.within),
    )


def _spread_of_two(runs: Sequence[Run]) -> PairedSpread:
    aligned = align(runs[:2])
    in_a, in_b = aligned.both(0, 1)
    a, b = runs[0], runs[1]
    n_a, n_b = a.n_measured[in_a], b.n_measured[in_b]
    measured = (n_a > 0) & (n_b > 0)
    n_a, n_b = n_a[measured], n_b[measured]
    if len(n_a) < 2:
        msg = f"{a.path} and {b.path} share fewer than two graded prompts"
        raise InputError(msg, hint="grade both, or plan from an assumed --rate")
    rate_a, rate_b = a.n_passed[in_a][measured] / n_a, b.n_passed[in_b][measured] / n_b
    splits = [split_rate_variance(r.n_passed, r.n_measured) for r in (a, b)]
    parts = [split.within for split in splits]
    within = None if None in parts else float(sum(part or 0.0 for part in parts))
    per_prompt = float(np.mean([n_a.mean(), n_b.mean()]))
    return measure_spread(rate_b - rate_a, within, per_prompt)


def spread_of_rates(
    rate: float, difference: float, *, icc: float = 0.5, correlation: float = 0.5
) -> tuple[PairedSpread, str]:
    """Return the spread to expect from an assumed pass rate that goes up, or if it cannot, down.

    A negative difference is a loss: from a high rate, that spreads the prompts more than a gain.
    """
    ways = (rate + difference, rate - difference) if difference > 0.0 else (rate + difference,)
    other = next((r for r in ways if _is_rate(r)), None)
    if other is None:
        way = "up or down" if difference > 0.0 else "down"
        msg = f"a pass rate of {rate:g} cannot go {way} by {abs(difference):g}"
        raise InputError(msg, hint="ask for a smaller --difference")
    other = min(1.0, max(0.0, other))
    spread = assume_spread(rate, other, icc=icc, prompt_correlation=correlation)
    return spread, f"assumed: rate {rate:g}, ICC {icc:g}, correlation {correlation:g}"


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


def difficulty_of(run: Run, icc: float) -> tuple[Difficulty, str]:
    """Return how hard the prompts of a pilot are; the icc is for one trial a prompt."""
    rate, _ = rate_interval(run.n_passed, run.n_measured)
    seen = split_rate_variance(run.n_passed, run.n_measured).icc
    if rate is None:
        msg = f"{run.label}: nothing is graded"
        raise InputError(msg, hint="grade it, or plan from an assumed --rate")
    if seen is None:
        return Difficulty(rate, icc), f"pass rate {rate:.2f} as in the pilot, ICC {icc:g} assumed"
    return Difficulty(rate, seen), f"pass rate {rate:.2f} and ICC {seen:.2f} as in the pilot"
