"""An agent given as a command line with {} for the prompt. No shell is ever started."""

import shlex
from dataclasses import dataclass

from assay.adapters.plain import read_plain, watch_plain
from assay.errors import InputError
from assay.records.recording import Recording
from assay.seams import Ask, Command, Dialogue, Reading, Watch

_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "<<", "2>", "2>&1"})


@dataclass(frozen=True)
class SimpleAdapter:
    """The template is split once, as a shell would; the prompt replaces {} in one argument."""

    template: str
    name: str = "simple"
    timeout_ms: float | None = None
    linger_s: float = 10.0

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.template)
        except ValueError as error:
            msg = f"--simple {self.template!r}: {error}"
            raise InputError(msg) from error
        used = sorted(_SHELL_WORDS.intersection(words))
        if used or not words:
            msg = f"--simple {self.template!r} needs a shell for {' '.join(used) or 'nothing'}"
            raise InputError(msg, hint='use --shell, with the prompt as "$PROMPT"')

    def command(self, ask: Ask) -> Command:
        """Put the prompt in place of the first {}."""
        words = shlex.split(self.template)
        place = next((i for i, word in enumerate(words) if "{}" in word), None)
        if place is not None:
            before, _, after = words[place].partition("{}")
            words[place] = before + ask.text + after
        return Command(argv=tuple(words))

    def watch(self) -> Watch:
        """Follow a turn: the end of the process is its only end."""
        return watch_plain()

    def dialogue(self, cwd: str) -> Dialogue | None:
        """One process for each turn."""
        return None

    def read(self, recording: Recording) -> Reading:
        """Take the lines as one message."""
        return read_plain(recording, self.name)
