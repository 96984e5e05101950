"""Align several runs by prompt, and compare every two of them."""

import contextlib
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import combinations
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.compare.columns import Floats, Ints
from assay.compare.packed import FEW, texts_at, union
from assay.compare.runs import Run, read_metadata
from assay.records.capture import NOT_RECORDED, Identity, identity_differences
from assay.records.text import counted_noun
from assay.stats.means import N_RESAMPLES
from assay.stats.noise import Noise
from assay.stats.paired import (
    Extremes,
    PairedDifference,
    compare_amounts,
    compare_extremes,
    compare_rates,
    compare_scores,
    with_judge,
    with_noise,
)
from assay.stats.planning import advise_on_difference
from assay.stats.rates import Bounds, bound_difference, excused_shares
from assay.stats.sequential import (
    ExtremeLooks,
    Look,
    look_at_extremes,
    look_at_rates,
    turn_of,
)
from assay.stats.shrinkage import GroupDifference, shrink_groups
from assay.stats.significance import adjust_holm, chance_of_drop, losses_differ, stratified_p
from assay.stats.verdict import Verdict, judge_difference

type Places = Ints | slice
"""What picks some prompts of a run from a column; a slice picks all without copying them."""


class Aligned(msgspec.Struct, frozen=True):
    """All prompts of all runs, and where each run has them."""

    runs: tuple[Run, ...]
    ids: Sequence[str]
    where: Ints
    """A row per prompt, a column per run: the place in that run, -1 where it has none."""
    same: bool = False
    """Whether all runs have the same prompts in the same order."""

    def both(self, a: int, b: int) -> tuple[Places, Places]:
        """Return the prompts that two runs share: their places in run a and in run b."""
        if self.same:
            return slice(None), slice(None)
        shared = np.flatnonzero((self.where[:, a] >= 0) & (self.where[:, b] >= 0))
        return self.where[shared, a], self.where[shared, b]

    @property
    def in_several(self) -> Ints:
        """Prompts that at least two runs have."""
        return np.flatnonzero((self.where >= 0).sum(axis=1) >= 2)


def align(runs: Sequence[Run]) -> Aligned:
    """Number the prompts of all runs in the order of their first appearance."""
    ids = runs[0].ids
    if all(run.ids == ids for run in runs[1:]):  # the usual case, and much less work
        for run in runs:
            run.ids = ids  # kept once
        same = np.arange(len(ids), dtype=np.int64)
        everywhere = np.broadcast_to(same[:, None], (len(ids), len(runs)))
        return Aligned(tuple(runs), ids, everywhere, same=True)
    if len(ids) > FEW and (found := union([run.ids for run in runs])):
        where: Any = np.full((len(found[0]), len(runs)), -1, dtype=np.int32)
        for column, places in enumerate(found[1]):
            where[places, column] = np.arange(len(places))
        every = found[0] if len(found[0]) > len(ids) else ids  # kept once, if the first has all
        return Aligned(tuple(runs), every, where)
    order = dict.fromkeys(prompt_id for run in runs for prompt_id in run.ids)
    number = dict(zip(order, range(len(order)), strict=True))
    where = np.full((len(number), len(runs)), -1, dtype=np.int64)
    for column, run in enumerate(runs):
        rows = np.fromiter(map(number.__getitem__, run.ids), np.int64, count=len(run.ids))
        where[rows, column] = np.arange(len(run.ids))
    return Aligned(tuple(runs), list(number), where)


