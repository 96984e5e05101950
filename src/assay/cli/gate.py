"""The gate of `assay trials --until decided`: what it compares with, what it says at the end."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from assay.compare.columns import detect_kind
from assay.compare.pairs import align, differences
from assay.compare.report import check_health
from assay.compare.runs import Run, load_run
from assay.errors import InputError
from assay.pipeline.trials import TrialRows
from assay.pipeline.until import Earlier, UntilDecided, has_passed
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.stats.rates import Bounds
from assay.stats.sequential import (
    FEWEST_UNITS,
    Look,
    SequentialDecision,
    decide_gate,
    describe_use,
    smallest_margin,
)

_CODES = {"pass": 0, "fail": 3}
_UNDECIDED = 4


class TrialsGate:
    """Compares fresh trials with an earlier run, after every one of them."""

    def __init__(
        self, against: Path, output: Path, margin: float, specs: Sequence[TrialSpec]
    ) -> None:
        self._output, self._margin = output, margin
        self._baseline = load_run(against.stem, against, detect_kind(against), "category")
        self._stopper: UntilDecided | None = None
        self._check(against, {spec.prompt.id for spec in specs})

    def stopper(self, rows: TrialRows) -> UntilDecided:
        """Return what ends the batch; rows has the trials of an interrupted run."""
        run = self._baseline
        counts = zip(run.n_passed.tolist(), run.n_measured.tolist(), strict=True)
        tallies = {id_: tally for id_, tally in zip(run.ids, counts, strict=True) if tally[1]}
        self._stopper = UntilDecided(
            self._decide, baseline=tallies, earlier=lambda: self._earlier(rows)
        )
        return self._stopper

    def is_over(self) -> bool:
        """Whether no further trial is needed; the last look is taken if none is left."""
        return self._stopper is not None and (
            self._stopper.finish().is_decided or self._stopper.is_over
        )

    def conclude(self) -> tuple[int, str]:
        """Return the exit code, and what was found, what it took and what it saved."""
        assert self._stopper is not None
        decision = self._stopper.finish()
        fresh = self._load()
        runs = [self._baseline] if fresh is None else [self._baseline, fresh]
        for note in differences(align(runs), growing=True):
            click.echo(visible_line(f"note: {note}"), err=True)
        outcome, words = str(decision.outcome), decision.words
        if fresh is not None and (problems := _problems(fresh)):
            outcome, words = "undecided", f"the measurement is unhealthy: {'; '.join(problems)}"
        use = describe_use(decision, self._stopper.n_trials)
        against = f"regression against {self._baseline.label}"
        line = visible_line(f"{against}: {outcome} ({words}); {use.words}")
        return _CODES.get(outcome, _UNDECIDED), line

    def _decide(self, look: Look, bounds: Bounds | None, is_last: bool) -> SequentialDecision:
        return decide_gate(look, margin=self._margin, bounds=bounds, is_last=is_last)

    def _check(self, path: Path, planned: set[str]) -> None:
        """Refuse what can never be decided before an agent is started for it."""
        run = self._baseline
        if problems := _problems(run):
            msg = f"{path} cannot be compared with: {'; '.join(problems)}"
            raise InputError(msg, hint="measure it again, or give another --against")
        n = len(planned.intersection(np.array(run.ids, dtype=object)[run.n_measured > 0]))
        shared = f"{path} has {n} of {counted_noun(len(planned), 'prompt')}"
        if n < FEWEST_UNITS:
            msg = f"{shared}, and at least {FEWEST_UNITS} are needed to decide anything"
            raise InputError(msg, hint="give an earlier run of the same prompts")
        smallest = smallest_margin(n)
        if smallest is None or self._margin < smallest:
            click.echo(
                f"{shared}. So few can never show that a loss of {self._margin:g} is absent; use "
                f"--margin {smallest or 0.5:g} or more, or more prompts.",
                err=True,
            )
            raise click.exceptions.Exit(_UNDECIDED)

    def _earlier(self, rows: TrialRows) -> Iterator[Earlier]:
        """Yield the trials that finished before this run."""
        for prompt_id, entry in rows.open_entries():
            yield 1, prompt_id, has_passed(entry)
        if (run := self._load()) is None:
            return
        for number, passed in zip(run.prompt.tolist(), run.passed.tolist(), strict=True):
            yield 1, run.ids[number], None if np.isnan(passed) else bool(passed)

    def _load(self) -> Run | None:
        if not self._output.is_file() or self._output.stat().st_size == 0:
            return None
        return load_run("fresh", self._output, "trials", "category")


def _problems(run: Run) -> list[str]:
    found: list[str] = check_health(align([run]), 0)["problems"]
    return found
