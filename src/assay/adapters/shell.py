"""An agent given as a shell command that finds the prompt in $PROMPT."""

from dataclasses import dataclass

from assay.adapters.plain import read_plain, watch_plain
from assay.records.recording import Recording
from assay.seams import Ask, Command, Dialogue, Reading, Watch


@dataclass(frozen=True)
class ShellAdapter:
    """The command is the operator's own; the prompt only ever goes into the environment."""

    template: str
    name: str = "shell"
    timeout_ms: float | None = None
    linger_s: float = 10.0

    def command(self, ask: Ask) -> Command:
        """Start the shell with the operator's command."""
        return Command(argv=("/bin/sh", "-c", self.template), env={"PROMPT": ask.text})

    def watch(self) -> Watch:
        """Follow a turn: the end of the process is its only end."""
        return watch_plain()

    def dialogue(self, cwd: str) -> Dialogue | None:
        """One process for each turn."""
        return None

    def read(self, recording: Recording) -> Reading:
        """Take the lines as one message."""
        return read_plain(recording, self.name)