def differences(aligned: Aligned, *, growing: bool = False, of_arms: bool = False) -> list[str]:
    """Name what differs between the runs beyond what is being compared.

    growing: trials are still to come, so that not every run has all prompts and trials.
    of_arms: what the runs were made with differs on purpose.
    """
    notes: list[str] = []
    runs = aligned.runs
    n_all = int((aligned.where >= 0).all(axis=1).sum())
    if n_all < len(aligned.ids) and not growing:
        notes.append(
            f"{len(aligned.ids) - n_all} of {len(aligned.ids)} prompts are not in every run "
            "and are left out of the pairs"
        )
    notes += _different_inputs(aligned)
    notes += _changed(aligned)
    notes += _different_clusters(aligned)
    notes += _different_graders(runs)
    # A pooled baseline has more trials than any run, an allocated run unequally many: on purpose.
    fixed = [run for run in runs if len(run.k) and run.builds is None and not run.allocated]
    ks = {run.label: sorted(set(run.k.tolist())) for run in fixed}
    unequal = len({tuple(k) for k in ks.values()}) > 1 or any(len(k) > 1 for k in ks.values())
    if unequal and not growing:
        notes.append("trials per prompt differ: " + _list(ks))
    mixed = {run.label: run.agent_names for run in runs if run.mixes_agents}
    if mixed:
        notes.append("a run mixes agents or versions: " + _list(mixed))
    notes += _different_versions(runs)
    notes += [] if of_arms else _different_settings(runs)
    notes += [
        f"{run.label}: {run.health.n_repeated} rows repeat an earlier id; the last row of each id "
        "is used"
        for run in runs
        if run.health.n_repeated
    ]
    return notes


def unlike(aligned: Aligned, a: int, b: int) -> list[str]:
    """Name what keeps a gate from comparing two runs: other prompts, or other graders.

    Where one run lacks prompts that bring their own graders, it lacks versions of these, too.
    """
    run_a, run_b = aligned.runs[a], aligned.runs[b]
    both = align([run_a, run_b])
    found = _different_inputs(both) + changed_prompts(both, 0, 1).words
    if (both.where >= 0).all():
        return found + _different_graders([run_a, run_b])
    return found + unlike_graders(run_a, run_b.label, run_b.graders)


def unlike_graders(run: Run, label: str, graders: Mapping[str, Set[str]]) -> list[str]:
    """Name graders of some prompts of a run that are not those of the run."""
    if not run.graders or not graders:
        return []  # rows of other tools do not say who graded them
    if not run.graders.keys() & graders.keys():
        return ["graders differ: " + _list({run.label: [*run.graders], label: [*graders]})]
    return [
        f"grader {name} differs: "
        + _list(_shortened({run.label: sorted(run.graders[name]), label: sorted(graders[name])}))
        for name in sorted(run.graders.keys() & graders.keys())
        if not run.graders[name] & graders[name]
    ]


def _different_inputs(aligned: Aligned) -> list[str]:
    notes = []
    for b in range(1, len(aligned.runs)):
        in_a, in_b = aligned.both(0, b)
        n = int((aligned.runs[0].inputs[in_a] != aligned.runs[b].inputs[in_b]).sum())
        if n:
            labels = f"{aligned.runs[0].label} and {aligned.runs[b].label}"
            notes.append(f"{labels} have different inputs under the same id in {n} prompts")
    return notes


class ChangedPrompts(msgspec.Struct, frozen=True):
    """Prompts that two runs have under the same id, but that are not the same."""

    inputs: list[str]
    """Those that put something else to the agent."""
    expectations: list[str]
    """Those of which graders know another right answer."""
    tasks: list[str]
    """Those that bring other files, or another set-up."""

    @property
    def words(self) -> list[str]:
        """What to say of them."""
        said = {
            "another right answer is expected": self.expectations,
            "the files or the set-up are others": self.tasks,
        }
        return [f"{words} in {_named(ids)}" for words, ids in said.items() if ids]


