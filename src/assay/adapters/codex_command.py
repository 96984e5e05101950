"""Say how to start Codex for one turn."""

import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.vendor import McpServer, VendorOptions, mcp_servers, variables_of
from assay.errors import InputError
from assay.seams import Ask, Command

_CONFIG = """\
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
apps = false
unbounded_connection_retries = false
"""
"""Of an isolated agent: it speaks with its provider and nobody else, and gives up on a dead one."""
_KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION")
_BYPASS = "--dangerously-bypass-approvals-and-sandbox"
_OWN_SANDBOX = ("-s", "--sandbox", "--full-auto", "-a", "--ask-for-approval", _BYPASS, "--yolo")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_LOG = "error,codex_mcp=warn"
"""Makes it say on stderr which MCP servers did not start; nothing else tells."""
_LONGEST_ARGUMENT = 100_000
_TRIPLES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def codex_command(options: VendorOptions, ask: Ask) -> Command:
    """Put the command line together; the prompt comes behind -- or, when long, on stdin."""
    servers = mcp_servers(options, ask)
    argv = [native_program(options.program), "exec"]
    if ask.session_id is not None:
        argv.append("resume")
    argv += ["--json", "--skip-git-repo-check", *_sandbox(options.args)]
    if options.model is not None:
        argv += ["-m", options.model]
    for setting in _mcp_settings(servers, required=frozenset(ask.mcp_servers)):
        argv += ["-c", setting]
    argv += options.args
    if ask.session_id is not None:
        argv.append(ask.session_id)
    on_stdin = len(ask.text.encode("utf-8", "replace")) > _LONGEST_ARGUMENT or ask.text == "-"
    argv += ["-"] if on_stdin else ["--", ask.text]
    env, files, keep = _home(ask)
    if servers:
        env = {**env, "RUST_LOG": _LOG}
    return Command(
        argv=tuple(argv),
        env=env,
        stdin=ask.text if on_stdin else None,
        files=files,
        pass_env=(*_KEYS, *variables_of(servers.values())),
        keep=keep,
    )


def native_program(name: str) -> str:
    """Find the binary behind npm's wrapper: one process less, and signals reach it."""
    found = shutil.which(name)
    if found is None:
        return name
    script = Path(found).resolve()
    if script.suffix != ".js":
        return name
    machine = _TRIPLES.get(platform.machine().lower(), platform.machine().lower())
    package = f"@openai/codex-{platform.system().lower()}-{machine}"
    root = script.parents[1]  # …/node_modules/@openai/codex
    for modules in (root / "node_modules", root.parents[1]):
        binaries = sorted((modules / package).glob("vendor/*/bin/codex"))
        if binaries:
            return str(binaries[0])
    return name


def _home(ask: Ask) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """Give environment, files and what to keep: a home of its own, or the user's."""
    if ask.home is not None:
        home = f"{ask.home}/.codex"
        env = {"CODEX_HOME": home}
        key = os.environ.get("OPENAI_API_KEY")
        if key and "CODEX_API_KEY" not in os.environ:
            env["CODEX_API_KEY"] = key  # without a login Codex looks at this name only
        keep = ("~/.codex/sessions/**/rollout-*.jsonl",)
        return env, {f"{home}/config.toml": _CONFIG}, keep
    place = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    if not place.is_relative_to(Path.home()):
        return {}, {}, ()
    below = place.relative_to(Path.home()).as_posix()
    return {}, {}, (f"~/{below}/sessions/**/rollout-*{{session_id}}.jsonl",)


def _sandbox(args: tuple[str, ...]) -> list[str]:
    """Let it do everything, unless the user says how far it may go."""
    chosen = any(arg.split("=", 1)[0] in _OWN_SANDBOX for arg in args)
    chosen = chosen or any(arg.startswith(("sandbox_mode", "approval_policy")) for arg in args)
    return [] if chosen else [_BYPASS]


def _mcp_settings(servers: dict[str, McpServer], required: frozenset[str]) -> list[str]:
    """Give the settings of all servers; without those of its world a trial measures nothing."""
    settings: list[str] = []
    for name, server in servers.items():
        if not _SERVER_NAME.fullmatch(name):
            msg = f"mcpServers.{name}: Codex takes only letters, digits, _ and - in a server's name"
            raise InputError(msg)
        table = _server_table(server) | ({"required": True} if name in required else {})
        for key, value in table.items():
            settings.append(f"mcp_servers.{name}.{key}={_toml(value)}")
    return settings


def _server_table(server: McpServer) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if server.url is not None:
        table["url"] = _filled(server.url)
        if server.headers:
            table["http_headers"] = {key: _filled(text) for key, text in server.headers.items()}
        return table
    table["command"] = _filled(server.command or "")
    table["args"] = [_filled(word) for word in server.args]
    if server.cwd is not None:
        table["cwd"] = server.cwd
    passed = [key for key, text in server.env.items() if text == f"${{{key}}}"]
    env = {key: _filled(text) for key, text in server.env.items() if key not in passed}
    if env:
        table["env"] = env
    if passed:
        table["env_vars"] = passed
    return table


def _filled(text: str) -> str:
    """Put in the values of ${NAME}: Codex does not do it itself."""
    return _REFERENCE.sub(lambda m: os.environ.get(m.group(1), m.group(2) or ""), text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml(key)} = {_toml(inner)}" for key, inner in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return msgspec.json.encode(value).decode()
