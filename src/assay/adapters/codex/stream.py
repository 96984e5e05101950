"""Read the lines of `codex exec --json`, one turn at a time, live or from a recording."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from assay.adapters.reading import (
    EventReader,
    integer_at,
    join_texts,
    list_at,
    objects_at,
    or_unset,
    text_at,
)
from assay.records.capture import AnyStep, Message, Plan, Thought, ToolCall

TOOLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}
)
TEXTS: dict[str, type[Message] | type[Thought]] = {
    "agent_message": Message,
    "reasoning": Thought,
}
SHELL, PATCH = "exec_command", "apply_patch"
"""The stream shows only what a call did; these are the names of the model's tools for it."""


@dataclass
class Item:
    """One item: its last known state, and when it started and ended."""

    type: str
    id: str
    value: dict[str, Any]
    begun_ms: float
    ended_ms: float | None = None
    turn: int | None = None

    @property
    def is_tool(self) -> bool:
        return self.type in TOOLS


def item_step(item: Item) -> AnyStep:
    """Turn an item of a known type into a step."""
    turn: Any = or_unset(item.turn)
    if item.type == "todo_list":
        return Plan(entries=plan_entries(item.value), timestamp=item.begun_ms, turn=turn)
    kind = TEXTS.get(item.type)
    if kind is not None:
        content = text_at(item.value, "text") or ""
        return kind(content=content, timestamp=item.begun_ms, turn=turn)
    status, error = _outcome(item)
    return ToolCall(
        name=tool_name(item),
        status=status,
        timestamp=item.begun_ms,
        input=tool_input(item),
        output=tool_output(item),
        duration=UNSET if item.ended_ms is None else item.ended_ms - item.begun_ms,
        # Item ids start again at item_0 in each process.
        call_id=item.id if item.turn is None else f"turn{item.turn}-{item.id}",
        error=or_unset(error),
        exit_code=or_unset(integer_at(item.value, "exit_code")),
        turn=turn,
    )


def plan_entries(value: dict[str, Any]) -> list[Any]:
    """Return the entries of a to-do list, in the form that all agents' plans have here."""
    return [
        {
            "content": entry.get("text", ""),
            "status": "completed" if entry.get("completed") else "pending",
        }
        for entry in objects_at(value, "items")
    ]


def tool_name(item: Item) -> str:
    """Return the tool's name as the model uses it."""
    value = item.value
    if item.type == "mcp_tool_call":
        return f"mcp__{value.get('server')}__{value.get('tool')}"
    if item.type == "collab_tool_call":
        return str(value.get("tool") or item.type)
    return {"command_execution": SHELL, "file_change": PATCH}.get(item.type, item.type)


def tool_input(item: Item) -> Any:
    """Return the call's input, as far as the stream shows it."""
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
    """Return the call's output; UNSET while there is none."""
    value = item.value
    if item.type == "command_execution":
        output = value.get("aggregated_output")
        # While a command runs, an empty text means that nothing is known yet.
        return output if item.ended_ms is not None or output else UNSET
    if item.type == "mcp_tool_call":
        result = value.get("result")
        return UNSET if result is None else mcp_text(result)
    if item.type == "collab_tool_call" and item.ended_ms is not None:
        return {
            name: value[name] for name in ("receiver_thread_ids", "agents_states") if name in value
        }
    results = value.get("results")
    return or_unset(results)


def mcp_text(result: Any) -> Any:
    """Return the text of an MCP result, or the whole result if it holds more than text."""
    content = list_at(result, "content")
    text = join_texts(content) if content else None
    return result if text is None else text


def command_words(command: Any) -> list[str]:
    """Undo the quoting of a command as it is shown."""
    if isinstance(command, list):
        return [str(word) for word in command]
    try:
        return shlex.split(str(command))
    except ValueError:  # quoting that shlex cannot parse
        return [str(command)]


def command_text(command: Any) -> str:
    """Return the command without the `bash -lc` and the quoting that Codex shows around it."""
    words = command_words(command)
    if len(words) == 3 and words[1] in ("-lc", "-c"):
        return words[2]
    return str(command) if isinstance(command, str) else shlex.join(words)


def _outcome(item: Item) -> tuple[str, str | None]:
    """Return the call's status and error."""
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
    message = text_at(value, "error", "message")
    if message is not None:
        return message
    if item.type == "mcp_tool_call" and isinstance(text := mcp_text(value.get("result")), str):
        return text
    exit_code = integer_at(value, "exit_code")
    return "failed" if exit_code is None else f"exit code {exit_code}"


_RETRY = "Reconnecting"
_KNOWN_ITEMS = frozenset(
    {*TEXTS, "todo_list", "error", "command_execution", "file_change", "mcp_tool_call"}
    | {"collab_tool_call", "web_search"}
)


