"""The adapter for Codex CLI: `codex exec --json`, its stream and its rollout files."""

import os
import platform
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.codex.merge import SubAgents, entry_steps, ids_of, merge_turn
from assay.adapters.codex.rollout import Rollout, Segment, read_rollout, read_rollouts
from assay.adapters.codex.stream import CodexTurn, Tokens, add_tokens, subtract_tokens, take_tokens
from assay.adapters.prices import with_cost
from assay.adapters.reading import (
    TrialClock,
    assign_segments,
    last_session,
    or_unset,
    parse_line,
    read_turns,
    recent_files,
    text_at,
    value_at,
)
from assay.adapters.vendor import (
    McpServer,
    Provider,
    VendorAdapter,
    VendorOptions,
    is_too_long,
    login_file,
    mcp_servers,
    pick_settings,
    read_settings,
    redirected,
    start_failure,
    status_cause,
    text_cause,
    users_home,
    vendor_command,
    vendor_reading,
    without_flags,
)
from assay.errors import InputError
from assay.plugin import AgentInfo, Ask, Command, PastSession, PastTurn, Reading, Watch
from assay.records.capture import AnyStep, Cause, Failure, Usage
from assay.records.recording import Recording, TurnEnd


class CodexAdapter(VendorAdapter):
    """One process for each turn; later turns resume the thread."""

    name = "codex"
    reads = ("AGENTS.md", "AGENTS.override.md", ".agents", ".codex")
    reads_in_home = (
        *(".codex/AGENTS.md", ".codex/AGENTS.override.md", ".codex/config.toml", ".codex/skills"),
        *(".codex/prompts", ".agents/skills"),
    )
    limited_linger_s = 0.5
    base_urls = ()
    model_keys = ("CODEX_API_KEY",)

    def command(self, ask: Ask) -> Command:
        """Start Codex for one turn."""
        return codex_command(self._options, ask)

    def redirect(
        self, command: Command, ask: Ask, through: Callable[[str], str], *, offline: bool = False
    ) -> Command:
        """Set the base URL of the provider that its settings choose, or else of OpenAI."""
        made, found = redirected(command, through)
        provider = users_provider()
        settings = []
        if not found and provider.endpoints:
            name = provider.settings.get("model_provider")
            key = f"model_providers.{name}.base_url" if name else "openai_base_url"
            settings = [f"{key}={_toml(through(provider.endpoints[0]))}"]
        elif not found:
            url = os.environ.get("OPENAI_BASE_URL") or (_CHATGPT if _uses_chatgpt() else _OPENAI)
            settings = [f"openai_base_url={_toml(through(url))}"]
        words = [word for one in settings for word in ("-c", one)]
        made = msgspec.structs.replace(made, argv=(*made.argv[:2], *words, *made.argv[2:]))
        return super().redirect(made, ask, through, offline=offline)

    def provider_settings(self) -> dict[str, Any]:
        return users_provider().settings

    def past_sessions(self, since_ms: float) -> Iterator[PastSession]:
        """Read the rollouts in the user's folder, those of sub-agents with their session."""
        folder = Path(os.environ.get("CODEX_HOME") or users_home() / ".codex")
        rollouts: dict[str, tuple[Path, Rollout]] = {}
        for path in recent_files(folder / "sessions", "**/rollout-*.jsonl", since_ms):
            with path.open("rb") as file:
                rollout = read_rollout(file)
            rollouts[rollout.id] = path, rollout
        children = {name: rollout for name, (_, rollout) in rollouts.items() if rollout.parent}
        for name, (path, rollout) in rollouts.items():
            if name and not rollout.parent and any(one.asked for one in rollout.segments):
                yield past_session(path, rollout, _descendants(dict(children), name))

    def watch(self) -> Watch:
        return CodexTurn(max_turns=self._options.max_turns)

    def read(self, recording: Recording) -> Reading:
        """Read the stream, and the rollouts for what it does not show."""
        several = len(recording.turns) > 1
        turns = read_turns(recording, lambda turn: CodexTurn(turn, self._options.max_turns))
        session_id = last_session(turns)
        rollouts = read_rollouts(recording.kept)
        main = rollouts.pop(session_id or "", None)
        clock = TrialClock(recording.start_ms, recording.end_ms)
        segments = assign_segments(turns, main.segments if main else [], clock)
        agents = SubAgents(_descendants(rollouts, session_id), ids_of(main))
        steps: list[AnyStep] = []
        used: list[Tokens | None] = []
        for number, (reader, segment) in enumerate(zip(turns, segments, strict=True), 1):
            steps += merge_turn(reader, segment, clock, number if several else None, agents)
            used.append(add_tokens([_own_tokens(turns, segments, number - 1), agents.spent()]))
        models = [segment.context.get("model") for segment in segments if segment is not None]
        named = [model for model in models if isinstance(model, str)]
        model = named[-1] if named else self._options.model
        return vendor_reading(
            turns,
            steps,
            [_usage(tokens, model) for tokens in used],
            agent=("codex", text_at(main.meta, "cli_version") if main else None, model),
            failure=_failure(recording, turns, segments),
            setup=self._setup(turns, segments, main, recording.stderr),
            permission_denials=sum(getattr(step, "error", None) == "declined" for step in steps),
            provider_retries=sum(reader.retries for reader in turns),
        )

    def _setup(
        self,
        turns: list[CodexTurn],
        segments: list[Segment | None],
        main: Rollout | None,
        stderr: str,
    ) -> dict[str, Any]:
        """The agent's setup; Codex reports only failed MCP servers, and only on stderr."""
        known = [segment for segment in segments if segment is not None]
        context = known[-1].context if known else {}
        sandbox = context.get("sandbox_policy")
        setup: dict[str, Any] = {
            "model": context.get("model") or self._options.model,
            "provider": main.meta.get("model_provider") if main is not None else None,
            "reasoningEffort": context.get("effort"),
            "sandbox": sandbox.get("type") if isinstance(sandbox, dict) else sandbox,
            "approval": context.get("approval_policy"),
            "tools": list(dict.fromkeys(name for segment in known for name in segment.tools)),
            "warnings": list(dict.fromkeys(text for turn in turns for text in turn.warnings)),
        }
        if self._options.mcp and any(turn.session_id for turn in turns):
            failed = failed_servers(stderr)
            setup["mcpServers"] = [
                {"name": name, "status": "failed" if name in failed else "connected"}
                for name in self._options.mcp
            ]
        return {name: value for name, value in setup.items() if value}


