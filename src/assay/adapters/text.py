"""Agents that print text and no events: by a command line, a shell command or a schema."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

from assay.adapters.files import files_in
from assay.adapters.reading import MOST_READ, StepBuilder
from assay.errors import InputError, UsageError
from assay.plugin import Adapter, Ask, Command, Reading, Watch
from assay.records.capture import AgentInfo, AnyStep, Cause, Events, Failure
from assay.records.recording import RawLine, Recording

_ABSOLUTE = re.compile(r"(?:^|(?<=[\s'\"=]))/[\w./+-]+")
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "<<", "2>", "2>&1"})
_SCRIPT = re.compile(r".*\.(?:py|js|mjs|cjs|ts|mts|sh|rb|pl|php)")
_BLANK_START = re.compile(r"\A(?:[ \t\r]*\n)+")
_DEFAULT_TEMPLATE = "User: {{input}}\nAssistant: {{output}}"
_MOST_BYTES = 16 * 1024 * 1024
"""Longest answer; the same as the longest line that is read of any agent."""


class TextAdapter(Adapter):
    """Reads each turn's lines as one message; the turn ends with the process."""

    plain_text = True

    def watch(self) -> Watch:
        return TextTurn()

    def read(self, recording: Recording) -> Reading:
        return read_text(recording, self.name)


class TextRows(TextAdapter):
    """Reads what was recorded of an agent that prints text; it cannot start one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, ask: Ask) -> Command:
        raise NotImplementedError


class SimpleAdapter(TextAdapter):
    """A command line, split as a shell would; the prompt replaces {} in one argument."""

    def __init__(self, template: str, *, history: bool = True, name: str = "") -> None:
        """With history, the prompt of a later turn repeats the earlier turns and answers."""
        self.template, self.history = template, history
        try:
            words = shlex.split(self.template)
        except ValueError as error:
            msg = f"--simple {self.template!r}: {error}"
            raise InputError(msg) from error
        used = sorted(_SHELL_WORDS.intersection(words))
        if used:
            msg = f"--simple {self.template!r} needs a shell for {' '.join(used)}"
            raise InputError(msg, hint='use --shell, with the prompt as "$PROMPT"')
        if not any("{}" in word for word in words):
            msg = f"--simple {self.template!r} has no {{}}, so the agent would get no prompt"
            hint = f"write {{}} where the prompt belongs, as in --simple '{self.template} {{}}'; "
            raise UsageError(msg, hint=hint + 'or use --shell, with the prompt as "$PROMPT"')
        _refuse_code(self.template, words)
        self.name = name or _program_name(words)

    def command(self, ask: Ask) -> Command:
        """Return the command with the prompt in place of the first {}."""
        # Split before the prompt goes in, so that nothing in the prompt can add an argument.
        words = shlex.split(self.template)
        files = files_in(words)
        place = next(i for i, word in enumerate(words) if "{}" in word)
        before, _, after = words[place].partition("{}")
        words[place] = before + _text(ask, self.history) + after
        return Command(argv=tuple(words), visible=files)

    def forgets(self, session_id: str | None) -> bool:
        return not self.history


class ShellAdapter(TextAdapter):
    """A shell command; the prompt only ever goes into the environment, never into the command."""

    def __init__(self, template: str, *, history: bool = True, name: str = "") -> None:
        self.template, self.history = template, history
        try:
            words = shlex.split(self.template)
        except ValueError:  # the shell will say what is wrong
            words = self.template.split()
        program = [word for word in words if not re.match(r"\w+=", word)]
        self.name = name or _program_name(program or ["sh"])

    def command(self, ask: Ask) -> Command:
        files = files_in(_ABSOLUTE.findall(self.template))
        argv = ("/bin/sh", "-c", self.template)
        return Command(argv=argv, env={"PROMPT": _text(ask, self.history)}, visible=files)

    def forgets(self, session_id: str | None) -> bool:
        return not self.history


class OracleAgent(ShellAdapter):
    """Runs the solution that a task brings along, to show that the task can be solved."""

    def __init__(self) -> None:
        super().__init__("exec /solution/solve.sh", name="oracle")


class NopAgent(ShellAdapter):
    """Does nothing, to show that a task is not solved from the beginning."""

    def __init__(self) -> None:
        super().__init__(":", name="nop")


_CODE_FLAGS = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ksh", "fish"), r"-[a-zA-Z]*c"),
    **dict.fromkeys(("python", "pypy"), r"-[a-zA-Z]*c"),
    **dict.fromkeys(("node", "nodejs", "bun"), r"-e|-p|-pe|--eval|--print"),
    **dict.fromkeys(("perl", "ruby"), r"-[a-zA-Z]*[eE]"),
    "php": r"-r",
}
"""Of each interpreter: the option whose value is code."""
_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "-W", "-X", "-I", "-r"})


def _refuse_code(template: str, words: Sequence[str]) -> None:
    """Refuse a {} where the text of a prompt would be run: as the program or as code."""
    place = next(i for i, word in enumerate(words) if "{}" in word)
    if place == 0:
        msg = f"--simple {template!r} would run the prompt as a program"
        raise UsageError(msg, hint="name a program before {}, as in --simple 'PROGRAM {}'")
    for number, word in enumerate(words[:place]):
        flag = _CODE_FLAGS.get(PurePath(word).name.rstrip("0123456789."))
        if flag is not None and _code_place(words, number + 1, flag) == place:
            msg = f"--simple {template!r} would run the prompt as code of {PurePath(word).name}"
            hint = 'use --shell, with the prompt as "$PROMPT", or give {} as an argument of its own'
            raise UsageError(msg, hint=hint)


def _code_place(words: Sequence[str], start: int, flag: str) -> int | None:
    """Return which word is the code that an interpreter is given; start is its first argument."""
    is_code, is_value = False, False
    for place in range(start, len(words)):
        word = words[place]
        if is_value:
            is_value = False
        elif re.fullmatch(flag, word):
            is_code = True
        elif word.startswith(("-", "+")):
            if re.fullmatch(flag, word.partition("=")[0]) or (is_code and "{}" in word):
                return place
            is_value = word in _WITH_VALUE
        else:
            return place if is_code else None
    return None


class TextTurn(Watch):
    """Collects what an agent prints in one turn, as far as an answer may be long."""

    def __init__(self) -> None:
        self.events: Events = Events()
        self.is_cut = False
        """Whether the answer is longer than what was kept of it."""
        self.first_ms = 0
        self._lines: list[bytes] = []
        self._n_bytes = 0

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Keep the line; the text becomes a step only when the turn is over."""
        self.events.total += 1
        self.events.mapped += not line.oversized
        self.events.oversized += line.oversized
        if not self._lines:
            self.first_ms = line.t_ms
        self.is_cut = self.is_cut or line.oversized or self._n_bytes > _MOST_BYTES
        if not self.is_cut or line.oversized:
            self._lines.append(line.text)
            self._n_bytes += len(line.text) + 1
        return ()

    def output(self) -> str:
        """The text without blank lines before and white space after it."""
        text = b"\n".join(self._lines).decode("utf-8", "replace")
        return _BLANK_START.sub("", text).rstrip()


