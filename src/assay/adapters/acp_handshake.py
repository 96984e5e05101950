"""How a conversation with an agent begins: initialize, session, sign-in and model where needed.

Sans-IO: answers in, the next request out. The dialogue sends what it gives; the reader of a
recording follows it along to know where things stand.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from assay.adapters.acp_failure import error_failure
from assay.adapters.acp_messages import (
    AUTH_REQUIRED,
    AUTHENTICATE,
    INITIALIZE,
    NEW_SESSION,
    NEW_SESSION_AGAIN,
    PROTOCOL_VERSION,
    SET_MODEL,
    Request,
)
from assay.records.failure import Cause, Failure

_BY_KEY = re.compile(r"key|token|env", re.IGNORECASE)


@dataclass(frozen=True)
class Wish:
    """What we want of a session."""

    cwd: str = ""
    mcp_servers: tuple[dict[str, Any], ...] = ()
    auth_method: str | None = None
    """Sign in with this one; None chooses one that needs no person."""
    model: str | None = None


@dataclass
class Handshake:
    """Where the beginning stands; session_id or failure says that it is over."""

    wish: Wish = field(default_factory=Wish)
    ready: bool = False
    """Prompts may be put."""
    failure: Failure | None = None
    session_id: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    model: str | None = None
    _auth_methods: list[dict[str, Any]] = field(default_factory=list)

    def open(self) -> Request:
        """Give the first request."""
        return Request(
            INITIALIZE,
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                },
                "clientInfo": {"name": "assay", "title": "Assay", "version": "1"},
            },
        )

    def take(self, number: int, message: dict[str, Any]) -> Request | None:
        """Take the answer to one of our requests; give the next."""
        result = message.get("result")
        known: dict[str, Any] = result if isinstance(result, dict) else {}
        if "error" in message:
            return self._refused(number, message["error"])
        if number == INITIALIZE:
            return self._met(known)
        if number in (NEW_SESSION, NEW_SESSION_AGAIN):
            return self._opened(known)
        if number == AUTHENTICATE:
            return self._new_session(NEW_SESSION_AGAIN)
        if number == SET_MODEL:
            self.ready, self.model = True, self.wish.model
        return None

    def _met(self, result: dict[str, Any]) -> Request | None:
        info = result.get("agentInfo")
        if isinstance(info, dict):
            self.agent_name, self.agent_version = _text(info, "name"), _text(info, "version")
        methods = result.get("authMethods")
        self._auth_methods = [
            method
            for method in (methods if isinstance(methods, list) else [])
            if isinstance(method, dict) and isinstance(method.get("id"), str)
        ]
        version = result.get("protocolVersion", PROTOCOL_VERSION)
        if version != PROTOCOL_VERSION:
            known = f"only {PROTOCOL_VERSION} is known"
            self._fail(Cause.HARNESS, f"the agent speaks protocol version {version}; {known}")
            return None
        return self._new_session(NEW_SESSION)

    def _new_session(self, number: int) -> Request:
        wish = self.wish
        params = {"cwd": wish.cwd, "mcpServers": list(wish.mcp_servers)}
        return Request(number, "session/new", params)

    def _opened(self, result: dict[str, Any]) -> Request | None:
        session_id = _text(result, "sessionId")
        if session_id is None:
            self._fail(Cause.AGENT_CRASH, "session/new: the answer has no sessionId")
            return None
        self.session_id = session_id
        self.model = _current_model(result)
        if self.wish.model is None or self.wish.model == self.model:
            self.ready = True
            return None
        choice = _choose_model(result, self.wish.model)
        if choice is None:
            self._fail(Cause.HARNESS, "the agent offers no way to choose a model: no --model")
            return None
        return Request(SET_MODEL, choice[0], {"sessionId": session_id, **choice[1]})

    def _refused(self, number: int, error: Any) -> Request | None:
        code = error.get("code") if isinstance(error, dict) else None
        if number == NEW_SESSION and code == AUTH_REQUIRED:
            return self._sign_in()
        self.failure = error_failure(_METHODS.get(number, "request"), error)
        if number == AUTHENTICATE:
            self.failure = Failure(cause=Cause.AUTH, message=self.failure.message)
        return None

    def _sign_in(self) -> Request | None:
        wanted = self.wish.auth_method
        fitting = [m["id"] for m in self._auth_methods if _needs_nobody(m, wanted)]
        if fitting:
            return Request(AUTHENTICATE, "authenticate", {"methodId": fitting[0]})
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


def _needs_nobody(method: dict[str, Any], wanted: str | None) -> bool:
    """Whether a sign-in takes a key that is there already; others would wait for a person."""
    if wanted is not None:
        return bool(method["id"] == wanted)
    kind = method.get("type", "agent")
    return kind == "env_var" or (kind == "agent" and _BY_KEY.search(method["id"]) is not None)


def _current_model(result: dict[str, Any]) -> str | None:
    models = result.get("models")
    if isinstance(models, dict):
        return _text(models, "currentModelId")
    option = _model_option(result)
    return _text(option, "currentValue") if option else None


def _choose_model(result: dict[str, Any], model: str) -> tuple[str, dict[str, Any]] | None:
    option = _model_option(result)
    if option is not None:
        return "session/set_config_option", {"configId": option.get("id"), "value": model}
    return ("session/set_model", {"modelId": model}) if "models" in result else None


def _model_option(result: dict[str, Any]) -> dict[str, Any] | None:
    options = result.get("configOptions")
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and "model" in (option.get("category"), option.get("id")):
            return option
    return None


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None
