"""What a plugin author imports: the protocols to fulfil, the records they speak of, the errors.

Read this file first. A plugin is found by its entry point, in one of the groups assay.adapters,
assay.graders, assay.benchmarks, assay.executors and assay.commands. Other modules may move.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from assay.errors import (
    AssayError,
    InputError,
    Interrupted,
    OutputError,
    PluginError,
    SpawnError,
    UsageError,
)
from assay.records.capture import (
    AgentInfo,
    AnyStep,
    Capture,
    Cause,
    Events,
    Failure,
    Grade,
    Message,
    Plan,
    Thought,
    ToolCall,
    Usage,
)
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec

# fmt: off
__all__ = [
    "Adapter", "AgentInfo", "AnyStep", "Ask", "AssayError", "Benchmark", "Capture", "Cause",
    "Command", "ConfinedProgram", "Dialogue", "Events", "Executor", "Failure", "Finished", "Grade",
    "Grader", "Host", "InputError", "Interrupted", "Limits", "Machine", "Message", "OutputError",
    "Plan", "PluginError", "PluginRef", "Prompt", "PromptRow", "RawLine", "Reading", "Recording",
    "Served", "SpawnError", "Started", "Surroundings", "Thought", "ToolCall", "Trial", "TrialSpec",
    "Turn", "TurnEnd", "Usage", "UsageError", "Watch", "World",
]
# fmt: on


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that is about to be put to an agent."""

    text: str
    cwd: str
    session_id: str | None = None
    """Found in an earlier turn of this trial."""
    history: tuple[tuple[str, str], ...] = ()
    """Earlier turns: pairs of what was asked and what was answered."""
    home: str | None = None
    """The agent's own HOME when it is isolated."""
    scratch: str = ""
    """A folder of this trial for files that the adapter wants written."""
    prompt_id: str = ""
    trial: int = 1
    """Which prompt this is, and which trial of it. Real agents are never told."""
    mcp_servers: dict[str, dict[str, Any]] = {}
    """Servers of the trial's world by name: {"command", "args", "env"}; transport is stdio."""
    sandbox: str = ""
    """network or no-network in a sandbox, container in a container; programs of a container are
    not those of this machine."""
    login: bool = False
    """Whether the agent's own HOME gets copies of the files in Command.login."""
    repetitive: bool = False
    """Whether the task needs the same call many times, as a game does: an agent that stops when it
    seems to go round in circles is to be told not to."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start. Pure data: an adapter makes it, run/ starts it."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    stdin: str | None = None
    """Text for stdin; None closes it."""
    files: dict[str, str] = {}
    """Files to write before the start: absolute paths below Ask.home or Ask.scratch."""
    links: dict[str, str] = {}
    """Links to make before the start, at such paths as well, and where each of them leads."""
    pass_env: tuple[str, ...] = ()
    """Our environment variables that an isolated agent gets."""
    keep: tuple[str, ...] = ()
    """Globs of files to keep with the raw streams, below HOME (~/…), Ask.scratch or the workspace;
    {session_id} stands for the agent's session, {session_id:8} for its first eight letters."""
    visible: tuple[str, ...] = ()
    """Files and folders besides program and workspace that a sandboxed agent sees, read-only."""
    login: dict[str, str] = {}
    """Where below Ask.home the agent gets a copy of its login if Ask.login, and the user's own
    file."""
    endpoints: tuple[str, ...] = ()
    """URLs of its models, the only addresses that a sandbox without network lets it reach."""


class Reading(msgspec.Struct, kw_only=True):
    """What an adapter makes of a recording."""

    steps: list[AnyStep]
    outputs: list[str]
    """The answer of each turn, as far as one was found."""
    events: Events
    usage: Usage | None = None
    session_id: str | None = None
    agent: AgentInfo | None = None
    failure: Failure | None = None
    """What the agent itself reported as going wrong."""
    turn_usage: list[Usage] = []
    """Usage of each turn, where the agent tells them apart."""
    setup: dict[str, Any] | None = None
    """What the agent really had: tools, MCP servers, skills, permission mode."""
    permission_denials: int = 0
    provider_retries: int = 0
    """How often the agent asked its provider again."""
    terminal_required: bool = True
    """Whether ending without the terminal event is a failure."""
    warnings: list[str] = []
    """What a reader should know before trusting this trial."""


