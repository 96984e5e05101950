"""Agents that print text and no events, given as a command line or a shell command."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from assay.adapters.files import files_in
from assay.adapters.reading import StepBuilder
from assay.errors import InputError
from assay.plugin import Ask, Command, Dialogue, Reading, Watch
from assay.records.capture import AgentInfo, AnyStep, Events
from assay.records.recording import RawLine, Recording

_ABSOLUTE = re.compile(r"(?:^|(?<=[\s'\"=]))/[\w./+-]+")
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "<<", "2>", "2>&1"})


class TextAdapter:
    """Reads each turn's lines as one message; the turn ends with the process."""

    name: str
    timeout_ms: float | None = None
    linger_s: float = 10.0

    def watch(self) -> Watch:
        return _TextWatch()

    def dialogue(self, cwd: str) -> Dialogue | None:
        return None

    def read(self, recording: Recording) -> Reading:
        return _read_text(recording, self.name)


@dataclass(frozen=True)
class SimpleAdapter(TextAdapter):
    """A command line, split as a shell would; the prompt replaces {} in one argument."""

    template: str
    name: str = "simple"

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
        """Return the command with the prompt in place of the first {}."""
        # Split before the prompt goes in, so that nothing in the prompt can add an argument.
        words = shlex.split(self.template)
        files = files_in(words)
        place = next((i for i, word in enumerate(words) if "{}" in word), None)
        if place is not None:
            before, _, after = words[place].partition("{}")
            words[place] = before + ask.text + after
        return Command(argv=tuple(words), visible=files)


@dataclass(frozen=True)
class ShellAdapter(TextAdapter):
    """A shell command; the prompt only ever goes into the environment, never into the command."""

    template: str
    name: str = "shell"

    def command(self, ask: Ask) -> Command:
        files = files_in(_ABSOLUTE.findall(self.template))
        argv = ("/bin/sh", "-c", self.template)
        return Command(argv=argv, env={"PROMPT": ask.text}, visible=files)


class _TextWatch:
    def __init__(self) -> None:
        self.session_id: str | None = None
        self.ended = False
        self._lines: list[str] = []

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Keep the line; plain text has no steps."""
        self._lines.append(line.text.decode("utf-8", "replace"))
        return ()

    def output(self) -> str:
        return "\n".join(self._lines).strip()


def _read_text(recording: Recording, name: str) -> Reading:
    several = len(recording.turns) > 1
    steps: list[AnyStep] = []
    outputs: list[str] = []
    events = Events()
    for number, turn in enumerate(recording.turns, 1):
        lines = list(turn.lines())
        events.total += len(lines)
        events.mapped += len(lines)
        text = "\n".join(line.text.decode("utf-8", "replace") for line in lines).strip()
        outputs.append(text)
        if text:
            builder = StepBuilder(number if several else None)
            steps.append(builder.message(text, lines[0].t_ms))
    return Reading(
        steps=steps,
        outputs=outputs,
        events=events,
        agent=AgentInfo(adapter=name),
        terminal_required=False,
    )
