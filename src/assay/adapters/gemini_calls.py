"""Make steps of Gemini's tool calls from the stream's events, the session file, or both."""

import re
from typing import Any

from msgspec import UNSET

from assay.adapters.gemini_stream import Use
from assay.adapters.moments import TrialClock, epoch_ms
from assay.records.trajectory import Plan, ToolCall

SHELL, TODOS = "run_shell_command", "write_todos"
_WRAPPED = re.compile(r"\A<untrusted_context[^>]*>\n(.*)\n</untrusted_context>\s*\Z", re.DOTALL)
_SHELL = re.compile(
    r"\AOutput: (?P<output>.*?)(?:\nError: (?P<error>[^\n]*))?(?:\nExit Code: (?P<code>-?\d+))?"
    r"(?:\nSignal: (?P<signal>[^\n]*))?(?:\nBackground PIDs: [^\n]*)?"
    r"(?:\nProcess Group PGID: (?P<group>\d+))?\s*\Z",
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
    """Make the step of a call that is over: one without result was cut off with the agent."""
    told = _told(use, call)
    begun, duration = _times(use, call, clock, default_ms)
    return ToolCall(
        name=use.name if use is not None else str((call or {}).get("name")),
        timestamp=begun,
        duration=duration,
        input=use.input if use is not None else (call or {}).get("args", UNSET),
        call_id=use.id if use is not None else str((call or {}).get("id")),
        turn=UNSET if turn is None else turn,
        parent=UNSET if parent is None else parent,
        **told,
    )


def todo_step(step: ToolCall) -> Plan | None:
    """Give the plan that a call has written."""
    todos = step.input.get("todos") if isinstance(step.input, dict) else None
    if step.name != TODOS or step.status != "completed" or not isinstance(todos, list):
        return None
    entries = [
        {"content": todo.get("description", ""), "status": todo.get("status", "pending")}
        for todo in todos
        if isinstance(todo, dict)
    ]
    return Plan(entries=entries, timestamp=step.timestamp, turn=step.turn, parent=step.parent)


def is_denied(use: Use) -> bool:
    """Whether the call was not permitted."""
    error = (use.result or {}).get("error")
    return isinstance(error, dict) and bool(_DENIED.search(str(error.get("type"))))


def _told(use: Use | None, call: dict[str, Any] | None) -> dict[str, Any]:
    """Say how the call ended: status, output, error, exit code."""
    result = use.result if use is not None else None
    response = _response(call)
    shown = (result or {}).get("output", (call or {}).get("resultDisplay"))
    status = (result or {}).get("status", (call or {}).get("status"))
    if result is None and response is None:
        return {"status": "cancelled"}
    if status == "error":
        return _failed(result, response, shown)
    if status == "cancelled":
        return {"status": "cancelled", "output": _or_unset(response or shown)}
    name = use.name if use is not None else (call or {}).get("name")
    if name == SHELL:
        return _shell(response, shown)
    return {"status": "completed", "output": _or_unset(shown if response is None else response)}


def _failed(result: dict[str, Any] | None, response: Any, shown: Any) -> dict[str, Any]:
    error = (result or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    text = message or response or shown or "failed"
    output = response if response is not None else message or shown
    return {"status": "failed", "output": _or_unset(output), "error": str(text)}


def _shell(response: Any, shown: Any) -> dict[str, Any]:
    """Read the answer to a shell command: the stream calls a failed one a success."""
    text = response if isinstance(response, str) else shown
    if isinstance(text, str) and text.startswith(_BLOCKED):
        return {"status": "failed", "output": text, "error": text}
    said = _SHELL.match(response) if isinstance(response, str) else None
    if said is None:
        return {"status": "completed", "output": _or_unset(text)}
    output = "" if said["output"] == _EMPTY else said["output"]
    if isinstance(shown, str) and len(shown) > len(output) > 0:
        output = shown  # the model was given less than was shown
    told: dict[str, Any] = {"status": "completed", "output": output}
    if said["code"] is not None or said["group"] is not None:
        told["exit_code"] = int(said["code"] or 0)
    why = said["error"] or (f"signal {said['signal']}" if said["signal"] else None)
    if said["code"] not in (None, "0"):
        why = f"exit code {said['code']}"
    if said["signal"] and said["code"] is None:
        del told["exit_code"]
    return told | ({"status": "failed", "error": why} if why else {})


def _response(call: dict[str, Any] | None) -> Any:
    """Give what the model was answered."""
    results = (call or {}).get("result")
    answers: list[Any] = []
    for part in results if isinstance(results, list) else [results]:
        function = part.get("functionResponse") if isinstance(part, dict) else None
        response = function.get("response") if isinstance(function, dict) else None
        if isinstance(response, dict):
            answers.append(response.get("output", response.get("error", response)))
    if not answers:
        return None
    answer = answers[0] if len(answers) == 1 else answers
    if isinstance(answer, str):
        answer = _CUT.sub("", answer)
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
    if begun is not None:
        return begun, UNSET if ended is None else max(ended - begun, 0)
    if use is None:
        return (default_ms if ended is None else ended), UNSET
    return use.t_ms, UNSET if use.result_t_ms is None else use.result_t_ms - use.t_ms


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
