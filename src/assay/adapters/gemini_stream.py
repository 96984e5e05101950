"""Read the lines of `gemini --output-format stream-json`, one turn at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from assay.adapters.events import is_readable, parse_line
from assay.adapters.moments import epoch_ms
from assay.records.capture import Events
from assay.records.recording import RawLine
from assay.records.trajectory import AnyStep, Message, ToolCall


@dataclass
class Text:
    """A message: all pieces between two tool events."""

    pieces: list[str]
    t_ms: float
    at_ms: float | None

    @property
    def content(self) -> str:
        """All of it."""
        return "".join(self.pieces)


@dataclass
class Use:
    """A tool call and, once it came, its result."""

    id: str
    name: str
    input: Any
    t_ms: float
    at_ms: float | None
    result: dict[str, Any] | None = None
    result_t_ms: float | None = None
    result_at_ms: float | None = None


@dataclass
class Result:
    """The terminal event."""

    status: str = ""
    error: dict[str, Any] | None = None
    stats: dict[str, Any] = field(default_factory=dict)


class GeminiTurn:
    """Takes the lines of one turn."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.ended = False
        self.parts: list[Text | Use] = []
        self.model: str | None = None
        self.result: Result | None = None
        self.errors: list[tuple[str, str]] = []
        """Severity and message of error events."""
        self.events = Events()
        self._not_json: list[bytes] = []

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; give the steps it began or changed, a message piece by piece."""
        if not is_readable(line, self.events):
            return ()
        event = parse_line(line.text)
        if not isinstance(event, dict):
            self.events.unparsed += 1
            self._not_json.append(line.text)
            return ()
        known, changed = self._read(event, line.t_ms)
        if known:
            self.events.mapped += 1
        else:
            name = str(event.get("type", "no type"))
            self.events.unknown[name] = self.events.unknown.get(name, 0) + 1
        return changed

    def output(self) -> str:
        """What was said last, after all tools; not a word of what came before them."""
        last = self.parts[-1] if self.parts else None
        return last.content if isinstance(last, Text) else ""

    def settle(self) -> None:
        """Read a turn whose lines are no events: all of them may be one JSON object.

        That is what `--output-format json` prints.
        """
        if self.events.mapped or not self._not_json:
            return
        whole = parse_line(b"\n".join(self._not_json))
        if not isinstance(whole, dict) or "stats" not in whole:
            return
        self.events.mapped, self.events.unparsed = self.events.total, 0
        self.session_id = _text(whole.get("session_id"))
        if text := _text(whole.get("response")):
            self.parts.append(Text([text], 0, None))
        error = whole.get("error")
        failed = isinstance(error, dict)
        self.result = Result(
            "error" if failed else "success",
            error if failed else None,
            _stream_stats(whole["stats"]),
        )
        self.ended = True

    def _read(self, event: dict[str, Any], t_ms: int) -> tuple[bool, Sequence[AnyStep]]:
        kind, at_ms = event.get("type"), epoch_ms(event.get("timestamp"))
        if kind == "init":
            self.session_id = _text(event.get("session_id")) or self.session_id
            self.model = _text(event.get("model"))
        elif kind == "message" and event.get("role") in ("user", "assistant"):
            if event["role"] == "assistant":
                return True, self._say(_text(event.get("content")) or "", t_ms, at_ms)
        elif kind == "tool_use":
            use = Use(
                str(event.get("tool_id")),
                str(event.get("tool_name")),
                event.get("parameters"),
                t_ms,
                at_ms,
            )
            self.parts.append(use)
            return True, [_live(use)]
        elif kind == "tool_result":
            return self._end_call(event, t_ms, at_ms)
        elif kind == "error":
            self.errors.append((str(event.get("severity")), str(event.get("message"))))
        elif kind == "result":
            self._take_result(event)
        else:
            return False, ()
        return True, ()

    def _say(self, piece: str, t_ms: int, at_ms: float | None) -> Sequence[AnyStep]:
        if not piece:
            return ()
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Text):
            last.pieces.append(piece)
        else:
            self.parts.append(Text([piece], t_ms, at_ms))
        return [Message(content=piece, timestamp=t_ms, step_id=f"text-{len(self.parts)}")]

    def _end_call(
        self, event: dict[str, Any], t_ms: int, at_ms: float | None
    ) -> tuple[bool, Sequence[AnyStep]]:
        for part in reversed(self.parts):
            if isinstance(part, Use) and part.id == event.get("tool_id") and part.result is None:
                part.result, part.result_t_ms, part.result_at_ms = event, t_ms, at_ms
                return True, [_live(part)]
        return False, ()

    def _take_result(self, event: dict[str, Any]) -> None:
        error, stats = event.get("error"), event.get("stats")
        self.result = Result(
            str(event.get("status")),
            error if isinstance(error, dict) else None,
            stats if isinstance(stats, dict) else {},
        )
        self.ended = True


def _live(use: Use) -> ToolCall:
    result = use.result
    status = "in_progress"
    if result is not None:
        status = "failed" if result.get("status") == "error" else "completed"
    return ToolCall(
        name=use.name,
        status=status,
        timestamp=use.t_ms,
        input=use.input,
        output=UNSET if result is None else result.get("output", UNSET),
        call_id=use.id,
    )


def _stream_stats(stats: Any) -> dict[str, Any]:
    """Say the statistics of the JSON format as the stream's result does."""
    models: dict[str, Any] = {}
    found = stats.get("models") if isinstance(stats, dict) else None
    for name, model in found.items() if isinstance(found, dict) else ():
        tokens = model.get("tokens") if isinstance(model, dict) else None
        if isinstance(tokens, dict):
            theirs = {"total_tokens": "total", "input_tokens": "prompt", "cached": "cached"}
            theirs |= {"output_tokens": "candidates", "input": "input"}
            models[name] = {ours: tokens.get(key, 0) for ours, key in theirs.items()}
    names = ("total_tokens", "input_tokens", "output_tokens", "cached", "input")
    sums = {name: sum(model[name] for model in models.values()) for name in names}
    return {**sums, "models": models}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
