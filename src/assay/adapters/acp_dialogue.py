"""Our side of a conversation in the Agent Client Protocol. Sans-IO: lines in, lines out."""

from dataclasses import replace
from typing import Any

from assay.adapters.acp_failure import stop_failure
from assay.adapters.acp_handshake import Handshake, Wish
from assay.adapters.acp_messages import FIRST_PROMPT, Request, answer
from assay.adapters.events import parse_line
from assay.seams import Ask


class AcpDialogue:
    """One session: opens it with the first turn, then puts a prompt for each turn."""

    def __init__(self, wish: Wish) -> None:
        self._handshake = Handshake(wish)
        self._text = ""
        self._n_turns = 0
        self.over = False

    def say(self, ask: Ask) -> bytes:
        """Open a turn; the first opens the session as well, with the servers of its world."""
        self._text = ask.text
        self._n_turns += 1
        if self._n_turns > 1:
            return self._prompt()
        wish = self._handshake.wish
        servers = (*wish.mcp_servers, *(_server(*item) for item in ask.mcp_servers.items()))
        self._handshake.wish = replace(wish, mcp_servers=servers)
        return self._handshake.open().line()

    def hear(self, line: bytes) -> bytes:
        """Take a line of the agent; give our answer or our next request."""
        message = parse_line(line)
        if not isinstance(message, dict):
            return b""
        if isinstance(message.get("method"), str):
            return answer(message) if message.get("id") is not None else b""
        return self._answered(message)

    def _answered(self, message: dict[str, Any]) -> bytes:
        number = message.get("id")
        if not isinstance(number, int) or not ("result" in message or "error" in message):
            return b""
        if number >= FIRST_PROMPT:
            result = message.get("result")
            stop = result.get("stopReason") if isinstance(result, dict) else None
            self.over = "error" in message or stop_failure(stop) is not None
            return b""
        handshake = self._handshake
        if handshake.ready or self.over:
            return b""
        following = handshake.take(number, message)
        self.over = handshake.failure is not None
        if handshake.ready:
            return self._prompt()
        return following.line() if following else b""

    def _prompt(self) -> bytes:
        prompt = [{"type": "text", "text": self._text}]
        params = {"sessionId": self._handshake.session_id, "prompt": prompt}
        return Request(FIRST_PROMPT + self._n_turns - 1, "session/prompt", params).line()


def _server(name: str, server: dict[str, Any]) -> dict[str, Any]:
    """Write a server as the protocol has it."""
    env = [{"name": key, "value": value} for key, value in server.get("env", {}).items()]
    return {
        "name": name,
        "command": server.get("command"),
        "args": list(server.get("args", ())),
        "env": env,
    }
