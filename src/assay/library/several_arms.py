"""What several arms of an experiment show together: a leaderboard, a table of skills."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from assay.compare.columns import Floats
from assay.compare.names import Named
from assay.compare.pairs import align
from assay.compare.report import load_runs
from assay.records.text import counted_noun
from assay.report.sentence import interval_words
from assay.report.text import percents
from assay.stats.paired import compare_rates
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


class SkillEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a skill does to its own cases, or to those of other skills."""

    skill: str
    cases: Literal["own", "others"]
    n_prompts: int
    without: float | None = None
    with_: float | None = msgspec.field(default=None, name="with")
    difference: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """What the interval shows."""
        return interval_words(self.low, self.high)

    @property
    def words(self) -> str:
        if self.difference is None or self.without is None or self.with_ is None:
            return "not measured"
        before, after = percents(self.without, self.with_)
        change, low, high = (
            f"{value * 100:+.0f}" for value in (self.difference, self.low or 0, self.high or 0)
        )
        return f"{before} → {after} % ({change}, {low} to {high}): {self.verdict}"


def skill_effects(named: Named, skills: Mapping[str, str], seed: int) -> list[SkillEffect]:
    """Compare each arm with the control: on the cases of its own skill, and on all others.

    skills has the skill of each arm. The intervals hold for all of them together: the more skills
    there are, the more of them would seem to help by chance.
    """
    aligned = align(load_runs(named, "trials", "skill", lambda label, path: None))
    level = 1 - 0.05 / max(1, 2 * len(skills))
    found = []
    for column, run in enumerate(aligned.runs):
        if run.label not in skills:
            continue
        in_control, in_arm = aligned.both(0, column)
        names = aligned.runs[0].category_names
        numbers = aligned.runs[0].categories[in_control]
        is_own = np.array([names[n] == skills[run.label] for n in numbers.tolist()], dtype=bool)
        sides = [
            (one.n_passed[places], one.n_measured[places])
            for one, places in ((aligned.runs[0], in_control), (run, in_arm))
        ]
        for cases, chosen in (("own", is_own), ("others", ~is_own)):
            a, b = (tuple(part[chosen] for part in side) for side in sides)
            made = compare_rates(a, b, seed=seed, level=level)
            found.append(
                SkillEffect(
                    skill=skills[run.label],
                    cases="own" if cases == "own" else "others",
                    n_prompts=made.n_prompts,
                    without=made.mean_a,
                    with_=made.mean_b,
                    difference=made.difference,
                    low=made.interval.low if made.interval else None,
                    high=made.interval.high if made.interval else None,
                )
            )
    return found


def skill_lines(effects: Sequence[SkillEffect], unhealthy: Mapping[str, str]) -> list[str]:
    """Write the effects as a table: a line for each skill."""
    lines = [
        "Trials that pass without and with each skill, on its own cases and on those of others "
        "(95 % intervals for all lines together):"
    ]
    for name in dict.fromkeys(one.skill for one in effects):
        own, others = (
            next(one for one in effects if one.skill == name and one.cases == cases)
            for cases in ("own", "others")
        )
        said = f"  {name}: own {own.words}"
        if others.n_prompts:
            said += f" | others {others.words}"
        lines.append(f"{said}. UNHEALTHY: {unhealthy[name]}" if name in unhealthy else said)
    return lines
