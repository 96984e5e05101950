"""The adapter for any agent that a JSON schema file describes."""

from typing import Any

import msgspec

from assay.adapters.declared.mapping import Mapping
from assay.adapters.declared.reader import new_turn, read_recording
from assay.adapters.files import files_in
from assay.adapters.text import TextTurn, read_text, tell_history
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Reading, Watch
from assay.records.adapter_schema import AdapterSchema, HistoryTemplate
from assay.records.recording import Recording

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
        options += schema.auto_approve
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
            return tell_history(ask, template.turn_format, template.system)
        return tell_history(ask, template)

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
        raise InputError(
            msg, hint="see docs/adapters.md, or: assay schemas AdapterSchema"
        ) from error
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
