"""assay trigger: does an agent use a skill when it should, and only then?"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

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
    SandboxCommand,
    help_option,
    margin_option,
    repeats_option,
    seed_option,
    share_home_option,
)
from assay.errors import InputError, OutputError
from assay.pipeline.descriptions import PaidHost, suggest_cases
from assay.pipeline.material import Skill, read_skill
from assay.pipeline.notes import Note
from assay.pipeline.prompts import choose
from assay.pipeline.run import Batch
from assay.pipeline.steps import Budget
from assay.pipeline.trigger import read_cases
from assay.pipeline.trigger_run import ASK_TIMEOUT_S, TriggerExperiment, TriggerRequest
from assay.records.capture import Cause
from assay.records.experiment import RETRIES
from assay.records.files import temporary_folder
from assay.records.reports import TriggerReport
from assay.records.spec import PluginRef
from assay.records.text import counted_noun, visible_line
from assay.report.trigger import invalid_lines, trigger_lines

_N_SUGGESTED = 10
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
    cls=SandboxCommand,
    short_help="Measure whether an agent uses a skill when it should.",
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
    help="Let the agent propose up to N descriptions from each half of the cases, and compare the "
    "best of them with the present one on the other half.",
)
@click.option(
    "--suggest",
    is_flag=True,
    help="Let the agent write cases to begin with into the new file --cases, and do nothing else.",
)
@share_home_option
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
    request = _request(options, skill, agents)
    with temporary_folder("assay-trigger-") as scratch, usage_errors():
        experiment = _Command(request, options, Path(scratch))
        experiment.conclude(experiment.execute())


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


def _request(options: TriggerOptions, skill: Skill, agents: dict[str, PluginRef]) -> TriggerRequest:
    where = options.cases or "stdin"
    cases = choose(
        read_cases(options.cases),
        options.filters,
        options.limit,
        where,
        "case",
        say=lambda text: echo_folded(text, err=True),
    )
    if not cases:
        msg = f"{where}: no cases"
        raise InputError(msg)
    refuse_inputs(options.output, options.cases, options.compare)
    if options.output is None and (options.resume or options.rerun or options.overwrite):
        msg = "--resume, --rerun and --overwrite need -o FILE."
        raise click.UsageError(msg)
    source = PluginRef(name="prompts", options={"path": str(options.cases or "stdin")})
    run = msgspec.structs.replace(
        run_request(options, next(iter(agents.values())), source),
        k=options.k,
        retries=RETRIES if options.retries is None else options.retries,
        isolate=not options.share_home,
        login=not options.share_home,
        if_exists=_EXISTING,
        can_regrade=False,
    )
    return TriggerRequest(
        run=run,
        cases=cases,
        skill=skill,
        agents=agents,
        others=options.others,
        with_installed=options.with_installed,
        marker=options.marker,
        max_calls=options.max_calls,
        compare=options.compare,
        optimize=options.optimize,
        margin=options.margin,
        seed=options.seed,
    )


class _Command(TriggerExperiment):
    """Runs the cases and prints what comes of them."""

    def __init__(self, request: TriggerRequest, options: TriggerOptions, scratch: Path) -> None:
        self._options, self._agents = options, request.agents
        self._display: RunDisplay | None = None
        """Of the last run."""
        super().__init__(request, scratch)

    def say(self, note: Note) -> None:
        if note.is_important or self._options.prints_notes:
            echo_folded(visible_line(note.text), err=True)

    def run_batch(self, batch: Batch) -> bool:
        self._display = display = run_batch(batch, self._options)
        return display.tally.n_done >= display.tally.total and not display.nothing_measured()

    def open_output(self, path: Path) -> AbstractContextManager[BinaryIO]:
        return whole_output(path, overwrite=self._options.overwrite)

    def conclude(self, report: TriggerReport) -> None:
        """Print the report and what is wrong with it; exit with 1 or 4 if it cannot be used."""
        display, options = self._display, self._options
        assert display is not None
        if options.output is None:
            runs = [msgspec.structs.replace(run, output=UNSET) for run in report.runs]
            report = msgspec.structs.replace(report, runs=runs)
        if self.asked is not None:
            report = msgspec.structs.replace(report, proposals_usd=sum(self.asked.known))
        self._print(report)
        invalid = invalid_lines(report)
        for line in invalid:
            echo_folded(line, err=True)
        if options.prints_notes and self.asked is not None and (words := self.asked.cost_words):
            echo_folded(f"The agent's work on proposals: {words}.", err=True)
        if display.tally.causes.get(Cause.AUTH):
            self._say_login()
        if options.prints_notes and options.output is None:
            echo_folded("The trials were not kept; -o FILE keeps them.", err=True)
        display.conclude(target=", ".join(map(str, self.outputs)) if options.output else "")
        if invalid:
            raise click.exceptions.Exit(_CANNOT_BE_JUDGED)

    def _print(self, report: TriggerReport) -> None:
        with open_stdout() as out:
            if self._options.as_json:
                out.write(msgspec.json.encode(report).decode() + "\n")
            elif not self._options.quiet:
                for line in (*trigger_lines(report), *self.lines):
                    echo_folded(line)

    def _say_login(self) -> None:
        """Say what to do about agents that may not be logged in."""
        for name in self._agents:
            known = known_agent(name)
            how = known.login if known else "pass its API key with --env NAME"
            echo_folded(
                f"{visible_line(name)} is not logged in: {how}. A trial has a HOME of its own, "
                "with a copy of the agent's login file but not of your keychain.",
                err=True,
            )


def _suggest(skill: Skill, agents: dict[str, PluginRef], options: TriggerOptions) -> None:
    """Write cases to begin with."""
    path = options.cases
    if path is None:
        msg = "--suggest writes the cases to a file. Give --cases FILE."
        raise click.UsageError(msg)
    if path.exists():
        msg = f"{path} already exists"
        raise OutputError(msg, hint="--suggest never overwrites cases; name a new file")
    agent = next(iter(agents.values()))
    timeout_s = options.timeout / 1000 if options.timeout else ASK_TIMEOUT_S
    asking = PaidHost(Budget(options.max_cost, 1))
    text = suggest_cases(skill, agent, asking, _N_SUGGESTED, timeout_s)
    with whole_output(path, overwrite=False) as file:
        file.write(text.encode())
    n = counted_noun(text.count("\n"), "case")
    echo_folded(
        f"Wrote {n} to {path}. Edit them: an agent guessed what your users write.", err=True
    )
    echo_folded(f"The agent's work on them: {asking.cost_words}.", err=True)
