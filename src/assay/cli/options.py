"""Options that several commands share, and what they mean together."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from click.shell_completion import CompletionItem

from assay import plugins
from assay.cli.output import echo_folded
from assay.cli.parameters import (
    DASH,
    Decorator,
    InFile,
    NamedFile,
    Number,
    OutFolder,
    append_option,
    claim_stdin,
    concurrency_option,
    container_option,
    cpus_option,
    env_option,
    filter_option,
    isolate_option,
    keep_workspaces_option,
    longest_wait_option,
    memory_option,
    model_option,
    output_option,
    overwrite_option,
    progress_option,
    quiet_option,
    rate_option,
    retries_option,
    sandbox_option,
    stall_option,
)
from assay.errors import InputError
from assay.pipeline import agents
from assay.pipeline.run import DEFAULT_TIMEOUT_S, RunRequest, arm_request
from assay.records.experiment import Arm
from assay.records.journal import Mode
from assay.records.rows import decode_json
from assay.records.spec import PluginRef
from assay.records.tape import Fault, TapeUse, parse_fault

DEFAULT_TIMEOUT_MS = int(DEFAULT_TIMEOUT_S * 1000)
DEBUG_HELP = (
    "Print to stderr, besides progress, the command line of each agent and the names of its "
    "variables, each line that it prints and what that was mapped to, and how it ended; and a "
    "traceback if the command fails."
)


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    schema: str | None = None
    simple: str | None = None
    shell: str | None = None
    model: str | None = None
    agent_args: Sequence[str] = ()
    mcp: Path | None = None
    max_turns: int | None = None
    strict: bool = False


class ArmOptions(AgentOptions, frozen=True, kw_only=True):
    """What an arm of an experiment is told; every other run has one arm."""

    workspace_template: Path | None
    share_home: bool = False
    """Of experiments only: other runs use the user's HOME unless they are isolated."""
    isolate: bool
    sandbox: Literal["network", "no-network"] | None
    container: str | None
    memory: int | None
    cpus: float | None
    env_names: Sequence[str]
    timeout: float | None
    trial_timeout: float | None
    stall: float | None

    @property
    def arm(self) -> Arm:
        """The arm as a file has it, but for the memory, which stands there as text."""
        template, mcp = self.workspace_template, self.mcp
        return Arm(
            agent=self.schema,
            simple=self.simple,
            shell=self.shell,
            model=self.model,
            template=str(template) if template else None,
            mcp=str(mcp) if mcp else None,
            agent_args=list(self.agent_args),
            env=list(self.env_names),
            max_turns=self.max_turns,
            strict=self.strict or None,
            share_home=self.share_home or None,
            isolate=self.isolate or None,
            sandbox=self.sandbox,
            container=self.container,
            cpus=self.cpus,
            timeout=self.timeout,
            trial_timeout=self.trial_timeout,
            stall=self.stall,
        )


class BatchOptions(ArmOptions, frozen=True, kw_only=True):
    """What capture, trials and run share: agent_options, output_options and run_options."""

    prompts: Sequence[str]
    output: Path | None
    resume: bool
    keep_failed: bool
    keep_unsigned: bool
    rerun: Sequence[str]
    append: bool
    overwrite: bool
    raw_dir: Path | None
    cwd: Path | None
    concurrency: int
    retries: int | None
    workspace_dir: Path | None
    keep_workspaces: str | None
    filters: Sequence[str]
    limit: int | None
    max_cost: float | None
    rate: float | None
    longest_wait: float
    progress: bool
    quiet: bool
    as_json: bool
    debug: bool
    executor: str = "local"
    address: str | None = None
    record: Path | None = None
    replay: Path | None = None
    record_misses: bool = False
    pace: float = 0.0
    faults: Sequence[Fault] = ()

    @property
    def prints_notes(self) -> bool:
        """Whether anything is printed besides errors and JSON."""
        return not self.quiet and not self.as_json


class CaptureOptions(BatchOptions, frozen=True, kw_only=True):
    """What capture and trials also take: graders, and prompts from stdin or a benchmark."""

    graders: Sequence[str]
    grader_timeout: float
    regrade: bool
    from_stdin: bool
    benchmark: str | None
    skip_unsupported: bool = False


