"""Run an experiment with a control: prepare, try one trial of each arm, run the rest, judge."""

import datetime
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from assay import __version__, plugins
from assay.adapters.vendor import known_agent
from assay.compare.doubts import doubt_sentences
from assay.compare.ledger import (
    edit_of,
    question_of,
    read_looks,
    standing,
)
from assay.compare.names import Named
from assay.compare.report import CompareOptions
from assay.errors import InputError, OutputError
from assay.library.registration import Held, held_against, new_registration, plan_of
from assay.library.several_arms import (
    SkillEffect,
    pass_rates,
    rank_lines,
    skill_effects,
    skill_lines,
)
from assay.pipeline.arms import arm_key
from assay.pipeline.experiment import ExperimentRequest, differences
from assay.pipeline.experiment_run import (
    Decisions,
    ExperimentArm,
    ExperimentProgress,
    ExperimentRun,
    all_ungraded,
)
from assay.pipeline.imports import prompt_notes
from assay.pipeline.made_of import DEFAULT_K
from assay.pipeline.reuse import ReuseReport
from assay.pipeline.until import UntilAllDecided
from assay.records.experiment import REGISTERED, RESOLVED, VERDICT, Experiment, Standing
from assay.records.files import replaced_file
from assay.records.setup import ArmsProof
from assay.records.signatures import Signatures
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import REUSED
from assay.report.experiment import Effort, effect_lines, money, span
from assay.report.pull_request import MOST_REGRESSIONS, pull_request_markdown
from assay.run.turn import Trace
from assay.stats.factorial import estimate_effects, two_level_design
from assay.stats.noise import JudgeErrors
from assay.stats.planning import Difficulty, reach_of_design
from assay.stats.sequential import FEWEST_UNITS
from assay.stats.verdict import prompts_for_same
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview
from assay.viewer.regressions import worst_regressions

REPORT, SHORT_REPORT = "report.html", "verdict.md"
_USUAL = Difficulty(0.5, 0.5)
"""What is taken for granted before the first trial: half pass, and prompts differ."""


class ConductOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an experiment is conducted, besides what is compared."""

    how: ExperimentRequest
    file: Path | None = None
    """Where the experiment was read from."""
    digest: str
    """Of the experiment as its file has it."""
    smoke: bool = False
    """Whether only one trial of each arm is run."""
    factors: tuple[str, ...] = ()
    """Names of the treatments of an ablation."""
    leaderboard: bool = False
    skills: Mapping[str, str] = {}
    """The skill of each arm, where every arm has one of its own and its cases."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has found."""

    proof: ArmsProof
    pairs: list[dict[str, Any]]
    """The comparison of each arm with the control, as in the report."""
    spent: Effort
    decisions: Decisions
    verdicts: list[dict[str, Any]] = []
    """What was found of each arm, with its sentence, as in the report."""
    instead: list[str] = []
    """What is said in place of a sentence about each arm."""
    standings: dict[str, Standing] = {}
    """Of each arm, the looks that came before."""
    skills: list[SkillEffect] = []
    """Of each skill, what it does to its own cases and to those of others."""
    judge: tuple[JudgeErrors | None, str] = (None, "")
    """What is known of the errors of the judge, and what to say of them."""

    @property
    def valid(self) -> bool:
        """Whether the arms are what they should be, and their measurements can be believed."""
        return self.proof.valid and not self.unhealthy

    @property
    def codes(self) -> dict[str, str]:
        """The verdict about each arm, as a program reads it."""
        return {one["runB"]: self._code(one) for one in self.verdicts}

    def _code(self, verdict: dict[str, Any]) -> str:
        if not self.proof.valid:
            return "invalid"
        return str(verdict["code"]) if verdict["healthy"] else "unhealthy"

    @property
    def unhealthy(self) -> dict[str, str]:
        """Why there is no verdict about an arm: its measurement, or the control's, is unhealthy."""
        if not self.proof.valid:
            return {}
        return {one["runB"]: one["words"] for one in self.verdicts if not one["healthy"]}

    @property
    def sentences(self) -> list[str]:
        shown = [one for one in self.verdicts if not one["healthy"] or not self.instead]
        errors, words = self.judge
        if errors is not None and self.instead:
            words = "these are the judge's verdicts as they are, not corrected for its errors"
        said = [str(one["words"]) for one in shown]
        return [*said, *self.instead, *([words] if words else [])]


