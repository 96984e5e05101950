"""Trials as they stand in results.jsonl and trials.jsonl: what was asked, done and found."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType


class Step(msgspec.Struct, kw_only=True, tag_field="type", rename="camel", frozen=True):
    """Base of all steps. Optional fields are absent where the agent gave nothing."""


class Thought(Step, tag="thought", kw_only=True, frozen=True):
    """What the agent told itself."""

    content: str = ""
    timestamp: float = 0
    """Milliseconds from the start of the trial to the arrival of the line."""
    step_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    """Which turn of a conversation, from 1; absent for a single turn."""
    parent: str | UnsetType = UNSET
    """Call id of the tool call whose sub-agent did this."""


class Message(Step, tag="message", kw_only=True, frozen=True):
    """What the agent said."""

    content: str = ""
    timestamp: float = 0
    step_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    parent: str | UnsetType = UNSET


class ToolCall(Step, tag="tool_call", kw_only=True, frozen=True):
    """The agent used a tool: the call and, once it is known, how it ended."""

    name: str = "unknown"
    status: str = "pending"
    """pending, in_progress, completed, failed, or the agent's own word."""
    timestamp: float = 0
    input: Any | UnsetType = UNSET
    output: Any | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    """Milliseconds between the call and its end."""
    call_id: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    parent: str | UnsetType = UNSET


class Plan(Step, tag="plan", kw_only=True, frozen=True):
    """The agent's list of what it means to do."""

    entries: list[Any] = msgspec.field(default_factory=list)
    timestamp: float = 0
    content: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    parent: str | UnsetType = UNSET


type AnyStep = Thought | Message | ToolCall | Plan


class Cause(StrEnum):
    """Who or what ended the trial; it decides whether the trial measures the agent."""

    AGENT_TIMEOUT = "agent_timeout"
    AGENT_CRASH = "agent_crash"
    AGENT_REFUSED = "agent_refused"
    AGENT_LIMIT = "agent_limit"
    PROVIDER = "provider"
    AUTH = "auth"
    SPAWN = "spawn"
    WORLD = "world"
    USER = "user"
    HARNESS = "harness"
    WORKER_LOST = "worker_lost"
    TAPE = "tape"

    @property
    def measures_agent(self) -> bool:
        """Whether the trial counts against the agent; if not, it is no measurement at all."""
        return self.value.startswith("agent_")

    @property
    def words(self) -> str:
        """The cause as people say it; files keep the name."""
        return _CAUSE_WORDS[self.value]


_CAUSE_WORDS = {
    "agent_timeout": "ran out of time",
    "agent_crash": "agent crashed",
    "agent_refused": "agent refused",
    "agent_limit": "agent reached a limit",
    "provider": "provider error",
    "auth": "not logged in",
    "spawn": "agent did not start",
    "world": "environment failed",
    "user": "simulated user failed",
    "harness": "harness error",
    "worker_lost": "worker lost",
    "tape": "not on the tape",
}


AGENT_CAUSES = frozenset(cause.value for cause in Cause if cause.measures_agent)


def cause_words(cause: str) -> str:
    """The same of a cause in a row that any program may have written."""
    plain = cause.removesuffix(SEEN).removesuffix(CLAIMED)
    return _CAUSE_WORDS.get(plain, plain) + cause[len(plain) :]


SEEN = " (seen by the gateway)"
"""Follows a cause, where causes are counted, that is not only the agent's word."""
CLAIMED = " (by the agent's word)"
"""Follows one that usually others than the agent report."""


