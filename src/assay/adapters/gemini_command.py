"""Say how to start Gemini CLI for one turn."""

import os
from typing import Any

import msgspec

from assay.adapters.vendor import McpServer, VendorOptions, mcp_servers, variables_of
from assay.seams import Ask, Command

DEFAULT_MODEL = "gemini-2.5-pro"
"""Without a model it asks another one which to use, so one is always named."""
_KEYS = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_ENV = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
_APPROVAL = ("--approval-mode", "-y", "--yolo")
_LONGEST_ARGUMENT = 100_000
_QUOTES = "\"'"


def gemini_command(options: VendorOptions, ask: Ask) -> Command:
    """Put the command line together; settings go through a file of ours, never the user's."""
    servers = mcp_servers(options, ask)
    argv = [options.program, "--output-format", "stream-json"]
    if not any(arg.split("=", 1)[0] in _APPROVAL for arg in options.args):
        argv += ["--approval-mode", "yolo"]
    argv += ["-m", options.model or DEFAULT_MODEL]
    if ask.session_id is not None:
        argv += ["--resume", ask.session_id]
    argv += options.args
    on_stdin = _is_unsafe(ask.text)
    if not on_stdin:
        argv += ["-p", ask.text]
    env, path, keep = _home(ask)
    settings = _settings(options, servers)
    if ask.home is not None:
        settings["security"] = {"auth": {"selectedType": _auth_type()}}
    return Command(
        argv=tuple(argv),
        env={**_ENV, **env},
        stdin=ask.text if on_stdin else None,
        files={path: msgspec.json.encode(settings).decode()},
        pass_env=(*_KEYS, *variables_of(servers.values())),
        keep=keep,
    )


def _home(ask: Ask) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Give environment, settings file and what to keep: a home of its own, or the user's."""
    chats = "~/.gemini/tmp/*/chats"
    if ask.home is not None:
        env = {"GEMINI_CLI_HOME": ask.home}
        keep = (f"{chats}/session-*.jsonl", f"{chats}/*/*.jsonl")
        return env, f"{ask.home}/.gemini/settings.json", keep
    path = f"{ask.scratch}/gemini-settings.json"
    keep = (f"{chats}/session-*-{{session_id:8}}.jsonl", f"{chats}/{{session_id}}/*.jsonl")
    return {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": path}, path, keep


def _auth_type() -> str:
    """Name how an isolated agent logs in; left to itself it takes a base URL for a gateway."""
    vertex = os.environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true"
    return "vertex-ai" if vertex else "gemini-api-key"


def _is_unsafe(text: str) -> bool:
    """Whether a prompt would not survive as an argument: its parser strips quotes, reads flags."""
    quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]
    too_long = len(text.encode("utf-8", "replace")) > _LONGEST_ARGUMENT
    return quoted or too_long or text.startswith("-")


def _settings(options: VendorOptions, servers: dict[str, McpServer]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    if options.max_turns is not None:
        settings["model"] = {"maxSessionTurns": options.max_turns}
    if servers:
        settings["mcpServers"] = {name: _server(server) for name, server in servers.items()}
    return settings


def _server(server: McpServer) -> dict[str, Any]:
    """Say a server in Gemini's words; it is trusted, since nobody is there to ask."""
    if server.url is not None:
        key = "url" if server.type == "sse" else "httpUrl"
        fields: dict[str, Any] = {key: server.url, "headers": server.headers}
    else:
        fields = {"command": server.command, "args": list(server.args), "env": server.env}
        fields["cwd"] = server.cwd
    return {name: value for name, value in fields.items() if value} | {"trust": True}
