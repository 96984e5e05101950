"""The adapter for Gemini CLI: `gemini -p`, its stream of JSON events and its session files."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.gemini.session import (
    Merge,
    Segment,
    Session,
    counted,
    past_session,
    read_sessions,
)
from assay.adapters.gemini.stream import GeminiTurn, Use, is_denied
from assay.adapters.reading import (
    TrialClock,
    assign_segments,
    integer_at,
    last_session,
    object_at,
    parse_line,
    read_turns,
    recent_files,
    value_at,
)
from assay.adapters.vendor import (
    McpServer,
    VendorAdapter,
    VendorOptions,
    add_usage,
    is_too_long,
    mcp_servers,
    merge_settings,
    parse_commented_json,
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
from assay.records.capture import AnyStep, Cause, Failure, Usage
from assay.records.recording import Recording, TurnEnd


class GeminiAdapter(VendorAdapter):
    """One process for each turn; later turns resume the session of the first."""

    name = "gemini"
    reads = ("GEMINI.md", ".gemini", ".agents")
    instructions_file = "GEMINI.md"
    base_urls = (("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),)
    model_keys = ("GEMINI_API_KEY",)
    reads_in_home = (
        *(".gemini/GEMINI.md", ".gemini/settings.json", ".gemini/skills", ".gemini/commands"),
        *(".gemini/extensions", ".agents/skills"),
    )

    def command(self, ask: Ask) -> Command:
        """Start Gemini CLI for one turn, with every permission."""
        return gemini_command(self._options, ask)

    def redirect(
        self, command: Command, ask: Ask, through: Callable[[str], str], *, offline: bool = False
    ) -> Command:
        """Set its base URL, and say that it has a key: it would take the URL for a gateway."""
        if os.environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true" and not offline:
            msg = "--record needs GEMINI_API_KEY: Vertex AI cannot be recorded"
            raise InputError(msg)
        chosen = {"security": {"auth": {"selectedType": _WITH_KEY}}}
        files = {
            name: msgspec.json.encode(merge_settings(msgspec.json.decode(text), chosen)).decode()
            for name, text in command.files.items()
        }
        command = msgspec.structs.replace(command, files=files)
        return super().redirect(command, ask, through, offline=offline)

    def provider_settings(self) -> dict[str, Any]:
        keys = {name: value for name, value in _users_keys().items() if name in _BASE_URLS}
        chosen = _users_choice()
        return keys | ({"selectedType": chosen} if chosen else {})

    def past_sessions(self, since_ms: float) -> Iterator[PastSession]:
        """Read the chats of all projects; a session may have several files."""
        folder = _users_home() / ".gemini/tmp"
        for project in sorted(
            {path.parent for path in recent_files(folder, "*/chats/*", since_ms)}
        ):
            sessions = read_sessions(project)
            children = {n: one for n, one in sessions.items() if one.kind == "subagent"}
            for session in sessions.values():
                past = past_session(session, children) if session.kind != "subagent" else None
                if past is not None and past.end_ms >= since_ms:
                    yield past

    def watch(self) -> Watch:
        return GeminiTurn()

    def read(self, recording: Recording) -> Reading:
        """Read the stream, and the session files for what it does not show."""
        several = len(recording.turns) > 1
        turns = read_turns(recording, lambda _turn: GeminiTurn())
        for turn in turns:
            turn.read_whole()
        session_id = last_session(turns)
        sessions = read_sessions(recording.kept)
        main = sessions.pop(session_id or "", None)
        clock = TrialClock(recording.start_ms, recording.end_ms)
        segments = assign_segments(turns, main.segments if main else [], clock)
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
            agent=("gemini", None, _model(turns, main)),
            failure=failure,
            setup=self._setup(turns, recording.stderr),
            permission_denials=sum(map(is_denied, uses)),
            provider_retries=count_retries(recording.stderr),
        )

    def _setup(self, turns: list[GeminiTurn], stderr: str) -> dict[str, Any] | None:
        """The agent's setup, and the state of its MCP servers."""
        asked = next((turn.model for turn in turns if turn.model), None)
        if asked is None:
            return None
        setup: dict[str, Any] = {"model": asked, "approvalMode": self._approval()}
        if self._options.mcp:
            states = server_states(self._options.mcp, turns, stderr)
            setup["mcpServers"] = [{"name": n, "status": state} for n, state in states.items()]
        warnings = [text for turn in turns for _, text in turn.errors]
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
    """Return the usage of one turn: from its result, else from the session's answers."""
    if turn.result is not None and turn.result.stats:
        stats = turn.result.stats
        if models := object_at(stats, "models"):  # each model has its own price
            return add_usage(_of_stats(share, name) for name, share in models.items())
        return _of_stats(stats, turn.model)
    tokens = segment.tokens if segment is not None else None
    if tokens is None:
        return None
    return counted(tokens, tokens.get("thoughts", 0), turn.model)


