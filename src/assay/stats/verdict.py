"""Say in plain words what a comparison shows: better, worse, same, or not enough data.

- better / worse: the test gives p <= alpha AND the interval excludes zero AND does not lie inside
  the margin. Both are asked for, so that the words never contradict a printed number; the exact
  test keeps false alarms at or below alpha.
- same: the whole interval lies strictly inside -margin..+margin. A difference that is shown
  but smaller than the margin is "same": the margin says what counts as a difference.
- not-enough-data: everything else, and always with too few prompts for any result to be
  significant (five at alpha = 0.05), however clear they look.
"""

from typing import Literal

import msgspec

from assay.stats.mcnemar import fewest_prompts
from assay.stats.paired import PairedDifference
from assay.stats.power import prompts_to_decide

type VerdictCode = Literal["better", "worse", "same", "not-enough-data"]


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """A code for programs, words for people, and how many more prompts would decide it."""

    code: VerdictCode
    words: str
    n_more_prompts: int | None = None


def judge_difference(
    comparison: PairedDifference,
    *,
    margin: float,
    alpha: float = 0.05,
    adjusted_p: float | None = None,
    names: tuple[str, str] = ("A", "B"),
) -> Verdict:
    """Judge B against A; pass the Holm-adjusted p when several pairs are judged together."""
    require_margin(margin)
    interval, difference = comparison.interval, comparison.difference
    if interval is None or difference is None:
        return Verdict("not-enough-data", "not enough data: no prompt was graded in both runs")
    p_value = comparison.p_value if adjusted_p is None else adjusted_p
    enough = comparison.n_prompts >= fewest_prompts(alpha)
    shown = enough and p_value is not None and p_value <= alpha
    size = f"{difference:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
    if enough and -margin < interval.low and interval.high < margin:
        tail = "; a difference is shown, but it is smaller than the margin" if shown else ""
        words = f"{names[1]} is the same as {names[0]} within {margin:g}: {size}{tail}"
        return Verdict("same", words)
    if shown and interval.low > 0.0:
        return Verdict("better", f"{names[1]} is better than {names[0]}: {size}")
    if shown and interval.high < 0.0:
        return Verdict("worse", f"{names[1]} is worse than {names[0]}: {size}")
    return _undecided(comparison, margin, alpha)


def require_margin(margin: float) -> None:
    """Refuse a margin that is not a share (2 instead of 0.02 is the usual slip)."""
    if not 0.0 <= margin < 1.0:
        msg = f"margin must lie in 0..1 (0.02 is two points), got {margin}"
        raise ValueError(msg)


def _undecided(comparison: PairedDifference, margin: float, alpha: float) -> Verdict:
    n = comparison.n_prompts
    needed = prompts_to_decide(
        comparison.difference or 0.0, comparison.variance or 0.0, margin, alpha=alpha
    )
    words = f"not enough data: {n} prompts leave the difference open"
    if needed is None:
        return Verdict("not-enough-data", f"{words}, and no sensible number more would settle it")
    # The test and the interval both have to agree; where they just miss, ask for a tenth more.
    n_more = max(needed - n, 1 + n // 10)
    words = f"{words}; about {n_more} more would decide it if it stays as seen"
    return Verdict("not-enough-data", words, n_more)
