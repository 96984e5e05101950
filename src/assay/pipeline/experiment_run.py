"""One run of an experiment, in a folder of its own: what is planned, done, spent and proven."""

import contextlib
import datetime
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.compare.calibration import find_calibration
from assay.compare.pairs import UnequalLosses
from assay.errors import InputError
from assay.pipeline.arms import (
    EarlierTrials,
    Regrade,
    RunBegin,
    arm_key,
    begin_of,
    interleave,
    is_invalid,
    trials_in,
)
from assay.pipeline.changes import copies_in
from assay.pipeline.experiment import (
    ExperimentRequest,
    files_of_grader,
    hash_inputs,
    hash_path,
)
from assay.pipeline.grading import ask_graders
from assay.pipeline.identity import identity_in
from assay.pipeline.made_of import (
    DEFAULT_K,
    confirming,
    made_of,
    own_identities,
    prepare_arms,
    read_rows,
)
from assay.pipeline.material import skill_body
from assay.pipeline.prompts import Setting
from assay.pipeline.proof import ArmFacts, Piece, gather, prove, read_piece, skills_in
from assay.pipeline.reuse import ReuseGuard
from assay.pipeline.run import (
    BatchProgress,
    PlannedArm,
    PreparedRun,
    batch_of,
    check_startable,
    execute,
    open_rows,
    place,
)
from assay.pipeline.stages import AskingHost, CaptureTrial
from assay.pipeline.steps import StopRule
from assay.pipeline.until import Earlier, UntilDecided, is_lost
from assay.plugin import PromptRow
from assay.plugin import Trial as TrialForGraders
from assay.records.capture import Identity
from assay.records.experiment import VERDICT, Arm, Experiment
from assay.records.files import copy_folder, read_kept, short_hash, temporary_folder
from assay.records.setup import ArmsProof
from assay.records.signatures import Signatures, unsigned, user_key
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import REUSED, Trial
from assay.report.experiment import Effort
from assay.run.treatment import without_treatment
from assay.run.turn import Trace
from assay.run.workspace import start_of
from assay.stats.noise import JudgeErrors
from assay.stats.sequential import SequentialDecision, decide_effect, judged_look
from assay.stats.significance import losses_differ

_MOST_UNTOUCHED = 8
"""Prompts whose graders look at a template before any trial."""
_UNEQUAL = 0.02
"""Level of the test that says that arms lost unequally; so seldom it is wrong."""

type Decisions = dict[str, SequentialDecision]
"""What a sequential rule decided about each arm, by name; nothing if all trials were run."""


class ExperimentArm(msgspec.Struct, frozen=True, kw_only=True):
    """An arm of an experiment, and what it was made from."""

    name: str
    arm: Arm
    planned: PlannedArm
    pieces: dict[str, Piece]
    """What the arm names, as it was when its template was made."""
    bodies: dict[str, str]
    """Hash of the body of each skill that its agent can read, by the hash of its folder."""

    @property
    def output(self) -> Path:
        return self.planned.request.output or Path()

    @property
    def specs(self) -> list[TrialSpec]:
        return self.planned.specs

    @property
    def setting(self) -> Setting:
        return self.planned.setting

    def identities_after(self) -> dict[str, Identity]:
        """Of prompts that put files into the workspace, or run a set-up there: what was there.

        Of trials of this run only, as it was before their agents began: what an agent does to its
        treatment is its behaviour.
        """
        found: dict[str, Identity] = {}
        done = {(one.id, one.number) for one in self.entries if not _is_reused(one)}
        for spec in self.specs:
            prompt, around, place = spec.prompt, spec.surroundings, start_of(spec)
            is_known = prompt.id in found or (prompt.id, spec.number) not in done
            if not (prompt.files or prompt.setup) or is_known or not place.is_dir():
                continue
            if spec.identity is not None:
                found[prompt.id] = identity_in(spec.identity, spec.agent, around, place)
                self.bodies.update(skill_bodies(place, found[prompt.id]))
        return found

    @property
    def servers(self) -> list[str]:
        given = self.setting.agent.options.get("mcp") or {}
        return list(given.get("mcpServers", given))

    @property
    def entries(self) -> list[Trial]:
        """All trials that are on disk."""
        return trials_in(self.output)

    def n_left(self, earlier: EarlierTrials | None) -> int:
        """Return how many trials have to be run, because no earlier run has them either."""
        done = {(trial.id, trial.number) for trial in trials_in(self.output)}
        left = [spec for spec in self.specs if (spec.prompt.id, spec.number) not in done]
        return len(left) - (earlier.count(left) if earlier is not None else 0)


