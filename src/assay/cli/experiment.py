"""Run an experiment: prepare its arms, try one trial of each, run the rest, and give a verdict."""

import datetime
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from assay import __version__
from assay.cli.arms import (
    benchmark_of,
    check_graded,
    graders_of,
    prompts_of,
    ready_arms,
    row_settings,
)
from assay.cli.batch import debug_trace
from assay.cli.options import CaptureOptions
from assay.cli.output import echo_folded, open_sink, whole_output
from assay.cli.progress import Progress
from assay.errors import InputError, Interrupted, OutputError
from assay.pipeline.arms import VERDICT, ArmRows, EarlierTrials, Regrade, arm_key
from assay.pipeline.batch import Batch, check_startable, run_batch
from assay.pipeline.experiment import Experiment, differences, hash_inputs
from assay.pipeline.experiment_run import (
    Decisions,
    ExperimentRun,
    ReadyArm,
    all_ungraded,
    files_named_by,
    run_folder,
    run_id,
)
from assay.pipeline.resume import Resume
from assay.pipeline.stages import CaptureTrial, freeze
from assay.pipeline.trials import TrialRows
from assay.records.files import temporary_folder
from assay.records.setup import ArmsProof
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.report.experiment import (
    Effort,
    effort_words,
    look_first,
    money,
    sentence,
    span,
    verdict_code,
)

if TYPE_CHECKING:
    from assay.pipeline.until import UntilAllDecided
    from assay.stats.sequential import SequentialDecision

RESOLVED, REPORT = "resolved.json", "report.html"
_INVALID = 4
_DEFAULT_K = 5


class HowToRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about a run, besides what is compared."""

    root: Path
    """The folder of all experiments."""
    file: Path | None
    """Where the experiment was read from."""
    base: CaptureOptions
    """Options that all arms share."""
    smoke: bool
    fresh: bool
    yes: bool
    """Go on although the estimate passes the budget."""
    digest: str
    """Of the experiment as its file has it."""
    factors: tuple[str, ...] = ()
    """Names of the treatments of --ablate."""
    leaderboard: bool = False

    @property
    def talks(self) -> bool:
        return not self.base.quiet and not self.base.as_json


def run_experiment(experiment: Experiment, how: HowToRun) -> int:
    """Run all that is missing; return the exit code."""
    try:
        with temporary_folder("assay-arms-") as scratch:
            return _Command(experiment, how, Path(scratch)).execute()
    except (KeyboardInterrupt, Interrupted):
        click.echo("Interrupted. Every finished trial is saved; run the same command again to "
                   "go on.", err=True)  # fmt: skip
        return 130


class _Command:
    """Runs an experiment and says what becomes of it."""

    def __init__(self, experiment: Experiment, how: HowToRun, scratch: Path) -> None:
        self._experiment, self._how = experiment, how
        # Before anything is read: an edit from now on makes the verdict stale, never wrong.
        self._inputs = hash_inputs(experiment)
        benchmark = benchmark_of(experiment)
        self._graders = graders_of(experiment, benchmark)
        rows = prompts_of(experiment, benchmark)
        self._inputs |= files_named_by(rows, Path(experiment.prompts or "").parent)
        self._k = experiment.k or _DEFAULT_K
        ready = ready_arms(experiment, how.base, rows, self._graders, scratch)
        check_graded(experiment, rows, self._graders)
        named = run_id(experiment, self._k, ready, rows)
        self._folder = run_folder(how.root / experiment.name, named, fresh=how.fresh)
        self._run = ExperimentRun(
            experiment,
            self._k,
            ready,
            rows,
            partial(row_settings, experiment=experiment, graders=self._graders),
            self._folder,
        )
        self._earlier = None if how.fresh else EarlierTrials(how.root, self._folder)
        self._n_reused: dict[str, int] = {}
        self._n_regraded = 0
        self._n_smoke = 0
        """How many smoke trials were started by this command."""
        is_local = how.base.executor == "local"
        check_startable(self._run.specs, how.base.concurrency, here=is_local)

    def execute(self) -> int:
        """Check, run, judge and write; return the exit code."""
        freeze([*self._graders, *self._run.arms[0].own.graders])
        self._write_resolved()
        self._say_plan()
        if known := self._run.decided_earlier():
            return self._conclude(self._run.proof(), known)
        proof = self._run.proof()
        if not proof.valid and not any(arm.entries for arm in self._run.arms):
            return self._refuse(proof)
        self._run_trials(self._run.specs[: len(self._run.arms)], "smoke")
        proof = self._run.proof()
        self._check_smoke()
        if not proof.valid:
            return self._conclude(proof, {})
        self._say_estimate()
        if self._how.smoke:
            self._say_smoke(proof)
            return 0
        decisions = self._run_all()
        return self._conclude(self._run.proof(), decisions)

    def _say_smoke(self, proof: ArmsProof) -> None:
        went = "The smoke trials went well."
        if not self._n_smoke:
            went = (
                "The smoke trials are of an earlier run; none was run now, so that this proves no "
                "login. --fresh runs them."
            )
        if self._how.base.as_json:
            click.echo(msgspec.json.encode({"smoke": self._n_smoke, "proof": proof}).decode())
        elif self._how.talks:
            echo_folded(f"{'; '.join(proof.words)}. {went}")

    def _run_all(self) -> Decisions:
        """Run the rest, or until it is decided; return what was decided about each arm."""
        if not self._is_sequential():
            self._run_trials(self._run.specs, "all")
            return {}
        from assay.pipeline.until import UntilAllDecided  # late: numpy

        rules = {key: self._run.rule(key) for key in list(self._run.by_key)[1:]}
        self._run_trials(self._run.specs, "all", UntilAllDecided(rules, arm_key))
        return {self._run.by_key[key].name: rule.finish() for key, rule in rules.items()}

    def _is_sequential(self) -> bool:
        from assay.stats.sequential import FEWEST_UNITS  # late: numpy

        if self._how.factors or self._how.leaderboard:
            return False  # effects and ranks rest on all arms alike
        wanted, n_prompts = self._experiment.is_sequential, len(self._run.arms[0].specs) // self._k
        if wanted and n_prompts < FEWEST_UNITS:
            few = counted_noun(n_prompts, "prompt")
            self._say(f"{few}: fewer than {FEWEST_UNITS} decide nothing early, so all trials run.")
            return False
        return wanted

    def _say_plan(self) -> None:
        control, *others = self._run.arms
        for arm in others:
            names = {path: piece.name for path, piece in self._run.pieces.items()}
            asked = ", ".join(one.words for one in differences(control.arm, arm.arm, names))
            self._say(f"{arm.name} against {control.name}: {asked or 'no difference'}")
        n_prompts = len(self._run.arms[0].specs) // self._k
        each = f"{counted_noun(n_prompts, 'prompt')} x {counted_noun(self._k, 'trial')}"
        each += f" x {len(self._run.arms)} arms"
        self._say(f"{each} = {len(self._run.specs)} trials, in {self._folder}")

    def _say(self, text: str) -> None:
        if self._how.talks:
            echo_folded(visible_line(text), err=True)

    def _run_trials(
        self, specs: list[TrialSpec], what: str, stopper: "UntilAllDecided | None" = None
    ) -> None:
        """Run those of some trials that are missing; stopper may end it early."""
        base = self._how.base
        work = CaptureTrial(self._graders, self._experiment.retries, debug_trace(base))
        resume = Resume(k=self._k, graders=self._graders)
        with ExitStack() as stack:
            rows = {}
            for key, arm in self._run.by_key.items():
                sink = stack.enter_context(
                    open_sink(arm.output, "resume", kind="trials", resume=resume)
                )
                rows[key] = stack.enter_context(TrialRows(sink, arm.output, "resume", resume))
            again = Regrade(work=work, workers=base.concurrency, announce=self._say_regrade)
            into = ArmRows(rows, self._earlier, again)
            batch = Batch(
                specs=specs,
                run_token=self._run.token,
                resume=True,
                workers=base.concurrency,
                max_cost=self._run.budget_left(),
                rate_per_s=base.rate,
                executor=base.executor_ref,
            )
            show = partial(self._show, what=what)
            run_batch(batch, work, into, show, self._run.templates(), stopper)
            for each in rows.values():
                each.settle()
            for source, n in into.n_reused.items():
                self._n_reused[source] = self._n_reused.get(source, 0) + n
            self._n_regraded += into.n_regraded

    def _say_regrade(self, n: int) -> None:
        are = "trial is" if n == 1 else "trials are"
        self._say(f"{n} finished {are} graded again, because the graders are others than before.")

    def _show(self, missing: list[TrialSpec], what: str) -> Progress:
        base = self._how.base
        plain = base.progress or base.debug
        shown = Progress(len(missing), plain=plain, quiet=base.quiet, as_json=base.as_json)
        shown.expect([spec.prompt.id for spec in missing], each=self._k)
        if missing and what == "smoke":
            self._n_smoke = len(missing)
            count = "counts" if len(missing) == 1 else "count"
            self._say(f"Smoke: {counted_noun(len(missing), 'trial')}, which {count}.")
        return shown

    def _check_smoke(self) -> None:
        """Stop before money is spent on arms that cannot measure anything."""
        for arm in self._run.arms:
            entries = arm.entries
            failures = [entry.failure for entry in entries if entry.failure]
            if not entries:
                msg = f"arm {arm.name}: its first trial was not run: the budget is spent"
                raise InputError(msg, hint="raise the budget")
            broken = [failure for failure in failures if not failure.cause.measures_agent]
            if broken and len(broken) == len(entries):
                first = broken[0]
                msg = f"arm {arm.name}: {first.cause}: {first.message}"
                raise InputError(msg, hint=_remedy(str(first.cause), arm))
            if ungraded := all_ungraded(entries):
                grader, why = ungraded
                msg = f"arm {arm.name}: the grader {grader} failed: {why}"
                raise InputError(msg, hint="nothing more was started; mend it and run this again")
        for line in self._run.failures():
            self._say(f"Warning: {line}")

    def _say_estimate(self) -> None:
        """Say what the rest will take; refuse what passes the budget unless somebody agrees."""
        cost, seconds, n_trials = 0.0, 0.0, 0
        known = True
        for arm in self._run.arms:
            entries, n_left = arm.entries, arm.n_left(self._earlier)
            n_trials += n_left
            costs = [e.usage.cost_usd for e in entries if e.usage and e.usage.cost_usd]
            known = known and bool(costs)
            cost += n_left * (sum(costs) / len(costs) if costs else 0.0)
            seconds += n_left * sum(e.duration for e in entries) / max(len(entries), 1) / 1000
        if not n_trials:
            return
        price = f"about {money(cost)}" if known else "cost unknown"
        left = span(seconds / self._how.base.concurrency)
        self._say(f"Estimate for {counted_noun(n_trials, 'more trial')}: {price}, about {left}.")
        budget = self._run.budget_left()
        if budget is not None and not known:
            share = money(self._run.cost_bound(self._experiment.budget or 0.0))
            self._say(
                f"Not all agents say what a trial costs. Where one does not, {share} is counted: "
                "the dearest trial so far, or an even share of the budget."
            )
        elif budget is not None and cost > budget and not self._how.smoke:
            self._ask_to_pass(cost, budget)

    def _ask_to_pass(self, cost: float, budget: float) -> None:
        words = f"the estimate of {money(cost)} passes the {money(budget)} left in the budget"
        if self._how.yes:
            self._say(f"{words}; no trial is started once it is spent.")
            return
        if "CI" not in os.environ and sys.stdin.isatty() and sys.stderr.isatty():
            if click.confirm(f"{words[:1].upper()}{words[1:]}. Run until it is spent?", err=True):
                return
            raise click.exceptions.Exit(1)
        hint = "raise the budget, lower -k or --limit, or use --yes to run until it is spent"
        raise InputError(words, hint=hint)

    def _refuse(self, proof: ArmsProof) -> int:
        """End before the first trial, because no trial could make the verdict valid."""
        spent = self._run.effort(self._how.base.concurrency)
        told = _Told(proof=proof, pairs=[], spent=spent, decisions={}, margin=0.0)
        self._write_verdict(told)
        with whole_output(self._folder / "verdict.md", overwrite=True) as out:
            out.write(f"{proof.verdict}\n".encode())
        self._say_verdict(told)
        return _INVALID

    def _conclude(self, proof: ArmsProof, decisions: Decisions) -> int:
        """Compare the arms, write verdict and report, print the sentence."""
        from assay.cli.verdict import effect_lines, judge_arms, rank_lines  # late: numpy

        spent = self._run.effort(self._how.base.concurrency)
        named = [(arm.name, arm.output) for arm in self._run.arms]
        pairs = judge_arms(
            named,
            proof,
            margin=self._experiment.margin,
            seed=self._experiment.seed,
            folder=self._folder,
            title=self._experiment.name,
            decisions=decisions,
        )
        told = _Told(
            proof=proof,
            pairs=[pair for pair in pairs if pair["runA"] == self._experiment.control],
            spent=spent,
            decisions=decisions,
            margin=self._experiment.effect if decisions else self._experiment.margin,
        )
        if self._how.factors:
            lines = effect_lines(named, self._how.factors, self._experiment.seed)
            told = msgspec.structs.replace(told, instead=[*lines, effort_words(spent)])
        elif self._how.leaderboard:
            lines = rank_lines(named)
            told = msgspec.structs.replace(told, instead=[*lines, effort_words(spent)])
        self._write_verdict(told)
        self._say_verdict(told)
        return 0 if proof.valid else _INVALID

    def _say_verdict(self, told: "_Told") -> None:
        proof, spent = told.proof, told.spent
        if not self._how.talks:
            for reason in () if proof.valid else proof.reasons:
                echo_folded(visible_line(f"INVALID: {reason}"), err=True)
            return
        for source, n in sorted(self._n_reused.items()):
            click.echo(f"{counted_noun(n, 'trial')} reused from {source}")
        for line in proof.words:
            echo_folded(visible_line(line))
        if not proof.valid:
            click.echo("INVALID: no verdict, because")
            for reason in proof.reasons:
                echo_folded(f"  {visible_line(reason)}")
            if not spent.n_trials:
                click.echo("No trial was run.")
                return
            echo_folded(f"{effort_words(spent)}. Report: {self._folder / REPORT}")
            self._say(
                "These trials are not used again. When the cause is mended, run the same command."
            )
            return
        for words in (*told.sentences, *self._run.failures()):
            echo_folded(visible_line(words))
        echo_folded(f"Report: {self._folder / REPORT}")
        echo_folded(visible_line(look_first(told.pairs, proof.reasons)))
        undecided = not told.decisions or not all(d.is_decided for d in told.decisions.values())
        if spent.n_trials < spent.n_planned and undecided:
            self._say("The same command with a higher budget runs the rest.")

    def _write_resolved(self) -> None:
        """Write what the run is made from; the arms in it are complete."""
        experiment = self._experiment
        resolved = {
            "assay": __version__,
            "experiment": experiment,
            "file": str(self._how.file) if self._how.file else None,
            "arms": {
                arm.name: {"setup": arm.arm, "identity": arm.setting.identity}
                for arm in self._run.arms
            },
            "inputs": self._inputs,
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {self._folder}: {error.strerror}"
            raise OutputError(msg, hint="choose another folder with -o") from error
        self._write(RESOLVED, resolved)

    def _write_verdict(self, told: "_Told") -> None:
        proof = told.proof
        verdict = {
            "name": self._experiment.name,
            "ended": datetime.datetime.now(tz=datetime.UTC).isoformat(),
            "valid": proof.valid,
            "verdicts": told.codes or {arm.name: "invalid" for arm in self._run.arms[1:]},
            "sentences": told.sentences if proof.valid else [proof.verdict],
            "failures": list(self._run.failures()),
            "proof": proof,
            "effort": told.spent,
            "reused": self._n_reused,
            "regraded": self._n_regraded,
            "effect": self._experiment.effect,
            "decisions": told.decisions,
            "pairs": told.pairs,
            "file": str(self._how.file) if self._how.file else None,
            "folder": Path(os.path.relpath(Path.cwd(), self._folder)).as_posix(),
            "experiment": self._how.digest,
            "inputs": self._inputs,
        }
        self._write(VERDICT, verdict)
        if self._how.base.as_json:
            click.echo(msgspec.json.encode(verdict).decode())

    def _write(self, name: str, content: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(content), indent=2)
        with whole_output(self._folder / name, overwrite=True) as out:
            out.write(text + b"\n")


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has found, for the file and for the terminal."""

    proof: ArmsProof
    pairs: list[dict[str, Any]]
    """The comparison of each arm with the control, as in the report."""
    spent: Effort
    decisions: Decisions
    margin: float
    instead: list[str] = []
    """What is said in place of a sentence about each arm."""

    @property
    def codes(self) -> dict[str, str]:
        """The verdict about each arm, as a program reads it."""
        if not self.proof.valid:
            return {pair["runB"]: "invalid" for pair in self.pairs}
        return {pair["runB"]: verdict_code(pair, self._of(pair)) for pair in self.pairs}

    @property
    def sentences(self) -> list[str]:
        said = [sentence(pair, self._of(pair), self.spent, self.margin) for pair in self.pairs]
        return self.instead or said

    def _of(self, pair: dict[str, Any]) -> "SequentialDecision | None":
        return self.decisions.get(pair["runB"])


def _remedy(cause: str, arm: ReadyArm) -> str:
    from assay.adapters.vendor import known_agent  # late: only for a failure

    known = known_agent(arm.setting.agent.name)
    if cause == "auth":
        where = " and pass its key with env" if arm.setting.surroundings.own_home else ""
        return (known.login if known else "check its API key") + where
    if cause == "spawn" and known:
        return known.install
    return "nothing more was started; run the same command again when it is mended"
