"""Compare runs: the same numbers, sentences and decisions as `assay compare` gives."""

from collections.abc import Iterator, Sequence
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay.compare.names import name_runs
from assay.compare.report import CompareOptions, load_runs
from assay.compare.report import compare as compare_runs
from assay.errors import InputError, UsageError
from assay.library.checks import check_values, is_path
from assay.library.grading import trials_given
from assay.library.reading import Trial
from assay.library.run import Run
from assay.library.trials import Trials, html_table
from assay.library.wording import errors_in_python
from assay.records.files import temporary_folder
from assay.report.comparison import (
    advice_lines,
    flip_lines,
    gate_lines,
    health_lines,
    markdown,
    tables,
    verdict_lines,
)
from assay.report.sentence import word_verdicts
from assay.stats.verdict import GateName

type Decision = Literal["better", "worse", "same", "not-worse", "not-enough-data", "unhealthy"]
"""not-worse: a loss of the margin is ruled out, a gain is not shown. unhealthy: the measurement of
a run cannot be believed, so that nothing is decided."""
type Strategy = Literal["weighted", "statistical"]


class PairVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of two runs."""

    run_a: str
    run_b: str
    decision: Decision
    """What the second run is, compared with the first."""
    difference: float | None
    """Of the pass rates, the second minus the first; None if no prompt was graded in both."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the difference."""
    sentence: str
    gate: str | None = None
    """With fail_on: pass, fail, or cannot-judge; a sequential gate may say go-on."""
    reason: str = ""
    """Why the gate says so."""