UNVERIFIED_CAUSES = frozenset({Cause.PROVIDER.value, Cause.AUTH.value})
"""What an agent may say of its provider, unless somebody else saw it too."""
AGENT_ONLY = "the agent only"
GATEWAY = "the gateway"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cause, in words for a person."""

    cause: Cause
    message: str
    answered: bool = False
    """The agent ended by itself with an answer (only its ending was unclean): still graded."""
    raw: str = ""
    """Where the raw streams of this attempt are, if it is one of the earlier ones in `retried`."""
    retry_after_ms: float | None = msgspec.field(name="retryAfterMs", default=None)
    """The provider refused because of too many requests: how long to wait, in ms; 0 if it did not
    say."""
    reported_by: str = msgspec.field(name="reportedBy", default="")
    """Of what the agent reports and what is not its own fault: the agent only, or the gateway that
    saw it too."""

    @property
    def measures_agent(self) -> bool:
        """Whether the trial counts against the agent; if not, it is no measurement at all."""
        return self.cause.measures_agent

    @property
    def may_pass(self) -> bool:
        """Whether another attempt may go better: it was not the agent, and no tape decides it."""
        return not self.measures_agent and self.cause is not Cause.TAPE

    @property
    def is_unverified(self) -> bool:
        """Whether it is an excuse for which there is only the agent's word."""
        if self.reported_by:
            return self.reported_by == AGENT_ONLY
        return self.cause.value in UNVERIFIED_CAUSES

    @property
    def is_gradable(self) -> bool:
        """Whether the graders are asked all the same: the agent is to blame, and has answered."""
        return self.answered and self.measures_agent


REPLAYED = "replayed"
"""The source of a cost that was paid when the trial was run, and not again."""
RECORDED = "recorded"
"""The same, where a tape answered the agent."""


class Usage(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Tokens and money of a whole trial. Absent means the agent did not say."""

    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    cost_usd: float | UnsetType = UNSET
    cost_source: str | UnsetType = UNSET
    """reported (by the agent), estimated (from a dated price table), or replayed: paid when the
    trial was recorded, and not again."""
    estimated_usd: float | UnsetType = UNSET
    """What the tokens cost by the price table, where that is less than half of the cost that the
    agent reported, or more than twice as much. An adapter sets it wherever it is known."""

    @property
    def spent_usd(self) -> float:
        """What this trial itself cost, as far as is known."""
        return 0.0 if self.cost_source in (REPLAYED, RECORDED) else self.cost_usd or 0.0

    def paid_before(self, source: str = REPLAYED) -> "Usage":
        """Return it with a cost that is not paid again."""
        if self.cost_usd is UNSET:
            return self
        return msgspec.structs.replace(self, cost_source=source)

    def plus(self, other: "Usage") -> "Usage":
        """Add two usages; what neither knows stays unknown."""
        added: dict[str, Any] = {}
        for name in USAGE_NUMBERS:
            both = (getattr(self, name), getattr(other, name))
            known = [value for value in both if isinstance(value, int | float)]
            added[name] = sum(known) if known else UNSET
        if any(one.cost_usd is not UNSET and one.estimated_usd is UNSET for one in (self, other)):
            # An estimate of a part says nothing about the whole.
            partial = added["estimated_usd"] is not UNSET
            added["estimated_usd"] = -IMPOSSIBLE_USD if partial else UNSET
        source = self.cost_source or other.cost_source or UNSET
        return Usage(**added, cost_source=source)


class Grade(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A verdict. No grade means not measured; it is never read as zero."""

    pass_: bool = msgspec.field(name="pass")
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasoning: str | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    """Of the grader: its code and its options."""
    usage: Usage | UnsetType = UNSET
    """What the grader itself spent: of a judge, its tokens and their cost."""


def grader_version(score: Grade | None, grades: Mapping[str, Grade]) -> str | None:
    """Return the grader's version; of several graders NAME:VERSION of each. None is unknown."""
    if score is not None and score.version:
        return score.version
    known = [f"{name}:{grade.version}" for name, grade in sorted(grades.items()) if grade.version]
    return "+".join(known) or None


class EarlierGrade(Grade, kw_only=True, frozen=True, rename="camel"):
    """The verdict of an earlier grading, by another grader or another version of it."""

    grader: str


class Timing(msgspec.Struct, kw_only=True, rename="camel"):
    """Clock readings in ms; start and end since the epoch, the others as lengths."""

    start: float
    end: float
    first_response: float | UnsetType = UNSET
    """Time to the first step."""
    session_creation: float | UnsetType = UNSET
    """Time until the agent's first process had started."""
    total: float = 0
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET


MOST_USD = 1000.0
"""What one call of an agent may cost; more is a mistake or a lie."""


IMPOSSIBLE_USD = 1e12
"""Stands for a cost that cannot be true: no sum with others makes it possible again."""


def possible_usd(cost: float) -> float:
    """Return what a call is said to cost, or IMPOSSIBLE_USD."""
    return float(cost) if 0 <= cost <= MOST_USD else IMPOSSIBLE_USD


USAGE_NUMBERS = tuple(name for name in Usage.__struct_fields__ if name != "cost_source")


class SimulatedUser(msgspec.Struct, kw_only=True, rename="camel", frozen=True, omit_defaults=True):
    """What a simulated user said in a trial, apart from what the agent did and cost."""

    said: list[str] = []
    """Its messages to the agent after the turns of the prompt, in order."""
    ended: str = ""
    """Why it said no more: stop (it was content), no reply (of a script fits), maxTurns, agent (the
    agent's turn did not end well) or failed."""
    model: str = ""
    """The model that spoke for it; empty for a script."""
    usage: Usage | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    """How long its model took for all of it, in ms: a part of the trial's duration."""


class AgentInfo(msgspec.Struct, kw_only=True, frozen=True):
    """Which agent this was, as exactly as we know."""

    adapter: str
    version: str | UnsetType = UNSET
    """Of the agent where it reports one, else the content hash of its adapter."""
    model: str | UnsetType = UNSET


class Difference(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The result of a tool that is not the one on the tape."""

    call: int
    """Which result of its request it is, from 1."""
    call_id: str = ""
    """The call, as the trajectory names it."""
    recorded: str
    now: str


class Replay(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What a trial was answered from a tape: it says nothing new about the agent."""

    tape: str
    """Name of the file."""
    hits: int = 0
    """How many requests were answered from it."""
    differs: list[Difference] = []


class WireDifference(msgspec.Struct, kw_only=True, frozen=True):
    """Something that an agent says of its provider, and that the proxy saw otherwise."""

    what: str
    """inputTokens, outputTokens or model."""
    agent: int | str
    seen: int | str


class Wire(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What the proxy between an agent and its models saw."""

    requests: int = 0
    answers: dict[str, int] = {}
    """How many had which status."""
    models: list[str] = []
    """Those that were asked for."""
    input_tokens: int = 0
    """By the provider's count; what was cached is included."""
    output_tokens: int = 0
    """By the provider's count; thoughts are included."""
    tape: str = ""
    """Where the requests are: relative to the folder of this file."""
    lane: int = 0
    """The number of this trial's lane on it."""
    differs: list[WireDifference] = []
    """Where the agent's own account is another one."""


class Events(msgspec.Struct, kw_only=True, rename="camel"):
    """How much of the agent's stream the adapter understood; the rest is kept in raw.

    An adapter counts each line of a turn in total and in one of mapped, unknown, unparsed and
    oversized, and sets terminal. The counts of all turns are added up.
    """

    total: int = 0
    """Lines of the agent; blank ones need not be counted."""
    mapped: int = 0
    """Lines that the adapter has a rule for, also those that become no step."""
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    """Lines that are JSON but fit no mapping, counted by their type."""
    unparsed: int = 0
    """Lines that are not JSON."""
    oversized: int = 0
    """Lines too long to read, or left out; they stand whole in the raw stream."""
    left_out: int | UnsetType = UNSET
    """How many of these came after more than can be held of a trial."""
    terminal: bool = False
    """Whether the agent's terminal event was seen in the last turn."""


class Identity(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What makes trials comparable: who was measured, what it was offered, and by whom judged.

    Contents stand as short hashes. Two trials of a prompt belong together if all of it is equal.
    """

    covers: int = 0
    """How much is recorded: 0 in files of earlier versions of Assay, which know nothing of loads,
    packages, mcp_files, variables and setup."""
    assay: str = ""
    """Version of Assay that recorded it; it decides no answer."""
    adapter: str
    program: str = ""
    """Version of the agent's program as it was found before the run."""
    loads: dict[str, str] = {}
    """Files that the program loads, and their hashes: scripts, modules, settings it is given."""
    packages: dict[str, str] = {}
    """Versions of the packages that it imports, with a hash of what was installed."""
    model: str = ""
    """The model that was asked for; empty is the agent's own choice."""
    agent: str = ""
    """Hash of the adapter's other options: schema, arguments, limit on turns."""
    mcp: str = ""
    """Hash of the file given with --mcp."""
    mcp_files: dict[str, str] = {}
    """Files that MCP servers and hooks load, and their hashes."""
    template: str = ""
    """Hash of the workspace template: names, contents and modes."""
    offered: dict[str, str] = {}
    """Instruction files, skills and MCP files that the agent could see, and their hashes."""
    tape: str = ""
    """Where models' answers come from, if not from a provider alone: the hash of a tape, and what
    is made to go wrong."""
    isolation: str = "none"
    """none, isolate, sandbox, sandbox no-network, or container IMAGE."""
    env: tuple[str, ...] = ()
    """Names of the variables that were let through an isolation."""
    variables: dict[str, str] = {}
    """One-way hashes of the variables that choose models, endpoints and behaviour."""
    setup: str = ""
    """Hash of the prompt's set-up command, with the scripts that it names."""
    limits: dict[str, float] = {}
    """Time limits in ms; memory in bytes; number of CPUs."""
    graders: dict[str, str] = {}
    """The version of each grader, by its name."""
    not_covered: tuple[str, ...] = ()
    """What may decide an answer and cannot be known."""

    @property
    def is_old(self) -> bool:
        """Whether an earlier version of Assay wrote it, which looked at less."""
        return self.covers < COVERS


COVERS = 1
"""What identities record now."""
_NEW_FIELDS = frozenset({"loads", "packages", "mcp_files", "variables", "setup", "not_covered"})
NOT_RECORDED = (
    "an earlier version of Assay made one of them and did not record what the agent loads, nor the "
    "variables that it reads: whether these are the same is not known"
)


def identity_differences(old: Identity, new: Identity) -> list[str]:
    """Say in words where two identities differ, as far as both record it."""
    found: list[str] = []
    skipped = {"covers", "assay", "not_covered"}
    if old.is_old or new.is_old:
        skipped |= _NEW_FIELDS
    if old.covers != new.covers or old.loads != new.loads:
        # The version of a script is a hash of it, and says no more than its files do.
        skipped |= {"program"} if _is_hash(old.program) and _is_hash(new.program) else set()
    for name in Identity.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before == after or name in skipped:
            continue
        if isinstance(before, dict):
            found += _changed_entries(IDENTITY_WORDS[name], before, after)
        else:
            found.append(f"{IDENTITY_WORDS[name]} ({_shown(before)} before, {_shown(after)} now)")
    return found


IDENTITY_WORDS = {
    "adapter": "the agent",
    "program": "the version of the agent's program",
    "loads": "what the agent loads:",
    "packages": "the package",
    "model": "the model",
    "agent": "the schema or the arguments of the agent",
    "mcp": "the MCP file",
    "mcp_files": "what MCP servers load:",
    "template": "the workspace template",
    "offered": "what the agent can read:",
    "tape": "the tape that answers",
    "isolation": "the isolation",
    "env": "the variables let through with --env",
    "variables": "the value of the variable",
    "setup": "the set-up of the prompt",
    "limits": "the limit",
    "graders": "the grader",
}


def _changed_entries(what: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield f"{what} {key} ({_shown(old.get(key))} before, {_shown(new.get(key))} now)"


def _is_hash(text: str) -> bool:
    return len(text) >= _SHORTEST_HASH and "." not in text


_SHORTEST_HASH = 12


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value else "none"


class WorkspaceChanges(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What the agent changed in its working folder, found by a snapshot taken before it started.

    Paths are from the root of the repository that the folder is in, or else from the folder.
    """

    created: list[str] = []
    modified: list[str] = []
    deleted: list[str] = []
    n_files: int = 0
    """How many there are; the lists above may be cut."""
    insertions: int = 0
    """Lines, also those of new files; binary files have none."""
    deletions: int = 0
    tree: str = ""
    """Hash of the folder as the agent left it."""