class Watch(Protocol):
    """Follows one turn while it runs."""

    session_id: str | None
    ended: bool
    """The terminal event was seen; may become False again when the agent goes on after all.

    A watch may have `over_limit` too: True ends the process at once, without time to linger.
    """

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; return the steps it began or changed.

        Text that comes in pieces may be returned in pieces, all with the step id of the whole.
        """
        ...

    def output(self) -> str:
        """The answer as far as it is known."""
        ...


class Dialogue(Protocol):
    """One side of a dialogue with an agent that keeps one process. No process, no clock."""

    over: bool
    """No further turn is possible: the agent refused, failed or stopped."""

    def say(self, ask: Ask) -> bytes:
        """Open a turn; return what to write to the agent."""
        ...

    def hear(self, line: bytes) -> bytes:
        """Take a line of the agent; return what to write back, often nothing."""
        ...


class Adapter(Protocol):
    """Knows one agent's command line. Pure: no process, no clock; tested from recordings.

    An adapter may also have `first_start_alone = True`: the agent sets up files in its HOME when it
    first starts. In a HOME that trials share, the others then wait for the first one's first step.
    And `offers_mcp_servers = True`: the agent gets the servers of Ask.
    check_trials(specs) is called before anything runs, and raises InputError for trials that cannot
    work. content_hash replaces the program's version and the options in the identity of trials.
    `plain_text = True`: the agent prints text, not events, so that blank lines count and its rows
    can be read without this adapter. `forgets(session_id)` returns whether a turn after the first
    would know nothing of the earlier ones; the id is that of the session so far, if there is one.
    """

    name: str
    timeout_ms: float | None
    linger_s: float

    def command(self, ask: Ask) -> Command:
        """Return the command that puts one turn to the agent."""
        ...

    def watch(self) -> Watch:
        """Return what follows a turn that is about to start."""
        ...

    def dialogue(self, cwd: str) -> Dialogue | None:
        """Return the dialogue of an agent that keeps one process for all turns, else None."""
        ...

    def read(self, recording: Recording) -> Reading:
        """Read a whole recording into steps, answers, usage and outcome."""
        ...


class ConfinedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program for Machine.run_confined."""

    argv: Sequence[str]
    around: Surroundings
    """It names the sandbox or the container; the program works in its cwd."""
    mounts: Mapping[str, str] = {}
    """As in World."""
    env: Mapping[str, str] = {}
    timeout_s: float = 60.0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a process that a plugin asked for has ended."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


class Served(Protocol):
    """A program that answers line by line, for as long as it lives."""

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Write one line and return the one that comes back.

        Raises PluginError when the program hangs, dies or answers out of turn; it is killed then.
        """
        ...

    def send(self, lines: bytes) -> None:
        """Write many lines, also while some that were sent before are not answered yet."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Wait for answers to what was sent; return as many whole lines as have come.

        timeout_s is for one answer. Raises as ask does, once all that came before was returned.
        Returns nothing when the program ended for a reason that has nothing to do with the next
        line: then another one is to be asked for the rest.
        """
        ...

    def close(self) -> None:
        """End it, also in the middle of an answer."""
        ...


class Started(Protocol):
    """A program that runs beside a trial until it ends or is ended."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + n after death by signal n; None while it runs."""
        ...

    def end(self) -> None:
        """Kill its whole process tree; nothing happens when it has ended already."""
        ...

    def last_words(self) -> str:
        """The end of what it wrote to stdout and stderr."""
        ...


class Machine(Protocol):
    """What a plugin may ask of the machine. Plugins never start processes themselves."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Finished:
        """Run a program to its end; nothing of it is left alive."""
        ...

    def run_confined(self, program: ConfinedProgram) -> Finished:
        """Run a program to its end as confined as an agent would be; nothing of it is left alive.

        It has a HOME of its own, and no variables of ours but those that it names.
        """
        ...

    def serve(
        self,
        argv: Sequence[str],
        *,
        show_stderr: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Served:
        """Return this thread's running copy of a program; start it when there is none.

        With show_stderr, what it writes to stderr is copied to ours.
        """
        ...

    def serve_function(self, function: str, argument: str) -> Served:
        """Return this thread's forked process that answers lines by a Python function.

        function is module:name; called with the argument it returns a function that takes a block
        of lines and yields the answer to each.
        """
        ...

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        pass_fds: Sequence[int] = (),
    ) -> Started:
        """Start a program beside a trial, with exactly this env; the caller must end it.

        pass_fds are open files that the program gets under the same numbers.
        """
        ...

    def keep_file(self, path: Path) -> None:
        """Keep a file of a trial's world beside the raw streams; outside a trial, do nothing."""
        ...

    def is_unchanged(self, folder: str, tree: str) -> bool:
        """Whether a folder is as an agent left it; tree is from the `changes` of its row."""
        ...


