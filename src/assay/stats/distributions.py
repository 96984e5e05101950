"""Distributions and quantiles without SciPy, and checks of arguments."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import msgspec
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
    if array.size and array.min() >= 0.0 and array.max() <= 1.0:
        return array
    return np.clip(array, 0.0, 1.0)


def as_counts(values: ArrayLike, name: str = "counts") -> Ints:
    """Return whole numbers >= 0; an array of them is not copied."""
    array = np.asarray(values)
    if array.dtype == np.int64 and array.ndim == 1 and (not array.size or array.min() >= 0):
        return array
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


_STANDARD_NORMAL = NormalDist()
# Beyond this the t and the normal quantile agree to seven digits.
_DF_NORMAL = 1e7
_MOST_STEPS = 200
# A Newton step doubles the correct digits: the next one would change nothing.
_CLOSE = 1e-9


def normal_quantile(probability: float) -> float:
    """Return z with P(Z <= z) = probability."""
    return _STANDARD_NORMAL.inv_cdf(probability)


def normal_cdf(z: float) -> float:
    """Return P(Z <= z); erfc keeps the far tail exact."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def t_cdf(t: float, df: float) -> float:
    """Return P(T <= t) for Student's t with df degrees of freedom."""
    if df <= 0:
        msg = f"degrees of freedom must be positive, got {df}"
        raise ValueError(msg)
    if df > _DF_NORMAL:
        return normal_cdf(t)
    if t * t < df:
        # Near the middle, the part between -t and t keeps the digits that the tail would lose.
        inside = 0.5 * _incomplete_beta(0.5, 0.5 * df, t * t / (df + t * t))
        return 0.5 - inside if t < 0 else 0.5 + inside
    tail = 0.5 * _incomplete_beta(0.5 * df, 0.5, df / (df + t * t))
    return tail if t < 0 else 1.0 - tail


def f_tail(value: float, df_above: float, df_below: float) -> float:
    """Return P(F > value) for the F distribution."""
    if value <= 0.0:
        return 1.0
    return _incomplete_beta(
        0.5 * df_below, 0.5 * df_above, df_below / (df_below + df_above * value)
    )


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """Return t with P(T <= t) = probability: Newton's method on the exact distribution.

    A step that leaves the bracket, as happens with one or two degrees of freedom, is replaced by a
    bisection.
    """
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    if df > _DF_NORMAL:
        return normal_quantile(probability)
    z = normal_quantile(probability)
    # Start from the first term of the Cornish-Fisher expansion in 1/df.
    t, low, high = z + (z**3 + z) / (4.0 * df), 0.0, math.inf
    for _ in range(_MOST_STEPS):
        excess = t_cdf(t, df) - probability
        low, high = (low, t) if excess > 0.0 else (t, high)
        after = t - excess / _t_density(t, df)
        if not low <= after <= high:
            after = 0.5 * (low + high) if high < math.inf else 2.0 * t
        t, before = after, t
        if abs(t - before) <= _CLOSE * t:
            break
    return t


def _t_density(t: float, df: float) -> float:
    log_scale = math.lgamma(0.5 * df + 0.5) - math.lgamma(0.5 * df) - 0.5 * math.log(math.pi * df)
    return math.exp(log_scale - 0.5 * (df + 1.0) * math.log1p(t * t / df))


def two_sided_t(level: float, df: float) -> float:
    """Return the multiplier of a two-sided t interval, such as 2.26 for 95 % and df = 9."""
    return t_quantile(0.5 + 0.5 * level, df)


def two_sided_z(level: float) -> float:
    """Return the multiplier of a two-sided normal interval, such as 1.96 for 95 %."""
    return normal_quantile(0.5 + 0.5 * level)


def binomial_pmf(n: int, probability: float) -> Floats:
    """Return P(X = 0), ..., P(X = n); computed in logarithms so that large n stay finite."""
    if n < 0 or not 0.0 <= probability <= 1.0:
        msg = f"no binomial distribution has n = {n}, p = {probability}"
        raise ValueError(msg)
    x = np.arange(n + 1, dtype=np.float64)
    if probability in (0.0, 1.0):
        return np.where(x == n * probability, 1.0, 0.0)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(x[1:]))))
    log_pmf = log_factorial[n] - log_factorial - log_factorial[::-1]
    log_pmf += x * math.log(probability) + (n - x) * math.log1p(-probability)
    pmf = np.exp(log_pmf)
    # The sum of logarithms loses digits as n grows; the total is known to be one.
    result: Floats = pmf / pmf.sum()
    return result


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = a * math.log(x) + b * math.log1p(-x)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front)
    # The continued fraction converges fast only on its own side of the mean.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (modified Lentz's method)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d, tiny)
            c = _away_from_zero(1.0 + term / c, tiny)
            step = c * d
            value *= step
        if abs(step - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """Count, mean, range and quantiles of a column of numbers."""

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


def quantiles(values: Floats, shares: Sequence[float]) -> list[float]:
    """Return quantiles with linear interpolation, as np.quantile does.

    np.quantile imports numpy's masked arrays at its first call, which takes longer than all of
    this.
    """
    places = np.asarray(shares, dtype=np.float64) * (values.size - 1)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, values.size - 1)
    ordered = np.partition(values, np.concatenate((below, above)))
    low, high = ordered[below], ordered[above]
    found: list[float] = (low + (high - low) * (places - below)).tolist()
    return found
