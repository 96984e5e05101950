"""Read one part of an OpenCode message, from the stream or from its database, into steps."""

from typing import Any

from assay.adapters.steps import StepBuilder
from assay.records.trajectory import AnyStep

_STATUS = {"completed": "completed", "error": "failed", "running": "in_progress"}
_TIMED_OUT = "<shell_metadata>"
_REJECTED = "rejected permission"


class PartReader:
    """Puts parts into steps; t_ms is the moment of the trial at which a part began."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder = builder
        self.children: dict[str, str] = {}
        """Sessions of sub-agents, by the call that began them."""
        self.denied: set[str] = set()
        """Calls that were refused a permission."""

    def read(self, part: dict[str, Any], t_ms: float, parent: str | None = None) -> list[AnyStep]:
        """Give the steps of a text, a thought or a tool call; others have none."""
        kind = part.get("type")
        if kind == "tool":
            return self._tool(part, t_ms, parent)
        text = part.get("text")
        if part.get("synthetic") is True or not isinstance(text, str) or not text:
            return []  # synthetic: said by OpenCode to the model
        if kind == "reasoning":
            return [self.builder.thought(text, round(t_ms), parent)]
        return [self.builder.message(text, round(t_ms), parent)] if kind == "text" else []

    def _tool(self, part: dict[str, Any], t_ms: float, parent: str | None) -> list[AnyStep]:
        said = part.get("state")
        state: dict[str, Any] = said if isinstance(said, dict) else {}
        name, call_id = str(part.get("tool") or "unknown"), str(part.get("callID"))
        given = state.get("input")
        error = tool_error(name, state)
        if name == "invalid" and isinstance(given, dict):
            name = str(given.get("tool") or name)
        if error is not None and _REJECTED in error:
            self.denied.add(call_id)
        child = _metadata(state).get("sessionId")
        if isinstance(child, str) and child:
            self.children[call_id] = child
        status = "failed" if error is not None else _STATUS.get(str(state.get("status")), "pending")
        step = self.builder.tool(
            round(t_ms),
            status=status,
            name=name,
            call_id=call_id,
            input=given,
            output=_output(state, error),
            error=error,
            exit_code=_exit_code(state),
            duration=_length_ms(state),
            parent=parent,
        )
        todos = given.get("todos") if isinstance(given, dict) and name == "todowrite" else None
        if isinstance(todos, list) and error is None:
            return [step, self.builder.plan(todos, round(t_ms), None, parent)]
        return [step]


def _output(state: dict[str, Any], error: str | None) -> Any:
    """Give what a call brought; cut-off output may stand whole only in the metadata."""
    told, more = state.get("output", error), _metadata(state).get("output")
    cut = _metadata(state).get("truncated") is True
    if cut and isinstance(told, str) and isinstance(more, str) and len(more) > len(told):
        return f"{told}\n{more}"
    return told


def tool_error(name: str, state: dict[str, Any]) -> str | None:
    """Say how a call failed: a command that exits with 3 or runs too long is "completed" here."""
    if state.get("status") == "error":
        return str(state.get("error") or "failed")
    given, metadata = state.get("input"), _metadata(state)
    if name == "invalid":
        return str(given.get("error") if isinstance(given, dict) else state.get("output"))
    if "exit" not in metadata or state.get("status") != "completed":
        return None
    exit_code = metadata["exit"]
    if exit_code is None:
        _, found, tail = str(state.get("output")).rpartition(_TIMED_OUT)
        return tail.split("</")[0].strip()[:500] if found else None
    return f"exit code {exit_code}" if exit_code != 0 else None


def began_ms(part: dict[str, Any]) -> float | None:
    """Give the moment since the epoch at which a part began, by OpenCode's clock."""
    state = part.get("state")
    holder = state if isinstance(state, dict) else part
    return _number(holder, "start")


def _length_ms(state: dict[str, Any]) -> float | None:
    start, end = _number(state, "start"), _number(state, "end")
    return None if start is None or end is None else max(0.0, end - start)


def _number(holder: dict[str, Any], name: str) -> float | None:
    time = holder.get("time")
    value = time.get(name) if isinstance(time, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _exit_code(state: dict[str, Any]) -> int | None:
    code = _metadata(state).get("exit")
    return code if isinstance(code, int) else None


def _metadata(state: dict[str, Any]) -> dict[str, Any]:
    metadata = state.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
