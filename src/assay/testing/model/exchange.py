"""A request and its answer, independent of the provider's protocol."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from assay.testing.model.script import Call, Fault, OneCall, Provider, Step, Usage

Role = Literal["system", "user", "assistant", "tool"]
JsonObject = dict[str, Any]

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)


@dataclass(frozen=True)
class Item:
    """One text of the history and its author."""

    role: Role
    text: str


@dataclass(frozen=True)
class OfferedTool:
    """A tool that the request offers to the model."""

    name: str
    parameters: JsonObject = field(default_factory=dict)
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True)
class Conversation:
    """A request to the model."""

    provider: Provider
    model: str
    stream: bool
    items: tuple[Item, ...]
    tools: tuple[OfferedTool, ...]
    answer_schema: JsonObject | None = None
    wants_usage: bool = True

    @property
    def turns(self) -> int:
        """How often the model has answered: the number of runs of assistant items.

        One answer may be several items (reasoning, text, calls) in the history.
        """
        roles = [item.role for item in self.items if item.role != "system"]
        starts = zip(["user", *roles], roles, strict=False)
        return sum(now == "assistant" != before for before, now in starts)

    @property
    def system(self) -> str:
        return "\n".join(item.text for item in self.items if item.role == "system")

    @property
    def first_user(self) -> str:
        """The user's texts before the model's first answer."""
        return _until_answer(self.items)

    @property
    def last_user(self) -> str:
        """The user's texts since the model's last answer, with the context that agents add."""
        return _until_answer(reversed(self.items))

    @property
    def last_prompt(self) -> str:
        """The last single text of the user."""
        return self._last("user")

    @property
    def last_tool_result(self) -> str:
        """The text of the last tool result, as this agent wraps it."""
        return self._last("tool")

    def _last(self, role: Role) -> str:
        return next((item.text for item in reversed(self.items) if item.role == role), "")


def texts_of(content: Any) -> Iterator[str]:
    """Yield each text in a message's content: a string, a part or a list of parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from texts_of(part)
    elif isinstance(content, dict) and isinstance(content.get("text"), str):
        yield content["text"]


def items_of(role: Role, texts: Iterable[str]) -> Iterator[Item]:
    """Make an item of each text, without the reminders that agents add."""
    for text in texts:
        bare = _REMINDER.sub("", text) if role in ("user", "tool") else text
        # An empty answer still counts as a turn, and an empty tool result as the last result.
        if bare or role in ("assistant", "tool"):
            yield Item(role, bare)


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string anywhere in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def _until_answer(items: Iterable[Item]) -> str:
    texts = []
    for item in items:
        if item.role == "assistant":
            break
        if item.role == "user":
            texts.append(item.text)
    return "\n".join(texts)


_EMPTY: dict[str, Any] = {
    "string": "scripted",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "null": None,
}


def minimal_value(schema: dict[str, Any]) -> Any:
    """Make a value with only what the schema requires, always with the first choice."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return minimal_value(schema[choice][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    # Gemini writes type names in upper case.
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        properties = schema.get("properties") or {}
        return {
            name: minimal_value(properties.get(name, {})) for name in schema.get("required", [])
        }
    if kind == "array":
        return [minimal_value(schema.get("items") or {}) for _ in range(schema.get("minItems", 0))]
    return _EMPTY.get(kind, "scripted")


@dataclass(frozen=True)
class ToolUse:
    """A call of one of the agent's own tools."""

    name: str
    arguments: dict[str, Any]
    namespace: str | None = None
    input: str | None = None


_TOOL_NAMES: dict[str, tuple[str, ...]] = {
    "shell": (
        "Bash",
        "exec_command",
        "run_shell_command",
        "bash",
        "shell",
        "shell_command",
        "execute_command",
        "developer__shell",
    ),
    "write_file": ("Write", "write_file", "write", "create_file"),
    "read_file": ("Read", "read_file", "read"),
    "edit_file": ("Edit", "replace", "edit", "edit_file"),
}
_ARGUMENT_NAMES: dict[str, tuple[str, ...]] = {
    "command": ("command", "cmd", "script"),
    "path": ("file_path", "filePath", "path", "absolute_path"),
    "content": ("content", "file_text", "contents"),
    "old": ("old_string", "oldString", "old_str"),
    "new": ("new_string", "newString", "new_str"),
}
_USUAL_SHELL: dict[Provider, tuple[str, str]] = {
    "anthropic": ("Bash", "command"),
    "responses": ("exec_command", "cmd"),
    "chat": ("bash", "command"),
    "gemini": ("run_shell_command", "command"),
}
_EDIT = (
    "import sys, pathlib; f = pathlib.Path(sys.argv[1]); "
    "f.write_text(f.read_text().replace(sys.argv[2], sys.argv[3], 1))"
)


