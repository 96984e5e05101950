"""What trials that were not measured leave open: the answer if all had failed or all had passed."""

import msgspec
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, as_counts, as_tallies, require_same_length


class Bounds(msgspec.Struct, frozen=True, rename="camel"):
    """Worst and best case (Manski bounds): certain, but silent about sampling error."""

    low: float
    high: float
    n_not_measured: int


def bound_rate(passes: ArrayLike, measured: ArrayLike, planned: ArrayLike) -> Bounds | None:
    """Return the mean pass rate over planned prompts with missing trials failed, or passed."""
    low, high, n_missing = _extreme_rates(passes, measured, planned)
    if low.size == 0:
        return None
    return Bounds(float(low.mean()), float(high.mean()), n_missing)


def bound_difference(
    run_a: tuple[ArrayLike, ArrayLike, ArrayLike], run_b: tuple[ArrayLike, ArrayLike, ArrayLike]
) -> Bounds | None:
    """Return the bounds of rate B minus rate A; each run is (passes, measured, planned)."""
    low_a, high_a, missing_a = _extreme_rates(*run_a)
    low_b, high_b, missing_b = _extreme_rates(*run_b)
    require_same_length(low_a, low_b, "the prompts of both runs")
    if low_a.size == 0:
        return None
    low, high = float((low_b - high_a).mean()), float((high_b - low_a).mean())
    return Bounds(low, high, missing_a + missing_b)


def _extreme_rates(
    passes: ArrayLike, measured: ArrayLike, planned: ArrayLike
) -> tuple[Floats, Floats, int]:
    n_passed, n_measured = as_tallies(passes, measured)
    n_planned = as_counts(planned, "planned")
    require_same_length(n_measured, n_planned, "measured and planned")
    if (n_planned < n_measured).any() or (n_planned == 0).any():
        msg = "every prompt needs at least one planned trial and no more measured than planned"
        raise ValueError(msg)
    missing = n_planned - n_measured
    return n_passed / n_planned, (n_passed + missing) / n_planned, int(missing.sum())
