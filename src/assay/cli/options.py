"""Options that several commands share, and what they mean together."""

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import plugins
from assay.cli.parameters import (
    DASH,
    Decorator,
    InFile,
    Number,
    OutFolder,
    append_option,
    can_start,
    claim_stdin,
    concurrency_option,
    container_option,
    cpus_option,
    filter_option,
    isolate_option,
    memory_option,
    model_option,
    output_option,
    overwrite_option,
    progress_option,
    quiet_option,
    rate_option,
    retries_option,
    sandbox_option,
)
from assay.errors import InputError
from assay.pipeline.identity import identify
from assay.pipeline.prompts import Setting, check_confinement
from assay.pipeline.resume import Resume
from assay.pipeline.stages import local_machine
from assay.records.capture import Capture, TrialEntry
from assay.records.journal import Mode
from assay.records.rows import BOM
from assay.records.spec import Limits, PluginRef, Surroundings
from assay.records.text import counted_noun, visible_line
from assay.run.workspace import private_root

DEFAULT_TIMEOUT_MS = 60_000
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


class BatchOptions(AgentOptions, frozen=True, kw_only=True):
    """What capture, trials and run share: agent_options, output_options and run_options."""

    prompts: Sequence[str]
    output: Path | None
    resume: bool
    keep_failed: bool
    rerun: Sequence[str]
    append: bool
    overwrite: bool
    raw_dir: Path | None
    cwd: Path | None
    timeout: float | None
    trial_timeout: float | None
    stall: float | None
    concurrency: int
    retries: int
    workspace_dir: Path | None
    workspace_template: Path | None
    isolate: bool
    sandbox: str | None
    container: str | None
    memory: int | None
    cpus: float | None
    env_names: Sequence[str]
    filters: Sequence[str]
    limit: int | None
    max_cost: float | None
    rate: float | None
    progress: bool
    quiet: bool
    as_json: bool
    debug: bool
    login: bool = False
    """Whether an isolated agent gets a copy of the user's login; no option of capture or trials."""
    executor: str = "local"
    address: str | None = None

    @property
    def executor_ref(self) -> PluginRef:
        """Where the trials run."""
        return executor_ref(self.executor, self.address)


class CaptureOptions(BatchOptions, frozen=True, kw_only=True):
    """What capture and trials also take: graders, and prompts from stdin or a benchmark."""

    graders: Sequence[str]
    grader_timeout: float
    regrade: bool
    from_stdin: bool
    benchmark: str | None


def executor_ref(executor: str, address: str | None) -> PluginRef:
    """Where work is done, from executor_options."""
    if address is not None and executor == "local":
        msg = "--address needs --executor ray."
        raise click.UsageError(msg)
    if address == "":
        msg = "--address is empty. Give HOST:PORT, or leave it out for a cluster of this machine."
        raise click.UsageError(msg)
    return PluginRef(name=executor, options={"address": address} if address else {})


agent_options: list[Decorator] = [
    click.option(
        "-s",
        "--schema",
        metavar="AGENT",
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
TEXT_AGENTS = ("simple", "shell")
"""Their adapters; the command line is the option `template`."""
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
        help="With --resume, do not run the trials again that did not measure the agent.",
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
]


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
    click.option(
        "--stall",
        type=Number(min=0, min_open=True),
        metavar="SECONDS",
        help="Kill an agent that prints nothing for this many seconds. Default: never.",
    ),
    concurrency_option("Run up to N trials at once. Default: 1."),
    retries_option,
    click.option(
        "--workspace-dir",
        type=OutFolder(),
        metavar="DIR",
        help="Run each trial in a folder of its own inside this one. By default, all trials run "
        "in --cwd; with --workspace-template or --isolate, in folders in your cache folder.",
    ),
    click.option(
        "--workspace-template",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="Copy this folder into the workspace of each trial. Workspaces are in "
        "--workspace-dir; by default in your cache folder, outside of every project.",
    ),
    isolate_option,
    *confinement_options,
    click.option(
        "--env",
        "env_names",
        multiple=True,
        metavar="NAME",
        help="With --isolate, --sandbox or --container, pass this environment variable through. "
        "May be repeated.",
    ),
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
        "trials: each as much as the dearest so far, at first an even share. Default: no limit.",
    ),
    rate_option,
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