def tape_use(values: Mapping[str, Any]) -> TapeUse | None:
    """What becomes of what models answer, from tape_options."""
    record, replay, faults = values["record"], values["replay"], tuple(values.get("faults", ()))
    if record is not None and replay is not None:
        msg = "--record and --replay cannot be used together; --record-misses extends a tape."
        raise click.UsageError(msg)
    for name in ("record_misses", "pace"):
        if values[name] and replay is None:
            msg = f"--{name.replace('_', '-')} needs --replay TAPE."
            raise click.UsageError(msg)
    if record is None and replay is None and not faults:
        return None
    return TapeUse(
        record=str(record.resolve()) if record else "",
        replay=str(replay.resolve()) if replay else "",
        misses=values["record_misses"],
        pace=values["pace"],
        faults=faults,
    )


def executor_ref(executor: str, address: str | None) -> PluginRef:
    """Where work is done, from executor_options."""
    if address is not None and executor == "local":
        msg = "--address needs --executor ray."
        raise click.UsageError(msg)
    if address == "":
        msg = "--address is empty. Give HOST:PORT, or leave it out for a cluster of this machine."
        raise click.UsageError(msg)
    return PluginRef(name=executor, options={"address": address} if address else {})


def plugin_names(group: str) -> Callable[..., list[CompletionItem]]:
    """Return what completes a name of a plugin; where none fits, the shell is given files."""

    def complete(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in plugins.names(group) if name.startswith(text)]

    return complete


agent_options: list[Decorator] = [
    click.option(
        "-s",
        "--schema",
        metavar="AGENT",
        shell_complete=plugin_names("assay.adapters"),
        help="The agent: a schema file, or the name of an adapter (see assay agents).",
    ),
    model_option,
    click.option(
        "--agent-arg",
        "agent_args",
        multiple=True,
        metavar="ARG",
        help="Pass this extra argument to the agent. May be repeated.",
    ),
    click.option(
        "--mcp",
        type=InFile(stdin=DASH),
        metavar="FILE",
        help="Give the agent the MCP servers in this file (the common mcpServers JSON).",
    ),
    click.option(
        "--max-turns",
        type=click.IntRange(min=1),
        metavar="N",
        help="Allow the agent at most N model calls. Default: the agent's own limit.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        help="Refuse a schema file with unknown keys. By default, they are ignored with a warning.",
    ),
]
text_agent_options: list[Decorator] = [
    click.option(
        "--simple",
        metavar="COMMAND",
        help="The agent is this command, with {} replaced by the prompt; all it prints is the "
        "answer. No shell is involved.",
    ),
    click.option(
        "--shell",
        metavar="COMMAND",
        help='The agent is this shell command, with the prompt in the variable "$PROMPT"; all it '
        "prints is the answer.",
    ),
]
"""For agents that need no schema."""
output_options: list[Decorator] = [
    output_option,
    click.option(
        "--resume",
        is_flag=True,
        help="Run only the trials that are missing in the output file, and again those that did "
        "not measure the agent (provider errors and the like).",
    ),
    click.option(
        "--keep-failed",
        is_flag=True,
        help="With --resume, do not run again the trials that did not measure the agent.",
    ),
    click.option(
        "--keep-unsigned",
        is_flag=True,
        help="With --resume, believe rows that another user or machine made, or that somebody "
        "changed. Default: refuse them.",
    ),
    click.option(
        "--rerun",
        multiple=True,
        metavar="failed|unmeasured|ID",
        help="Resume, and run these trials again in place of their rows: those that failed, those "
        "that did not measure the agent, or those of this prompt. May be repeated.",
    ),
    append_option,
    overwrite_option,
    click.option(
        "--raw-dir",
        type=OutFolder(),
        metavar="DIR",
        help="Keep the agents' raw output in this folder. "
        "Default: beside the output file, as in results.raw for results.jsonl; "
        "assay run keeps none.",
    ),
]
grader_options: list[Decorator] = [
    click.option(
        "-g",
        "--grader",
        "graders",
        multiple=True,
        metavar="GRADER",
        shell_complete=plugin_names("assay.graders"),
        help="Grade with this file or built-in grader (see docs/graders.md). May be repeated.",
    ),
    click.option(
        "--grader-timeout",
        type=Number(min=0, min_open=True),
        default=60.0,
        metavar="SECONDS",
        help="Time limit for grading one trial, in seconds. Default: 60.",
    ),
]
regrade_options: list[Decorator] = [
    click.option(
        "--regrade",
        is_flag=True,
        help="With --resume, first grade the finished trials again with the graders given now.",
    ),
]
benchmark_options: list[Decorator] = [
    click.option(
        "--benchmark",
        metavar="NAME[:OPTIONS]",
        help="Run the prompts of an installed benchmark, with its world and its graders, instead "
        "of a prompt file. OPTIONS are KEY=VALUE,KEY=VALUE or a JSON object. By default, the "
        "prompts come from PROMPTS.",
    ),
    click.option(
        "--skip-unsupported",
        is_flag=True,
        help="Leave out tasks of the benchmark that cannot be run here, and say which and why. By "
        "default, one such task stops the command before anything runs.",
    ),
]


