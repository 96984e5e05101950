"""Describe a list of numbers: mean, range and interpolated quantiles."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, as_values


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """What a column of numbers looks like."""

    n: int
    mean: float
    min: float
    max: float
    p25: float
    p50: float
    p75: float
    p90: float
    p99: float


def summarize_values(values: ArrayLike) -> Summary | None:
    """Return the summary, or None for an empty list: nothing measured is not zero."""
    array = as_values(values)
    if array.size == 0:
        return None
    p25, p50, p75, p90, p99 = quantiles(array, (0.25, 0.5, 0.75, 0.9, 0.99))
    return Summary(
        n=int(array.size),
        mean=float(array.mean()),
        min=float(array.min()),
        max=float(array.max()),
        p25=p25,
        p50=p50,
        p75=p75,
        p90=p90,
        p99=p99,
    )


def interpolated_quantile(values: ArrayLike, share: float) -> float | None:
    """Return one quantile with linear interpolation, or None for an empty list."""
    array = as_values(values)
    if not 0.0 <= share <= 1.0:
        msg = f"a quantile is asked for as a share in 0..1, got {share}"
        raise ValueError(msg)
    return quantiles(array, (share,))[0] if array.size else None


def quantiles(values: Floats, shares: Sequence[float]) -> list[float]:
    """Return quantiles with linear interpolation, as np.quantile does.

    That one imports numpy's masked arrays at its first call, which takes longer than all of this.
    """
    places = np.asarray(shares, dtype=np.float64) * (values.size - 1)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, values.size - 1)
    ordered = np.partition(values, np.concatenate((below, above)))
    low, high = ordered[below], ordered[above]
    found: list[float] = (low + (high - low) * (places - below)).tolist()
    return found
