"""Read the lines of `gemini --output-format stream-json`, one turn at a time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from assay.adapters.reading import (
    EventReader,
    TrialClock,
    epoch_ms,
    object_at,
    objects_at,
    or_unset,
    parse_line,
    text_at,
    value_at,
)
from assay.records.capture import AnyStep, Message, Plan, ToolCall
from assay.records.recording import RawLine


@dataclass
class Text:
    """A message: all chunks between two tool events."""

    pieces: list[str]
    t_ms: float
    at_ms: float | None

    @property
    def content(self) -> str:
        return "".join(self.pieces)


@dataclass
class Use:
    """A tool call and, once it has arrived, its result."""

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


class GeminiTurn(EventReader):
    """Reads the lines of one turn."""

    ending = frozenset({"result", "error"})

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, list[Use]] = {}
        """Calls without a result, by id."""
        self.parts: list[Text | Use] = []
        self.model: str | None = None
        self.result: Result | None = None
        self.errors: list[tuple[str, str]] = []
        """Severity and message of error events."""
        self._not_json: list[bytes] = []

    def output(self) -> str:
        """The text after the last tool call."""
        last = self.parts[-1] if self.parts else None
        return last.content if isinstance(last, Text) else ""

    def read_whole(self) -> None:
        """Read a turn without events as one JSON object, as `--output-format json` prints it."""
        if self.events.mapped or not self._not_json:
            return
        whole = parse_line(b"\n".join(self._not_json))
        if not isinstance(whole, dict) or "stats" not in whole:
            return
        self.events.mapped, self.events.unparsed = self.events.total, 0
        self.session_id = text_at(whole, "session_id")
        if text := text_at(whole, "response"):
            self.parts.append(Text([text], 0, None))
        error = whole.get("error")
        failed = isinstance(error, dict)
        self.result = Result(
            "error" if failed else "success",
            error if failed else None,
            _stream_stats(whole["stats"]),
        )
        self.ended = True

    def _read_other(self, value: Any, line: RawLine) -> Sequence[AnyStep]:
        self._not_json.append(line.text)
        return super()._read_other(value, line)

    def _read(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        kind, at_ms = event.get("type"), epoch_ms(event.get("timestamp"))
        if kind == "init":
            self.session_id = text_at(event, "session_id") or self.session_id
            self.model = text_at(event, "model")
        elif kind == "message" and event.get("role") in ("user", "assistant"):
            if event["role"] == "assistant":
                return self._add_text(text_at(event, "content") or "", t_ms, at_ms)
        elif kind == "tool_use":
            use = Use(
                str(event.get("tool_id")),
                str(event.get("tool_name")),
                event.get("parameters"),
                t_ms,
                at_ms,
            )
            self.parts.append(use)
            self._open.setdefault(use.id, []).append(use)
            return [_live_step(use)]
        elif kind == "tool_result":
            return self._end_call(event, t_ms, at_ms)
        elif kind == "error":
            self.errors.append((str(event.get("severity")), str(event.get("message"))))
        elif kind == "result":
            error, stats = object_at(event, "error"), object_at(event, "stats")
            self.result = Result(str(event.get("status")), error or None, stats)
            self.ended = True
        else:
            self._unknown(str(kind) if "type" in event else "no type")
        return ()

    def _add_text(self, piece: str, t_ms: int, at_ms: float | None) -> Sequence[AnyStep]:
        if not piece:
            return ()
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Text):  # messages come in chunks, without an id
            last.pieces.append(piece)
        else:
            self.parts.append(Text([piece], t_ms, at_ms))
        return [Message(content=piece, timestamp=t_ms, step_id=f"text-{len(self.parts)}")]

    def _end_call(self, event: dict[str, Any], t_ms: int, at_ms: float | None) -> Sequence[AnyStep]:
        tool_id = text_at(event, "tool_id")
        if tool_id is not None and (calls := self._open.get(tool_id)):
            use = calls.pop()
            use.result, use.result_t_ms, use.result_at_ms = event, t_ms, at_ms
            return [_live_step(use)]
        self._unknown("tool_result")  # no call with this id is open
        return ()


def _live_step(use: Use) -> ToolCall:
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
    """Convert the statistics of the JSON format into those of the stream's result."""
    models: dict[str, Any] = {}
    for name, model in object_at(stats, "models").items():
        tokens = value_at(model, "tokens")
        if isinstance(tokens, dict):
            keys = {"total_tokens": "total", "input_tokens": "prompt", "cached": "cached"}
            keys |= {"output_tokens": "candidates", "input": "input"}
            models[name] = {ours: tokens.get(theirs, 0) for ours, theirs in keys.items()}
    names = ("total_tokens", "input_tokens", "output_tokens", "cached", "input")
    sums = {name: sum(model[name] for model in models.values()) for name in names}
    return {**sums, "models": models}


SHELL, TODOS = "run_shell_command", "write_todos"
_WRAPPED = re.compile(r"\A<untrusted_context[^>]*>\n(.*)\n</untrusted_context>\s*\Z", re.DOTALL)
_SHELL = re.compile(
    r"\AOutput: (?P<output>.*?)(?:\nError: (?P<error>[^\n]*))?"
    r"(?:\nExit Code: (?P<code>-?\d{1,10}))?"
    r"(?:\nSignal: (?P<signal>[^\n]*))?(?:\nBackground PIDs: [^\n]*)?"
    r"(?:\nProcess Group PGID: (?P<group>\d+))?\Z",
    re.DOTALL,
)
_CUT = re.compile(r"\AOutput too large\. Showing first [^\n]*\n")
_BLOCKED = "Command injection detected"
_DENIED = re.compile(r"denied|policy", re.IGNORECASE)
_EMPTY = "(empty)"


