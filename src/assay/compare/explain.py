"""Why trials failed: findings of all failures, clusters of alike ones, and where trials part."""

import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median_low
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from assay.compare.calls import Call, calls_of, cut, without_numbers
from assay.compare.case import first_failed
from assay.compare.detectors import findings
from assay.compare.expected import expect_also
from assay.compare.names import Named
from assay.records.capture import cause_words
from assay.records.explanation import (
    ON_A_PASS,
    Cluster,
    Detector,
    Divergence,
    ExplainedTrial,
    Explanation,
)
from assay.records.rows import RowFile, Spot
from assay.records.trial.files import HINT, open_trials
from assay.records.trial.views import ExplainedRow

ROWS = msgspec.json.Decoder(ExplainedRow)
_MOST_CALLS = 100
"""Of a trial that are compared with those of other trials."""
_SOME = 5
type _Place = tuple[RowFile, Spot]


def explain_files(
    named: Named,
    *,
    visit: Callable[[ExplainedTrial, ExplainedRow], None] | None = None,
    expected: Mapping[str, ExplainedRow] | None = None,
    skip_unreadable: bool = False,
) -> Explanation:
    """Read result files row by row; visit is called with every failure.

    expected has what graders expect of prompts, where the rows do not say it (read_expectations).
    """
    known = expected or {}
    explainer = Explainer()
    prompts = Prompts()
    with ExitStack() as files:
        for label, path in named:
            rows = files.enter_context(
                open_trials(path, hint=HINT, skip_unreadable=skip_unreadable)
            )
            for spot, row in rows.placed_rows(ROWS):
                expect_also(row, known.get(row.id))
                trial = explainer.add(label, row, str(path))
                prompts.add(label, row, (rows, spot))
                if trial is not None and visit is not None:
                    visit(trial, row)
        found = explainer.explanation
        found.divergences = list(prompts.divergences(_read_again))
    found.clusters = explainer.clusters()
    return found


def _read_again(place: _Place) -> ExplainedRow:
    rows, spot = place
    return rows.row_at(spot, ROWS)


class Explainer:
    """Takes trials one by one and counts what is found in them."""

    def __init__(self) -> None:
        self.explanation = Explanation()
        self._clusters: dict[tuple[Detector | None, str, str], _Counts] = {}

    def add(self, run: str, row: ExplainedRow, file: str) -> ExplainedTrial | None:
        """Look at a trial; returns it if it is a failure."""
        found = self.explanation
        found.n_trials += 1
        if row.passed is None:
            if row.failure and row.needs_rerun:
                cause = row.failure.cause
                found.not_measured[cause] = found.not_measured.get(cause, 0) + 1
            else:
                found.n_not_graded += 1
            return None
        if row.honeypot is True:  # to fail it is right
            found.n_honeypots += 1
            if row.passed:
                found.hacked.append(explain_failure(run, row, file))
            return None
        if row.passed:
            found.n_passed += 1
            trial = doubtful(run, row, file)
            if trial is not None:
                found.doubtful.append(trial)
            return None
        found.n_failed += 1
        trial = explain_failure(run, row, file)
        found.failures.append(trial)
        for one in trial.findings:
            found.detectors[one.detector] = found.detectors.get(one.detector, 0) + 1
        found.n_not_explained += not trial.findings
        self._count(trial)
        return trial

    def _count(self, trial: ExplainedTrial) -> None:
        first = trial.findings[0] if trial.findings else None
        key: tuple[Detector | None, str, str]
        if first is not None:
            key = (first.detector, first.call, first.error)
            step = first.steps[0] if first.steps else None
        else:
            call, step = trial.first_failed_call, trial.first_failed_step
            key = (None, call, trial.error if call else cut(without_numbers(trial.reason), 80))
        self._clusters.setdefault(key, _Counts()).add(trial, step)

    def clusters(self) -> list[Cluster]:
        """Return the clusters so far, largest first."""
        made = [
            Cluster(
                n_failures=counts.n,
                detector=key[0],
                call=key[1],
                error=key[2],
                step=counts.usual_step,
                trials=counts.some,
            )
            for key, counts in self._clusters.items()
        ]
        return sorted(made, key=lambda one: -one.n_failures)


class _Counts:
    """The failures of a cluster."""

    def __init__(self) -> None:
        self.n = 0
        self.some: list[tuple[str, str, int | None]] = []
        self._steps = Counter[int | None]()

    def add(self, trial: ExplainedTrial, step: int | None) -> None:
        self.n += 1
        self._steps[step] += 1
        if len(self.some) < _SOME:
            self.some.append((trial.run, trial.id, trial.number))

    @property
    def usual_step(self) -> int | None:
        step, n = self._steps.most_common(1)[0]
        return step if 2 * n > self.n else None


def explain_failure(run: str, row: ExplainedRow, file: str) -> ExplainedTrial:
    """Return what all detectors find in a trial."""
    return _explained(run, row, file, findings(row))


def doubtful(run: str, row: ExplainedRow, file: str) -> ExplainedTrial | None:
    """Return a pass in which a detector finds what puts it in doubt; None if none does."""
    found = findings(row, tuple(ON_A_PASS))
    return _explained(run, row, file, found) if found else None


