"""Trials as they stand in results.jsonl and trials.jsonl: what was asked, done and found."""

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
    HARNESS = "harness"
    WORKER_LOST = "worker_lost"

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
    "harness": "harness error",
    "worker_lost": "worker lost",
}


def cause_words(cause: str) -> str:
    """The same of a cause in a row that any program may have written."""
    return _CAUSE_WORDS.get(cause, cause)


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cause, in words for a person."""

    cause: Cause
    message: str
    answered: bool = False
    """The agent ended by itself with an answer (only its ending was unclean): still graded."""
    raw: str = ""
    """Where the raw streams of this attempt are, if it is one of the earlier ones in `retried`."""
    retry_after_ms: float | None = msgspec.field(name="retryAfterMs", default=None)
    """The provider refused because of too many requests; how long it wants to be left alone, in
    ms, or 0 if it did not say."""


class Grade(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A verdict. No grade means not measured; it is never read as zero."""

    pass_: bool = msgspec.field(name="pass")
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasoning: str | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    """Of the grader: its code and its options."""


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

    @property
    def spent_usd(self) -> float:
        """What this trial itself cost, as far as is known."""
        return 0.0 if self.cost_source == "replayed" else self.cost_usd or 0.0

    def plus(self, other: "Usage") -> "Usage":
        """Add two usages; what neither knows stays unknown."""
        added: dict[str, Any] = {}
        for name in USAGE_NUMBERS:
            known = [v for v in (getattr(self, name), getattr(other, name)) if v is not UNSET]
            added[name] = sum(known) if known else UNSET
        source = other.cost_source if self.cost_source is UNSET else self.cost_source
        return Usage(**added, cost_source=source)


USAGE_NUMBERS = tuple(name for name in Usage.__struct_fields__ if name != "cost_source")


class AgentInfo(msgspec.Struct, kw_only=True, frozen=True):
    """Which agent this was, as exactly as we know."""

    adapter: str
    version: str | UnsetType = UNSET
    """Of the agent where it reports one, else the content hash of its adapter."""
    model: str | UnsetType = UNSET


class Events(msgspec.Struct, kw_only=True, rename="camel"):
    """How much of the agent's stream the adapter understood; the rest is kept in raw."""

    total: int = 0
    mapped: int = 0
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    """Lines that are JSON but fit no mapping, counted by their type."""
    unparsed: int = 0
    """Lines that are not JSON."""
    oversized: int = 0
    """Lines too long to read; they stand whole in the raw stream."""
    terminal: bool = False
    """Whether the agent's terminal event was seen in the last turn."""


