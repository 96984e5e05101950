"""Read session updates of the Agent Client Protocol into steps: chunks joined, calls merged."""

from typing import Any

import msgspec

from assay.adapters.acp_messages import block_text
from assay.adapters.steps import StepBuilder
from assay.records.trajectory import AnyStep, Message, Thought

_SILENT = frozenset(
    {
        "user_message_chunk",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "plan_removed",
        "usage_update",
    }
)
"""Known updates that make no step."""


class AcpSteps:
    """Collects the steps of one turn."""

    def __init__(self, turn: int | None = None) -> None:
        self._builder = StepBuilder(turn)
        self._open: int | None = None
        """Place of the text that the next piece may continue."""
        self._parts: list[str] = []
        self._text_id: Any = None
        self._calls: dict[str, dict[str, Any]] = {}

    def take(self, update: dict[str, Any], t_ms: int) -> list[AnyStep] | None:
        """Take an update; give the steps it began or changed, None when it is of no known kind.

        Text is given as it came, in pieces that bear the step id of the whole.
        """
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            return [self._text(Message, update, t_ms)]
        if kind == "agent_thought_chunk":
            return [self._text(Thought, update, t_ms)]
        if kind in ("tool_call", "tool_call_update"):
            step = self.tool(update, t_ms)
            return None if step is None else [step]
        if kind in ("plan", "plan_update"):
            return self._plan(update, t_ms)
        return [] if kind in _SILENT else None

    def tool(self, update: dict[str, Any], t_ms: int) -> AnyStep | None:
        """Begin a tool call or merge an update into it; None when it has no id."""
        call_id = update.get("toolCallId")
        if not isinstance(call_id, str):
            return None
        call = self._calls.setdefault(call_id, {})
        call |= {name: value for name, value in update.items() if value is not None}
        status = call.get("status")
        return self._builder.tool(
            t_ms,
            status=status if isinstance(status, str) else None,
            call_id=call_id,
            name=_name(call),
            input=call.get("rawInput"),
            output=_output(call),
            error=_error(call) if status == "failed" else None,
            exit_code=_exit_code(call.get("rawOutput")),
        )

    def steps(self) -> list[AnyStep]:
        """Give all steps so far, texts whole."""
        self._join()
        return self._builder.steps

    def said(self) -> str:
        """Give all that the agent said."""
        return "\n".join(step.content for step in self.steps() if isinstance(step, Message))

    def _text(
        self, kind: type[Message] | type[Thought], update: dict[str, Any], t_ms: int
    ) -> AnyStep:
        """Add a piece to the text it continues; the pieces are joined once, when all is read."""
        piece = block_text(update.get("content"))
        steps, text_id = self._builder.steps, update.get("messageId")
        is_last = self._open is not None and self._open == len(steps) - 1
        if not (is_last and isinstance(steps[-1], kind) and text_id == self._text_id):
            self._join()
            (self._builder.message if kind is Message else self._builder.thought)("", t_ms)
            self._open, self._text_id, self._parts = len(steps) - 1, text_id, []
        self._parts.append(piece)
        return kind(content=piece, timestamp=steps[-1].timestamp, step_id=f"text-{self._open}")

    def _join(self) -> None:
        """Write the pieces of the open text into its step."""
        if self._open is not None:
            steps, whole = self._builder.steps, "".join(self._parts)
            self._parts = [whole]
            steps[self._open] = msgspec.structs.replace(steps[self._open], content=whole)

    def _plan(self, update: dict[str, Any], t_ms: int) -> list[AnyStep]:
        plan = update.get("plan", update)
        plan = plan if isinstance(plan, dict) else {}
        entries, text = plan.get("entries"), plan.get("content")
        listed = entries if isinstance(entries, list) else []
        return [self._builder.plan(listed, t_ms, text if isinstance(text, str) else None)]


def _name(call: dict[str, Any]) -> str | None:
    """The tool's own name where the vendor says it, else its title."""
    meta = call.get("_meta")
    for vendor in meta.values() if isinstance(meta, dict) else ():
        if isinstance(vendor, dict) and isinstance(vendor.get("toolName"), str):
            return str(vendor["toolName"])
    for name in ("title", "kind"):
        if isinstance(call.get(name), str) and call[name]:
            return str(call[name])
    return None


def _output(call: dict[str, Any]) -> Any:
    """Give the raw output, else the text of the content; diffs and terminals are kept whole."""
    raw, content = call.get("rawOutput"), call.get("content")
    if not isinstance(content, list) or not content:
        return raw
    plain = all(isinstance(item, dict) and item.get("type") == "content" for item in content)
    if raw is not None:
        return raw if plain else {"rawOutput": raw, "content": content}
    return _texts(content) if plain else content


def _error(call: dict[str, Any]) -> str | None:
    content, raw = call.get("content"), call.get("rawOutput")
    text = _texts(content) if isinstance(content, list) else ""
    if not text and raw is not None:
        text = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()
    return text[:2000] or None


def _texts(content: list[Any]) -> str:
    items = [i for i in content if isinstance(i, dict) and i.get("type") == "content"]
    return "\n".join(block_text(item.get("content")) for item in items)


def _exit_code(raw: Any) -> int | None:
    if not isinstance(raw, dict):
        return None
    code = raw.get("exitCode", raw.get("exit_code"))
    return code if isinstance(code, int) and not isinstance(code, bool) else None
