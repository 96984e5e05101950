"""Run an experiment for `assay ab`: print what happens, and say what was found."""

import os
import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from assay.cli.batch import debug_trace
from assay.cli.output import closing_lines, echo_folded, whole_output
from assay.cli.progress import Progress
from assay.errors import InputError, Interrupted
from assay.library.experiment import REPORT, ConductOptions, Conductor, Findings
from assay.pipeline.agents import without_prompt
from assay.pipeline.experiment_run import ExperimentProgress
from assay.records.experiment import Experiment
from assay.records.files import temporary_folder
from assay.records.setup import ArmsProof
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.report.experiment import effort_words, look_first
from assay.run.turn import Trace

_INVALID = 4


class AbOptions(ConductOptions, frozen=True, kw_only=True):
    """What the command line says about a run, besides what is compared."""

    yes: bool
    """Go on although the estimate passes the budget."""
    progress: bool
    quiet: bool
    as_json: bool
    debug: bool

    @property
    def prints_notes(self) -> bool:
        """Whether anything is printed besides errors and JSON."""
        return not self.quiet and not self.as_json

    @property
    def executor(self) -> str:
        return self.how.executor.name


def run_experiment(experiment: Experiment, options: AbOptions) -> int:
    """Run all that is missing; return the exit code."""
    try:
        with temporary_folder("assay-arms-") as scratch:
            return _Command(experiment, options, Path(scratch)).run()
    except (KeyboardInterrupt, Interrupted):
        echo_folded("Interrupted. Every finished trial is saved; run the same command again to "
                   "go on.", err=True)  # fmt: skip
        return 130


