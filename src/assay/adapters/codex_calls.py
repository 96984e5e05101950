"""Make steps of Codex's tool calls from the stream's item, the rollout's call, or both."""

import re
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.codex_items import (
    PATCH,
    SHELL,
    Item,
    command_text,
    command_words,
    item_step,
    tool_input,
    tool_name,
)
from assay.adapters.codex_thread import ITEM_TYPES, Call
from assay.adapters.moments import TrialClock
from assay.records.trajectory import AnyStep, Plan, ToolCall

PLAN = "update_plan"
_ITEM_TOOLS = (SHELL, PATCH, "write_stdin", "shell", "local_shell")
"""Tools whose answers begin with a header unless the call was turned down."""
_HEADER = re.compile(r"(Chunk ID|Wall time|Exit code|Process |Output:|Script )", re.IGNORECASE)
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.MULTILINE)
_REJECTED = re.compile(
    r"(unsupported (custom tool )?call|failed to parse|tool call error|aborted|script failed|error:"
    r"|unknown |invalid |missing )",
    re.IGNORECASE,
)


def belongs(item: Item, call: Call, care: int) -> bool:
    """Whether the stream's item and the rollout's call are the same doing.

    care 2: in all that both tell; 1: but for the output, which a rollout has only in part; 0: they
    are of one kind, and nothing else of that kind is left.
    """
    made = call.item
    if made is not None:
        kind = ITEM_TYPES.get(str(made.get("type")))
        return kind == item.type and (care == 0 or _is_same(item, made, whole=care == 2))
    if item.ended_ms is not None and item.type != "web_search":
        return False
    if item.type == "command_execution":
        return _command_of(call.input) == command_text(item.value.get("command"))
    if item.type == "mcp_tool_call":
        return f"{call.namespace}__{call.name}" == tool_name(item)
    return item.type == call.name or item.value.get("tool") == call.name


def call_step(
    call: Call | None,
    item: Item | None,
    clock: TrialClock,
    turn: int | None = None,
    default_ms: float = 0,
    parent: str | None = None,
) -> AnyStep:
    """Make the step of a call that is over: one that did not end was cut off with the agent."""
    if call is None:
        assert item is not None
        return _closed(item_step(item))
    if item is None:
        item = _as_item(call, clock, turn, default_ms)
    step = _bare_step(call, turn, default_ms) if item is None else item_step(item)
    assert isinstance(step, ToolCall)
    changes: dict[str, Any] = {"call_id": call.call_id, **_times(call, clock)}
    if item is not None:
        changes |= _told_by(call, item)
    if parent or call.outer:
        changes["parent"] = parent or call.outer
    return _closed(msgspec.structs.replace(step, **changes))


def plan_of(call: Call) -> list[Any] | None:
    """Give the entries of a plan that was accepted."""
    plan = call.input.get("plan") if isinstance(call.input, dict) else None
    if call.name != PLAN or not isinstance(plan, list) or rejection(call) is not None:
        return None
    return [
        {"content": entry.get("step", ""), "status": entry.get("status", "pending")}
        for entry in plan
        if isinstance(entry, dict)
    ]


def plan_step(call: Call, at_ms: float, turn: int | None, parent: str | None = None) -> Plan:
    """Make the step of an accepted plan."""
    why = call.input.get("explanation")
    return Plan(
        entries=plan_of(call) or [],
        content=why if isinstance(why, str) and why else UNSET,
        timestamp=at_ms,
        turn=UNSET if turn is None else turn,
        parent=UNSET if parent is None else parent,
    )


def receivers(call: Call) -> list[str]:
    """Name the threads of the sub-agents that a call began or spoke to."""
    threads = (call.item or {}).get("receiver_thread_ids")
    if isinstance(threads, list) and threads:
        return [str(thread) for thread in threads]
    try:
        said = msgspec.json.decode(call.output) if isinstance(call.output, str) else None
    except (msgspec.DecodeError, RecursionError):
        return []
    agent = said.get("agent_id") if isinstance(said, dict) else None
    return [agent] if isinstance(agent, str) else []


def rejection(call: Call) -> str | None:
    """Give what was answered to a call that was turned down."""
    text = call.output
    if call.item is not None or not isinstance(text, str):
        return None
    if call.name in _ITEM_TOOLS:
        return None if _HEADER.match(text) else text
    return text if _REJECTED.match(text) else None