def resume_of(
    options: BatchOptions,
    graders: Sequence[PluginRef] = (),
    k: int | None = None,
    graded: Callable[[Capture | TrialEntry], None] = lambda judged: None,
    *,
    is_graded: bool | None = None,
) -> Resume:
    """What to do with the rows of an earlier run; graded takes what the graders say of them.

    is_graded: whether there are any graders, also where prompts bring their own.
    """
    regrade = isinstance(options, CaptureOptions) and options.regrade
    for name, given in (("--regrade", regrade), ("--keep-failed", options.keep_failed)):
        if given and not options.resume and not options.rerun:
            msg = f"{name} needs --resume."
            raise click.UsageError(msg)
    if regrade and not (graders if is_graded is None else is_graded):
        msg = "--regrade needs a grader. Use -g GRADER."
        raise click.UsageError(msg)

    def announce(n_again: int, n_graded: int, n_regraded: int) -> None:
        counts = ((n_again, "run again"), (n_graded, "graded"), (n_regraded, "graded again"))
        for n, what in counts:
            if n and not options.quiet:
                verb = "is" if n == 1 else "are"
                click.echo(f"{counted_noun(n, 'row')} of {options.output} {verb} {what}", err=True)

    return Resume(
        k=k,
        keep_failed=options.keep_failed,
        rerun=options.rerun,
        regrade=regrade,
        graders=graders,
        announce=announce,
        graded=graded,
    )


def chosen_agent(ctx: click.Context, options: AgentOptions) -> PluginRef:
    """The agent given by name, or as a program that speaks the Agent Client Protocol."""
    program: list[str] = ctx.meta.get("program", [])
    given = _given(options)
    if not program and not given:
        msg = (
            "No agent given. Use -s SCHEMA, --simple COMMAND or --shell COMMAND, or name a program "
            "that speaks the Agent Client Protocol after the prompts."
        )
        raise click.UsageError(msg)
    if not program:
        return agent_ref(options)
    if given:
        msg = (
            f"Give the agent either with {given[0][0]} or as a program ({program[0]}), not both. "
            "Only one prompt file is read."
        )
        raise click.UsageError(msg)
    # Our own server of agents, also where `assay` is not on the PATH.
    ours = {"assay": program[1:], "headless": program}.get(program[0])
    if ours is None or can_start(program[0]):
        return _with_options(PluginRef(name="acp", options={"command": program}), options)
    command, name = [sys.executable, "-m", "assay", *ours], shlex.join(["assay", *ours])
    return _with_options(PluginRef(name="acp", options={"command": command, "name": name}), options)


def agent_ref(options: AgentOptions) -> PluginRef:
    """The agent that the options name; checks that it can be built and its cost be estimated."""
    if os.environ.get("ASSAY_PRICES"):
        from assay.adapters.prices import price_table  # late: seldom used before a trial ends

        price_table()
    given = _given(options)
    if not given:
        msg = "No agent given. Use -s SCHEMA, --simple COMMAND or --shell COMMAND."
        raise click.UsageError(msg)
    (flag, value), *others = given
    if flag == "--simple" and others:
        msg = "Give the agent either with --simple or with --shell, not both."
        raise click.UsageError(msg)
    if flag == "--shell" and "PROMPT" not in value:
        click.echo(
            f'Warning: --shell {visible_line(value)!r} does not use "$PROMPT". Unless a program '
            "in it reads that variable, the agent gets no prompt.",
            err=True,
        )
    for other, _ in others:
        click.echo(f"Ignored {other}: the agent is given with {flag}.", err=True)
    if flag == "-s":
        ref = _schema_on_stdin() if value == "-" else plugins.adapter_ref(value)
    else:
        ref = PluginRef(name=flag.removeprefix("--"), options={"template": value})
    return _with_options(ref, options)