class CodexTurn(EventReader):
    """Reads the lines of one turn.

    Codex has no limit on model turns: with max_turns the turn counts as ended when the model starts
    one more than that, and the caller then ends the process.
    """

    ending = frozenset({"turn.completed", "turn.failed", "error"})

    def __init__(self, turn: int | None = None, max_turns: int | None = None) -> None:
        super().__init__()
        self._turn = turn
        self._max_turns = max_turns
        self._is_idle = True
        """No tool is running: a new item belongs to a new answer of the model."""
        self._open: set[str] = set()
        self.over_limit = False
        self.items: list[Item] = []
        self._latest: dict[tuple[str, str], Item] = {}
        """The last item of each type and id."""
        self.usage: dict[str, Any] | None = None
        """Of the whole thread so far, from turn.completed."""
        self.error: str | None = None
        """The message of turn.failed."""
        self.notice: str | None = None
        """The last message about the provider, until an item or the end of the turn follows it."""
        self.retries = 0
        self.model_turns = 0
        self.warnings: list[str] = []

    @property
    def steps(self) -> list[AnyStep]:
        return [item_step(item) for item in self.items]

    def output(self) -> str:
        """The last message of the turn."""
        texts = [item.value.get("text") for item in self.items if item.type == "agent_message"]
        return str(texts[-1] or "") if texts else ""

    def _read(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        kind = event.get("type")
        if kind in ("item.started", "item.updated", "item.completed"):
            return self._item(str(kind), event.get("item"), t_ms)
        if kind == "thread.started":
            self.session_id = text_at(event, "thread_id") or self.session_id
        elif kind == "turn.started":
            self.ended = False
        elif kind == "turn.completed":
            usage = event.get("usage")
            self.usage = usage if isinstance(usage, dict) else None
            self.ended, self.notice = True, None
        elif kind == "turn.failed":
            self.error = text_at(event, "error", "message") or "failed"
            self.ended = True
        elif kind == "error":  # usually a retry notice; only turn.failed is fatal
            self.notice = text_at(event, "message")
            self.retries += (self.notice or "").startswith(_RETRY)
        else:
            self._unknown_event(event)
        return ()

    def _item(self, kind: str, item: Any, t_ms: int) -> Sequence[AnyStep]:
        if isinstance(item, dict) and str(item.get("type")) in _KNOWN_ITEMS:
            return self._take(item, t_ms, ended=kind == "item.completed")
        self._unknown_event({"type": kind, "item": item})
        return ()

    def _unknown_event(self, event: dict[str, Any]) -> None:
        item = event.get("item")
        of_item = f".{item.get('type')}" if isinstance(item, dict) else ""
        self._unknown(f"{event.get('type', 'no type')}{of_item}")

    def _take(self, value: dict[str, Any], t_ms: int, *, ended: bool) -> Sequence[AnyStep]:
        kind, name = str(value["type"]), str(value.get("id"))
        if kind == "error":  # an item of this type is a warning
            self.warnings.append(text_at(value, "message") or "")
            return ()
        self.notice = None
        self._count_answer(kind, name, ended=ended)
        item = self._find(kind, name)
        if kind == "todo_list":
            if item is not None and plan_entries(item.value) == plan_entries(value):
                return ()
            item = None  # each state of the list is a plan of its own
        if item is None:
            item = Item(type=kind, id=name, value=value, begun_ms=t_ms, turn=self._turn)
            self.items.append(item)
            self._latest[kind, name] = item
        item.value = {**item.value, **value}
        item.ended_ms = t_ms if ended else item.ended_ms
        return [item_step(item)]

    def _find(self, kind: str, name: str) -> Item | None:
        return self._latest.get((kind, name))

    def _count_answer(self, kind: str, name: str, *, ended: bool) -> None:
        """Count the model's answers: a new item while no tool is running starts the next one."""
        if kind == "todo_list":  # its last state comes at the end of the turn, after the answer
            return
        is_new = self._find(kind, name) is None
        if is_new and self._is_idle and not self._open:
            self.model_turns += 1
            self._is_idle = False
            if self._max_turns is not None and self.model_turns > self._max_turns:
                self.over_limit = self.ended = True
        if kind in TEXTS:
            return
        if ended:
            self._open.discard(name)
            self._is_idle = not self._open
        else:
            self._open.add(name)


_TOKENS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
type Tokens = dict[str, int]


def add_tokens(counts: Iterable[Tokens | None]) -> Tokens | None:
    """Add token counts; None if all are unknown."""
    total: Tokens | None = None
    for tokens in counts:
        if tokens is not None:
            total = {name: (total or {}).get(name, 0) + tokens.get(name, 0) for name in _TOKENS}
    return total


def take_tokens(usage: Any) -> Tokens | None:
    """Read the token counts of a usage object."""
    if not isinstance(usage, dict):
        return None
    return {name: n for name in _TOKENS if (n := integer_at(usage, name)) is not None}


def subtract_tokens(after: Tokens, before: Tokens | None) -> Tokens:
    """Return what was added to a running total; a total that was reset counts as it is."""
    if before is None or any(after.get(name, 0) < before.get(name, 0) for name in _TOKENS):
        return after
    return {name: n - before.get(name, 0) for name, n in after.items()}