class FaultType(click.ParamType):  # type: ignore[type-arg] # generic only in newer versions of click
    """STATUS:SHARE, cut:SHARE or slow:SECONDSs."""

    name = "fault"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, Fault):
            return value
        try:
            return parse_fault(str(value))
        except InputError as error:
            self.fail(error.message, param, ctx)


tape_options: list[Decorator] = [
    click.option(
        "--record",
        type=NamedFile(),
        metavar="TAPE",
        help="Add what the agents ask their models, and what these answer, to this file. Keys and "
        "secrets are left out (see docs/tapes.md).",
    ),
    click.option(
        "--replay",
        type=NamedFile(exists=True),
        metavar="TAPE",
        help="Answer the agents from this file: no key and no network is needed, and nothing is "
        "paid. The rows are marked; they say nothing new about an agent.",
    ),
    click.option(
        "--record-misses",
        is_flag=True,
        help="With --replay, ask the provider what the tape has no answer to, and add it. Default: "
        "the trial ends as not measured.",
    ),
    click.option(
        "--pace",
        type=Number(min=0),
        default=0.0,
        metavar="N",
        help="With --replay, how fast answers come: 1 as they were recorded, 2 in twice the time, "
        "0 at once. Default: 0.",
    ),
    click.option(
        "--fault",
        "faults",
        type=FaultType(),
        multiple=True,
        metavar="FAULT",
        help="Let something go wrong between agents and models: a status for a share of the "
        "requests (429:0.1), answers that are cut off (cut:0.05), or seconds of delay (slow:2s). "
        "The same requests are hit in every run. May be repeated.",
    ),
]


judge_tape_options = tape_options[:-1]
"""For graders that ask a model: nothing goes wrong on purpose there."""


def executor_option(help_text: str) -> Decorator:
    """--executor of a command, which says what is done there."""
    return click.option(
        "--executor", type=click.Choice(["local", "ray"]), default="local", help=help_text
    )


address_option = click.option(
    "--address",
    metavar="HOST:PORT",
    help="With --executor ray, the cluster to use. Default: RAY_ADDRESS, the cluster that runs "
    "on this machine, or else a new one that ends with this command.",
)
executor_options: list[Decorator] = [
    executor_option(
        "Where trials run: on this machine, or on a Ray cluster. Each trial then reserves "
        "--cpus (default: 1) and --memory there. Default: local."
    ),
    address_option,
]
confinement_options: list[Decorator] = [
    sandbox_option,
    container_option,
    memory_option,
    cpus_option,
]
run_options: list[Decorator] = [
    click.option(
        "-c",
        "--cwd",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Run the agents in this folder. Default: the current folder.",
    ),
    click.option(
        "-t",
        "--timeout",
        type=Number(min=0, min_open=True),
        metavar="MS",
        help="Time limit for each turn, in milliseconds. "
        f"Default: the schema's limit, or {DEFAULT_TIMEOUT_MS}.",
    ),
    click.option(
        "--trial-timeout",
        type=Number(min=0, min_open=True),
        metavar="MS",
        help="Time limit for all turns of a trial together, in milliseconds. Default: none.",
    ),
    stall_option,
    concurrency_option("Run up to N trials at once. Default: 1."),
    retries_option,
    click.option(
        "--workspace-dir",
        type=OutFolder(),
        metavar="DIR",
        help="Run each trial in a folder of its own inside this one. By default, all trials run "
        "in --cwd; with --workspace-template or --isolate, in folders in your cache folder.",
    ),
    keep_workspaces_option,
    click.option(
        "--workspace-template",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="Copy this folder into the workspace of each trial, which by default is in your cache "
        "folder, outside of every project.",
    ),
    isolate_option,
    *confinement_options,
    env_option,
    *tape_options,
    filter_option("Run only matching prompts, by id, metadata or tags (tags=NAME)"),
    click.option(
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run at most N prompts. Default: all.",
    ),
    click.option(
        "--max-cost",
        type=Number(min=0),
        metavar="USD",
        help="Start no more trials once this many US dollars are spent or reserved for running "
        "trials. Each reserves as much as the most expensive trial so far has cost, or an even "
        "share of the limit until one has ended. Default: no limit.",
    ),
    rate_option,
    longest_wait_option,
    progress_option,
    quiet_option,
    click.option(
        "--json", "as_json", is_flag=True, help="Print progress as JSON events to stderr."
    ),
    click.option("--debug", is_flag=True, help=DEBUG_HELP),
]


