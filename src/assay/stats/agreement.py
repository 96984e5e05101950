"""How far a grader agrees with human labels."""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.stats.distributions import two_sided_z
from assay.stats.interval import Interval, make_interval
from assay.stats.rates import wilson_interval


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


def measure_agreement(human: ArrayLike, grader: ArrayLike, level: float = 0.95) -> Agreement:
    """Compare pass/fail labels of the same rows in the same order."""
    truth, said = _as_labels(human, "human"), _as_labels(grader, "grader")
    if truth.shape != said.shape:
        msg = f"human and grader need as many labels each, got {truth.size} and {said.size}"
        raise ValueError(msg)
    both_pass, both_fail = int((truth & said).sum()), int((~truth & ~said).sum())
    only_grader, only_human = int((~truth & said).sum()), int((truth & ~said).sum())
    cells = np.array([[both_pass, only_human], [only_grader, both_fail]], dtype=np.float64)
    kappa, interval = _kappa(cells, level)
    return Agreement(
        n=int(truth.size),
        both_pass=both_pass,
        both_fail=both_fail,
        only_grader_passes=only_grader,
        only_human_passes=only_human,
        agreement=_share(both_pass + both_fail, int(truth.size), level),
        kappa=kappa,
        kappa_interval=interval,
        sensitivity=_share(both_pass, both_pass + only_human, level),
        specificity=_share(both_fail, both_fail + only_grader, level),
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


def _share(count: int, total: int, level: float) -> Share:
    rate = count / total if total else None
    return Share(count, total, rate, wilson_interval(count, total, level))


def _kappa(cells: NDArray[np.float64], level: float) -> tuple[float | None, Interval | None]:
    """Return Cohen's kappa and its large-sample interval (Fleiss, Cohen and Everitt 1969)."""
    n = float(cells.sum())
    if n == 0:
        return None, None
    p = cells / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    agreed, chance = float(np.trace(p)), float(rows @ columns)
    if chance >= 1.0:
        # One label for everything, on both sides: agreement by chance cannot be told apart.
        return None, None
    kappa = (agreed - chance) / (1.0 - chance)
    weights = columns[:, None] + rows[None, :]
    on = float((np.diag(p) * (1.0 - np.diag(weights) * (1.0 - kappa)) ** 2).sum())
    off_cells = p * weights**2
    off = (1.0 - kappa) ** 2 * float(off_cells.sum() - np.trace(off_cells))
    spread = on + off - (kappa - chance * (1.0 - kappa)) ** 2
    if spread < 1e-12:
        # All labels in one pattern: the formula would claim certainty.
        return kappa, _kappa_from_wilson(round(agreed * n), round(n), chance, level)
    reach = two_sided_z(level) * math.sqrt(spread / n) / (1.0 - chance)
    limits = (kappa - reach, kappa + reach)
    return kappa, make_interval(*limits, level, "large-sample", (-1.0, 1.0))


def _kappa_from_wilson(n_agreed: int, n: int, chance: float, level: float) -> Interval | None:
    shares = wilson_interval(n_agreed, n, level)
    if shares is None:
        return None
    low, high = ((limit - chance) / (1.0 - chance) for limit in (shares.low, shares.high))
    return make_interval(low, high, level, "from Wilson's limits of agreement", (-1.0, 1.0))