def _own_tokens(
    turns: list[CodexTurn], segments: list[Segment | None], index: int
) -> Tokens | None:
    """Return the tokens of one turn: from the rollout, else by difference of thread totals."""
    segment = segments[index]
    if segment is not None and segment.tokens is not None:
        return segment.tokens
    # After `resume` the stream reports the usage of the whole thread, not of the turn.
    total = take_tokens(turns[index].usage)
    if total is None:
        return None
    earlier = [turn for turn in turns[:index] if turn.usage is not None]
    return subtract_tokens(total, take_tokens(earlier[-1].usage) if earlier else None)


def _usage(tokens: Tokens | None, model: str | None) -> Usage | None:
    """Count as Codex does: input includes cached tokens, output includes reasoning."""
    if tokens is None:
        return None
    usage = Usage(
        input_tokens=tokens.get("input_tokens", UNSET),
        output_tokens=tokens.get("output_tokens", UNSET),
        cache_read_tokens=tokens.get("cached_input_tokens", UNSET),
        cache_write_tokens=tokens.get("cache_write_input_tokens", UNSET),
        reasoning_tokens=tokens.get("reasoning_output_tokens", UNSET),
    )
    return with_cost(model, usage, input_includes_cache=True, output_includes_reasoning=True)


def _failure(
    recording: Recording, turns: list[CodexTurn], segments: list[Segment | None]
) -> Failure | None:
    if not turns:
        return None
    last, end, segment = turns[-1], recording.turns[-1].end, segments[-1]
    if last.over_limit:
        return Failure(
            cause=Cause.AGENT_LIMIT, message=f"stopped: it began model turn {last.model_turns}"
        )
    if last.error is not None:
        return turn_failure(last.error, segment.error if segment is not None else None)
    # Codex checks flags, settings and the thread to resume before it prints its first event.
    if last.session_id is None and not last.events.total:
        return never_started(end, recording.stderr)
    if not last.ended and last.notice is not None:
        return waiting_failure(last.notice)
    return None


