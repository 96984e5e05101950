"""The adapter for any agent that a JSON schema file describes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from assay.adapters.declared.mapping import Mapping, Update
from assay.adapters.files import files_in
from assay.adapters.reading import (
    ENDED,
    EventReader,
    StepBuilder,
    add_events,
    cost_at,
    integer_at,
    number_at,
    or_unset,
)
from assay.adapters.text import TextTurn, read_text, render_history
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Reading, Watch
from assay.records.adapter_schema import AdapterSchema, HistoryTemplate
from assay.records.capture import AgentInfo, AnyStep, Cause, Failure, Message, Usage
from assay.records.patterns import Work
from assay.records.problems import unknown_fields
from assay.records.recording import RawLine, Recording
from assay.records.text import visible_line

_NEEDED_FOR_EVENTS = ("sessionMode", "output", "result")
_ONLY_FOR_EVENTS = (
    *("outputEvents", "passthroughTypeMap", "resume", "usage", "terminal", "errors", "ignore"),
    *("sessionIdPath", "modelPath", "versionPath"),
)


class DeclaredAdapter(Adapter):
    """Built from the schema's content, not its file, so that it can be sent to another machine."""

    def __init__(
        self,
        schema: dict[str, Any],
        source: str = "schema",
        model: str | None = None,
        args: tuple[str, ...] = (),
    ) -> None:
        self.schema = parse_schema(schema, source)
        unknown = unknown_fields(schema, AdapterSchema)
        self.warnings = [visible_line(f"{source}: {found}") for found in unknown]
        self.name = self.schema.name
        self.timeout_ms = self.schema.timeout
        self.linger_s = self.schema.terminal.grace_ms / 1000
        self.plain_text = self.schema.output_mode == "text"
        self._mapping = None if self.plain_text else Mapping(self.schema, source)
        self._model = model
        self._args = args
        if model and not self.schema.model_flag:
            msg = f"{source}: --model needs modelFlag in the schema"
            raise InputError(msg, hint='add "modelFlag": "--model" (or what the agent calls it)')

    def command(self, ask: Ask) -> Command:
        """Build the command line, with its arguments in the order of the reference harness."""
        schema = self.schema
        text = self._prompt_text(ask)
        stdin: str | None = None
        tail = [schema.prompt.flag, text] if schema.prompt.flag else [text]
        if schema.prompt.stdin:
            stdin, tail = self._stdin(text, ask), []
        return Command(
            argv=(*schema.command, *self._options(ask), *tail),
            env=schema.env,
            stdin=stdin,
            pass_env=tuple(schema.pass_env),
            keep=tuple(schema.keep),
            # Never a word of the prompt: it could name any file.
            visible=(*files_in(schema.command[1:]), *schema.visible),
            login={f"{ask.home}/{name[2:]}": name for name in schema.login if name[:2] == "~/"},
            endpoints=tuple(schema.endpoints),
        )

    def watch(self) -> Watch:
        return TextTurn() if self._mapping is None else new_turn(self._mapping)

    def read(self, recording: Recording) -> Reading:
        if self._mapping is None:
            return read_text(recording, self.name)
        return read_recording(self._mapping, recording)

    def forgets(self, session_id: str | None) -> bool:
        """Whether a later turn knows nothing of the earlier ones: no history, no session."""
        resumes = self.schema.resume is not None and session_id is not None
        return not (self._repeats_history or resumes)

    @property
    def _repeats_history(self) -> bool:
        return self.plain_text or self.schema.session_mode == "iterative"

    def _options(self, ask: Ask) -> list[str]:
        schema = self.schema
        options: list[str] = []
        if schema.output.flag:
            options += [schema.output.flag, schema.output.value]
        options += schema.auto_approve if ask.tools else ()
        if schema.cwd_flag:
            options += [schema.cwd_flag, ask.cwd]
        if schema.resume and ask.session_id and schema.session_mode == "stream":
            options += [schema.resume.flag, ask.session_id]
        if schema.model_flag and self._model:
            options += [schema.model_flag, self._model]
        return [*options, *self._args]

    def _prompt_text(self, ask: Ask) -> str:
        if not self._repeats_history:
            return ask.text
        template = self.schema.history_template
        if isinstance(template, HistoryTemplate):
            return render_history(ask, template.turn_format, template.system)
        return render_history(ask, template)

    def _stdin(self, text: str, ask: Ask) -> str:
        if self.schema.prompt.stdin_format == "text":
            return text + "\n"
        message = {"prompt": text} | ({"sessionId": ask.session_id} if ask.session_id else {})
        return msgspec.json.encode(message).decode() + "\n"


