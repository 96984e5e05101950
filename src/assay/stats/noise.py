"""What makes a difference uncertain beside prompts and trials: builds that vary, judges that err.

More prompts and more trials do not reduce it, so it stands beside the variance of the prompts, with
degrees of freedom of its own (Satterthwaite).
"""

import math
from collections.abc import Sequence

import msgspec


class Noise(msgspec.Struct, frozen=True, rename="camel"):
    """One source of it."""

    variance: float
    """Of the difference between two runs."""
    seen: float
    """The variance that the degrees of freedom belong to, if it is another one: an estimate of 0 is
    no proof that there is no noise."""
    df: float


def total_variance(rest: float, noise: Sequence[Noise]) -> float:
    """Return the variance of a difference; rest is what prompts and trials make of it."""
    return rest + sum(one.variance for one in noise)


def total_df(rest: float, rest_df: float, noise: Sequence[Noise]) -> float:
    """Return the degrees of freedom of the total variance."""
    total = total_variance(rest, noise)
    if not noise or total <= 0.0:
        return rest_df
    parts = rest**2 / rest_df + sum(one.seen**2 / one.df for one in noise)
    return min(max(1.0, total**2 / parts), rest_df) if parts > 0.0 else rest_df


class BuildNoise(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much the pass rate of a build varies beyond chance between its trials (moments)."""

    n_builds: int
    variance: float
    """Of a build's effect; 0 where chance between trials explains what was seen."""
    seen: float
    """Variance of the builds' rates as it was seen, chance between trials included."""
    share: float
    """Sum of the squared shares of the builds in the baseline's trials: 1/n for n equal ones."""

    @property
    def sd(self) -> float:
        """Standard deviation of a build's effect."""
        return math.sqrt(self.variance)

    def of_mean(self) -> Noise:
        """Return what builds add to the rate of this baseline."""
        return Noise(self.variance * self.share, self.seen * self.share, self.n_builds - 1)

    def of_difference(self) -> Noise:
        """Return what builds add to the difference of one more build from this baseline."""
        share = self.share + 1.0
        return Noise(self.variance * share, self.seen * share, self.n_builds - 1)


class JudgeErrors(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often a judge is right, from labels of people, and how sure that is."""

    sensitivity: float
    specificity: float
    variance: float
    """Of the gain, with prompts as the units."""
    df: float

    @property
    def gain(self) -> float:
        """Sensitivity + specificity - 1: what a judge leaves of a difference (Youden's J)."""
        return self.sensitivity + self.specificity - 1.0

    def noise(self, difference: float, before: Sequence[Noise]) -> tuple[Noise, ...]:
        """Return what is uncertain of a corrected difference beside its prompts."""
        scaled = [Noise(n.variance / self.gain**2, n.seen / self.gain**2, n.df) for n in before]
        own = difference**2 * self.variance / self.gain**2
        return (*scaled, Noise(own, own, self.df))