def past_session(path: Path, rollout: Rollout, children: dict[str, Rollout]) -> PastSession:
    """Return a session that Codex kept; what a turn without a message did belongs to none."""
    own = [one for one in rollout.segments if one.asked]
    start_ms = own[0].at_ms or own[0].last_ms
    end_ms = max(one.last_ms for one in own)
    clock, agents = TrialClock(start_ms, end_ms), SubAgents(children, ids_of(rollout))
    turns = []
    for number, segment in enumerate(own, 1):
        at_ms = segment.at_ms or start_ms
        steps: list[AnyStep] = []
        for entry in segment.entries:
            steps += entry_steps(entry, clock, number, at_ms - start_ms, agents)
        tokens = add_tokens([segment.tokens, agents.spent()])
        usage = _usage(tokens, text_at(segment.context, "model"))
        text = "\n\n".join(segment.asked)
        turns.append(PastTurn(text=text, at_ms=at_ms, steps=steps, usage=usage))
    meta, context = rollout.meta, own[-1].context
    return PastSession(
        id=rollout.id,
        path=path,
        turns=turns,
        agent=AgentInfo(
            adapter="codex",
            version=or_unset(text_at(meta, "cli_version")),
            model=or_unset(text_at(context, "model")),
        ),
        start_ms=start_ms,
        end_ms=end_ms,
        cwd=text_at(meta, "cwd"),
        branch=text_at(meta, "git", "branch"),
        commit=text_at(meta, "git", "commit_hash"),
    )


def _descendants(rollouts: dict[str, Rollout], root: str | None) -> dict[str, Rollout]:
    """Return the rollouts of all sub-agents of a thread, at any depth."""
    family = {root}
    while True:  # add one generation per pass until nothing new is found
        more = {name for name, rollout in rollouts.items() if rollout.parent in family} - family
        if not more:
            return {name: rollout for name, rollout in rollouts.items() if name in family}
        family |= more


