"""The verdict on a comparison in plain words, and gates for CI."""

import math
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from assay.records.text import counted_noun
from assay.stats.distributions import normal_quantile, two_sided_t
from assay.stats.noise import total_df, total_variance
from assay.stats.paired import Extremes, PairedDifference, compare_rates
from assay.stats.planning import Difficulty, PairedSpread, prompts_needed, prompts_to_decide
from assay.stats.rates import Interval
from assay.stats.significance import fewest_prompts

_MOST_ROUNDS = 100
_MOST_GUESSES = 12
_MOST_MORE_PROMPTS = 10_000
"""Nobody has more prompts than this to add."""
type VerdictCode = Literal["better", "worse", "same", "not-worse", "not-enough-data"]
"""not-worse is a passed gate that leaves open whether B is better."""


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """What was found, and how many more prompts would decide it."""

    code: VerdictCode
    words: str = ""
    """Added by assay.report.sentence."""
    n_more_prompts: int | None = None
    interval: Interval | UnsetType = UNSET
    """Of "same": what lies within the margin, where that is not the interval of the difference."""
    n_unmeasured: int | UnsetType = UNSET
    """Trials that were not measured and could turn what the others show."""
    changed: list[str] | UnsetType = UNSET
    """Why the runs cannot be compared: how their prompts differ."""


def judge_difference(
    comparison: PairedDifference,
    *,
    margin: float,
    alpha: float = 0.05,
    adjusted_p: float | None = None,
    extremes: Extremes | None = None,
) -> Verdict:
    """Judge B against A; pass the Holm-adjusted p when several pairs are judged together.

    extremes are what trials that were not measured leave open: every verdict must hold whichever
    way they went.
    """
    require_margin(margin)
    interval, difference = comparison.interval, comparison.difference
    if interval is None or difference is None:
        return Verdict("not-enough-data")
    p_value = comparison.p_value if adjusted_p is None else adjusted_p
    enough = comparison.n_units >= fewest_prompts(alpha)
    significant = enough and p_value is not None and p_value <= alpha
    # Equivalence comes first: a difference smaller than the margin is "same" even when it is
    # significant.
    if enough and _is_within(comparison, margin, alpha, extremes):
        low, high = margin_limits(comparison, margin, alpha) or (interval.low, interval.high)
        return Verdict("same", interval=Interval(low, high, 1.0 - alpha, "held against the margin"))
    if significant and (interval.low > 0.0 or interval.high < 0.0):
        code: VerdictCode = "better" if interval.low > 0.0 else "worse"
        if extremes is not None and not _is_certain(code, extremes):
            return Verdict("not-enough-data", n_unmeasured=extremes.n_not_measured)
        return Verdict(code)
    return _undecided(comparison, margin, alpha)


def clear_range(interval: Interval, lines: tuple[float, ...], digits: int = 1) -> str:
    """Write an interval in points, so that no limit seems to lie on one of these lines."""
    limits = (interval.low, interval.high)
    while digits < _MOST_DIGITS and any(
        limit != line and round(100 * limit, digits) == round(100 * line, digits)
        for limit in limits
        for line in lines
    ):
        digits += 1
    return f"{100 * interval.low:+.{digits}f} to {100 * interval.high:+.{digits}f} points"


_MOST_DIGITS = 4


def could_turn(n_unmeasured: int, words: str) -> str:
    """Say that what was measured shows something, but what was not could turn it."""
    unmeasured = counted_noun(n_unmeasured, "unmeasured trial")
    return f"{unmeasured} could turn it (without them, {words})"


def _is_certain(code: VerdictCode, extremes: Extremes) -> bool:
    """Whether better or worse holds if all that was not measured had gone the other way."""
    case = extremes.worst if code == "better" else extremes.best
    if case.interval is None:
        return False
    return case.interval.low > 0.0 if code == "better" else case.interval.high < 0.0


def _is_within(
    comparison: PairedDifference, margin: float, alpha: float, extremes: Extremes | None
) -> bool:
    """Whether the limits lie within the margin, also if what was not measured went one way."""
    for case in (comparison, *(extremes or ())[:2]):
        limits = margin_limits(case, margin, alpha)
        if limits is None or not -margin < limits[0] <= limits[1] < margin:
            return False
    return True