def changed_prompts(aligned: Aligned, a: int, b: int) -> ChangedPrompts:
    """Find the prompts that are not the same in two runs."""
    in_a, in_b = aligned.both(a, b)
    run_a, run_b = aligned.runs[a], aligned.runs[b]

    def differing(old: Ints, new: Ints) -> list[str]:
        # Rows of other tools may not have what graders knew.
        if any(not seen.any() and not run.identities for run, seen in ((run_a, old), (run_b, new))):
            return []
        places = np.flatnonzero(old[in_a] != new[in_b])
        if not len(places):
            return []
        return texts_at(run_b.ids, places if isinstance(in_b, slice) else in_b[places])

    made = [shared_identity(run) for run in (run_a, run_b)]
    both_recorded = len({one.is_old for one in made if one is not None}) < 2
    return ChangedPrompts(
        inputs=differing(run_a.inputs, run_b.inputs),
        expectations=_known_otherwise(run_a, run_b, differing),
        tasks=differing(run_a.tasks, run_b.tasks) if both_recorded else [],
    )


def _known_otherwise(
    run_a: Run, run_b: Run, differing: Callable[[Ints, Ints], list[str]]
) -> list[str]:
    found = differing(run_a.expectations, run_b.expectations)
    # Of rows of other tools, not all metadata counts.
    is_alike = bool(run_a.identities) == bool(run_b.identities)
    if is_alike and (read_metadata(run_a.graders) or read_metadata(run_b.graders)):
        found = list(dict.fromkeys([*found, *differing(run_a.metadata, run_b.metadata)]))
    return found


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _FEW_IDS} more" if len(ids) > _FEW_IDS else ""
    return f"{counted_noun(len(ids), 'prompt')}: {', '.join(ids[:_FEW_IDS])}{more}"


_FEW_IDS = 5


def _changed(aligned: Aligned) -> list[str]:
    """Say which prompts of other runs are not those of the first."""
    return [
        f"{aligned.runs[0].label} and {aligned.runs[b].label}: {words}"
        for b in range(1, len(aligned.runs))
        for words in changed_prompts(aligned, 0, b).words
    ]


def _different_clusters(aligned: Aligned) -> list[str]:
    first, notes = aligned.runs[0], list[str]()
    if first.clusters is None:
        return notes
    for b in range(1, len(aligned.runs)):
        in_a, in_b = aligned.both(0, b)
        differ = int((first.clusters[in_a] != aligned.runs[b].clusters[in_b]).sum())
        if differ:
            labels = f"{first.label} and {aligned.runs[b].label}"
            notes.append(f"{labels} put {differ} prompts into different clusters; the first counts")
    return notes


def count_clusters(aligned: Aligned) -> int | None:
    """Return how many clusters there are; None if prompts are not clustered."""
    if any(run.clusters is None for run in aligned.runs):
        return None
    return len(np.unique(np.concatenate([run.clusters for run in aligned.runs])))


def _different_graders(runs: Sequence[Run]) -> list[str]:
    notes = []
    graded = [run for run in runs if run.graders]
    names = sorted({name for run in graded for name in run.graders})
    for name in names:
        versions = {run.label: sorted(run.graders.get(name, {"none"})) for run in graded}
        if len({tuple(v) for v in versions.values()}) > 1:
            notes.append(f"grader {name} differs: " + _list(_shortened(versions)))
    return notes


def _shortened(versions: dict[str, list[str]]) -> dict[str, list[str]]:
    """Cut long lists: where prompts bring their graders along, each has a version of its own."""
    return {
        label: seen if len(seen) <= _MOST_VERSIONS else [*seen[:2], f"{len(seen) - 2} more"]
        for label, seen in versions.items()
    }


_MOST_VERSIONS = 4


def _different_versions(runs: Sequence[Run]) -> list[str]:
    """Name adapters that two runs used in different versions."""
    notes = []
    for adapter in sorted({agent[0] for run in runs for agent in run.distinct_agents}):
        versions = {
            run.label: sorted({a[1] or "unknown" for a in run.distinct_agents if a[0] == adapter})
            for run in runs
        }
        used = {label: seen for label, seen in versions.items() if seen}
        if len({tuple(seen) for seen in used.values()}) > 1:
            notes.append(f"versions of {adapter} differ: " + _list(used))
    return notes


