"""Tools of different agents by what they do: one table for the page, the server and detectors."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec


class ToolKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tools of different agents that do the same.

    A tool is of a kind by its name in lower case, or by the pattern.
    """

    title: str
    names: tuple[str, ...]
    also: str = ""
    """What people call these tools, besides the name of the kind."""
    pattern: str = ""


TOOL_KINDS = {
    "shell": ToolKind(
        title="Command",
        names=(
            "bash",
            "shell",
            "exec_command",
            "run_shell_command",
            "local_shell",
            "shell_command",
            "command_execution",
            "execute",
            "run_command",
            "run_terminal_cmd",
            "terminal",
            "exec",
        ),
        also="bash",
    ),
    "read": ToolKind(
        title="Read",
        names=(
            "read",
            "read_file",
            "read_many_files",
            "view",
            "open_file",
            "cat",
            "notebookread",
        ),
    ),
    "write": ToolKind(
        title="Write",
        names=(
            "write",
            "write_file",
            "create_file",
            "create",
        ),
    ),
    "edit": ToolKind(
        title="Edit",
        names=(
            "edit",
            "multiedit",
            "multi_edit",
            "replace",
            "apply_patch",
            "patch",
            "file_change",
            "edit_file",
            "str_replace",
            "str_replace_editor",
            "str_replace_based_edit_tool",
            "notebookedit",
        ),
    ),
    "search": ToolKind(
        title="Search",
        names=(
            "grep",
            "glob",
            "search_file_content",
            "grep_search",
            "rg",
            "find",
            "file_search",
            "find_files",
            "search",
        ),
    ),
    "list": ToolKind(
        title="List",
        names=(
            "ls",
            "list",
            "list_directory",
            "list_dir",
        ),
    ),
    "web": ToolKind(
        title="Web",
        names=(
            "webfetch",
            "web_fetch",
            "websearch",
            "web_search",
            "google_web_search",
            "fetch",
        ),
    ),
    "agent": ToolKind(
        title="Sub-agent",
        names=(
            "task",
            "agent",
            "spawn_agent",
            "subagent",
            "delegate",
        ),
    ),
    "plan": ToolKind(
        title="Plan",
        names=(
            "todowrite",
            "todo_write",
            "write_todos",
            "update_plan",
        ),
    ),
    "mcp": ToolKind(
        title="MCP",
        names=(),
        pattern=r"^mcp__(.{1,80}?)__(.{1,120})$|^mcp_([^_]{1,80})_(.{1,120})$",
    ),
}
OTHER = "other"
"""The kind of a tool that is not in the table."""
PATHS = frozenset(
    {"path", "file", "filename", "file_path", "filepath", "notebook_path", "paths", "files"}
)
"""Keys of a tool's input under which agents give file names, in lower case."""
_MCP = re.compile(TOOL_KINDS["mcp"].pattern)
_KIND_OF_NAME = {name: kind for kind, about in TOOL_KINDS.items() for name in about.names}


@cache
def kind_of_tool(name: str) -> str:
    """Return the kind of a tool by its name."""
    return "mcp" if _MCP.search(name) else _KIND_OF_NAME.get(name.lower(), OTHER)


def kind_meant(word: str) -> str:
    """Return the kind that a word in a query means; none if it is only the name of a tool."""
    return next((kind for kind, about in TOOL_KINDS.items() if word in (kind, about.also)), "")


def paths_in(value: Any, key: str = "") -> Iterator[str]:
    """Yield the file names in the input of a tool call."""
    if isinstance(value, str) and key.lower() in PATHS:
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from paths_in(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from paths_in(one, key)


def tool_table() -> str:
    """Return the table as JSON, as the page's script imports it."""
    return msgspec.json.format(msgspec.json.encode(TOOL_KINDS), indent=2).decode()
