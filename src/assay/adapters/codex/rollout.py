"""Read Codex's own session file, the rollout: turns, calls, times, tokens, errors."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.codex.stream import Tokens, add_tokens, subtract_tokens, take_tokens
from assay.adapters.reading import epoch_ms, join_texts, number_at, objects_at, parse_line, text_at

ITEM_TYPES = {
    "CommandExecution": "command_execution",
    "FileChange": "file_change",
    "McpToolCall": "mcp_tool_call",
    "CollabAgentToolCall": "collab_tool_call",
    "WebSearch": "web_search",
}
"""Types of tool call items, in the rollout and in the stream."""


@dataclass
class Call:
    """A tool call of the model, and the item that records what it did."""

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
    """In code mode, the call whose script made this one."""
    cut: bool = False
    """It ended only because the agent did."""


@dataclass
class TextEntry:
    """A message or a thought."""

    type: str
    """The stream's name for it: agent_message or reasoning."""
    id: str | None
    text: str
    at_ms: float | None = None


type Entry = Call | TextEntry


@dataclass
class Segment:
    """What the rollout holds of one turn."""

    at_ms: float | None = None
    asked: list[str] = field(default_factory=list)
    """What the user said in it."""
    last_ms: float = 0.0
    """When its last line was written."""
    entries: list[Entry] = field(default_factory=list)
    tokens: Tokens | None = None
    context: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    over: bool = False
    tools: list[str] = field(default_factory=list)
    total: Tokens | None = None
    """Of the thread, at the end of this turn; used if answers have no records of their own."""


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
        """Whether it starts with a copy of another thread's history."""
        return bool(self.meta.get("forked_from_id"))


_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")


def read_rollouts(kept: Path | None) -> dict[str, Rollout]:
    """Read every rollout among the kept files, keyed by thread id."""
    if kept is None:
        return {}
    found: dict[str, Rollout] = {}
    for path in sorted(kept.rglob("*.jsonl")):
        with path.open("rb") as file:
            rollout = read_rollout(file)
        if rollout.id:
            found[rollout.id] = rollout
    return found


def read_rollout(lines: Iterable[bytes]) -> Rollout:
    """Read the lines of one rollout; unknown lines are skipped."""
    rollout = Rollout()
    reader = _Reader(rollout)
    for line in lines:
        entry = parse_line(line)
        if isinstance(entry, dict) and isinstance(entry.get("payload"), dict):
            reader.take(entry.get("type"), entry["payload"], epoch_ms(entry.get("timestamp")))
    # Where answers have no token records of their own, running totals tell.
    before: Tokens | None = None
    for segment in rollout.segments:
        if segment.tokens is None and segment.total and any(segment.total.values()):
            segment.tokens = subtract_tokens(segment.total, before)
        before = segment.total or before
    return rollout


