"""What a plugin author imports: base classes, the records that they use, and the errors.

Read this file first, after docs/plugins.md. A plugin is a class that inherits from Adapter, Grader,
Benchmark or Executor. Methods that raise NotImplementedError here must be written; all others, and
all attributes with a value, are optional. The class is found by its entry point, in one of the
groups assay.adapters, assay.graders, assay.benchmarks and assay.executors, and is called with the
user's options as keyword arguments. Other modules of Assay may move.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from assay.errors import (
    AssayError,
    CannotRunError,
    InputError,
    Interrupted,
    OutOfResources,
    OutputError,
    PluginError,
    SpawnError,
    UsageError,
)
from assay.records.capture import (
    AgentInfo,
    AnyStep,
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
from assay.records.spec import FunctionCall, Limits, PluginRef, Prompt, Surroundings, TrialSpec
from assay.records.trial import Trial as Capture

# fmt: off
__all__ = [
    "Adapter", "AgentInfo", "Answer", "AnyStep", "Ask", "AssayError", "Benchmark", "CannotRunError",
    "Capture", "Cause", "Command", "ConfinedProgram", "Dialogue", "Events", "Executor", "Failure",
    "Finished", "Grade", "Grader", "Host", "Image", "InputError", "Interrupted", "KeptContainer",
    "Limits", "Machine", "Message", "OutOfResources", "OutputError", "PastSession", "PastTurn",
    "Plan", "PluginError", "PluginRef", "Prompt", "PromptRow", "RawLine", "Reading", "Recording",
    "Served", "SpawnError", "Started", "Surroundings", "Thought", "ToolCall", "Trial", "TrialSpec",
    "Turn", "TurnEnd", "Usage", "UsageError", "Watch", "World",
]
# fmt: on


USUAL_BASE_URLS = (
    ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    ("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
)
"""Variables that clients of the providers look at, and what these are without them."""
NO_KEY = "assay-replay"
"""In place of a key that nobody will look at."""

if TYPE_CHECKING:
    _default = property
else:

    class _default:
        """The default of an attribute; a subclass may have a value, a property or a field."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __get__(self, plugin: Any, kind: type | None = None) -> Any:
            if plugin is None:
                raise AttributeError  # or else a dataclass would take this for a field's default
            return self._function(plugin)


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
    tools: bool = True
    """Whether the agent may use tools. A judge may not, because what it reads may be hostile: it is
    started without tools and MCP servers, and never with permissions bypassed."""
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
    home_env: tuple[str, ...] = ()
    """Our variables that lead to the user's own settings: an agent with a HOME of its own, which
    has all others, does not get these unless env has them."""
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
    function: FunctionCall | None = None
    """A Python function to call in a forked process in place of argv, which only names it."""


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


class PastTurn(msgspec.Struct, kw_only=True):
    """One message of the user in a session of the agent's own, and what came of it."""

    text: str
    at_ms: float
    """Since the epoch."""
    steps: list[AnyStep]
    """Their times are those since the start of the session."""
    usage: Usage | None = None


class PastSession(msgspec.Struct, kw_only=True):
    """A session that the agent kept on this machine without Assay."""

    id: str
    path: Path
    """The agent's own file."""
    turns: list[PastTurn]
    agent: AgentInfo
    start_ms: float
    """Since the epoch."""
    end_ms: float
    cwd: str | None = None
    branch: str | None = None
    commit: str | None = None
    """The state of the repository, as far as the agent noted it."""