def _of_stats(stats: Any, model: str | None) -> Usage | None:
    if not isinstance(stats, dict) or not stats.get("total_tokens", stats.get("input_tokens")):
        return None  # an API error: nothing was answered
    names = {"input": "input_tokens", "output": "output_tokens", "cached": "cached"}
    tokens = {name: n for name, key in names.items() if (n := integer_at(stats, key)) is not None}
    known = tokens.get("input", 0) + tokens.get("output", 0)
    # The stream does not name thoughts, but its total includes them.
    thought = (integer_at(stats, "total_tokens") or 0) - known
    return counted(tokens, max(thought, 0), model)


def _model(turns: list[GeminiTurn], main: Session | None) -> str | None:
    """Return the model that answered; the requested one may be "auto"."""
    answers = [answer for segment in main.segments for answer in segment.answers] if main else []
    named = [answer.model for answer in answers if answer.model]
    if named:
        return named[-1]
    asked = next((turn.model for turn in reversed(turns) if turn.model), None)
    if asked not in (None, "auto"):
        return asked
    # "auto" also uses a small model as router: take the one with the most tokens.
    shares: dict[str, int] = {}
    for turn in turns:
        stats = turn.result.stats if turn.result is not None else {}
        for name, share in object_at(stats, "models").items():
            shares[name] = shares.get(name, 0) + (integer_at(share, "total_tokens") or 0)
    return max(shares, key=lambda name: shares[name]) if shares else asked


DEFAULT_MODEL = "gemini-2.5-pro"
"""Without -m, Gemini CLI first asks another model which one to use."""
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
_BASE_URLS = ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL")
_ENDPOINTS = (
    "https://generativelanguage.googleapis.com",
    "https://aiplatform.googleapis.com",
    # With a login instead of a key:
    "https://cloudcode-pa.googleapis.com",
    "https://oauth2.googleapis.com",
    "https://accounts.google.com",
)
_LOGIN = (".gemini/oauth_creds.json", ".gemini/google_accounts.json")
_ENV = {
    "GEMINI_CLI_TRUST_WORKSPACE": "true",  # an untrusted folder ends the process with code 55
    "GEMINI_CLI_NO_RELAUNCH": "true",  # it would start itself again, with a larger heap
}
_APPROVAL = ("--approval-mode", "-y", "--yolo")
_TOOL_FLAGS = {"--approval-mode": 1, "-y": 0, "--yolo": 0, "--allowed-tools": 1}
"""Arguments that let an agent use tools, which one that only answers has not."""
_QUOTES = "\"'"