_CONFIG = """\
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
apps = false
unbounded_connection_retries = false
"""
"""For an isolated agent: no requests but to its provider, and a refused connection is not retried
forever, which is Codex's default."""
_KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION")
_ENDPOINTS = ("https://api.openai.com", "https://chatgpt.com", "https://auth.openai.com")
_BYPASS = "--dangerously-bypass-approvals-and-sandbox"
_OWN_SANDBOX = ("-s", "--sandbox", "--full-auto", "-a", "--ask-for-approval", _BYPASS, "--yolo")
_NO_TOOLS = {
    "approval_policy": '"never"',
    "web_search": '"disabled"',
    "tools.view_image": "false",
    **{
        f"features.{name}": "false"
        for name in ("shell_tool", "unified_exec", "apply_patch_freeform", "multi_agent")
    },
}
"""Settings of an agent that only answers; what is left can write nothing and reach no network."""
_TOOL_FLAGS = {"-s": 1, "--sandbox": 1, "--full-auto": 0, "-a": 1, "--ask-for-approval": 1}
_TOOL_FLAGS |= {_BYPASS: 0, "--yolo": 0, "--search": 0, "--enable": 1, "--add-dir": 1}
"""Arguments of a user that would undo them."""
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,4096}))?\}")
_LOG = "error,codex_mcp=warn"
"""Logs on stderr which MCP servers did not start; the event stream does not report it."""
_TRIPLES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def codex_command(options: VendorOptions, ask: Ask) -> Command:
    """Build the command line; the prompt follows `--` or, when long, goes to stdin."""
    servers = mcp_servers(options, ask)
    in_container = ask.sandbox == "container"  # where another program is installed than here
    program = options.program if in_container else native_program(options.program)
    argv = [program, "exec"]
    if ask.session_id is not None:
        argv.append("resume")
    argv += ["--json", "--skip-git-repo-check", *_sandbox(options.args, tools=ask.tools)]
    if options.model is not None:
        argv += ["-m", options.model]
    for setting in _mcp_settings(servers, required=frozenset(ask.mcp_servers)):
        argv += ["-c", setting]
    argv += options.args if ask.tools else without_flags(options.args, _TOOL_FLAGS)
    if ask.session_id is not None:
        argv.append(ask.session_id)
    # As an argument, the prompt "-" would mean "read stdin".
    on_stdin = is_too_long(ask.text) or ask.text == "-"
    argv += ["-"] if on_stdin else ["--", ask.text]
    provider = users_provider() if ask.home is not None else Provider()
    env, files, keep = _home(ask, provider)
    if servers:
        env = {**env, "RUST_LOG": _LOG}
    return vendor_command(
        options,
        servers,
        (*_KEYS, *provider.pass_env),
        (("OPENAI_BASE_URL",), provider.endpoints or _ENDPOINTS),
        argv=tuple(argv),
        env=env,
        stdin=ask.text if on_stdin else None,
        files=files,
        keep=keep,
        login=login_file(ask, "CODEX_HOME", ".codex", "auth.json"),
    )


def native_program(name: str) -> str:
    """Find the binary behind npm's Node wrapper: one process less, and signals reach it."""
    found = shutil.which(name)
    if found is None:
        return name
    script = Path(found).resolve()
    if script.suffix != ".js":
        return name
    machine = _TRIPLES.get(platform.machine().lower(), platform.machine().lower())
    package = f"@openai/codex-{platform.system().lower()}-{machine}"
    root = script.parents[1]  # …/node_modules/@openai/codex
    # npm puts the platform package below the wrapper's package, or hoists it beside it.
    for modules in (root / "node_modules", root.parents[1]):
        binaries = sorted((modules / package).glob("vendor/*/bin/codex"))
        if binaries:
            return str(binaries[0])
    return name


_OPENAI, _CHATGPT = "https://api.openai.com/v1", "https://chatgpt.com/backend-api/codex"


def _uses_chatgpt() -> bool:
    """Whether Codex is logged in with an account in place of a key."""
    if os.environ.get("CODEX_API_KEY") or os.environ.get("OPENAI_API_KEY"):
        return False
    folder = Path(os.environ.get("CODEX_HOME") or users_home() / ".codex")
    return '"access_token"' in read_settings(folder / "auth.json")


_PROVIDER = (
    *("name", "base_url", "env_key", "env_http_headers", "wire_api", "query_params"),
    *("requires_openai_auth", "request_max_retries", "stream_max_retries"),
    "stream_idle_timeout_ms",
)
"""What an agent in another HOME gets of its provider's settings; no headers, which may be keys."""
_TOKEN = "ASSAY_CODEX_API_KEY"