def _different_settings(runs: Sequence[Run]) -> list[str]:
    """Name what else two runs of the same agent were made with, by what their rows record."""
    made = [shared_identity(run) for run in runs]
    first, notes = made[0], list[str]()
    for run, other in zip(runs[1:], made[1:], strict=True):
        # Another agent, or another model, is what is being compared.
        if first is None or other is None or first.adapter != other.adapter:
            continue
        between = f"{runs[0].label} and {run.label}"
        # Graders and set-ups are compared by prompt.
        same = {"model": first.model, "graders": first.graders, "setup": first.setup}
        if found := identity_differences(first, msgspec.structs.replace(other, **same)):
            notes.append(f"{between} were made with other settings: {'; '.join(found)}")
        if first.is_old != other.is_old:
            notes.append(f"{between}: {NOT_RECORDED}")
        models = {
            each.label: sorted({agent[2] for agent in each.distinct_agents} - {""})
            for each in (runs[0], run)
        }
        if (
            first.model == other.model
            and all(models.values())
            and len(set(map(tuple, models.values()))) > 1
        ):
            notes.append("the same model was asked for, and others answered: " + _list(models))
    return notes


def not_covered(runs: Sequence[Run]) -> list[str]:
    """Name what cannot be known of runs of one agent that look the same."""
    made = [one for run in runs if (one := shared_identity(run)) is not None]
    if len({one.adapter for one in made}) != 1 or _different_settings(runs):
        return []
    return list(dict.fromkeys(words for one in made for words in one.not_covered))


def shared_identity(run: Run) -> Identity | None:
    """Return what all rows of a run were made from, without what prompts bring along."""
    found: list[Identity] = []
    for text in run.identities:
        with contextlib.suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(text, type=Identity))
    if not found:
        return None
    own: dict[str, Any] = {}
    for name in Identity.__struct_fields__[1:]:
        if any(getattr(one, name) != getattr(found[0], name) for one in found):
            own[name] = type(getattr(found[0], name))()
    return msgspec.structs.replace(found[0], **own)


def _list(values: dict[str, list[str]] | dict[str, list[int]]) -> str:
    return "; ".join(f"{label}: {', '.join(map(str, v))}" for label, v in values.items())


_AMOUNTS = ("duration_ms", "cost_usd", "tokens")
_NAMES = {"duration_ms": "latencyMs", "cost_usd": "costUsd", "tokens": "tokens"}


class Pair(msgspec.Struct, kw_only=True, rename="camel"):
    """Run B against run A, over the prompts both have."""

    run_a: str
    run_b: str
    n_shared: int
    pass_rate: PairedDifference
    score: PairedDifference
    adjusted_p: float | None = None
    """Holm over all pairs, of the pass rate's p."""
    adjusted_p_score: float | None = None
    these_prompts_p: float | None = None
    """Holm over all pairs, of no difference on these very prompts; only where they have repeats."""
    verdict: Verdict | None = None
    bounds: Bounds | None = None
    """What was not measured leaves open: the difference if all of it had failed, or passed. A
    prompt that only one of the runs has was not measured in the other."""
    gate_bounds: Bounds | None = None
    """The same over the prompts of the first run: new prompts are no regression."""
    advice: str = ""
    """Whether more prompts or more trials would make the difference surer."""
    amounts: dict[str, Any] = {}
    regressed: list[str] = []
    improved: list[str] = []
    """Prompts whose pass rate went down or up, worst first."""
    regressed_chance: list[float] = []
    improved_chance: list[float] = []
    """For each of them the chance of such a change or a larger one if nothing had changed."""
    categories: list[GroupDifference] = []
    """The difference in each category, drawn towards that of all; of one category nothing."""


