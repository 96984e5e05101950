"""Turn what a caller gives into arrays that are safe to calculate with, or say what is wrong."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]


def as_values(values: ArrayLike, name: str = "values") -> Floats:
    """Return a flat array of finite numbers; NaN and infinity are refused by name."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        msg = f"{name} must be a flat list of numbers, not {array.ndim}-dimensional"
        raise ValueError(msg)
    if not np.isfinite(array).all():
        msg = f"{name} contains NaN or infinity; leave out what was not measured"
        raise ValueError(msg)
    return array


def as_shares(values: ArrayLike, name: str = "values") -> Floats:
    """Return numbers that all lie in 0..1."""
    array = as_values(values, name)
    # Means of trials may miss 0 or 1 by a rounding error; more than that is a mistake.
    if array.size and (array.min() < -1e-9 or array.max() > 1 + 1e-9):
        msg = f"{name} must lie between 0 and 1, got {array.min()}..{array.max()}"
        raise ValueError(msg)
    return np.clip(array, 0.0, 1.0)


def as_counts(values: ArrayLike, name: str = "counts") -> Ints:
    """Return whole numbers >= 0."""
    array = as_values(values, name)
    if array.size and (array.min() < 0 or (array != np.rint(array)).any()):
        msg = f"{name} must be whole numbers of at least 0"
        raise ValueError(msg)
    return array.astype(np.int64)


def as_tallies(passes: ArrayLike, measured: ArrayLike) -> tuple[Ints, Ints]:
    """Return passes and measured trials per prompt, checked against each other."""
    n_passed, n_measured = as_counts(passes, "passes"), as_counts(measured, "measured")
    require_same_length(n_passed, n_measured, "passes and measured")
    if (n_passed > n_measured).any():
        msg = "a prompt has more passes than measured trials"
        raise ValueError(msg)
    return n_passed, n_measured


def require_same_length(left: Floats | Ints, right: Floats | Ints, names: str) -> None:
    """Refuse arrays that do not belong together."""
    if left.shape != right.shape:
        msg = f"{names} must have the same length, got {left.size} and {right.size}"
        raise ValueError(msg)


def require_level(level: float) -> None:
    """Refuse a confidence level outside 0..1 (95 instead of 0.95 is the usual slip)."""
    if not 0.0 < level < 1.0:
        msg = f"level must lie between 0 and 1 (for example 0.95), got {level}"
        raise ValueError(msg)
