"""What one item of Codex's event stream is as a step of the trajectory."""

import shlex
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from assay.records.trajectory import AnyStep, Message, Plan, Thought, ToolCall

TOOLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}
)
TEXTS: dict[str, type[Message] | type[Thought]] = {
    "agent_message": Message,
    "reasoning": Thought,
}
SHELL, PATCH = "exec_command", "apply_patch"
"""The stream shows what a call did; these are the tools of the model that do it."""


@dataclass
class Item:
    """One item as far as it is known: its last state, and when it came and ended."""

    type: str
    id: str
    value: dict[str, Any]
    begun_ms: float
    ended_ms: float | None = None
    turn: int | None = None

    @property
    def is_tool(self) -> bool:
        """Whether it is a tool call."""
        return self.type in TOOLS


def item_step(item: Item) -> AnyStep:
    """Make the step of a known item."""
    turn: Any = UNSET if item.turn is None else item.turn
    if item.type == "todo_list":
        return Plan(entries=plan_entries(item.value), timestamp=item.begun_ms, turn=turn)
    kind = TEXTS.get(item.type)
    if kind is not None:
        text = item.value.get("text")
        content = text if isinstance(text, str) else ""
        return kind(content=content, timestamp=item.begun_ms, turn=turn)
    status, error = _outcome(item)
    exit_code = item.value.get("exit_code")
    return ToolCall(
        name=tool_name(item),
        status=status,
        timestamp=item.begun_ms,
        input=tool_input(item),
        output=tool_output(item),
        duration=UNSET if item.ended_ms is None else item.ended_ms - item.begun_ms,
        call_id=item.id if item.turn is None else f"turn{item.turn}-{item.id}",
        error=UNSET if error is None else error,
        exit_code=exit_code if isinstance(exit_code, int) else UNSET,
        turn=turn,
    )


def plan_entries(value: dict[str, Any]) -> list[Any]:
    """Give the entries of a to-do list, with the words that all agents' plans have here."""
    entries = value.get("items")
    if not isinstance(entries, list):
        return []
    return [
        {
            "content": entry.get("text", ""),
            "status": "completed" if entry.get("completed") else "pending",
        }
        for entry in entries
        if isinstance(entry, dict)
    ]


def tool_name(item: Item) -> str:
    """Give the name of the model's tool."""
    value = item.value
    if item.type == "mcp_tool_call":
        return f"mcp__{value.get('server')}__{value.get('tool')}"
    if item.type == "collab_tool_call":
        return str(value.get("tool") or item.type)
    return {"command_execution": SHELL, "file_change": PATCH}.get(item.type, item.type)


def tool_input(item: Item) -> Any:
    """Give what the call was made with, as far as the stream shows it."""
    value = item.value
    if item.type == "command_execution":
        return {"cmd": command_text(value.get("command"))}
    if item.type == "file_change":
        return {"changes": value.get("changes")}
    if item.type == "mcp_tool_call":
        return value.get("arguments")
    names = ("query", "action") if item.type == "web_search" else ("prompt",)
    return {name: value[name] for name in names if value.get(name) is not None}


def tool_output(item: Item) -> Any:
    """Give what came back; unset while nothing did."""
    value = item.value
    if item.type == "command_execution":
        output = value.get("aggregated_output")
        return output if item.ended_ms is not None or output else UNSET
    if item.type == "mcp_tool_call":
        result = value.get("result")
        return UNSET if result is None else mcp_text(result)
    if item.type == "collab_tool_call" and item.ended_ms is not None:
        return {
            name: value[name] for name in ("receiver_thread_ids", "agents_states") if name in value
        }
    results = value.get("results")
    return UNSET if results is None else results


def mcp_text(result: Any) -> Any:
    """Give the text of an MCP result; the whole of it when it holds more than text."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list) or not content:
        return result
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
        return "\n".join(str(text) for text in texts)
    return result


def command_words(command: Any) -> list[str]:
    """Undo the quoting of a command as it is shown."""
    if isinstance(command, list):
        return [str(word) for word in command]
    try:
        return shlex.split(str(command))
    except ValueError:
        return [str(command)]


def command_text(command: Any) -> str:
    """Give what the shell was asked to run, without the shell and its quoting."""
    words = command_words(command)
    if len(words) == 3 and words[1] in ("-lc", "-c"):
        return words[2]
    return str(command) if isinstance(command, str) else shlex.join(words)


def _outcome(item: Item) -> tuple[str, str | None]:
    """Say how the call stands, and what went wrong."""
    status = item.value.get("status")
    if item.ended_ms is None:
        return "in_progress", None
    if status in (None, "completed"):
        return "completed", None
    if status == "failed":
        return "failed", _why(item)
    return ("failed", "declined") if status == "declined" else (str(status), None)


def _why(item: Item) -> str:
    value = item.value
    error = value.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    if item.type == "mcp_tool_call" and isinstance(text := mcp_text(value.get("result")), str):
        return text
    exit_code = value.get("exit_code")
    return f"exit code {exit_code}" if isinstance(exit_code, int) else "failed"
