"""The adapter for any agent that speaks the Agent Client Protocol on stdio."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.adapters.acp.messages import (
    FIRST_PROMPT,
    Handshake,
    Request,
    SessionRequest,
    answer,
    stop_failure,
)
from assay.adapters.acp.reader import AcpReader, read_recording
from assay.adapters.files import files_in
from assay.adapters.reading import parse_line
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Dialogue, Reading, Watch
from assay.records.recording import Recording


class AcpAdapter(Adapter):
    """One process and one session for all turns of a trial.

    The command is a list, or one text as in `-s "acp:COMMAND ARGS"`, split as a shell would.
    """

    def __init__(  # noqa: PLR0913 - each is an option a user may set
        self,
        command: Sequence[str] = (),
        argument: str = "",
        name: str | None = None,
        model: str | None = None,
        args: Sequence[str] = (),
        mcp_servers: Sequence[dict[str, Any]] = (),
        auth_method: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        words = [*command, *_split(argument), *args]
        if not words:
            msg = "acp: no command was given for the agent"
            raise InputError(
                msg,
                hint='put it after --, or give it as -s "acp:COMMAND ARGS" (see docs/adapters.md)',
            )
        self._command = tuple(words)
        self._given_name = name
        self._request = SessionRequest(
            mcp_servers=tuple(mcp_servers), auth_method=auth_method, model=model or None
        )
        self.name = name or shlex.join(words)
        self.timeout_ms = timeout_ms

    def command(self, ask: Ask) -> Command:
        """Start the agent; turns are sent through the dialogue."""
        words = [*self._command[1:]]
        for server in self._request.mcp_servers:
            words += [str(server.get("command", "")), *map(str, server.get("args", ()))]
        return Command(argv=self._command, visible=files_in(words))

    def watch(self) -> Watch:
        return AcpReader(self._request)

    def dialogue(self, cwd: str) -> Dialogue | None:
        request = self._request
        return AcpDialogue(
            SessionRequest(cwd, request.mcp_servers, request.auth_method, request.model)
        )

    def read(self, recording: Recording) -> Reading:
        return read_recording(self._request, recording, self._given_name)


def _split(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError as error:
        msg = f"acp:{argument}: {error}"
        raise InputError(msg) from error


class AcpDialogue:
    """One session: opened with the first turn, then one prompt for each turn."""

    def __init__(self, request: SessionRequest) -> None:
        self._handshake = Handshake(request)
        self._text = ""
        self._n_turns = 0
        self.over = False

    def say(self, ask: Ask) -> bytes:
        """Start a turn; the first one opens the session, with the MCP servers of its world."""
        self._text = ask.text
        self._n_turns += 1
        if self._n_turns > 1:
            return self._prompt()
        request = self._handshake.request
        servers = (*request.mcp_servers, *(_server(*item) for item in ask.mcp_servers.items()))
        self._handshake.request = replace(request, mcp_servers=servers)
        # The prompt itself is sent when the session is open: see _answered.
        return self._handshake.open().line()

    def hear(self, line: bytes) -> bytes:
        """Take a line of the agent; return our answer or our next request."""
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
        if handshake.ready or self.over:  # a repeated response must not send the prompt twice
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
    """Write an MCP server in the protocol's format."""
    env = [{"name": key, "value": value} for key, value in server.get("env", {}).items()]
    return {
        "name": name,
        "command": server.get("command"),
        "args": list(server.get("args", ())),
        "env": env,
    }
