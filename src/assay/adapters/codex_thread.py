"""A thread of Codex as its rollout tells it: turns, what was said in them, what was called."""

from dataclasses import dataclass, field
from typing import Any

from assay.adapters.codex_tokens import Tokens

ITEM_TYPES = {
    "CommandExecution": "command_execution",
    "FileChange": "file_change",
    "McpToolCall": "mcp_tool_call",
    "CollabAgentToolCall": "collab_tool_call",
    "WebSearch": "web_search",
}
"""What the items of tool calls are called here and in the stream."""


@dataclass
class Call:
    """A tool call of the model, and the item that tells what became of it."""

    call_id: str
    name: str
    namespace: str | None = None
    input: Any = None
    at_ms: float | None = None
    output: Any = None
    output_ms: float | None = None
    item: dict[str, Any] | None = None
    started_ms: float | None = None
    ended_ms: float | None = None
    outer: str | None = None
    """The call whose script made this one."""
    cut: bool = False
    """It ended only because the agent did."""


@dataclass
class Said:
    """A message or a thought."""

    type: str
    """As the stream calls it: agent_message or reasoning."""
    id: str | None
    text: str
    at_ms: float | None = None


type Entry = Call | Said


@dataclass
class Segment:
    """What the rollout holds of one turn."""

    at_ms: float | None = None
    entries: list[Entry] = field(default_factory=list)
    tokens: Tokens | None = None
    context: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    over: bool = False
    tools: list[str] = field(default_factory=list)
    total: Tokens | None = None
    """Of the thread at its end, where there are no records for each answer."""


@dataclass
class Rollout:
    """One session file."""

    id: str = ""
    parent: str | None = None
    """The thread whose sub-agent this is."""
    meta: dict[str, Any] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)

    @property
    def is_fork(self) -> bool:
        """Whether it begins with the history of another."""
        return bool(self.meta.get("forked_from_id"))