def parse_schema(schema: Any, source: str) -> AdapterSchema:
    """Check a schema; errors name file and field."""
    try:
        parsed = msgspec.convert(schema, AdapterSchema)
    except msgspec.ValidationError as error:
        msg = f"{source}: {error}"
        unknown = visible_line("; ".join(map(str, unknown_fields(schema, AdapterSchema))))
        hint = "see docs/adapters.md, or: assay schemas AdapterSchema"
        raise InputError(msg, hint=f"{unknown}; {hint}" if unknown else hint) from error
    _check_fields(schema, parsed.output_mode, source)
    if parsed.prompt.flag and parsed.prompt.stdin:
        msg = f"{source}: prompt.flag and prompt.stdin cannot be used together"
        raise InputError(msg, hint="leave out the one the agent does not use")
    return parsed


def _check_fields(schema: dict[str, Any], mode: str, source: str) -> None:
    """Refuse what plain text cannot have, and a lack of what only plain text can do without."""
    if mode == "text":
        useless = next((name for name in _ONLY_FOR_EVENTS if schema.get(name)), None)
        if useless:
            msg = f'{source}: "{useless}" reads events, and "outputMode": "text" has none'
            raise InputError(msg, hint=f'leave out "{useless}", or the "outputMode"')
        return
    missing = next((name for name in _NEEDED_FOR_EVENTS if name not in schema), None)
    if missing:
        msg = f"{source}: Object missing required field `{missing}`"
        hint = 'see docs/adapters.md; for an agent that prints plain text, add "outputMode": "text"'
        raise InputError(msg, hint=hint)


class DeclaredTurn(EventReader):
    """Reads the lines of one turn; lines after the terminal event belong to no turn.

    whole: the recording is not split into turns, so read on after a terminal event.
    """

    def __init__(self, mapping: Mapping, turn: int | None = None, *, whole: bool = False) -> None:
        super().__init__()
        self.mapping = mapping
        self._steps = StepBuilder(turn)
        self._whole = whole
        self.result: str | None = None
        self.usage: dict[str, float] = {}
        self.cumulative: dict[str, float] = {}
        self.failure: Failure | None = None
        self.model: str | None = None
        self.version: str | None = None

    @property
    def steps(self) -> list[AnyStep]:
        return self._steps.steps

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        return () if self.ended and not self._whole else super().feed(line)

    def output(self) -> str:
        """The result, else the agent's messages."""
        messages = (step.content for step in self.steps if isinstance(step, Message))
        return self.result or "\n".join(filter(None, messages))

    def _is_ending(self, event: Any) -> bool:
        return self.mapping.is_terminal(event, is_result=self.mapping.result(event) is not None)

    def _read_other(self, value: Any, line: RawLine) -> Sequence[AnyStep]:
        # A schema may map events that are arrays.
        is_event = isinstance(value, list)
        return self._count(value, line.t_ms) if is_event else super()._read_other(value, line)

    def _read(self, event: Any, t_ms: int) -> list[AnyStep]:
        mapping = self.mapping
        changed = [self._apply(update, t_ms) for update in mapping.updates(event)]
        result = mapping.result(event)
        if result is not None:
            self.result = result
        terminal = mapping.is_terminal(event, is_result=result is not None)
        self.ended = self.ended or terminal
        known = self._note(event)
        if not (changed or terminal or result is not None or known or mapping.is_ignored(event)):
            kind = event.get("type") if isinstance(event, dict) else None
            self._unknown(kind if isinstance(kind, str) else "(no type)")
        return changed

    def _apply(self, update: Update, t_ms: int) -> AnyStep:
        content, parent = update.text("content"), update.text("parent")
        if update.kind == "message":
            return self._steps.message(content or "", t_ms, parent)
        if update.kind == "thought":
            return self._steps.thought(content or "", t_ms, parent)
        if update.kind == "plan":
            entries = update.values.get("entries")
            listed = entries if isinstance(entries, list) else []
            return self._steps.plan(listed, t_ms, content, parent)
        return self._apply_tool(update, t_ms, parent)

    def _apply_tool(self, update: Update, t_ms: int, parent: str | None) -> AnyStep:
        status = update.text("status")
        if update.failed():
            status = "failed"
        # Under a guessed name, a start has no output yet, and a result repeats no input.
        ended = status in ENDED
        error = update.values.get("error")
        return self._steps.tool(
            t_ms,
            status=status,
            guessed_id=update.values.get("call_id") is None,
            name=update.text("title"),
            call_id=update.call_id(),
            input=None if ended and "input" not in update.values else update.tool_input(),
            output=update.tool_output() if ended else update.values.get("output"),
            error=error if isinstance(error, str) and error else None,
            exit_code=integer_at(update.values, "exit_code"),
            parent=parent,
        )

    def _note(self, event: Any) -> bool:
        """Take session id, model, usage and errors; return whether it had usage or an error."""
        mapping = self.mapping
        for name in ("session_id", "model", "version"):
            get = getattr(mapping, name)
            value = get(event) if get else None
            if isinstance(value, str) and value:
                setattr(self, name, value)
        counted = False
        for entry, matcher, getters in mapping.usage:
            if matcher.fits(event):
                counted = True
                self._add_usage(entry.mode, {name: get(event) for name, get in getters.items()})
        error = mapping.error(event)
        if error is not None:
            self.failure = Failure(cause=Cause(error[0].cause), message=error[1][:2000])
        return counted or error is not None

    def _add_usage(self, mode: str, values: dict[str, Any]) -> None:
        for name, found in values.items():
            value = cost_at(found) if name == "cost_usd" else number_at(found)
            if value is None:
                continue
            if mode == "cumulative":
                self.cumulative[name] = value
            else:
                self.usage[name] = self.usage.get(name, 0) + value


