"""What a client writes in the Agent Client Protocol, and the handshake that opens a session."""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from assay.adapters.reading import object_at, objects_at, text_at, value_at
from assay.records.capture import Cause, Failure

PROTOCOL_VERSION, DRAFT_VERSION = 1, 2
AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
UNSUPPORTED_VERSION = -32022

INITIALIZE, NEW_SESSION, AUTHENTICATE, NEW_SESSION_AGAIN, SET_MODEL = 1, 2, 3, 4, 5
FIRST_PROMPT = 10
"""Ids of our requests. They are fixed, so that a recording of only the agent's lines shows which
request each response belongs to; the prompt of turn n has the id FIRST_PROMPT + n - 1."""

_ALLOWING = ("allow_always", "allow_once")
_REJECTING = ("reject_always", "reject_once")
_NOT_OFFERED = {"fs": "clientCapabilities.fs", "terminal": "clientCapabilities.terminal"}


class Request(NamedTuple):
    """A request to the agent."""

    id: int
    method: str
    params: dict[str, Any]

    def line(self) -> bytes:
        return _line({"id": self.id, "method": self.method, "params": self.params})


def answer(message: dict[str, Any], *, allow: bool = True) -> bytes:
    """Answer any request of the agent: one without an answer would leave it waiting.

    A request for permission is granted only if allow.
    """
    method, params = message["method"], message.get("params")
    if method == "session/request_permission" and isinstance(params, dict):
        outcome = _permission(objects_at(params, "options"), allow=allow)
        return _line({"id": message["id"], "result": {"outcome": outcome}})
    family = str(method).partition("/")[0]
    text = f"Method not found: {method}"
    if family in _NOT_OFFERED:
        text += f" (not offered: {_NOT_OFFERED[family]} is false)"
    error = {"code": METHOD_NOT_FOUND, "message": text, "data": {"method": method}}
    return _line({"id": message["id"], "error": error})


def block_text(block: Any) -> str:
    """Return the text of a content block, or its type and URI if it holds no text."""
    if not isinstance(block, dict):
        return ""
    for text in (text_at(block, "text"), text_at(block, "resource", "text")):
        if text is not None:
            return text
    uri = block.get("uri") or value_at(block, "resource", "uri")
    return f"[{block.get('type')}{': ' + uri if isinstance(uri, str) else ''}]"


def _permission(options: list[dict[str, Any]], *, allow: bool) -> dict[str, str]:
    """Choose an option that allows, else any that is offered; an agent must not be left waiting.

    Unless allow: then one that rejects, or none.
    """
    offered: dict[str, str] = {}
    for option in options:
        if isinstance(option.get("optionId"), str):
            offered.setdefault(str(option.get("kind")), option["optionId"])
    for kind in (*_ALLOWING, *offered) if allow else _REJECTING:
        if kind in offered:
            return {"outcome": "selected", "optionId": offered[kind]}
    return {"outcome": "cancelled"}


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"


_ASK = "ask for version 2, a draft, with acp:COMMAND,version=2"
_KEY_METHOD = re.compile(r"key|token|env", re.IGNORECASE)


@dataclass(frozen=True)
class SessionRequest:
    """The parameters of a session."""

    cwd: str = ""
    mcp_servers: tuple[dict[str, Any], ...] = ()
    auth_method: str | None = None
    """The sign-in method to use; None chooses one that needs no user."""
    model: str | None = None
    version: int = PROTOCOL_VERSION
    """The newest version of the protocol that we speak; the agent may choose an older one."""


