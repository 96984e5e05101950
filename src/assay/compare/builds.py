"""The builds of a pooled baseline: how each did, and whether they drift."""

from typing import Any

import msgspec
import numpy as np

from assay.compare.columns import Ints
from assay.compare.runs import Run
from assay.errors import InputError
from assay.records.journal import changed_rows
from assay.records.rows import open_rows
from assay.records.text import counted_noun
from assay.records.trial import Build
from assay.stats.drift import (
    FEWEST_BUILDS,
    LARGEST_NOISE,
    Drift,
    count_alike,
    measure_drift,
)
from assay.stats.noise import BuildNoise
from assay.stats.rates import rate_interval


class BuildSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One build of a baseline."""

    id: str
    label: str
    date: str
    n_prompts: int
    n_trials: int
    pass_rate: float | None
    interval: tuple[float, float] | None
    """Of the pass rate, 95 %."""


class Builds(msgspec.Struct, frozen=True):
    """All builds of a baseline, the oldest first."""

    summaries: list[BuildSummary]
    drift: Drift
    n_alike: int
    """The newest builds that show no drift among each other."""
    n_changed: int = 0
    """Rows that somebody changed since Assay signed them."""

    @property
    def problem(self) -> str:
        """Say why nothing can be judged against the builds; empty if something can."""
        if not self.drift.found:
            return ""
        change = f"{self.drift.trend or 0.0:+.3f} from the first to the last build"
        return (
            f"its builds drift ({change}): keep those that are alike with "
            f"`assay baseline prune --keep {self.n_alike}`"
        )

    @property
    def words(self) -> str:
        """Say in a sentence whether the builds still measure the same, and how much they vary."""
        drift = describe_drift(self.drift, [build.label for build in self.summaries])
        return "; ".join(filter(None, (drift, self.changed_words)))

    @property
    def changed_words(self) -> str:
        """Say that somebody changed the baseline; empty if nobody is known to have done it."""
        if not self.n_changed:
            return ""
        rows = counted_noun(self.n_changed, "row")
        verb = "is" if self.n_changed == 1 else "are"
        return f"{rows} {verb} not as Assay signed them: look, then use `assay baseline sign`"

    @property
    def noise_words(self) -> str:
        """Say how much the builds vary, and that the gate knows it."""
        if self.noise is None:
            return f"{_noise_words(self.drift)}; the gate takes them not to vary"
        return f"{_noise_words(self.drift)}; that is part of the interval"

    @property
    def noise(self) -> BuildNoise | None:
        """How much builds vary beyond chance between trials; None if too few are known."""
        return self.drift.noise


class _EntryView(msgspec.Struct, gc=False):
    build: Build | None = None


class _RowView(msgspec.Struct, gc=False):
    id: str
    trials: list[_EntryView] = []


_ROWS = msgspec.json.Decoder(_RowView)


def read_builds(run: Run) -> Builds | None:
    """Read which build each trial of a run comes from; None if it is no pooled baseline."""
    if run.kind != "trials" or not run.path.is_file():
        return None
    try:
        found = _builds_of_trials(run)
    except InputError:  # the viewer shows files with damaged rows, too; a baseline has none
        found = None
    if found is None:
        return None
    builds, number = found
    order = sorted(range(len(builds)), key=lambda n: builds[n].date)
    shape = len(run.ids), len(builds)
    measured, passes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    known = ~np.isnan(run.passed)
    np.add.at(measured, (run.prompt[known], number[known]), 1)
    np.add.at(passes, (run.prompt[known], number[known]), run.passed[known].astype(np.int64))
    measured, passes = measured[:, order], passes[:, order]
    summaries = [_summary(builds[n], passes[:, i], measured[:, i]) for i, n in enumerate(order)]
    drift = measure_drift(passes, measured, run.clusters)
    n_alike = count_alike(passes, measured, run.clusters) if drift.found else len(builds)
    return Builds(summaries, drift, n_alike, changed_rows(run.path))


def _builds_of_trials(run: Run) -> tuple[list[Build], Ints] | None:
    """Return the builds, and the number of the build of each trial of the run."""
    known: dict[Build, int] = {}
    by_row: dict[str, list[int]] = {}
    with open_rows(run.path) as file:
        for row in file.rows(_ROWS):
            numbers = []
            for entry in row.trials:
                if entry.build is None:
                    return None  # the first trial of any other file ends the reading
                numbers.append(known.setdefault(entry.build, len(known)))
            by_row[row.id] = numbers
    flat = [number for row_id in run.ids for number in by_row.get(row_id, ())]
    if not known or len(flat) != len(run.prompt):
        return None
    return list(known), np.array(flat, dtype=np.int64)


def _summary(build: Build, passes: Ints, measured: Ints) -> BuildSummary:
    seen = measured > 0
    rate, interval = rate_interval(passes[seen], measured[seen])
    return BuildSummary(
        id=build.id,
        label=build.label,
        date=build.date,
        n_prompts=int(seen.sum()),
        n_trials=int(measured.sum()),
        pass_rate=rate,
        interval=(interval.low, interval.high) if interval else None,
    )


def describe_drift(drift: Drift, labels: list[str]) -> str:
    """Say what the test of drift found."""
    if drift.trend_p is None:
        return "too few builds or prompts to test for drift"
    tests = f"trend p = {drift.trend_p:.2g}"
    if drift.heterogeneity_p is not None:
        tests += f", builds vary by more than {LARGEST_NOISE:g} p = {drift.heterogeneity_p:.2g}"
    if drift.outlier_p is not None:
        tests += f", an odd build p = {drift.outlier_p:.2g}"
    if not drift.found:
        return f"no drift is shown over {drift.n_builds} builds ({tests}); {_noise_words(drift)}"
    worst = f"; {labels[drift.outlier]} differs most" if drift.outlier is not None else ""
    change = f"{drift.trend:+.3f} from the first to the last of {drift.n_builds}"
    return f"DRIFT: the builds do not measure the same, {change} ({tests}){worst}"


def _noise_words(drift: Drift) -> str:
    if drift.noise is None:
        return f"how much builds vary is not known from fewer than {FEWEST_BUILDS}"
    return f"builds vary by {drift.noise.sd:.3f} (standard deviation beyond chance between trials)"


def builds_section(run: Run) -> dict[str, Any]:
    """Return what a report says about the builds of a run; nothing if it is no pooled baseline."""
    builds: Builds | None = run.builds
    if builds is None:
        return {}
    drift = msgspec.to_builtins(builds.drift)
    return {"baseline": {"nBuilds": len(builds.summaries), "words": builds.words, "drift": drift}}