def compare_pairs(
    aligned: Aligned,
    *,
    margin: float,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    growing: bool = False,
) -> list[Pair]:
    """Compare every two runs, with p-values adjusted for the number of comparisons (Holm).

    growing: prompts that a run lacks are still to come; they leave nothing open.
    """
    every_two = combinations(range(len(aligned.runs)), 2)
    pairs = [_compare(aligned, a, b, seed, n_resamples) for a, b in every_two]
    for pair in pairs:
        pair.pass_rate = with_judge(pair.pass_rate, aligned.runs[0].judge, margin)
    if growing:
        for pair, (a, b) in zip(pairs, combinations(range(len(aligned.runs)), 2), strict=True):
            pair.bounds = pair.gate_bounds = _bounds(aligned, a, b, "both")
    for name, field in (("adjusted_p", "pass_rate"), ("adjusted_p_score", "score")):
        tested = [p for p in pairs if getattr(p, field).p_value is not None]
        adjusted = adjust_holm([getattr(p, field).p_value for p in tested])
        for pair, p_value in zip(tested, adjusted.tolist(), strict=True):
            setattr(pair, name, p_value)
    _adjust_these_prompts(pairs)
    for pair in pairs:
        pair.verdict = judge_difference(
            pair.pass_rate,
            margin=margin,
            adjusted_p=pair.adjusted_p,
            extremes=extremes_of_pair(aligned, pair, "both" if growing else "either"),
        )
    for pair, (a, b) in zip(pairs, combinations(range(len(aligned.runs)), 2), strict=True):
        if changed := changed_prompts(aligned, a, b).words:
            pair.verdict = Verdict("not-enough-data", changed=list(changed))
            pair.these_prompts_p = None
    return pairs


def _adjust_these_prompts(pairs: Sequence[Pair]) -> None:
    tested = [(pair, p) for pair in pairs if (p := pair.these_prompts_p) is not None]
    adjusted = adjust_holm([p for _, p in tested])
    for (pair, _), p_value in zip(tested, adjusted.tolist(), strict=True):
        pair.these_prompts_p = p_value


def _compare(aligned: Aligned, a: int, b: int, seed: int, n_resamples: int) -> Pair:
    # One part after the other: of a million prompts, each takes more than what is kept of them.
    run_a, run_b = aligned.runs[a], aligned.runs[b]
    in_a, in_b = aligned.both(a, b)
    clusters = None if run_a.clusters is None else run_a.clusters[in_a]
    flips = _Flips(run_a, run_b, in_a, in_b)
    noise = noise_between(run_a, run_b)
    repeated = run_a.kind == "trials" and not noise and run_a.builds is None
    return Pair(
        run_a=run_a.label,
        run_b=run_b.label,
        n_shared=len(run_a.inputs[in_a]),
        pass_rate=with_noise(
            compare_rates(
                _tallies(run_a, in_a), _tallies(run_b, in_b), seed=seed, clusters=clusters
            ),
            noise,
        ),
        these_prompts_p=stratified_p(_tallies(run_a, in_a), _tallies(run_b, in_b))
        if repeated
        else None,
        score=_compare_scores(run_a, run_b, in_a, in_b, clusters, seed),
        bounds=_bounds(aligned, a, b, "either"),
        gate_bounds=_bounds(aligned, a, b, "first"),
        advice=_advice(_tallies(run_a, in_a), _tallies(run_b, in_b)),
        amounts=_amounts(
            run_a, run_b, in_a, in_b, partial(compare_amounts, seed=seed, n_resamples=n_resamples)
        ),
        regressed=flips.down,
        improved=flips.up,
        regressed_chance=flips.down_chance,
        improved_chance=flips.up_chance,
        categories=_category_differences(run_a, run_b, in_a, in_b, seed),
    )


def _category_differences(
    run_a: Run, run_b: Run, in_a: Places, in_b: Places, seed: int
) -> list[GroupDifference]:
    """Return the difference in each category; those of few prompts say little by themselves."""
    passed_a, n_a = _tallies(run_a, in_a)
    passed_b, n_b = _tallies(run_b, in_b)
    both = (n_a > 0) & (n_b > 0)
    numbers = run_a.categories[in_a][both]
    found = np.unique(numbers)
    if not 1 < found.size <= _MOST_CATEGORIES:
        return []
    change = passed_b[both] / n_b[both] - passed_a[both] / n_a[both]
    names = [run_a.category_names[number] for number in found.tolist()]
    groups = [change[numbers == number] for number in found.tolist()]
    ordered = sorted(zip(names, groups, strict=True), key=lambda one: one[0])
    return shrink_groups([name for name, _ in ordered], [own for _, own in ordered], seed=seed)