class Verdict:
    """What a comparison found. str() is its sentence; a notebook shows its tables.

    Of several runs, these attributes are those of the second compared with the first; `pairs` has
    them for every two.
    """

    def __init__(self, sections: dict[str, Any]) -> None:
        """Made by assay.compare."""
        self.data = sections
        """The sections of the report, as `assay compare --format json` writes them."""
        self.pairs = tuple(_pairs(sections))

    @property
    def decision(self) -> Decision:
        """better, worse, same, not-worse, not-enough-data or unhealthy."""
        return self.pairs[0].decision

    @property
    def difference(self) -> float | None:
        """The difference of the pass rates."""
        return self.pairs[0].difference

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % confidence interval."""
        return self.pairs[0].interval

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        return self.pairs[0].sentence

    @property
    def gate(self) -> str | None:
        """The outcome of the gate that fail_on names; of several runs the worst."""
        outcomes = [pair.gate for pair in self.pairs if pair.gate is not None]
        return max(outcomes, key=_GATES.index) if outcomes else None

    @property
    def notes(self) -> list[str]:
        """How the runs differ in their prompts, graders and settings, and how to read the rest."""
        return list(self.data["notes"])

    def markdown(self) -> str:
        """Return the report as Markdown."""
        return markdown(self.data)

    def __str__(self) -> str:
        return "\n".join(pair.sentence for pair in self.pairs)

    def __repr__(self) -> str:
        return f"<Verdict {self.decision}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """Show the verdict and its tables in a notebook."""
        parts = [f"<p><b>{escape(pair.sentence)}</b></p>" for pair in self.pairs]
        lines = [*gate_lines(self.data), *health_lines(self.data)]
        lines += [f"note: {note}" for note in self.notes]
        parts += [f"<div>{escape(line)}</div>" for line in lines]
        for title, header, rows in tables(self.data):
            if rows:
                parts.append(f"<h4>{escape(title)}</h4>{html_table(header, rows)}")
        lines = [*flip_lines(self.data), *advice_lines(self.data)]
        return "".join([*parts, *(f"<div>{escape(line)}</div>" for line in lines)])


_GATES = ("pass", "go-on", "cannot-judge", "fail")
"""Outcomes of a gate, the worst last."""


def _pairs(sections: dict[str, Any]) -> Iterator[PairVerdict]:
    judged = {(gate["runA"], gate["runB"]): gate for gate in sections.get("gate", ())}
    found = zip(sections["verdict"], verdict_lines(sections), sections["pairs"], strict=True)
    for verdict, (code, words), pair in found:
        runs = verdict["runA"], verdict["runB"]
        rate, gate = pair["passRate"], judged.get(runs, {})
        ends = rate["interval"]
        yield PairVerdict(
            run_a=runs[0],
            run_b=runs[1],
            decision=code,  # type: ignore[arg-type]
            difference=rate["difference"],
            interval=(ends["low"], ends["high"]) if ends else None,
            sentence=words,
            gate=gate.get("outcome"),
            reason=gate.get("words", ""),
        )


@errors_in_python()
def compare(  # noqa: PLR0913 - the options of the command
    *runs: str | PathLike[str] | Trials | Run | Sequence[Trial],
    margin: float = CompareOptions().margin,
    fail_on: GateName | None = None,
    sequential: bool = False,
    strict: bool = False,
    strategy: Strategy = "weighted",
    cluster: str | None = None,
    category_key: str = "category",
    seed: int = CompareOptions().seed,
    judge: str | PathLike[str] | None = None,
) -> Verdict:
    """Compare two or more runs of the same prompts; the first is the baseline for the others.

    A run is a file that assay.run, `assay capture` or `assay trials` wrote, as a path or as
    "LABEL:FILE"; or what assay.run, read or grade returned. Prompts are paired; differences have
    95 % intervals.

    Args:
        runs: The runs, the baseline first.
        margin: Difference in pass rate below which runs count as the same.
        fail_on: Judge a gate, "regression" or "not-better"; see Verdict.gate.
        sequential: Judge the gate "regression" by a rule that may be asked after every batch of
            trials.
        strict: Refuse runs whose prompts, graders or settings differ.
        strategy: How the winner of each prompt is decided in the section headToHead.
        cluster: Metadata key of prompts that are not independent of each other.
        category_key: Metadata key by which pass rates are shown in groups.
        seed: Of the bootstrap.
        judge: What `assay calibrate --save` kept of the errors of the judge that graded, for which
            differences are corrected; by default judge.json beside the runs.

    Raises:
        InputError: A file is missing or is no result of Assay.
        UsageError: The arguments do not fit together.
    """
    check_values(margin=margin, fail_on=fail_on, sequential=sequential, strict=strict)
    check_values(
        strategy=strategy, cluster=cluster, category_key=category_key, seed=seed, judge=judge
    )
    _check_runs(runs)
    if sequential and (fail_on != "regression" or margin == 0.0):
        msg = 'sequential needs fail_on="regression" and a margin above 0'
        raise UsageError(msg)
    options = CompareOptions(
        strategy=strategy,
        margin=margin,
        seed=seed,
        growing=sequential,
        calibration=None if judge is None else Path(judge),
    )
    with temporary_folder("assay-compare-") as folder:
        files = [_file_of(run, number, folder) for number, run in enumerate(runs, 1)]
        loaded = load_runs(name_runs(files), "auto", category_key, lambda *_: None, cluster)
        comparison = compare_runs(loaded, options)
    if strict and comparison.warnings:
        msg = f"the runs differ: {comparison.warnings[0]}"
        hint = "compare runs made with the same prompts and settings, or leave out strict"
        raise InputError(msg, hint=hint)
    if sequential:
        comparison.judge_at_any_look(margin)
    elif fail_on:
        comparison.judge(fail_on, margin)
    return Verdict(word_verdicts(comparison.sections))


def _check_runs(runs: tuple[Any, ...]) -> None:
    if len(runs) == 1 and isinstance(runs[0], list | tuple) and not _are_trials(runs[0]):
        msg = "the runs are in a list"
        raise UsageError(msg, hint="give them one by one: assay.compare(before, after)")
    if len(runs) < 2:
        msg = "give at least two runs to compare"
        raise UsageError(msg, hint='as in assay.compare("before.jsonl", "after.jsonl")')
    for number, run in enumerate(runs, 1):
        if not is_path(run) and not isinstance(run, Trials | Run) and not _are_trials(run):
            msg = f"run {number} is of type {type(run).__name__}"
            hint = "give a file, what assay.run, read or grade returned, or a list of its trials"
            raise UsageError(msg, hint=hint)


def _are_trials(run: Any) -> bool:
    return (
        isinstance(run, list | tuple) and all(isinstance(one, Trial) for one in run) and bool(run)
    )


def _file_of(
    run: str | PathLike[str] | Trials | Run | Sequence[Trial], number: int, folder: str
) -> str:
    """Return the file of a run; trials that are in none are written to one."""
    if isinstance(run, str | PathLike):
        return fspath(run)
    trials = trials_given(run)
    path = Path(folder, str(number), trials.file.name if trials.file else f"run-{number}.jsonl")
    path.parent.mkdir()
    trials.to(path)
    return str(path)