class Conductor:
    """Conducts an experiment. Subclasses override what is said and asked on the way."""

    def __init__(self, experiment: Experiment, options: ConductOptions, scratch: Path) -> None:
        self._experiment, self._options = experiment, options
        self._run = ExperimentRun(experiment, options.how, scratch)
        self.folder = self._run.folder
        self.written: dict[str, Any] = {}
        """What was written as the verdict."""
        self.doubts: list[str] = []
        """What puts passes of the arms in doubt."""
        self._held: Held | None = None
        """What was registered, and whether the run is as it was."""

    @property
    def warnings(self) -> list[str]:
        """What is to be known about the agents of the arms, each once."""
        agents = [plugins.adapter(arm.planned.request.agent) for arm in self._run.arms]
        return list(dict.fromkeys(text for agent in agents for text in agent.warnings))

    def say(self, text: str) -> None:
        """Take a sentence about what happens."""

    def follow(self, *, is_smoke: bool) -> ExperimentProgress:
        """Return what follows the trials that run next."""
        return ExperimentProgress()

    def trace(self) -> Trace | None:
        """Return what follows every line of the agents, if anything does."""
        return None

    def pass_budget(self, words: str) -> None:
        """Agree that the estimate passes the budget: trials run until it is spent."""

    def smoke_ended(self, proof: ArmsProof) -> None:
        """Only the smoke trials were to be run."""

    def found(self, findings: Findings) -> None:
        """The verdict is written."""

    def open_output(self, path: Path) -> AbstractContextManager[BinaryIO]:
        """Open a file of the experiment, which appears when it is whole."""
        return replaced_file(path)

    def execute(self) -> Findings | None:
        """Check, run, judge and write; return what was found, None after smoke trials alone."""
        self._write_resolved()
        self._register()
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
        self._run.calibration()  # refuses one of another grader before the rest is paid for
        self._say_estimate()
        if self._options.smoke:
            self.smoke_ended(proof)
            return None
        decisions = self._run_all()
        if self._is_open(decisions) and (n := self._n_to_repeat()):
            # Later than a retry would have been: what kept them from being measured may be over.
            self.say(f"{counted_noun(n, 'trial')} could not be measured; each is tried again.")
            decisions = self._run_all()
        return self._conclude(self._run.proof(), decisions)

    def _is_open(self, decisions: Decisions) -> bool:
        return not decisions or not all(one.is_decided for one in decisions.values())

    def _n_to_repeat(self) -> int:
        """Count what says nothing about the agent; none if that is most of it: an outage."""
        entries = [entry for arm in self._run.arms for entry in arm.entries]
        n_lost = sum(entry.needs_rerun for entry in entries)
        return n_lost if 0 < n_lost <= len(entries) // 2 and self._experiment.retries else 0

    def _run_all(self) -> Decisions:
        """Run the rest, or until it is decided; return what was decided about each arm.

        What rests on trials of another day is checked, and has to hold without them.
        """
        is_sequential, guard = self._is_sequential(), self._run.guard
        if not guard.is_checked:
            return self._run_planned(is_sequential)
        self._run_trials(guard.first(self._run.specs, all_prompts=not is_sequential), "check")
        guard.check()
        decisions = self._run_planned(is_sequential)
        margin = self._experiment.margin
        claims = guard.claims(margin) if not is_sequential else _decided(decisions)
        if not claims or not guard.rests_on_earlier():
            return decisions
        self.say("What is seen so far rests on trials of another day; some are run again.")
        if not is_sequential:
            guard.run_rounds_again()
            self._run_planned(is_sequential)
            held = guard.holds(claims, margin)
            guard.conclude(held=held)
            if held:
                return {}
        guard.run_all_again()
        again = self._run_planned(is_sequential)
        if is_sequential:
            guard.conclude(held=_decided(again) == claims)
        return again

    def _run_planned(self, is_sequential: bool) -> Decisions:
        if not is_sequential:
            self._run_trials(self._run.specs, "all")
            return {}
        rules = {key: self._run.rule(key) for key in list(self._run.by_key)[1:]}
        self._run_trials(self._run.specs, "all", UntilAllDecided(rules, arm_key))
        return {self._run.by_key[key].name: rule.finish() for key, rule in rules.items()}

    def _is_sequential(self) -> bool:
        if self._options.factors or self._options.leaderboard:
            return False  # effects and ranks rest on all arms alike
        wanted = self._experiment.is_sequential
        n_prompts = self._run.n_prompts - self._run.n_copies
        if wanted and n_prompts < FEWEST_UNITS:
            few = counted_noun(n_prompts, "prompt")
            self.say(f"{few}: fewer than {FEWEST_UNITS} decide nothing early, so all trials run.")
            return False
        return wanted

    def _say_plan(self) -> None:
        control, *others = self._run.arms
        for note in self._run.notes:
            self.say(note)
        for arm in others:
            names = {path: piece.name for path, piece in self._run.pieces.items()}
            asked = ", ".join(one.words for one in differences(control.arm, arm.arm, names))
            self.say(f"{arm.name} against {control.name}: {asked or 'no difference'}")
        k = self._experiment.k or DEFAULT_K
        each = f"{counted_noun(self._run.n_prompts, 'prompt')} x {counted_noun(k, 'trial')}"
        each += f" x {len(self._run.arms)} arms"
        self.say(f"{each} = {len(self._run.specs)} trials, in {self.folder}")
        if n_copies := self._run.n_copies:
            many = f"{n_copies} of {counted_noun(self._run.n_prompts, 'prompt')}"
            self.say(f"Note: {many} are copies of others; all copies of a prompt count as one.")
        self.say(self._reach_words(k))
        where = self._experiment.prompts or self._experiment.benchmark or "the prompts"
        graders = self._experiment.graders
        is_open = any(text.startswith("judge:") and "agent=none" in text for text in graders)
        for words in prompt_notes(self._run.arms[0].planned.rows, where, is_open=is_open):
            self.say(words)
        is_first = not any(self.folder.parent.glob(f"*/{VERDICT}"))
        if is_first and any(arm.setting.surroundings.own_home for arm in self._run.arms):
            self.say(
                "Each trial has a HOME of its own with a copy of the agent's login, so that "
                "nothing passes from one trial to another; --share-home lets them use yours."
            )

    def _reach_words(self, k: int) -> str:
        """Say before any money is spent what these prompts and trials can show."""
        n, experiment = self._run.n_prompts - self._run.n_copies, self._experiment
        margin = experiment.effect if experiment.is_sequential else experiment.margin
        reach = reach_of_design(n, k, _USUAL)
        here = f"about {reach.on_these:.2f} on these prompts"
        shown = f"no difference on prompts like these, and one of {here}"
        if (general := reach.in_general) is not None:
            shown = f"a difference of about {general:.2f} on prompts like these, and of {here}"
        words = f"If half of all trials pass, this run can show {shown} (in 4 of 5 cases)"
        fewest = prompts_for_same(margin)
        if fewest is not None and n < fewest:
            words += f"; that there is none of {margin:g} takes {fewest} prompts or more"
        return f"{words}."

    def _run_trials(
        self, specs: list[TrialSpec], what: str, stop: UntilAllDecided | None = None
    ) -> None:
        """Run those of some trials that are missing; stop may end it early."""
        self._run.run(specs, self.follow(is_smoke=what == "smoke"), stop, self.trace())

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
                raise InputError(
                    msg, hint="nothing more was started; fix it and run the same again"
                )
        for line in self._run.failures():
            self.say(f"Warning: {line}")

    def _say_estimate(self) -> None:
        """Say what the rest will take; refuse what passes the budget unless somebody agrees."""
        cost, seconds, n_trials = 0.0, 0.0, 0
        known = True
        for arm in self._run.arms:
            entries, n_left = arm.entries, arm.n_left(self._run.earlier)
            n_trials += n_left
            costs = [e.usage.cost_usd for e in entries if e.usage and e.usage.cost_usd]
            known = known and bool(costs)
            cost += n_left * (sum(costs) / len(costs) if costs else 0.0)
            seconds += n_left * sum(e.timing.total for e in entries) / max(len(entries), 1) / 1000
        if not n_trials:
            return
        price = f"about {money(cost)}" if known else "cost unknown"
        left = span(seconds / self._options.how.jobs)
        self.say(f"Estimate for {counted_noun(n_trials, 'more trial')}: {price}, about {left}.")
        budget = self._run.budget_left()
        if budget is not None and not known:
            share = money(self._run.cost_bound(self._experiment.budget or 0.0))
            self.say(
                f"Not all agents say what a trial costs. Where one does not, {share} is counted: "
                "the most expensive trial so far, or an even share of the budget."
            )
        elif budget is not None and cost > budget and not self._options.smoke:
            self.pass_budget(
                f"the estimate of {money(cost)} passes the {money(budget)} left in the budget"
            )

    def _refuse(self, proof: ArmsProof) -> Findings:
        """End before the first trial, because no trial could make the verdict valid."""
        spent = self._run.effort(self._options.how.jobs)
        result = Findings(proof=proof, pairs=[], spent=spent, decisions={})
        self._write_verdict(result)
        with self.open_output(self.folder / SHORT_REPORT) as out:
            out.write(f"{proof.verdict}\n".encode())
        self.found(result)
        return result

    def _conclude(self, proof: ArmsProof, decisions: Decisions) -> Findings:
        """Compare the arms, write verdict and report."""
        spent = self._run.effort(self._options.how.jobs)
        proof = _with_reuse(proof, self._run.guard.report())
        self._held = held_against(self.folder, self._plan())
        if self._held is not None:
            words = [*proof.words, self._held.words]
            proof = msgspec.structs.replace(proof, words=words)
        named, standings = [(arm.name, arm.output) for arm in self._run.arms], self._standings()
        chosen = self._compare_options(named, proof, decisions, standings)
        sections = self._report_on(named, chosen)
        pairs, verdicts = (
            [one for part in sections for one in part[name] if one["runA"] == named[0][0]]
            for name in ("pairs", "verdict")
        )
        result = Findings(
            proof=proof,
            pairs=pairs,
            verdicts=verdicts,
            spent=spent,
            standings=standings,
            decisions=decisions,
            judge=self._run.calibration(),
        )
        if self._options.factors:
            shown = next((part["effects"] for part in sections if "effects" in part), None)
            lines = [shown["words"], *effect_lines(shown["found"])] if shown else []
            more = shown["more"] if shown else []
            result = msgspec.structs.replace(result, instead=[*lines, *more])
        elif together := next((part["together"] for part in sections if "together" in part), None):
            result = msgspec.structs.replace(
                result, instead=together["lines"], skills=together["skills"]
            )
        self._write_verdict(result)
        self.found(result)
        return result

    def _standings(self) -> dict[str, Standing]:
        """Say of each arm how many looks there were at it before."""
        if self._options.factors or self._options.leaderboard:
            return {}
        control, *others = self._run.arms
        sources = {
            Path(str(entry.metadata[REUSED])).name
            for arm in self._run.arms
            for entry in arm.entries
            if REUSED in entry.metadata and self._experiment.is_sequential
        }
        found, names = {}, [arm.name for arm in self._run.arms]
        question = question_of(msgspec.to_builtins(self._run.made_of))
        for arm in others:
            found[arm.name] = standing(
                read_looks(self.folder.parent, control.arm, arm.name, names, question),
                edit_of(control.arm, arm.arm, self._run.inputs),
                question=question,
                run=self.folder.name,
                continued=sources,
                is_confirmation=self._options.how.confirm,
            )
        return found

    def _compare_options(
        self,
        named: Named,
        proof: ArmsProof,
        decisions: Decisions,
        standings: Mapping[str, Standing],
    ) -> CompareOptions:
        experiment, factors = self._experiment, self._options.factors
        reused = {
            arm.name: sum(REUSED in entry.metadata for entry in arm.entries)
            for arm in self._run.arms
        }
        design = two_level_design(len(factors)) if factors else []
        return CompareOptions(
            margin=experiment.margin,
            seed=experiment.seed,
            proof=proof,
            standings=standings,
            decisions=decisions,
            effect=experiment.effect if decisions else None,
            unequal=self._run.unequal_losses(),
            judge_errors=self._run.calibration(),
            these_prompts=not (self._run.n_reused or any(s.n_tries for s in standings.values())),
            reused={name: n for name, n in reused.items() if n},
            growing=bool(decisions),
            allow_replayed=self._options.how.allow_replayed,
            arms={
                label: [name for name, on in zip(factors, row, strict=True) if on]
                for (label, _), row in zip(named, design, strict=False)
            },
            effects=estimate_effects(factors, design, pass_rates(named), seed=experiment.seed)
            if factors
            else None,
        )

    def _report_on(self, named: Named, chosen: CompareOptions) -> list[dict[str, Any]]:
        """Compare all arms, the control first; write report.html and verdict.md.

        Return the sections of the comparison, as the report has them.
        """
        title = self._experiment.name
        shown = [OpenRun(label, Index(path, "category", keep=False)) for label, path in named]
        try:
            for run in shown:
                run.index.refresh()
            page = overview(title, shown, chosen)
            if self._options.leaderboard or self._options.skills:
                page["groups"][0]["sections"]["together"] = self._together(named, page)
            with self.open_output(self.folder / REPORT) as out:
                write_bundle(out, page, shown)
            with self.open_output(self.folder / SHORT_REPORT) as out:
                worst = worst_regressions(page, shown, MOST_REGRESSIONS)
                out.write(pull_request_markdown(page, worst, title).encode())
        finally:
            for run in shown:
                run.index.close()
        sections = [group["sections"] for group in page["groups"]]
        self.doubts = [words for part in sections for words in doubt_sentences(part)]
        return sections

    def _together(self, named: Named, page: dict[str, Any]) -> dict[str, Any]:
        """What several arms show together: a leaderboard, or a table of skills."""
        unhealthy = {
            label: "; ".join(health["problems"])
            for group in page["groups"]
            for label, health in group["sections"]["health"].items()
            if not health["healthy"]
        }
        seed = self._experiment.seed
        if self._options.leaderboard:
            return {"lines": rank_lines(named, unhealthy, seed), "skills": []}
        effects = skill_effects(named, self._options.skills, seed)
        return {"lines": skill_lines(effects, unhealthy), "skills": effects}

    def _write_resolved(self) -> None:
        """Write what the run is made from; the arms in it are complete."""
        experiment = self._experiment
        resolved = {
            "assay": __version__,
            "began": self._run.begin.began,
            "fresh": self._run.begin.fresh,
            "experiment": experiment,
            "file": str(self._options.file) if self._options.file else None,
            "arms": {
                arm.name: {"setup": arm.arm, "identity": arm.setting.identity}
                for arm in self._run.arms
            },
            "inputs": self._run.inputs,
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {self.folder}: {error.strerror}"
            raise OutputError(msg, hint="choose another folder with -o") from error
        self._run.begin_signing()
        self._write(RESOLVED, resolved)

    def _register(self) -> None:
        """Sign and write down the plan before the first trial."""
        if not self._experiment.register or (self.folder / REGISTERED).is_file():
            return
        if any(arm.entries for arm in self._run.arms):
            msg = f"{self.folder}: trials of this run are there already"
            raise InputError(msg, hint="register a plan before its first trial: add --fresh")
        now = datetime.datetime.now(tz=datetime.UTC)
        made = new_registration(self._plan(), now.isoformat(timespec="seconds"))
        self._write(REGISTERED, made)
        by = f", signed by key {made.key}" if made.key else ""
        self.say(f"Registered before the first trial: plan sha256:{made.digest}{by}.")

    def _plan(self) -> dict[str, Any]:
        confirm = self._options.how.confirm
        return plan_of(self._experiment, self._run.made_of, confirm=confirm)

    def _write_verdict(self, result: Findings) -> None:
        proof, now = result.proof, datetime.datetime.now(tz=datetime.UTC)
        verdict = {
            "name": self._experiment.name,
            "ended": max(now.isoformat(), self._run.begin.began),
            "valid": result.valid,
            "verdicts": result.codes or {arm.name: "invalid" for arm in self._run.arms[1:]},
            "sentences": result.sentences if proof.valid else [proof.verdict],
            "failures": list(self._run.failures()),
            "doubts": self.doubts,
            "proof": proof,
            "effort": result.spent,
            "reused": self._run.n_reused,
            "reuse": self._run.guard.report(),
            **({"registration": self._held} if self._held else {}),
            "edits": result.standings,
            "confirm": self._options.how.confirm,
            "notCovered": self._run.not_covered,
            "regraded": self._run.n_regraded,
            "judge": {"errors": result.judge[0], "words": result.judge[1]},
            "effect": self._experiment.effect,
            "decisions": result.decisions,
            "pairs": result.pairs,
            **({"skills": result.skills} if result.skills else {}),
            "file": str(self._options.file) if self._options.file else None,
            "folder": Path(os.path.relpath(Path.cwd(), self.folder)).as_posix(),
            "experiment": self._options.digest,
            "inputs": self._run.inputs,
            "madeOf": self._run.made_of,
        }
        if not proof.valid:
            self._run.forbid_reuse()
        self._write(VERDICT, verdict)
        self.written = verdict

    def _write(self, name: str, content: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(content), indent=2)
        with self.open_output(self.folder / name) as out:
            out.write(text + b"\n")
        if (signatures := Signatures.read(self.folder)) is not None:
            signatures.sign(text + b"\n")


def _remedy(cause: str, arm: ExperimentArm) -> str:
    known = known_agent(arm.setting.agent.name)
    if cause == "auth":
        around = arm.setting.surroundings
        where = " and pass its key with env" if around.hides_env else ""
        if around.own_home and not around.hides_env:
            where = ", or use --share-home (share-home = true): its trials have a HOME of their own"
        return (known.login if known else "check its API key") + where
    if cause == "spawn" and known:
        return known.install
    return "nothing more was started; run the same again when it is fixed"


def _with_reuse(proof: ArmsProof, reused: Mapping[str, ReuseReport]) -> ArmsProof:
    """Say besides how the arms differ what became of trials of another day."""
    now = datetime.datetime.now(tz=datetime.UTC)
    words = [found.words(name, now) for name, found in reused.items()]
    return msgspec.structs.replace(proof, words=[*proof.words, *words])


def _decided(decisions: Decisions) -> dict[str, str]:
    return {name: str(one.outcome) for name, one in decisions.items() if one.is_decided}