class Identity(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What makes trials comparable: who was measured, what it was offered, and by whom judged.

    Contents stand as short hashes. Two trials of a prompt belong together if all of it is equal.
    """

    adapter: str
    program: str = ""
    """Version of the agent's program as it was found before the run."""
    model: str = ""
    """The model that was asked for; empty is the agent's own choice."""
    agent: str = ""
    """Hash of the adapter's other options: schema, arguments, limit on turns."""
    mcp: str = ""
    """Hash of the file given with --mcp."""
    template: str = ""
    """Hash of the workspace template: names, contents and modes."""
    offered: dict[str, str] = {}
    """Instruction files, skills and MCP files that the agent could see, and their hashes."""
    isolation: str = "none"
    """none, isolate, sandbox, sandbox no-network, or container IMAGE."""
    env: tuple[str, ...] = ()
    """Names of the variables that were let through an isolation."""
    limits: dict[str, float] = {}
    """Time limits in ms; memory in bytes; number of CPUs."""
    graders: dict[str, str] = {}
    """The version of each grader, by its name."""


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


class Capture(msgspec.Struct, kw_only=True, rename="camel"):
    """The journal line of one trial; the seed's CaptureResult with our fields behind it."""

    id: str
    input: str | list[str]
    output: str
    hint: str | UnsetType = UNSET
    trajectory: list[AnyStep]
    metadata: dict[str, Any]
    timing: Timing
    tool_errors: bool = False
    errors: list[str] | UnsetType = UNSET
    score: Grade | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    """The grade of each grader, by its name; score is all of them together."""
    earlier_grades: list[EarlierGrade] | UnsetType = UNSET
    """What graders said that do not count any more: the row was graded again. Oldest first."""
    grader_failures: dict[str, str] | UnsetType = UNSET
    """Graders that broke on this trial, and how; the trial is not graded then."""
    usage: Usage | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    agent: AgentInfo | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    events: Events | UnsetType = UNSET
    turn_usage: list[Usage] | UnsetType = UNSET
    setup: dict[str, Any] | UnsetType = UNSET
    """What the agent really had: tools, MCP servers, skills, permission mode."""
    permission_denials: int | UnsetType = UNSET
    provider_retries: int | UnsetType = UNSET
    retried: list[Failure] | UnsetType = UNSET
    """Earlier attempts at this trial that did not measure the agent."""
    stderr: str | UnsetType = UNSET
    """The end of the agent's standard error; all of it is in raw."""
    raw: str | UnsetType = UNSET
    """Where the raw streams are, relative to the folder of this file: SEGMENT@OFFSET, or a folder
    (see `assay raw`)."""
    cwd: str | UnsetType = UNSET
    """The folder that the agent worked in; graders look at it, also later."""
    changes: WorkspaceChanges | UnsetType = UNSET
    """What the agent changed there; known if a grader asked for it (`git`)."""
    spec_hash: str | UnsetType = UNSET
    """Fingerprint of prompt and identity; --resume refuses a file made from others."""
    identity: Identity | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    """What a reader should know before trusting this trial, such as a grader file that changed."""


class Build(msgspec.Struct, kw_only=True, frozen=True):
    """The run that a trial of a pooled baseline comes from."""

    id: str
    """Hash of its trials: the same build is never added twice."""
    label: str
    date: str
    """When its file was last written, as 2026-11-16T05:40:00Z."""


class TrialEntry(msgspec.Struct, kw_only=True, rename="camel"):
    """One trial. Without pass it is not measured, which is not the same as failed."""

    trial_num: int
    """From 1."""
    output: str
    trajectory: list[AnyStep]
    duration: float
    pass_: bool | UnsetType = msgspec.field(default=UNSET, name="pass")
    score: float | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    tool_errors: bool = False
    grades: dict[str, Grade] | UnsetType = UNSET
    earlier_grades: list[EarlierGrade] | UnsetType = UNSET
    grader_failures: dict[str, str] | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    agent: AgentInfo | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    first_response: float | UnsetType = UNSET
    events: Events | UnsetType = UNSET
    turn_usage: list[Usage] | UnsetType = UNSET
    setup: dict[str, Any] | UnsetType = UNSET
    permission_denials: int | UnsetType = UNSET
    provider_retries: int | UnsetType = UNSET
    retried: list[Failure] | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    workspace_dir: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    """Of this trial alone: the evidence of its world."""
    cwd: str | UnsetType = UNSET
    changes: WorkspaceChanges | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    build: Build | UnsetType = UNSET
    """In a pooled baseline (`assay baseline`): the run that this trial comes from."""


class PassAtK(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Unbiased chances for one k <= nMeasured, with 95 % intervals."""

    k: int
    pass_at_k: float
    """At least one of k trials passes."""
    pass_at_k_interval: tuple[float, float]
    pass_exp_k: float
    """All of k trials pass."""
    pass_exp_k_interval: tuple[float, float]


class Allocation(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Why a prompt has this number of trials (`assay trials --allocate`)."""

    trials: int
    """Planned for this prompt."""
    mean: int
    """Trials of a prompt on average."""
    spread: float
    """Standard deviation of one trial that the baseline lets expect."""


class TrialResult(msgspec.Struct, kw_only=True, rename="camel"):
    """All trials of one prompt; with a grader, how often they passed."""

    id: str
    input: str | list[str]
    hint: str | UnsetType = UNSET
    k: int
    trials: list[TrialEntry]
    metadata: dict[str, Any]
    pass_rate: float | UnsetType = UNSET
    """Share of the measured trials that passed; absent when none was measured."""
    pass_at_k: float | UnsetType = UNSET
    """The seed's plug-in formula; see perK for the unbiased numbers."""
    pass_exp_k: float | UnsetType = UNSET
    n_measured: int | UnsetType = UNSET
    per_k: list[PassAtK] | UnsetType = UNSET
    failures: dict[str, int] | UnsetType = UNSET
    """How many trials had which cause."""
    spec_hash: str | UnsetType = UNSET
    identity: Identity | UnsetType = UNSET
    allocation: Allocation | UnsetType = UNSET
    """Trials were spent where they are worth most; every prompt has at least one."""


class FinishedTrial(msgspec.Struct, kw_only=True, rename="camel"):
    """A line of the journal beside trials.jsonl: finished, while its prompt is not complete yet."""

    id: str
    spec_hash: str
    identity: Identity | UnsetType = UNSET
    entry: TrialEntry
