"""Ask before a run whether a gate could ever pass, and could ever fail, with this many prompts."""

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import Ints, as_tallies
from assay.stats.gates import GateName, Outcome, judge_gate
from assay.stats.mcnemar import smallest_p
from assay.stats.paired import compare_rates
from assay.stats.paired_interval import paired_interval, pseudo_size_of_rates
from assay.stats.spread import PairedSpread


class GateReach(msgspec.Struct, frozen=True, rename="camel"):
    """Which outcomes the most extreme run B could bring about, and an equal one."""

    can_pass: bool
    can_fail: bool
    if_identical: Outcome
    smallest_p: float
    words: str


def reach_of_gate(
    gate: GateName,
    passes: ArrayLike,
    measured: ArrayLike,
    *,
    margin: float,
    alpha: float = 0.05,
) -> GateReach:
    """Try the real gate on run A against a B that passes all, fails all, or repeats A."""
    passed, trials = as_tallies(passes, measured)

    def outcome(passes_b: Ints) -> Outcome:
        pair = compare_rates((passed, trials), (passes_b, trials), seed=0, level=1.0 - alpha)
        return judge_gate(gate, pair, margin=margin, alpha=alpha).outcome

    best, worst, equal = outcome(trials), outcome(np.zeros_like(trials)), outcome(passed)
    n = int((trials > 0).sum())
    can_pass, can_fail = "pass" in (best, equal), "fail" in (worst, equal)
    words = _say_reach(n, can_pass=can_pass, can_fail=can_fail, alpha=alpha)
    return GateReach(can_pass, can_fail, equal, smallest_p(n), words)


def narrowest_margin(spread: PairedSpread, n_prompts: int, n_trials: int = 1) -> float:
    """Return the margin that a run exactly as good as A would clear about half the time.

    A smaller margin asks `regression` for more than this many prompts can promise.
    """
    if n_prompts < 1:
        msg = "a margin needs at least one prompt"
        raise ValueError(msg)
    # A sample with the wanted variance and mean zero goes through the very interval of the gate.
    size = spread.variance(n_trials) ** 0.5
    signs = np.where(np.arange(n_prompts) % 2 == 0, 1.0, -1.0) * min(size, 1.0)
    interval, _ = paired_interval(signs - signs.mean(), pseudo_size_of_rates(n_trials))
    return -interval.low


def _say_reach(n: int, *, can_pass: bool, can_fail: bool, alpha: float) -> str:
    if can_pass and can_fail:
        return f"{n} prompts can both pass and fail this gate"
    least = f"the smallest possible p with {n} prompts is {smallest_p(n):.4g}, alpha is {alpha:g}"
    if not can_pass and not can_fail:
        return f"this gate can neither pass nor fail: {least}"
    never = "fail" if can_pass else "pass"
    return f"this gate can never {never} with these {n} prompts"
