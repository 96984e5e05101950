"""The adapter for Claude Code: `claude -p` with its stream of JSON events."""

import os
import re
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.claude.stream import ClaudeTurn, refusal_ms
from assay.adapters.claude.transcript import OF_API, counted, read_transcript, usages_of
from assay.adapters.files import files_in
from assay.adapters.prices import with_cost
from assay.adapters.reading import (
    cost_at,
    list_at,
    object_at,
    parse_line,
    read_turns,
    recent_files,
    text_at,
)
from assay.adapters.vendor import (
    McpServer,
    Provider,
    VendorAdapter,
    is_too_long,
    login_file,
    mcp_servers,
    parse_commented_json,
    pick_settings,
    read_settings,
    start_failure,
    status_cause,
    text_cause,
    users_home,
    vendor_command,
    vendor_reading,
    without_flags,
)
from assay.errors import InputError
from assay.plugin import Ask, Command, PastSession, Reading, Watch
from assay.records.capture import IMPOSSIBLE_USD, Cause, Failure, Usage
from assay.records.recording import Recording, TurnEnd

_ENV = {
    "IS_SANDBOX": "1",  # otherwise Claude Code refuses bypassPermissions as root
    "DISABLE_AUTOUPDATER": "1",
    # Otherwise a command that runs too long goes on in the background, and the turn prints a second
    # result when it ends.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}
_BYPASS = ("--permission-mode", "bypassPermissions")
_NO_TOOLS = (
    *("--tools", "", "--strict-mcp-config", "--disable-slash-commands"),
    *("--permission-mode", "default"),
)
"""The empty list leaves no built-in tool, and the second word none of MCP servers."""
_TOOL_FLAGS = {
    "--dangerously-skip-permissions": 0,
    "--allow-dangerously-skip-permissions": 0,
    "--permission-mode": 1,
    "--tools": 1,
    "--mcp-config": 1,
    "--settings": 1,
    "--add-dir": 1,
}
"""Arguments of a user that would undo it."""
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
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
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
        *(".claude/commands", ".claude/rules", ".claude/output-styles"),
        *(".claude/plugins/installed_plugins.json", ".claude.json#mcpServers"),
    )
    base_urls = (("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),)
    model_keys = ("ANTHROPIC_API_KEY",)
    skills_folder = ".claude/skills"
    instructions_file = "CLAUDE.md"

    def command(self, ask: Ask) -> Command:
        """Start Claude Code for one turn, with every permission or without tools."""
        options = self._options
        servers = mcp_servers(options, ask)
        argv = [options.program, "-p", "--output-format", "stream-json", "--verbose"]
        argv.append("--forward-subagent-text")
        argv += _BYPASS if ask.tools else _NO_TOOLS
        provider = users_provider() if ask.home else Provider()
        if model := options.model or provider.model:
            argv += ["--model", model]
        if options.max_turns:
            argv += ["--max-turns", str(options.max_turns)]
        if ask.home:  # no user settings; those of the workspace are part of the evaluation
            argv += ["--setting-sources", "project"]
            argv += ["--strict-mcp-config"] if ask.tools else []
            if provider.settings:
                argv += ["--settings", msgspec.json.encode(provider.settings).decode()]
        if servers:
            argv += ["--mcp-config", _mcp_config(servers)]
        if ask.session_id:
            argv += ["--resume", ask.session_id]
        argv += options.args if ask.tools else without_flags(options.args, _TOOL_FLAGS)
        # "--" comes before the prompt because options such as --mcp-config take lists.
        on_stdin = is_too_long(ask.text)
        command = vendor_command(
            options,
            servers,
            _PASSED,
            (("ANTHROPIC_BASE_URL",), provider.endpoints or _ENDPOINTS),
            argv=tuple(argv) if on_stdin else (*argv, "--", ask.text),
            env={**_ENV, **_QUIET, **provider.env} if ask.home else _ENV,
            home_env=("CLAUDE_CONFIG_DIR",),
            stdin=ask.text if on_stdin else None,
            keep=(
                "~/.claude/projects/*/{session_id}.jsonl",
                "~/.claude/projects/*/{session_id}/subagents/*.jsonl",
            ),
            login=login_file(ask, "CLAUDE_CONFIG_DIR", ".claude", ".credentials.json"),
        )
        helper = str(provider.settings.get("apiKeyHelper") or "")
        visible = (*command.visible, *files_in(helper.split()))
        return msgspec.structs.replace(command, visible=visible) if helper else command

    def redirect(
        self, command: Command, ask: Ask, through: Callable[[str], str], *, offline: bool = False
    ) -> Command:
        """Set its base URL; for the user's HOME also in the settings, which come first."""
        url = users_provider().env.get("ANTHROPIC_BASE_URL")
        if url and not ask.home:
            settings = msgspec.json.encode({"env": {"ANTHROPIC_BASE_URL": through(url)}}).decode()
            argv = (command.argv[0], "--settings", settings, *command.argv[1:])
            env = {"ANTHROPIC_BASE_URL": url, **command.env}
            command = msgspec.structs.replace(command, argv=argv, env=env)
        return super().redirect(command, ask, through, offline=offline)

    def provider_settings(self) -> dict[str, Any]:
        found = users_provider()
        env = {name: value for name, value in found.env.items() if name not in _KEYS}
        return {**found.settings, **env, **({"model": found.model} if found.model else {})}

    def past_sessions(self, since_ms: float) -> Iterator[PastSession]:
        """Read what stands in the user's folder of projects."""
        folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or users_home() / ".claude")
        for path in recent_files(folder / "projects", "*/*.jsonl", since_ms):
            with path.open("rb") as file:
                session = read_transcript(path, file)
            if session is not None:
                yield session

    def watch(self) -> Watch:
        return ClaudeTurn()

    def read(self, recording: Recording) -> Reading:
        turns = read_turns(recording, ClaudeTurn)
        usages = [usage_of_turn(turn, recording.kept) for turn in turns]
        end = recording.turns[-1].end if recording.turns else TurnEnd()
        init = next((turn.init for turn in reversed(turns) if turn.init), {})
        answered = next((turn.model for turn in turns if turn.model), None)
        return vendor_reading(
            turns,
            [step for turn in turns for step in turn.steps],
            usages,
            agent=(
                "claude",
                text_at(init, "claude_code_version"),
                text_at(init, "model") or answered,
            ),
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
            names = [server["name"] for server in setup["mcpServers"]]
            missing = [name for name in self._options.mcp if name not in names]
            setup["mcpServers"] += [{"name": name, "status": "missing"} for name in missing]
        if errors := _objects(init.get("plugin_errors")):
            setup["pluginErrors"] = [_plugin_error(error) for error in errors]
        answered = next((turn.model for turn in turns if turn.model), None)
        if answered and init.get("model") not in (None, answered):
            setup["answeredBy"] = answered
        return setup


_PROVIDER_ENV = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
    *("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
    *("ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION", "AWS_REGION", "AWS_PROFILE"),
    "API_TIMEOUT_MS",
)
"""What of `env` in the user's settings says which model is asked, and where."""
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")


def users_provider() -> Provider:
    """Return endpoint, model and key of the user's settings.json, whose rest stays behind."""
    folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or users_home() / ".claude")
    try:
        settings = parse_commented_json(read_settings(folder / "settings.json") or "{}", "settings")
    except InputError:  # Claude Code itself goes on without them
        return Provider()
    env = {n: str(v) for n, v in pick_settings(settings.get("env"), _PROVIDER_ENV).items()}
    url, model = env.get("ANTHROPIC_BASE_URL"), settings.get("model")
    return Provider(
        settings=pick_settings(settings, ("apiKeyHelper",)),
        env=env,
        endpoints=(url,) if url else (),
        model=model if isinstance(model, str) else None,
    )


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


_ERRORS = {
    "authentication_failed": Cause.AUTH,
    "oauth_org_not_allowed": Cause.AUTH,
    "billing_error": Cause.PROVIDER,
    "rate_limit": Cause.PROVIDER,
    "overloaded": Cause.PROVIDER,
    "server_error": Cause.PROVIDER,
    "model_not_found": Cause.PROVIDER,
    "invalid_request": Cause.PROVIDER,
    "max_output_tokens": Cause.AGENT_LIMIT,
}
"""Values of `error` in the line of an API error; "unknown" carries no information."""
_LIMITS = frozenset({"max_turns", "budget_exhausted", "prompt_too_long", "max_output_tokens"})
_LOST_SESSION = re.compile(r"no conversation found|session.{0,20}not found", re.IGNORECASE)


def failure_of_turn(turn: ClaudeTurn, end: TurnEnd, stderr: str) -> Failure | None:
    """Return the failure that Claude Code itself reports, None when it reports none."""
    if turn.results:
        result = turn.results[-1]
        # API errors have the subtype "success": only is_error tells.
        return _failure_of_result(result, turn) if result.get("is_error") is True else None
    if turn.retry is not None:  # killed while Claude Code was retrying its provider
        status = turn.retry.get("error_status")
        error = str(turn.retry.get("error"))
        cause = (
            status_cause(status) if isinstance(status, int) else _ERRORS.get(error, Cause.PROVIDER)
        )
        reason = " ".join(str(part) for part in (status, error) if part is not None)
        attempt, most = turn.retry.get("attempt"), turn.retry.get("max_retries")
        message = f"no answer from the provider: {reason}, retry {attempt}/{most}"
        return Failure(cause=cause, message=message, retry_after_ms=refusal_ms(turn.retry))
    if turn.interrupted:  # SIGINT: no result, and exit code 0
        return Failure(cause=Cause.AGENT_CRASH, message="was interrupted before it gave a result")
    if turn.events.total == 0:
        return start_failure("claude", end, stderr)
    return None


def _failure_of_result(result: dict[str, Any], turn: ClaudeTurn) -> Failure:
    message = _message(result)
    cause = _cause(result, turn, message)
    pause_ms = turn.retry_ms if cause is Cause.PROVIDER else None
    return Failure(cause=cause, message=message, retry_after_ms=pause_ms)


def _cause(result: dict[str, Any], turn: ClaudeTurn, message: str) -> Cause:
    subtype, reason = text_at(result, "subtype") or "", text_at(result, "terminal_reason")
    if subtype.startswith("error_max") or reason in _LIMITS:
        return Cause.AGENT_LIMIT
    if result.get("stop_reason") == "refusal" or turn.refused:
        return Cause.AGENT_REFUSED
    if _LOST_SESSION.search(message):
        return Cause.HARNESS
    if reason == "api_error" or "api_error" in result or turn.api_error is not None:
        line = turn.api_error or {}
        status = result.get("api_error_status") or line.get("api_error_status")
        if isinstance(status, int):
            return status_cause(status)
        return _ERRORS.get(str(line.get("error"))) or text_cause(message) or Cause.PROVIDER
    return text_cause(message) or Cause.AGENT_CRASH


def _message(result: dict[str, Any]) -> str:
    if errors := list_at(result, "errors"):
        return "; ".join(map(str, errors))[:2000]
    said = (text_at(result, name) for name in ("result", "subtype", "terminal_reason"))
    return next(filter(None, said), "it gave an error without a word")[:2000]


_BY_MODEL = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadInputTokens",
    "cache_write_tokens": "cacheCreationInputTokens",
    "reasoning_tokens": "thinkingTokens",
}


