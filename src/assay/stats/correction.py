"""Correct a pass rate for a grader that is sometimes wrong (Rogan and Gladen)."""

import math

import msgspec

from assay.stats.agreement import Agreement, Share
from assay.stats.distributions import two_sided_z
from assay.stats.interval import Interval, make_interval


class CorrectedRate(msgspec.Struct, frozen=True, rename="camel"):
    """The pass rate people would have given; None where the labels cannot say."""

    rate: float | None
    interval: Interval | None
    note: str | None = None


def correct_rate(
    observed_rate: float, n_effective: float, agreement: Agreement, level: float = 0.95
) -> CorrectedRate:
    """Return (observed + specificity - 1) / (sensitivity + specificity - 1), cut to 0..1.

    The interval (Lang and Reiczigel 2014) holds the uncertainty of the labels as well as that of
    the rate; n_effective is rates.effective_sample_size of the graded prompts. It is centred
    elsewhere than the rate, and with a handful of labels of a kind is widened to hold it.
    """
    if not 0.0 <= observed_rate <= 1.0 or n_effective <= 0:
        msg = f"no rate of {observed_rate} over {n_effective} prompts is possible"
        raise ValueError(msg)
    good, bad = agreement.sensitivity, agreement.specificity
    if good.rate is None or bad.rate is None:
        missing = "passes" if good.rate is None else "fails"
        return CorrectedRate(None, None, f"no row that a human {missing} was labelled")
    gain = good.rate + bad.rate - 1.0
    if gain <= 0.0:
        everything = make_interval(0.0, 1.0, level, "grader no better than chance")
        return CorrectedRate(None, everything, "the grader is no better than chance")
    rate = min(max((observed_rate + bad.rate - 1.0) / gain, 0.0), 1.0)
    interval = _holding(rate, _corrected_interval(observed_rate, n_effective, good, bad, level))
    note = None if _beats_chance(good, bad) else "the grader may be no better than chance"
    return CorrectedRate(rate, interval, note)


def _beats_chance(good: Share, bad: Share) -> bool:
    low_good, low_bad = good.interval, bad.interval
    return low_good is not None and low_bad is not None and low_good.low + low_bad.low > 1.0


def _holding(rate: float, interval: Interval) -> Interval:
    low, high = min(interval.low, rate), max(interval.high, rate)
    return make_interval(low, high, interval.level, interval.method)


def _corrected_interval(
    observed: float, n: float, good: Share, bad: Share, level: float
) -> Interval:
    z = two_sided_z(level)
    n_wide = n + z * z
    rate = (n * observed + 0.5 * z * z) / n_wide
    sensitivity = (good.count + 1.0) / (good.total + 2.0)
    specificity = (bad.count + 1.0) / (bad.total + 2.0)
    gain = sensitivity + specificity - 1.0
    if gain <= 0.0:
        return make_interval(0.0, 1.0, level, "grader no better than chance")
    centre = (rate + specificity - 1.0) / gain
    noise_good = sensitivity * (1.0 - sensitivity) / (good.total + 2.0)
    noise_bad = specificity * (1.0 - specificity) / (bad.total + 2.0)
    shift = 2.0 * z * z * (centre * noise_good - (1.0 - centre) * noise_bad)
    variance = rate * (1.0 - rate) / n_wide
    variance += centre**2 * noise_good + (1.0 - centre) ** 2 * noise_bad
    reach = z * math.sqrt(variance) / gain
    middle = centre + shift
    return make_interval(middle - reach, middle + reach, level, "Lang-Reiczigel", (0.0, 1.0))