def margin_limits(
    comparison: PairedDifference, margin: float, alpha: float
) -> tuple[float, float] | None:
    """Return limits of the difference that may be held against a margin.

    A loss of the whole margin may be all in few prompts, of which a small sample shows none: then
    the variance seen is too small, and an interval built on it would clear the margin far too
    often. A share m of prompts that always passed and now always fail have the variance m(1-m): no
    less is assumed.

    Where one run has many trials of a prompt and the other few, most differences are small gains
    and few are large losses. A sample that lacks some of these has too high a mean and too small a
    variance at once; Johnson's correction of t for skewness takes that into account.
    """
    if comparison.difference is None or comparison.variance is None or comparison.n_units < 2:
        return None
    n, noise = comparison.n_units, comparison.noise or ()
    variance = max(comparison.variance, margin * (1.0 - margin))
    t = two_sided_t(1.0 - alpha, total_df(variance / n, n - 1, noise))
    reach = t * math.sqrt(total_variance(variance / n, noise))
    skewed = (comparison.skew or 0.0) * (1.0 + 2.0 * t * t) / (6.0 * variance * n)
    low, high = comparison.difference - reach, comparison.difference + reach
    return low + min(0.0, skewed), high + max(0.0, skewed)


def prompts_for_same(margin: float, alpha: float = 0.05) -> int | None:
    """Return how few prompts can show that a difference stays within the margin, if none differs.

    With fewer, a difference of the margin could be in prompts of which they show none.
    """
    if margin <= 0.0:
        return None
    variance = margin * (1.0 - margin)
    n = max(fewest_prompts(alpha), math.ceil(3.84 * variance / margin**2))
    while two_sided_t(1.0 - alpha, n - 1) * math.sqrt(variance / n) >= margin:
        n += 1
    return n


def require_margin(margin: float) -> None:
    """Refuse a margin that is not a share (2 instead of 0.02 is the usual slip)."""
    if not 0.0 <= margin < 1.0:
        msg = f"margin must lie in 0..1 (0.02 is two points), got {margin}"
        raise ValueError(msg)


