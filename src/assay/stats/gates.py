"""Gates for CI: does the run pass, is it shown to fail, or can the data not judge it?

d is B minus A, [low, high] its interval (95 %: each limit errs 2.5 % of the time).

`regression` asks whether B is worse than the margin allows (a non-inferiority test):
- pass: low > -margin. Not worse by more than the margin is established; so a difference that is
  shown but tolerable passes: the margin says so.
- fail: high < -margin and p <= alpha. Worse than the margin allows is established. Whatever the
  truth is, as long as it respects the margin, this happens at most 2.5 % of the time.
- cannot-judge: anything between. That includes "worse than A for sure, but perhaps within the
  margin": failing there would break the promise above for a B that is worse by half the margin, and
  passing would wave through a regression. The words say which case it is, and CI stops either way.

`not-better` asks for a shown improvement:
- pass: the verdict is "better" (shown, and not inside the margin).
- fail: high < margin: an improvement as large as the margin is ruled out (with margin 0: B is
  shown to be worse).
- cannot-judge: anything between.
"""

from typing import Literal

import msgspec

from assay.stats.interval import Interval
from assay.stats.mcnemar import fewest_prompts
from assay.stats.paired import PairedDifference
from assay.stats.verdict import judge_difference, require_margin

type GateName = Literal["regression", "not-better"]
type Outcome = Literal["pass", "fail", "cannot-judge"]


class GateResult(msgspec.Struct, frozen=True, rename="camel"):
    """What the gate says, and why."""

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
) -> GateResult:
    """Judge one gate; the interval of the comparison should have the level 1 - alpha."""
    require_margin(margin)
    interval = comparison.interval
    p_value = comparison.p_value if adjusted_p is None else adjusted_p
    fewest = fewest_prompts(alpha)
    if interval is None or p_value is None:
        return GateResult(gate, "cannot-judge", "no prompt was graded in both runs")
    if comparison.n_prompts < fewest:
        words = f"{comparison.n_prompts} prompts cannot show anything; at least {fewest} can"
        return GateResult(gate, "cannot-judge", words)
    if gate == "regression":
        return _judge_regression(interval, margin, shown=p_value <= alpha)
    better = judge_difference(comparison, margin=margin, alpha=alpha, adjusted_p=p_value)
    return _judge_not_better(interval, margin, better=better.code == "better")


def _judge_regression(interval: Interval, margin: float, *, shown: bool) -> GateResult:
    seen = f"the difference lies in {interval.low:+.3f} to {interval.high:+.3f}"
    if interval.low > -margin:
        return GateResult("regression", "pass", f"not worse by more than {margin:g}: {seen}")
    if interval.high < -margin and shown:
        return GateResult("regression", "fail", f"worse by more than {margin:g}: {seen}")
    if interval.high < 0.0 and shown:
        words = f"worse, but perhaps by no more than {margin:g}: {seen}"
        return GateResult("regression", "cannot-judge", words)
    words = f"neither a regression nor its absence is shown: {seen}, the margin is {margin:g}"
    return GateResult("regression", "cannot-judge", words)


def _judge_not_better(interval: Interval, margin: float, *, better: bool) -> GateResult:
    seen = f"the difference lies in {interval.low:+.3f} to {interval.high:+.3f}"
    if better:
        return GateResult("not-better", "pass", f"shown to be better: {seen}")
    if interval.high < margin:
        words = f"an improvement of {margin:g} is ruled out: {seen}"
        return GateResult("not-better", "fail", words)
    return GateResult("not-better", "cannot-judge", f"an improvement is not shown: {seen}")
