"""Set several runs side by side: which prompts they share, and where they are not alike."""

from collections.abc import Sequence

import msgspec
import numpy as np

from assay.compare.columns import Ints, Run


class Aligned(msgspec.Struct, frozen=True):
    """All prompts of all runs, and where each run has them."""

    runs: tuple[Run, ...]
    ids: list[str]
    where: Ints
    """A row per prompt, a column per run: the place in that run, -1 where it has none."""

    def both(self, a: int, b: int) -> tuple[Ints, Ints, Ints]:
        """Give the prompts that two runs share: their number here, in run a, in run b."""
        shared = np.flatnonzero((self.where[:, a] >= 0) & (self.where[:, b] >= 0))
        return shared, self.where[shared, a], self.where[shared, b]

    @property
    def in_several(self) -> Ints:
        """Prompts that at least two runs have."""
        return np.flatnonzero((self.where >= 0).sum(axis=1) >= 2)


def align(runs: Sequence[Run]) -> Aligned:
    """Put prompts in the order in which they are first met."""
    ids = runs[0].ids
    if all(run.ids == ids for run in runs[1:]):
        same = np.arange(len(ids), dtype=np.int64)
        return Aligned(tuple(runs), ids, np.repeat(same[:, None], len(runs), axis=1))
    order = dict.fromkeys(prompt_id for run in runs for prompt_id in run.ids)
    number = dict(zip(order, range(len(order)), strict=True))
    where = np.full((len(number), len(runs)), -1, dtype=np.int64)
    for column, run in enumerate(runs):
        rows = np.fromiter(map(number.__getitem__, run.ids), np.int64, count=len(run.ids))
        where[rows, column] = np.arange(len(run.ids))
    return Aligned(tuple(runs), list(number), where)


def unlike(aligned: Aligned) -> list[str]:
    """Name what differs between the runs beyond what is being compared."""
    notes: list[str] = []
    runs = aligned.runs
    n_all = int((aligned.where >= 0).all(axis=1).sum())
    if n_all < len(aligned.ids):
        notes.append(
            f"{len(aligned.ids) - n_all} of {len(aligned.ids)} prompts are not in every run "
            "and are left out of the pairs"
        )
    notes += _asked_otherwise(aligned)
    notes += _graded_otherwise(runs)
    ks = {run.label: sorted(set(run.k.tolist())) for run in runs if len(run.k)}
    if len({tuple(k) for k in ks.values()}) > 1 or any(len(k) > 1 for k in ks.values()):
        notes.append("trials per prompt differ: " + _list(ks))
    mixed = {run.label: run.agent_names for run in runs if len(run.agents) > 1}
    if mixed:
        notes.append("a run mixes agents or versions: " + _list(mixed))
    notes += _other_versions(runs)
    notes += [
        f"{run.label}: {run.health.n_repeated} rows have an id that comes again; the last counts"
        for run in runs
        if run.health.n_repeated
    ]
    return notes


def _asked_otherwise(aligned: Aligned) -> list[str]:
    notes = []
    for b in range(1, len(aligned.runs)):
        _, in_a, in_b = aligned.both(0, b)
        n = int((aligned.runs[0].inputs[in_a] != aligned.runs[b].inputs[in_b]).sum())
        if n:
            labels = f"{aligned.runs[0].label} and {aligned.runs[b].label}"
            notes.append(f"{labels} asked something else under the same id in {n} prompts")
    return notes


def _graded_otherwise(runs: Sequence[Run]) -> list[str]:
    notes = []
    graded = [run for run in runs if run.graders]
    names = sorted({name for run in graded for name in run.graders})
    for name in names:
        versions = {run.label: sorted(run.graders.get(name, {"none"})) for run in graded}
        if len({tuple(v) for v in versions.values()}) > 1:
            notes.append(f"grader {name} differs: " + _list(versions))
    return notes


def _other_versions(runs: Sequence[Run]) -> list[str]:
    """Name adapters that two runs used in different versions."""
    notes = []
    for adapter in sorted({agent[0] for run in runs for agent in run.agents}):
        versions = {
            run.label: sorted({a[1] or "unknown" for a in run.agents if a[0] == adapter})
            for run in runs
        }
        used = {label: seen for label, seen in versions.items() if seen}
        if len({tuple(seen) for seen in used.values()}) > 1:
            notes.append(f"versions of {adapter} differ: " + _list(used))
    return notes


def _list(values: dict[str, list[str]] | dict[str, list[int]]) -> str:
    return "; ".join(f"{label}: {', '.join(map(str, v))}" for label, v in values.items())