def users_provider() -> Provider:
    """Return the provider and the model that the user's config.toml chooses."""
    folder = Path(os.environ.get("CODEX_HOME") or users_home() / ".codex")
    try:
        config = tomllib.loads(read_settings(folder / "config.toml"))
    except (tomllib.TOMLDecodeError, RecursionError):  # Codex itself would refuse it
        return Provider()
    profile = value_at(config, "profiles", str(config.get("profile")))
    chosen = pick_settings(config, ("model", "model_provider", "openai_base_url"))
    chosen |= pick_settings(profile, ("model", "model_provider"))
    name = chosen.get("model_provider")
    table = value_at(config, "model_providers", str(name))
    own, env = pick_settings(table, _PROVIDER), {}
    if isinstance(table, dict) and isinstance(token := table.get("experimental_bearer_token"), str):
        own["env_key"], env = _TOKEN, {_TOKEN: token}
    settings = chosen | ({"model_providers": {name: own}} if own else {})
    headers = own.get("env_http_headers")
    names = [own.get("env_key"), *(headers.values() if isinstance(headers, dict) else ())]
    urls = [own.get("base_url"), chosen.get("openai_base_url")]
    return Provider(
        settings=settings,
        env=env,
        pass_env=tuple(one for one in names if isinstance(one, str) and one not in env),
        endpoints=tuple(url for url in urls if isinstance(url, str)),
        model=chosen.get("model") if isinstance(chosen.get("model"), str) else None,
    )


def _config(provider: Provider) -> str:
    """Return the settings of an isolated agent, in which its provider is the user's."""
    pairs = (f"{_toml(name)} = {_toml(value)}\n" for name, value in provider.settings.items())
    return "".join(pairs) + _CONFIG


def _home(ask: Ask, provider: Provider) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """Return environment, files to write and files to keep, for an isolated or the user's home."""
    if ask.home is not None:
        home = f"{ask.home}/.codex"
        env = {"CODEX_HOME": home, **provider.env}
        key = os.environ.get("OPENAI_API_KEY")
        if key and "CODEX_API_KEY" not in os.environ:
            env["CODEX_API_KEY"] = key  # without a login Codex looks at this name only
        keep = ("~/.codex/sessions/**/rollout-*.jsonl",)
        return env, {f"{home}/config.toml": _config(provider)}, keep
    # In the user's home only the main thread's rollout is kept: file names hold the id of their
    # own thread, so those of sub-agents cannot be told from other sessions.
    place = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    if not place.is_relative_to(Path.home()):
        return {}, {}, ()
    below = place.relative_to(Path.home()).as_posix()
    return {}, {}, (f"~/{below}/sessions/**/rollout-*{{session_id}}.jsonl",)


def _sandbox(args: tuple[str, ...], *, tools: bool) -> list[str]:
    """Bypass the sandbox, unless the user's arguments choose a sandbox or approval mode."""
    if not tools:
        settings = (f"{name}={value}" for name, value in _NO_TOOLS.items())
        return ["--sandbox", "read-only", *(word for one in settings for word in ("-c", one))]
    chosen = any(arg.split("=", 1)[0] in _OWN_SANDBOX for arg in args)
    chosen = chosen or any(arg.startswith(("sandbox_mode", "approval_policy")) for arg in args)
    return [] if chosen else [_BYPASS]


def _mcp_settings(servers: dict[str, McpServer], required: frozenset[str]) -> list[str]:
    """Return the settings of all servers; without the required ones Codex refuses to start."""
    settings: list[str] = []
    for name, server in servers.items():
        if not _SERVER_NAME.fullmatch(name):
            msg = (
                f"mcpServers.{name}: Codex accepts only letters, digits, _ and - in a server's name"
            )
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
    # A variable that only passes through goes by name, which keeps its value off the command line.
    passed = [key for key, text in server.env.items() if text == f"${{{key}}}"]
    env = {key: _filled(text) for key, text in server.env.items() if key not in passed}
    if env:
        table["env"] = env
    if passed:
        table["env_vars"] = passed
    return table


def _filled(text: str) -> str:
    """Expand ${NAME} and ${NAME:-default}: Codex does not do it itself."""
    return _REFERENCE.sub(lambda m: os.environ.get(m.group(1), m.group(2) or ""), text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml(key)} = {_toml(inner)}" for key, inner in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # JSON strings, numbers and booleans are valid TOML.
    return msgspec.json.encode(value).decode()


