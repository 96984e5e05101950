"""What a client writes in the Agent Client Protocol: JSON-RPC 2.0, protocol version 1."""

from typing import Any, NamedTuple

import msgspec

PROTOCOL_VERSION = 1
AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601

INITIALIZE, NEW_SESSION, AUTHENTICATE, NEW_SESSION_AGAIN, SET_MODEL = 1, 2, 3, 4, 5
FIRST_PROMPT = 10
"""Ids of our requests. Fixed, so that a recording of the agent's lines alone tells what an answer
is the answer to; the prompt of turn n has the id FIRST_PROMPT + n - 1."""

_ALLOWING = ("allow_always", "allow_once")
_NOT_OFFERED = {"fs": "clientCapabilities.fs", "terminal": "clientCapabilities.terminal"}


class Request(NamedTuple):
    """Something to ask of the agent."""

    id: int
    method: str
    params: dict[str, Any]

    def line(self) -> bytes:
        """Give it as it goes over the wire."""
        return _line({"id": self.id, "method": self.method, "params": self.params})


def answer(message: dict[str, Any]) -> bytes:
    """Answer a request of the agent, whatever it is: an agent must never wait for us."""
    method, params = message["method"], message.get("params")
    if method == "session/request_permission" and isinstance(params, dict):
        outcome = _permission(params.get("options"))
        return _line({"id": message["id"], "result": {"outcome": outcome}})
    family = str(method).partition("/")[0]
    text = f"Method not found: {method}"
    if family in _NOT_OFFERED:
        text += f" (not offered: {_NOT_OFFERED[family]} is false)"
    error = {"code": METHOD_NOT_FOUND, "message": text, "data": {"method": method}}
    return _line({"id": message["id"], "error": error})


def block_text(block: Any) -> str:
    """Give the text of a content block; of one that holds none, what it is."""
    if not isinstance(block, dict):
        return ""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    uri = block.get("uri") or (resource.get("uri") if isinstance(resource, dict) else None)
    return f"[{block.get('type')}{': ' + uri if isinstance(uri, str) else ''}]"


def _permission(options: Any) -> dict[str, str]:
    """Allow; where nothing can be allowed, refuse rather than leave the agent waiting."""
    offered: dict[str, str] = {}
    for option in options if isinstance(options, list) else []:
        if isinstance(option, dict) and isinstance(option.get("optionId"), str):
            offered.setdefault(str(option.get("kind")), option["optionId"])
    for kind in (*_ALLOWING, *offered):
        if kind in offered:
            return {"outcome": "selected", "optionId": offered[kind]}
    return {"outcome": "cancelled"}


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