def _with_options(ref: PluginRef, options: AgentOptions) -> PluginRef:
    more: dict[str, Any] = {
        "model": options.model,
        "args": tuple(options.agent_args),
        "mcp": _mcp_file(options.mcp) if options.mcp else None,
        "max_turns": options.max_turns,
    }
    more = {name: value for name, value in more.items() if value}
    _check_supported(ref.name, more)
    ref = msgspec.structs.replace(ref, options={**ref.options, **more})
    plugins.adapter(ref)
    return ref


def _schema_on_stdin() -> PluginRef:
    claim_stdin()
    schema = _json(sys.stdin.buffer.read(), "stdin")
    return PluginRef(name="declared", options={"schema": schema, "source": "stdin"})


def _given(options: AgentOptions) -> list[tuple[str, str]]:
    """The options that name an agent, the one that counts first."""
    ways = (("-s", options.schema), ("--simple", options.simple), ("--shell", options.shell))
    return [(flag, value) for flag, value in ways if value]


def _check_supported(name: str, more: dict[str, Any]) -> None:
    """Refuse an option that this adapter cannot pass on."""
    flags = {"model": "--model", "args": "--agent-arg", "mcp": "--mcp", "max_turns": "--max-turns"}
    refused = sorted(flags[key] for key in more.keys() - plugins.adapter_options(name))
    if not refused:
        return
    who = "an agent described by a schema" if name == "declared" else f"the adapter {name}"
    msg = f"{who} does not support {' and '.join(refused)}"
    raise InputError(
        msg, hint="pass the agent's own arguments with --agent-arg, if the adapter supports it"
    )


def _mcp_file(path: Path) -> dict[str, Any]:
    """Read an mcpServers file; it is checked again by the adapter that translates it."""
    try:
        data = sys.stdin.buffer.read() if path == DASH else path.read_bytes()
    except OSError as error:
        msg = f"--mcp {path}: {error.strerror}"
        raise InputError(msg) from error
    content = _json(data, "stdin" if path == DASH else str(path))
    # Late: only --mcp needs it at start-up.
    from assay.adapters.vendor import parse_mcp, with_full_paths

    parse_mcp(content, str(path))
    return dict(with_full_paths(content, lambda name: _found_beside(path, name)))