_MOST_CATEGORIES = 200


def noise_between(run_a: Run, run_b: Run) -> tuple[Noise, ...]:
    """Return what the builds of baselines add to the difference between two runs."""
    known = [run.builds.noise for run in (run_a, run_b) if run.builds and run.builds.noise]
    if len(known) > 1:  # each has its own: builds of one need not vary as those of the other
        return tuple(noise.of_mean() for noise in known)
    return tuple(noise.of_difference() for noise in known)


def _tallies(run: Run, places: Places) -> tuple[Ints, Ints]:
    return run.n_passed[places], run.n_measured[places]


def _compare_scores(
    run_a: Run, run_b: Run, in_a: Places, in_b: Places, clusters: Ints | None, seed: int
) -> PairedDifference:
    equal = bool(np.array_equal(run_a.n_measured[in_a], run_b.n_measured[in_b]))
    score_a, score_b = run_a.mean_of(run_a.score)[in_a], run_b.mean_of(run_b.score)[in_b]
    scored = all_or(~(np.isnan(score_a) | np.isnan(score_b)))
    return compare_scores(
        score_a[scored],
        score_b[scored],
        seed=seed,
        equal_trials=equal,
        clusters=None if clusters is None else clusters[scored],
    )


def all_or(chosen: NDArray[np.bool_]) -> Any:
    """Return what picks the chosen from a column: where it is all of them, without a copy."""
    return slice(None) if chosen.all() else chosen


type _Tallies = tuple[Ints, Ints, Ints]
"""Passes, measured and planned trials of each prompt."""
type Which = Literal["either", "first", "both"]
"""Prompts of either run, of the first, or that both have."""


def look_at_pair(aligned: Aligned, pair: Pair) -> Look:
    """Return what the sequential rule needs to know of two runs."""
    a, b = _columns(aligned, pair)
    run_a, run_b = aligned.runs[a], aligned.runs[b]
    in_a, in_b = aligned.both(a, b)
    look = look_at_rates(
        (run_a.n_passed[in_a], run_a.n_measured[in_a]),
        (run_b.n_passed[in_b], run_b.n_measured[in_b]),
        None if run_a.clusters is None else run_a.clusters[in_a],
    )
    return msgspec.structs.replace(look, noise=noise_between(run_a, run_b))


def extreme_looks_at_pair(aligned: Aligned, pair: Pair) -> ExtremeLooks | None:
    """Return what the sequential rule has to know of what was not measured.

    Prompts that B lacks are still to come, if those it has are the first in an order that tells
    nothing. Otherwise they count as lost.
    """
    which: Which = "first" if count_out_of_turn(aligned, pair) else "both"
    a, b = _columns(aligned, pair)
    sides, clusters = _sides(aligned, a, b, which, excused(aligned.runs[a], aligned.runs[b]))
    found = look_at_extremes(*sides, clusters) if sides[0][2].size else None
    runs = [aligned.runs[column] for column in _columns(aligned, pair)]
    return found and found.with_noise(noise_between(*runs), runs[0].judge)


def count_out_of_turn(aligned: Aligned, pair: Pair) -> int:
    """Return how many prompts of A B lacks, unless all that it has come before them in turn."""
    a, b = _columns(aligned, pair)
    run_a, where = aligned.runs[a], aligned.where
    measured = np.flatnonzero((where[:, a] >= 0) & (run_a.n_measured[where[:, a]] > 0))
    has = where[measured, b] >= 0
    if has.all():
        return 0
    order = sorted(range(len(measured)), key=lambda i: turn_of(aligned.ids[int(measured[i])]))
    in_turn = has[order]
    return 0 if in_turn[: int(has.sum())].all() else int((~has).sum())