class Watch:
    """Follows one turn while it runs. As it is here, it only waits for the process to end."""

    session_id: str | None = None
    """The agent's session, once it is known: Ask.session_id of the next turn."""
    ended: bool = False
    """The terminal event was seen; may become False again when the agent goes on after all."""
    over_limit: bool = False
    """Ends the process at once when the turn has ended, without time to linger."""
    events: Events | None = None
    """What was read so far, if it is counted; for --debug and assay.testing."""
    result: Any = None
    """What the event that gives the answer said, if there is one; for --debug."""

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; return the steps it began or changed.

        Text that comes in pieces may be returned in pieces, all with the step id of the whole.
        """
        return ()

    def output(self) -> str:
        """The answer as far as it is known; later turns get it in Ask.history."""
        return ""


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


class Adapter:
    """Knows one agent's command line. Pure: no process, no clock; tested from recordings.

    Options reach it as keyword arguments: those of -s NAME:KEY=VALUE, and --model as model,
    --agent-arg as args (a tuple of str), --mcp as mcp (the content of the file) and --max-turns as
    max_turns. An option that __init__ does not name is refused.
    """

    name: str
    timeout_ms: float | None = None
    """Time limit of a turn where the user gives none; None is Assay's own."""
    linger_s: float = 10.0
    """How long the process may live on after its terminal event."""
    plain_text: bool = False
    """The agent prints text, not events, so that blank lines count and its rows can be read without
    this adapter."""
    offers_mcp_servers: bool = False
    """The agent gets the servers in Ask.mcp_servers."""
    first_start_alone: bool = False
    """The agent sets up files in its HOME when it first starts. In a HOME that trials share, the
    others then wait for the first one's first step."""
    provider: str | None = None
    """Trials of one provider share its limits on requests; None is the adapter's name."""
    reads: Sequence[str] | None = None
    """Files and folders that the agent reads in its working folder and in those above it; their
    content is part of a trial's identity. None is what all known agents read."""
    reads_in_home: Sequence[str] | None = None
    """The same in the user's HOME, which it does not see when it is isolated. None is not known;
    otherwise the program is also asked for its --version. Of a file that the agent writes as well,
    FILE#KEY is a part: what stands there under this key, or under projects, the working folder and
    this key."""
    skills_folder: str = ".agents/skills"
    """Where it looks for skills, below a project and below HOME."""
    instructions_file: str = "AGENTS.md"
    """The file of a project that it reads before every task."""
    base_urls: Sequence[tuple[str, str]] = USUAL_BASE_URLS
    """Variables by which the agent finds its models, and where these are without them."""
    model_keys: Sequence[str] = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
    """Variables with the keys that it will not start without."""
    reader_version: str = "1"
    """Changes whenever `read` makes something else of a recording: bundles of evidence name it."""
    content_hash: str | None = None
    """Stands for the program's version and the options in the identity of trials."""
    warnings: Sequence[str] = ()
    """What the user should know about the options; --strict makes errors of them."""

    def command(self, ask: Ask) -> Command:
        """Return the command that puts one turn to the agent."""
        raise NotImplementedError

    def redirect(
        self, command: Command, ask: Ask, through: Callable[[str], str], *, offline: bool = False
    ) -> Command:
        """Return the command of an agent that asks its models at the addresses that through gives
        for theirs, so that a tape can be recorded or replayed.

        As it is here, by the variables in base_urls. offline: no provider is asked, so any key will
        do where there is none.
        """
        env = dict(command.env)
        for name, usual in self.base_urls:
            env[name] = through(env.get(name) or os.environ.get(name) or usual)
        if offline:
            env |= {n: NO_KEY for n in self.model_keys if not (env.get(n) or os.environ.get(n))}
        return msgspec.structs.replace(command, env=env)

    def provider_settings(self) -> dict[str, Any]:
        """Return what of the user's own settings an agent gets in another HOME: endpoint and model.

        They are part of a trial's identity and have no keys in them.
        """
        return {}

    def read(self, recording: Recording) -> Reading:
        """Read a whole recording into steps, answers, usage and outcome."""
        raise NotImplementedError

    def past_sessions(self, since_ms: float) -> Iterable[PastSession]:
        """Yield the sessions that this user's agent has kept, those without a message left out.

        A file that was last written before since_ms, in ms since the epoch, need not be read.
        """
        return ()

    def watch(self) -> Watch:
        """Return what follows a turn that is about to start."""
        return Watch()

    def dialogue(self, cwd: str) -> Dialogue | None:
        """Return the dialogue of an agent that keeps one process for all turns, else None."""
        return None

    def check_trials(self, specs: Sequence[TrialSpec]) -> None:
        """Raise InputError for trials that cannot work; called before anything runs."""

    def forgets(self, session_id: str | None) -> bool:
        """Whether a turn after the first would know nothing of the earlier ones.

        session_id is that of the session so far, if there is one.
        """
        return False


class ConfinedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program for Machine.run_confined."""

    argv: Sequence[str]
    around: Surroundings
    """It names the sandbox or the container; the program works in its cwd."""
    mounts: Mapping[str, str] = {}
    """As in World."""
    env: Mapping[str, str] = {}
    timeout_s: float = 60.0
    is_beside_agent: bool = False
    """Run it where the agent of the trial worked: in the container that World.container keeps. It
    has the HOME of the image, and what mounts names is copied there."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image for Machine.build_image, and then what is known of it."""

    name: str = ""
    """Of an image that is used if it is here, and fetched if there is nothing to build."""
    folder: str = ""
    """What it is built from, with a Dockerfile in it."""
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = {}
    """Build arguments."""
    digest: str = ""
    """Of all that it is built from: an image with the same one is not built again."""
    timeout_s: float = 600.0
    workdir: str = ""
    user: str = ""


class KeptContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that is there until the world of a trial is closed. Its files can be changed."""

    image: str
    workdir: str
    """Where the agent is started."""
    command: Sequence[str] = ()
    """What the container runs as long as it is there; by default nothing."""
    env: Mapping[str, str] = {}
    """Variables of everything that runs in it."""


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

    def output_end(self) -> str:
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

    def build_image(self, image: Image) -> Image:
        """Return an image of docker or podman by its name; build it unless it is there.

        Raises PluginError when that fails, also at once for the next one who asks.
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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent or a model answered to a question, and what that cost."""

    text: str
    usage: Usage | None = None
    model: str = ""


class Host(Machine, Protocol):
    """What graders may ask for in addition: an agent's answer."""

    def ask(
        self,
        agent: PluginRef,
        text: str,
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        env: Sequence[str] = (),
    ) -> str:
        """Put a question to an agent that has a HOME of its own and, of our variables, only those
        that its adapter names and env; return its answer.

        It runs in an empty folder and without tools unless cwd is given, in the sandbox of the run
        if that has one. Raises PluginError when the agent fails.
        """
        ...

    def answer(
        self,
        agent: PluginRef,
        text: str,
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        env: Sequence[str] = (),
    ) -> Answer:
        """Do as ask does, and also return what the answer cost: for Grade.usage."""
        ...


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a grader gets to see of one trial. None is unknown."""

    input: str | list[str]
    output: str
    hint: str | None = None
    trajectory: list[Any] = []
    """Steps as in the row: plain dicts."""
    metadata: dict[str, Any] = {}
    """That of the prompt; `grade`, which has only the row, gives the row's."""
    cwd: str | None = None
    """The workspace, as the agent left it."""
    reference: str | None = None
    row: dict[str, Any] = {}
    """The whole row as it is on disk."""
    env: dict[str, str] = {}
    """Variables for programs that the grader starts: GIT_DIR and others, with which git compares
    the workspace with what it was before the agent started; see Grader.wants_repository."""

    @property
    def evidence(self) -> dict[str, Any]:
        """What the trial's world saw: World.evidence, which is metadata.evidence in the row."""
        metadata = self.row.get("metadata") or self.metadata
        found: dict[str, Any] = metadata.get("evidence") or {}
        return found