def _json(data: bytes, name: str) -> Any:
    try:
        return msgspec.json.decode(data.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{name}: not JSON: {error}"
        raise InputError(msg) from error


def _found_beside(mcp_file: Path, name: str) -> str | None:
    """Find a relative path in the folder of the MCP file, or in the current one."""
    return None if Path(name).is_absolute() else _file_in(name, mcp_file.parent, Path.cwd())


def _file_in(name: str, *folders: Path) -> str | None:
    # Links are not followed: the python of a virtual environment is one.
    places = (folder.absolute() / name for folder in folders)
    try:
        return next((str(path) for path in places if path.is_file()), None)
    except (OSError, ValueError):  # too long for a name, or with a NUL: no path at all
        return None


def grader_refs(graders: Sequence[str], timeout_s: float) -> list[PluginRef]:
    """The graders that the options name; checks that they can be built."""
    return [plugins.grader_ref(text, timeout_s) for text in graders]


def setting(
    options: BatchOptions,
    agent: PluginRef,
    benchmark: PluginRef,
    graders: Sequence[PluginRef],
    *,
    keep_raw: bool,
) -> Setting:
    """What all trials of the run share."""
    timeout_ms = options.timeout or plugins.adapter(agent).timeout_ms or DEFAULT_TIMEOUT_MS
    limits = Limits(
        turn_s=timeout_ms / 1000,
        trial_s=options.trial_timeout / 1000 if options.trial_timeout else None,
        stall_s=options.stall,
        memory_bytes=options.memory,
        cpus=options.cpus,
    )
    token = _run_token(options.output)
    surroundings = _surroundings(options, token, keep_raw=keep_raw)
    wanted = (getattr(plugins.grader(ref), "wants_snapshot", False) for ref in graders)
    surroundings = msgspec.structs.replace(surroundings, snapshot=any(wanted))
    if options.executor == "local":
        check_confinement(surroundings, limits)
    template = options.workspace_template
    return Setting(
        agent=findable(agent, surroundings),
        benchmark=benchmark,
        limits=limits,
        surroundings=surroundings,
        run_token=token,
        identity=identify(agent, surroundings, limits, graders, local_machine(), template),
    )


def findable(agent: PluginRef, around: Surroundings) -> PluginRef:
    """Make files of the agent's command absolute: a workspace is another folder than ours."""
    options = agent.options
    if around.workspace_dir is None or around.container:
        return agent
    if agent.name in TEXT_AGENTS:
        text = _absolute_scripts(options["template"], around.cwd)
        return msgspec.structs.replace(agent, options={**options, "template": text})
    schema = options.get("schema")
    command = schema.get("command") if isinstance(schema, dict) else options.get("command")
    if not isinstance(command, list):
        return agent
    found = [_absolute(word, around.cwd) for word in command]
    changed = {"schema": {**schema, "command": found}} if schema else {"command": found}
    return msgspec.structs.replace(agent, options={**options, **changed})


def _absolute(word: Any, folder: str) -> Any:
    """Return a word that names a file with a folder or an extension as an absolute path."""
    if not isinstance(word, str) or not ("/" in word or Path(word).suffix):
        return word
    return _file_in(word, Path(folder)) or word


_SCRIPT = (
    r"(?<![^\s;|&])(?:\.{1,2}/[\w./+-]+|[\w.+-][\w./+-]*\.(?:py|js|mjs|cjs|ts|mts|sh|rb|pl|php)\b)"
)


def _absolute_scripts(template: str, folder: str) -> str:
    """The same for a command line as text: only scripts and ./programs, as the rest may be data."""

    def absolute(found: re.Match[str]) -> str:
        return shlex.quote(_file_in(found[0], Path(folder)) or found[0])

    return re.sub(_SCRIPT, absolute, template)


def _surroundings(options: BatchOptions, token: str, *, keep_raw: bool) -> Surroundings:
    cwd = Path(options.cwd or Path.cwd()).resolve()
    if not cwd.is_dir():
        msg = f"working folder not found: {cwd}"
        raise InputError(msg, hint="check the folder given with -c")
    output, workspaces = options.output, options.workspace_dir
    template, raw = options.workspace_template, options.raw_dir
    # With -c the user has named the folder to work in, isolated or not.
    has_own_home = options.isolate or options.sandbox or options.container
    is_private = template is not None or (has_own_home and options.cwd is None)
    root = private_root() if template or (is_private and workspaces is None) else None
    if root and workspaces is None:
        workspaces = root / token
    # Not beside a device or a pipe, such as /dev/stdout.
    if raw is None and keep_raw and output and (output.is_file() or not output.exists()):
        raw = output.with_suffix(".raw")
    base = output.parent if output is not None else Path.cwd()
    return Surroundings(
        cwd=str(cwd),
        workspace_dir=str(workspaces.resolve()) if workspaces else None,
        workspace_template=str(root / f"template-{token}") if root and template else None,
        replace=bool(options.resume or options.rerun or options.overwrite),
        isolate=options.isolate,
        sandbox=options.sandbox or "",
        container=options.container or "",
        env_names=tuple(options.env_names),
        login=options.login,
        raw_dir=str(raw.resolve()) if raw else None,
        pack_raw=True,
        raw_prefix=Path(os.path.relpath(raw.resolve(), base.resolve())).as_posix() if raw else "",
        ours=_written(output, raw),
    )


def _written(output: Path | None, raw: Path | None) -> tuple[str, ...]:
    """Return what this run writes: the output, its journal and the raw streams."""
    files = [output, output.with_name(f"{output.name}.partial")] if output else []
    return tuple(str(path.resolve()) for path in (*files, raw) if path)


def _run_token(output: Path | None) -> str:
    # The same for the same output: --resume finds the agents that a killed run left behind.
    name = str(output.resolve()) if output else f"{os.getpid()}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]