class _Command(Conductor):
    """Conducts an experiment and prints what becomes of it."""

    def __init__(self, experiment: Experiment, options: AbOptions, scratch: Path) -> None:
        super().__init__(experiment, options, scratch)
        self._shown = options
        self._displays: list[_Display] = []

    def run(self) -> int:
        """Return the exit code."""
        for arm in self._run.arms:
            if warning := without_prompt(arm.planned.request.agent):
                echo_folded(warning, err=True)
        for text in self.warnings:
            echo_folded(f"Warning: {text}", err=True)
        findings = self.execute()
        return 0 if findings is None or findings.valid else _INVALID

    def say(self, text: str) -> None:
        if self._shown.prints_notes:
            echo_folded(visible_line(text), err=True)

    def follow(self, *, is_smoke: bool) -> ExperimentProgress:
        self._displays.append(_Display(self._shown, is_smoke=is_smoke))
        return self._displays[-1]

    def trace(self) -> Trace | None:
        return debug_trace(self._shown)

    def open_output(self, path: Path) -> AbstractContextManager[BinaryIO]:
        return whole_output(path, overwrite=True)

    def pass_budget(self, words: str) -> None:
        if self._shown.yes:
            self.say(f"{words}; no trial is started once it is spent.")
            return
        if "CI" not in os.environ and sys.stdin.isatty() and sys.stderr.isatty():
            if click.confirm(f"{words[:1].upper()}{words[1:]}. Run until it is spent?", err=True):
                return
            raise click.exceptions.Exit(1)
        hint = "raise the budget, lower -k or --limit, or use --yes to run until it is spent"
        raise InputError(words, hint=hint)

    def smoke_ended(self, proof: ArmsProof) -> None:
        went = "The smoke trials went well."
        n_smoke = sum(display.n_smoke for display in self._displays)
        if not n_smoke:
            went = (
                "The smoke trials are of an earlier run; none was run now, so that this proves no "
                "login. --fresh runs them."
            )
        if self._shown.as_json:
            click.echo(msgspec.json.encode({"smoke": n_smoke, "proof": proof}).decode())
        elif self._shown.prints_notes:
            echo_folded(f"{'; '.join(proof.words)}. {went}")

    def found(self, findings: Findings) -> None:
        if self._shown.as_json:
            click.echo(msgspec.json.encode(self.written).decode())
        proof = findings.proof
        if not self._shown.prints_notes:
            for reason in () if proof.valid else proof.reasons:
                echo_folded(visible_line(f"INVALID: {reason}"), err=True)
            for name, words in findings.unhealthy.items():
                echo_folded(visible_line(f"{name}: {words}"), err=True)
            return
        for source, n in sorted(self._run.n_reused.items()):
            echo_folded(f"{counted_noun(n, 'trial')} reused from {source}")
        for name, n in self._run.unsigned.items():
            words = f"{counted_noun(n, 'row')} of {name} not used: Assay did not sign them here"
            echo_folded(visible_line(words))
        if self._run.not_covered:
            unknown = "; ".join(self._run.not_covered)
            echo_folded(visible_line(f"not covered, so that reused trials may be stale: {unknown}"))
        for line in proof.words:
            echo_folded(visible_line(line))
        if proof.valid:
            self._say_verdict(findings)
        else:
            self._say_invalid(findings)

    def _say_invalid(self, findings: Findings) -> None:
        echo_folded("INVALID: no verdict, because")
        for reason in findings.proof.reasons:
            echo_folded(f"  {visible_line(reason)}")
        if not findings.spent.n_trials:
            echo_folded("No trial was run.")
            return
        echo_folded(f"{effort_words(findings.spent)}. Report: {self.folder / REPORT}")
        self.say("These trials are not used again. When the cause is fixed, run the same command.")

    def _say_verdict(self, findings: Findings) -> None:
        for words in (*findings.sentences, *self.doubts, *self._run.failures()):
            echo_folded(visible_line(words))
        decisions, spent = findings.decisions.values(), findings.spent
        echo_folded(f"{effort_words(spent)}.")
        reasons = [*findings.proof.reasons, *findings.unhealthy.values()]
        rates = [pair["passRate"][mean] for pair in findings.pairs for mean in ("meanA", "meanB")]
        lines = closing_lines(
            [self.folder],
            failed=any(rate is not None and rate < 1.0 for rate in rates),
            report=str(self.folder / REPORT),
            then=self._next(findings, look_first(findings.pairs, reasons)),
        )
        for line in lines:
            echo_folded(visible_line(line))
        undecided = not decisions or not all(one.is_decided for one in decisions)
        undecided = undecided and not findings.unhealthy
        if spent.n_trials < spent.n_planned and undecided:
            self.say("The same command with a higher budget runs the rest.")

    def _next(self, findings: Findings, look: str) -> str:
        unused = [use.name for use in findings.proof.uses if use.kind == "skill" and not use.used]
        folders = [path for path, piece in self._run.pieces.items() if piece.name in unused]
        if folders:
            agent = self._run.arms[-1].arm.agent or "AGENT"
            words = f"assay trigger {shlex.quote(folders[0])} --cases CASES -s {shlex.quote(agent)}"
            return f"{words}. {look}"
        if "promising" in findings.codes.values():
            return f"the same command with --confirm. {look}"
        return f"assay view {shlex.quote(str(self.folder))}. {look}"


class _Display(Progress, ExperimentProgress):
    """Shows how the trials of all arms go."""

    def __init__(self, options: AbOptions, *, is_smoke: bool) -> None:
        plain = options.progress or options.debug
        super().__init__(plain=plain, quiet=options.quiet, as_json=options.as_json)
        self._prints_notes, self._is_smoke = options.prints_notes, is_smoke
        self.n_smoke = 0

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        super().begin(missing, n_planned)
        self.tally.has_repeats = True
        if missing and self._is_smoke:
            self.n_smoke = len(missing)
            count = "counts" if len(missing) == 1 else "count"
            self._echo(f"Smoke: {counted_noun(len(missing), 'trial')}, which {count}.")

    def grading_again(self, n: int) -> None:
        are = "trial is" if n == 1 else "trials are"
        self._echo(f"{n} finished {are} graded again, because the graders are others than before.")

    def _echo(self, text: str) -> None:
        if self._prints_notes:
            echo_folded(visible_line(text), err=True)
