"""How much one prompt's difference between two runs varies, from a pilot or from assumptions."""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import as_values
from assay.stats.variance import VarianceSplit


class PairedSpread(msgspec.Struct, frozen=True, rename="camel"):
    """Variance of one prompt's difference between two runs: a part repeats keep, one they thin."""

    between: float
    within: float

    def variance(self, n_trials: float) -> float:
        """Return the variance of one prompt's difference with n_trials in each run."""
        return self.between + self.within / n_trials


def measure_spread(
    differences: ArrayLike, within: float | None = None, n_trials: float = 1.0
) -> PairedSpread:
    """Return the spread seen in a pilot of two runs.

    `within` is the within-prompt variance of run A plus that of run B; unknown with single trials,
    and then all variance counts as one that repeats cannot thin (the cautious reading).
    """
    d = as_values(differences, "differences")
    if d.size < 2:
        msg = "a pilot needs at least two prompts to show a spread"
        raise ValueError(msg)
    seen = float(np.var(d, ddof=1))
    if within is None:
        return PairedSpread(between=seen, within=0.0)
    return PairedSpread(between=max(0.0, seen - within / n_trials), within=within)


def spread_from_one_run(split: VarianceSplit, prompt_correlation: float = 0.5) -> PairedSpread:
    """Return the spread to expect against a second run that is as noisy as this one.

    How far two agents find the same prompts hard cannot be seen in one run: it is assumed.
    """
    if split.total is None:
        msg = "a pilot needs at least two prompts to show a spread"
        raise ValueError(msg)
    between = split.total if split.between is None else split.between
    within = split.within or 0.0
    return PairedSpread(between=2.0 * between * (1.0 - prompt_correlation), within=2.0 * within)


def assume_spread(
    rate_a: float, rate_b: float, *, icc: float = 0.5, prompt_correlation: float = 0.5
) -> PairedSpread:
    """Return the spread of pass/fail trials from assumed rates, without a pilot."""
    if not all(0.0 <= x <= 1.0 for x in (rate_a, rate_b, icc, prompt_correlation)):
        msg = "rates, icc and prompt correlation must lie between 0 and 1"
        raise ValueError(msg)
    var_a, var_b = rate_a * (1.0 - rate_a), rate_b * (1.0 - rate_b)
    shared = prompt_correlation * math.sqrt(var_a * var_b)
    between = icc * (var_a + var_b - 2.0 * shared)
    return PairedSpread(between=between, within=(1.0 - icc) * (var_a + var_b))


def spread_from_discordance(rate_a: float, rate_b: float, discordance: float) -> PairedSpread:
    """Return the spread of single trials of which a given share comes out differently."""
    if not abs(rate_b - rate_a) <= discordance <= 1.0:
        msg = f"discordance must lie between |{rate_b} - {rate_a}| and 1, got {discordance}"
        raise ValueError(msg)
    return PairedSpread(between=discordance - (rate_b - rate_a) ** 2, within=0.0)
