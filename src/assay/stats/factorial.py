"""Several treatments at once: which arms to run, and the effect of each treatment on its own.

A two-level design: each treatment is on or off in each arm. All combinations of three are eight
arms, of eight 256. A fraction is enough for the main effects: the further treatments are switched
by the parity of some of the first ones, so that each is on in half of the arms and every two of
them in a quarter. The fractions here are of resolution IV or more: a main effect is never mixed up
with an interaction of two treatments, only with one of three. Interactions of two are estimated as
well; in a fraction some of them can only be seen together.
"""

from collections.abc import Sequence
from itertools import combinations, product

import msgspec
import numpy as np

from assay.stats.distributions import Floats
from assay.stats.paired import score_difference_interval
from assay.stats.rates import Interval, make_interval
from assay.stats.significance import adjust_holm, flip_test

MOST_FACTORS = 8
_DIGITS = 12
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


class Interaction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much one treatment changes the effect of another."""

    pairs: list[tuple[str, str]]
    """More than one pair where the arms do not tell them apart."""
    difference: float
    """The effect of the first with the second, less its effect without it."""
    interval: Interval
    p_value: float
    adjusted_p: float
    """Holm over all interactions."""
    alone: float | None = None
    together: float | None = None
    """The effect of the first treatment without the second, and with it; of a single pair."""


class FactorialEffects(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an ablation shows."""

    effects: list[MainEffect]
    interactions: list[Interaction]
    n_prompts: int
    n_incomplete: int = 0
    """Prompts that some arms have not measured, and that count with those that have."""
    n_left_out: int = 0
    """Prompts that too few arms have measured."""


def estimate_effects(
    names: Sequence[str], design: Sequence[Sequence[bool]], rates: Floats, *, seed: int
) -> FactorialEffects:
    """Estimate all effects from the pass rates: a row for each prompt, a column for each arm.

    Each prompt gives an estimate of its own, by least squares over the arms that have measured it
    (NaN: not measured). Where all have, that is the difference of two means.
    """
    on = np.array(design, dtype=bool)
    levels = np.where(on, 0.5, -0.5)
    groups = _interaction_groups(levels)
    products = [levels[:, pairs[0][0]] * levels[:, pairs[0][1]] for pairs in groups]
    alone = _estimates(levels, rates)
    both = _estimates(np.column_stack([levels, *products]), rates) if groups else alone
    used = ~np.isnan(alone[:, 0])
    whole = ~np.isnan(rates).any(axis=1)
    tested = [_test(alone[used, factor], seed) for factor in range(len(names))]
    seen = both[~np.isnan(both[:, 0])]
    # The effect of one treatment with the other less that without it is twice as far from 0.
    crossed = [_test(0.5 * seen[:, len(names) + i], seed) for i in range(len(groups))]
    return FactorialEffects(
        effects=_with_holm(names, tested),
        interactions=_interactions(names, groups, crossed, seen),
        n_prompts=int(used.sum()),
        n_incomplete=int((used & ~whole).sum()),
        n_left_out=int((~used).sum()),
    )


def _interaction_groups(levels: Floats) -> list[list[tuple[int, int]]]:
    """Return the pairs of treatments, those together that the arms do not tell apart."""
    groups: dict[tuple[float, ...], list[tuple[int, int]]] = {}
    for pair in combinations(range(levels.shape[1]), 2):
        column = levels[:, pair[0]] * levels[:, pair[1]]
        groups.setdefault(tuple(column.tolist()), []).append(pair)
    return list(groups.values())


def _estimates(columns: Floats, rates: Floats) -> Floats:
    """Return the coefficient of each column for each prompt; NaN if too few arms measured it."""
    model = np.column_stack([np.ones(len(columns)), columns])
    found = np.full((len(rates), columns.shape[1]), np.nan)
    measured = ~np.isnan(rates)
    for pattern in np.unique(measured, axis=0):
        own, rows = model[pattern], (measured == pattern).all(axis=1)
        if np.linalg.matrix_rank(own) == model.shape[1]:
            solved = (rates[rows][:, pattern] @ np.linalg.pinv(own).T)[:, 1:]
            found[rows] = np.round(solved, _DIGITS) + 0.0  # what is equal stays equal
    return found


type _Tested = tuple[float | None, Interval | None, float | None]
"""A mean over prompts, its interval and its p."""


def _test(differences: Floats, seed: int) -> _Tested:
    if not differences.size:
        return None, None, None
    interval, _ = score_difference_interval(differences)
    return float(differences.mean()), interval, flip_test(differences, seed=seed).p_value


def _with_holm(names: Sequence[str], tested: Sequence[_Tested]) -> list[MainEffect]:
    known = [p for _, _, p in tested if p is not None]
    adjusted = adjust_holm(known).tolist() if len(known) == len(tested) else [None] * len(tested)
    return [MainEffect(name, *one, p) for name, one, p in zip(names, tested, adjusted, strict=True)]


def _interactions(
    names: Sequence[str],
    groups: Sequence[Sequence[tuple[int, int]]],
    tested: Sequence[_Tested],
    seen: Floats,
) -> list[Interaction]:
    """Put names to the interactions; nothing if no prompt was measured in enough arms."""
    if not len(seen):
        return []
    adjusted = adjust_holm([p for _, _, p in tested if p is not None]).tolist()
    means, found = seen.mean(axis=0), []
    for pairs, (half, interval, p), holm in zip(groups, tested, adjusted, strict=True):
        if half is None or interval is None or p is None:
            continue
        effect = float(means[pairs[0][0]]) if len(pairs) == 1 else None
        found.append(
            Interaction(
                pairs=[(names[a], names[b]) for a, b in pairs],
                difference=2.0 * half,
                interval=make_interval(
                    2.0 * interval.low, 2.0 * interval.high, interval.level, interval.method
                ),
                p_value=p,
                adjusted_p=holm,
                alone=None if effect is None else effect - half,
                together=None if effect is None else effect + half,
            )
        )
    return found
