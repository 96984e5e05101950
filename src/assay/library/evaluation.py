"""An evaluation with a gate, as a test asks for it: what is shown, and what is left open."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.compare.names import name_runs
from assay.compare.report import CompareOptions, problems_of
from assay.compare.runs import load_run
from assay.errors import AssayError, UsageError
from assay.library.checks import check_names, check_values, is_path
from assay.library.reading import Trial
from assay.library.run import Run, RunOptions
from assay.library.run import run as start
from assay.library.verdict import compare
from assay.library.worker import AssayWarning, Progress, UngradedCount
from assay.pipeline.doubts import first_failure
from assay.records.text import counted_noun, visible_line
from assay.records.trial.files import detect_kind
from assay.stats.rates import rate_interval
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview

type Outcome = Literal["pass", "fail", "undecided"]
_LEVEL = 0.90
"""Of the interval: each of its ends is wrong in at most 5 % of all cases, as a one-sided test."""
_SHOWN = 10


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation must show."""

    min_pass_rate: float | None = None
    against: str | PathLike[str] | None = None
    """An earlier run, from which the pass rate must not fall by `margin`."""
    margin: float = CompareOptions().margin

    def check(self) -> None:
        """Refuse a gate that asks for nothing."""
        rate = self.min_pass_rate
        if rate is None and self.against is None:
            msg = "an evaluation needs min_pass_rate or against"
            raise UsageError(msg)
        check_values(margin=self.margin)
        if self.against is not None and not is_path(self.against):
            msg = f"against is {self.against!r}; give the file of an earlier run"
            raise UsageError(msg)
        if self.against is not None:
            ((_, earlier),) = name_runs([fspath(self.against)])
            detect_kind(earlier)  # before anything runs
        if rate is not None and not (isinstance(rate, int | float) and 0 < rate <= 1):
            msg = f"min_pass_rate is {rate!r}; give a share above 0 and at most 1"
            raise UsageError(msg)


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an evaluation."""

    outcome: Outcome
    reasons: list[str]
    """What each gate says."""
    failed: list[str]
    """The prompts that failed, with the reason of the first failure."""
    report: Path | None = None
    """A page with all trials, to be opened in a browser; none if the gate was passed."""

    def __str__(self) -> str:
        lines = [*self.reasons]
        if self.failed:
            lines += ["", "Failed prompts:", *(f"  {line}" for line in self.failed)]
        if self.report is not None:
            lines += ["", f"Report: {self.report}"]
        return "\n".join(lines)


def check_marker(options: Mapping[str, Any], undecided: Any) -> None:
    """Refuse a marker whose options cannot be used."""
    names = [*inspect.signature(start).parameters, *RunOptions.__annotations__]
    check_names(options, [*names, *Gate.__struct_fields__, "undecided"], "@pytest.mark.assay")
    check_values(undecided=undecided)
    if "agent" not in options:
        msg = "@pytest.mark.assay needs an agent"
        raise UsageError(msg)


def evaluate(run: Run, gate: Gate, k: int | None) -> tuple[Evaluation, list[Trial]]:
    """Run to the end, and judge; the run must have a file."""
    output = run.output
    assert output is not None
    tallies = _Tallies(gate, k)
    run.on_progress(tallies.check)
    run.needs_grades = True
    with warnings.catch_warnings():
        # The verdict says so itself.
        warnings.filterwarnings("ignore", ".* not graded because a grader failed", AssayWarning)
        trials = list(run)
    for trial in trials:
        tallies.add(trial)
    judged = list(tallies.judge())
    problems = "; ".join(_problems(output)) if any(trial.is_measured for trial in trials) else ""
    if problems:  # nothing that an unhealthy measurement shows is believed
        judged = [("undecided", f"undecided: the measurement is unhealthy: {problems}")]
    elif gate.against is not None:
        judged.append(_judge_against(gate.against, output, gate.margin))
    outcomes = {outcome for outcome, _ in judged}
    outcome: Outcome = "fail" if "fail" in outcomes else "undecided"
    outcome = "pass" if outcomes == {"pass"} else outcome
    evaluation = Evaluation(
        outcome=outcome,
        reasons=[words for _, words in judged],
        failed=list(tallies.failed()),
        report=_write_report(output, gate.against) if outcome != "pass" else None,
    )
    return evaluation, trials


class _Tallies:
    """How often each prompt passed."""

    def __init__(self, gate: Gate, k: int | None) -> None:
        self._gate, self._k = gate, k or 1
        self._trials: dict[str, list[Trial]] = {}
        self._n_total = 0
        self._ungraded = UngradedCount()

    def check(self, progress: Progress) -> None:
        """Refuse, before money is spent, what can never be shown."""
        if progress.trial is not None:
            return
        self._n_total = progress.n_total
        rate = self._gate.min_pass_rate
        n_prompts = progress.n_total // self._k
        if rate is None or not n_prompts:
            return
        best = _interval([self._k] * n_prompts, [self._k] * n_prompts)[0]
        if best < rate:
            msg = (
                f"{counted_noun(n_prompts, 'prompt')} can show a pass rate of {best:.2f} at most, "
                f"not {rate:g}, even if every trial passes"
            )
            raise UsageError(msg, hint="give more prompts or a lower min_pass_rate")

    def add(self, trial: Trial) -> None:
        self._trials.setdefault(trial.id, []).append(trial)
        self._ungraded.add(trial)

    def judge(self) -> Iterator[tuple[Outcome, str]]:
        """Yield what is shown of min_pass_rate.

        Trials that were not measured, or not run, count as failed where the rate must be shown to
        be high enough, and as passed where it must be shown to be too low.
        """
        wanted = self._gate.min_pass_rate
        if wanted is None:
            return
        n_passed = np.array([sum(t.passed is True for t in of) for of in self._trials.values()])
        n_measured = np.array([sum(t.is_measured for t in of) for of in self._trials.values()])
        n_planned = np.full(len(n_passed), self._k)
        n_absent = self._n_total - int(n_measured.sum())
        if not n_measured.sum():
            yield "undecided", f"undecided: {self._ungraded.words or 'no trial was measured'}"
            return
        absent = n_planned - n_measured
        low, _ = _interval(n_passed, n_planned)
        _, high = _interval(n_passed + absent, n_planned)
        rate, _ = rate_interval(n_passed, n_measured, _LEVEL)
        shown = f"pass rate {rate:.2f} ({low:.2f} to {high:.2f}, {len(n_passed)} prompts)"
        if n_absent:
            shown += f"; {counted_noun(n_absent, 'trial')} not measured"
        if self._ungraded.words:
            shown += f"; {self._ungraded.words}"
        if n_absent and len(self._trials) * self._k < self._n_total:
            yield "undecided", f"undecided, because not all trials were run: {shown}"
        elif low >= wanted:
            yield "pass", f"{shown}: at least {wanted:g}"
        elif high < wanted:
            yield "fail", f"{shown}: below min_pass_rate {wanted:g}"
        else:
            more = "more prompts would decide it"
            yield "undecided", f"undecided, whether at least {wanted:g}: {shown}; {more}"

    def failed(self) -> Iterator[str]:
        failing = {id_: [t for t in of if t.passed is not True] for id_, of in self._trials.items()}
        failing = {id_: bad for id_, bad in failing.items() if bad}
        for id_, bad in list(failing.items())[:_SHOWN]:
            n = len(self._trials[id_])
            first = bad[0]
            why = first.failure.message if first.failure else first.reasoning or "no reason given"
            if first.grader_failures:
                why = f"not graded: {first_failure(first.grader_failures)}"
            passed = f"{n - len(bad)} of {n} passed"
            yield visible_line(f"{id_} ({passed}): {why}")
        if len(failing) > _SHOWN:
            yield f"and {len(failing) - _SHOWN} more"


def _interval(n_passed: ArrayLike, n_measured: ArrayLike) -> tuple[float, float]:
    _, interval = rate_interval(n_passed, n_measured, _LEVEL)
    assert interval is not None
    return interval.low, interval.high


def _problems(output: Path) -> list[str]:
    return problems_of(load_run("run", output, detect_kind(output), "category"))


def _judge_against(
    against: str | PathLike[str], output: Path, margin: float
) -> tuple[Outcome, str]:
    verdict = compare(against, output, margin=margin, fail_on="regression")
    pair = verdict.pairs[0]
    words = f"{pair.run_b} against {pair.run_a}: {pair.reason}"
    outcomes: dict[str | None, Outcome] = {"pass": "pass", "fail": "fail"}
    outcome = outcomes.get(pair.gate, "undecided")
    return outcome, f"{outcome}: {words}"


def _write_report(output: Path, against: str | PathLike[str] | None) -> Path | None:
    paths = {"run": output} if against is None else {"before": Path(against), "run": output}
    shown = [OpenRun(label, Index(path, "category", keep=False)) for label, path in paths.items()]
    page = output.with_name("report.html")
    try:
        for run in shown:
            run.index.refresh()
        with page.open("wb") as out:
            write_bundle(out, overview(output.parent.name, shown, CompareOptions()), shown)
    except (AssayError, OSError):  # such as no row at all: the verdict stands without a page
        return None
    finally:
        for run in shown:
            run.index.close()
    return page