def _is_same(item: Item, made: dict[str, Any], *, whole: bool) -> bool:
    value = item.value
    if item.type == "command_execution":
        same = command_words(value.get("command")) == command_words(made.get("command"))
        if not same or not whole or item.ended_ms is None:
            return same
        outcome = ("exit_code", "aggregated_output")
        return all(value.get(name) == made.get(name) for name in outcome)
    if item.type == "file_change":
        return {str(change["path"]) for change in _changes(value)} == {
            str(change["path"]) for change in _changes(made)
        }
    names = ("server", "tool", "arguments", "prompt", "query")
    return all(value.get(name) == made.get(name) for name in names if name in value)


def _as_item(call: Call, clock: TrialClock, turn: int | None, default_ms: float) -> Item | None:
    made = call.item
    if made is None:
        return None
    kind = ITEM_TYPES.get(str(made.get("type")))
    if kind is None:
        return None
    begun = clock.at(call.started_ms)
    ended = clock.at(call.ended_ms)
    value = {**made, "changes": _changes(made)} if kind == "file_change" else made
    return Item(
        type=kind,
        id=call.call_id,
        value=value,
        begun_ms=default_ms if begun is None else begun,
        ended_ms=default_ms if ended is None else ended,
        turn=turn,
    )


def _told_by(call: Call, item: Item) -> dict[str, Any]:
    """Give what the rollout knows better than the stream's item."""
    made = call.item or {}
    told: dict[str, Any] = {}
    if call.input is not None:
        told["input"] = call.input
        if item.type not in ("file_change", "mcp_tool_call"):
            told["name"] = call.name
    else:
        told |= {"name": tool_name(item), "input": tool_input(item)}
    if item.type == "file_change" and isinstance(made.get("stdout"), str):
        told["output"] = made["stdout"] + str(made.get("stderr") or "")
    if item.type == "collab_tool_call" and call.output is not None:
        told["output"] = call.output
    if item.ended_ms is None or call.cut:
        output = made.get("aggregated_output")
        if isinstance(output, str):
            told["output"] = output
        elif isinstance(call.output, str):
            told["output"] = call.output
        told |= {"status": "cancelled", "exit_code": UNSET, "error": UNSET}
    return told


def _bare_step(call: Call, turn: int | None, default_ms: float) -> ToolCall:
    """Make the step of a call that became no item: turned down, or not worth one."""
    text = call.output
    why = rejection(call)
    exits = _EXIT.findall(text[:500]) if isinstance(text, str) else []
    exit_code = int(exits[0]) if exits else None
    if why is None and exit_code:
        why = f"exit code {exit_code}"
    status = "failed" if why is not None else "completed"
    mcp = call.namespace if (call.namespace or "").startswith("mcp__") else None
    return ToolCall(
        name=f"{mcp}__{call.name}" if mcp else call.name,
        status="cancelled" if call.output_ms is None and text is None else status,
        timestamp=default_ms,
        input=UNSET if call.input is None else call.input,
        output=UNSET if text is None else text,
        error=UNSET if why is None else why,
        exit_code=UNSET if exit_code is None else exit_code,
        turn=UNSET if turn is None else turn,
    )


def _times(call: Call, clock: TrialClock) -> dict[str, Any]:
    begun = clock.at(call.at_ms if call.started_ms is None else call.started_ms)
    ended = clock.at(call.output_ms if call.ended_ms is None else call.ended_ms)
    if begun is None:
        return {}
    return {"timestamp": begun} | ({} if ended is None else {"duration": max(ended - begun, 0)})


def _closed(step: AnyStep) -> AnyStep:
    if isinstance(step, ToolCall) and step.status in ("in_progress", "pending"):
        return msgspec.structs.replace(step, status="cancelled", duration=UNSET)
    return step


def _command_of(value: Any) -> str | None:
    command = value.get("cmd", value.get("command")) if isinstance(value, dict) else None
    return command_text(command) if isinstance(command, list) else command


def _changes(value: dict[str, Any]) -> list[dict[str, Any]]:
    changes = value.get("changes")
    if isinstance(changes, dict):
        return [
            {"path": path, "kind": change.get("type") if isinstance(change, dict) else None}
            for path, change in changes.items()
        ]
    listed = changes if isinstance(changes, list) else []
    return [change for change in listed if isinstance(change, dict) and "path" in change]