def tool_step(
    use: Use | None,
    call: dict[str, Any] | None,
    clock: TrialClock,
    turn: int | None = None,
    parent: str | None = None,
    default_ms: float = 0,
) -> ToolCall:
    """Make the step of a call; one without a result was stopped along with the agent."""
    begun, duration = _times(use, call, clock, default_ms)
    return ToolCall(
        name=use.name if use is not None else str((call or {}).get("name")),
        timestamp=begun,
        duration=duration,
        input=use.input if use is not None else (call or {}).get("args", UNSET),
        call_id=use.id if use is not None else str((call or {}).get("id")),
        turn=or_unset(turn),
        parent=or_unset(parent),
        **_outcome(use, call),
    )


def todo_step(step: ToolCall) -> Plan | None:
    """Return the plan that a write_todos call wrote; None for any other call."""
    todos = value_at(step.input, "todos")
    if step.name != TODOS or step.status != "completed" or not isinstance(todos, list):
        return None
    entries = [
        {"content": todo.get("description", ""), "status": todo.get("status", "pending")}
        for todo in objects_at(step.input, "todos")
    ]
    return Plan(entries=entries, timestamp=step.timestamp, turn=step.turn, parent=step.parent)


def is_denied(use: Use) -> bool:
    return bool(_DENIED.search(str(value_at(use.result, "error", "type"))))


def _outcome(use: Use | None, call: dict[str, Any] | None) -> dict[str, Any]:
    """Return how the call ended: status, output, error, exit code.

    The stream's output is text for display; the response to the model is in the session file.
    """
    result = use.result if use is not None else None
    response = _response(call)
    shown = (result or {}).get("output", (call or {}).get("resultDisplay"))
    status = (result or {}).get("status", (call or {}).get("status"))
    if result is None and response is None:
        return {"status": "cancelled"}
    if status == "error":
        message = value_at(result, "error", "message")
        text = message or response or shown or "failed"
        output = response if response is not None else message or shown
        return {"status": "failed", "output": or_unset(output), "error": str(text)}
    if status == "cancelled":
        return {"status": "cancelled", "output": or_unset(response or shown)}
    name = use.name if use is not None else (call or {}).get("name")
    if name == SHELL:
        return _shell(response, shown)
    return {"status": "completed", "output": or_unset(shown if response is None else response)}


def _shell(response: Any, shown: Any) -> dict[str, Any]:
    """Read the result of a shell command: the stream reports a failed one as success."""
    text = response if isinstance(response, str) else shown
    # Commands with $( or backticks are not run, yet their status is "success" too.
    if isinstance(text, str) and text.startswith(_BLOCKED):
        return {"status": "failed", "output": text, "error": text}
    # Without the blanks at the end, which the pattern would look for at every place.
    match = _SHELL.match(response.rstrip()) if isinstance(response, str) else None
    if match is None:
        return {"status": "completed", "output": or_unset(text)}
    output = "" if match["output"] == _EMPTY else match["output"]
    if isinstance(shown, str) and len(shown) > len(output) > 0:
        output = shown  # long output is truncated for the model
    outcome: dict[str, Any] = {"status": "completed", "output": output}
    if match["code"] is not None or match["group"] is not None:
        # "Exit Code" is printed only if it is not 0; the process group shows that the command ran.
        outcome["exit_code"] = int(match["code"] or 0)
    why = match["error"] or (f"signal {match['signal']}" if match["signal"] else None)
    if match["code"] not in (None, "0"):
        why = f"exit code {match['code']}"
    if match["signal"] and match["code"] is None:
        outcome.pop("exit_code", None)
    return outcome | ({"status": "failed", "error": why} if why else {})


def _response(call: dict[str, Any] | None) -> Any:
    """Return the tool's response to the model; None if there is none."""
    results = (call or {}).get("result")
    answers: list[Any] = []
    for part in results if isinstance(results, list) else [results]:
        response = value_at(part, "functionResponse", "response")
        if isinstance(response, dict):
            answers.append(response.get("output", response.get("error", response)))
    if not answers:
        return None
    answer = answers[0] if len(answers) == 1 else answers
    if isinstance(answer, str):
        answer = _CUT.sub("", answer)
    # Output from outside is wrapped in a tag for the model, with the closing tag escaped inside.
    wrapped = _WRAPPED.match(answer) if isinstance(answer, str) else None
    return (
        wrapped[1].replace("&lt;/untrusted_context&gt;", "</untrusted_context>")
        if wrapped
        else answer
    )


def _times(
    use: Use | None, call: dict[str, Any] | None, clock: TrialClock, default_ms: float
) -> tuple[float, Any]:
    begun = clock.at(use.at_ms) if use is not None else None
    ended_at = use.result_at_ms if use is not None else None
    ended = clock.at(ended_at or epoch_ms((call or {}).get("timestamp")))
    # Prefer the agent's own clock, and never mix it with ours in one duration.
    if begun is not None:
        return begun, UNSET if ended is None else max(ended - begun, 0)
    if use is None:
        return (default_ms if ended is None else ended), UNSET
    return use.t_ms, UNSET if use.result_t_ms is None else use.result_t_ms - use.t_ms
