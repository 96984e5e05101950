"""The adapter for OpenCode: the stream of `opencode run`, and its database for the rest."""

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.opencode.files import (
    Completer,
    OpenCodeDb,
    OpenCodeLog,
    past_sessions,
    read_db,
    read_log,
)
from assay.adapters.opencode.stream import OpenCodeTurn
from assay.adapters.prices import with_cost
from assay.adapters.reading import TrialClock, read_turns, recent_files, text_at, value_at
from assay.adapters.vendor import (
    McpServer,
    Provider,
    VendorAdapter,
    add_usage,
    login_file,
    mcp_servers,
    merge_settings,
    parse_commented_json,
    pick_settings,
    read_settings,
    rewrite_variables,
    start_failure,
    status_cause,
    text_cause,
    users_home,
    vendor_command,
    vendor_reading,
)
from assay.errors import InputError
from assay.plugin import NO_KEY, Ask, Command, PastSession, Reading, Watch
from assay.records.capture import Cause, Failure
from assay.records.recording import Recording, TurnEnd

_ENV = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_DISABLE_TERMINAL_TITLE": "1",
}
_QUIET = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
}
_CONFIG_NAME = "OPENCODE_CONFIG_CONTENT"
_NO_INSTALL = {
    "node_modules/.keep": "",
    "package-lock.json": '{"lockfileVersion":3,"packages":{"":{"dependencies":'
    '{"@opencode-ai/plugin":"*"}}}}',
}
"""Files that keep OpenCode from installing its plugin package from the npm registry."""
_KEPT = ("~/.local/share/opencode/opencode*.db*", "~/.local/share/opencode/log/*.log")


