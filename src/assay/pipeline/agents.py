"""The agent of a run: found by name, given its options, and its files made absolute."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay import plugins
from assay.adapters.prices import price_table
from assay.adapters.vendor import parse_mcp, with_full_paths
from assay.errors import InputError
from assay.records.rows import decode_json
from assay.records.spec import PluginRef, Surroundings
from assay.records.text import visible_line

TEXT_AGENTS = ("simple", "shell")
"""Adapters of agents that are a command line; it is their option `template`."""


def text_agent(kind: str, template: str) -> PluginRef:
    """Return the agent that is a command line: kind is simple or shell."""
    return PluginRef(name=kind, options={"template": template})


def without_prompt(agent: PluginRef) -> str:
    """Return a warning about a shell command that seems to take no prompt, else nothing."""
    template = str(agent.options.get("template", ""))
    if agent.name != "shell" or "PROMPT" in template:
        return ""
    return (
        f'Warning: --shell {visible_line(template)!r} does not use "$PROMPT". Unless a program '
        "in it reads that variable, the agent gets no prompt."
    )


def agent_ref(
    agent: str | PluginRef,
    *,
    model: str | None = None,
    args: Sequence[str] = (),
    mcp: Path | Mapping[str, Any] | None = None,
    max_turns: int | None = None,
    strict: bool = False,
) -> PluginRef:
    """Return an agent with its options; check that it can be built and its cost be estimated.

    agent is the name of an adapter, a schema file, or a reference; mcp is a file with MCP servers
    (the common mcpServers JSON), or what read_mcp made of one. strict refuses an agent with
    warnings.
    """
    if os.environ.get("ASSAY_PRICES"):
        price_table()
    ref = plugins.adapter_ref(agent) if isinstance(agent, str) else agent
    if isinstance(mcp, Path):
        mcp = read_mcp(mcp)
    more = {"model": model, "args": tuple(args), "mcp": mcp, "max_turns": max_turns}
    more = {name: value for name, value in more.items() if value}
    flags = {"model": "--model", "args": "--agent-arg", "mcp": "--mcp", "max_turns": "--max-turns"}
    if refused := sorted(flags[key] for key in more.keys() - plugins.adapter_options(ref.name)):
        who = f"the adapter {ref.name}"
        who = "an agent described by a schema" if ref.name == "declared" else who
        msg = f"{who} does not support {' and '.join(refused)}"
        hint = "pass the agent's own arguments with --agent-arg, if the adapter supports it"
        raise InputError(msg, hint=hint)
    ref = msgspec.structs.replace(ref, options={**ref.options, **more})
    warnings = plugins.adapter(ref).warnings
    if strict and warnings:
        raise InputError("\n  ".join(warnings), hint="fix it, or leave out --strict")
    return ref


def read_mcp(path: Path, data: bytes | None = None) -> dict[str, Any]:
    """Read an mcpServers file; data is its content, if it was read already."""
    name = str(path)
    if data is None:
        try:
            data = path.read_bytes()
        except OSError as error:
            msg = f"{path}: {error.strerror}"
            raise InputError(msg, hint="check the path that --mcp names") from error
    else:
        name = "stdin"
    content = decode_json(name, data)
    parse_mcp(content, str(path))

    def beside(word: str) -> str | None:
        """Find a relative path in the folder of the file, or in the current one."""
        return None if Path(word).is_absolute() else _file_in(word, path.parent, Path.cwd())

    return dict(with_full_paths(content, beside))


def with_absolute_paths(agent: PluginRef, around: Surroundings) -> PluginRef:
    """Make files of the agent's command absolute: a workspace is another folder than ours."""
    options = agent.options
    if around.workspace_dir is None or around.container:
        return agent
    if agent.name in TEXT_AGENTS:
        text = _absolute_scripts(options["template"], around.cwd)
        return msgspec.structs.replace(agent, options={**options, "template": text})
    schema = options.get("schema")
    command = schema.get("command") if isinstance(schema, dict) else options.get("command")
    if not isinstance(command, list):
        return agent
    found = [_absolute(word, around.cwd) for word in command]
    changed = {"schema": {**schema, "command": found}} if schema else {"command": found}
    return msgspec.structs.replace(agent, options={**options, **changed})


def _absolute(word: Any, folder: str) -> Any:
    """Return a word that names a file with a folder or an extension as an absolute path."""
    if not isinstance(word, str) or not ("/" in word or Path(word).suffix):
        return word
    return _file_in(word, Path(folder)) or word


_SCRIPT = (
    r"(?<![^\s;|&])(?:\.{1,2}/[\w./+-]+|[\w.+-][\w./+-]*\.(?:py|js|mjs|cjs|ts|mts|sh|rb|pl|php)\b)"
)


def _absolute_scripts(template: str, folder: str) -> str:
    """The same for a command line as text: only scripts and ./programs, as the rest may be data."""

    def absolute(found: re.Match[str]) -> str:
        return shlex.quote(_file_in(found[0], Path(folder)) or found[0])

    return re.sub(_SCRIPT, absolute, template)


def _file_in(name: str, *folders: Path) -> str | None:
    # Links are not followed: the python of a virtual environment is one.
    places = (folder.absolute() / name for folder in folders)
    try:
        return next((str(path) for path in places if path.is_file()), None)
    except (OSError, ValueError):  # too long for a name, or with a NUL: no path at all
        return None
