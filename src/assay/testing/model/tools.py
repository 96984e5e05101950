"""Say a neutral tool in the words of the agent that asks: its tool's name and arguments."""

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from assay.testing.model.conversation import Conversation, OfferedTool, minimal_value
from assay.testing.model.script import Call, Provider


@dataclass(frozen=True)
class ToolUse:
    """A call in the agent's own words."""

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


def choose_tool(call: Call, conversation: Conversation) -> ToolUse:
    """Find the offered tool that does what the call says; without one, the shell does it."""
    if call.tool is None:
        return _named_use(call, conversation)
    if call.tool == "mcp":
        return _mcp_use(call, conversation)
    offered = _offered(_TOOL_NAMES[call.tool], conversation)
    if offered is not None:
        return ToolUse(offered.name, _arguments(call, offered), offered.namespace)
    patch = _patch(call)
    if patch is not None and any(t.custom and t.name == "apply_patch" for t in conversation.tools):
        return ToolUse("apply_patch", {}, input=patch)
    return _shell_use(call, conversation)


def _named_use(call: Call, conversation: Conversation) -> ToolUse:
    if call.input is not None and conversation.provider != "responses":
        return ToolUse(call.name or "", {"input": call.input, **call.arguments})
    return ToolUse(call.name or "", call.arguments, call.namespace, call.input)


def _offered(names: tuple[str, ...], conversation: Conversation) -> OfferedTool | None:
    by_name = {tool.name: tool for tool in conversation.tools if not tool.custom}
    return next((by_name[name] for name in names if name in by_name), None)


def _arguments(call: Call, tool: OfferedTool) -> dict[str, Any]:
    properties = tool.parameters.get("properties") or {}
    arguments: dict[str, Any] = {}
    for field, spellings in _ARGUMENT_NAMES.items():
        value = getattr(call, field)
        if value is None:
            continue
        name = next((word for word in spellings if word in properties), spellings[0])
        as_list = (properties.get(name) or {}).get("type") == "array"
        arguments[name] = ["bash", "-lc", value] if as_list else value
    for name in tool.parameters.get("required") or []:
        arguments.setdefault(name, minimal_value(properties.get(name) or {}))
    return {**arguments, **call.arguments}


def _mcp_use(call: Call, conversation: Conversation) -> ToolUse:
    server, name = call.server or "", call.name or ""
    for tool in conversation.tools:
        if tool.namespace == f"mcp__{server}" and tool.name == name:
            return ToolUse(name, call.arguments, tool.namespace)
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


def _patch(call: Call) -> str | None:
    """A patch for agents that edit by patches; those always end a file with a newline."""
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


def _shell_use(call: Call, conversation: Conversation) -> ToolUse:
    command = _as_command(call)
    shell = _offered(_TOOL_NAMES["shell"], conversation)
    if shell is not None:
        return ToolUse(shell.name, _arguments(Call(tool="shell", command=command), shell))
    name, argument = _USUAL_SHELL[conversation.provider]
    return ToolUse(name, {argument: command, **call.arguments})


def _as_command(call: Call) -> str:
    if call.tool == "shell":
        return call.command or ""
    path = shlex.quote(call.path or "")
    if call.tool == "read_file":
        return f"cat {path}"
    if call.tool == "write_file":
        folder = shlex.quote(str(PurePosixPath(call.path or "").parent))
        return f"mkdir -p {folder} && printf %s {shlex.quote(call.content or '')} > {path}"
    return shlex.join(["python3", "-c", _EDIT, call.path or "", call.old or "", call.new or ""])