def gemini_command(options: VendorOptions, ask: Ask) -> Command:
    """Build the command line; settings go into a file of the trial, never into the user's."""
    servers = mcp_servers(options, ask)
    argv = [options.program, "--output-format", "stream-json"]
    args = options.args if ask.tools else without_flags(options.args, _TOOL_FLAGS)
    if not any(arg.split("=", 1)[0] in _APPROVAL for arg in args):
        argv += ["--approval-mode", "yolo" if ask.tools else "default"]
    argv += ["-m", options.model or DEFAULT_MODEL]
    if ask.session_id is not None:
        argv += ["--resume", ask.session_id]
    argv += args
    on_stdin = _is_unsafe(ask.text)
    if not on_stdin:
        argv += ["-p", ask.text]
    home = ask.home or ask.scratch
    settings = _settings(options, servers, repetitive=ask.repetitive)
    if not ask.tools:
        settings["tools"] = {"core": []}  # none is registered
    if ask.home is not None:
        settings["security"] = {"auth": {"selectedType": _auth_type(ask)}}
    else:
        settings = merge_settings(_users_settings(), settings)
        # Without this it takes a base URL for a gateway, and refuses to start.
        if all(os.environ.get(name) for name in ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")):
            settings = merge_settings(
                {"security": {"auth": {"selectedType": "gemini-api-key"}}}, settings
            )
    keys = _users_keys() if ask.home else {}
    chats = f"{'~' if ask.home else home}/.gemini/tmp/*/chats"
    return vendor_command(
        options,
        servers,
        _KEYS,
        (_BASE_URLS, tuple(keys[n] for n in _BASE_URLS if n in keys) or _ENDPOINTS),
        argv=tuple(argv),
        env={**_ENV, "GEMINI_CLI_HOME": home, **keys},
        stdin=ask.text if on_stdin else None,
        files={f"{home}/.gemini/settings.json": msgspec.json.encode(settings).decode()},
        links={} if ask.home else _links_to_users_files(home),
        keep=(f"{chats}/session-*.jsonl", f"{chats}/*/*.jsonl"),
        login={f"{ask.home}/{name}": f"~/{name}" for name in _LOGIN} if ask.home else {},
    )


_OWN = ("settings.json", "tmp", "history", "projects.json")
"""What a trial has of its own in .gemini; the rest is the user's."""


def _users_home() -> Path:
    return Path(os.environ.get("GEMINI_CLI_HOME") or Path.home())


def _users_settings() -> dict[str, Any]:
    """Return the user's settings, to put ours on top of them in a file of the trial.

    System settings would be simpler, but Gemini CLI reads none that are not root's alone.
    """
    path = _users_home() / ".gemini" / "settings.json"
    try:
        return parse_commented_json(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError):
        return {}


def _links_to_users_files(home: str) -> dict[str, str]:
    """Return links to the user's login, instructions, skills and extensions, and to nothing else.

    A login that Gemini CLI renews is written through its link.
    """
    users = _users_home()
    found = [path for path in (users / ".agents", users / ".env") if path.exists()]
    with contextlib.suppress(OSError):
        found += [path for path in (users / ".gemini").iterdir() if path.name not in _OWN]
    return {f"{home}/{path.relative_to(users)}": str(path) for path in found}


def _auth_type(ask: Ask) -> str:
    """How an isolated agent logs in; by default Gemini CLI takes a base URL for a gateway."""
    if os.environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "vertex-ai"
    has_login = ask.login and users_home().joinpath(_LOGIN[0]).exists()
    has_key = "GEMINI_API_KEY" in {**os.environ, **_users_keys()}
    chosen = _users_choice()
    if chosen and {_LOGGED_IN: has_login, _WITH_KEY: has_key}.get(chosen, True):
        return chosen
    return _LOGGED_IN if has_login and not has_key else _WITH_KEY


_WITH_KEY, _LOGGED_IN = "gemini-api-key", "oauth-personal"


def _users_choice() -> str:
    """Return how the user's settings say that Gemini CLI logs in; empty if they do not."""
    try:
        chosen = value_at(_users_settings(), "security", "auth", "selectedType")
    except InputError:
        return ""
    return chosen if isinstance(chosen, str) else ""


def _users_keys() -> dict[str, str]:
    """Return the keys and endpoints of the .env file from which Gemini CLI reads them in a HOME."""
    users = _users_home()
    for path in (users / ".gemini" / ".env", users / ".env"):
        lines = [line.strip().removeprefix("export ") for line in read_settings(path).splitlines()]
        pairs = (line.partition("=") for line in lines)
        found = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
        if lines:  # only the first of them is read
            return {n: found[n] for n in _KEYS if found.get(n) and n not in os.environ}
    return {}


def _is_unsafe(text: str) -> bool:
    """Whether the prompt is too long for an argument, or Gemini CLI's parser would change it."""
    quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]
    return quoted or is_too_long(text) or text.startswith("-")