class _Reader:
    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout

    def take(self, kind: Any, payload: dict[str, Any], at_ms: float | None) -> None:
        if kind == "session_meta":
            if not self._rollout.id:  # a fork also repeats the header of its source
                self._rollout.id = str(payload.get("id") or "")
                self._rollout.meta = payload
                self._rollout.parent = text_at(payload, "parent_thread_id")
        elif kind == "turn_context":
            self._segment.context = payload
        elif kind == "token_usage_record":
            if payload.get("thread_id", self._rollout.id) == self._rollout.id:
                added = take_tokens(payload.get("usage"))
                self._segment.tokens = add_tokens([self._segment.tokens, added])
        elif kind == "event_msg":
            self._take_event(payload, at_ms)
        elif kind == "response_item":
            self._take_response(payload, at_ms)
        if at_ms is not None and self._rollout.segments:
            self._rollout.segments[-1].last_ms = at_ms

    @property
    def _segment(self) -> Segment:
        if not self._rollout.segments:
            self._rollout.segments.append(Segment())
        return self._rollout.segments[-1]

    def _take_event(self, payload: dict[str, Any], at_ms: float | None) -> None:
        kind = payload.get("type")
        segment = self._segment
        if kind == "task_started":
            # Lines before the first task_started have already opened a segment.
            if segment.at_ms is None and not segment.entries:
                segment.at_ms = at_ms
            else:
                self._rollout.segments.append(Segment(at_ms=at_ms))
        elif kind in ("task_complete", "turn_aborted"):
            segment.over = True
            error = payload.get("error")
            segment.error = error if isinstance(error, dict) else None
        elif kind == "item_completed" and isinstance(payload.get("item"), dict):
            self._take_item(payload)
        elif kind == "user_message" and (text := text_at(payload, "message")):
            self._add_asked(text)
        elif kind == "token_count" and isinstance(payload.get("info"), dict):
            segment.total = take_tokens(payload["info"].get("total_token_usage"))

    def _take_item(self, payload: dict[str, Any]) -> None:
        item, ended_ms = payload["item"], number_at(payload, "completed_at_ms")
        kind, name = str(item.get("type")), item.get("id")
        if kind == "AgentMessage":
            self._add_text("agent_message", name, _joined(item.get("content")), ended_ms)
        elif kind == "Reasoning":
            self._add_text(
                "reasoning", name, "\n\n".join(_texts(item.get("summary_text"))), ended_ms
            )
        elif kind == "UserMessage":
            self._add_asked(_joined(item.get("content"), "\n"))
        else:
            call = self._open_call(str(name), wants="item")
            if call is None and kind not in ITEM_TYPES:
                return  # not a tool call, for example a compaction
            if call is None:
                call = Call(str(name), str(item.get("tool") or kind), outer=self._outer())
                self._segment.entries.append(call)
            call.item, call.ended_ms = item, ended_ms
            call.started_ms = number_at(payload, "started_at_ms")
            # An item that ends after its turn did was stopped along with the agent.
            call.cut = self._segment.over

    def _take_response(self, payload: dict[str, Any], at_ms: float | None) -> None:
        kind, name = str(payload.get("type")), str(payload.get("call_id") or payload.get("id"))
        if kind == "message" and payload.get("role") == "assistant":
            self._add_text(
                "agent_message", payload.get("id"), _joined(payload.get("content")), at_ms
            )
        elif kind == "reasoning":
            text = _joined(payload.get("summary"), "\n\n")
            self._add_text("reasoning", payload.get("id"), text, at_ms)
        elif kind in _CALLS or kind.endswith("_call"):
            self._segment.entries.append(_call(kind, name, payload, at_ms))
        elif kind.endswith("_output"):
            call = self._open_call(name, wants="output")
            if call is not None:
                call.output, call.output_ms = output_text(payload.get("output")), at_ms
        elif kind == "additional_tools":
            self._segment.tools += _tool_names(objects_at(payload, "tools"))

    def _add_asked(self, text: str) -> None:
        """Add what the user said, once: some versions write it as an event and as an item."""
        if text and text not in self._segment.asked:
            self._segment.asked.append(text)

    def _add_text(self, kind: str, name: Any, text: str, at_ms: float | None) -> None:
        """Add a text once: the rollout holds each as an event and as a response item."""
        name = name if isinstance(name, str) else None
        for entry in self._segment.entries:
            if isinstance(entry, TextEntry) and name is not None and entry.id == name:
                return
        if text:
            self._segment.entries.append(TextEntry(kind, name, text, at_ms))

    def _open_call(self, call_id: str, wants: str) -> Call | None:
        """Find the last call with this id, unless it has its item or output already; ids repeat."""
        for entry in reversed(self._segment.entries):
            if isinstance(entry, Call) and entry.call_id == call_id:
                return entry if getattr(entry, wants) is None else None
        return None

    def _outer(self) -> str | None:
        """Return the call id of the script that is running now."""
        for entry in reversed(self._segment.entries):
            if isinstance(entry, Call) and entry.item is None and entry.output is None:
                return entry.call_id
        return None


def output_text(output: Any) -> Any:
    """Return the text of a call's output; other content unchanged."""
    if isinstance(output, dict) and "content" in output:
        output = output["content"]
    if isinstance(output, list):
        text = join_texts(output)
        return output if text is None else text
    return output


def _call(kind: str, name: str, payload: dict[str, Any], at_ms: float | None) -> Call:
    arguments = payload.get("arguments", payload.get("input", payload.get("action")))
    # The input of a custom tool is free text, even if it happens to be JSON.
    if kind != "custom_tool_call" and isinstance(arguments, str):
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # malformed: keep the text
            arguments = msgspec.json.decode(arguments)
    return Call(
        call_id=name,
        name=str(payload.get("name") or kind.removesuffix("_call")),
        namespace=text_at(payload, "namespace"),
        input=arguments,
        at_ms=at_ms,
    )


def _tool_names(tools: list[dict[str, Any]]) -> Iterator[str]:
    for tool in tools:
        if isinstance(tool.get("tools"), list):
            inner = _tool_names(objects_at(tool, "tools"))
            yield from (f"{tool.get('name')}.{name}" for name in inner)
        else:
            yield str(tool.get("name"))


def _texts(parts: Any) -> list[str]:
    listed = parts if isinstance(parts, list) else []
    texts = [part.get("text") if isinstance(part, dict) else part for part in listed]
    return [text for text in texts if isinstance(text, str)]


def _joined(parts: Any, between: str = "") -> str:
    return between.join(_texts(parts))
