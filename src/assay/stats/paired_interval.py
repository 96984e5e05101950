"""The interval of a mean paired difference in -1..1: of pass rates or of scores."""

import math

import numpy as np

from assay.stats.checked import Floats
from assay.stats.distributions import two_sided_t
from assay.stats.interval import Interval, make_interval


def paired_interval(
    differences: Floats, pseudo_size: float, level: float = 0.95
) -> tuple[Interval, float]:
    """Return the interval of the mean and the (smoothed) variance of one prompt's difference.

    Bonett and Price's idea for paired proportions: half a pseudo-prompt is added on either side
    and t replaces z. Where no prompt differs the rule of three takes over: up to
    1 - (1-level)^(1/n) of all prompts may differ, unseen, and all one way. So it never has zero
    width. How often it holds the truth is measured in benchmarks/coverage.py.
    """
    n = int(differences.size)
    centre = float(differences.sum()) / (n + 1)
    variance = (float(np.square(differences).sum()) + pseudo_size**2) / (n + 1) - centre**2
    reach = two_sided_t(level, max(n - 1, 1)) * math.sqrt(variance / (n + 1))
    if not differences.any():
        reach = max(reach, 1.0 - (1.0 - level) ** (1.0 / n))
    limits = (centre - reach, centre + reach)
    return make_interval(*limits, level, "paired by prompt, adjusted t", (-1.0, 1.0)), variance


def pseudo_size_of_rates(trials_per_prompt: float) -> float:
    """Return how far apart the two rates of a pseudo-prompt are.

    Chosen by simulation over k = 1..10: 1 is too wide for k trials, 1/sqrt(k) too narrow.
    """
    return math.pow(trials_per_prompt, -0.25)


def pseudo_size_of_scores(differences: Floats) -> float:
    """Return the geometric mean of the largest difference seen and the largest possible, 1.

    Finely graded scores that move by hundredths would drown in pseudo-prompts of size 1; the
    largest difference alone is too sure of itself where most prompts tie.
    """
    largest = float(np.abs(differences).max())
    return math.sqrt(largest) if largest > 0.0 else 1.0
