"""The few distributions the room needs (normal, Student t, binomial), without SciPy."""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from assay.stats.checked import Floats

_STANDARD_NORMAL = NormalDist()
# Beyond this the t and the normal quantile agree to seven digits.
_DF_NORMAL = 1e7
_MOST_STEPS = 200
# A step of Newton's doubles the digits: the next one would change nothing.
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


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """Return t with P(T <= t) = probability: Newton's steps on the exact distribution.

    A step that leaves the bracket, as happens with one or two degrees of freedom, is halved.
    """
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    if df > _DF_NORMAL:
        return normal_quantile(probability)
    z = normal_quantile(probability)
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
    """Evaluate the continued fraction of the incomplete beta function (Lentz's method)."""
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