def choose_tool(call: OneCall, conversation: Conversation) -> ToolUse:
    """Find the offered tool for a neutral call; without one, use the shell."""
    if call.tool is None:
        # Only OpenAI Responses has custom tools with free text as input.
        if call.input is not None and conversation.provider != "responses":
            return ToolUse(call.name or "", {"input": call.input, **call.arguments})
        return ToolUse(call.name or "", call.arguments, call.namespace, call.input)
    if call.tool == "mcp":
        return _mcp_use(call, conversation)
    offered = _offered(_TOOL_NAMES[call.tool], conversation)
    if offered is not None:
        return ToolUse(offered.name, _arguments(call, offered), offered.namespace)
    patch = _patch(call)
    if patch is not None and any(t.custom and t.name == "apply_patch" for t in conversation.tools):
        return ToolUse("apply_patch", {}, input=patch)
    command = _as_command(call)
    shell = _offered(_TOOL_NAMES["shell"], conversation)
    if shell is not None:
        return ToolUse(shell.name, _arguments(OneCall(tool="shell", command=command), shell))
    name, argument = _USUAL_SHELL[conversation.provider]
    return ToolUse(name, {argument: command, **call.arguments})


def _offered(names: tuple[str, ...], conversation: Conversation) -> OfferedTool | None:
    by_name = {tool.name: tool for tool in conversation.tools if not tool.custom}
    return next((by_name[name] for name in names if name in by_name), None)


def _arguments(call: OneCall, tool: OfferedTool) -> dict[str, Any]:
    properties = tool.parameters.get("properties") or {}
    arguments: dict[str, Any] = {}
    for known, spellings in _ARGUMENT_NAMES.items():
        value = getattr(call, known)
        if value is None:
            continue
        name = next((word for word in spellings if word in properties), spellings[0])
        # Some shell tools take the command as a list of words.
        as_list = (properties.get(name) or {}).get("type") == "array"
        arguments[name] = ["bash", "-lc", value] if as_list else value
    # Agents reject a call that lacks a required argument.
    for name in tool.parameters.get("required") or []:
        arguments.setdefault(name, minimal_value(properties.get(name) or {}))
    return {**arguments, **call.arguments}


def _mcp_use(call: OneCall, conversation: Conversation) -> ToolUse:
    server, name = call.server or "", call.name or ""
    for tool in conversation.tools:
        if tool.namespace == f"mcp__{server}" and tool.name == name:
            return ToolUse(name, call.arguments, tool.namespace)
    # How Claude Code, Gemini CLI and OpenCode name the tools of MCP servers.
    spellings = {
        "anthropic": f"mcp__{server}__{name}",
        "gemini": f"mcp_{server}_{name}",
        "chat": f"{server}_{name}",
    }
    offered = _offered((*spellings.values(), f"{server}__{name}"), conversation)
    if offered is not None:
        return ToolUse(offered.name, call.arguments, offered.namespace)
    if conversation.provider == "responses":
        return ToolUse(name, call.arguments, f"mcp__{server}")
    return ToolUse(spellings[conversation.provider], call.arguments)


def _patch(call: OneCall) -> str | None:
    """Return a patch for agents that edit with patches, which always end a file with a newline."""
    if call.tool == "write_file" and (call.content or "").endswith("\n"):
        body = [f"*** Add File: {call.path}", *_marked("+", call.content)]
    elif call.tool == "edit_file":
        body = [f"*** Update File: {call.path}", "@@", *_marked("-", call.old)]
        body += _marked("+", call.new)
    else:
        return None
    return "\n".join(["*** Begin Patch", *body, "*** End Patch"])


def _marked(mark: str, text: str | None) -> list[str]:
    return [mark + line for line in (text or "").removesuffix("\n").split("\n")]


def _as_command(call: OneCall) -> str:
    if call.tool == "shell":
        return call.command or ""
    path = shlex.quote(call.path or "")
    if call.tool == "read_file":
        return f"cat {path}"
    if call.tool == "write_file":
        folder = shlex.quote(str(PurePosixPath(call.path or "").parent))
        return f"mkdir -p {folder} && printf %s {shlex.quote(call.content or '')} > {path}"
    return shlex.join(["python3", "-c", _EDIT, call.path or "", call.old or "", call.new or ""])


