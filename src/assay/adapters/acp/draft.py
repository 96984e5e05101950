"""What only version 2 of the Agent Client Protocol has; it is a draft (2.0.0-alpha.3)."""

import base64
import binascii
from typing import Any

from assay.adapters.reading import integer_at, list_at, text_at

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
        kind = text_at(update, "sessionUpdate")
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
        self._shown: dict[str, tuple[str, int]] = {}
        """The call that shows a terminal, and the place in its content."""

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

    def shown(self, call_id: str, call: dict[str, Any]) -> dict[str, Any] | None:
        """Return a call with the texts of its terminals; None if it shows no known terminal.

        A text is put into the first call that shows it, once: repeated, it could fill the memory.
        """
        content, codes = list_at(call, "content"), []
        texts: dict[int, str] = {}
        for place, item in enumerate(content):
            terminal = text_at(item, "terminalId")
            if terminal is None or terminal not in self._output:
                continue
            if self._shown.setdefault(terminal, (call_id, place)) == (call_id, place):
                texts[place] = self._output[terminal].decode("utf-8", "replace")
            codes.append(self._exit.get(terminal))
        if not codes:
            return None
        items = [_text_item(texts[n]) if n in texts else item for n, item in enumerate(content)]
        return {**call, "content": items, "exitCode": codes[-1]}


def _text_item(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}