class PatternTurn(DeclaredTurn):
    """The same for a schema with regular expressions: they may only work so much for one turn."""

    def __init__(self, mapping: Mapping, turn: int | None = None, *, whole: bool = False) -> None:
        super().__init__(mapping, turn, whole=whole)
        self._work = Work()

    def _read(self, event: Any, t_ms: int) -> list[AnyStep]:
        with self._work.here():
            changed = super()._read(event, t_ms)
        if self._work.gave_up:
            self._unknown("(too much work for a regular expression)")
        return changed

    def _is_ending(self, event: Any) -> bool:
        with self._work.here():
            return super()._is_ending(event)


def new_turn(mapping: Mapping, turn: int | None = None, *, whole: bool = False) -> DeclaredTurn:
    """Make a reader for one turn."""
    kind = PatternTurn if mapping.has_patterns else DeclaredTurn
    return kind(mapping, turn, whole=whole)


def read_recording(mapping: Mapping, recording: Recording) -> Reading:
    """Read all turns of a recording into one reading."""
    several = len(recording.turns) > 1
    readers: list[DeclaredTurn] = []
    for number, turn in enumerate(recording.turns, 1):
        # The live reader of this turn, if there was one, has read the same lines already.
        reader = turn.seen
        if several or not isinstance(reader, DeclaredTurn) or reader.mapping is not mapping:
            reader = new_turn(mapping, number if several else None, whole=recording.unsplit)
            reader.n_read = readers[-1].n_read if readers else 0
            for line in turn.lines():
                reader.feed(line)
        readers.append(reader)
    version, model = (_last(getattr(r, name) for r in readers) for name in ("version", "model"))
    return Reading(
        steps=[step for reader in readers for step in reader.steps],
        outputs=[reader.output() for reader in readers],
        events=add_events(readers),
        usage=_add_usage(readers),
        session_id=_last(reader.session_id for reader in readers),
        agent=AgentInfo(
            adapter=mapping.schema.name,
            version=or_unset(version),
            model=or_unset(model),
        ),
        failure=readers[-1].failure if readers else None,
        terminal_required=mapping.schema.terminal.required,
    )


def _add_usage(readers: list[DeclaredTurn]) -> Usage | None:
    """Add counts per event; of cumulative counts only the last one is used."""
    sums: dict[str, float] = {}
    for reader in readers:
        for name, value in reader.usage.items():
            sums[name] = sums.get(name, 0) + value
    last: dict[str, float] = {}
    for reader in readers:
        last |= reader.cumulative
    for name, value in last.items():
        sums[name] = sums.get(name, 0) + value
    if not sums:
        return None
    known: dict[str, Any] = {name: int(n) for name, n in sums.items() if name != "cost_usd"}
    if "cost_usd" in sums:
        known |= {"cost_usd": sums["cost_usd"], "cost_source": "reported"}
    return Usage(**known)


def _last(values: Any) -> str | None:
    found = [value for value in values if value is not None]
    return found[-1] if found else None