def _settings(
    options: VendorOptions, servers: dict[str, McpServer], *, repetitive: bool
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    model: dict[str, Any] = {}
    if options.max_turns is not None:
        model["maxSessionTurns"] = options.max_turns
    if repetitive:  # otherwise the fifth equal call ends the turn
        model["disableLoopDetection"] = True
    if model:
        settings["model"] = model
    if servers:
        settings["mcpServers"] = {name: _server(server) for name, server in servers.items()}
    return settings


def _server(server: McpServer) -> dict[str, Any]:
    """Write a server in Gemini's format; trusted, since nobody is there to confirm its calls."""
    if server.url is not None:
        key = "url" if server.type == "sse" else "httpUrl"
        fields: dict[str, Any] = {key: server.url, "headers": server.headers}
    else:
        fields = {"command": server.command, "args": list(server.args), "env": server.env}
        fields["cwd"] = server.cwd
    return {name: value for name, value in fields.items() if value} | {"trust": True}


_TYPES = {
    "FatalTurnLimitedError": Cause.AGENT_LIMIT,
    "FatalAuthenticationError": Cause.AUTH,
    "FatalInputError": Cause.SPAWN,
    "FatalSandboxError": Cause.SPAWN,
    "FatalConfigError": Cause.SPAWN,
    "FatalToolExecutionError": Cause.AGENT_CRASH,
    "FatalCancellationError": Cause.AGENT_CRASH,
}
_EXIT_CAUSES = {41: Cause.AUTH, 42: Cause.SPAWN, 44: Cause.SPAWN, 52: Cause.SPAWN, 55: Cause.SPAWN}
"""Exit codes of a process that ended before its first event."""
_WORDS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    (re.compile(r"blocked", re.IGNORECASE), Cause.AGENT_REFUSED),
    (
        re.compile(r"loop detected|token limit|maximum session turns", re.IGNORECASE),
        Cause.AGENT_LIMIT,
    ),
    (
        re.compile(r"empty (text )?response|reasoning thoughts but no final", re.IGNORECASE),
        Cause.PROVIDER,
    ),
)
_AUTH = re.compile(r"api.?key not valid|API_KEY_INVALID|PERMISSION_DENIED|UNAUTHENTICATED", re.I)
_ATTEMPT = re.compile(r"^Attempt (\d{1,9}) failed(.*)$", re.MULTILINE)
_STATUS = re.compile(r"\bstatus (\d{3})\b|\"code\":\s*(\d{3})\b|\b(429)\b|\b(5)xx\b")
_STOPS = ("Loop detected", "Maximum session turns")
_MCP_ISSUES = "MCP issues detected"
_NOISE = re.compile(
    r"^(YOLO mode|Warning: 256-color|Ripgrep is not|Loaded cached|Approval mode|MCP issues)"
)


def failure_of_turn(turn: GeminiTurn, end: TurnEnd, stderr: str) -> Failure | None:
    """Return the failure that Gemini CLI itself reports, None when it reports none.

    Exit codes do not tell: 0 after signals and blocked answers, parts of the HTTP status after API
    errors.
    """
    result = turn.result
    if result is not None:
        return _of_result(turn) if result.status != "success" else _stopped(turn)
    if turn.session_id is None and not turn.events.mapped:
        return _of_start(end, stderr)
    return _of_attempts(stderr)


def count_retries(stderr: str) -> int:
    """Count the retries, as far as the end of stderr shows them."""
    # Earlier lines may be cut off, but each line has the number of its attempt.
    tries = [int(n) for n, rest in _ATTEMPT.findall(stderr) if "Retrying" in rest]
    return max([len(tries), *tries])


