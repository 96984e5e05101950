"""The adapter for Claude Code: `claude -p` with its stream of JSON events."""

import os
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.claude.outcome import failure_of_turn, usage_of_turn
from assay.adapters.claude.stream import ClaudeTurn
from assay.adapters.reading import read_turns
from assay.adapters.vendor import (
    McpServer,
    VendorAdapter,
    endpoints_of,
    files_of,
    is_too_long,
    mcp_servers,
    variables_of,
    vendor_reading,
)
from assay.plugin import Ask, Command, Reading, Watch
from assay.records.capture import AgentInfo
from assay.records.recording import Recording, TurnEnd

_ENV = {
    "IS_SANDBOX": "1",  # otherwise Claude Code refuses bypassPermissions as root
    "DISABLE_AUTOUPDATER": "1",
    # Otherwise a command that runs too long goes on in the background, and the turn prints a second
    # result when it ends.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}
_QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_BUG_COMMAND": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}
_PASSED = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_MAX_RETRIES",
    "API_TIMEOUT_MS",
)
_ENDPOINTS = (
    "https://api.anthropic.com",
    # Where a login is renewed:
    "https://console.anthropic.com",
    "https://platform.claude.com",
)
_SETUP = {
    "permissionMode": "permissionMode",
    "apiKeySource": "apiKeySource",
    "tools": "tools",
    "skills": "skills",
    "agents": "agents",
    "output_style": "outputStyle",
}


class ClaudeAdapter(VendorAdapter):
    """One process for each turn; later turns resume the session of the first."""

    name = "claude"
    reads = ("CLAUDE.md", "CLAUDE.local.md", ".claude", ".mcp.json")
    reads_in_home = (
        *(".claude/CLAUDE.md", ".claude/settings.json", ".claude/skills", ".claude/agents"),
        *(".claude/commands", ".claude/rules"),
    )
    skills_folder = ".claude/skills"
    instructions_file = "CLAUDE.md"

    def command(self, ask: Ask) -> Command:
        """Start Claude Code for one turn, with every permission."""
        options = self._options
        servers = mcp_servers(options, ask)
        argv = [options.program, "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--forward-subagent-text", "--permission-mode", "bypassPermissions"]
        if options.model:
            argv += ["--model", options.model]
        if options.max_turns:
            argv += ["--max-turns", str(options.max_turns)]
        if ask.home:  # no user settings; those of the workspace are part of the evaluation
            argv += ["--setting-sources", "project", "--strict-mcp-config"]
        if servers:
            argv += ["--mcp-config", _mcp_config(servers)]
        if ask.session_id:
            argv += ["--resume", ask.session_id]
        argv += options.args
        # "--" comes before the prompt because options such as --mcp-config take lists.
        on_stdin = is_too_long(ask.text)
        place = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
        name = ".credentials.json"
        return Command(
            argv=tuple(argv) if on_stdin else (*argv, "--", ask.text),
            env={**_ENV, **_QUIET} if ask.home else _ENV,
            stdin=ask.text if on_stdin else None,
            pass_env=(*_PASSED, *variables_of(servers.values())),
            keep=(
                "~/.claude/projects/*/{session_id}.jsonl",
                "~/.claude/projects/*/{session_id}/subagents/*.jsonl",
            ),
            visible=files_of(servers.values()),
            login={f"{ask.home}/.claude/{name}": f"{place}/{name}"} if ask.home else {},
            endpoints=endpoints_of(options, servers.values(), ("ANTHROPIC_BASE_URL",), *_ENDPOINTS),
        )

    def watch(self) -> Watch:
        return ClaudeTurn()

    def read(self, recording: Recording) -> Reading:
        turns = read_turns(recording, ClaudeTurn)
        usages = [usage_of_turn(turn, recording.kept) for turn in turns]
        end = recording.turns[-1].end if recording.turns else TurnEnd()
        init = next((turn.init for turn in reversed(turns) if turn.init), {})
        answered = next((turn.model for turn in turns if turn.model), None)
        model, version = init.get("model") or answered, init.get("claude_code_version")
        return vendor_reading(
            turns,
            [step for turn in turns for step in turn.steps],
            usages,
            agent=AgentInfo(adapter="claude", version=version or UNSET, model=model or UNSET),
            failure=failure_of_turn(turns[-1], end, recording.stderr) if turns else None,
            setup=self._setup(turns),
            permission_denials=sum(len(turn.denied) for turn in turns),
            provider_retries=sum(turn.retries for turn in turns),
        )

    def _setup(self, turns: list[ClaudeTurn]) -> dict[str, Any] | None:
        """The agent's setup, without the paths, which differ from trial to trial."""
        init = next((turn.init for turn in turns if turn.init), None)
        if init is None:
            return None
        setup = {ours: init[theirs] for theirs, ours in _SETUP.items() if theirs in init}
        for theirs, ours, fields in (
            ("mcp_servers", "mcpServers", ("name", "status")),
            ("plugins", "plugins", ("name", "source")),
        ):
            if (listed := _objects(init.get(theirs))) is not None:
                setup[ours] = [{field: entry.get(field) for field in fields} for entry in listed]
        if "mcpServers" in setup:
            names = {server["name"] for server in setup["mcpServers"] if server["name"]}
            missing = [name for name in self._options.mcp if name not in names]
            setup["mcpServers"] += [{"name": name, "status": "missing"} for name in missing]
        if errors := _objects(init.get("plugin_errors")):
            setup["pluginErrors"] = [_plugin_error(error) for error in errors]
        answered = next((turn.model for turn in turns if turn.model), None)
        if answered and init.get("model") not in (None, answered):
            setup["answeredBy"] = answered
        return setup


def _objects(listed: Any) -> list[dict[str, Any]] | None:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else None


def _plugin_error(error: dict[str, Any]) -> dict[str, Any]:
    """Name a plugin that did not load: by its folder, because one without a name has a number."""
    folder = str(error.get("path") or "").rstrip("/").rpartition("/")[2]
    return {"name": folder or error.get("plugin"), "type": error.get("type")}


def _mcp_config(servers: dict[str, McpServer]) -> str:
    """Write the servers as they are: the common format is Claude Code's own."""
    config: dict[str, Any] = {}
    for name, server in servers.items():
        fields = msgspec.to_builtins(server)
        if server.is_remote:
            fields.setdefault("type", "http")
        config[name] = fields
    return msgspec.json.encode({"mcpServers": config}).decode()
