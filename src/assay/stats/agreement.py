"""How far a grader agrees with human labels, and a pass rate corrected for its errors."""

import math
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.stats.distributions import Floats, Ints, two_sided_t, two_sided_z
from assay.stats.paired import cluster_sums
from assay.stats.rates import Interval, make_interval, wilson_interval, wilson_limits


class Share(msgspec.Struct, frozen=True, rename="camel"):
    """A count as a rate with its interval; None when there was nothing to count."""

    count: int
    total: int
    rate: float | None
    interval: Interval | None


class Agreement(msgspec.Struct, frozen=True, rename="camel"):
    """The grader against people, whose labels count as the truth."""

    n: int
    both_pass: int
    both_fail: int
    only_grader_passes: int
    only_human_passes: int
    agreement: Share
    kappa: float | None
    kappa_interval: Interval | None
    sensitivity: Share
    specificity: Share


def measure_agreement(
    human: ArrayLike, grader: ArrayLike, level: float = 0.95, prompts: Ints | None = None
) -> Agreement:
    """Compare pass/fail labels of the same rows in the same order.

    prompts has the number of each row's prompt: rows of one prompt are a cluster.
    """
    truth, verdicts = _as_labels(human, "human"), _as_labels(grader, "grader")
    if truth.shape != verdicts.shape:
        msg = f"human and grader need as many labels each, got {truth.size} and {verdicts.size}"
        raise ValueError(msg)
    both_pass, both_fail = int((truth & verdicts).sum()), int((~truth & ~verdicts).sum())
    only_grader, only_human = int((~truth & verdicts).sum()), int((truth & ~verdicts).sum())
    cells = np.array([[both_pass, only_human], [only_grader, both_fail]], dtype=np.float64)
    kappa, interval = _kappa(cells, level)
    if prompts is not None and interval is not None and kappa is not None:
        effect = design_effect(truth == verdicts, np.ones(truth.size, bool), prompts)
        interval = _stretched(kappa, interval, math.sqrt(effect))

    def share(right: NDArray[np.bool_], among: NDArray[np.bool_]) -> Share:
        return _share(right, among, level, prompts)

    return Agreement(
        n=int(truth.size),
        both_pass=both_pass,
        both_fail=both_fail,
        only_grader_passes=only_grader,
        only_human_passes=only_human,
        agreement=share(truth == verdicts, np.ones(truth.size, bool)),
        kappa=kappa,
        kappa_interval=interval,
        sensitivity=share(verdicts, truth),
        specificity=share(~verdicts, ~truth),
    )