def server_states(names: Iterable[str], turns: Sequence[GeminiTurn], stderr: str) -> dict[str, str]:
    """Return the state of each MCP server; Gemini CLI reports that some failed, but not which."""
    names = tuple(names)
    if _MCP_ISSUES not in stderr:
        return dict.fromkeys(names, "connected")
    uses = [part for turn in turns for part in turn.parts if isinstance(part, Use)]
    answered = {name for use in uses for name in names if _has_answered(use, name)}
    # A server whose tool has answered is up; if only one other is left, it is the one that failed.
    silent = [name for name in names if name not in answered]
    state = "failed" if len(silent) == 1 else "unknown"
    return {name: "connected" if name in answered else state for name in names}


def _has_answered(use: Use, server: str) -> bool:
    missing = value_at(use.result, "error", "type") == "tool_not_registered"
    return use.name.startswith(f"mcp_{server}_") and use.result is not None and not missing


def _of_result(turn: GeminiTurn) -> Failure:
    error = turn.result.error if turn.result is not None else None
    messages = [message for _, message in turn.errors]
    message = str((error or {}).get("message") or (messages[-1] if messages else "failed"))
    cause = _TYPES.get(str((error or {}).get("type"))) or _cause(message)
    return Failure(cause=cause, message=message[:2000])


def _stopped(turn: GeminiTurn) -> Failure | None:
    """Judge a turn with status success: Gemini CLI ends a detected loop or a turn limit with it."""
    for _, message in turn.errors:
        if message.startswith(_STOPS):
            return Failure(cause=Cause.AGENT_LIMIT, message=message[:2000], answered=True)
    return None


def _of_start(end: TurnEnd, stderr: str) -> Failure | None:
    lines = [line for line in stderr.splitlines() if not _NOISE.match(line)]
    failure = start_failure("gemini", end, "\n".join(lines))
    cause = _EXIT_CAUSES.get(end.exit_code or 0)
    if failure is None or cause is None:
        api = _api_error(stderr) or _thrown_error(stderr)
        if failure is None or api is None:
            return failure
        message = f"[API Error: {api}]"
        return Failure(cause=_cause(message), message=message[:2000])
    return Failure(cause=cause, message=failure.message)


def _of_attempts(stderr: str) -> Failure | None:
    """Judge a turn that was killed while Gemini CLI was retrying its provider."""
    tries = _ATTEMPT.findall(stderr)
    if not tries:
        return None
    number, rest = tries[-1]
    return Failure(cause=_status_cause(rest), message=f"Attempt {number} failed{rest}"[:500])


def _cause(message: str) -> Cause:
    if _AUTH.search(message):
        return Cause.AUTH
    for pattern, cause in _WORDS:
        if pattern.search(message):
            return cause
    api = _api_error(message)
    if api is not None:
        return _body_cause(api) or text_cause(message) or Cause.PROVIDER
    return text_cause(message) or Cause.AGENT_CRASH


def _api_error(text: str) -> str | None:
    """Return what stands in [API Error: …]."""
    return _between(text, "[API Error: ", "]")


def _thrown_error(text: str) -> str | None:
    """Return the object in a line with ApiError: {…}."""
    bodies = (_between(line, "ApiError: {", "}") for line in text.split("\n"))
    return next((f"{{{body}}}" for body in bodies if body is not None), None)


def _between(text: str, begin: str, end: str) -> str | None:
    """Return what is between the first begin and the last end.

    Not a regular expression: on a text full of begins it would search each time to the end.
    """
    _, found, rest = text.partition(begin)
    body, ended, _ = rest.rpartition(end)
    return body if found and ended else None


def _body_cause(body: str) -> Cause | None:
    code = value_at(parse_line(body.encode()), "error", "code")
    return status_cause(code) if isinstance(code, int) else None


def _status_cause(text: str) -> Cause:
    found = _STATUS.search(text)
    digits = next((group for group in found.groups() if group), "500") if found else "500"
    return status_cause(int(digits) if len(digits) == 3 else 500)
