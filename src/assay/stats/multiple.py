"""Keep the false alarms of many comparisons together at the level of one (Holm)."""

import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, as_shares


def adjust_holm(p_values: ArrayLike) -> Floats:
    """Return Holm-adjusted p-values in the given order; compare each with the wanted alpha."""
    p = as_shares(p_values, "p-values")
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted
