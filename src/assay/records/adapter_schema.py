"""The JSON file that describes an agent: version 1 of the seed, and what we added to it."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

EmitAs = Literal["thought", "tool_call", "message", "plan"]
NonEmpty = Annotated[list[str], Meta(min_length=1)]


class _Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Unknown fields have no effect; `unknown_fields` of records/problems.py finds them."""


class Match(_Part, frozen=True):
    """Takes events whose value at path equals value; "*" takes any that has one."""

    path: str
    value: str


class PromptArgument(_Part, frozen=True):
    """How a turn reaches the agent: behind a flag, as last argument, or on stdin."""

    flag: str | None = None
    stdin: bool = False
    stdin_format: Literal["text", "json"] = "text"


class OutputFlag(_Part, frozen=True):
    """What makes the agent print events; an empty flag adds nothing."""

    flag: str
    value: str


class Resume(_Part, frozen=True):
    """How a later turn continues the agent's own session."""

    flag: str
    session_id_path: str = "$.session_id"


class Extract(_Part, frozen=True):
    """Where in a matched event the parts of a step stand."""

    content: str | None = None
    title: str | None = None
    """Name of the tool."""
    status: str | None = None
    call_id: str | None = None
    """Joins a call with its result."""
    input: str | None = None
    output: str | None = None
    error: str | None = None
    """True or a text marks the call as failed."""
    exit_code: str | None = None
    entries: str | None = None
    """List of a plan."""
    parent: str | None = None
    """Call id of the tool call whose sub-agent did this."""


class OutputEvent(_Part, frozen=True):
    """One mapping from the agent's events to steps."""

    match: Match
    emit_as: EmitAs
    extract: Extract = Extract()


class PassthroughTypeMap(_Part, frozen=True):
    """For agents whose events already have our shape."""

    type_field: str = "type"
    type_values: dict[str, EmitAs] = {}


class Result(_Part, frozen=True):
    """The event that ends a turn and holds the answer."""

    match_path: str
    match_value: str
    content_path: str


class HistoryTemplate(_Part, frozen=True):
    """How earlier turns are told again to an agent without sessions."""

    turn_format: str
    system: str | None = None


class UsagePaths(_Part, frozen=True):
    """Where tokens and money stand in an event."""

    match: Match
    mode: Literal["event", "cumulative"] = "event"
    """event: add up; cumulative: the last value counts, also over the turns of a session."""
    input_tokens: str | None = None
    output_tokens: str | None = None
    cache_read_tokens: str | None = None
    cache_write_tokens: str | None = None
    reasoning_tokens: str | None = None
    cost_usd: str | None = None


class Terminal(_Part, frozen=True):
    """What counts as a proper end, where the result event is not it."""

    match: Match | None = None
    """Absent: the result event."""
    required: bool = True
    """False: ending without it is no failure."""
    grace_ms: float = 10_000
    """How long the process may live on after it."""


class ErrorEvent(_Part, frozen=True):
    """An event that says the turn went wrong, and whose fault that is."""

    match: Match
    message: str | None = None
    cause: Literal[
        "agent_crash", "agent_refused", "agent_limit", "agent_timeout", "provider", "auth"
    ] = "agent_crash"


class AdapterSchema(_Part, frozen=True):
    """How to start an agent and how to read what it prints."""

    version: Literal[1]
    name: str
    command: NonEmpty
    prompt: PromptArgument
    # Required by the seed; only an agent that prints plain text can do without them.
    session_mode: Literal["stream", "iterative"] = "iterative"
    output: OutputFlag = OutputFlag(flag="", value="")
    result: Result | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None
    auto_approve: list[str] = []
    resume: Resume | None = None
    cwd_flag: str | None = None
    output_mode: Literal["jsonpath", "passthrough", "text"] = "jsonpath"
    """text: the agent prints no events; all of its stdout is the answer."""
    output_events: list[OutputEvent] = []
    passthrough_type_map: PassthroughTypeMap | None = None
    history_template: str | HistoryTemplate | None = None
    # Ours, all optional; a file of the seed has none of them:
    schema: str | None = msgspec.field(default=None, name="$schema")
    description: str | None = None
    model_flag: str | None = None
    """Put before the value of --model."""
    session_id_path: str | None = None
    model_path: str | None = None
    version_path: str | None = None
    usage: list[UsagePaths] | None = None
    terminal: Terminal = Terminal()
    errors: list[ErrorEvent] = []
    ignore: list[Match] = []
    """Events known to carry nothing: counted as understood."""
    env: dict[str, str] = {}
    """Variables set for the agent."""
    pass_env: list[str] = []
    """Variables of ours that the agent may see when isolated."""
    keep: list[str] = []
    """Files to keep with the raw streams, as globs below HOME (~/…) or the workspace."""
    visible: list[str] = []
    """Files and folders, besides those in command, that the agent sees under --sandbox."""
    login: list[str] = []
    """Files below HOME (~/…) that are copied into the agent's own HOME under --sandbox."""
    endpoints: list[str] = []
    """URLs that the agent may reach under --sandbox=no-network."""
