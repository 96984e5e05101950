"""The adapter for Gemini CLI: `gemini -p`, its stream of JSON events and its session files."""

import os
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.gemini.failure import count_retries, failure_of_turn, server_states
from assay.adapters.gemini.session import (
    Merge,
    Segment,
    Session,
    Tokens,
    assign_segments,
    read_sessions,
)
from assay.adapters.gemini.stream import GeminiTurn, Use, is_denied
from assay.adapters.prices import with_cost
from assay.adapters.reading import TrialClock, last_session, read_turns
from assay.adapters.vendor import (
    McpServer,
    VendorAdapter,
    VendorOptions,
    add_usage,
    mcp_servers,
    variables_of,
    vendor_reading,
)
from assay.plugin import Ask, Command, Reading, Watch
from assay.records.capture import AgentInfo, Usage
from assay.records.recording import Recording
from assay.records.trajectory import AnyStep


class GeminiAdapter(VendorAdapter):
    """One process for each turn; later turns resume the session of the first."""

    name = "gemini"

    def command(self, ask: Ask) -> Command:
        """Run one prompt to its end, with every permission given."""
        return gemini_command(self._options, ask)

    def watch(self) -> Watch:
        """Follow one turn."""
        return GeminiTurn()

    def read(self, recording: Recording) -> Reading:
        """Read the stream, and what the session file knows besides."""
        several = len(recording.turns) > 1
        turns = read_turns(recording, lambda _turn: GeminiTurn())
        for turn in turns:
            turn.settle()
        session_id = last_session(turns)
        sessions = read_sessions(recording.kept)
        main = sessions.pop(session_id or "", None)
        clock = TrialClock(recording)
        segments = assign_segments(turns, main, clock)
        children = {n: session for n, session in sessions.items() if session.kind == "subagent"}
        merge = Merge(clock, children)
        steps: list[AnyStep] = []
        for number, (turn, segment) in enumerate(zip(turns, segments, strict=True), 1):
            steps += merge.steps(turn, segment, number if several else None)
        failure = None
        if turns:
            failure = failure_of_turn(turns[-1], recording.turns[-1].end, recording.stderr)
        uses = [part for turn in turns for part in turn.parts if isinstance(part, Use)]
        return vendor_reading(
            turns,
            steps,
            [_usage(*pair) for pair in zip(turns, segments, strict=True)],
            agent=AgentInfo(adapter="gemini", model=_model(turns, main) or UNSET),
            failure=failure,
            setup=self._setup(turns, recording.stderr),
            permission_denials=sum(map(is_denied, uses)),
            provider_retries=count_retries(recording.stderr),
        )

    def _setup(self, turns: list[GeminiTurn], stderr: str) -> dict[str, Any] | None:
        """Say what the agent was given, and which MCP servers came of it."""
        asked = next((turn.model for turn in turns if turn.model), None)
        if asked is None:
            return None
        setup: dict[str, Any] = {"model": asked, "approvalMode": self._approval()}
        if self._options.mcp:
            states = server_states(self._options.mcp, turns, stderr)
            setup["mcpServers"] = [{"name": n, "status": state} for n, state in states.items()]
        warnings = [text for turn in turns for severity, text in turn.errors]
        return setup | ({"warnings": list(dict.fromkeys(warnings))} if warnings else {})

    def _approval(self) -> str:
        args = self._options.args
        for index, arg in enumerate(args):
            if arg == "--approval-mode" and index + 1 < len(args):
                return args[index + 1]
            if arg.startswith("--approval-mode="):
                return arg.split("=", 1)[1]
        return "yolo"


def _usage(turn: GeminiTurn, segment: Segment | None) -> Usage | None:
    """Give what one process used: its result says it, else the session's answers do."""
    if turn.result is not None and turn.result.stats:
        stats = turn.result.stats
        models = stats.get("models")
        if isinstance(models, dict) and models:
            shares = [_of_stats(share, name) for name, share in models.items()]
            return add_usage(shares)
        return _of_stats(stats, turn.model)
    tokens = segment.tokens if segment is not None else None
    if tokens is None:
        return None
    return _counted(tokens, tokens.get("thoughts", 0), turn.model)


def _of_stats(stats: Any, model: str | None) -> Usage | None:
    if not isinstance(stats, dict) or not stats.get("total_tokens", stats.get("input_tokens")):
        return None  # an API error: nothing was answered
    names = {"input": "input_tokens", "output": "output_tokens", "cached": "cached"}
    tokens = {name: n for name, key in names.items() if isinstance(n := stats.get(key), int)}
    total = stats.get("total_tokens")
    known = tokens.get("input", 0) + tokens.get("output", 0)
    thought = total - known if isinstance(total, int) else 0
    return _counted(tokens, max(thought, 0), model)


def _counted(tokens: Tokens, thought: int, model: str | None) -> Usage:
    """Say it as Gemini does: input includes what was cached, output excludes thoughts."""
    usage = Usage(
        input_tokens=tokens.get("input", UNSET),
        output_tokens=tokens.get("output", UNSET),
        cache_read_tokens=tokens.get("cached", UNSET),
        reasoning_tokens=thought,
    )
    return with_cost(model, usage, input_includes_cache=True)


def _model(turns: list[GeminiTurn], main: Session | None) -> str | None:
    """Name the model that answered; what was asked for may be "auto"."""
    answers = [answer for segment in main.segments for answer in segment.answers] if main else []
    named = [answer.model for answer in answers if answer.model]
    if named:
        return named[-1]
    asked = next((turn.model for turn in reversed(turns) if turn.model), None)
    if asked not in (None, "auto"):
        return asked
    shares: dict[str, int] = {}
    for turn in turns:
        models = turn.result.stats.get("models") if turn.result is not None else None
        for name, share in models.items() if isinstance(models, dict) else ():
            total = share.get("total_tokens") if isinstance(share, dict) else None
            shares[name] = shares.get(name, 0) + (total if isinstance(total, int) else 0)
    return max(shares, key=lambda name: shares[name]) if shares else asked


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