class Host(Machine, Protocol):
    """What graders may ask for in addition: an agent's answer."""

    def ask(
        self, agent: PluginRef, text: str, *, cwd: str | None = None, timeout_s: float = 60.0
    ) -> str:
        """Put a question to an agent, in an empty folder unless cwd is given; return its answer.

        Raises PluginError when the agent fails.
        """
        ...


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a grader gets to see of one trial. None is unknown."""

    input: str | list[str]
    output: str
    hint: str | None = None
    trajectory: list[Any] = []
    """Steps as in the row: plain dicts."""
    metadata: dict[str, Any] | None = None
    cwd: str | None = None
    """The workspace, as the agent left it."""
    reference: str | None = None
    row: dict[str, Any] = {}
    """The whole row as it is on disk."""


class Grader(Protocol):
    """Judges one trial. Raises only when the grader itself is broken.

    A grader that uses files may have two other methods. freeze(host) is called before the first
    agent starts, to read them. changes(trial) returns a list of sentences for the `warnings` of a
    trial: which of them have changed since.

    With `wants_snapshot` set to True, the row says in `changes` what the agent changed in its
    folder. `file_options` names options that may be files: in a prompt's row they are found from
    the folder of the prompt file, and so is what an option called `folder` is for. For `grade` on
    other machines, `files` lists the paths that must be there, and `asks` is the agent that it puts
    questions to.
    """

    name: str
    version: str

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Return a verdict."""
        ...


class Executor(Protocol):
    """Runs a function over items, in threads or elsewhere. Knows nothing of trials."""

    def map[T, R](
        self, fn: Callable[[T], R], items: Iterable[T], lost: Callable[[T, str], R]
    ) -> Iterator[R]:
        """Yield results as they finish; lost(item, why) is the result of a worker that died.

        An AssayError that fn raises ends the run and comes out here.
        """
        ...


class World(Protocol):
    """What surrounds an agent during a trial: a game, a repository, nothing."""

    env: dict[str, str]
    """Variables the agent gets."""
    mcp_servers: dict[str, dict[str, Any]]
    """Servers the agent is offered; see Ask.

    A world may have five more attributes. `visible`: files and folders that a sandboxed agent
    sees, read-only. `mounts`: places in the sandbox or container, and the folders of ours that the
    agent finds there and may write to. `hidden`: folders that a sandbox shows in no case.
    `hidden_env`: names of variables that the agent does not inherit from us. `repetitive`: see Ask.
    """

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        """What the world saw; goes into the capture, for graders. last is how the agent ended.

        Raises AssayError when the world broke: then the trial measured nothing. A field `failure`,
        {"cause", "message"}, is the trial's failure, unless the agent's own is known; one that
        does not measure the agent also comes before one that does.
        """
        ...


type PromptRow = tuple[Prompt, dict[str, Any]]
"""A prompt, and the unknown fields of its row, which are written to the result as they are."""


class Benchmark(Protocol):
    """A named source of prompts, their world and their graders.

    A benchmark may have `grades_failed_trials` too: if True, its graders also judge trials in
    which the agent crashed or ran out of time, by the world's evidence. Otherwise such a trial
    counts against the agent and no grader is asked.

    prepare_process() is called in the process that runs a single trial on another machine, before
    it does. fit_trials(specs) is called before anything runs. It returns the trials, with limits
    that their tasks ask for, or raises InputError for trials that cannot be run here.
    """

    def prompts(self) -> Iterable[PromptRow]:
        """Return the prompts, always the same for the same options: a run may be resumed."""
        ...

    def world(
        self, spec: TrialSpec, workspace: Path, host: Machine
    ) -> AbstractContextManager[World]:
        """Open the world of one trial and close it after."""
        ...

    def graders(self) -> Sequence[PluginRef]:
        """Return the graders this benchmark is scored with."""
        ...
