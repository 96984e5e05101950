"""Decide while the trials come in: a rule with a pass side and a fail side that may be peeked at.

Two questions. The gate: no loss (pass) or a loss of the margin (fail)? The effect: is B better or
worse at all, or is a difference as large as the planned effect ruled out on both sides (same)?

Each hypothesis that can be ruled out has a straight boundary for the score S = (estimate -
hypothesis) * information. If the hypothesis is true, S is a Brownian motion without drift in the
information 1/se^2, and it crosses a + b * information *at any time at all* with the chance
exp(-2ab). So it does not matter when and how often anyone looks, nor whether the times to look
depend on what was seen: compare can judge a growing file without knowing who looked at it before.
A slope of half the effect makes the sequential probability ratio test, which needs the fewest
trials of all rules if the effect is zero or as planned. A second boundary, for a change four times
as large, stops a broken agent after a few prompts. Of the chance of an error a part is kept for
the end: where a plan has run out of trials, the last look spends what is left (it is the only one
that must be the last). So 50 prompts can pass a gate that the plain test, which has no end, would
leave open for ever.

A triangular test was the other candidate. It has an end of its own, but that end lies far beyond
what prompts allow (see margin_limits), and by its formula it needs a tenth more trials if there is
no difference, with errors that hold whatever is done after a decision. For "same", where
both sides have to be ruled out, its flatter boundary is the better one, and is used.

The information is that of the prompts, as everywhere: 1/se^2 from the paired differences. What
rules out a loss assumes at least the variance of a loss in few prompts, as margin_limits does.
Limits are widened from the normal to the t distribution. Fewer than FEWEST_UNITS decide nothing.
"""

import hashlib
import math
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.text import counted_noun
from assay.stats.distributions import Ints, normal_cdf, normal_quantile
from assay.stats.noise import JudgeErrors, Noise, total_df, total_variance
from assay.stats.paired import cluster_differences, paired_interval, pseudo_size_of_rates
from assay.stats.rates import Interval, count_open, extreme_tallies, make_interval
from assay.stats.verdict import clear_range, could_turn, require_margin

ERROR = 0.05
"""The largest chance of each wrong answer of a gate; of a wrong better or worse, and of a wrong
same."""
FEWEST_UNITS = 6
_FIRST_SHARE = 0.9
"""Of the error, what the boundaries may use."""
_LAST_SHARE = 0.8
"""The last look may bring the error of all looks up to this share. It is less than what the
boundaries may use in the long run, but few prompts have used little of it by then, and a loss in
few of them is not normal: simulated errors exceed the formula by up to a fifth."""
_LARGE_SHARE = 0.2
"""Of that, what the boundary for large changes gets."""
_LARGE = 4.0
_SAME = (4.5, 0.3)
"""Intercept and slope for an effect of 1, found by simulation: at most 5 % if better and worse end
the experiment too."""
type SequentialOutcome = Literal["pass", "fail", "better", "worse", "same", "go-on", "undecided"]


class Look(msgspec.Struct, frozen=True):
    """What a look needs to know of the trials so far."""

    n_units: int
    difference: float | None = None
    variance: float | None = None
    """Of one unit's difference."""
    least_variance: float = 0.0
    """What chance between trials makes of it if both arms are alike, as far as A's trials show:
    where few trials of B all fail, the variance seen is too small."""
    noise: tuple[Noise, ...] = ()
    """What more trials do not reduce. Where A is a baseline of several builds, B is one more, with
    an effect of its own."""


def judged_look(look: Look, judge: JudgeErrors | None, margin: float) -> Look:
    """Return a look at the difference that people would see: see paired.with_judge."""
    if judge is None or look.difference is None:
        return look
    gain = judge.gain
    difference = min(max(look.difference / gain, -1.0), 1.0)
    return msgspec.structs.replace(
        look,
        difference=difference,
        variance=None if look.variance is None else look.variance / gain**2,
        least_variance=look.least_variance / gain**2,
        noise=judge.noise(max(abs(difference), margin), look.noise),
    )


