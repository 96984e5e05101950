"""Read the lines of `opencode run --format json`, one turn at a time.

There is no first and no last line: a turn is over when a model call ended with a reason other than
tool calls, unless OpenCode goes on by itself (after it made its context shorter).
"""

from collections.abc import Sequence
from typing import Any

from assay.adapters.events import is_readable, parse_line
from assay.adapters.opencode_parts import PartReader, began_ms
from assay.adapters.steps import StepBuilder
from assay.records.capture import Events, Usage
from assay.records.recording import RawLine
from assay.records.trajectory import AnyStep, Message

_PARTS = frozenset({"step_start", "step_finish", "text", "reasoning", "tool_use"})
_GOES_ON = frozenset({"tool-calls", "unknown"})


class OpenCodeTurn:
    """Takes the lines of one turn."""

    def __init__(self, turn: int | None = None, max_turns: int | None = None) -> None:
        self._builder = StepBuilder(turn)
        self._max_turns = max_turns
        self._answer: list[str] = []
        self._said: list[str] = []
        """Lines that are not JSON: the answer itself when another format was asked for."""
        self.parts = PartReader(self._builder)
        self.session_id: str | None = None
        self.ended = False
        self.over_limit = False
        self.events = Events()
        self.usage: Usage | None = None
        self.n_calls = 0
        """Of the model, that ended."""
        self.reason: str | None = None
        """Why the last model call ended, unless another has begun."""
        self.error: dict[str, Any] | None = None
        """The last error, while nothing has followed it."""
        self.overflow: dict[str, Any] | None = None
        """The error about a context that was too long."""
        self.last_ms = 0.0
        """When the last line was written, since the epoch."""
        self.part_ids: set[str] = set()

    @property
    def steps(self) -> list[AnyStep]:
        """The steps so far."""
        return self._builder.steps

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; give the steps it began or changed."""
        if not is_readable(line, self.events):
            return ()
        event = parse_line(line.text)
        if not isinstance(event, dict):
            self.events.unparsed += 1
            self._said.append(line.text.decode("utf-8", "replace"))
            return ()
        return self._read(event, line.t_ms)

    def output(self) -> str:
        """What was said after the last model call began, or else all that was said."""
        if self._answer:
            return "\n".join(self._answer)
        said = [s.content for s in self.steps if isinstance(s, Message) and not s.parent]
        return "\n".join(said or self._said)

    def _read(self, event: dict[str, Any], t_ms: int) -> list[AnyStep]:
        kind, session_id = event.get("type"), event.get("sessionID")
        if isinstance(session_id, str) and session_id:
            self.session_id = session_id
        at = event.get("timestamp")
        self.last_ms = float(at) if isinstance(at, int | float) else self.last_ms
        if kind == "error":
            self._error(event.get("error"))
        elif kind not in _PARTS:
            name = kind if isinstance(kind, str) else "(no type)"
            self.events.unknown[name] = self.events.unknown.get(name, 0) + 1
            return []
        self.events.mapped += 1
        part = event.get("part")
        return self._part(str(kind), part, t_ms) if isinstance(part, dict) else []

    def _error(self, error: Any) -> None:
        said = error if isinstance(error, dict) else {"data": {"message": str(error)}}
        self.error = said
        if said.get("name") == "ContextOverflowError":
            self.overflow = said

    def _part(self, kind: str, part: dict[str, Any], t_ms: int) -> list[AnyStep]:
        self.part_ids.add(str(part.get("id")))
        if kind == "step_start":
            self._answer, self.reason, self.error = [], None, None
            self.ended = self.over_limit
            return []
        if kind == "step_finish":
            self._finish(part)
            return []
        if part.get("synthetic") is True:  # OpenCode told the model to go on
            self.ended = self.over_limit
        began = began_ms(part)
        ago_ms = self.last_ms - began if began is not None and self.last_ms else 0.0
        steps = self.parts.read(part, max(0.0, t_ms - max(0.0, ago_ms)))
        self._answer += [step.content for step in steps if isinstance(step, Message)]
        return steps

    def _finish(self, part: dict[str, Any]) -> None:
        self.n_calls += 1
        self.reason = str(part.get("reason"))
        self.ended = self.reason not in _GOES_ON
        usage = usage_of_part(part)
        self.usage = usage if self.usage is None else self.usage.plus(usage)
        if self._max_turns is not None and self.n_calls >= self._max_turns and not self.ended:
            self.ended = self.over_limit = True


def usage_of_part(part: dict[str, Any]) -> Usage:
    """Read the tokens of one model call; its classes do not overlap.

    A cost of 0 is what OpenCode says of a model that it knows no price of.
    """
    said = part.get("tokens")
    tokens: dict[str, Any] = said if isinstance(said, dict) else {}
    cached = tokens.get("cache")
    cache: dict[str, Any] = cached if isinstance(cached, dict) else {}
    counts = {
        "input_tokens": tokens.get("input"),
        "output_tokens": tokens.get("output"),
        "reasoning_tokens": tokens.get("reasoning"),
        "cache_read_tokens": cache.get("read"),
        "cache_write_tokens": cache.get("write"),
    }
    known: dict[str, Any] = {k: int(v) for k, v in counts.items() if isinstance(v, int | float)}
    cost = part.get("cost")
    if isinstance(cost, int | float) and cost > 0:
        known |= {"cost_usd": float(cost), "cost_source": "reported"}
    return Usage(**known)
