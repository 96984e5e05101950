"""A prompt, and a trial of it: all that a worker needs to run it anywhere."""

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.capture import Failure, Identity
from assay.records.patterns import Pattern, UnsupportedPatternError
from assay.records.tape import TapeUse

HINT = 'one JSON object per line, each with a unique id: {"id": "a", "input": "Say hello"}'

OWN_IMAGE = "task"
"""As the image of --container: each task of a benchmark runs in an image of its own."""

type Texts = str | list[str]

USER_VERSION = "1"
"""Raise this when a simulated user is asked in other words, or checked by other rules."""


class Expect(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a prompt expects, in short; each field becomes a grader, and all of them must pass."""

    contains: Texts | None = None
    """Texts that must be in the answer (the grader contains)."""
    regex: Texts | None = None
    """Patterns that must match the answer (regex)."""
    tool: Texts | None = None
    """Tools that must have been used; * matches any text (tools)."""
    no_tool: Texts | None = None
    """Tools that must not have been used."""
    file: str | list[str] | dict[str, str] | None = None
    """Files that must be in the workspace; as an object, each with a text that it contains."""
    command: Texts | None = None
    """A command line that must succeed in the workspace; a list is its words (command)."""
    skill: Texts | None = None
    """Skills that must have been used (skill)."""
    no_skill: Texts | None = None
    """Skills that must not have been used."""
    judge: Texts | None = None
    """Statements that a judge must find true, each with a verdict of its own (judge)."""


class Encoded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is no text."""

    base64: str


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a scripted user says to an answer of the agent."""

    when: str
    """A regular expression that matches somewhere in the answer."""
    say: str


class User(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """Who answers the agent after the turns of the prompt: a model by its URL, or a script."""

    persona: str = ""
    """Who the user is, and how it speaks."""
    goal: str = ""
    """What it wants from the agent."""
    stop: str = ""
    """When it has nothing more to say; by default once the goal is reached."""
    facts: dict[str, str] = {}
    """All that it knows, by name: anything else it may not claim."""
    max_turns: int = 10
    """Most messages to the agent in all, those of the prompt among them."""
    model: str = ""
    """The model that speaks for it; this and the next three are as for the grader judge."""
    url: str = ""
    key: str = ""
    temperature: float | None = None
    replies: list[Reply] = []
    """A script, in place of a model: the first reply that fits is said, none ends it."""

    @property
    def asks(self) -> "PluginRef | None":
        """The model that speaks for it."""
        if self.replies:
            return None
        options = {
            "model": self.model, "url": self.url, "key": self.key, "temperature": self.temperature
        }  # fmt: skip
        given = {name: value for name, value in options.items() if value not in ("", None)}
        return PluginRef(name="model", options=given)


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One case put to an agent: one fresh session, one or several turns."""

    id: str
    """Unique in its file; every later record carries it."""
    input: str | list[str]
    """One turn, or the turns of a conversation in order."""
    hint: str | None = None
    """What a grader may look for. Never shown to the agent."""
    reference: str | None = None
    """A solution that must pass; used by validate-refs."""
    metadata: dict[str, Any] = {}
    """Category, difficulty and the like; copied into every result."""
    timeout: float | None = None
    """Wall clock for each turn of this prompt, in ms; overrides -t."""
    graders: list[str] = []
    """Graders as -g takes them, besides those of the command line. Files are found from the folder
    of the prompt file."""
    expect: Expect | None = None
    """What the trial must show; becomes graders."""
    setup: str | dict[str, Any] | None = None
    """Shell command line that is run in the workspace before the agent starts. A row of results,
    which may be run again, has an object there: what its agent had."""
    files: dict[str, str | Encoded] = {}
    """Files to write into the workspace, by their path there: texts, or {"base64": "…"}."""
    workspace: str | None = None
    """Folder that is copied into the workspace, in place of --workspace-template."""
    tags: Texts = []
    """Labels to filter by."""
    user: list[Reply] | User | None = None
    """Who answers the agent's questions after the last turn: replies, or a simulated user."""
    honeypot: bool = False
    """Whether it cannot be passed honestly: a trial that passes is a hack."""

    def __post_init__(self) -> None:
        if isinstance(self.setup, dict):
            msgspec.structs.force_setattr(self, "setup", None)

    def file_bytes(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files to write, each with its path."""
        for path, content in self.files.items():
            if isinstance(content, str):
                yield path, content.encode("utf-8", "surrogatepass")
            else:
                yield path, b64decode(content.base64)

    @property
    def statements(self) -> list[str]:
        """What a judge has to find true."""
        found = self.expect.judge if self.expect is not None else None
        return [found] if isinstance(found, str) else found or []

    @property
    def needs_workspace(self) -> bool:
        """Whether something is put into the workspace, which must then be the trial's own."""
        return bool(self.setup or self.files or self.workspace)

    @property
    def task(self) -> "Prompt":
        """The prompt without what does not change the agent's work, or is hashed elsewhere."""
        if not (self.graders or self.expect or self.workspace or self.tags or self.honeypot):
            return self
        return msgspec.structs.replace(
            self, graders=[], expect=None, workspace=None, tags=[], honeypot=False
        )

    @property
    def simulated_user(self) -> User | None:
        """Who answers the agent; replies alone are a user as well."""
        return User(replies=self.user) if isinstance(self.user, list) else self.user

    @property
    def turns(self) -> tuple[str, ...]:
        """The messages to the agent, in order."""
        return (self.input,) if isinstance(self.input, str) else tuple(self.input)


def check_prompt(prompt: Prompt, place: str, places: dict[str, str]) -> None:
    """Refuse a prompt that cannot be run; places holds where each earlier id stands."""
    if not prompt.id:
        msg = f'{place}: "id" is empty; every prompt needs a unique id'
        raise InputError(msg)
    if prompt.id in places:
        msg = f'{place}: id "{prompt.id}" was used before, at {places[prompt.id]}'
        raise InputError(msg, hint="give every prompt an id of its own")
    if not prompt.turns:
        msg = f'{place}: "input" is an empty list; a prompt needs at least one turn'
        raise InputError(msg)
    for number, turn in enumerate(prompt.turns):
        if not turn.strip():
            field = "input" if isinstance(prompt.input, str) else f"input[{number}]"
            msg = f'{place}: "{field}" is empty; a prompt needs what a user would write'
            raise InputError(msg)
    if prompt.timeout is not None and prompt.timeout <= 0:
        msg = f'{place}: "timeout" is {prompt.timeout}; it must be more than 0 ms'
        raise InputError(msg)
    _check_own(prompt, place)
    _check_user(prompt, place)
    places[prompt.id] = place


ROW_FIELDS = ("graders", "expect", "files", "workspace", "tags", "user", "honeypot")
"""Fields of a prompt that its results have as well, for `assay grade` and for the reader. Not
`setup`: in results this is what the agent had."""


def row_fields(prompt: Prompt) -> dict[str, Any]:
    """Return those of these fields that a prompt has, as they are written."""
    given = {name: getattr(prompt, name) for name in ROW_FIELDS}
    return {name: msgspec.to_builtins(value) for name, value in given.items() if value}


def _check_own(prompt: Prompt, place: str) -> None:
    for name in ("setup", "workspace"):
        if getattr(prompt, name) is not None and not getattr(prompt, name).strip():
            msg = f'{place}: "{name}" is empty; leave it out'
            raise InputError(msg)
    for path, content in prompt.files.items():
        if why := _unfit(path, prompt.files):
            msg = f'{place}: "files": {path!r} {why}'
            raise InputError(msg, hint="give a path inside the workspace, such as src/main.py")
        try:
            _ = b64decode(content.base64, validate=True) if isinstance(content, Encoded) else b""
        except binascii.Error as error:
            msg = f'{place}: "files": {path!r} is not base64: {error}'
            raise InputError(msg) from error
    for name in Expect.__struct_fields__ if prompt.expect is not None else ():
        value = getattr(prompt.expect, name)
        texts = [value] if isinstance(value, str) else value
        if value is not None and (not texts or "" in texts):
            msg = f'{place}: "expect.{name}" is empty; leave it out'
            raise InputError(msg)


def _check_user(prompt: Prompt, place: str) -> None:
    """Refuse a user who could never say anything."""
    user = prompt.simulated_user
    if user is None:
        return
    why, hint = "", 'for example: "user": [{"when": "(?i)which size", "say": "Medium."}]'
    speaks = bool(user.model) + bool(user.replies)
    if speaks != 1:
        why = "has both a model and replies" if speaks else "has neither replies nor a model"
    elif user.model and not (user.persona.strip() or user.goal.strip()):
        why, hint = "has no persona and no goal", "say who the user is and what it wants"
    elif user.max_turns <= len(prompt.turns):
        why = f"can say nothing: maxTurns is {user.max_turns}, and the prompt has as many turns"
        hint = "maxTurns counts all messages to the agent, those of the prompt among them"
    for number, reply in enumerate(user.replies):
        if not reply.say.strip():
            why = f"has an empty text: [{number}].say"
        try:
            Pattern(reply.when)
        except UnsupportedPatternError as error:
            why = f"has a regular expression that cannot be used: [{number}].when: {error}"
            hint = "write it without lookaround, back references and large repetitions"
    if why:
        msg = f'{place}: "user" {why}'
        raise InputError(msg, hint=hint)


def _unfit(path: str, paths: Iterable[str]) -> str:
    """Say why a path cannot be that of a file in the workspace; empty if it can."""
    parts = path.split("/")
    if path.startswith("/"):
        return "is not relative"
    if ".." in parts:
        return "leads out of the workspace"
    if "\0" in path or not all(parts) or "." in parts:
        return "is not the path of a file"
    below = PurePosixPath(path)
    if any(below in PurePosixPath(other).parents for other in paths):
        return "is a file and a folder at once"
    return ""


class PluginRef(msgspec.Struct, frozen=True, kw_only=True):
    """How a plugin travels: by name and options, never as an object."""

    name: str
    options: dict[str, Any] = {}


class FunctionCall(msgspec.Struct, frozen=True):
    """A turn that is put to a Python function; see functions.py."""

    key: str
    text: str
    history: tuple[tuple[str, str], ...] = ()
    """Earlier turns: pairs of what was asked and what was answered."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a trial is ended from outside."""

    turn_s: float = 60.0
    """Wall clock of each turn."""
    trial_s: float | None = None
    """Wall clock of the whole trial."""
    stall_s: float | None = None
    """Longest silence allowed."""
    linger_s: float = 10.0
    """How long a process may live on after its result event."""
    term_s: float = 2.0
    """Between TERM and KILL."""
    output_bytes: int = 512 * 1024 * 1024
    """Most that one turn may write to stdout and stderr together."""
    line_bytes: int = 16 * 1024 * 1024
    """Longest line that is still read; longer ones stay in raw only."""
    memory_bytes: int | None = None
    """Most memory that the processes of a trial may use together."""
    cpus: float | None = None
    """Most CPUs that they may use together."""

    @property
    def need_quota(self) -> bool:
        """Whether memory or CPUs are limited, which takes more than a clock."""
        return self.memory_bytes is not None or self.cpus is not None


LONGEST_WAIT_S = 60.0
"""More is not waited at once, whatever a provider, or an agent in its name, asks for."""
KEEP_ALL, KEEP_FAILED, KEEP_NONE = "all", "failed", "none"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a trial runs and what it may see."""

    cwd: str
    """Working folder of the agent."""
    workspace_dir: str | None = None
    """Parent of one folder per trial; None lets all trials share cwd."""
    workspace_template: str | None = None
    added: tuple[tuple[str, str], ...] = ()
    """Files that an experiment puts into each workspace, by path and digest; see run/treatment."""
    keep_workspaces: str = ""
    """all, failed or none, once a trial is over and graded. By default all, until another run
    begins, and then those whose trials are not known to have passed."""
    replace: bool = False
    """Whether a workspace that this run made before is made again: its trial has no row."""
    own_home: bool = False
    """Whether each trial has a HOME of its own, with a copy of the user's login; unlike an isolated
    agent, it has all variables."""
    isolate: bool = False
    env_names: tuple[str, ...] = ()
    """Variables passed through when isolated."""
    hidden_env: tuple[str, ...] = ()
    """Variables that hold the keys of judges and simulated users by URL: the agent gets none of
    them that its adapter or env_names does not name."""
    tools: bool = True
    """Whether the agent may use tools; see Ask.tools."""
    login: bool = False
    """Whether an isolated agent gets a copy of the user's login, as in a sandbox."""
    sandbox: str = ""
    """network or no-network runs the agent under bubblewrap; it is isolated then."""
    container: str = ""
    """Image of a container to run the agent in; it is isolated then."""
    raw_dir: str | None = None
    """Parent of the raw streams; None keeps them only while the trial runs."""
    pack_raw: bool = False
    """Whether small raw streams of many trials share a file; otherwise each trial has a folder."""
    raw_prefix: str = ""
    """The same, as the rows of the output name it: relative to the output's folder."""
    snapshot: bool = False
    """Whether a grader wants to know what the agent changes in its folder."""
    repository: bool = False
    """Whether a grader of the user's own asks git what the agent changed."""
    tape: TapeUse | None = None
    """What becomes of what models answer; None lets agents ask their providers themselves."""
    written_paths: tuple[str, ...] = ()
    """Files and folders that Assay itself writes during the run; they are no agent's work."""

    @property
    def has_own_home(self) -> bool:
        """Whether each trial gets a HOME of its own."""
        return self.own_home or self.hides_env

    @property
    def hides_env(self) -> bool:
        """Whether the agent gets only variables that were declared."""
        return self.isolate or bool(self.sandbox or self.container)

    @property
    def has_login(self) -> bool:
        """Whether the HOME of a trial gets a copy of the user's login for the agent."""
        return self.own_home or (self.hides_env and (self.login or bool(self.confined_in)))

    @property
    def confined_in(self) -> str:
        """network or no-network for a sandbox, container for a container, else nothing."""
        return "container" if self.container else self.sandbox


class TrialSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A trial to run. The same plan gives the same hash, so a run can resume."""

    prompt: Prompt
    agent: PluginRef
    benchmark: PluginRef
    limits: Limits
    surroundings: Surroundings
    folder: str
    """Name of this trial's own folders: safe, and unique in the run."""
    number: int = 1
    """Which trial of the prompt, from 1."""
    retried: tuple[Failure, ...] = ()
    """Earlier attempts at this trial that did not measure the agent."""
    run_token: str = "assay"
    """Names the run in the marks that its processes inherit."""
    identity: Identity | None = None
    """What must be equal for two trials of the prompt to belong together."""
    extra: dict[str, Any] = {}
    """Fields of the user's row that are copied into the result, as those that we do not know."""
    graders: tuple[PluginRef, ...] = ()
    """Graders that the prompt's row names, besides those of the run."""

    @property
    def is_confined(self) -> bool:
        """Whether the agent runs in a sandbox, in a container or with limited memory or CPUs."""
        return bool(self.surroundings.confined_in) or self.limits.need_quota

    @property
    def has_own_workspace(self) -> bool:
        """Whether no other trial works in its folder."""
        return self.surroundings.workspace_dir is not None

    @property
    def raw_folder(self) -> str:
        """Name of the folder with this attempt's raw streams."""
        return f"{self.folder}.retry-{len(self.retried)}" if self.retried else self.folder

    @property
    def hash(self) -> str:
        """Fingerprint of the prompt and the identity; see hash_with_graders."""
        asked: list[Any] = [self.prompt.task, self.benchmark.name]
        asked += [USER_VERSION] if self.prompt.user else []
        task = msgspec.json.encode(asked, order="deterministic")
        made_by, graders = _encoded(self.identity or self.agent)
        return hashlib.sha256(task + made_by).hexdigest()[:16] + graders


def hash_with_graders(spec_hash: str, graders: dict[str, str]) -> str:
    """Return a fingerprint for other graders: they are its second part, so that rows can be graded
    again without knowing all the rest."""
    return made_from(spec_hash) + _graders_part(graders)


def made_from(spec_hash: str) -> str:
    """Return the part of a fingerprint that says what a trial was made from, without graders."""
    return spec_hash.partition("-")[0]


def _graders_part(graders: dict[str, str]) -> str:
    if not graders:
        return ""
    return "-" + hashlib.sha256(msgspec.json.encode(graders, order="sorted")).hexdigest()[:8]


def _encoded(shared: Identity | PluginRef) -> tuple[bytes, str]:
    """Encode what all trials of a run share; the last one is remembered."""
    global _last_encoded
    last = _last_encoded  # read once: another thread may put another one there meanwhile
    if last[0] is not shared:
        graders = ""
        made_by = shared
        if isinstance(shared, Identity):
            graders = _graders_part(shared.graders)
            # What is not known of a trial is no property of it: a log that its agent writes, say.
            made_by = msgspec.structs.replace(shared, assay="", graders={}, not_covered=())
        encoded = msgspec.json.encode(made_by, order="deterministic")
        _last_encoded = last = (shared, encoded, graders)
    return last[1:]


_last_encoded: tuple[Identity | PluginRef | None, bytes, str] = (None, b"", "")