def _undecided(comparison: PairedDifference, margin: float, alpha: float) -> Verdict:
    n = comparison.n_units
    if not comparison.wins + comparison.losses:
        # More prompts, if they go on to agree, show that the difference is below the margin.
        needed = prompts_to_decide(0.0, 0.0, margin, alpha=alpha) if margin else None
    else:
        needed = prompts_to_decide(
            comparison.difference or 0.0, comparison.variance or 0.0, margin, alpha=alpha
        )
    # Test and interval both have to agree; where they just miss, ask for a tenth more.
    n_more = None if needed is None else max(needed - n, 1 + n // 10)
    if n_more is None or n_more > _MOST_MORE_PROMPTS:
        return Verdict("not-enough-data")
    return Verdict("not-enough-data", n_more_prompts=n_more)


type GateName = Literal["regression", "not-better"]
type Outcome = Literal["pass", "fail", "cannot-judge"]


class GateResult(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of a gate, and why."""

    gate: GateName
    outcome: Outcome
    words: str


def judge_gate(
    gate: GateName,
    comparison: PairedDifference,
    *,
    margin: float,
    alpha: float = 0.05,
    adjusted_p: float | None = None,
    n_judged: int = 1,
    extremes: Extremes | None = None,
) -> GateResult:
    """Judge one gate; the interval of the comparison should have the level 1 - alpha.

    n_judged is how many runs are judged together: the chance that any of them passes wrongly is
    held to alpha / 2. extremes are what trials that were not measured leave open: a pass must hold
    in the worst case, too.
    """
    require_margin(margin)
    interval = comparison.interval
    p_value = comparison.p_value if adjusted_p is None else adjusted_p
    fewest = fewest_prompts(alpha)
    if interval is None or p_value is None:
        return GateResult(gate, "cannot-judge", "no prompt was graded in both runs")
    if comparison.n_units < fewest:
        what = "prompts" if comparison.n_units == comparison.n_prompts else "clusters of prompts"
        words = f"{comparison.n_units} {what} cannot show anything; at least {fewest} can"
        return GateResult(gate, "cannot-judge", words)
    if gate == "regression":
        limits = margin_limits(comparison, margin, alpha / n_judged)
        low = interval.low if limits is None else limits[0]
        worst = extremes.worst if extremes is not None else None
        if worst is not None and (limits := margin_limits(worst, margin, alpha / n_judged)):
            worst = worst if limits[0] <= -margin else None
        result = _judge_regression(interval, low, margin, worst, significant=p_value <= alpha)
    else:
        better = judge_difference(
            comparison, margin=margin, alpha=alpha, adjusted_p=p_value, extremes=extremes
        )
        if better.n_unmeasured is not UNSET:
            words = could_turn(
                better.n_unmeasured, f"the difference lies in {clear_range(interval, (0.0,))}"
            )
            return GateResult(gate, "cannot-judge", words)
        result = _judge_not_better(interval, margin, better=better.code == "better")
    if result.outcome == "fail" and extremes is not None:
        # A fail must hold in the best case, too.
        best, line = extremes.best.interval, -margin if gate == "regression" else margin
        if best is None or best.high >= line:
            words = could_turn(extremes.n_not_measured, result.words)
            return GateResult(gate, "cannot-judge", words)
    return result


def _judge_regression(
    interval: Interval,
    low: float,
    margin: float,
    worst: PairedDifference | None,
    *,
    significant: bool,
) -> GateResult:
    """worst is the case that withholds a pass, if there is one."""
    most = f"{100 * margin:g} points"
    seen = f"the difference lies in {clear_range(interval, (-margin, 0.0, margin))}"
    if interval.high < -margin and significant:
        return GateResult("regression", "fail", f"worse by more than {most}: {seen}")
    if low > -margin and worst is not None:
        words = (
            f"not worse by more than {most} where it was measured, but perhaps if all that was "
            "not measured had failed: the difference would be "
            f"{100 * (worst.difference or 0.0):+.1f} points"
        )
        return GateResult("regression", "cannot-judge", words)
    if low > -margin:
        words = (
            f"not worse by more than {most}: the difference is above {100 * low:+.1f} points, "
            "also if a loss were concentrated in few prompts"
        )
        return GateResult("regression", "pass", words)
    if interval.high < 0.0 and significant:
        words = f"worse, but perhaps by no more than {most}: {seen}"
        return GateResult("regression", "cannot-judge", words)
    words = f"neither a regression nor its absence is shown: {seen}, the margin is {most}"
    return GateResult("regression", "cannot-judge", words)


def _judge_not_better(interval: Interval, margin: float, *, better: bool) -> GateResult:
    seen = f"the difference lies in {clear_range(interval, (-margin, 0.0, margin))}"
    if better:
        return GateResult("not-better", "pass", f"shown to be better: {seen}")
    if interval.high < margin:
        words = f"an improvement of {100 * margin:g} points is ruled out: {seen}"
        return GateResult("not-better", "fail", words)
    return GateResult("not-better", "cannot-judge", f"an improvement is not shown: {seen}")


class GateChances(msgspec.Struct, frozen=True, rename="camel"):
    """How often a gate is right, found by simulation with the gate itself.

    For `regression` a good run is as good as A and a bad one is worse by `difference`; for
    `not-better` a good run is better by it and a bad one is as good as A.
    """

    n_prompts: int
    n_trials: int
    difference: float
    good_passes: float
    bad_fails: float
    bad_stopped: float
    """Fails, or cannot be judged."""
    words: str
    prompts_for_80: int | None = None


def simulate_gate(
    gate: GateName,
    difficulty: Difficulty,
    size: tuple[int, int],
    *,
    margin: float,
    difference: float,
    alpha: float = 0.05,
    n_repeats: int = 300,
) -> GateChances:
    """Run a gate on simulated runs of (prompts, trials), and count what it says."""
    passes, fails, stopped = _simulated(
        gate, difficulty, size, (margin, difference, alpha), n_repeats
    )
    return GateChances(
        n_prompts=size[0],
        n_trials=size[1],
        difference=difference,
        good_passes=passes,
        bad_fails=fails,
        bad_stopped=stopped,
        words=describe_chances(gate, difference, passes, fails, stopped),
        prompts_for_80=_prompts_for_80(
            gate, difficulty, size[1], (margin, difference, alpha), n_repeats
        ),
    )


def _simulated(
    gate: GateName,
    difficulty: Difficulty,
    size: tuple[int, int],
    setting: tuple[float, float, float],
    n_repeats: int,
) -> tuple[float, float, float]:
    """Return how often a good run passes, a bad one fails, and a bad one does not pass."""
    good_change, bad_change = _changes(gate, setting[1])
    good, bad = (
        _outcomes(gate, difficulty, size, (setting[0], change, setting[2]), n_repeats)
        for change in (good_change, bad_change)
    )
    chances = good.count("pass"), bad.count("fail"), n_repeats - bad.count("pass")
    passes, fails, stopped = (count / n_repeats for count in chances)
    return passes, fails, stopped


def _changes(gate: GateName, difference: float) -> tuple[float, float]:
    """Return by how much the pass rate of a good run moves, and that of a bad one."""
    return (0.0, -difference) if gate == "regression" else (difference, 0.0)


def _outcomes(
    gate: GateName,
    difficulty: Difficulty,
    size: tuple[int, int],
    setting: tuple[float, float, float],
    n_repeats: int,
) -> list[Outcome]:
    """Return what a gate says of simulated runs whose pass rate moves by a change."""
    (n_prompts, n_trials), (margin, change, alpha) = size, setting
    rng, trials = np.random.default_rng(1), np.full(n_prompts, n_trials)
    found: list[Outcome] = []
    for easy in difficulty.draw((n_repeats, n_prompts), rng):
        a = rng.binomial(n_trials, easy), trials
        b = rng.binomial(n_trials, difficulty.moved(easy, change)), trials
        pair = compare_rates(a, b, seed=0, level=1.0 - alpha)
        found.append(judge_gate(gate, pair, margin=margin, alpha=alpha).outcome)
    return found


def describe_chances(
    gate: GateName, difference: float, passes: float, fails: float, stopped: float
) -> str:
    """Say how often a gate passes a good build and stops a bad one."""
    good, bad = "an unchanged agent", f"one that is worse by {difference:g}"
    if gate == "not-better":
        good, bad = f"an agent that is better by {difference:g}", "an unchanged one"
    return (
        f"of 100 builds of {good}, {100 * passes:.0f} pass; of 100 builds of {bad}, "
        f"{100 * stopped:.0f} are stopped, {100 * fails:.0f} of them because the gate fails "
        "and the others because it cannot be judged"
    )


def _prompts_for_80(
    gate: GateName,
    difficulty: Difficulty,
    n_trials: int,
    setting: tuple[float, float, float],
    n_repeats: int,
) -> int | None:
    """Return how many prompts a good run needs to pass in four of five builds.

    The formula gives a first guess, and the simulation corrects it.
    """
    margin, difference, alpha = setting
    spread = difficulty.spread()
    if gate == "not-better":
        n = prompts_needed(spread, difference, n_trials=n_trials, alpha=alpha)
    elif margin == 0.0:
        return None  # no run that is merely as good shows that it is not worse
    else:
        variance = spread.variance(n_trials)
        assumed = max(variance, margin * (1.0 - margin))
        reach = normal_quantile(1.0 - 0.5 * alpha) * math.sqrt(assumed)
        reach += normal_quantile(0.8) * math.sqrt(variance)
        n = max(math.ceil((reach / margin) ** 2), fewest_prompts(alpha))
    good = margin, _changes(gate, difference)[0], alpha
    for _ in range(_MOST_GUESSES):
        if n is None or n > _MOST_MORE_PROMPTS:
            return None
        found = _outcomes(gate, difficulty, (n, n_trials), good, n_repeats)
        if found.count("pass") >= 0.8 * n_repeats:
            return n
        n = math.ceil(1.1 * n)
    return None


def narrowest_margin(spread: PairedSpread, n_prompts: int, n_trials: int = 1) -> float:
    """Return the margin that a run exactly as good as A would clear about half the time.

    Such a run differs by chance within each prompt only. A smaller margin asks `regression` for
    more than this many prompts can promise.
    """
    if n_prompts < 1:
        msg = "a margin needs at least one prompt"
        raise ValueError(msg)
    t = two_sided_t(0.95, max(n_prompts - 1, 1))
    margin = 0.5
    for _ in range(_MOST_ROUNDS):  # the variance that is assumed depends on the margin
        variance = max(spread.within / n_trials, margin * (1.0 - margin))
        margin = min(0.5, t * math.sqrt(variance / n_prompts))
    return margin