class Grader:
    """Judges one trial. Options reach it as keyword arguments.

    grade raises only when the grader itself is broken or cannot tell: the trial then has no verdict
    of it, and is not counted as failed.
    """

    name: str
    file_options: Sequence[str] = ()
    """Options that may be files: in a prompt's row they are found from the folder of the prompt
    file, and for `grade` on other machines they travel along."""
    only_computes: bool = False
    """It runs no code of a user's, starts no program, asks nobody, and ends when a signal's handler
    raises in it: then `grade` uses all cores by forking this process."""

    @_default
    def folder(self) -> str | None:
        """From where it finds files; an option of this name is the folder of the prompt file."""
        return None

    @_default
    def version(self) -> str:
        """Grades of one version are comparable: it changes whenever a verdict could be another.

        Options that decide a verdict belong to it.
        """
        raise NotImplementedError

    @_default
    def sees(self) -> frozenset[str] | None:
        """Which attributes of Trial it reads; others that are long may be empty. None is all."""
        return None

    @_default
    def wants_snapshot(self) -> bool:
        """Whether the row must say in `changes` what the agent changed in its folder."""
        return False

    @_default
    def wants_repository(self) -> bool:
        """Whether Trial.env must lead git to what the workspace was before the agent started."""
        return False

    @_default
    def files(self) -> Sequence[Path | str]:
        """Paths that `grade` on another machine needs there too."""
        return ()

    @_default
    def asks(self) -> PluginRef | None:
        """The agent that it puts questions to by Host.ask."""
        return None

    @_default
    def child_function(self) -> str | None:
        """The module:name that it gives to Machine.serve_function, if it does.

        It is forked from a process without threads, which must be started early.
        """
        return None

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Return a verdict."""
        raise NotImplementedError

    def grade_many(self, trials: Iterable[Trial], host: Host) -> Iterator[Grade | Exception]:
        """Yield for each trial, in order, what grade would return or raise.

        Write it where many trials are judged faster together. More trials may be taken than were
        answered.
        """
        for trial in trials:
            try:
                answer: Grade | Exception = self.grade(trial, host)
            except (Interrupted, OutOfResources):
                raise
            except Exception as error:  # noqa: BLE001 - a user's grader may raise anything
                answer = error
            yield answer

    def freeze(self, host: Host) -> None:
        """Read the files it uses; called before the first agent starts, which may change them."""

    def changes(self, trial: Trial) -> list[str]:
        """Return sentences for the `warnings` of a trial: which of its files changed since."""
        return []

    def load(self, host: Host) -> None:
        """Raise InputError for what every trial would fail of; called before `grade` begins."""


class Executor:
    """Runs a function over items, in threads or elsewhere. Knows nothing of trials.

    Options reach it as keyword arguments, with `workers`, how many items may run at once.
    """

    __slots__ = ()

    def map[T, R](
        self, fn: Callable[[T], R], items: Iterable[T], lost: Callable[[T, str], R]
    ) -> Iterator[R]:
        """Yield results as they finish; lost(item, why) is the result of a worker that died.

        Take an item only when a worker is free for it. An AssayError that fn raises ends the run
        and comes out here.
        """
        raise NotImplementedError

    def connect(self) -> Any:
        """Return the cluster that does the work of trials, as RayExecutor does; None is none."""
        return None


class World:
    """What surrounds an agent during a trial: a game, a repository; as it is here, nothing."""

    @_default
    def env(self) -> Mapping[str, str]:
        """Variables the agent gets."""
        return {}

    @_default
    def mcp_servers(self) -> Mapping[str, dict[str, Any]]:
        """Servers the agent is offered; see Ask."""
        return {}

    @_default
    def visible(self) -> Sequence[str]:
        """Files and folders that a sandboxed agent sees, read-only."""
        return ()

    @_default
    def mounts(self) -> Mapping[str, str]:
        """Places in the sandbox or container, and the folders of ours that the agent finds there.

        It may write to them.
        """
        return {}

    @_default
    def container(self) -> KeptContainer | None:
        """Where the agent works in place of a container of its own, with `--container task`."""
        return None

    @_default
    def hidden(self) -> Sequence[str]:
        """Folders that a sandbox shows in no case."""
        return ()

    @_default
    def hidden_env(self) -> Sequence[str]:
        """Names of variables that the agent does not inherit from us."""
        return ()

    @_default
    def repetitive(self) -> bool:
        """Whether the task needs the same call many times; see Ask."""
        return False

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        """What the world saw, for graders: Trial.evidence. last is how the agent's last turn ended.

        Raises AssayError when the world broke: then the trial measured nothing. A field `failure`,
        {"cause", "message"}, is the trial's failure, unless the agent's own is known; one that
        does not measure the agent also comes before one that does.
        """
        return {}


type PromptRow = tuple[Prompt, dict[str, Any]]
"""A prompt, and the unknown fields of its row, which are written to the result as they are."""


class Benchmark:
    """A named source of prompts, their world and their graders.

    Options reach it as keyword arguments: those of --benchmark NAME:KEY=VALUE.
    """

    __slots__ = ()

    grades_failed_trials: bool = False
    """Its graders also judge trials in which the agent crashed or ran out of time, by the world's
    evidence. Otherwise such a trial counts against the agent and no grader is asked."""

    @_default
    def needs_workspace(self) -> bool:
        """Whether every trial gets a folder of its own, even if the user asks for none.

        By default it does if the benchmark has worlds. False is for worlds that leave the
        workspace alone: trials may then share the user's folder, as those of plain prompts do.
        """
        return getattr(self.world, "__func__", None) is not Benchmark.world

    has_images: bool = False
    """Its worlds have containers of their own for agents, unless the user asks for a sandbox or
    another image."""

    @_default
    def files(self) -> Sequence[Path | str]:
        """Paths below an option called `path` that another machine needs to run its trials."""
        return ()

    def prompts(self) -> Iterable[Prompt | PromptRow]:
        """Return the prompts, always the same for the same options: a run may be resumed.

        Each is a Prompt, or a pair of it and more fields for the rows of its trials.
        """
        raise NotImplementedError

    def world(
        self, spec: TrialSpec, workspace: Path, host: Machine
    ) -> AbstractContextManager[World]:
        """Open the world of one trial and close it after; nothing by default.

        spec is the trial, spec.prompt its prompt; workspace is the folder the agent will work in.
        """
        return nullcontext(World())

    def graders(self) -> Sequence[PluginRef]:
        """Return the graders this benchmark is scored with; the user may name more."""
        return ()

    def replay(
        self, logs: Sequence[tuple[Path, dict[str, Any]]], host: Machine
    ) -> Sequence[tuple[bool | None, str]] | None:
        """Play the logs of trials again, each given with the evidence of its trial; None if there
        is nothing that could be played.

        Return of each whether log and evidence are what comes of it, None if that cannot be found
        out here, and what differs or is missing. `assay evidence verify` asks it.
        """
        return None

    def check_output(self, output: Path) -> None:
        """Raise an InputError if the rows of an output are not those that were recorded.

        It is asked before scores are shown, if seal.json beside the output names the benchmark, or
        the evidence of the first row does.
        """

    def fit_trials(self, specs: Sequence[TrialSpec]) -> Sequence[TrialSpec]:
        """Return the trials, with limits that their tasks ask for; called before anything runs.

        Raises CannotRunError for trials that cannot be run here.
        """
        return specs

    def prepare_process(self) -> None:
        """Called in the process that runs a single trial on another machine, before it does."""