def extremes_of_pair(aligned: Aligned, pair: Pair, which: Which) -> Extremes | None:
    """Return the comparison if all that was not measured of these prompts had gone one way."""
    a, b = _columns(aligned, pair)
    if not aligned.runs[a].n_measured.any() or not aligned.runs[b].n_measured.any():
        return None
    sides, clusters = _sides(aligned, a, b, which, excused(aligned.runs[a], aligned.runs[b]))
    found = compare_extremes(*sides, clusters) if sides[0][2].size else None
    if found is None:
        return None
    run_a, run_b = aligned.runs[a], aligned.runs[b]
    noise = noise_between(run_a, run_b)
    worst, best = (
        with_judge(with_noise(case, noise), run_a.judge, 0.0) for case in (found.worst, found.best)
    )
    return found._replace(worst=worst, best=best)


def _columns(aligned: Aligned, pair: Pair) -> tuple[int, int]:
    labels = [run.label for run in aligned.runs]
    return labels.index(pair.run_a), labels.index(pair.run_b)


def _bounds(aligned: Aligned, a: int, b: int, which: Which) -> Bounds | None:
    """Bound the difference over some of the prompts."""
    if which != "both" and not all(aligned.runs[i].n_measured.any() for i in (a, b)):
        return None
    sides, _ = _sides(aligned, a, b, which)
    return bound_difference(*sides) if sides[0][2].size else None


def excused(run_a: Run, run_b: Run) -> tuple[float, float]:
    """Return what share of the trials that the provider lost leaves nothing open in each run."""
    lost = tuple(int(run.n_lost.sum()) for run in (run_a, run_b))
    n_trials = run_a.health.n_trials, run_b.health.n_trials
    differ = losses_differ(lost[0], n_trials[0], lost[1], n_trials[1])
    return excused_shares((lost[0], lost[1]), n_trials, differ=differ)


class UnequalLosses(NamedTuple):
    """Attempts that were lost in one run more than in the other, and then made again.

    What was lost may have been lost because of what the agent did; the attempt that replaced it
    then says too much.
    """

    words: str
    share: float
    """Of the trials of both runs."""

    @property
    def could_turn(self) -> str:
        """Say that they could turn a verdict."""
        return f"{self.words} could turn it"


def unequal_excuses(run_a: Run, run_b: Run) -> UnequalLosses | None:
    """Say so if the agent alone excuses many trials of one run, and far more than of the other.

    An agent that calls its failures those of its provider gets another attempt at each of them.
    """
    lost, n = (
        [run.health.n_excused + run.health.n_unverified for run in (run_a, run_b)],
        [max(run.health.n_trials, 1) for run in (run_a, run_b)],
    )
    shares = [of / all_ for of, all_ in zip(lost, n, strict=True)]
    if max(shares) <= MOST_NOT_MEASURED or not losses_differ(lost[0], n[0], lost[1], n[1], 0.02):
        return None
    words = (
        f"errors of the provider that only the agent reports, in {counted_noun(lost[1], 'trial')} "
        f"of {run_b.label} and {lost[0]} of {run_a.label},"
    )
    return UnequalLosses(words, sum(shares))


MOST_NOT_MEASURED = 0.1
"""Of the trials of a run: beyond it a measurement is unhealthy."""


