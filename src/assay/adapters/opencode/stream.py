"""Read the lines of `opencode run --format json`, one turn at a time."""

from collections.abc import Sequence
from typing import Any

from assay.adapters.reading import (
    EventReader,
    StepBuilder,
    cost_at,
    integer_at,
    number_at,
    object_at,
    text_at,
    value_at,
)
from assay.records.capture import AnyStep, Message, Usage
from assay.records.recording import RawLine

_PARTS = frozenset({"step_start", "step_finish", "text", "reasoning", "tool_use"})
_GOES_ON = frozenset({"tool-calls", "unknown"})
"""Finish reasons after which OpenCode calls the model again; "unknown" is a stream that broke off,
which it takes for an answer."""


class OpenCodeTurn(EventReader):
    """Reads the lines of one turn. There is no event for its end, so it follows from the parts."""

    ending = frozenset({"step_start", "step_finish", "error"})

    def __init__(self, turn: int | None = None, max_turns: int | None = None) -> None:
        super().__init__()
        self._builder = StepBuilder(turn)
        self._max_turns = max_turns
        self._answer: list[str] = []
        self._plain_lines: list[str] = []
        """Lines that are not JSON: the answer itself if the user chose another format."""
        self.parts = PartReader(self._builder)
        self.over_limit = False
        self.usage: Usage | None = None
        self.n_calls = 0
        """Model calls that have ended."""
        self.reason: str | None = None
        """Why the last model call ended, unless another has started."""
        self.error: dict[str, Any] | None = None
        """The last error, unless another model call has started."""
        self.overflow: dict[str, Any] | None = None
        """The error for a context that was too long; OpenCode may compact it and continue."""
        self.last_ms = 0.0
        """When the last line was written, in milliseconds since the epoch."""
        self.part_ids: set[str] = set()

    @property
    def steps(self) -> list[AnyStep]:
        return self._builder.steps

    def output(self) -> str:
        """The text of the last model call, else all messages."""
        if self._answer:
            return "\n".join(self._answer)
        messages = [s.content for s in self.steps if isinstance(s, Message) and not s.parent]
        return "\n".join(messages or self._plain_lines)

    def _read_other(self, value: Any, line: RawLine) -> Sequence[AnyStep]:
        self._plain_lines.append(line.text.decode("utf-8", "replace"))
        return super()._read_other(value, line)

    def _read(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        kind = text_at(event, "type")
        self.session_id = text_at(event, "sessionID") or self.session_id
        at = number_at(event, "timestamp")
        self.last_ms = self.last_ms if at is None else at
        if kind == "error":
            error = event.get("error")
            self.error = error if isinstance(error, dict) else {"data": {"message": str(error)}}
            if self.error.get("name") == "ContextOverflowError":
                self.overflow = self.error
        elif kind not in _PARTS:
            self._unknown("(no type)" if kind is None else kind)
            return ()
        part = event.get("part")
        return self._part(str(kind), part, t_ms) if isinstance(part, dict) else []

    def _part(self, kind: str, part: dict[str, Any], t_ms: int) -> list[AnyStep]:
        self.part_ids.add(str(part.get("id")))
        if kind == "step_start":
            # OpenCode compacts a context that is too long and continues after the error.
            self._answer, self.reason, self.error = [], None, None
            self.ended = self.over_limit
            return []
        if kind == "step_finish":
            self.n_calls += 1
            self.reason = str(part.get("reason"))
            self.ended = self.reason not in _GOES_ON
            usage = usage_of_part(part)
            self.usage = usage if self.usage is None else self.usage.plus(usage)
            # OpenCode does not enforce its own "steps" setting.
            if self._max_turns is not None and self.n_calls >= self._max_turns and not self.ended:
                self.ended = self.over_limit = True
            return []
        if part.get("synthetic") is True:  # OpenCode's own message, which makes the model continue
            self.ended = self.over_limit
        # The line of a text or a call comes at its end: move its step back to its start.
        began = began_ms(part)
        ago_ms = self.last_ms - began if began is not None and self.last_ms else 0.0
        steps = self.parts.read(part, max(0.0, t_ms - max(0.0, ago_ms)))
        self._answer += [step.content for step in steps if isinstance(step, Message)]
        return steps


def usage_of_part(part: dict[str, Any]) -> Usage:
    """Read the tokens of one model call; the categories do not overlap.

    OpenCode reports a cost of 0 for a model whose price it does not know.
    """
    tokens, cache = object_at(part, "tokens"), object_at(part, "tokens", "cache")
    counts = {
        "input_tokens": number_at(tokens, "input"),
        "output_tokens": number_at(tokens, "output"),
        "reasoning_tokens": number_at(tokens, "reasoning"),
        "cache_read_tokens": number_at(cache, "read"),
        "cache_write_tokens": number_at(cache, "write"),
    }
    known: dict[str, Any] = {name: int(n) for name, n in counts.items() if n is not None}
    if cost := cost_at(part, "cost"):
        known |= {"cost_usd": cost, "cost_source": "reported"}
    return Usage(**known)


_STATUS = {"completed": "completed", "error": "failed", "running": "in_progress"}
_TIMED_OUT = "<shell_metadata>"
_REJECTED = "rejected permission"


class PartReader:
    """Turns parts into steps; t_ms is when a part started, since the start of the trial."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder = builder
        self.children: dict[str, str] = {}
        """Sessions of sub-agents, by the id of the call that started them."""
        self.denied: set[str] = set()
        """Calls that were denied a permission."""

    def read(self, part: dict[str, Any], t_ms: float, parent: str | None = None) -> list[AnyStep]:
        """Return the steps of a text, a thought or a tool call; other parts have none."""
        kind = part.get("type")
        if kind == "tool":
            return self._tool(part, t_ms, parent)
        text = part.get("text")
        if part.get("synthetic") is True or not isinstance(text, str) or not text:
            return []  # synthetic: OpenCode's own message to the model
        if kind == "reasoning":
            return [self.builder.thought(text, round(t_ms), parent)]
        return [self.builder.message(text, round(t_ms), parent)] if kind == "text" else []

    def _tool(self, part: dict[str, Any], t_ms: float, parent: str | None) -> list[AnyStep]:
        state = object_at(part, "state")
        name, call_id = str(part.get("tool") or "unknown"), str(part.get("callID"))
        given = state.get("input")
        error = tool_error(name, state)
        if name == "invalid" and isinstance(given, dict):  # unknown tool or malformed input
            name = str(given.get("tool") or name)
        if error is not None and _REJECTED in error:
            self.denied.add(call_id)
        if child := text_at(state, "metadata", "sessionId"):
            self.children[call_id] = child
        status = "failed" if error is not None else _STATUS.get(str(state.get("status")), "pending")
        start, end = number_at(state, "time", "start"), number_at(state, "time", "end")
        step = self.builder.tool(
            round(t_ms),
            status=status,
            name=name,
            call_id=call_id,
            input=given,
            output=_output(state, error),
            error=error,
            exit_code=integer_at(state, "metadata", "exit"),
            duration=None if start is None or end is None else max(0.0, end - start),
            parent=parent,
        )
        todos = value_at(given, "todos") if name == "todowrite" else None
        if isinstance(todos, list) and error is None:
            return [step, self.builder.plan(todos, round(t_ms), None, parent)]
        return [step]


def _output(state: dict[str, Any], error: str | None) -> Any:
    """Return a call's output; if it was truncated, the metadata may hold more of it."""
    output, more = state.get("output", error), value_at(state, "metadata", "output")
    cut = value_at(state, "metadata", "truncated") is True
    if cut and isinstance(output, str) and isinstance(more, str) and len(more) > len(output):
        return f"{output}\n{more}"
    return output


def tool_error(name: str, state: dict[str, Any]) -> str | None:
    """Return how a call failed; OpenCode reports failed and timed-out commands as completed."""
    if state.get("status") == "error":
        return str(state.get("error") or "failed")
    given, metadata = state.get("input"), object_at(state, "metadata")
    if name == "invalid":
        return str(given.get("error") if isinstance(given, dict) else state.get("output"))
    if "exit" not in metadata or state.get("status") != "completed":
        return None
    exit_code = metadata["exit"]
    if exit_code is None:  # timed out
        _, found, tail = str(state.get("output")).rpartition(_TIMED_OUT)
        return tail.split("</")[0].strip()[:500] if found else None
    return f"exit code {exit_code}" if exit_code != 0 else None


def began_ms(part: dict[str, Any]) -> float | None:
    """Return when a part started, in milliseconds since the epoch, by OpenCode's clock."""
    state = part.get("state")
    return number_at(state if isinstance(state, dict) else part, "time", "start")