class OpenCodeAdapter(VendorAdapter):
    """One process for each turn; later turns continue the session of the first."""

    name = "opencode"
    reads = (
        *("AGENTS.md", "CLAUDE.md", "opencode.json", "opencode.jsonc", ".opencode"),
        *(".claude/skills", ".agents/skills"),
    )
    reads_in_home = (
        *(".config/opencode", ".claude/CLAUDE.md", ".claude/skills", ".agents/skills"),
    )
    linger_s = 30.0  # it may continue after what looks like the end of a turn
    limited_linger_s = 30.0
    first_start_alone = True  # two that start in a new HOME both try to make its database

    def command(self, ask: Ask) -> Command:
        """Start OpenCode for one turn; a prompt given as an argument would arrive in quotes."""
        options = self._options
        servers = mcp_servers(options, ask)
        argv = [options.program, "run", "--format", "json", "--thinking"]
        argv += ["--auto"] if ask.tools else []
        # Only the log shows retries and failed servers; a title saves the call that would make one.
        argv += ["--print-logs", "--log-level", "WARN", "--title", "assay", "--dir", ask.cwd]
        if options.model:
            argv += ["--model", options.model]
        if ask.home:
            argv.append("--pure")
        if ask.session_id:
            argv += ["--session", ask.session_id]
        files, env, provider = {}, dict(_ENV), Provider()
        if ask.home:
            provider = users_provider(options.model)
            users = msgspec.json.encode(provider.settings).decode()
            config = config_text(servers, users, tools=ask.tools)
            env |= provider.env
            folder = f"{ask.home}/.config/opencode"
            files = {f"{folder}/{name}": text for name, text in _NO_INSTALL.items()}
            files[f"{folder}/opencode.json"] = config
            env |= _QUIET
        elif servers or not ask.tools:
            users = os.environ.get(_CONFIG_NAME) or "{}"
            env[_CONFIG_NAME] = config_text(servers, users, tools=ask.tools)
        endpoint = _ENDPOINTS.get((options.model or provider.model or "").partition("/")[0])
        return vendor_command(
            options,
            servers,
            (*key_names(options.model or provider.model), *provider.pass_env),
            ((_CONFIG_NAME,), provider.endpoints or ((endpoint,) if endpoint else ())),
            argv=(*argv, *(arg for arg in options.args if ask.tools or arg != "--auto")),
            env=env,
            stdin=ask.text,
            files=files,
            home_env=_HOME_ENV,
            keep=_KEPT if ask.home else (),  # the user's own database holds all their sessions
            login=login_file(ask, "XDG_DATA_HOME", ".local/share", "opencode/auth.json"),
        )

    def redirect(
        self, command: Command, ask: Ask, through: Callable[[str], str], *, offline: bool = False
    ) -> Command:
        """Set the base URLs of its providers in the settings that come before all others."""
        chosen = self._options.model or users_provider(None).model or ""
        given = parse_commented_json(
            command.env.get(_CONFIG_NAME) or os.environ.get(_CONFIG_NAME) or "{}", _CONFIG_NAME
        )
        providers = users_provider(chosen or None).settings.get("provider") or {}
        urls = {
            name: _REFERENCE.sub(lambda m: os.environ.get(m[1], ""), str(url))
            for name, table in providers.items()
            if (url := value_at(table, "options", "baseURL"))
        }
        name = chosen.partition("/")[0]
        if name in _BASE_URLS:
            urls.setdefault(name, _BASE_URLS[name])
        tables = {name: {"options": {"baseURL": through(url)}} for name, url in urls.items()}
        config = merge_settings({} if ask.home else given, {"provider": tables})
        env = {**command.env, _CONFIG_NAME: msgspec.json.encode(config).decode()}
        made = msgspec.structs.replace(command, env=env)
        if offline:
            keys = [*key_names(chosen)[:1], *variables_in(providers)]
            env |= {n: NO_KEY for n in keys if not (env.get(n) or os.environ.get(n))}
        return msgspec.structs.replace(made, env=env)

    def provider_settings(self) -> dict[str, Any]:
        return users_provider(self._options.model).settings

    def past_sessions(self, since_ms: float) -> Iterator[PastSession]:
        """Read the user's database, which holds the sessions of all projects."""
        home = Path(os.environ.get("XDG_DATA_HOME") or users_home() / ".local/share")
        for path in recent_files(home / "opencode", "opencode*.db", 0):
            with contextlib.suppress(sqlite3.Error, OSError):
                yield from (one for one in past_sessions(path) if one.end_ms >= since_ms)

    def watch(self) -> Watch:
        return OpenCodeTurn(max_turns=self._options.max_turns)

    def read(self, recording: Recording) -> Reading:
        """Read every turn from the stream, and from the database if it was kept."""
        several = len(recording.turns) > 1
        database, log = read_db(recording.kept), read_log(recording.kept, recording.stderr)
        completer = Completer(database, TrialClock(recording.start_ms, recording.end_ms))
        turns = read_turns(recording, lambda turn: OpenCodeTurn(turn, self._options.max_turns))
        steps, usages = [], []
        for number, reader in enumerate(turns, 1):
            model = self._model(reader, database)
            last = number == len(turns)
            done = completer.complete(reader, number if several else None, last=last)
            steps += done.steps
            main = with_cost(model, reader.usage) if reader.usage else None
            usages.append(add_usage([main, *done.usages]))
        model = self._model(turns[0], database) if turns else self._options.model
        # The log has a provider error for each retry, and one for an error that was final.
        final = 1 if turns and turns[-1].error is not None else 0
        started = any(turn.n_calls for turn in turns)
        names = dict.fromkeys([*(self._options.mcp if started else ()), *log.failed_servers])
        setup: dict[str, Any] = {"agent": database.agent} if database.agent else {}
        if names:
            setup["mcpServers"] = [
                {"name": n, "status": "failed" if n in log.failed_servers else "connected"}
                for n in names
            ]
        return vendor_reading(
            turns,
            steps,
            usages,
            agent=("opencode", database.version, model),
            failure=_failure(turns, recording, log),
            setup=setup or None,
            permission_denials=sum(len(turn.parts.denied) for turn in turns),
            provider_retries=max(0, len(log.errors) - final),
        )

    def _model(self, turn: OpenCodeTurn, database: OpenCodeDb) -> str | None:
        return database.models.get(turn.session_id or "") or self._options.model


def _failure(turns: list[OpenCodeTurn], recording: Recording, log: OpenCodeLog) -> Failure | None:
    """Return the failure of the first failed turn: the next turn may run in spite of it."""
    for number, (turn, recorded) in enumerate(zip(turns, recording.turns, strict=True), 1):
        last = number == len(turns)
        stderr, known = (recording.stderr, log) if last else ("", OpenCodeLog(causes=log.causes))
        start_ms = recording.start_ms + recorded.end.start_ms
        failure = failure_of_turn(turn, recorded.end, stderr, known, start_ms)
        if failure is not None:
            return failure
    return None


_KEYS = {
    "google": ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
    "amazon-bedrock": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"),
}


def config_text(servers: dict[str, McpServer], users: str = "{}", *, tools: bool = True) -> str:
    """Return a configuration that allows every tool and has the MCP servers, on top of the user's;
    or one without tools.

    The user's is merged in here, because OpenCode reads only one such variable.
    """
    mcp = {name: _server(server) for name, server in servers.items()}
    config: dict[str, Any] = {"$schema": "https://opencode.ai/config.json", "permission": "allow"}
    config |= {} if tools else {"permission": "deny", "tools": {"*": False}}
    config |= {"mcp": mcp} if mcp else {}
    config = merge_settings(parse_commented_json(users, _CONFIG_NAME), config)
    return msgspec.json.encode(config).decode()


