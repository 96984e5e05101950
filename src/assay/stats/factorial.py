"""Several treatments at once: which arms to run, and the effect of each treatment on its own.

A two-level design: each treatment is on or off in each arm. All combinations of three are eight
arms, of eight 256. A fraction is enough for the main effects: the further treatments are switched
by the parity of some of the first ones, so that each is on in half of the arms and every two of
them in a quarter. The fractions here are of resolution IV or more: a main effect is never mixed up
with an interaction of two treatments, only with one of three.
"""

from collections.abc import Sequence
from itertools import product

import msgspec
import numpy as np

from assay.stats.distributions import Floats
from assay.stats.paired import compare_scores
from assay.stats.rates import Interval
from assay.stats.significance import adjust_holm

MOST_FACTORS = 8
_GENERATORS: dict[int, tuple[int, tuple[tuple[int, ...], ...]]] = {
    4: (3, ((0, 1, 2),)),
    5: (4, ((0, 1, 2, 3),)),
    6: (4, ((0, 1, 2), (1, 2, 3))),
    7: (4, ((0, 1, 2), (1, 2, 3), (0, 2, 3))),
    8: (4, ((1, 2, 3), (0, 2, 3), (0, 1, 2), (0, 1, 3))),
}
"""For this many treatments: how many vary freely, and whose parity switches each of the others."""


def two_level_design(n_factors: int) -> list[tuple[bool, ...]]:
    """Return for each arm which treatments are on; in the first arm none is."""
    if not 1 <= n_factors <= MOST_FACTORS:
        msg = f"a design has 1 to {MOST_FACTORS} treatments, not {n_factors}"
        raise ValueError(msg)
    n_free, generators = _GENERATORS.get(n_factors, (n_factors, ()))
    return [
        (*bits, *(sum(bits[i] for i in parity) % 2 == 1 for parity in generators))
        for bits in product((False, True), repeat=n_free)
    ]


class MainEffect(msgspec.Struct, frozen=True, rename="camel"):
    """How much a treatment changes the pass rate, averaged over all settings of the others."""

    name: str
    difference: float | None
    interval: Interval | None
    p_value: float | None = None
    adjusted_p: float | None = None
    """Holm over all treatments."""


def main_effects(
    names: Sequence[str], design: Sequence[Sequence[bool]], rates: Floats, *, seed: int
) -> list[MainEffect]:
    """Estimate the effects from the pass rates: a row for each prompt, a column for each arm.

    A prompt that an arm has not measured (NaN) is left out: only complete rows are balanced.
    """
    complete = rates[~np.isnan(rates).any(axis=1)]
    found = []
    for factor, name in enumerate(names):
        on = np.array([arm[factor] for arm in design], dtype=bool)
        compared = compare_scores(
            complete[:, ~on].mean(axis=1), complete[:, on].mean(axis=1), seed=seed
        )
        found.append(MainEffect(name, compared.difference, compared.interval, compared.p_value))
    tested = [effect.p_value for effect in found if effect.p_value is not None]
    if len(tested) < len(found):
        return found
    adjusted = adjust_holm(tested).tolist()
    return [
        msgspec.structs.replace(effect, adjusted_p=p)
        for effect, p in zip(found, adjusted, strict=True)
    ]
