"""assay trigger: does an agent use a skill when it should, and only then?"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec
from msgspec import UNSET

from assay import plugins
from assay.adapters.vendor import known_agent
from assay.cli.batch import RunDisplay, run_batch, usage_errors
from assay.cli.help import CACHE, PRICES, examples, variables
from assay.cli.options import (
    BatchOptions,
    agent_options,
    agent_ref,
    leave_out,
    output_options,
    run_options,
    run_request,
    with_options,
)
from assay.cli.output import echo_folded, open_stdout, refuse_inputs, whole_output
from assay.cli.parameters import (
    InFile,
    WithSandbox,
    help_option,
    margin_option,
    repeats_option,
    seed_option,
)
from assay.errors import AssayError, InputError, OutputError
from assay.pipeline.material import Material, Skill, read_skill
from assay.pipeline.prompts import choose
from assay.pipeline.run import PlannedArm, batch_of, place, prepare
from assay.pipeline.steps import Budget
from assay.pipeline.trigger import (
    StopRule,
    beside,
    in_order,
    installed_skills,
    marker_of,
    read_cases,
    read_description,
    read_fires,
    skills_below,
    split_cases,
    uses_skills,
    with_description,
)
from assay.plugin import PromptRow
from assay.records.capture import Cause
from assay.records.files import hash_folder, temporary_folder
from assay.records.reports import TriggerReport
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line
from assay.report.trigger import invalid_lines, trigger_lines

if TYPE_CHECKING:
    from assay.pipeline.descriptions import PaidHost

_N_SUGGESTED = 10
_ASK_TIMEOUT_S = 600.0
_CURRENT, _CANDIDATE = "current", "candidate"
_CANNOT_BE_JUDGED = 4
_EXISTING = "use --resume to run only what is missing, or --overwrite to replace it"


class TriggerOptions(BatchOptions, frozen=True, kw_only=True):
    skill_dir: Path
    cases: Path | None
    k: int
    max_calls: int
    marker: str | None
    others: Sequence[Path]
    with_installed: bool
    compare: Path | None
    optimize: int | None
    suggest: bool
    margin: float
    seed: int
    prompts: Sequence[str] = ()
    cwd: Path | None = None
    workspace_dir: Path | None = None
    isolate: bool = True
    append: bool = False


_PLACE = ("cwd", "workspace_dir", "isolate")
"""Each trial has a folder and a HOME of its own."""


@click.command(
    cls=WithSandbox,
    short_help="Measure whether an agent uses a skill when it should, and only then.",
    epilog=variables(*PRICES, *CACHE)
    + examples(
        "assay trigger skills/relnotes --cases cases.jsonl -s demo:skilled -k 3",
        "assay trigger skills/relnotes --cases cases.jsonl -s demo:skilled -j 4 -o trigger.jsonl",
        "assay trigger skills/relnotes --cases cases.jsonl -s demo:skilled --compare v2.md",
    ),
)
@click.argument(
    "skill_dir", metavar="SKILL_DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option(
    "--cases",
    type=InFile(),
    required=True,
    metavar="FILE",
    help='The cases, as JSON lines or a JSON array: {"input": "...", "shouldTrigger": true}. '
    "- is stdin.",
)
@click.option(
    "-s",
    "--schema",
    default="claude",
    metavar="AGENT,...",
    help="The agents, each a schema file or the name of an adapter (see assay agents), separated "
    "by commas. Default: claude.",
)
@with_options(leave_out(agent_options, "schema"))
@repeats_option("Run each case N times. Default: 5.")
@click.option(
    "--with",
    "others",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Offer the agent this skill, or the skills in this folder, too. May be repeated.",
)
@click.option(
    "--with-installed",
    is_flag=True,
    help="Offer the agent the skills that are installed in your HOME, too.",
)
@click.option(
    "--max-calls",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="End a trial as not fired after N tool calls of the agent without the skill. Default: 10.",
)
@click.option(
    "--marker",
    metavar="TEXT",
    help="Count the skill as fired, too, when the agent says this text or a tool prints it. "
    "By default, the TEXT of a comment <!-- marker: TEXT --> in SKILL.md, if there is one.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE|DIR",
    help="Run the cases with another description, too, and compare both. It is the text of a file "
    "or the skill in another folder.",
)
@click.option(
    "--optimize",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let the agent propose up to N descriptions, tested on one half of the cases, and compare "
    "the best with the present one on the other half.",
)
@click.option(
    "--suggest",
    is_flag=True,
    help="Let the agent write cases to begin with into the new file --cases, and do nothing else.",
)
@with_options(leave_out(output_options, "append"), leave_out(run_options, *_PLACE))
@margin_option
@seed_option
@help_option
def command(**values: Any) -> None:
    """Run each case several times with the skill in SKILL_DIR and count how often it is used.

    Each trial has a HOME and a folder of its own, in which the agent finds this skill. It is ended
    as soon as the skill is used. Prints how often that happened where it should and where it
    should not. The output has one line per case, as that of assay trials. The exit code is 4 if
    the measurement is not valid, for instance because no skill was used at all.
    """
    options = TriggerOptions(**values)
    _check_usage(options)
    skill = read_skill(options.skill_dir)
    agents = _agents(options)
    if options.suggest:
        _suggest(skill, agents, options)
        return
    cases = _chosen(options)
    with ExitStack() as stack:
        trigger = _Trigger(options, skill, agents, stack)
        if options.optimize:
            report = _optimize(trigger, cases)
        elif options.compare:
            report = _compare(trigger, cases)
        else:
            report = trigger.run(cases, {"": skill})
        trigger.conclude(report)


def _check_usage(options: TriggerOptions) -> None:
    """Refuse options of which one would be ignored."""
    ways = {
        "--suggest": options.suggest,
        "--optimize": options.optimize is not None,
        "--compare": options.compare is not None,
    }
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) > 1:
        msg = f"{given[0]} and {given[1]} cannot be used together."
        raise click.UsageError(msg)


def _chosen(options: TriggerOptions) -> list[PromptRow]:
    """Return the cases to run; refuse none."""
    cases = choose(read_cases(options.cases), options.filters, options.limit)
    if not cases:
        msg = f"{options.cases or 'stdin'}: no cases that match the filter"
        raise InputError(msg)
    return cases


def _agents(options: TriggerOptions) -> dict[str, PluginRef]:
    """Return the agents by name."""
    text = options.schema or ""
    parts = [text] if Path(text).is_file() else [part.strip() for part in text.split(",")]
    if not all(parts):
        msg = f"-s {text!r} names no agent{' before or after a comma' if len(parts) > 1 else ''}. "
        msg += "Use -s AGENT or -s AGENT,AGENT."
        raise click.UsageError(msg)
    if len(parts) > 1 and (options.model or options.agent_args or options.mcp):
        msg = "--model, --agent-arg and --mcp are for one agent. Run the agents one by one."
        raise click.UsageError(msg)
    if len(parts) > 1 and options.optimize:
        msg = "--optimize is for one agent: a description is better or worse for each of them."
        raise click.UsageError(msg)
    found: dict[str, PluginRef] = {}
    for part in parts:
        ref = agent_ref(msgspec.structs.replace(options, schema=part))
        name = plugins.adapter(ref).name
        if name in found:
            msg = f"The agent {name} is given twice."
            raise click.UsageError(msg)
        found[name] = ref
    return found


class _Arm(NamedTuple):
    """One agent with one description of the skill."""

    agent: str
    variant: str
    output: Path
    planned: PlannedArm


class _Trigger:
    """Runs cases with the skill, or with several versions of it, in each agent."""

    def __init__(
        self,
        options: TriggerOptions,
        skill: Skill,
        agents: dict[str, PluginRef],
        stack: ExitStack,
    ) -> None:
        self.options, self.skill, self.agents = options, skill, agents
        refuse_inputs(options.output, options.cases, options.compare)
        if options.output is None and (options.resume or options.rerun or options.overwrite):
            msg = "--resume, --rerun and --overwrite need -o FILE."
            raise click.UsageError(msg)
        self.folder = Path(stack.enter_context(temporary_folder("assay-trigger-")))
        self._output = options.output or self.folder / "trials.jsonl"
        marker = marker_of(skill) if options.marker is None else options.marker
        more = {"marker": marker} if marker else {}
        self._grader = PluginRef(name="trigger", options={"skill": skill.name, **more})
        self._rule = StopRule(skill=skill.name, marker=marker, max_calls=options.max_calls)
        self._others = {name: self._beside(ref) for name, ref in agents.items()}
        self._budget: Budget | None = None
        """What trials of several runs and proposals may cost together; None for a single run."""
        self._asked: PaidHost | None = None
        self._using: set[str] = set()
        """Agents that were seen to use a skill, and so are offered skills."""
        self._last: RunDisplay | None = None
        self._targets: list[Path] = []
        """The outputs that are named at the end: those of all arms that ran together."""
        self.lines: list[str] = []
        """What to print below the report."""

    def _beside(self, agent: PluginRef) -> list[Skill]:
        """Return the other skills that an agent is offered; say which are not."""
        found = [skill for folder in self.options.others for skill in skills_below(folder)]
        unreadable: list[str] = []
        if self.options.with_installed:
            installed, unreadable = installed_skills(agent)
            found += installed
        others, copies = beside(self.skill, found)
        notes = [f"{text}; it is left out" for text in unreadable]
        notes += [
            f"{folder} is another copy of {self.skill.name}; it is left out, so that it cannot be "
            "used in its place"
            for folder in copies
        ]
        for note in notes if self.options.talks else ():
            click.echo(visible_line(f"Note: {note}"), err=True)
        return others

    def run(
        self, cases: list[PromptRow], versions: dict[str, Skill], part: str = ""
    ) -> TriggerReport:
        """Run the cases with each version of the skill, in each agent; versions alternate."""
        arms = [
            self._arm(agent, variant, skill, cases, part)
            for agent in self.agents
            for variant, skill in versions.items()
        ]
        self._run(arms)
        self._using |= {
            arm.agent
            for arm in arms
            if uses_skills(read_fires(arm.output, arm.agent, self.skill.name))
        }
        order = [prompt.id for prompt, _ in cases]
        runs = [
            in_order(
                read_fires(arm.output, arm.agent, self.skill.name, works=arm.agent in self._using),
                order,
            )
            for arm in arms
        ]
        several = len(versions) > 1
        named = [
            msgspec.structs.replace(run, description=arm.variant if several else "")
            for run, arm in zip(runs, arms, strict=True)
        ]
        if several:
            self.lines.append(_difference(arms))
        return TriggerReport(skill=self.skill.name, runs=named)

    def _arm(
        self, agent: str, variant: str, skill: Skill, cases: list[PromptRow], part: str
    ) -> _Arm:
        words = [agent if len(self.agents) > 1 else "", part]
        words.append("" if variant == _CURRENT else variant)
        name = ".".join(filter(None, (self._output.stem, *words)))
        output = self._output.with_name(f"{name}{self._output.suffix}")
        options = msgspec.structs.replace(self.options, output=output)
        source = PluginRef(name="prompts", options={"path": str(options.cases or "stdin")})
        request = msgspec.structs.replace(
            run_request(options, self.agents[agent], source),
            rows=cases,
            material=Material(
                template=options.workspace_template, skills=(*self._others[agent], skill)
            ),
            scratch=self.folder / f"template.{name}",
            graders=[self._grader],
            k=options.k,
            until=self._rule,
            isolate=True,
            login=True,
            if_exists=_EXISTING,
            can_regrade=False,
        )
        return _Arm(agent, variant, output, place(prepare(request)))

    def _run(self, arms: Sequence[_Arm]) -> None:
        self._targets = [arm.output for arm in arms] if self.options.output is not None else []
        groups = zip(*(arm.planned.specs for arm in arms), strict=True)
        with usage_errors():
            specs = [spec for group in groups for spec in group]
            batch = batch_of([arm.planned for arm in arms], specs)
        batch = msgspec.structs.replace(batch, budget=self._budget)
        self._last = run_batch(batch, self.options)

    def ask_from_budget(self, n_calls: int) -> "PaidHost":
        """Return whom to ask for descriptions; agents are started n_calls times in all."""
        from assay.pipeline.descriptions import PaidHost  # late: few runs need it

        self._budget = Budget(self.options.max_cost, n_calls)
        self._asked = PaidHost(self._budget)
        return self._asked

    @property
    def is_complete(self) -> bool:
        """Whether all trials of the last run were run, and some of them measured anything."""
        progress = self._last
        assert progress is not None
        return progress.tally.n_done >= progress.tally.total and not progress.nothing_measured()

    def conclude(self, report: TriggerReport) -> None:
        """Print the report and what is wrong with it; exit with 1 or 4 if it cannot be used."""
        assert self._last is not None
        if self.options.output is None:
            runs = [msgspec.structs.replace(run, output=UNSET) for run in report.runs]
            report = msgspec.structs.replace(report, runs=runs)
        if self._asked is not None:
            report = msgspec.structs.replace(report, proposals_usd=sum(self._asked.known))
        with open_stdout() as out:
            if self.options.as_json:
                out.write(msgspec.json.encode(report).decode() + "\n")
            elif not self.options.quiet:
                for line in (*trigger_lines(report), *self.lines):
                    echo_folded(line)
        invalid = invalid_lines(report)
        for line in invalid:
            echo_folded(line, err=True)
        self._say_asked()
        if self._last.tally.causes.get(Cause.AUTH):
            self._say_login()
        if self.options.talks and self.options.output is None:
            click.echo("The trials were not kept; -o FILE keeps them.", err=True)
        self._last.conclude(target=", ".join(map(str, self._targets)))
        if invalid:
            raise click.exceptions.Exit(_CANNOT_BE_JUDGED)

    def _say_asked(self) -> None:
        if self.options.talks and self._asked is not None and (words := self._asked.cost_words):
            echo_folded(f"The agent's work on proposals: {words}.", err=True)

    def _say_login(self) -> None:
        """Say what to do about agents that may not be logged in."""
        for name in self.agents:
            known = known_agent(name)
            how = known.login if known else "pass its API key with --env NAME"
            click.echo(
                f"{visible_line(name)} is not logged in: {how}. A trial has a HOME of its own, "
                "with a copy of the agent's login file but not of your keychain.",
                err=True,
            )


def _difference(arms: Sequence[_Arm]) -> str:
    """Say which files the two versions differ in, as the agent sees them."""
    old, new = (arm.planned.specs[0].identity for arm in arms[:2])
    assert old is not None
    assert new is not None
    names = {*old.offered, *new.offered}
    files = sorted(name for name in names if old.offered.get(name) != new.offered.get(name))
    return f"The versions differ in: {', '.join(files) or 'nothing that the agent reads'}"


def _compare(trigger: _Trigger, cases: list[PromptRow]) -> TriggerReport:
    """Run the cases with both versions and judge them."""
    path, skill = trigger.options.compare, trigger.skill
    assert path is not None
    if path.is_dir():
        other = read_skill(path)
        is_same = hash_folder(path) == hash_folder(skill.folder)
        if other.name != skill.name:
            msg = f"{path}: the skill is called {other.name!r}, not {skill.name!r}"
            raise InputError(msg, hint="two versions of one skill are compared; give both one name")
    else:
        other = with_description(skill, read_description(path), trigger.folder / "candidate")
        is_same = other.description == skill.description
    if is_same:
        msg = f"{path}: this is the same {'skill' if path.is_dir() else 'description'}"
        raise InputError(msg, hint="--compare needs another version of the skill")
    report = trigger.run(cases, {_CURRENT: skill, _CANDIDATE: other})
    return _judged(trigger, report)


def _judged(trigger: _Trigger, report: TriggerReport) -> TriggerReport:
    """Add the paired verdict on the two versions, for each agent."""
    from assay.compare.report import CompareOptions, compare, load_runs  # late: numpy
    from assay.report.comparison import flip_lines, verdict_lines

    options = CompareOptions(margin=trigger.options.margin, seed=trigger.options.seed)
    verdicts: list[dict[str, Any]] = []
    for current, candidate in zip(report.runs[::2], report.runs[1::2], strict=True):
        files = [Path(str(run.output)) for run in (current, candidate)]
        named = list(zip((_CURRENT, _CANDIDATE), files, strict=True))
        sections = compare(load_runs(named, "trials", "category", _quietly), options).sections
        verdicts += [{"agent": current.agent, **verdict} for verdict in sections["verdict"]]
        for _, words in verdict_lines(sections):
            trigger.lines.append(visible_line(f"{current.agent}: {words}"))
        trigger.lines += flip_lines(sections)
    return msgspec.structs.replace(report, verdicts=verdicts)


def _quietly(label: str, path: Path) -> None:
    """Announce nothing: the files were just written."""


def _optimize(trigger: _Trigger, cases: list[PromptRow]) -> TriggerReport:
    """Find a better description on one half of the cases, and judge it on the other."""
    from assay.pipeline.descriptions import best_of  # late: few runs need it

    train, test = split_cases(cases, trigger.options.seed)
    most = trigger.options.optimize or 0
    n_trials = trigger.options.k * (len(train) * (most + 1) + len(test) * 2)
    asking = trigger.ask_from_budget(n_trials + most)
    attempts = [*_attempts(trigger, train, asking)]
    best = best_of(attempts)
    if best is attempts[0]:
        trigger.lines.append("No proposal did better than the present description.")
        return trigger.run(test, {"": trigger.skill}, "test")
    other = with_description(trigger.skill, best.description, trigger.folder / "best")
    report = _judged(
        trigger, trigger.run(test, {_CURRENT: trigger.skill, _CANDIDATE: other}, "test")
    )
    trigger.lines.append(visible_line(f"The best description: {best.description}"))
    return msgspec.structs.replace(report, best_description=best.description)


def _attempts(trigger: _Trigger, cases: list[PromptRow], asking: "PaidHost") -> Iterator[Any]:
    """Yield the present description and each proposal, with how it did on these cases."""
    from assay.pipeline.descriptions import Attempt

    inputs = {prompt.id: "\n".join(prompt.turns) for prompt, _ in cases}
    done: list[Attempt] = []
    for number in range((trigger.options.optimize or 0) + 1):
        description: str | None = trigger.skill.description
        if done:
            description = _proposal(trigger, done, number, asking)
        if description is None:
            return
        folder = trigger.folder / f"proposal-{number}"
        skill = with_description(trigger.skill, description, folder) if number else trigger.skill
        report = trigger.run(cases, {"": skill}, f"train-{number}")
        if not trigger.is_complete:
            trigger.conclude(report)
        done.append(Attempt(description=description, run=report.runs[0], inputs=inputs))
        if trigger.options.talks:
            name = f"Proposal {number}" if number else "The present description"
            right = f"{done[-1].score:.0%} right on {counted_noun(len(cases), 'case')}"
            click.echo(f"{name}: {right} of the first half", err=True)
        yield done[-1]
        if done[-1].score == 1:  # nothing is left to improve
            return


def _proposal(
    trigger: _Trigger, done: Sequence[Any], number: int, asking: "PaidHost"
) -> str | None:
    """Ask for a description, or read the one that an earlier run kept; None if there is none."""
    from assay.pipeline.descriptions import propose_description

    options, output = trigger.options, trigger.options.output
    kept = output.with_suffix(f".description-{number}.md") if output else None
    if kept is not None and kept.is_file() and options.resume:
        return read_description(kept)
    (agent,) = trigger.agents.values()
    try:
        found = propose_description(trigger.skill, done, agent, asking, _ASK_TIMEOUT_S)
    except AssayError as error:
        click.echo(visible_line(f"There is no proposal {number}: {error.message}"), err=True)
        return None
    if kept is not None:
        with whole_output(kept, overwrite=options.overwrite) as file:
            file.write(f"{found}\n".encode())
    return found


def _suggest(skill: Skill, agents: dict[str, PluginRef], options: TriggerOptions) -> None:
    """Write cases to begin with."""
    from assay.pipeline.descriptions import PaidHost, suggest_cases  # late: few runs need it

    path = options.cases
    if path is None:
        msg = "--suggest writes the cases to a file. Give --cases FILE."
        raise click.UsageError(msg)
    if path.exists():
        msg = f"{path} already exists"
        raise OutputError(msg, hint="--suggest never overwrites cases; name a new file")
    agent = next(iter(agents.values()))
    timeout_s = options.timeout / 1000 if options.timeout else _ASK_TIMEOUT_S
    asking = PaidHost(Budget(options.max_cost, 1))
    text = suggest_cases(skill, agent, asking, _N_SUGGESTED, timeout_s)
    with whole_output(path, overwrite=False) as file:
        file.write(text.encode())
    n = counted_noun(text.count("\n"), "case")
    click.echo(f"Wrote {n} to {path}. Edit them: an agent guessed what your users write.", err=True)
    click.echo(f"The agent's work on them: {asking.cost_words}.", err=True)
