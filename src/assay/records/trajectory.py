"""What the agent did, in one shape for all vendors."""

from typing import Any

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
