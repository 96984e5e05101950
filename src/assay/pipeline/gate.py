"""The gate of `assay trials --until decided`: what it compares with, what it says at the end."""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from assay.compare.builds import read_builds
from assay.compare.decided import keep_decision
from assay.compare.pairs import align, differences, unlike, unlike_graders
from assay.compare.report import NOT_ALIKE, check_health
from assay.compare.runs import Run, load_run
from assay.errors import InputError, NotJudged
from assay.pipeline.arms import trials_in
from assay.pipeline.trials import TrialRows
from assay.pipeline.until import Earlier, UntilDecided
from assay.records.spec import Prompt, TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.records.trial import Trial
from assay.records.trial.files import detect_kind
from assay.run.workspace import our_secrets
from assay.stats.sequential import (
    FEWEST_UNITS,
    ExtremeLooks,
    Look,
    SequentialDecision,
    decide_gate,
    describe_use,
    smallest_margin,
)

_CODES = {"pass": 0, "fail": 3}
_UNDECIDED = NotJudged.exit_code
_MOST_ABSENT = 0.1
"""Of the baseline's prompts, what the plan may lack."""
_FEW_IDS = 5


class GateVerdict(NamedTuple):
    """What a gate says at the end."""

    exit_code: int
    words: str
    notes: list[str]
    """What to know besides."""


class TrialsGate:
    """Compares fresh trials with an earlier run, after every one of them."""

    def __init__(
        self,
        against: Path,
        output: Path,
        margin: float,
        specs: Sequence[TrialSpec],
        *,
        chosen: bool = False,
    ) -> None:
        """chosen: the user asked for a part of the prompts."""
        self._output, self._margin, self._specs = output, margin, specs
        self._baseline = load_run(against.stem, against, detect_kind(against), "category")
        self._stopper: UntilDecided | None = None
        self._chosen = chosen
        self.notes: list[str] = []
        """What to know before the first trial."""
        refuse_drift(self._baseline)
        self._check(against, {spec.prompt.id for spec in specs})
        self._check_alike(against)

    def begin(self, missing: list[TrialSpec], rows: TrialRows) -> list[TrialSpec]:
        """Return the trials in their order; rows has those of an interrupted run."""
        run = self._baseline
        counts = zip(run.n_passed.tolist(), run.n_measured.tolist(), strict=True)
        tallies = {id_: tally for id_, tally in zip(run.ids, counts, strict=True) if tally[1]}

        def decide(look: Look, extremes: ExtremeLooks | None, is_last: bool) -> SequentialDecision:
            return decide_gate(look, margin=self._margin, extremes=extremes, is_last=is_last)

        def earlier() -> Iterator[Earlier]:
            # The last of the same number counts.
            for trial in (*trials_in(self._output), *rows.open_trials()):
                yield 1, trial.id, trial.number, trial.passed

        self._stopper = UntilDecided(decide, baseline=tallies, earlier=earlier, plan=self._specs)
        return self._stopper.begin(missing)

    def add(self, spec: TrialSpec, result: Trial) -> bool:
        """Count a finished trial; return whether it is decided."""
        assert self._stopper is not None
        return self._stopper.add(spec, result)

    def is_over(self) -> bool:
        """Whether no further trial is needed; the last look is taken if none is left."""
        return self._stopper is not None and (
            self._stopper.finish().is_decided or self._stopper.is_over
        )

    def finish(self) -> None:
        """Take the last look if every planned trial has finished."""
        if self._stopper is not None:
            self._stopper.finish()

    def conclude(self) -> "GateVerdict":
        """Say what was found, what it took and what it saved."""
        assert self._stopper is not None
        decision = self._stopper.finish()
        output, fresh = self._output, None
        if output.is_file() and output.stat().st_size:
            fresh = load_run("fresh", output, "trials", "category")
        runs = [self._baseline] if fresh is None else [self._baseline, fresh]
        notes = [visible_line(f"note: {note}") for note in differences(align(runs), growing=True)]
        outcome, words = str(decision.outcome), decision.words
        if fresh is not None and (problems := _problems(fresh)):
            outcome, words = "undecided", f"the measurement is unhealthy: {'; '.join(problems)}"
        elif fresh is not None and (found := unlike(align(runs), 0, 1)):
            outcome, words = "undecided", NOT_ALIKE + "; ".join(found)
        elif fresh is not None and decision.is_decided:
            n_trials = self._stopper.n_trials
            keep_decision(self._baseline.path, output, self._margin, decision, n_trials)
        use = describe_use(decision, self._stopper.n_trials)
        against = f"regression against {self._baseline.label}"
        line = f"{against}: {outcome} ({words}); {use.words}"
        if fresh is not None and (n_more := fresh.health.n_trials - self._stopper.n_trials) > 0:
            others = counted_noun(n_more, "other trial")
            line += f"; {others} that ran at the same time are in the file, not in the decision"
        return GateVerdict(_CODES.get(outcome, _UNDECIDED), visible_line(line), notes)

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
            msg = (
                f"{shared}. So few can never show that a loss of {self._margin:g} is absent; use "
                f"--margin {smallest or 0.5:g} or more, or more prompts."
            )
            raise NotJudged(msg)

    def _check_alike(self, path: Path) -> None:
        """Refuse other prompts and other graders than those of the baseline: exit code 4."""
        run = self._baseline
        inputs = {id_: int(value) for id_, value in zip(run.ids, run.inputs, strict=True)}
        prompts = {spec.prompt.id: spec.prompt for spec in self._specs}
        changed = [
            id_
            for id_, prompt in prompts.items()
            if inputs.get(id_, fingerprint(prompt)) != fingerprint(prompt)
        ]
        problems = unlike_graders(run, "this run", _planned_graders(self._specs))
        if changed:
            problems.append(f"{_named(changed)} have another input in {path}")
        absent = [id_ for id_, n in zip(run.ids, run.n_measured, strict=True) if n]
        absent = [id_ for id_ in absent if id_ not in prompts]
        if absent and not self._chosen:
            words = f"{_named(absent)} of {path} are not in the plan"
            self.notes.append(visible_line(f"note: {words}"))
            if len(absent) > _MOST_ABSENT * len(run.ids):
                problems.append(words)
        if problems:
            words = f"regression against {run.label}: cannot be judged ({NOT_ALIKE}"
            msg = "\n".join([*self.notes, visible_line(f"{words}{'; '.join(problems)})")])
            raise NotJudged(msg)


def fingerprint(prompt: Prompt) -> int:
    """Return the same number of an input as the columns of a file have."""
    return zlib.crc32(msgspec.json.encode(our_secrets().mask_record(prompt).input))


def _planned_graders(specs: Sequence[TrialSpec]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for spec in specs:
        for name, version in (spec.identity.graders if spec.identity else {}).items():
            found.setdefault(name, set()).add(version)
    return found


def _named(ids: Sequence[str]) -> str:
    """Count prompts, and name the first ones."""
    more = ", …" if len(ids) > _FEW_IDS else ""
    return f"{counted_noun(len(ids), 'prompt')} ({', '.join(ids[:_FEW_IDS])}{more})"


def refuse_drift(run: Run) -> None:
    """Refuse a baseline whose builds do not measure the same."""
    builds = read_builds(run)
    if builds is not None and builds.problem:
        msg = visible_line(f"{run.path} cannot be judged against: {builds.problem}")
        raise NotJudged(msg)


def _problems(run: Run) -> list[str]:
    found: list[str] = check_health(align([run]), 0)["problems"]
    return found
