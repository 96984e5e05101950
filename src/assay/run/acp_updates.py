"""Tell steps as session updates of the Agent Client Protocol, while they happen."""

from typing import Any

import msgspec
from msgspec import UNSET

from assay.records.trajectory import AnyStep, Message, Plan, Thought, ToolCall

_STATUSES = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "success": "completed",
    "done": "completed",
    "failed": "failed",
    "error": "failed",
    "cancelled": "failed",
    "canceled": "failed",
    "rejected": "failed",
}
_PLAN_STATUSES = ("pending", "in_progress", "completed")
_KINDS = (
    ("execute", ("bash", "shell", "exec", "command", "terminal")),
    ("edit", ("edit", "write", "patch", "replace", "create")),
    ("read", ("read", "cat", "view", "open")),
    ("search", ("grep", "glob", "search", "find", "ls", "list")),
    ("fetch", ("fetch", "web", "http", "curl")),
    ("think", ("think", "todo", "plan")),
)


class TurnUpdates:
    """Tells the steps of one turn; knows which tool calls have been told already."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._n_texts = 0
        self._told: set[str] = set()
        self._open: dict[str, list[str]] = {}
        """Calls without an id, by their name, oldest first."""
        self.said: list[str] = []
        """What the agent said in this turn."""

    def update(self, step: AnyStep) -> dict[str, Any]:
        """Tell a step that began or changed."""
        if isinstance(step, ToolCall):
            return self._call(step)
        if isinstance(step, Plan):
            return {"sessionUpdate": "plan", "entries": _entries(step)}
        if isinstance(step, Message):
            self.said.append(step.content)
        kind = "agent_message_chunk" if isinstance(step, Message) else "agent_thought_chunk"
        return {**text_update(kind, step.content), "messageId": self._text_id(step)}

    def answer(self, output: str) -> dict[str, Any] | None:
        """Tell the answer, unless the agent has said it already."""
        said = "\n".join(self.said)
        if not output.strip() or output.strip() in said or output.strip() in "".join(self.said):
            return None
        return self.update(Message(content=output))

    def _text_id(self, step: Message | Thought) -> str:
        """Give each text an id of its own, so that a client does not join what is apart."""
        if step.step_id is not UNSET:
            return f"{self._turn}-{step.step_id}"
        self._n_texts += 1
        return f"{self._turn}-{self._n_texts}"

    def _call(self, step: ToolCall) -> dict[str, Any]:
        status = _STATUSES.get(step.status, "in_progress")
        call_id = self._call_id(step, ended=status in ("completed", "failed"))
        update: dict[str, Any] = {"toolCallId": call_id, "title": step.name, "status": status}
        if step.input is not UNSET:
            update["rawInput"] = step.input
        if step.output is not UNSET:
            update["rawOutput"] = step.output
        text = _text(step.error if step.error is not UNSET else step.output)
        if text:
            content = {"type": "content", "content": {"type": "text", "text": text}}
            update["content"] = [content]
        if call_id in self._told:
            return {"sessionUpdate": "tool_call_update", **update}
        self._told.add(call_id)
        return {"sessionUpdate": "tool_call", "kind": _kind(step.name), **update}

    def _call_id(self, step: ToolCall, *, ended: bool) -> str:
        """Give the call's own id; without one, an end belongs to the oldest open of its name."""
        if step.call_id is not UNSET:
            return step.call_id
        waiting = self._open.setdefault(step.name, [])
        if ended and waiting:
            return waiting.pop(0)
        call_id = f"call-{self._turn}-{len(self._told) + 1}"
        if not ended:
            waiting.append(call_id)
        return call_id


def text_update(kind: str, text: str) -> dict[str, Any]:
    """Tell a piece of text."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def _entries(step: Plan) -> list[dict[str, str]]:
    listed: list[Any] = step.entries or ([step.content] if step.content else [])
    return [_entry(entry) for entry in listed]


def _entry(entry: Any) -> dict[str, str]:
    fields = entry if isinstance(entry, dict) else {"content": entry}
    content = fields.get("content", fields.get("step", fields.get("text")))
    status = _STATUSES.get(str(fields.get("status")), "pending")
    priority = fields.get("priority")
    return {
        "content": _text(content if content is not None else entry),
        "priority": priority if priority in ("high", "medium", "low") else "medium",
        "status": status if status in _PLAN_STATUSES else "completed",
    }


def _text(value: Any) -> str:
    if value is None or value is UNSET:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _kind(name: str) -> str:
    """Guess what sort of tool it is, for the client's icon."""
    lower = name.lower()
    return next((kind for kind, words in _KINDS if any(w in lower for w in words)), "other")