def _explained(run: str, row: ExplainedRow, file: str, found: Sequence[Any]) -> ExplainedTrial:
    failed = first_failed(calls_of(row.trajectory, row.cwd))
    return ExplainedTrial(
        run=run,
        id=row.id,
        number=row.number,
        findings=list(found),
        is_pass=row.passed is True,
        first_failed_step=failed.number if failed else None,
        first_failed_call=cut(failed.coarse_key) if failed else "",
        error=cut(without_numbers(failed.error)) if failed else "",
        reason=_reason(row),
        open=_view_command(row, file),
    )


def _reason(row: ExplainedRow) -> str:
    if row.failure:
        return cut(f"{cause_words(row.failure.cause)}: {row.failure.message}")
    said = row.score.reasoning if row.score else None
    return cut(said) if isinstance(said, str) else ""


def _view_command(row: ExplainedRow, file: str) -> str:
    if not row.raw:
        return f"assay view {shlex.quote(file)}"
    trial = f" --trial {row.number}" if row.number is not None else ""
    return f"assay raw {shlex.quote(row.id)} {shlex.quote(file)}{trial}"


# Where the trials of a prompt part.


class _TrialCalls(NamedTuple):
    """A trial of a prompt: what it did, by hashes of its calls."""

    run: str
    number: int | None
    passed: bool
    keys: "array[int]"
    place: Any


class _DivergingStep(NamedTuple):
    """A step, and how trials with it and without it went."""

    difference: float
    step: int
    order: int
    key: int
    passed_with: int
    n_with: int
    passed_without: int
    n_without: int


class Prompts:
    """The trials of each prompt over all files; a trial is kept as hashes of its calls."""

    def __init__(self) -> None:
        self._trials: dict[str, list[_TrialCalls]] = {}

    def add(self, run: str, row: ExplainedRow, place: Any = None) -> None:
        """Keep a trial that was measured; place is where it can be read again."""
        if row.passed is None:
            return
        keys = array("I")
        for call in calls_of(row.trajectory, row.cwd)[:_MOST_CALLS]:
            keys.extend((call.number, *(crc32(key.encode()) if key else 0 for key in _keys(call))))
        seen = _TrialCalls(run, row.number, row.passed, keys, row if place is None else place)
        self._trials.setdefault(row.id, []).append(seen)

    def divergences(
        self, read: Callable[[Any], ExplainedRow] = lambda row: row
    ) -> Iterator[Divergence]:
        """Yield for each prompt that passes and fails the step that tells them apart best."""
        for prompt_id, trials in self._trials.items():
            if len({trial.passed for trial in trials}) < 2:
                continue
            best = max(_diverging_steps(trials), default=None, key=_rank)
            if best is None:
                continue
            helps = best.passed_with * best.n_without >= best.passed_without * best.n_with
            having = [trial for trial in trials if best.key in trial.keys[_own_order(best)]]
            shown = next((trial for trial in having if trial.passed is helps), having[0])
            call, number = _call_with(read(shown.place), best)
            yield Divergence(
                id=prompt_id,
                call=call,
                step=number,
                run=shown.run,
                number=shown.number,
                passed_with=best.passed_with,
                n_with=best.n_with,
                passed_without=best.passed_without,
                n_without=best.n_without,
            )


def _keys(call: Call) -> tuple[str, ...]:
    """What a call is compared by: that it failed, what it does, and which program it runs."""
    failed = f"{call.fine_key} failed" if call.failed else ""
    return failed, call.exact_key, call.fine_key, call.coarse_key


_N_KEYS = 4
_STRIDE = 1 + _N_KEYS
"""In the keys of a trial, the number of a step stands before its hashes."""


def _own_order(parting: _DivergingStep) -> slice:
    """Where hashes of this order stand in the keys of a trial."""
    return slice(1 + parting.order, None, _STRIDE)


def _diverging_steps(trials: Sequence[_TrialCalls]) -> Iterator[_DivergingStep]:
    first_steps: dict[tuple[int, int], dict[int, int]] = {}
    for index, trial in enumerate(trials):
        for at in range(0, len(trial.keys), _STRIDE):
            step = trial.keys[at]
            for order in range(_N_KEYS):
                if key := trial.keys[at + 1 + order]:
                    first_steps.setdefault((order, key), {}).setdefault(index, step)
    n, n_passed = len(trials), sum(trial.passed for trial in trials)
    for (order, key), having in first_steps.items():
        n_with = len(having)
        if n_with == n:
            continue
        passed_with = sum(trials[index].passed for index in having)
        counts = (passed_with, n_with, n_passed - passed_with, n - n_with)
        # One pass and one failure more on either side: few trials are no proof.
        difference = abs((counts[0] + 1) / (counts[1] + 2) - (counts[2] + 1) / (counts[3] + 2))
        yield _DivergingStep(difference, median_low(having.values()), order, key, *counts)


def _rank(parting: _DivergingStep) -> tuple[float, int, int]:
    return round(parting.difference, 9), -parting.step, -parting.order


def _call_with(row: ExplainedRow, parting: _DivergingStep) -> tuple[str, int]:
    """Return the words and the step of the call that trials part at."""
    for call in calls_of(row.trajectory, row.cwd):
        text = _keys(call)[parting.order]
        if text and crc32(text.encode()) == parting.key:
            return cut(text.removeprefix("shell "), 100), call.number
    return "", 0
