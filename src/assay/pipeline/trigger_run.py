"""An experiment about a skill: the arms are agents that are offered one of its versions.

Cases are run with the skill as it is, with two versions that are compared, or with descriptions
that an agent proposes until one does better.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import msgspec

from assay.errors import AssayError, InputError
from assay.pipeline.descriptions import Attempt, PaidHost, best_of, propose_description
from assay.pipeline.material import Material, Skill, read_skill
from assay.pipeline.notes import Note
from assay.pipeline.run import Batch, PlannedArm, RunRequest, batch_of, place, prepare
from assay.pipeline.steps import Budget
from assay.pipeline.trigger import (
    StopRule,
    beside,
    in_order,
    installed_skills,
    marker_of,
    read_description,
    read_fires,
    skills_below,
    split_cases,
    uses_skills,
    with_description,
)
from assay.plugin import PromptRow
from assay.records.files import hash_folder, replaced_file
from assay.records.reports import TriggerReport, TriggerRun
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line
from assay.report.comparison import flip_lines, verdict_lines
from assay.report.sentence import word_verdicts

ASK_TIMEOUT_S = 600.0
_CURRENT, _CANDIDATE = "current", "candidate"

type _Outputs = Mapping[tuple[str, str], Path]
"""By the names of the agent and of the version of the skill."""


class TriggerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All that an experiment about a skill needs to know."""

    run: RunRequest
    """What all arms ask for alike. Its output names those of the arms."""
    cases: list[PromptRow]
    skill: Skill
    agents: dict[str, PluginRef]
    """By name."""
    others: Sequence[Path] = ()
    """Folders of skills that the agents are offered, too."""
    with_installed: bool = False
    """Whether they are offered those in the user's HOME."""
    marker: str | None = None
    """A text by which the skill is known to have fired; by default what SKILL.md says."""
    max_calls: int = 10
    """A trial ends as not fired after this many tool calls."""
    compare: Path | None = None
    """Another version of the skill, or a file with another description."""
    optimize: int | None = None
    """How many descriptions are proposed."""
    margin: float = 0.02
    seed: int = 0


