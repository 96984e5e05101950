"""The adapter for any agent that speaks the Agent Client Protocol on stdio."""

import shlex
from collections.abc import Sequence
from typing import Any

from assay.adapters.acp_dialogue import AcpDialogue
from assay.adapters.acp_handshake import Wish
from assay.adapters.acp_reader import AcpReader, read_turns
from assay.errors import InputError
from assay.records.recording import Recording
from assay.seams import Ask, Command, Dialogue, Reading, Watch


class AcpAdapter:
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
            msg = "acp: which agent? no command was given"
            raise InputError(
                msg, hint='give it behind --, or as -s "acp:COMMAND ARGS" (see docs/adapters.md)'
            )
        self._command = tuple(words)
        self._given_name = name
        self._wish = Wish(
            mcp_servers=tuple(mcp_servers), auth_method=auth_method, model=model or None
        )
        self.name = name or shlex.join(words)
        self.timeout_ms = timeout_ms
        self.linger_s = 10.0

    def command(self, ask: Ask) -> Command:
        """Start the agent; the turns reach it through the dialogue."""
        return Command(argv=self._command)

    def watch(self) -> Watch:
        """Follow one turn."""
        return AcpReader(self._wish)

    def dialogue(self, cwd: str) -> Dialogue | None:
        """Speak with the agent over stdin."""
        wish = self._wish
        return AcpDialogue(Wish(cwd, wish.mcp_servers, wish.auth_method, wish.model))

    def read(self, recording: Recording) -> Reading:
        """Read every turn from the agent's lines alone."""
        return read_turns(self._wish, recording, self._given_name)


def _split(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError as error:
        msg = f"acp:{argument}: {error}"
        raise InputError(msg) from error