@dataclass
class Handshake:
    """The state of the handshake; it is over once session_id or failure is set."""

    request: SessionRequest = field(default_factory=SessionRequest)
    ready: bool = False
    """Prompts may be sent."""
    failure: Failure | None = None
    session_id: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    model: str | None = None
    version: int = PROTOCOL_VERSION
    """What the agent chose."""
    _auth_methods: list[dict[str, Any]] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """What the user should know of a session that is open."""
        asked = self.request.version
        if self.session_id is None or self.version == asked:
            return []
        return [
            f"version {asked} of the protocol was asked for; the agent speaks version "
            f"{self.version}"
        ]

    def open(self) -> Request:
        """Return the first request; for version 2 with the fields of both, as either may answer."""
        info = {"name": "assay", "title": "Assay", "version": "1"}
        params: dict[str, Any] = {
            "protocolVersion": self.request.version,
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": False,
            },
            "clientInfo": info,
        }
        if self.request.version == DRAFT_VERSION:
            params |= {"capabilities": {}, "info": info}
        return Request(INITIALIZE, "initialize", params)

    def take(self, number: int, message: dict[str, Any]) -> Request | None:
        """Take the response to one of our requests; return the next request."""
        known = object_at(message, "result")
        if "error" in message:
            error, code = message["error"], value_at(message, "error", "code")
            # Only once: after a sign-in the request has the id NEW_SESSION_AGAIN.
            if number == NEW_SESSION and code == AUTH_REQUIRED:
                return self._sign_in()
            self.failure = error_failure(_METHODS.get(number, "request"), error)
            if number == AUTHENTICATE:
                self.failure = Failure(cause=Cause.AUTH, message=self.failure.message)
            if number == INITIALIZE and code == UNSUPPORTED_VERSION:
                hint = f"; {_ASK}" if self.request.version < DRAFT_VERSION else ""
                self._fail(Cause.HARNESS, self.failure.message + hint)
            return None
        if number == INITIALIZE:
            return self._initialized(known)
        if number in (NEW_SESSION, NEW_SESSION_AGAIN):
            return self._opened(known)
        if number == AUTHENTICATE:
            return self._new_session(NEW_SESSION_AGAIN)
        if number == SET_MODEL:
            self.ready, self.model = True, self.request.model
        return None

    def _initialized(self, result: dict[str, Any]) -> Request | None:
        version, asked = result.get("protocolVersion", PROTOCOL_VERSION), self.request.version
        if version not in (PROTOCOL_VERSION, asked) or isinstance(version, bool):
            known = f"only {PROTOCOL_VERSION} is known"
            if version == DRAFT_VERSION:
                known = _ASK
            self._fail(Cause.HARNESS, f"the agent speaks protocol version {version}; {known}")
            return None
        self.version = version
        is_draft = version == DRAFT_VERSION
        info = object_at(result, "info" if is_draft else "agentInfo")
        self.agent_name = text_at(info, "name") or None
        self.agent_version = text_at(info, "version") or None
        methods = objects_at(result, "authMethods")
        if is_draft:
            methods = [{**one, "id": one.get("methodId")} for one in methods]
        self._auth_methods = [one for one in methods if isinstance(one.get("id"), str)]
        return self._new_session(NEW_SESSION)

    def _new_session(self, number: int) -> Request:
        request = self.request
        servers = list(request.mcp_servers)
        if self.version == DRAFT_VERSION:  # where every server has a type
            servers = [{"type": "stdio", **server} for server in servers]
        return Request(number, "session/new", {"cwd": request.cwd, "mcpServers": servers})

    def _opened(self, result: dict[str, Any]) -> Request | None:
        session_id = text_at(result, "sessionId")
        if not session_id:
            self._fail(Cause.AGENT_CRASH, "session/new: the answer has no sessionId")
            return None
        self.session_id = session_id
        self.model = _current_model(result)
        if self.request.model is None or self.request.model == self.model:
            self.ready = True
            return None
        choice = _choose_model(result, self.request.model)
        if choice is None:
            self._fail(
                Cause.HARNESS, "the agent does not let a client choose the model: leave out --model"
            )
            return None
        return Request(SET_MODEL, choice[0], {"sessionId": session_id, **choice[1]})

    def _sign_in(self) -> Request | None:
        wanted = self.request.auth_method
        usable = [m["id"] for m in self._auth_methods if _is_usable(m, wanted)]
        if usable:
            method = "auth/login" if self.version == DRAFT_VERSION else "authenticate"
            return Request(AUTHENTICATE, method, {"methodId": usable[0]})
        offered = ", ".join(m["id"] for m in self._auth_methods) or "none"
        self._fail(
            Cause.AUTH,
            "the agent wants a sign-in that needs a person: sign in once by hand, or give it a key "
            f"in its environment (methods it offers: {offered})",
        )
        return None

    def _fail(self, cause: Cause, message: str) -> None:
        self.failure = Failure(cause=cause, message=message)