class ExtremeLooks(NamedTuple):
    """What a look would see if all that was not measured had gone against B, or for it."""

    worst: Look
    best: Look
    n_not_measured: int = 0

    def with_noise(
        self, noise: tuple[Noise, ...], judge: JudgeErrors | None = None
    ) -> "ExtremeLooks":
        """Return the same looks, with what more trials do not reduce, as people would see them."""
        worst, best = (
            judged_look(msgspec.structs.replace(look, noise=noise), judge, 0.0)
            for look in (self.worst, self.best)
        )
        return self._replace(worst=worst, best=best)


class SequentialDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one look says; go-on and undecided differ in whether trials are left to run."""

    outcome: SequentialOutcome
    words: str
    difference: float | UnsetType = UNSET
    """What this look saw."""
    n_units: int
    """Prompts, or clusters of prompts, that were compared."""
    interval: Interval | None = None
    """Holds at every look together, however often one looks."""
    fixed_design: "FixedDesign | None" = None
    n_unmeasured: int | UnsetType = UNSET
    """Trials that were not measured and could turn what the others show."""
    repeats_are_idle: bool = False
    """Whether more trials of the same prompts hardly add information: only new prompts do."""

    @property
    def is_decided(self) -> bool:
        """Whether no further trial is needed."""
        return self.outcome not in ("go-on", "undecided")


class FixedDesign(NamedTuple):
    """What a single look with the same errors needs: this many prompts for a variance of 1."""

    n_per_variance: float
    variance: float
    floor: float

    def n_trials(self, per_unit: float) -> int:
        """Return the trials of a design with one trial a prompt, or as many as were used."""
        needed = max(per_unit * self.variance, self.floor)
        return math.ceil(self.n_per_variance * needed)


class SequentialUse(msgspec.Struct, frozen=True, rename="camel"):
    """How many trials a look rests on, and how many a fixed design with the same errors needs."""

    n_units: int
    interval: Interval | None
    n_trials: int
    fixed_trials: int | None
    words: str


def turn_of(prompt_id: str, seed: int | None = None) -> bytes:
    """Return what prompts are sorted by before they run, so that their order tells nothing.

    In a file they may be sorted by what they are about, or by how hard they are; what was seen of
    the first of them then says nothing about the others. Every seed gives another order: in one
    that is always the same, the last prompts would hardly ever be looked at.
    """
    salt = "" if seed is None else f"{seed}:"
    return hashlib.sha256(f"{salt}{prompt_id}".encode("utf-8", "surrogatepass")).digest()


def describe_use(decision: SequentialDecision, n_trials: int) -> SequentialUse:
    """Say what a decision that rests on this many trials has saved."""
    words, fixed = f"{counted_noun(n_trials, 'trial')} used", None
    if decision.fixed_design is not None and decision.n_units:
        fixed = decision.fixed_design.n_trials(n_trials / decision.n_units)
        words += f"; a fixed design with the same errors needs about {fixed:,}"
        saved = 1.0 - n_trials / fixed
        if decision.is_decided and saved > 0.0:
            words += f" ({saved:.0%} saved)"
    return SequentialUse(decision.n_units, decision.interval, n_trials, fixed, words)


def look_at_rates(
    run_a: tuple[Ints, Ints], run_b: tuple[Ints, Ints], clusters: Ints | None = None
) -> Look:
    """Return what a look needs; each run is (passes, measured trials) per prompt, as compare_rates.

    It has no test and no effect sizes, so that a look after every trial costs next to nothing.
    """
    both = (run_a[1] > 0) & (run_b[1] > 0)
    n_a, n_b = run_a[1][both], run_b[1][both]
    if n_a.size == 0:
        return Look(0)
    k = float(2.0 / (1.0 / n_a + 1.0 / n_b).mean())
    rates = run_a[0][both] / n_a
    differences = run_b[0][both] / n_b - rates
    units = cluster_differences(differences, None if clusters is None else clusters[both])
    _, variance = paired_interval(units, pseudo_size_of_rates(k))
    repeated = n_a > 1
    least = 0.0
    if repeated.any():
        rates, n_a, n_b = rates[repeated], n_a[repeated], n_b[repeated]
        least = float((rates * (1.0 - rates) * n_a / (n_a - 1) * (1.0 / n_a + 1.0 / n_b)).mean())
    least *= units.size / differences.size  # of a cluster's influence on the mean
    return Look(int(units.size), float(differences.mean()), variance, least)


def look_at_extremes(
    run_a: tuple[Ints, Ints, Ints], run_b: tuple[Ints, Ints, Ints], clusters: Ints | None = None
) -> ExtremeLooks | None:
    """Return what trials that were not measured leave open; None if all were.

    Each run is (passes, measured trials, planned trials) per prompt.
    """
    cases = extreme_tallies(run_a, run_b)
    if cases is None:
        return None
    worst, best = (look_at_rates(*case, clusters) for case in cases)
    return ExtremeLooks(worst, best, count_open(run_a, run_b))


def decide_gate(
    seen: Look,
    *,
    margin: float,
    is_last: bool = False,
    extremes: ExtremeLooks | None = None,
    n_judged: int = 1,
) -> SequentialDecision:
    """Look at a gate: pass if a loss of the margin is ruled out, fail if no loss is.

    is_last: the plan has no more trials; this look is decided with the error that is left, and
    no look may follow. extremes are what trials that were not measured leave open: a pass must
    hold in the worst case, too. n_judged is how many runs are judged together.
    """
    require_effect(margin, "margin")
    rule, early = _Rule(seen, margin, is_last), _too_early(seen, is_last)
    if early is not None or seen.difference is None:
        return early or _nothing(seen, is_last)
    low = rule.gate_low(ERROR / n_judged)
    high = seen.difference + rule.reach(ERROR / n_judged, large=True)
    interval = _interval(low, high, 1.0 - 2.0 * ERROR)
    passes, fails = low > -margin, high < 0.0
    if passes and fails:  # a loss, but a small one: the nearer hypothesis counts
        passes = seen.difference > -0.5 * margin
    worst = None
    if passes and extremes is not None:
        worst_low = _Rule(extremes.worst, margin, is_last).gate_low(ERROR / n_judged)
        worst = extremes.worst if worst_low <= -margin else None
    open_: SequentialOutcome = "undecided" if is_last else "go-on"
    outcome = open_
    if worst is None and (passes or fails):
        outcome = "pass" if passes else "fail"
    words = _gate_words(outcome, interval, margin, worst)
    turned = worst is not None
    if outcome == "fail" and extremes is not None:
        best = _Rule(extremes.best, margin, is_last)
        turned = (extremes.best.difference or 0.0) >= -best.reach(ERROR / n_judged, large=True)
        if turned:
            outcome, words = open_, could_turn(extremes.n_not_measured, words)
    return SequentialDecision(
        outcome=outcome,
        words=words,
        difference=seen.difference,
        n_units=seen.n_units,
        interval=interval,
        fixed_design=rule.fixed_design(ERROR),
        n_unmeasured=extremes.n_not_measured if extremes is not None and turned else UNSET,
        repeats_are_idle=rule.repeats_are_idle,
    )


def decide_effect(
    seen: Look,
    *,
    effect: float,
    is_last: bool = False,
    extremes: ExtremeLooks | None = None,
    n_judged: int = 1,
) -> SequentialDecision:
    """Look at an experiment: better, worse, or same (no difference as large as the effect).

    The arguments are those of decide_gate. A wrong better or worse has at most 5 % together, and
    so has a wrong same.
    """
    require_effect(effect, "effect")
    rule, early = _Rule(seen, effect, is_last), _too_early(seen, is_last)
    if early is not None or seen.difference is None:
        return early or _nothing(seen, is_last)
    error = ERROR / n_judged
    reach = rule.reach(0.5 * error, large=True)
    interval = _interval(seen.difference - reach, seen.difference + reach, 1.0 - ERROR)
    outcome: SequentialOutcome = "undecided" if is_last else "go-on"
    looks = (_Rule(one, effect, is_last) for one in (seen, *(extremes or ())[:2]))
    if all(one.is_within_effect(error) for one in looks):
        outcome, reach = "same", rule.reach_of_same(error)
        interval = _interval(seen.difference - reach, seen.difference + reach, 1.0 - ERROR)
    elif reach < abs(seen.difference):
        outcome = "better" if seen.difference > 0.0 else "worse"
    words = _effect_words(outcome, interval, effect)
    n_unmeasured: int | UnsetType = UNSET
    if outcome in ("better", "worse") and extremes is not None:
        sign, case = (1, extremes.worst) if outcome == "better" else (-1, extremes.best)
        reach = _Rule(case, effect, is_last).reach(0.5 * error, large=True)
        if sign * (case.difference or 0.0) <= reach:
            outcome, n_unmeasured = "undecided" if is_last else "go-on", extremes.n_not_measured
            words = could_turn(n_unmeasured, words)
    return SequentialDecision(
        outcome=outcome,
        words=words,
        difference=seen.difference,
        n_units=seen.n_units,
        interval=interval,
        fixed_design=rule.fixed_design(0.5 * ERROR),
        n_unmeasured=n_unmeasured,
        repeats_are_idle=rule.repeats_are_idle,
    )


def require_effect(effect: float, name: str) -> None:
    """Refuse an effect of nothing: no number of trials would rule it out."""
    require_margin(effect)
    if effect == 0.0:
        msg = f"a sequential rule needs a {name} above 0: nothing rules out a difference of 0"
        raise ValueError(msg)


def smallest_margin(n_units: int) -> float | None:
    """Return the smallest margin that a run without any difference passes; None if there is none.

    Below it a loss could be in prompts of which so few show none.
    """
    for thousandths in range(1, 500):
        margin = thousandths / 1000
        equal = Look(n_units, 0.0, 0.0)
        if decide_gate(equal, margin=margin, is_last=True).outcome == "pass":
            return margin
    return None


class _Line(NamedTuple):
    """A boundary of the score, in units in which the effect is 1."""

    intercept: float
    slope: float

    @property
    def error(self) -> float:
        """The chance that a Brownian motion ever crosses it."""
        return math.exp(-2.0 * self.intercept * self.slope)


def _line(error: float, change: float = 1.0) -> _Line:
    """The line of the probability ratio test of no change against this one, in effects."""
    return _Line(-math.log(error) / change, 0.5 * change)


class _Rule:
    """How far from the estimate a hypothesis must lie to be ruled out at this look."""

    def __init__(self, seen: Look, effect: float, is_last: bool) -> None:
        self._n, self._difference = seen.n_units, seen.difference or 0.0
        self._variance = max(seen.variance or 0.0, seen.least_variance, _LEAST_VARIANCE)
        self._effect, self._is_last, self._noise = effect, is_last, seen.noise

    def fixed_design(self, error: float) -> FixedDesign:
        """Of the same errors: this one, and ERROR for missing an effect."""
        per_variance = _fixed_information(error) / self._effect**2
        return FixedDesign(per_variance, self._variance, self._floor)

    @property
    def repeats_are_idle(self) -> bool:
        """Whether chance between trials is small beside what prompts not seen could hide."""
        return self._variance <= _IDLE_SHARE * self._floor

    @property
    def _floor(self) -> float:
        return self._effect * (1.0 - self._effect)

    def information(self, floor: float = 0.0) -> float:
        """1/se^2, with at least this variance of one unit.

        The effect of B's build is the same at every look, so that looks are still those of a
        Brownian motion in the information, of which there is no more than builds leave.
        """
        return 1.0 / total_variance(max(self._variance, floor) / self._n, self._noise)

    def reach(self, error: float, floor: float = 0.0, *, large: bool = False) -> float:
        """Of a one-sided limit that holds at all looks; large: changes far beyond the effect."""
        line = _line(_FIRST_SHARE * error * (1.0 - _LARGE_SHARE * large))
        left = _LAST_SHARE * error * (1.0 - _LARGE_SHARE * large)
        score = self._score(line, left, floor)
        if large:
            second = _line(_FIRST_SHARE * error * _LARGE_SHARE, _LARGE)
            score = min(score, self._score(second, None, floor))
        return self._wider(score, floor)

    def gate_low(self, error: float) -> float:
        """Return the limit that is held against the margin, also of a loss in few prompts."""
        return self._difference - self.reach(error, floor=self._floor)

    def is_within_effect(self, error: float) -> bool:
        """Whether a difference as large as the effect is ruled out on both sides."""
        return abs(self._difference) + self.reach_of_same(error) < self._effect

    def reach_of_same(self, error: float) -> float:
        """Of a limit beyond which a difference of the effect is ruled out."""
        scale = math.log(error) / math.log(ERROR)
        floor = self._floor
        line = _Line(_SAME[0] * scale, _SAME[1])
        return self._wider(self._score(line, _LAST_SHARE * error, floor), floor)

    def _score(self, line: _Line, error: float | None, floor: float) -> float:
        """Return where the boundary is at this look; error is what the last look may use up."""
        information = self.information(floor) * self._effect**2
        boundary = line.intercept + line.slope * information
        if self._is_last and error is not None:
            return min(boundary, _last_boundary(line, information, error))
        return boundary

    def _wider(self, score: float, floor: float) -> float:
        """Turn a score into a reach, with t in place of the normal distribution."""
        information = self.information(floor)
        z = score / (self._effect * math.sqrt(information))
        df = total_df(max(self._variance, floor) / self._n, self._n - 1, self._noise)
        return _t_of_z(z, df) / math.sqrt(information)


_IDLE_SHARE = 0.3
_LEAST_VARIANCE = 1e-6
"""Scores may all tie; rates never come near, their variance is smoothed."""
_MOST_Z = 30.0


def _t_of_z(z: float, df: float) -> float:
    """Return the t as far out as z (Wallace's formula, a little too far out for few df)."""
    inner = min(z, _MOST_Z) * (8.0 * df + 3.0) / (8.0 * df + 1.0)
    return math.sqrt(df * math.expm1(min(inner * inner / df, 500.0)))


def _last_boundary(line: _Line, information: float, error: float) -> float:
    """Return the score that the last look needs, so that all looks together make this error.

    P(line never crossed and S < c) is known: Phi(c / root) - exp(-2ab) Phi((c - 2a) / root).
    """
    root = math.sqrt(information)
    low, high = 0.0, line.intercept + line.slope * information
    for _ in range(50):  # bisection
        c = 0.5 * (low + high)
        kept = normal_cdf(c / root) - line.error * normal_cdf((c - 2.0 * line.intercept) / root)
        low, high = (c, high) if kept < 1.0 - error else (low, c)
    return high


def _fixed_information(error: float) -> float:
    """Return the information, for an effect of 1, of the fixed design with the same errors."""
    return (normal_quantile(1.0 - error) + normal_quantile(1.0 - ERROR)) ** 2


def _interval(low: float, high: float, level: float) -> Interval:
    return make_interval(low, high, level, "holds at every look", (-1.0, 1.0))


def _too_early(seen: Look, is_last: bool) -> SequentialDecision | None:
    if seen.n_units >= FEWEST_UNITS:
        return None
    units = counted_noun(seen.n_units, "prompt")
    words = f"{units} compared; at least {FEWEST_UNITS} are needed for a first look"
    return _nothing(seen, is_last, words)


def _nothing(
    seen: Look, is_last: bool, words: str = "no prompt was graded in both runs"
) -> SequentialDecision:
    outcome: SequentialOutcome = "undecided" if is_last else "go-on"
    return SequentialDecision(outcome=outcome, words=words, n_units=seen.n_units)


def _range(interval: Interval, margin: float) -> str:
    """Write an interval so that no limit seems to be the margin, or zero."""
    return clear_range(interval, (-margin, 0.0))


def _points(margin: float) -> str:
    return f"{100 * margin:g} points"


def _gate_words(
    outcome: SequentialOutcome, interval: Interval, margin: float, worst: Look | None
) -> str:
    lies, most = f"the difference lies in {_range(interval, margin)} at every look", _points(margin)
    if worst is not None:
        return (
            f"a loss of {most} is ruled out where it was measured, but not if all that was not "
            f"measured had failed: the difference would be {100 * (worst.difference or 0.0):+.1f} "
            "points"
        )
    if outcome == "pass":
        return f"a loss of {most} is ruled out: {lies}"
    if outcome == "fail":
        return f"worse: {lies}"
    return f"neither a loss nor its absence is shown: {lies}, the margin is {most}"


def _effect_words(outcome: SequentialOutcome, interval: Interval, effect: float) -> str:
    shown = clear_range(interval, (-effect, 0.0, effect))
    lies = f"the difference lies in {shown} at every look"
    if outcome == "same":
        return f"a difference of {_points(effect)} is ruled out either way: {lies}"
    if outcome in ("better", "worse"):
        return f"{outcome}: {lies}"
    return f"neither a difference nor the absence of one of {_points(effect)} is shown: {lies}"