class TriggerExperiment:
    """Runs cases with versions of a skill. Subclasses override what is said on the way."""

    def __init__(self, request: TriggerRequest, scratch: Path) -> None:
        """scratch is an empty folder, where the workspaces' templates are made."""
        self._request, self._scratch = request, scratch
        self._output = request.run.output or scratch / "trials.jsonl"
        skill = request.skill
        marker = marker_of(skill) if request.marker is None else request.marker
        more = {"marker": marker} if marker else {}
        self._grader = PluginRef(name="trigger", options={"skill": skill.name, **more})
        self._rule = StopRule(skill=skill.name, marker=marker, max_calls=request.max_calls)
        self._others = {name: self._beside(ref) for name, ref in request.agents.items()}
        self._budget: Budget | None = None
        """What trials of several runs and proposals may cost together; None for a single run."""
        self._using: set[str] = set()
        """Agents that were seen to use a skill, and so are offered skills."""
        self._is_complete = True
        """Whether all trials of the last run were run, and some of them measured anything."""
        self.asked: PaidHost | None = None
        """Who was asked for descriptions."""
        self.outputs: list[Path] = []
        """Those of the arms that ran last."""
        self.lines: list[str] = []
        """What to say below the report."""

    def say(self, note: Note) -> None:
        """Take a sentence about what happens."""

    def run_batch(self, batch: Batch) -> bool:
        """Run the trials; return whether all were run, and some of them measured anything."""
        raise NotImplementedError

    def open_output(self, path: Path) -> AbstractContextManager[BinaryIO]:
        """Open a file, which appears when it is whole."""
        return replaced_file(path)

    def execute(self) -> TriggerReport:
        """Run what is asked for; where that cannot go on, return what there is."""
        request = self._request
        if request.optimize:
            return self._optimize()
        if request.compare is None:
            return self._run(request.cases, {"": request.skill})
        versions = {_CURRENT: request.skill, _CANDIDATE: self._other_version(request.compare)}
        return self._judged(self._run(request.cases, versions))

    def _beside(self, agent: PluginRef) -> list[Skill]:
        """Return the other skills that an agent is offered; say which are not."""
        request, skill = self._request, self._request.skill
        found = [other for folder in request.others for other in skills_below(folder)]
        if request.with_installed:
            installed, unreadable = installed_skills(agent)
            found += installed
            for text in unreadable:
                self.say(Note(f"Note: {text}; it is left out"))
        others, copies = beside(skill, found)
        for folder in copies:
            self.say(
                Note(
                    f"Note: {folder} is another copy of {skill.name}; it is left out, so that it "
                    "cannot be used in its place"
                )
            )
        return others

    def _other_version(self, path: Path) -> Skill:
        """Read what the skill is compared with; refuse the skill itself."""
        skill = self._request.skill
        if path.is_dir():
            other = read_skill(path)
            is_same = hash_folder(path) == hash_folder(skill.folder)
            if other.name != skill.name:
                msg = f"{path}: the skill is called {other.name!r}, not {skill.name!r}"
                hint = "two versions of one skill are compared; give both one name"
                raise InputError(msg, hint=hint)
        else:
            other = with_description(skill, read_description(path), self._scratch / "candidate")
            is_same = other.description == skill.description
        if is_same:
            msg = f"{path}: this is the same {'skill' if path.is_dir() else 'description'}"
            raise InputError(msg, hint="--compare needs another version of the skill")
        return other

    def _run(
        self, cases: list[PromptRow], versions: dict[str, Skill], part: str = ""
    ) -> TriggerReport:
        """Run the cases with each version of the skill, in each agent; versions alternate."""
        arms = {
            (agent, variant): self._arm(agent, variant, skill, cases, part)
            for agent in self._request.agents
            for variant, skill in versions.items()
        }
        groups = zip(*(arm.specs for arm in arms.values()), strict=True)
        batch = batch_of(list(arms.values()), [spec for group in groups for spec in group])
        self.outputs = [_output(arm) for arm in arms.values()]
        self._is_complete = self.run_batch(msgspec.structs.replace(batch, budget=self._budget))
        several = len(versions) > 1
        if several:
            self.lines.append(_difference(list(arms.values())))
        outputs = {key: _output(arm) for key, arm in arms.items()}
        return self._report(outputs, [prompt.id for prompt, _ in cases], several=several)

    def _arm(
        self, agent: str, variant: str, skill: Skill, cases: list[PromptRow], part: str
    ) -> PlannedArm:
        request = self._request
        words = [agent if len(request.agents) > 1 else "", part]
        words.append("" if variant == _CURRENT else variant)
        name = ".".join(filter(None, (self._output.stem, *words)))
        elsewhere = {p.id for p, _ in request.cases} - {p.id for p, _ in cases}
        tape = request.run.tape
        if tape is not None:
            tape = msgspec.structs.replace(tape, arm=".".join(filter(None, words)))
        asked = msgspec.structs.replace(
            request.run,
            agent=request.agents[agent],
            rows=cases,
            rerun=[name for name in request.run.rerun if name not in elsewhere],
            material=Material(
                template=request.run.workspace_template, skills=(*self._others[agent], skill)
            ),
            scratch=self._scratch / f"template.{name}",
            graders=[self._grader],
            until=self._rule,
            output=self._output.with_name(f"{name}{self._output.suffix}"),
            tape=tape,
        )
        return place(prepare(asked))

    def _report(self, outputs: _Outputs, order: list[str], *, several: bool) -> TriggerReport:
        skill = self._request.skill.name
        self._using |= {
            agent
            for (agent, _), path in outputs.items()
            if uses_skills(read_fires(path, agent, skill))
        }
        runs = []
        for (agent, variant), path in outputs.items():
            fires = read_fires(path, agent, skill, works=agent in self._using)
            described = variant if several else ""
            invalid = [*fires.invalid, *_unhealthy(path, fires)]
            fires = msgspec.structs.replace(fires, description=described, invalid=invalid)
            runs.append(in_order(fires, order))
        return TriggerReport(skill=skill, runs=runs)

    def _judged(self, report: TriggerReport) -> TriggerReport:
        """Add the paired verdict on the two versions, for each agent."""
        comparing = _comparing()
        options = comparing.CompareOptions(margin=self._request.margin, seed=self._request.seed)
        verdicts: list[dict[str, Any]] = []
        for current, candidate in zip(report.runs[::2], report.runs[1::2], strict=True):
            files = [Path(str(run.output)) for run in (current, candidate)]
            named = list(zip((_CURRENT, _CANDIDATE), files, strict=True))
            runs = comparing.load_runs(named, "trials", "category", lambda label, path: None)
            sections = word_verdicts(comparing.compare(runs, options).sections)
            verdicts += [{"agent": current.agent, **verdict} for verdict in sections["verdict"]]
            for _, words in verdict_lines(sections):
                self.lines.append(visible_line(f"{current.agent}: {words}"))
            self.lines += flip_lines(sections)
        return msgspec.structs.replace(report, verdicts=verdicts)

    def _optimize(self) -> TriggerReport:
        """Find a better description on each half of the cases, and judge it on the other half.

        No case judges a description that was made from it, and all of them count.
        """
        request, skill = self._request, self._request.skill
        first, second = split_cases(request.cases, request.seed)
        most, k = request.optimize or 0, request.run.k or 1
        n_trials = k * len(request.cases) * (most + 3)
        self._budget = Budget(request.run.max_cost, n_trials + 2 * most)
        self.asked = PaidHost(self._budget)
        present: list[TriggerReport] = []
        found: list[tuple[str, str, list[PromptRow]]] = []
        for part, train, test in (("", first, second), ("second-", second, first)):
            attempts: list[Attempt] = []
            for report in self._attempts(train, part, attempts, self.asked):
                if not self._is_complete:
                    return report
                present += [report] if len(attempts) == 0 else []
            best = best_of(attempts)
            found += [] if best is attempts[0] else [(part, best.description, test)]
        if not found:
            self.lines.append("No proposal did better than the present description.")
            return self._pooled(present)
        tested: list[TriggerReport] = []
        for number, (part, description, test) in enumerate(found, 1):
            other = with_description(skill, description, self._scratch / f"{part}best")
            versions = {_CURRENT: skill, _CANDIDATE: other}
            tested.append(self._run(test, versions, f"test-{number}"))
            if not self._is_complete:
                return tested[-1]
        report = self._judged(self._pooled(tested))
        if len(tested) > 1:
            self.lines.append(
                "Each half of the cases judged what was proposed for the other half; the verdict "
                "is on both proposals together."
            )
        gains = [_score(*one.runs[1:]) - _score(*one.runs[:1]) for one in tested]
        best_description = found[gains.index(max(gains))][1]
        self.lines.append(visible_line(f"The best description: {best_description}"))
        return msgspec.structs.replace(report, best_description=best_description)

    def _pooled(self, reports: Sequence[TriggerReport]) -> TriggerReport:
        """Put the trials of both halves together, in a file for each version."""
        (agent,) = self._request.agents
        outputs = {}
        for parts in zip(*(report.runs for report in reports), strict=True):
            variant = parts[0].description
            words = [self._output.stem, "test", "" if variant == _CURRENT else variant]
            path = self._output.with_name(".".join(filter(None, words)) + self._output.suffix)
            with replaced_file(path) as file:  # made again from files that stay
                for part in parts:
                    file.write(Path(str(part.output)).read_bytes())
            outputs[agent, variant] = path
        self.outputs = list(outputs.values())
        ids = [prompt.id for prompt, _ in self._request.cases]
        return self._report(outputs, ids, several=len(outputs) > 1)

    def _attempts(
        self, cases: list[PromptRow], part: str, done: list[Attempt], asked: PaidHost
    ) -> Iterator[TriggerReport]:
        """Try the present description and each proposal on these cases; add them to done."""
        inputs = {prompt.id: "\n".join(prompt.turns) for prompt, _ in cases}
        skill = self._request.skill
        for number in range((self._request.optimize or 0) + 1):
            if number:
                description = self._proposal(done, f"{part}description-{number}", asked)
                if description is None:
                    return
                folder = self._scratch / f"{part}proposal-{number}"
                skill = with_description(self._request.skill, description, folder)
            report = self._run(cases, {"": skill}, f"{part}train-{number}")
            yield report
            attempt = Attempt(description=skill.description, run=report.runs[0], inputs=inputs)
            done.append(attempt)
            name = f"Proposal {number}" if number else "The present description"
            right = f"{attempt.score:.0%} right on {counted_noun(len(cases), 'case')}"
            self.say(Note(f"{name}: {right} of the {'second' if part else 'first'} half"))
            if attempt.score == 1:  # nothing is left to improve
                return

    def _proposal(self, done: Sequence[Attempt], name: str, asked: PaidHost) -> str | None:
        """Ask for a description, or read what an earlier run kept; None if there is none."""
        request, output = self._request, self._request.run.output
        kept = output.with_suffix(f".{name}.md") if output else None
        if kept is not None and kept.is_file() and request.run.mode == "resume":
            return read_description(kept)
        (agent,) = request.agents.values()
        try:
            found = propose_description(request.skill, done, agent, asked, ASK_TIMEOUT_S)
        except AssayError as error:
            number = name.rpartition("-")[2]
            self.say(Note(f"There is no proposal {number}: {error.message}", True))
            return None
        if kept is not None:
            with self.open_output(kept) as file:
                file.write(f"{found}\n".encode())
        return found


def _score(run: TriggerRun) -> float:
    return Attempt(description="", run=run, inputs={}).score


def _output(arm: PlannedArm) -> Path:
    assert arm.request.output is not None
    return arm.request.output


def _unhealthy(output: Path, run: TriggerRun) -> list[str]:
    """Say why a measurement cannot be believed; of one that is none, something else is said."""
    if run.n_not_measured == run.n_trials:
        return []
    comparing = _comparing()
    (loaded,) = comparing.load_runs([(output.stem, output)], "trials", "category", lambda *_: None)
    problems = comparing.problems_of(loaded)
    return [f"the measurement is unhealthy: {problem}" for problem in problems]


def _comparing() -> ModuleType:
    from assay.compare import report  # late: numpy

    return report


def _difference(arms: Sequence[PlannedArm]) -> str:
    """Say which files the first two versions differ in, as the agent sees them."""
    old, new = (arm.specs[0].identity for arm in arms[:2])
    assert old is not None
    assert new is not None
    names = {*old.offered, *new.offered}
    files = sorted(name for name in names if old.offered.get(name) != new.offered.get(name))
    return f"The versions differ in: {', '.join(files) or 'nothing that the agent reads'}"