_METHODS = {
    INITIALIZE: "initialize",
    NEW_SESSION: "session/new",
    AUTHENTICATE: "authenticate",
    NEW_SESSION_AGAIN: "session/new after authenticate",
    SET_MODEL: "choosing the model",
}


def _is_usable(method: dict[str, Any], wanted: str | None) -> bool:
    """Whether a sign-in method uses an existing key; others would wait for a user."""
    if wanted is not None:
        return bool(method["id"] == wanted)
    kind = method.get("type", "agent")
    return kind == "env_var" or (kind == "agent" and _KEY_METHOD.search(method["id"]) is not None)


def _current_model(result: dict[str, Any]) -> str | None:
    if isinstance(result.get("models"), dict):
        return text_at(result, "models", "currentModelId") or None
    return text_at(_model_option(result), "currentValue") or None


def _choose_model(result: dict[str, Any], model: str) -> tuple[str, dict[str, Any]] | None:
    option = _model_option(result)
    if option is None:
        return ("session/set_model", {"modelId": model}) if "models" in result else None
    params = {"configId": option.get("id"), "value": model}
    if "configId" in option:  # version 2
        params |= {"configId": option["configId"], "type": "id"}
    return "session/set_config_option", params


def _model_option(result: dict[str, Any]) -> dict[str, Any] | None:
    for option in objects_at(result, "configOptions"):
        if "model" in (option.get("category"), option.get("id"), option.get("configId")):
            return option
    return None


_STOPS = {
    "max_tokens": (Cause.AGENT_LIMIT, "stopped: it reached its limit of tokens"),
    "max_turn_requests": (Cause.AGENT_LIMIT, "stopped: it reached its limit of model requests"),
    "refusal": (Cause.AGENT_REFUSED, "refused to go on"),
    "cancelled": (Cause.AGENT_CRASH, "says the turn was cancelled; nobody cancelled it"),
}
KNOWN_STOPS = frozenset({"end_turn", *_STOPS})
_AUTH = re.compile(
    r"\b401\b|\b403\b|unauthori[sz]ed|unauthenticated|invalid.{0,3}api.?key|authenticat|log.?in\b",
    re.IGNORECASE,
)
_PROVIDER = re.compile(
    r"\b429\b|\b5\d\d\b.{0,40}(error|unavailable|gateway)|(status|http|error|code).{0,10}\b5\d\d\b"
    r"|rate.?limit|overloaded|quota|unavailable|ECONN|ENOTFOUND|ETIMEDOUT|fetch failed"
    r"|connection (error|refused|reset)",
    re.IGNORECASE,
)


def stop_failure(stop_reason: Any) -> Failure | None:
    """Return the failure that a stop reason stands for, None for a normal end."""
    found = _STOPS.get(stop_reason) if isinstance(stop_reason, str) else None
    return Failure(cause=found[0], message=found[1]) if found else None


def ending_failure(ending: dict[str, Any]) -> Failure | None:
    """The same for the end of a turn in version 2, which may be an error."""
    if ending.get("stopReason") == "error":
        return error_failure("session/prompt", ending.get("error") or {})
    return stop_failure(ending.get("stopReason"))


def error_failure(method: str, error: Any) -> Failure:
    """Return the failure of a request that the agent answered with an error."""
    if not isinstance(error, dict):
        error = {"message": str(error)}
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    # `assay headless` states the cause in its error data.
    cause = text_at(data, "cause")
    stated = Cause(cause) if cause in set(Cause) else None
    details = "" if stated else _details(data)
    text = " ".join(part for part in (str(message or "error"), details) if part)[:2000]
    code_text = f" ({code})" if code is not None else ""
    return Failure(cause=stated or _cause(code, text), message=f"{method}{code_text}: {text}")


def _cause(code: Any, text: str) -> Cause:
    if code == AUTH_REQUIRED or _AUTH.search(text):
        return Cause.AUTH
    if _PROVIDER.search(text):
        return Cause.PROVIDER
    return Cause.AGENT_CRASH


def _details(data: Any) -> str:
    if data is None or data == {}:
        return ""
    for name in ("details", "message"):
        if (text := text_at(data, name)) is not None:
            return text
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()