FIXED_TIME_S = 1_700_000_000
"""The time in all answers, so that the same script gives the same bytes."""


@dataclass(frozen=True)
class ReplyCall:
    """A tool call with its id and its arguments as they are sent."""

    id: str
    use: ToolUse
    raw: str

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments, or None where they are broken on purpose."""
        try:
            parsed = json.loads(self.raw)
        except ValueError:
            return None
        return parsed if isinstance(parsed, dict) else None


@dataclass(frozen=True)
class Reply:
    """One answer of the model."""

    label: str
    model: str
    thinking: tuple[str, ...]
    text: tuple[str, ...]
    calls: tuple[ReplyCall, ...]
    usage: Usage
    stop: str
    chunks: int
    wants_usage: bool


def make_reply(step: Step, conversation: Conversation, label: str) -> Reply:
    """Turn a step into the answer to this request."""
    calls = tuple(
        _make_call(call, conversation, f"{label}_{number:02d}")
        for number, call in enumerate(step.calls)
    )
    # Gemini streams each thought in one piece; its clients take every piece for a thought.
    n_thoughts = 1 if conversation.provider == "gemini" else step.chunks
    return Reply(
        label=label,
        model=conversation.model,
        thinking=_pieces(step.thinking, n_thoughts, conversation),
        text=_pieces(step.text, step.chunks, conversation),
        calls=calls,
        usage=step.usage,
        stop=step.stop or ("tool" if calls else "end"),
        chunks=step.chunks,
        wants_usage=conversation.wants_usage,
    )


def cut(text: str, n_pieces: int) -> list[str]:
    """Cut a text into at most n_pieces pieces of about the same size."""
    size = max(1, -(-len(text) // n_pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _pieces(text: str | list[str], n_pieces: int, conversation: Conversation) -> tuple[str, ...]:
    if isinstance(text, list):
        return tuple(_filled(piece, conversation) for piece in text)
    return tuple(cut(_filled(text, conversation), n_pieces))


def _make_call(call: Call, conversation: Conversation, label: str) -> ReplyCall:
    chosen = call.by_provider.get(conversation.provider, call)
    use = _filled_use(choose_tool(chosen, conversation), conversation)
    raw = chosen.raw_arguments
    if raw is None:
        raw = json.dumps(use.arguments, ensure_ascii=False)
    prefix = "toolu" if conversation.provider == "anthropic" else "call"
    return ReplyCall(id=chosen.id or call.id or f"{prefix}_{label}", use=use, raw=raw)


def _filled_use(use: ToolUse, conversation: Conversation) -> ToolUse:
    text = None if use.input is None else _filled(use.input, conversation)
    return ToolUse(use.name, _filled_value(use.arguments, conversation), use.namespace, text)


def _filled_value(value: Any, conversation: Conversation) -> Any:
    if isinstance(value, str):
        return _filled(value, conversation)
    if isinstance(value, dict):
        return {key: _filled_value(inner, conversation) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled_value(inner, conversation) for inner in value]
    return value


def _filled(text: str, conversation: Conversation) -> str:
    if "{{" not in text:
        return text
    code = _JUDGE_CODE.search(conversation.last_prompt)
    filled = text.replace("{{judge_code}}", code[1] if code else "")
    filled = filled.replace("{{last_tool_result}}", conversation.last_tool_result)
    return filled.replace("{{last_user}}", conversation.last_prompt)


_JUDGE_CODE = re.compile(r'"code": "(\w+)", "pass"')
"""In the question of the grader `judge`."""


Event = JsonObject | str
"""One server-sent event; a string is sent as its data unchanged."""


@dataclass(frozen=True)
class ModelRequest:
    """A request as it arrived: the parsed body, and what only the URL holds."""

    body: JsonObject
    model: str | None = None
    stream: bool | None = None


@dataclass(frozen=True)
class Wire:
    """One provider's protocol, as pure functions."""

    provider: Provider
    read: Callable[[ModelRequest], Conversation]
    events: Callable[[Reply], list[Event]]
    whole: Callable[[Reply], JsonObject]
    error_body: Callable[[Fault], JsonObject]
    error_event: Callable[[Fault], Event]
    named_events: bool = False


def error_message(fault: Fault) -> str:
    """Return the script's error message, or a default one."""
    return fault.message or f"scripted error {fault.status}"