def _server(server: McpServer) -> dict[str, Any]:
    """Translate the common format; OpenCode writes ${NAME} as {env:NAME}."""

    def translated(values: dict[str, str]) -> dict[str, str]:
        return {key: rewrite_variables(value, "{env:NAME}") for key, value in values.items()}

    if server.is_remote:
        url = rewrite_variables(str(server.url), "{env:NAME}")
        headers = translated(server.headers)
        return {"type": "remote", "url": url, "enabled": True, "headers": headers}
    words = [str(server.command), *server.args]
    command = [rewrite_variables(word, "{env:NAME}") for word in words]
    return {
        "type": "local",
        "command": command,
        "enabled": True,
        "environment": translated(server.env),
    }


_HOME_ENV = ("OPENCODE_CONFIG", _CONFIG_NAME, "OPENCODE_CONFIG_DIR", "OPENCODE_DB")
_CONFIG_FILES = ("config.json", "opencode.json", "opencode.jsonc")
_REFERENCE = re.compile(r"\{env:([^}]{1,200})\}")
_PROVIDER = ("npm", "name", "api", "env", "models")
_OPTIONS = ("baseURL", "apiKey", "timeout", "apiVersion", "resourceName", "region", "project")


def users_config() -> dict[str, Any]:
    """Return the user's settings from all places where OpenCode looks for them, but projects."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(users_home() / ".config")
    paths = [Path(home, "opencode", name) for name in _CONFIG_FILES]
    if file := os.environ.get("OPENCODE_CONFIG"):
        paths.append(Path(file))
    if folder := os.environ.get("OPENCODE_CONFIG_DIR"):
        paths += [Path(folder, name) for name in _CONFIG_FILES]
    texts = [*map(read_settings, paths), os.environ.get(_CONFIG_NAME) or ""]
    config: dict[str, Any] = {}
    for text in filter(None, texts):
        with contextlib.suppress(InputError):  # OpenCode itself would refuse it
            config = merge_settings(config, parse_commented_json(text, "opencode.json"))
    return config


def users_provider(model: str | None) -> Provider:
    """Return the model and the providers of the user's settings; keys go into variables.

    With a model, only the provider of that one and of the small one is kept.
    """
    config = users_config()
    settings = pick_settings(
        config, ("model", "small_model", "enabled_providers", "disabled_providers")
    )
    if model:
        settings.pop("model", None)
    chosen = model or settings.get("model")
    wanted = {str(one).partition("/")[0] for one in (chosen, settings.get("small_model")) if one}
    tables = config.get("provider")
    found = Provider(settings=settings, model=chosen if isinstance(chosen, str) else None)
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, dict) and (not chosen or name in wanted):
            own = _reduced(str(name), table, found)
            found.settings.setdefault("provider", {})[name] = own
    return found


def _reduced(name: str, table: dict[str, Any], found: Provider) -> dict[str, Any]:
    """Return what an agent in another HOME needs of a provider; add its variables and addresses."""
    own = pick_settings(table, _PROVIDER)
    options = pick_settings(table.get("options"), _OPTIONS)
    texts = [str(value) for value in options.values()]
    names = [one for text in texts for one in _REFERENCE.findall(text)]
    names += [one for one in own.get("env") or () if isinstance(one, str)]
    key = options.get("apiKey")
    if isinstance(key, str) and not _REFERENCE.search(key):
        variable = f"ASSAY_{re.sub('[^A-Za-z0-9]', '_', name).upper()}_API_KEY"
        found.env[variable] = _file_content(key)
        options["apiKey"] = f"{{env:{variable}}}"
    url = _REFERENCE.sub(lambda m: os.environ.get(m[1], ""), str(options.get("baseURL") or ""))
    found.endpoints += (url,) if url.startswith("http") else ()
    found.pass_env += tuple(names)
    return {**own, "options": options} if options else own


def variables_in(providers: dict[str, Any]) -> list[str]:
    """Return the variables that the settings of providers refer to."""
    return _REFERENCE.findall(msgspec.json.encode(providers).decode())


def _file_content(key: str) -> str:
    """Return a key that stands in the settings, or in a file that they name as {file:PATH}."""
    file = re.fullmatch(r"\{file:([^}]+)\}", key)
    return read_settings(Path(file[1]).expanduser()).strip() if file else key


_ENDPOINTS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "google": "https://generativelanguage.googleapis.com",
    "openrouter": "https://openrouter.ai",
    "opencode": "https://opencode.ai",
}
"""Where the models of a provider are; others are named in a variable given with --env."""


_BASE_URLS = {
    "anthropic": "https://api.anthropic.com/v1",
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta",
    "openrouter": "https://openrouter.ai/api/v1",
    "opencode": "https://opencode.ai/zen/v1",
}
"""The base URL of a provider whose settings name none."""


def key_names(model: str | None) -> tuple[str, ...]:
    """Return the variables of the provider's API key, all that an isolated agent gets."""
    provider, slash, _ = (model or "").partition("/")
    if not slash:
        return ()
    return _KEYS.get(provider, (f"{provider.upper().replace('-', '_')}_API_KEY",))


