"""The record of an interval: where the truth plausibly lies, and by which method."""

import msgspec

from assay.stats.distributions import require_level


class Interval(msgspec.Struct, frozen=True, rename="camel"):
    """A two-sided confidence interval; `method` is for the reader of a report."""

    low: float
    high: float
    level: float
    method: str

    def contains(self, value: float) -> bool:
        """Say whether the value lies inside, limits included."""
        return self.low <= value <= self.high


def make_interval(
    low: float,
    high: float,
    level: float,
    method: str,
    bounds: tuple[float, float] = (float("-inf"), float("inf")),
) -> Interval:
    """Build an interval from any float-like limits, cut to what is possible at all."""
    require_level(level)
    return Interval(
        low=float(min(max(low, bounds[0]), bounds[1])),
        high=float(max(min(high, bounds[1]), bounds[0])),
        level=float(level),
        method=method,
    )
