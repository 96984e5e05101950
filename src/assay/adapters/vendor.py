"""What the four vendors' adapters share: options, MCP servers, causes, installation."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.files import files_in
from assay.adapters.reading import EventReader, add_events, last_session
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Reading
from assay.records.capture import AgentInfo, AnyStep, Cause, Failure, Usage
from assay.records.recording import TurnEnd

TURN_TIMEOUT_MS = 600_000.0
"""Real agents work for minutes; -t replaces it."""

_LONGEST_ARGUMENT = 100_000
"""Bytes; Linux allows 128 KiB for one argument."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,4096}))?\}")
_BASE_URL = re.compile(r"base_?url\W{1,6}(https?://[^\s\"'<>]+)", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_AUTH_STATUS = frozenset({401, 403})
_AUTH_WORDS = re.compile(
    r"\b(401|403)\b|unauthori[sz]ed|unauthenticated|invalid.{0,12}api.?key|api.?key.{0,12}invalid"
    r"|authenticat|not logged in|log ?in\b|missing.{0,12}api.?key|api.?key.{0,20}(missing|not set)",
    re.IGNORECASE,
)
_PROVIDER_WORDS = re.compile(
    r"\b(402|404|408|429|5\d\d)\b|rate.?limit|too many requests|quota|overloaded|unavailable"
    r"|server error|ECONN|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|fetch failed|timed? ?out|unable to connect"
    r"|connection (error|refused|reset|closed)|network|socket|credit balance|stream disconnected",
    re.IGNORECASE,
)


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server of an mcpServers file: a command on stdio, or an address."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    type: str | None = None
    """stdio, http or sse; by default it follows from the other fields."""
    url: str | None = None
    headers: dict[str, str] = {}

    @property
    def is_remote(self) -> bool:
        return self.url is not None


class VendorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every vendor's adapter."""

    program: str
    """The program to start; NAME:PROGRAM on the command line replaces the default."""
    model: str | None = None
    args: tuple[str, ...] = ()
    """Extra arguments for the agent, passed on unchanged."""
    max_turns: int | None = None
    """Limit of model calls in one turn."""
    mcp: dict[str, McpServer] = {}


class VendorAdapter(Adapter):
    """The base of the vendors' adapters: the same options, one process for each turn."""

    name = ""
    """Also the default program."""
    offers_mcp_servers = True
    limited_linger_s = 10.0
    """linger_s under --max-turns; short for an agent that does not enforce such a limit itself."""

    def __init__(
        self,
        argument: str = "",
        model: str | None = None,
        args: tuple[str, ...] = (),
        max_turns: int | None = None,
        mcp: dict[str, Any] | None = None,
    ) -> None:
        self._options = vendor_options(self.name, argument, model, args, max_turns, mcp)
        self.timeout_ms = TURN_TIMEOUT_MS
        if max_turns is not None:
            self.linger_s = min(self.linger_s, self.limited_linger_s)


def vendor_reading(
    turns: Sequence[EventReader],
    steps: list[AnyStep],
    usages: Sequence[Usage | None],
    agent: tuple[str, str | None, str | None],
    **more: Any,
) -> Reading:
    """Combine what all vendors' turns have in common; more holds the vendor's own fields.

    agent: the adapter's name, the version and the model, as far as they are known.
    """
    several = len(turns) > 1
    adapter, version, model = agent
    return Reading(
        agent=AgentInfo(adapter=adapter, version=version or UNSET, model=model or UNSET),
        steps=steps,
        outputs=[turn.output() for turn in turns],
        events=add_events(turns),
        usage=add_usage(usages),
        turn_usage=[usage or Usage() for usage in usages] if several and any(usages) else [],
        session_id=last_session(turns),
        **more,
    )


def vendor_command(
    options: VendorOptions,
    servers: dict[str, McpServer],
    keys: Iterable[str],
    endpoints: tuple[Iterable[str], Iterable[str]],
    **more: Any,
) -> Command:
    """Build the command of a turn with what its models and MCP servers need; more is the rest.

    keys: the variables that the agent itself may read. endpoints: see endpoints_of.
    """
    listed = servers.values()
    return Command(
        pass_env=(*keys, *variables_of(listed)),
        # A sandboxed agent must be able to start its servers.
        visible=files_in(word for one in listed for word in (one.command or "", *one.args)),
        endpoints=endpoints_of(options, listed, *endpoints),
        **more,
    )


class Provider(msgspec.Struct, kw_only=True):
    """The model provider of the user's own settings, reduced to what an agent with another HOME
    needs of it: endpoint, model and the names of keys."""

    settings: dict[str, Any] = {}
    """In the vendor's own terms; no value of a key is in them."""
    env: dict[str, str] = {}
    """Variables that the settings name or define; keys have names that make them secrets."""
    pass_env: tuple[str, ...] = ()
    """Our variables that the settings refer to."""
    endpoints: tuple[str, ...] = ()
    model: str | None = None


def read_settings(path: Path) -> str:
    """Return the text of a settings file of the user; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def users_home() -> Path:
    """Return the user's HOME, also where there is none."""
    return Path(os.environ.get("HOME") or "/nonexistent")


def pick_settings(settings: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return some of the settings, if they are an object at all."""
    return {n: settings[n] for n in names if n in settings} if isinstance(settings, dict) else {}


def login_file(ask: Ask, variable: str, folder: str, name: str) -> dict[str, str]:
    """Return where an isolated agent looks for its login, and where the user's is."""
    place = os.environ.get(variable) or f"~/{folder}"
    return {f"{ask.home}/{folder}/{name}": f"{place}/{name}"} if ask.home else {}


def vendor_options(
    program: str,
    argument: str = "",
    model: str | None = None,
    args: Iterable[str] = (),
    max_turns: int | None = None,
    mcp: dict[str, Any] | None = None,
) -> VendorOptions:
    """Check the options of an adapter."""
    if max_turns is not None and max_turns < 1:
        msg = f"max_turns is {max_turns}; it must be at least 1"
        raise InputError(msg)
    return VendorOptions(
        program=argument or program,
        model=model or None,
        args=tuple(args),
        max_turns=max_turns,
        mcp=parse_mcp(mcp or {}),
    )


def parse_mcp(content: Any, source: str = "mcp") -> dict[str, McpServer]:
    """Check the content of an mcpServers file, with or without its outer key."""
    servers = content.get("mcpServers", content) if isinstance(content, dict) else content
    if not isinstance(servers, dict):
        msg = f'{source}: expected an object {{"mcpServers": {{NAME: {{"command": …}}}}}}'
        raise InputError(msg)
    return {name: _server(name, value, source) for name, value in servers.items()}


def with_full_paths(content: Any, find: Callable[[str], str | None]) -> Any:
    """Replace relative paths in an mcpServers file: the agent starts its servers elsewhere.

    find gives the full path of a file that is there, or None; such a path stays as it is, because
    it may lie in the workspace.
    """
    if "mcpServers" in content:
        return {**content, "mcpServers": with_full_paths(content["mcpServers"], find)}
    return {name: _with_full_paths(server, find) for name, server in content.items()}


def _with_full_paths(server: dict[str, Any], find: Callable[[str], str | None]) -> dict[str, Any]:
    command, args = server.get("command"), server.get("args")
    if server.get("cwd") or not command:  # its paths are relative to that folder
        return server
    # A command without a slash is looked up on the PATH, and an argument that cannot be told from
    # a word, such as "start", stays one.
    changed = {"command": find(command) or command} if "/" in command else {}
    if args:
        changed["args"] = [(find(arg) or arg) if "/" in arg or "." in arg else arg for arg in args]
    return {**server, **changed}


_COMMENT = re.compile(
    r'("(?:[^"\\]|\\.)*+")|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*+[}\]])', re.DOTALL
)
"""A string, or what JSON with comments has besides: comments and a comma after the last value."""


def parse_commented_json(text: str, source: str) -> dict[str, Any]:
    """Parse a settings file of an agent, which may have comments; source names it in the error."""
    try:
        content = msgspec.json.decode(_COMMENT.sub(lambda found: found.group(1) or "", text))
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"{source} is not valid JSON: {error}"
        raise InputError(msg) from error
    if not isinstance(content, dict):
        msg = f"{source} is not a JSON object"
        raise InputError(msg)
    return content


def merge_settings(settings: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Put settings on top of others; objects are merged, anything else is replaced."""
    both = {
        name: merge_settings(settings[name], value)
        for name, value in more.items()
        if isinstance(value, dict) and isinstance(settings.get(name), dict)
    }
    return {**settings, **more, **both}


def is_too_long(prompt: str) -> bool:
    """Whether a prompt is too long for one argument of a command."""
    return len(prompt.encode("utf-8", "replace")) > _LONGEST_ARGUMENT


def mcp_servers(options: VendorOptions, ask: Ask) -> dict[str, McpServer]:
    """Return the servers of the user and of the trial's world; the world's take precedence.

    Without tools there are none.
    """
    if not ask.tools:
        return {}
    return {**options.mcp, **parse_mcp(ask.mcp_servers, "the world's MCP servers")}


def without_flags(args: Iterable[str], flags: Mapping[str, int]) -> list[str]:
    """Return arguments without some flags; flags has how many values follow each of them."""
    left: list[str] = []
    n_values = 0
    for arg in args:
        if n_values:
            n_values -= 1
            continue
        name, equals, _ = arg.partition("=")
        if name not in flags:
            left.append(arg)
        elif not equals:
            n_values = flags[name]
    return left


def variables_of(servers: Iterable[McpServer]) -> tuple[str, ...]:
    """Return the variables that servers refer to as ${NAME}, to pass them to the agent."""
    texts: list[str] = []
    for server in servers:
        texts += [server.command or "", server.url or "", *server.args]
        texts += [*server.env.values(), *server.headers.values()]
    found = (match.group(1) for text in texts for match in _VARIABLE.finditer(text))
    return tuple(dict.fromkeys(found))


def endpoints_of(
    options: VendorOptions,
    servers: Iterable[McpServer],
    names: Iterable[str],
    usual: Iterable[str],
) -> tuple[str, ...]:
    """Return the addresses of an agent's models and servers, for a sandbox without network.

    The models are at the URLs in the variables called names or in the agent's own arguments, where
    there are any, and else at the usual ones.
    """
    values = [os.environ.get(name, "") for name in names]
    given = [value for value in values if value.startswith("http")]
    given += [url for text in (*values, *options.args) for url in _BASE_URL.findall(text)]
    remote = [server.url for server in servers if server.url is not None]
    return (*(given or usual), *remote)


def redirected(command: Command, through: Callable[[str], str]) -> tuple[Command, bool]:
    """Replace every base URL in the arguments, variables and files of a command; return whether
    there was any."""
    found = False

    def rewritten(text: str) -> str:
        def put(match: re.Match[str]) -> str:
            nonlocal found
            found = True
            start = match.start(1) - match.start()
            return match[0][:start] + through(match[1])

        return _BASE_URL.sub(put, text)

    made = msgspec.structs.replace(
        command,
        argv=tuple(map(rewritten, command.argv)),
        env={name: rewritten(value) for name, value in command.env.items()},
        files={name: rewritten(text) for name, text in command.files.items()},
    )
    return made, found


def rewrite_variables(text: str, spelling: str) -> str:
    """Rewrite ${NAME} in another syntax, given with NAME as placeholder; defaults are dropped."""
    return _VARIABLE.sub(lambda match: spelling.replace("NAME", match.group(1)), text)


def status_cause(status: int) -> Cause:
    """Return the cause for an HTTP status of the provider: never the agent's fault."""
    return Cause.AUTH if status in _AUTH_STATUS else Cause.PROVIDER


def text_cause(text: str) -> Cause | None:
    """Return the cause that an error message suggests; None if it has no known wording."""
    if _AUTH_WORDS.search(text):
        return Cause.AUTH
    return Cause.PROVIDER if _PROVIDER_WORDS.search(text) else None


def add_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Add the usage of several turns; the cost is known only if it is known for all of them."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    total = Usage()
    for usage in known:
        total = total.plus(usage)
    costs = {usage.cost_source for usage in known}
    if UNSET in costs:
        return msgspec.structs.replace(total, cost_usd=UNSET, cost_source=UNSET)
    source = "estimated" if "estimated" in costs else total.cost_source
    return msgspec.structs.replace(total, cost_source=source)


def start_failure(program: str, end: TurnEnd, stderr: str) -> Failure | None:
    """Judge a process that failed before its first event: it never worked on the task."""
    if not end.exit_code or end.signal is not None:
        return None
    lines = [line for text in stderr.splitlines() if (line := _COLOUR.sub("", text).strip())]
    # Warnings may come first: prefer a line that calls itself an error.
    errors = [line for line in lines if re.match(r"error\b", line, re.IGNORECASE)]
    text = (errors or lines or [f"exit code {end.exit_code}"])[0]
    cause = text_cause(text)
    return Failure(
        cause=cause if cause is Cause.AUTH else Cause.SPAWN,
        message=f"{program} did not start: {text[:500]}",
    )


def _server(name: str, value: Any, source: str) -> McpServer:
    where = f"{source}: mcpServers.{name}"
    # httpUrl is Gemini CLI's spelling for streamable HTTP, where its url means SSE.
    if isinstance(value, dict) and "httpUrl" in value and "url" not in value:
        value = {**value, "url": value["httpUrl"], "type": "http"}
    try:
        server = msgspec.convert(value, McpServer)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        msg = f"{where}{place.rstrip('`')}: {what}"
        raise InputError(msg) from error
    if (server.command is None) == (server.url is None):
        msg = f'{where}: needs either "command" or "url"'
        raise InputError(msg, hint="see docs/agents.md, or the agent's own MCP documentation")
    return server


class KnownAgent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One agent, as listed for users."""

    name: str
    program: str
    """The program that is looked up on the PATH."""
    install: str
    login: str
    keys: tuple[str, ...]
    """Variables that hold its API key; pass one with --env when isolated."""
    tested: tuple[str, ...]
    """Versions that our tests run."""
    thoughts: str
    tool_output: str
    tokens: str
    cost: str
    acp: tuple[str, ...] = ()
    """Arguments that make it speak the Agent Client Protocol; none: it has its own adapter."""
    tried: str = "all of Assay's scenarios"
    """What was done with the versions in tested."""


KNOWN = (
    KnownAgent(
        name="claude",
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
        login="run `claude` once and log in, or set ANTHROPIC_API_KEY",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        tested=("2.1.325",),
        thoughts="stream",
        tool_output="stream",
        tokens="stream, per turn",
        cost="reported",
    ),
    KnownAgent(
        name="codex",
        program="codex",
        install="npm install -g @openai/codex",
        login="run `codex login`, or set CODEX_API_KEY",
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        tested=("0.166.0",),
        thoughts="stream (summaries)",
        tool_output="stream; call ids and times from the session file",
        tokens="session file, per response",
        cost="estimated",
    ),
    KnownAgent(
        name="gemini",
        program="gemini",
        install="npm install -g @google/gemini-cli",
        login="run `gemini` once and log in, or set GEMINI_API_KEY",
        keys=("GEMINI_API_KEY",),
        tested=("0.61.0",),
        thoughts="session file",
        tool_output="session file",
        tokens="stream and session file",
        cost="estimated",
    ),
    KnownAgent(
        name="opencode",
        program="opencode",
        install="npm install -g opencode-ai",
        login="run `opencode auth login`, or set the provider's key",
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        tested=("1.18.33",),
        thoughts="stream",
        tool_output="stream; sub-agents from its database",
        tokens="stream, per step",
        cost="reported",
    ),
)


_ANSWERED = "a trial with a thought, a shell command and an answer of a scripted model"
_STARTED = "its start only: it opens no session without an account"
ACP_AGENTS = (
    KnownAgent(
        name="auggie",
        program="auggie",
        acp=("--acp",),
        install="npm install -g @augmentcode/auggie",
        login="an Augment account: run `auggie login`, or set AUGMENT_SESSION_AUTH",
        keys=("AUGMENT_SESSION_AUTH",),
        tested=("0.36.0",),
        tried=_STARTED,
        thoughts="not tried",
        tool_output="not tried",
        tokens="not tried",
        cost="not tried",
    ),
    KnownAgent(
        name="cline",
        program="cline",
        acp=("--acp",),
        install="npm install -g cline",
        login="a Cline or ChatGPT account: run `cline auth`; a provider's key alone does not do",
        keys=(),
        tested=("3.0.65",),
        tried=_STARTED,
        thoughts="not tried",
        tool_output="not tried",
        tokens="not tried",
        cost="not tried",
    ),
    KnownAgent(
        name="copilot",
        program="copilot",
        acp=("--acp",),
        install="npm install -g @github/copilot",
        login="run `copilot login`; or, without an account, set COPILOT_PROVIDER_BASE_URL, "
        "COPILOT_PROVIDER_API_KEY and COPILOT_MODEL",
        keys=("GH_TOKEN", "COPILOT_PROVIDER_API_KEY"),
        tested=("1.0.102",),
        tried=_ANSWERED,
        thoughts="stream",
        tool_output="stream, with exit codes",
        tokens="stream, per turn",
        cost="not told",
    ),
    KnownAgent(
        name="goose",
        program="goose",
        acp=("acp",),
        install="npm install @aaif/goose, or a package of your system",
        login="run `goose configure`; or, without an account, set GOOSE_PROVIDER, GOOSE_MODEL and "
        "the provider's key",
        keys=("OPENAI_API_KEY", "ANTHROPIC_API_KEY"),
        tested=("1.34.0",),
        tried=_ANSWERED,
        thoughts="stream",
        tool_output="stream, with exit codes",
        tokens="of the last request of a turn only",
        cost="not told",
    ),
    KnownAgent(
        name="qwen",
        program="qwen",
        acp=("--acp",),
        install="npm install -g @qwen-code/qwen-code",
        login="run `qwen` once and log in; or, without an account, set OPENAI_API_KEY, "
        "OPENAI_BASE_URL and OPENAI_MODEL",
        keys=("OPENAI_API_KEY",),
        tested=("0.15.10",),
        tried=_ANSWERED,
        thoughts="stream",
        tool_output="stream, without exit codes",
        tokens="stream, per turn",
        cost="not told",
    ),
)
"""Agents that the adapter acp starts by name."""


def known_agent(name: str) -> KnownAgent | None:
    return next((agent for agent in (*KNOWN, *ACP_AGENTS) if agent.name == name), None)