_NAMES = {
    "ProviderAuthError": Cause.AUTH,
    "ContextOverflowError": Cause.AGENT_LIMIT,
    "MessageOutputLengthError": Cause.AGENT_LIMIT,
    "MessageAbortedError": Cause.AGENT_CRASH,
    "ContentFilterError": Cause.AGENT_REFUSED,
}
_REASONS = {
    "length": (Cause.AGENT_LIMIT, "stopped: it reached its limit of output tokens"),
    "content-filter": (Cause.AGENT_REFUSED, "stopped by a content filter"),
    "error": (Cause.PROVIDER, "the model call ended with an error"),
    "unknown": (Cause.PROVIDER, "the provider's stream was cut"),
}
_LOST_SESSION = re.compile(r"session not found", re.IGNORECASE)


def failure_of_turn(
    turn: OpenCodeTurn, end: TurnEnd, stderr: str, log: OpenCodeLog, start_ms: float
) -> Failure | None:
    """Return the failure that OpenCode itself reports, None when it reports none.

    start_ms is the start of the turn since the epoch: the log may hold earlier turns too.
    """
    if turn.over_limit or (end.lingered and not turn.ended):
        message = f"reached the limit of {turn.n_calls} model calls"
        return Failure(cause=Cause.AGENT_LIMIT, message=message)
    if turn.error is not None:
        return _of_error(turn.error, log)
    if turn.ended or (turn.reason in _REASONS and not end.timed_out):
        return _of_reason(turn)
    # Retries after 5xx and dropped connections leave nothing in the stream.
    failure = log.waiting_failure(max(turn.last_ms, start_ms))
    if failure is not None:
        return failure
    if turn.events.total == 0:
        return _of_start(end, stderr)
    # A refused permission ends the run with exit code 0 and no answer.
    if turn.parts.denied and not end.exit_code and end.signal is None and not end.timed_out:
        message = "stopped: a permission was asked for and nobody could give it"
        return Failure(cause=Cause.AGENT_CRASH, message=message)
    return None


def _of_reason(turn: OpenCodeTurn) -> Failure | None:
    found = _REASONS.get(turn.reason or "")
    if found is not None:
        return Failure(cause=found[0], message=found[1])
    if turn.overflow is not None:
        message = f"went on after its context was too long: {_message(turn.overflow)}"
        return Failure(cause=Cause.AGENT_LIMIT, message=message, answered=True)
    return None


def _of_error(error: dict[str, Any], log: OpenCodeLog) -> Failure:
    name, message = str(error.get("name")), _message(error)
    if cause := log.causes.get(str(value_at(error, "data", "ref"))):
        # The stream says only that its own server has logged an error.
        return Failure(cause=text_cause(cause) or Cause.PROVIDER, message=cause[:2000])
    status = value_at(error, "data", "statusCode")
    if name in _NAMES:
        cause = _NAMES[name]
    elif isinstance(status, int):
        cause = status_cause(status)
    else:
        cause = text_cause(message) or (Cause.PROVIDER if name == "APIError" else Cause.AGENT_CRASH)
    text = f"{status} {message}" if isinstance(status, int) else message
    pause_ms = _retry_after_ms(error) if status == 429 else None
    return Failure(cause=cause, message=f"{name}: {text}"[:2000], retry_after_ms=pause_ms)


def _retry_after_ms(error: dict[str, Any]) -> float | None:
    asked = text_at(error, "data", "responseHeaders", "retry-after")
    # Not a date, as the standard also allows: there is no clock here.
    return float(asked) * 1000 if asked is not None and asked.isdecimal() else None


def _of_start(end: TurnEnd, stderr: str) -> Failure | None:
    failure = start_failure("opencode", end, stderr)
    if failure is not None and _LOST_SESSION.search(failure.message):
        return msgspec.structs.replace(failure, cause=Cause.HARNESS)
    return failure


def _message(error: dict[str, Any]) -> str:
    said = value_at(error, "data", "message") or error.get("message")
    return str(said or error.get("name") or error)
