"""Merge Codex's stream and its rollout: the stream gives the order, the rollout the details."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.codex.rollout import ITEM_TYPES, Call, Entry, Rollout, Segment, TextEntry
from assay.adapters.codex.stream import (
    PATCH,
    SHELL,
    TEXTS,
    CodexTurn,
    Item,
    Tokens,
    add_tokens,
    command_text,
    command_words,
    item_step,
    plan_entries,
    tool_input,
    tool_name,
)
from assay.adapters.reading import (
    TrialClock,
    list_at,
    objects_at,
    or_unset,
    parse_line,
    text_at,
    value_at,
)
from assay.records.capture import AnyStep, Plan, ToolCall


@dataclass
class SubAgents:
    """The rollouts of sub-agents that no call has claimed yet, and the tokens of claimed ones."""

    rollouts: dict[str, Rollout]
    seen: frozenset[str | None] = frozenset()
    """Ids of all entries of the main thread."""
    tokens: list[Tokens | None] = field(default_factory=list)

    def claim(self, call: Call) -> list[Rollout]:
        """Return the sub-agents that this call started, each only once."""
        found = [self.rollouts.pop(name) for name in receivers(call) if name in self.rollouts]
        self.tokens += [segment.tokens for child in found for segment in child.segments]
        return found

    def spent(self) -> Tokens | None:
        """Return the tokens of the rollouts claimed since the last call of this method."""
        tokens, self.tokens = add_tokens(self.tokens), []
        return tokens


def ids_of(rollout: Rollout | None) -> frozenset[str | None]:
    segments = rollout.segments if rollout is not None else []
    return frozenset(_id_of(entry) for segment in segments for entry in segment.entries)


def merge_turn(
    turn: CodexTurn,
    segment: Segment | None,
    clock: TrialClock,
    number: int | None,
    agents: SubAgents,
) -> list[AnyStep]:
    """Return the steps of one turn: items in the stream's order, and between them the entries
    that only the rollout has, each behind the item it follows there.
    """
    entries = segment.entries if segment is not None else []
    found = _match(turn.items, entries)
    placed: list[tuple[float, int, list[AnyStep]]] = []
    for index, item in enumerate(turn.items):
        entry = found.get(index)
        placed.append((index, 0, _stream_steps(item, entry, clock, number, agents)))
    # Sort keys: an item has its index; an entry without one follows the last matched item before it
    # in the rollout (index + 0.5), and takes over its time if it has none of its own.
    matched = {id(entry): index for index, entry in found.items()}
    after, at_ms = -1.0, turn.items[0].begun_ms if turn.items else 0.0
    for order, entry in enumerate(entries):
        if id(entry) in matched:
            after = max(after, matched[id(entry)])
            at_ms = turn.items[int(after)].begun_ms
        elif _is_missing(entry, turn):
            placed.append((after + 0.5, order, entry_steps(entry, clock, number, at_ms, agents)))
    placed.sort(key=lambda place: place[:2])
    return [step for _, _, steps in placed for step in steps]


def entry_steps(
    entry: Entry,
    clock: TrialClock,
    turn: int | None,
    default_ms: float,
    agents: SubAgents,
    parent: str | None = None,
) -> list[AnyStep]:
    """Make the steps of an entry that only the rollout has."""
    if isinstance(entry, TextEntry):
        at = clock.at(entry.at_ms)
        step = TEXTS[entry.type](
            content=entry.text,
            timestamp=default_ms if at is None else at,
            turn=or_unset(turn),
            parent=or_unset(parent),
        )
        return [step]
    at = clock.at(entry.at_ms)
    if plan_of(entry) is not None:
        return [plan_step(entry, default_ms if at is None else at, turn, parent)]
    made = call_step(entry, None, clock, turn, default_ms, parent)
    return [made, *_children(entry, clock, turn, made.timestamp, agents)]


def _children(
    call: Call, clock: TrialClock, turn: int | None, default_ms: float, agents: SubAgents
) -> Iterable[AnyStep]:
    for child in agents.claim(call):
        for segment in child.segments:
            for entry in segment.entries:
                if child.is_fork and _id_of(entry) in agents.seen:
                    continue  # a fork starts with a copy of its parent's history
                yield from entry_steps(entry, clock, turn, default_ms, agents, call.call_id)


def _id_of(entry: Entry) -> str | None:
    return entry.call_id if isinstance(entry, Call) else entry.id


def _stream_steps(
    item: Item, entry: Entry | None, clock: TrialClock, turn: int | None, agents: SubAgents
) -> list[AnyStep]:
    if isinstance(entry, TextEntry):
        at = clock.at(entry.at_ms)
        step = item_step(item)
        return [step if at is None else msgspec.structs.replace(step, timestamp=at)]
    if item.type == "todo_list":
        if entry is None:
            return [item_step(item)]
        at = clock.at(entry.at_ms)
        return [plan_step(entry, item.begun_ms if at is None else at, turn)]
    if not item.is_tool:
        return [item_step(item)]
    step = call_step(entry, item, clock, turn)
    if entry is None:
        return [step]
    return [step, *_children(entry, clock, turn, step.timestamp, agents)]


def _match(items: list[Item], entries: list[Entry]) -> dict[int, Entry]:
    """Find the rollout entry of each item: greedily, by the strictest level first.

    The stream does not show call ids, and items of parallel calls are not in the model's order.
    """
    free = list(entries)
    found: dict[int, Entry] = {}
    for level in (2, 1, 0):
        for index, item in enumerate(items):
            if index in found:
                continue
            place = next((n for n, entry in enumerate(free) if _fits(item, entry, level)), None)
            if place is not None:
                found[index] = free.pop(place)
    return found


def _fits(item: Item, entry: Entry, level: int) -> bool:
    if isinstance(entry, TextEntry):
        text = item.value.get("text")
        return entry.type == item.type and isinstance(text, str) and _is_like(entry.text, text)
    if item.type == "todo_list":
        return _done_entries(plan_of(entry)) == _done_entries(plan_entries(item.value))
    return item.is_tool and entry.name != PLAN and belongs(item, entry, level)


def _is_like(one: str, other: str) -> bool:
    return one == other or "".join(one.split()) == "".join(other.split())


def _done_entries(entries: list[dict[str, str]] | None) -> list[tuple[str, bool]] | None:
    if entries is None:
        return None
    return [(entry["content"], entry["status"] == "completed") for entry in entries]


def _is_missing(entry: Entry, turn: CodexTurn) -> bool:
    """Whether an entry without a matching item is missing from the stream.

    A text is, if the stream was cut or shows no text of its type; otherwise the stream has it in a
    different form. The stream shows a plan that did not change only once.
    """
    if isinstance(entry, TextEntry):
        cut = not turn.ended or turn.over_limit
        return cut or not any(item.type == entry.type for item in turn.items)
    if plan_of(entry) is not None:
        return not any(item.type == "todo_list" for item in turn.items)
    return True


PLAN = "update_plan"
_ITEM_TOOLS = (SHELL, PATCH, "write_stdin", "shell", "local_shell")
"""Tools whose output starts with a header unless the call was rejected."""
_HEADER = re.compile(r"(Chunk ID|Wall time|Exit code|Process |Output:|Script )", re.IGNORECASE)
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})$", re.MULTILINE)
_REJECTED = re.compile(
    r"(unsupported (custom tool )?call|failed to parse|tool call error|aborted|script failed|error:"
    r"|unknown |invalid |missing )",
    re.IGNORECASE,
)


def belongs(item: Item, call: Call, level: int) -> bool:
    """Whether the stream's item and the rollout's call are the same call.

    level 2: all fields that both have are equal; 1: all but the output, which a rollout may hold
    only in part; 0: the type is the same, and no better match is left.
    """
    made = call.item
    if made is not None:
        kind = ITEM_TYPES.get(str(made.get("type")))
        return kind == item.type and (level == 0 or _is_same(item, made, whole=level == 2))
    # A call that ended has its item in the rollout; only a web search may lack one.
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
    """Make the step of a call; one that did not end was stopped along with the agent."""
    if call is None:
        assert item is not None
        return _closed(item_step(item))
    if item is None:
        item = _as_item(call, clock, turn, default_ms)
    step = _bare_step(call, turn, default_ms) if item is None else item_step(item)
    assert isinstance(step, ToolCall)
    changes: dict[str, Any] = {"call_id": call.call_id, **_times(call, clock)}
    if item is not None:
        changes |= _rollout_fields(call, item)
    if parent or call.outer:
        changes["parent"] = parent or call.outer
    return _closed(msgspec.structs.replace(step, **changes))


def plan_of(call: Call) -> list[Any] | None:
    """Return the entries of an accepted plan; None for any other call."""
    plan = value_at(call.input, "plan")
    if call.name != PLAN or not isinstance(plan, list) or rejection(call) is not None:
        return None
    return [
        {"content": entry.get("step", ""), "status": entry.get("status", "pending")}
        for entry in objects_at(call.input, "plan")
    ]


def plan_step(call: Call, at_ms: float, turn: int | None, parent: str | None = None) -> Plan:
    return Plan(
        entries=plan_of(call) or [],
        content=text_at(call.input, "explanation") or UNSET,
        timestamp=at_ms,
        turn=or_unset(turn),
        parent=or_unset(parent),
    )


def receivers(call: Call) -> list[str]:
    """Return the thread ids of the sub-agents that a call started or messaged."""
    if threads := list_at(call.item, "receiver_thread_ids"):
        return [str(thread) for thread in threads]
    answer = parse_line(call.output.encode()) if isinstance(call.output, str) else None
    agent = text_at(answer, "agent_id")
    return [] if agent is None else [agent]


def rejection(call: Call) -> str | None:
    """Return the error message of a rejected call; such a call has no item."""
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


def _rollout_fields(call: Call, item: Item) -> dict[str, Any]:
    """Return the fields for which the rollout is more exact than the stream's item."""
    made = call.item or {}
    fields: dict[str, Any] = {}
    if call.input is not None:
        fields["input"] = call.input
        # A patch may come as a shell command, and an MCP call's own name lacks its server.
        if item.type not in ("file_change", "mcp_tool_call"):
            fields["name"] = call.name
    else:
        fields |= {"name": tool_name(item), "input": tool_input(item)}
    if item.type == "file_change" and isinstance(made.get("stdout"), str):
        fields["output"] = made["stdout"] + str(made.get("stderr") or "")
    if item.type == "collab_tool_call" and call.output is not None:
        fields["output"] = call.output
    if item.ended_ms is None or call.cut:
        output = made.get("aggregated_output")
        if isinstance(output, str):
            fields["output"] = output
        elif isinstance(call.output, str):
            fields["output"] = call.output
        fields |= {"status": "cancelled", "exit_code": UNSET, "error": UNSET}
    return fields


def _bare_step(call: Call, turn: int | None, default_ms: float) -> ToolCall:
    """Make the step of a call without an item: rejected, or of a tool that has none."""
    text = call.output
    why = rejection(call)
    # The header comes first; further down the output itself may contain such a line.
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
        input=or_unset(call.input),
        output=or_unset(text),
        error=or_unset(why),
        exit_code=or_unset(exit_code),
        turn=or_unset(turn),
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
    # The stream has a list of changes, the rollout an object by path.
    if isinstance(changes, dict):
        return [
            {"path": path, "kind": value_at(change, "type")} for path, change in changes.items()
        ]
    return [change for change in objects_at(value, "changes") if "path" in change]