def _sides(
    aligned: Aligned,
    a: int,
    b: int,
    which: Which,
    shares: tuple[float, float] = (0.0, 0.0),
) -> tuple[tuple[_Tallies, _Tallies], Ints | None]:
    """Return both runs as _planned does, over some of the prompts, and the prompts' clusters.

    Of the trials that the provider lost, these shares count as not planned, unless all of a prompt
    were lost.
    """
    run_a, run_b = aligned.runs[a], aligned.runs[b]
    if aligned.same:
        first, second = (
            (run.n_passed, run.n_measured, _without_excused(run, run.k, slice(None), share))
            for run, share in zip((run_a, run_b), shares, strict=True)
        )
        return (first, second), run_a.clusters
    here = aligned.where[:, [a, b]] >= 0
    chosen = {"either": here.any(axis=1), "first": here[:, 0], "both": here.all(axis=1)}[which]
    in_a, in_b = aligned.where[chosen, a], aligned.where[chosen, b]
    clusters = None
    if run_a.clusters is not None and run_b.clusters is not None:
        clusters = np.where(in_a >= 0, run_a.clusters[in_a], run_b.clusters[in_b])
    return (_planned(run_a, in_a, shares[0]), _planned(run_b, in_b, shares[1])), clusters


def _without_excused(run: Run, planned: Ints, places: Places, share: float) -> Any:
    if not share:
        return planned
    return planned - share * np.where(run.n_measured[places] > 0, run.n_lost[places], 0)


def _planned(run: Run, where: Ints, share: float = 0.0) -> _Tallies:
    """Return passes, measured and planned trials; a prompt that is missing was not measured."""
    here, most = where >= 0, int(run.k.max())
    passed, measured = (
        np.where(here, run.n_passed[where], 0),
        np.where(here, run.n_measured[where], 0),
    )
    planned = _without_excused(run, run.k[where], where, share)
    return passed, measured, np.where(here, planned, most)


def _advice(run_a: tuple[Ints, Ints], run_b: tuple[Ints, Ints]) -> str:
    """Say what to add, from the variance of the difference: what both runs share cancels out."""
    both = all_or((run_a[1] > 0) & (run_b[1] > 0))
    (passed_a, n_a), (passed_b, n_b) = ((c[both], n[both]) for c, n in (run_a, run_b))
    return advise_on_difference((passed_a, n_a), (passed_b, n_b))


class _Flips:
    """Prompts whose pass rate went down or up, worst first, and how likely that is by chance."""

    def __init__(self, run_a: Run, run_b: Run, in_a: Places, in_b: Places) -> None:
        tallies = *_tallies(run_a, in_a), *_tallies(run_b, in_b)
        with np.errstate(invalid="ignore", divide="ignore"):
            change: Floats = tallies[2] / tallies[3]
            change -= tallies[0] / tallies[1]
        # Stable sorts keep the order of the file among equal changes; NaN is neither down nor up.
        down = np.flatnonzero(change < 0)
        down = down[np.argsort(change[down], kind="stable")]
        up = np.flatnonzero(change > 0)
        up = up[np.argsort(-change[up], kind="stable")]
        del change
        self.down, self.up = (_ids_at(run_a, in_a, some) for some in (down, up))
        self.down_chance = _chances(*(column[down] for column in tallies))
        # A gain of B is a drop of A.
        a, n_a, b, n_b = (column[up] for column in tallies)
        self.up_chance = _chances(b, n_b, a, n_a)


def _ids_at(run: Run, places: Places, some: Ints) -> list[str]:
    return texts_at(run.ids, some if isinstance(places, slice) else places[some])


def _chances(*tallies: Ints) -> list[float]:
    """Return the chance of each change; equal ones, which are many, are computed once."""
    chance = cache(chance_of_drop)
    return [chance(*row) for row in zip(*(column.tolist() for column in tallies), strict=True)]


def _amounts(
    run_a: Run, run_b: Run, in_a: Any, in_b: Any, compare: Callable[..., Any]
) -> dict[str, Any]:
    compared = {}
    for name in _AMOUNTS:
        left = run_a.mean_of(getattr(run_a, name))[in_a]
        right = run_b.mean_of(getattr(run_b, name))[in_b]
        measured = ~(np.isnan(left) | np.isnan(right))
        if measured.any():
            both = all_or(measured)
            compared[_NAMES[name]] = compare(left[both], right[both])
    return compared