def _as_labels(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    array = np.asarray(values)
    if array.ndim != 1:
        msg = f"{name} labels must be a flat list"
        raise ValueError(msg)
    # isin refuses NaN, None and scores: a label is a yes or a no.
    if array.size and not np.isin(array, (0, 1)).all():
        msg = f"{name} labels must be true or false"
        raise ValueError(msg)
    return array.astype(bool)


def _share(
    right: NDArray[np.bool_], among: NDArray[np.bool_], level: float, prompts: Ints | None
) -> Share:
    count, total = int((right & among).sum()), int(among.sum())
    interval = wilson_interval(count, total, level)
    if prompts is not None and interval is not None:
        n_units = len(np.unique(prompts[among]))
        if n_units < total:
            z = two_sided_t(level, max(n_units - 1, 1))
            n = total / design_effect(right, among, prompts)
            low, high = wilson_limits(count / total, n, z)
            interval = make_interval(low, high, level, "Wilson, clustered by prompt", (0.0, 1.0))
    return Share(count, total, count / total if total else None, interval)


def design_effect(right: NDArray[np.bool_], among: NDArray[np.bool_], prompts: Ints) -> float:
    """Return how many times the variance of a share is that of independent rows.

    Where all rows are alike nothing is seen of it, and each prompt counts as one row.
    """
    rate, total = float(right[among].mean()), int(among.sum())
    own = prompts[among]
    n_units = len(np.unique(own))
    alone = rate * (1.0 - rate) / total
    if alone == 0.0 or n_units < 2:
        return total / n_units
    units = cluster_sums(right[among].astype(np.float64) - rate, own)
    seen = n_units / (n_units - 1) * float(np.square(units).sum()) / total**2
    return max(1.0, seen / alone)


def _stretched(value: float, interval: Interval, factor: float) -> Interval:
    low = value - factor * (value - interval.low)
    high = value + factor * (interval.high - value)
    return make_interval(low, high, interval.level, interval.method, (-1.0, 1.0))


class LabelledFile(NamedTuple):
    """All graded rows of a file, by prompt, and those of them that people have labelled."""

    graded: Ints
    passed: Ints
    """Rows of each prompt, and how many of them the grader passed."""
    prompts: Ints
    """The prompt of each label."""
    human: NDArray[np.bool_]
    grader: NDArray[np.bool_]

    @property
    def is_clustered(self) -> bool:
        """Whether any prompt has several rows."""
        return bool((self.graded > 1).any())

    @property
    def rate(self) -> float:
        """How many of all rows the grader passed."""
        return float(self.passed.sum() / self.graded.sum())

    def observed_influence(self) -> Floats:
        """Return what each prompt adds to the error of the rate."""
        influence: Floats = (self.passed - self.rate * self.graded) / self.graded.sum()
        return influence

    def of_labels(self, values: Floats) -> Floats:
        """Add up values of labels by prompt."""
        return np.bincount(self.prompts, values, len(self.graded))


def clustered_rate(
    file: LabelledFile, *, drawn: bool, level: float = 0.95
) -> "CorrectedRate | None":
    """Return the pass rate that people would give, with prompts as the units.

    drawn: labels were drawn by verdict, and stand for all rows of that verdict. Otherwise it is
    that of Rogan and Gladen. The error is linear in what each prompt adds to it; None if labels of
    a kind are missing or no prompt has several rows.
    """
    if not file.is_clustered:
        return None
    one, rate = _by_verdict(file) if drawn else _by_truth(file)
    if rate is None:
        return None
    n = len(one)
    variance = n / max(n - 1, 1) * float(np.square(one).sum())
    t = two_sided_t(level, max(len(np.unique(file.prompts)) - 1, 1))
    low, high = rate - t * math.sqrt(variance), rate + t * math.sqrt(variance)
    if 0.0 < rate < 1.0 and variance > 0.0:
        # As many independent rows as would have this variance: near 0 and 1 limits are not even.
        low, high = wilson_limits(rate, rate * (1.0 - rate) / variance, t)
    method = "post-stratified by verdict" if drawn else "Rogan-Gladen"
    interval = make_interval(low, high, level, f"{method}, clustered by prompt", (0.0, 1.0))
    return CorrectedRate(min(max(rate, 0.0), 1.0), interval)


def _by_verdict(file: LabelledFile) -> tuple[Floats, float | None]:
    passed = file.grader
    if passed.all() or not passed.any():
        return np.zeros(0), None
    share, human = file.rate, file.human
    good, bad = float(human[passed].mean()), float(human[~passed].mean())
    n_good, n_bad = int(passed.sum()), int((~passed).sum())
    labels = np.where(
        passed, share * (human - good) / n_good, (1.0 - share) * (human - bad) / n_bad
    )
    influence = file.observed_influence() * (good - bad) + file.of_labels(labels)
    return influence, share * good + (1.0 - share) * bad


def _by_truth(file: LabelledFile) -> tuple[Floats, float | None]:
    errors = judge_errors(file)
    if errors is None or errors.gain <= 0.0:
        return np.zeros(0), None
    rate = (file.rate + errors.specificity - 1.0) / errors.gain
    right, wrong = errors.influence
    influence = file.observed_influence() - rate * right + (1.0 - rate) * wrong
    return influence / errors.gain, rate


class JudgeInfluence(NamedTuple):
    """Sensitivity and specificity of a grader, and what each prompt adds to their errors."""

    sensitivity: float
    specificity: float
    influence: tuple[Floats, Floats]

    @property
    def gain(self) -> float:
        """Youden's J: 0 for a grader that guesses."""
        return self.sensitivity + self.specificity - 1.0


def judge_errors(file: LabelledFile) -> JudgeInfluence | None:
    """Return how often a grader is right; None if people passed, or failed, no row."""
    human, grader = file.human, file.grader
    if human.all() or not human.any():
        return None
    good, bad = float(grader[human].mean()), float((~grader[~human]).mean())
    right = np.where(human, (grader - good) / human.sum(), 0.0)
    wrong = np.where(human, 0.0, (~grader - bad) / (~human).sum())
    return JudgeInfluence(good, bad, (file.of_labels(right), file.of_labels(wrong)))


def _kappa(cells: NDArray[np.float64], level: float) -> tuple[float | None, Interval | None]:
    """Return Cohen's kappa and its interval.

    It is the large-sample interval (Fleiss, Cohen and Everitt 1969) with half a label added to
    each cell and t for z: the plain one covers as little as 80 % where labels of a kind are few.
    """
    n = float(cells.sum())
    if n == 0:
        return None, None
    kappa, _ = _kappa_and_error(cells)
    if kappa is None:
        # Both sides gave one and the same label throughout: kappa would be 0/0.
        return None, None
    centre, error = _kappa_and_error(cells + 0.5)
    assert centre is not None
    reach = two_sided_t(level, max(n - 1.0, 1.0)) * error
    low, high = min(centre - reach, kappa), max(centre + reach, kappa)
    return kappa, make_interval(low, high, level, "large-sample, adjusted", (-1.0, 1.0))


def _kappa_and_error(cells: NDArray[np.float64]) -> tuple[float | None, float]:
    n = float(cells.sum())
    p = cells / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    agreed, chance = float(np.trace(p)), float(rows @ columns)
    if chance >= 1.0:
        return None, 0.0
    kappa = (agreed - chance) / (1.0 - chance)
    # Delta-method variance: cells on the diagonal, cells off it, less the squared mean.
    weights = columns[:, None] + rows[None, :]
    on = float((np.diag(p) * (1.0 - np.diag(weights) * (1.0 - kappa)) ** 2).sum())
    off_cells = p * weights**2
    off = (1.0 - kappa) ** 2 * float(off_cells.sum() - np.trace(off_cells))
    spread = max(0.0, on + off - (kappa - chance * (1.0 - kappa)) ** 2)
    return kappa, math.sqrt(spread / n) / (1.0 - chance)


class CorrectedRate(msgspec.Struct, frozen=True, rename="camel"):
    """The pass rate people would have given; None where the labels cannot tell."""

    rate: float | None
    interval: Interval | None
    note: str | None = None


def stratified_rate(
    n_passed: int, n_graded: int, agreement: Agreement, level: float = 0.95
) -> CorrectedRate:
    """Return the pass rate that people would give, from labels drawn by verdict.

    The labels of rows that the grader passed stand for all of those, and so do those of rows that
    it failed (post-stratification). The interval is 1.4 to 2.8 times narrower than that of
    correct_rate, which holds wherever labels come from; this one needs them to be drawn at random
    among the rows of a verdict, as `calibrate --export` does.
    """
    share = n_passed / n_graded
    strata = (
        (share, agreement.both_pass, agreement.both_pass + agreement.only_grader_passes),
        (
            1.0 - share,
            agreement.only_human_passes,
            agreement.only_human_passes + agreement.both_fail,
        ),
    )
    if any(weight > 0.0 and total == 0 for weight, _, total in strata):
        return CorrectedRate(None, None, "rows of one verdict have no label")
    rate = sum(weight * count / total for weight, count, total in strata if total)
    # One label of each kind is added to both strata, as in Agresti and Caffo's interval.
    likely = [(count + 1.0) / (total + 2.0) for _, count, total in strata]
    centre = share * likely[0] + (1.0 - share) * likely[1]
    variance = share * (1.0 - share) * (likely[0] - likely[1]) ** 2 / n_graded
    for (weight, _, total), p in zip(strata, likely, strict=True):
        variance += weight**2 * p * (1.0 - p) / (total + 2.0)
    reach = two_sided_t(level, max(agreement.n - 1.0, 1.0)) * math.sqrt(variance)
    low, high = min(centre - reach, rate), max(centre + reach, rate)
    interval = make_interval(low, high, level, "post-stratified by verdict", (0.0, 1.0))
    return CorrectedRate(rate, interval)


def correct_rate(
    observed_rate: float, n_effective: float, agreement: Agreement, level: float = 0.95
) -> CorrectedRate:
    """Return the Rogan-Gladen estimate of the pass rate that people would give, cut to 0..1.

    It is (observed + specificity - 1) / (sensitivity + specificity - 1). The interval (Lang and
    Reiczigel 2014) covers the uncertainty of the labels as well as that of the rate; n_effective is
    how many independent prompts the rate is worth. The interval is centred elsewhere than the rate,
    and with a handful of labels of a kind is widened to include it.
    """
    if not 0.0 <= observed_rate <= 1.0 or n_effective <= 0:
        msg = f"no rate of {observed_rate} over {n_effective} prompts is possible"
        raise ValueError(msg)
    good, bad = agreement.sensitivity, agreement.specificity
    if good.rate is None or bad.rate is None:
        missing = "passes" if good.rate is None else "fails"
        return CorrectedRate(None, None, f"no row that a human {missing} was labelled")
    gain = good.rate + bad.rate - 1.0  # Youden's J: 0 for a grader that guesses
    if gain <= 0.0:
        everything = make_interval(0.0, 1.0, level, "grader no better than chance")
        return CorrectedRate(None, everything, "the grader is no better than chance")
    rate = min(max((observed_rate + bad.rate - 1.0) / gain, 0.0), 1.0)
    interval = _corrected_interval(observed_rate, n_effective, good, bad, level)
    note = None if _beats_chance(good, bad) else "the grader may be no better than chance"
    return CorrectedRate(rate, _widened_to(rate, interval), note)


def _beats_chance(good: Share, bad: Share) -> bool:
    low_good, low_bad = good.interval, bad.interval
    return low_good is not None and low_bad is not None and low_good.low + low_bad.low > 1.0


def _widened_to(rate: float, interval: Interval) -> Interval:
    low, high = min(interval.low, rate), max(interval.high, rate)
    return make_interval(low, high, interval.level, interval.method)


def _corrected_interval(
    observed: float, n: float, good: Share, bad: Share, level: float
) -> Interval:
    z = two_sided_z(level)
    # All three rates are shrunk: the observed one as in Agresti and Coull's interval, by z^2/2
    # passes and as many fails, the labels by one of each.
    n_wide = n + z * z
    rate = (n * observed + 0.5 * z * z) / n_wide
    sensitivity = (good.count + 1.0) / (good.total + 2.0)
    specificity = (bad.count + 1.0) / (bad.total + 2.0)
    gain = sensitivity + specificity - 1.0
    if gain <= 0.0:
        return make_interval(0.0, 1.0, level, "grader no better than chance")
    centre = (rate + specificity - 1.0) / gain
    variance_good = sensitivity * (1.0 - sensitivity) / (good.total + 2.0)
    variance_bad = specificity * (1.0 - specificity) / (bad.total + 2.0)
    # Their correction of the centre for the uncertainty of the labels.
    shift = 2.0 * z * z * (centre * variance_good - (1.0 - centre) * variance_bad)
    variance = rate * (1.0 - rate) / n_wide
    variance += centre**2 * variance_good + (1.0 - centre) ** 2 * variance_bad
    reach = z * math.sqrt(variance) / gain
    middle = centre + shift
    return make_interval(middle - reach, middle + reach, level, "Lang-Reiczigel", (0.0, 1.0))
