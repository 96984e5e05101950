"""Describe a list of numbers: mean, range and interpolated quantiles."""

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import as_values


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
    p25, p50, p75, p90, p99 = np.quantile(array, (0.25, 0.5, 0.75, 0.9, 0.99)).tolist()
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
    return float(np.quantile(array, share)) if array.size else None
