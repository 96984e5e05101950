"""What only version 2 of the Agent Client Protocol has; it is a draft (2.0.0-alpha.3)."""

import base64
import binascii
from typing import Any

from assay.adapters.reading import integer_at, list_at, object_at, text_at

_OUTPUT = frozenset(
    {
        *("agent_message", "agent_message_chunk", "agent_thought", "agent_thought_chunk"),
        *("tool_call_update", "tool_call_content_chunk"),
    }
)


class Lifecycle:
    """Where a turn stands: its prompt is acknowledged, the agent works, then it is idle.

    An agent may repeat that it is idle at any time, so this ends a turn only after it has worked.
    """

    def __init__(self) -> None:
        self.acknowledged = False
        self._has_worked = False
        self._idle: dict[str, Any] | None = None

    def see(self, update: dict[str, Any]) -> None:
        """Take an update of the session."""
        kind = update.get("sessionUpdate")
        if kind in _OUTPUT:  # from an agent that does not say that it works
            self._has_worked = self._has_worked or self.acknowledged
        if kind != "state_update":
            return
        if update.get("state") == "idle":
            self._idle = update if self._has_worked else None
        else:
            self._has_worked, self._idle = True, None

    def ending(self) -> dict[str, Any] | None:
        """Return the update that ended the turn; None while it goes on."""
        return self._idle if self.acknowledged else None


def is_acknowledgement(message: dict[str, Any]) -> bool:
    """Whether the response to a prompt is of version 2: it does not end the turn."""
    result = message.get("result")
    return isinstance(result, dict) and not result.keys() & {"stopReason", "content"}


class Terminals:
    """The agent's own terminals, whose output is told apart from the calls that show it."""

    def __init__(self) -> None:
        self._output: dict[str, bytearray] = {}
        self._exit: dict[str, int] = {}

    def take(self, update: dict[str, Any]) -> bool:
        """Take terminal_update or terminal_output_chunk; return whether it has the right form."""
        terminal = text_at(update, "terminalId")
        if terminal is None:
            return False
        output = self._output.setdefault(terminal, bytearray())
        is_chunk = update.get("sessionUpdate") == "terminal_output_chunk"
        if not is_chunk and "output" in update:
            output.clear()
        data = text_at(update, "data") if is_chunk else text_at(update, "output", "data")
        try:
            output += base64.b64decode(data or "")
        except (binascii.Error, ValueError):
            return False
        if (code := integer_at(update, "exitStatus", "exitCode")) is not None:
            self._exit[terminal] = code
        return True

    def shown(self, call: dict[str, Any]) -> dict[str, Any] | None:
        """Return a call with the texts of its terminals; None if it shows no known terminal."""
        content = list_at(call, "content")
        known = [t for item in content if (t := text_at(item, "terminalId")) in self._output]
        if not known:
            return None
        more: dict[str, Any] = {"content": [self._text(item) for item in content]}
        codes = [self._exit[terminal] for terminal in known if terminal in self._exit]
        if codes and not object_at(call, "rawOutput"):
            more["exitCode"] = codes[-1]
        return call | more

    def _text(self, item: Any) -> Any:
        terminal = text_at(item, "terminalId")
        if terminal is None or terminal not in self._output:
            return item
        text = self._output[terminal].decode("utf-8", "replace")
        return {"type": "content", "content": {"type": "text", "text": text}}
