"""What several arms of an experiment show together: a leaderboard."""

from collections.abc import Mapping

import numpy as np

from assay.compare.columns import Floats
from assay.compare.names import Named
from assay.compare.pairs import align
from assay.compare.report import load_runs
from assay.records.text import counted_noun
from assay.report.text import percents
from assay.stats.rates import rate_interval
from assay.stats.shrinkage import rank_arms


def rank_lines(named: Named, unhealthy: Mapping[str, str], seed: int) -> list[str]:
    """List the arms by pass rate, what is expected of each, and how likely it is the best.

    The largest of several rates is too large, since it was chosen for its luck as well.
    """
    good = [one for one in named if one[0] not in unhealthy]
    rates = pass_rates(good) if good else np.zeros((0, 0))
    whole = ~np.isnan(rates).any(axis=1)
    ranked = rank_arms(rates[whole], seed=seed)
    expected = dict(zip((name for name, _ in good), ranked, strict=False))
    rows = []
    for run in load_runs(named, "trials", "category", lambda label, path: None):
        rate, interval = rate_interval(run.n_passed, run.n_measured)
        said = "not measured"
        if rate is not None and interval is not None:
            shown, low, high = percents(rate, interval.low, interval.high)
            said = f"{shown} % ({low} to {high})"
        known = run.cost_usd[~np.isnan(run.cost_usd)]
        cost = f", ${known.mean():.4f} a trial" if known.size else ""
        one, why = expected.get(run.label), unhealthy.get(run.label)
        if one is not None:
            likely, chance = percents(one.expected.value, one.expected.best_chance)
            said += f", {likely} % expected, the best with a chance of {chance} %"
        elif why:
            said = f"not ranked: UNHEALTHY: {why}"
        rows.append((-1.0 if one is None else one.expected.value, f"{run.label}: {said}{cost}"))
    ordered = sorted(rows, key=lambda row: -row[0])
    lines = [f"  {place}. {words}" for place, (_, words) in enumerate(ordered, 1)]
    if n_left := int((~whole).sum()):
        prompts = counted_noun(n_left, "prompt")
        lines.append(f"{prompts} not measured in all arms; what is expected leaves them out.")
    return lines


def pass_rates(named: Named) -> Floats:
    """Pass rates: a row for each prompt that any arm has, a column for each arm."""
    aligned = align(load_runs(named, "trials", "category", lambda label, path: None))
    rates = np.full(aligned.where.shape, np.nan)
    for column, run in enumerate(aligned.runs):
        here = aligned.where[:, column]
        with np.errstate(invalid="ignore", divide="ignore"):
            own = run.n_passed / run.n_measured
        rates[here >= 0, column] = own[here[here >= 0]]
    return rates