_INFO = {
    "context_window_exceeded": Cause.AGENT_LIMIT,
    "session_budget_exceeded": Cause.AGENT_LIMIT,
    "usage_limit_exceeded": Cause.PROVIDER,
    "rate_limit_exceeded": Cause.PROVIDER,
    "server_overloaded": Cause.PROVIDER,
    "model_not_found": Cause.PROVIDER,
    "policy_capacity_unavailable": Cause.PROVIDER,
    "http_connection_failed": Cause.PROVIDER,
    "response_stream_connection_failed": Cause.PROVIDER,
    "response_stream_disconnected": Cause.PROVIDER,
    "response_too_many_failed_attempts": Cause.PROVIDER,
    "internal_server_error": Cause.PROVIDER,
    "bad_request": Cause.PROVIDER,
    "unauthorized": Cause.AUTH,
    "cyber_policy": Cause.AGENT_REFUSED,
    "bio_policy": Cause.AGENT_REFUSED,
    "misalignment_policy_violation": Cause.AGENT_REFUSED,
    "invalid_prompt": Cause.AGENT_REFUSED,
}
"""Values of codex_error_info in the rollout; "other" carries no information."""
_WORDS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    (re.compile(r"missing environment variable", re.IGNORECASE), Cause.AUTH),
    (
        re.compile(r"context window|token budget|max_output_tokens|maximum.{0,20}tokens", re.I),
        Cause.AGENT_LIMIT,
    ),
    (
        re.compile(r"content_filter|usage policy|policy violation|safety|flagged", re.IGNORECASE),
        Cause.AGENT_REFUSED,
    ),
    (
        re.compile(r"high demand|usage limit|connection failed|incomplete response", re.IGNORECASE),
        Cause.PROVIDER,
    ),
)
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_SERVER = re.compile(r"MCP server startup failed server_name=\"([^\"]+)\"")
_NOISE = re.compile(r"^(WARNING: proceeding|Reading additional input from stdin|\s|\[redacted)")


def turn_failure(message: str, error: dict[str, Any] | None) -> Failure:
    """Judge a turn that Codex reports as failed; error is the rollout's record of it."""
    info = error.get("codex_error_info") if error else None
    return Failure(cause=_info_cause(info) or _cause(message), message=message[:2000])


def waiting_failure(notice: str) -> Failure | None:
    """Judge a turn that was killed while Codex was retrying its provider."""
    cause = _cause(notice)
    if cause not in (Cause.AUTH, Cause.PROVIDER):
        return None
    return Failure(cause=cause, message=notice[:2000])


def never_started(end: TurnEnd, stderr: str) -> Failure | None:
    """Judge a process that ended before its first event."""
    lines = [line for line in stderr.splitlines() if not _NOISE.match(line)]
    return start_failure("codex", end, "\n".join(lines))


def failed_servers(stderr: str) -> set[str]:
    """Return the names of the MCP servers that did not start."""
    return set(_SERVER.findall(stderr))


def _info_cause(info: Any) -> Cause | None:
    if isinstance(info, str):
        return _INFO.get(info)
    if not isinstance(info, dict):
        return None
    for name, details in info.items():
        status = value_at(details, "http_status_code")
        return status_cause(status) if isinstance(status, int) else _INFO.get(name)
    return None


def _cause(message: str) -> Cause:
    status = _STATUS.search(message)
    if status is not None:  # more reliable than any wording
        return status_cause(int(status.group(1)))
    for pattern, cause in _WORDS:
        if pattern.search(message):
            return cause
    return text_cause(message) or _body_cause(message) or Cause.AGENT_CRASH


def _body_cause(message: str) -> Cause | None:
    """Judge a message that is the provider's response body, which Codex passes on for HTTP 400."""
    body = parse_line(message.encode())
    return Cause.PROVIDER if isinstance(body, dict) and "error" in body else None