def read_text(recording: Recording, name: str) -> Reading:
    """Read a recording of plain text: one message for each turn that printed any."""
    several = len(recording.turns) > 1
    steps: list[AnyStep] = []
    outputs: list[str] = []
    n_held = 0
    events, failure = Events(), None
    for number, turn in enumerate(recording.turns, 1):
        # The live reader of this turn, if there was one, has read the same lines already.
        read = turn.seen if isinstance(turn.seen, TextTurn) else TextTurn()
        if read is not turn.seen:
            for line in turn.lines():
                read.feed(line)
        for count in ("total", "mapped", "oversized"):
            setattr(events, count, getattr(events, count) + getattr(read.events, count))
        text = read.output()
        is_cut = read.is_cut or n_held + len(text) > MOST_READ
        text = text[: MOST_READ - n_held]
        n_held += len(text)
        outputs.append(text)
        if text:
            builder = StepBuilder(number if several else None)
            steps.append(builder.message(text, read.first_ms))
        failure = _too_long() if is_cut else None
    return Reading(
        steps=steps,
        outputs=outputs,
        events=events,
        agent=AgentInfo(adapter=name),
        failure=failure,
        terminal_required=False,
    )


def render_history(ask: Ask, template: str | None = None, system: str | None = None) -> str:
    """Return the prompt of a turn for an agent that remembers none: with the turns before it."""
    each = _DEFAULT_TEMPLATE if template is None else template
    parts = [system] if system else []
    parts += [_fill(each, prompt, answer) for prompt, answer in ask.history]
    return "\n\n".join([*parts, f"User: {ask.text}" if ask.history else ask.text])


def _text(ask: Ask, history: bool) -> str:
    return render_history(ask) if history else ask.text


def _fill(template: str, prompt: str, answer: str) -> str:
    """Replace the first {{input}} and {{output}}, in one pass: the values may contain either."""
    # No argument and no variable can hold a NUL, which an agent may have printed.
    values = {"{{input}}": prompt, "{{output}}": answer.replace("\0", "\ufffd")}
    return re.sub(r"\{\{(?:input|output)\}\}", lambda m: values.pop(m.group(), m.group()), template)


def _program_name(words: Sequence[str]) -> str:
    """Return what people call the agent: the script given to an interpreter, or the program."""
    first = next((word for word in words[1:] if not word.startswith("-")), "")
    name = first if _SCRIPT.fullmatch(first) else words[0]
    return PurePath(name).name or name


def _too_long() -> Failure:
    message = f"printed more than {_MOST_BYTES >> 20} MB of text, of which only the start was read"
    return Failure(cause=Cause.AGENT_LIMIT, message=message)