def usage_of_turn(turn: ClaudeTurn, kept: Path | None) -> Usage | None:
    """Add up the results of a turn; a killed turn has none, so its session file is read."""
    found = [usage for result in turn.results if (usage := _usage_of_result(result, turn.model))]
    if not turn.results and kept is not None:
        found = _of_session(turn, kept)
    return reduce(Usage.plus, found) if found else None


def _usage_of_result(result: dict[str, Any], model: str | None) -> Usage | None:
    """Return this turn's usage with sub-agents; older versions report only the main thread."""
    # Not modelUsage or total_cost_usd: those are totals of the session, even across processes.
    if share := object_at(result, "model_usage_since_last_result"):
        shares = [_of_model(*item) for item in share.items() if isinstance(item[1], dict)]
        return reduce(Usage.plus, shares) if shares else None
    usage = counted(object_at(result, "usage"), OF_API)
    if not (usage.input_tokens or usage.output_tokens):
        return None  # an API error: the model has not answered
    models = object_at(result, "modelUsage")
    if model is None and len(models) == 1:
        model = next(iter(models))
    return with_cost(model, usage, output_includes_reasoning=True)


def _of_model(name: str, fields: dict[str, Any]) -> Usage:
    usage = counted(fields, _BY_MODEL)
    # For a model of unknown price the CLI computes a cost at some default price.
    if "costUSD" in fields and fields.get("costBasis", "list") != "unknown":
        cost = cost_at(fields, "costUSD")  # null is Infinity or NaN, which are no JSON
        known = IMPOSSIBLE_USD if cost is None else cost
        usage = msgspec.structs.replace(usage, cost_usd=known, cost_source="reported")
    return with_cost(name, usage, output_includes_reasoning=True)


def _of_session(turn: ClaudeTurn, kept: Path) -> list[Usage]:
    """Find the answers of a turn in the session files, which hold their final token counts."""
    events: list[Any] = []
    for path in sorted(kept.rglob("*.jsonl")):
        with path.open("rb") as file:
            events += [parse_line(line) for line in file if b'"usage"' in line]
    return usages_of(events, turn.message_ids)
