"""The script of a scripted model: independent of the provider, and checked when loaded."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from assay.errors import InputError
from assay.records.rows import BOM

Provider = Literal["anthropic", "responses", "chat", "gemini"]
NeutralTool = Literal["shell", "write_file", "read_file", "edit_file", "mcp"]
Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_.-]+$")]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]

_NEEDED: dict[str, tuple[str, ...]] = {
    "shell": ("command",),
    "write_file": ("path", "content"),
    "read_file": ("path",),
    "edit_file": ("path", "old", "new"),
    "mcp": ("server", "name"),
}
_NEUTRAL_FIELDS = ("command", "path", "content", "old", "new", "server")


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The base of all parts of a script: camelCase on disk, unknown fields rejected."""


class Usage(_Part, frozen=True):
    """Tokens of one answer, in categories that do not overlap; providers add them differently."""

    input: Count = 100
    output: Count = 20
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0


class OneCall(_Part, frozen=True):
    """A tool call: a neutral `tool` that fits every agent, or an explicit `name`."""

    tool: NeutralTool | None = None
    name: str | None = None
    id: str | None = None
    arguments: dict[str, Any] = {}
    """Explicit call: its arguments. Neutral tool: further arguments, sent unchanged."""
    raw_arguments: str | None = None
    """Sent instead of the arguments' JSON; may be malformed on purpose."""
    input: str | None = None
    """Free text of a custom tool (OpenAI Responses)."""
    namespace: str | None = None
    command: str | None = None
    path: str | None = None
    content: str | None = None
    old: str | None = None
    new: str | None = None
    server: str | None = None

    def __post_init__(self) -> None:
        """Check that the fields fit the tool."""
        if self.tool is None and self.name is None:
            message = 'a call needs "tool" (shell, write_file, …) or "name"'
            raise ValueError(message)
        needed = _NEEDED.get(self.tool or "", ())
        for field in needed:
            if getattr(self, field) is None:
                message = f'the tool "{self.tool}" needs "{field}"'
                raise ValueError(message)
        for field in _NEUTRAL_FIELDS:
            if field not in needed and getattr(self, field) is not None:
                message = f'"{field}" does not belong to {self.tool or "a call by name"}'
                raise ValueError(message)


class Call(OneCall, frozen=True):
    """A tool call, and which other one some providers get in its place."""

    by_provider: dict[Provider, OneCall] = {}


class Fault(_Part, frozen=True):
    """One failure, played `times` times before the step succeeds."""

    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    message: str | None = None
    type: str | None = None
    body: dict[str, Any] | list[Any] | str | None = None
    """The whole JSON body, instead of the provider's usual one."""
    headers: dict[str, str] = {}
    hang: bool = False
    drop: bool = False
    after_events: Count | None = None
    """Fail in the middle of the stream, after this many events."""
    for_s: Seconds | None = None
    """How long to hang; by default until the client disconnects or the server stops."""
    times: Annotated[int, msgspec.Meta(ge=1)] | Literal["always"] = 1

    def __post_init__(self) -> None:
        if (self.status is not None) + self.hang + self.drop != 1:
            message = 'a fault is exactly one of "status", "hang", "drop"'
            raise ValueError(message)


class Step(_Part, frozen=True):
    """One answer of the model."""

    thinking: str | list[str] = ""
    """A list is streamed piece by piece."""
    text: str | list[str] = ""
    calls: list[Call] = []
    usage: Usage = Usage()
    stop: str | None = None
    """end, tool, length, refusal, or a provider's own value; by default it follows from calls."""
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 2
    delay_s: Seconds = 0
    chunk_delay_s: Seconds = 0
    faults: list[Fault] = []
    raw_sse: list[str | dict[str, Any]] | None = None
    """Streamed instead of the answer: an object becomes one event, a string is sent unchanged."""
    expect: list[str] = []
    """The request must contain each of these texts; otherwise it gets status 418."""
    refuse: list[str] = []
    """The request must contain none of these."""


class When(_Part, frozen=True):
    """Conditions on a request; all given ones must be met."""

    first_user_contains: str | None = None
    """In the user's texts before the model's first answer."""
    last_user_contains: str | None = None
    """In the user's texts since the model's last answer."""
    system_contains: str | None = None
    model_contains: str | None = None
    body_contains: str | None = None
    provider: Provider | None = None

    def __post_init__(self) -> None:
        if not any(getattr(self, field) for field in self.__struct_fields__):
            message = '"when" needs at least one condition'
            raise ValueError(message)


class Thread(_Part, frozen=True):
    """A separate conversation, for instance a sub-agent's."""

    when: When
    steps: list[Step]
    name: Name | None = None


class Side(_Part, frozen=True):
    """A request outside the conversations (a title, a router): its answer uses no step."""

    when: When
    answer: Step


class Play(_Part, frozen=True):
    """What is played at one base URL."""

    steps: list[Step] = []
    threads: list[Thread] = []
    side: list[Side] = []
    select: Literal["history", "counter"] = "history"
    """history: step by the number of answers in the request; counter: of requests so far."""
    toolless: Literal["side", "step"] = "side"
    """Whether a request that offers no tools is a side request."""
    aux: Step | None = None
    """The answer to side requests that no `side` matches."""
    exhausted: Step | None = None
    """The answer after the last step."""
    models: tuple[str, ...] = ("scripted-model",)


class Script(Play, frozen=True):
    """The whole script: one play, or several by name at `/s/NAME`."""

    scripts: dict[Name, Play] = {}

    def __post_init__(self) -> None:
        if not (self.steps or self.threads or self.side or self.scripts):
            message = 'the script has none of "steps", "threads", "side", "scripts"'
            raise ValueError(message)


ScriptSource = Script | Mapping[str, Any] | str | Path

_STRUCTS = (Script, Step, Call, Fault, Usage, Thread, Side, When)
_KNOWN_FIELDS = sorted({field for struct in _STRUCTS for field in struct.__struct_encode_fields__})


class ScriptError(InputError):
    """A script is invalid; the message says where."""


def load_script(source: ScriptSource) -> Script:
    """Read and check a script."""
    if isinstance(source, Script):
        return source
    if isinstance(source, Mapping):
        return _checked(dict(source), "script")
    path = Path(source)
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"{path}: cannot read the script: {error.strerror or error}"
        raise ScriptError(message) from error
    return _checked(_parsed(raw, path), str(path))


def _parsed(raw: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(raw.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path}{_line_of(raw, str(error))}: not JSON: {error}"
        raise ScriptError(message) from error


def _line_of(raw: bytes, error: str) -> str:
    found = re.search(r"byte (\d+)", error)
    return f":{raw[: int(found[1])].count(b'\n') + 1}" if found else ""


def _checked(data: Any, where: str) -> Script:
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        message = f"{where}: {error}{_suggestion(str(error))}"
        raise ScriptError(message) from error


def _suggestion(error: str) -> str:
    found = re.search(r"unknown field `(\w+)`", error)
    near = difflib.get_close_matches(found[1], _KNOWN_FIELDS, n=1) if found else []
    return f'; did you mean "{near[0]}"?' if near else ""