def with_options(*groups: list[Decorator]) -> Decorator:
    """Add groups of options to a command, in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


def leave_out(group: list[Decorator], *names: str) -> list[Decorator]:
    """Return a group of options without some, which a command does not take."""

    def name_of(option: Decorator) -> str:
        def nothing() -> None: ...

        return str(option(nothing).__click_params__[-1].name)  # type: ignore[attr-defined]

    return [option for option in group if name_of(option) not in names]


def output_mode(output: Path | None, resume: bool, append: bool, overwrite: bool) -> Mode:
    """How to treat an existing output; the three options exclude each other."""
    modes: dict[Mode, bool] = {"resume": resume, "append": append, "overwrite": overwrite}
    chosen = [mode for mode, given in modes.items() if given]
    if len(chosen) > 1:
        msg = f"--{chosen[0]} and --{chosen[1]} cannot be used together."
        raise click.UsageError(msg)
    if chosen and output is None:
        msg = f"--{chosen[0]} needs -o FILE."
        raise click.UsageError(msg)
    return chosen[0] if chosen else "new"


def agent_ref(options: AgentOptions) -> PluginRef:
    """The agent that the options name; checks that it can be built and its cost be estimated."""
    given = agent_options_given(options)
    if not given:
        msg = "No agent given. Use -s SCHEMA, --simple COMMAND or --shell COMMAND."
        raise click.UsageError(msg)
    (flag, value), *others = given
    if flag == "--simple" and others:
        msg = "Give the agent either with --simple or with --shell, not both."
        raise click.UsageError(msg)
    agent: str | PluginRef = value
    if flag != "-s":
        agent = agents.text_agent(flag.removeprefix("--"), value)
        if warning := agents.without_prompt(agent):
            echo_folded(warning, err=True)
    elif value == "-":
        claim_stdin()
        schema = decode_json("stdin", sys.stdin.buffer.read())
        agent = PluginRef(name="declared", options={"schema": schema, "source": "stdin"})
    for other, _ in others:
        echo_folded(f"Ignored {other}: the agent is given with {flag}.", err=True)
    return with_agent_options(agent, options)


def with_agent_options(agent: str | PluginRef, options: AgentOptions) -> PluginRef:
    mcp = options.mcp
    ref = agents.agent_ref(
        agent,
        model=options.model,
        args=options.agent_args,
        mcp=agents.read_mcp(mcp, sys.stdin.buffer.read()) if mcp == DASH else mcp,
        max_turns=options.max_turns,
        strict=options.strict,
    )
    for text in plugins.adapter(ref).warnings:
        echo_folded(f"Warning: {text}", err=True)
    return ref


def agent_options_given(options: AgentOptions) -> list[tuple[str, str]]:
    """The options that name an agent, the one that counts first."""
    ways = (("-s", options.schema), ("--simple", options.simple), ("--shell", options.shell))
    return [(flag, value) for flag, value in ways if value]


def grader_refs(graders: Sequence[str], timeout_s: float) -> list[PluginRef]:
    """The graders that the options name; checks that they can be built."""
    return [plugins.grader_ref(text, timeout_s) for text in graders]


def run_request(options: BatchOptions, agent: PluginRef, prompts: PluginRef) -> RunRequest:
    """What capture, trials, run and trigger ask for, from the options that they share."""
    resume = options.resume or bool(options.rerun)
    if options.keep_failed and not resume:
        msg = "--keep-failed needs --resume."
        raise click.UsageError(msg)
    if options.keep_unsigned and not resume:
        msg = "--keep-unsigned needs --resume."
        raise click.UsageError(msg)
    return arm_request(
        options.arm,
        agent,
        prompts=prompts,
        filters=options.filters,
        limit=options.limit,
        jobs=options.concurrency,
        memory_bytes=options.memory,
        retries=options.retries or 0,
        rate_per_s=options.rate,
        longest_wait_s=options.longest_wait,
        max_cost=options.max_cost,
        executor=executor_ref(options.executor, options.address),
        cwd=options.cwd,
        workspace_dir=options.workspace_dir,
        keep_workspaces=options.keep_workspaces or "",
        output=options.output,
        mode=output_mode(options.output, resume, options.append, options.overwrite),
        raw_dir=options.raw_dir,
        keep_failed=options.keep_failed,
        keep_unsigned=options.keep_unsigned,
        rerun=options.rerun,
        tape=tape_use(msgspec.structs.asdict(options)),
    )
