"""MCP servers and hooks in the settings of agents, and the files that their commands name."""

import contextlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from assay.pipeline.loaded import Loader

SERVER_FILES = frozenset({
    ".mcp.json", "mcp.json", "settings.json", "settings.local.json", "opencode.json",
    "opencode.jsonc", "config.toml", ".claude.json",
})  # fmt: skip
"""Names of files in which agents find MCP servers and hooks."""
_TABLES = ("mcpServers", "mcp", "mcp_servers")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def read_settings(file: Path) -> dict[str, Any]:
    """Read a file of settings; nothing if it cannot be read."""
    content: Any = None
    with contextlib.suppress(
        OSError, UnicodeError, ValueError, msgspec.MsgspecError, RecursionError
    ):
        if file.suffix == ".toml":
            content = tomllib.loads(file.read_text("utf-8"))
        else:
            text = file.read_text("utf-8-sig")
            if file.suffix == ".jsonc":
                text = re.sub(r"(?m)^\s*//.*$", "", text)
            content = msgspec.json.decode(text)
    return content if isinstance(content, dict) else {}


def add_servers(loader: Loader, content: dict[str, Any], folder: Path) -> Iterator[str]:
    """Add what servers and hooks load, started in a folder; yield what cannot be known of them."""
    for key in _TABLES:
        table = content.get(key)
        if not isinstance(table, dict):
            continue
        table = table.get("mcpServers", table)
        for name, server in table.items() if isinstance(table, dict) else ():
            if isinstance(server, dict):
                yield from _server(loader, str(name), server, folder)
    for command in _hook_commands(content.get("hooks")):
        loader.shell_line(command, folder)


def _server(loader: Loader, name: str, server: dict[str, Any], folder: Path) -> Iterator[str]:
    command = server.get("command")
    words = command if isinstance(command, list) else [command] if command else []
    words = [str(word) for word in (*words, *_texts(server.get("args")))]
    place = folder / str(server.get("cwd") or "")
    if words:
        loader.command(words, place if place.is_dir() else folder, depth=1)
        loader.operands(words, folder)
    for table in ("env", "environment"):
        values = server.get(table)
        loader.operands(_texts(list(values.values()) if isinstance(values, dict) else ()), folder)
    loader.read_by_name(re.findall(r"\$\{?(\w+)", str(server)))
    url = next((server[key] for key in ("url", "httpUrl") if isinstance(server.get(key), str)), "")
    if url and not words:
        host = urlsplit(url).hostname or "another machine"
        where = "this machine" if host in _LOOPBACK else host
        yield f"what the MCP server {name} on {where} answers"


def _texts(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []


def _hook_commands(hooks: Any) -> Iterator[str]:
    """Yield the commands in Claude Code's hooks, at whatever depth they stand."""
    for value in (
        hooks.values() if isinstance(hooks, dict) else hooks if isinstance(hooks, list) else ()
    ):
        if isinstance(value, dict | list):
            yield from _hook_commands(value)
    if isinstance(hooks, dict) and isinstance(hooks.get("command"), str):
        yield hooks["command"]