def skill_bodies(place: Path, identity: Identity | None) -> dict[str, str]:
    """Hash the bodies of the skills that an agent reads in a folder, by the hashes of theirs."""
    skills = skills_in(identity) if identity else ()
    return {
        value: skill_body((place / Path(path).expanduser()).parent) for path, _, value in skills
    }


class ExperimentProgress(BatchProgress):
    """Follows the trials of an experiment."""

    def grading_again(self, n: int) -> None:
        """So many finished trials are graded again, because the graders are others than before."""


class ExperimentRun:
    """What a run of an experiment is made of, and what the journals of its arms say of it."""

    def __init__(self, experiment: Experiment, how: ExperimentRequest, scratch: Path) -> None:
        """scratch is an empty folder, where the templates of the arms are made."""
        self._began_s = time.monotonic()
        experiment = confirming(experiment) if how.confirm else experiment
        self._experiment, self._judge = experiment, how.judge
        # Before anything is read: an edit from now on makes the verdict stale, never wrong.
        self.inputs = hash_inputs(experiment)
        self.notes: list[str] = []
        """What to know before the first trial."""
        rows = read_rows(experiment, confirm=how.confirm, say=self.notes.append)
        self.inputs |= files_named_by(rows, Path(experiment.prompts or "").parent)
        pace = {"jobs": how.jobs, "rate_per_s": how.rate_per_s, "executor": how.executor}
        pace["longest_wait_s"] = how.longest_wait_s
        kept = {"keep_workspaces": how.keep_workspaces}
        prepared = prepare_arms(experiment, rows, scratch, how.tape, **pace, **kept)
        _check_graded(experiment, next(iter(prepared.values())))
        self.made_of = made_of(prepared)
        self.folder = run_folder(
            how.root / experiment.name, self._run_id(confirm=how.confirm), fresh=how.fresh
        )
        now = _next_begin(how.root)
        self.begin = begin_of(self.folder) if self.folder.exists() else RunBegin(now, how.fresh)
        self.arms = [self._placed(name, arm) for name, arm in prepared.items()]
        _refuse_unsigned([arm.output for arm in self.arms])
        self.by_key = {arm.planned.run_token: arm for arm in self.arms}
        specs = interleave([arm.specs for arm in self.arms], experiment.seed)
        check_startable(specs, how.jobs, here=how.executor.name == "local")
        batch = batch_of([arm.planned for arm in self.arms], specs)
        self._batch = msgspec.structs.replace(batch, settles=True)
        self.pieces = {path: piece for arm in self.arms for path, piece in arm.pieces.items()}
        # One that was interrupted goes on without earlier trials, if it began so.
        no_reuse = self.begin.fresh or how.confirm or how.reuse == "none" or experiment.register
        self.earlier = None if no_reuse else EarlierTrials(how.root, self.folder)
        self.guard = ReuseGuard(self.by_key, self.earlier, experiment.seed, how.reuse)
        self.not_covered: list[str] = []
        """What may have changed since reused trials were made, and cannot be known."""
        self.n_regraded = 0
        self._n_before = sum(len(arm.entries) for arm in self.arms)
        self._earlier_s = _earlier_seconds(self.folder)

    def _run_id(self, *, confirm: bool) -> str:
        """Name the run by what it measures: another budget continues it, another skill does not."""
        experiment = self._experiment
        k, why = experiment.k or DEFAULT_K, ["confirm"] if confirm else []
        parts = (experiment.control, k, experiment.seed, self.made_of, *why)
        return short_hash(msgspec.json.encode(parts, order="deterministic"))[:8]

    @property
    def specs(self) -> list[TrialSpec]:
        """The trials of all arms in the order in which they run."""
        return self._batch.specs

    @property
    def n_prompts(self) -> int:
        return len(self.arms[0].planned.rows)

    @property
    def n_copies(self) -> int:
        """How many prompts differ from others in nothing but their ids."""
        return len(copies_in(self.arms[0].specs))

    def _placed(self, name: str, prepared: PreparedRun) -> ExperimentArm:
        """Say where an arm works and writes. Its agent must not learn from a path which it is."""
        arm = self._experiment.resolved(name)
        named = [*arm.skills, arm.template, arm.instructions]
        return ExperimentArm(
            name=name,
            arm=arm,
            planned=place(prepared, self.folder / f"{name}.jsonl", self.folder),
            pieces={path: read_piece(Path(path)) for path in named if path},
            bodies=_bodies(prepared),
        )

    def run(
        self,
        specs: list[TrialSpec],
        progress: ExperimentProgress,
        stop: StopRule | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Run those of some trials that are missing; stop may end it early."""
        batch = msgspec.structs.replace(self._batch, specs=specs, max_cost=self.budget_left())
        work = CaptureTrial(graders=batch.graders)
        again = Regrade(work=work, workers=batch.jobs, announce=progress.grading_again)
        with open_rows(batch, progress, earlier=self.earlier, regrade=again) as rows:
            into = nullcontext(rows)
            for _ in execute(batch, progress=progress, stop=stop, rows=into, trace=trace):
                pass
            self.n_regraded += rows.n_regraded
            self.not_covered += [each for each in rows.not_covered if each not in self.not_covered]

    def rule(self, key: str) -> UntilDecided:
        """Return the rule that compares one arm with the control and says when it is decided."""
        errors, _ = self.calibration()

        def decide(seen: Any, extremes: Any, is_last: bool) -> SequentialDecision:
            effect, n_judged = self._experiment.effect, len(self.arms) - 1
            return decide_effect(
                judged_look(seen, errors, effect),
                effect=effect,
                is_last=is_last,
                extremes=extremes and extremes.with_noise((), errors),
                n_judged=n_judged,
            )

        def earlier() -> Iterator[Earlier]:
            for number, arm in enumerate((self.arms[0], self.by_key[key])):
                for trial in trials_in(arm.output):
                    yield number, trial.id, trial.number, trial.passed, is_lost(trial)

        def arm_of(spec: TrialSpec) -> int:
            return int(arm_key(spec) == key)

        own = (next(iter(self.by_key)), key)
        specs = [spec for spec in self.specs if arm_key(spec) in own]
        return UntilDecided(
            decide, earlier=earlier, arm_of=arm_of, plan=specs, order=None, copies=copies_in(specs)
        )

    def begin_signing(self) -> None:
        """Sign what is written into the folder of the run from now on."""
        if Signatures.read(self.folder) is None:
            Signatures.begin(self.folder, msgspec.json.encode(self.begin).decode())

    def forbid_reuse(self) -> None:
        """Let no later run use the trials: they had another set-up than asked for."""
        if Signatures.read(self.folder) is not None:
            Signatures.begin(self.folder, msgspec.json.encode(self.begin).decode())

    def calibration(self) -> tuple[JudgeErrors | None, str]:
        """Return what is known of the errors of the judge of the trials so far; see --judge."""
        versions = {
            f"{name}:{grade.version or 'unknown'}"
            for arm in self.arms
            for entry in arm.entries
            for name, grade in (entry.grades or {}).items()
        }
        beside = Path(self._experiment.prompts or "").parent
        return find_calibration(versions, [self.folder, beside], self._judge)

    def decided_earlier(self) -> Decisions:
        """Return what was decided before: a second look at the same trials must not change it."""
        if not self._experiment.is_sequential:
            return {}
        kind = dict[str, SequentialDecision]
        try:
            data = read_kept(self.folder / VERDICT)
            signatures = Signatures.read(self.folder)
            if signatures is None or not signatures.holds(data):  # the trials decide it again
                return {}
            known = msgspec.json.decode(data)
            found = msgspec.convert(known.get("decisions", {}), kind)
        except (OSError, msgspec.MsgspecError):
            return {}
        # Of an unhealthy measurement nothing is decided: trials that were not measured run again.
        same = known.get("effect") == self._experiment.effect and known.get("valid", True)
        judge = (known.get("judge") or {}).get("errors")
        same = same and judge == msgspec.to_builtins(self.calibration()[0])
        return found if found and same and all(d.is_decided for d in found.values()) else {}

    def budget_left(self) -> float | None:
        """Return what the trials that are left may cost."""
        budget = self._experiment.budget
        if budget is None:
            return None
        costs = [_spent(entry) for entry in self._own_entries]
        unknown = costs.count(None) * self.cost_bound(budget)
        return max(0.0, budget - sum(filter(None, costs)) - unknown)

    def cost_bound(self, budget: float) -> float:
        """Return what a trial of unknown cost counts as: the highest cost, or an even share."""
        known = [cost for cost in map(_spent, self._own_entries) if cost is not None]
        return max(known, default=budget / len(self.specs))

    @property
    def unsigned(self) -> dict[str, int]:
        """Rows of earlier runs that are not used because nobody knows who wrote them, by file."""
        return self.earlier.unsigned if self.earlier is not None else {}

    @property
    def n_reused(self) -> dict[str, int]:
        """Trials of earlier runs, by the folder that they come from."""
        entries = (entry for arm in self.arms for entry in arm.entries if _is_reused(entry))
        return dict(Counter(str(entry.metadata[REUSED]) for entry in entries))

    @property
    def _own_entries(self) -> list[Trial]:
        """The trials that this run made itself."""
        return [entry for arm in self.arms for entry in arm.entries if not _is_reused(entry)]

    def _facts(self) -> list[ArmFacts]:
        found = []
        for arm in self.arms:
            identity, own = arm.setting.identity, own_identities(arm.planned)
            assert identity is not None
            facts = ArmFacts(
                name=arm.name,
                arm=arm.arm,
                identity=identity,
                by_prompt={id_: one for id_, one in own.items() if one is not None},
                servers=frozenset(arm.servers),
                pieces=self.pieces,
                bodies=arm.bodies,
                after=arm.identities_after(),
            )
            found.append(gather(facts, trials_in(arm.output)))
        return found

    def proof(self) -> ArmsProof:
        """Say whether the arms differ in what they should, and in nothing else."""
        control, *others = self._facts()
        found = prove(control, others)
        reasons = [*found.reasons, *self._passed_untouched]
        return msgspec.structs.replace(found, valid=not reasons, reasons=reasons)

    @cached_property
    def _passed_untouched(self) -> list[str]:
        """Name arms in whose template graders find what they look for before an agent worked.

        Where the control's does not have it, the difference is the template itself.
        """
        control, *others = self.arms
        found = []
        for arm in others:
            if arm.arm.template == control.arm.template:
                continue
            if passed := _passes_untouched(arm) - _passes_untouched(control):
                ids = ", ".join(sorted(passed))
                found.append(
                    f"the graders of {ids} pass the template of {arm.name} before any agent has "
                    f"worked there, and not that of {control.name}: they find the treatment itself"
                )
        return found

    def unequal_losses(self) -> dict[str, UnequalLosses]:
        """Say of which arms other shares of attempts were lost than of the control."""
        return unequal_losses({arm.name: arm.entries for arm in self.arms})

    def failures(self) -> Iterator[str]:
        """Say of each arm if half of its trials or more failed, or could not be graded."""
        for arm in self.arms:
            entries = arm.entries
            failed = [f"{e.failure.cause.words}: {e.failure.message}" for e in entries if e.failure]
            graders = [next(iter(e.grader_failures.items())) for e in entries if e.grader_failures]
            failed += [f"the grader {name} failed: {why}" for name, why in graders]
            if failed and 2 * len(failed) >= len(entries):
                common = max(failed, key=failed.count)
                n = f"{len(failed)} of {counted_noun(len(entries), 'trial')}"
                yield f"{n} of {arm.name} failed ({common})"

    def effort(self, workers: int) -> Effort:
        """Return what the run has taken so far."""
        entries = [entry for arm in self.arms for entry in arm.entries]
        seconds = time.monotonic() - self._began_s
        if earlier_s := self._earlier_s:
            seconds = earlier_s + seconds if len(entries) > self._n_before else earlier_s
        own = [entry for entry in entries if not _is_reused(entry)]
        own_s = sum(entry.timing.total for entry in own) / 1000
        known = [cost for cost in map(_spent, own) if cost]
        return Effort(
            n_trials=len(entries),
            n_planned=len(self.specs),
            n_reused=len(entries) - len(own),
            cost_usd=sum(known) if known else None,
            # A run that was interrupted took longer than this process.
            seconds=max(seconds, own_s / workers),
        )


def all_ungraded(entries: Sequence[Trial]) -> tuple[str, str] | None:
    """Return a grader and its error if no trial could be graded."""
    errors = [e.grader_failures or {} for e in entries if not e.failure and e.verdict is None]
    named = [next(iter(each.items())) for each in errors if each]
    return named[0] if named and len(named) == len(entries) else None


def unequal_losses(entries: Mapping[str, Sequence[Trial]]) -> dict[str, UnequalLosses]:
    """Say of which arms other shares of attempts were lost than of the first, the control."""
    (control, (lost_a, n_a)), *others = [
        (name, _count_losses(own)) for name, own in entries.items()
    ]
    found = {}
    for name, (lost_b, n_b) in others:
        if losses_differ(lost_a, n_a, lost_b, n_b, alpha=_UNEQUAL):
            words = (
                f"attempts that were lost, in {counted_noun(lost_b, 'trial')} of {name} and "
                f"{lost_a} of {control},"
            )
            found[name] = UnequalLosses(words, lost_a / n_a + lost_b / n_b)
    return found


def _count_losses(entries: Sequence[Trial]) -> tuple[int, int]:
    """Count the trials of which an attempt was lost, and all of them."""
    return sum(entry.needs_rerun or bool(entry.retried) for entry in entries), len(entries)


def _spent(entry: Trial) -> float | None:
    """What a trial cost in dollars; None if its agent does not say it."""
    usage = entry.usage or None
    return None if usage is None or usage.cost_usd is UNSET else usage.spent_usd


def _is_reused(entry: Trial) -> bool:
    return REUSED in entry.metadata


def _refuse_unsigned(outputs: Sequence[Path]) -> None:
    """Refuse to continue a run with rows that somebody else put there."""
    if user_key(make=True) is None:  # none can be kept here, so that nothing is signed
        return
    signatures = Signatures.read(outputs[0].parent)
    for output in outputs:
        for file in (output, output.with_name(f"{output.name}.partial")):
            if n := unsigned(file, signatures):
                msg = f"{file} has {counted_noun(n, 'row')} that Assay did not sign here"
                hint = "an agent may have changed them: --fresh begins a new run without them"
                raise InputError(msg, hint=hint)


def files_named_by(rows: Sequence[PromptRow], folder: Path) -> dict[str, str]:
    """Hash the user's files that prompts name."""
    found: list[Path] = []
    for prompt, _ in rows:
        found += [folder / prompt.workspace] if prompt.workspace else []
        for grader in prompt.graders:
            found += files_of_grader(grader, folder)
        if prompt.expect is not None and prompt.expect.command:
            found += files_of_grader(f"command:{prompt.expect.command}", folder)
    named = {str(path): hash_path(path) for path in sorted(set(found))}
    return {path: value for path, value in named.items() if value}


def run_folder(root: Path, run_id: str, *, fresh: bool) -> Path:
    """Return the folder of the run that goes on, or of a new one, among those of an experiment."""
    found = (path for path in root.glob(f"*-{run_id}*") if path.is_dir())
    earlier = sorted(found, key=lambda path: (begin_of(path).began, path.name))
    unfinished = [path for path in earlier if not (path / VERDICT).exists()]
    if fresh:  # one that may have trials of earlier runs is not fresh
        unfinished = [path for path in unfinished if begin_of(path).fresh]
    if unfinished:
        return unfinished[-1]
    # One that was invalid is left as it is: the cause may be fixed, but its trials had it.
    spoiled = earlier and is_invalid(earlier[-1]) and any(earlier[-1].glob("*.jsonl*"))
    if earlier and not fresh and not spoiled:
        return earlier[-1]
    today = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d")
    again = f"-{len(earlier) + 1}" if earlier else ""
    return root / f"{today}-{run_id}{again}"


def _next_begin(root: Path) -> str:
    """Return the time, or one just after the last run began: a clock may have been set back."""
    now = datetime.datetime.now(tz=datetime.UTC)
    for folder in root.glob("*/*"):
        with contextlib.suppress(ValueError):
            last = datetime.datetime.fromisoformat(begin_of(folder).began)
            if last.tzinfo is not None:
                now = max(now, last + datetime.timedelta(microseconds=1))
    return now.isoformat(timespec="microseconds")


def _check_graded(experiment: Experiment, arm: PreparedRun) -> None:
    """Refuse prompts that nobody judges: without grades no arm can be better."""
    without = [prompt.id for prompt, _ in arm.rows if not (prompt.graders or prompt.expect)]
    if not arm.graders and without:
        msg = f"no grader judges the prompt {without[0]!r} of the experiment"
        raise InputError(msg, hint="name graders with -g, in the experiment file or in each prompt")


def _bodies(arm: PreparedRun) -> dict[str, str]:
    """Read the bodies of all skills in the templates of an arm and in the user's HOME."""
    assert arm.template is not None
    places = {arm.template: arm.setting.identity}
    templates = arm.row_settings.templates
    for prompt, _ in arm.rows:
        if prompt.id in templates:
            places[templates[prompt.id]] = arm.row_settings.of(prompt).identity
    found: dict[str, str] = {}
    for place_, identity in places.items():
        found |= skill_bodies(place_, identity)
    return found


def _earlier_seconds(folder: Path) -> float:
    """How long it took to come to the verdict that is there; nothing if there is none."""
    try:
        known = msgspec.json.decode(read_kept(folder / VERDICT))
        return float(known["effort"]["seconds"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0.0


def _passes_untouched(arm: ExperimentArm) -> set[str]:
    """Return prompts whose graders pass a trial that has no answer and did nothing."""
    if arm.planned.template is None:
        return set()
    specs = {spec.prompt.id: spec for spec in arm.specs}.values()
    # Prompts that bring no graders differ in little; of the others, a few will do.
    asked = {msgspec.json.encode(spec.graders): spec for spec in specs}
    few = list(asked.values())[:_MOST_UNTOUCHED]
    return {spec.prompt.id for spec in few if _passes_untouched_prompt(arm, spec)}


def _passes_untouched_prompt(arm: ExperimentArm, spec: TrialSpec) -> bool:
    graders = [plugins.grader(ref) for ref in (*arm.planned.graders, *spec.graders)]
    if not graders or any(grader.asks is not None for grader in graders):
        return False
    with temporary_folder("assay-untouched-") as place:
        folder = f"{place}/workspace"
        copy_folder(str(arm.planned.template), folder)
        trial = TrialForGraders(
            input=spec.prompt.input, output="", hint=spec.prompt.hint, cwd=folder,
            metadata=spec.prompt.metadata, row={"cwd": folder},
        )  # fmt: skip
        with without_treatment(folder, spec.surroundings.added):
            (verdict,) = ask_graders(graders, [trial], AskingHost())
    return verdict.score is not None and verdict.score.pass_
