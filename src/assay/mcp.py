"""A server of the Model Context Protocol on stdio, for both of its ways to agree on a version.

Since 2026-07-28 each request carries the version that it speaks, and there is no session; before,
`initialize` negotiated one. A server answers either, request by request. Only the standard library
is imported: the server of an ARC game is a file of its own that has nothing else.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

MODERN = ("2026-07-28",)
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
WRONG_VERSION = -32022
_META = "io.modelcontextprotocol/"
_VERSION, _CAPABILITIES = f"{_META}protocolVersion", f"{_META}clientCapabilities"
_CACHEABLE = (
    *("server/discover", "tools/list", "resources/list", "resources/templates/list"),
    "resources/read",
)


class RpcError(Exception):
    """A request that gets a JSON-RPC error as its answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class McpServer:
    """What a server offers. Subclasses override what they have; the rest answers for itself."""

    name = "assay"
    version = "1"
    instructions = ""
    has_resources = False
    ttl_ms = 0
    """How long a client may keep what a list or a resource answered."""

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools, each with name, description and inputSchema."""
        return []

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; return content and isError. An unknown tool is an RpcError."""
        raise RpcError(INVALID_PARAMS, f"unknown tool {name!r}")

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources, each with uri and name."""
        return []

    def read(self, uri: str) -> list[dict[str, Any]]:
        """Return the contents of a resource. An unknown one is an RpcError."""
        raise RpcError(INVALID_PARAMS, f"unknown resource {uri!r}", {"uri": uri})


def serve(server: McpServer, incoming: Iterable[bytes], write: Callable[[bytes], object]) -> None:
    """Answer JSON-RPC lines until the client closes its side; write sends one at once."""
    for line in incoming:
        if line.strip():
            reply = answer_line(server, line.decode("utf-8", "replace"))
            if reply is not None:
                write(json.dumps(reply).encode() + b"\n")


def answer_line(server: McpServer, line: str) -> Any:
    """Answer one line; a batch gets a list, a notification nothing."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, RpcError(PARSE_ERROR, "not valid JSON"))
    if isinstance(message, list) and message:
        replies = [reply for part in message if (reply := _answer(server, part)) is not None]
        return replies or None
    return _answer(server, message)


def text_content(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return what a tool says in words."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def tool(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    """Describe a tool."""
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "inputSchema": schema}


def _answer(server: McpServer, message: Any) -> dict[str, Any] | None:
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        is_reply = isinstance(message, dict) and ("result" in message or "error" in message)
        return None if is_reply else _error(None, RpcError(INVALID_REQUEST, "not a request"))
    if "id" not in message:
        return None  # a notification
    request_id, method = message["id"], message["method"]
    if not isinstance(request_id, str | int) or isinstance(request_id, bool):
        return _error(None, RpcError(INVALID_REQUEST, "the id must be a string or a number"))
    try:
        result = _result(server, method, message.get("params", {}))
    except RpcError as error:
        return _error(request_id, error)
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def _result(server: McpServer, method: str, params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object")
    meta = params.get("_meta")
    if method != "server/discover" and not (isinstance(meta, dict) and _VERSION in meta):
        return _legacy(server, method, params)
    _check_envelope(meta)
    more: dict[str, Any] = {"ttlMs": server.ttl_ms, "cacheScope": "private"}
    result = _discovered(server) if method == "server/discover" else _asked(server, method, params)
    about = {f"{_META}serverInfo": {"name": server.name, "version": server.version}}
    extra = more if method in _CACHEABLE else {}
    return {"resultType": "complete", **extra, **result, "_meta": about}


def _check_envelope(meta: Any) -> None:
    """Refuse a request of the new kind that does not say what it has to."""
    if not isinstance(meta, dict):
        meta = {}
    if missing := [key for key in (_VERSION, _CAPABILITIES) if key not in meta]:
        raise RpcError(INVALID_PARAMS, f"params._meta needs {' and '.join(missing)}")
    asked = meta[_VERSION]
    if not isinstance(asked, str) or not isinstance(meta[_CAPABILITIES], dict):
        raise RpcError(INVALID_PARAMS, f"{_VERSION} is a text and {_CAPABILITIES} an object")
    if asked not in MODERN:
        data = {"supported": [*MODERN, *HANDSHAKE], "requested": asked}
        raise RpcError(WRONG_VERSION, "Unsupported protocol version", data)


def _legacy(server: McpServer, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer a client that has, or should have, begun with `initialize`."""
    if method == "ping":
        return {}
    if method != "initialize":
        return _asked(server, method, params)
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in HANDSHAKE else HANDSHAKE[0],
        "capabilities": _capabilities(server),
        "serverInfo": {"name": server.name, "version": server.version},
        "instructions": server.instructions,
    }


def _discovered(server: McpServer) -> dict[str, Any]:
    return {
        "supportedVersions": [*MODERN, *HANDSHAKE],
        "capabilities": _capabilities(server),
        "instructions": server.instructions,
    }


def _capabilities(server: McpServer) -> dict[str, Any]:
    found: dict[str, Any] = {"tools": {"listChanged": False}}
    if server.has_resources:
        found["resources"] = {"listChanged": False, "subscribe": False}
    return found


def _asked(server: McpServer, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer what both kinds of clients ask."""
    if method == "tools/list":
        return {"tools": server.tools()}
    if method == "tools/call":
        # Some clients send null for no arguments.
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            raise RpcError(INVALID_PARAMS, "name must be a text, and arguments an object")
        return server.call(name, arguments or {})
    if server.has_resources and method == "resources/list":
        return {"resources": server.resources()}
    if server.has_resources and method == "resources/templates/list":
        return {"resourceTemplates": []}
    if server.has_resources and method == "resources/read":
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, "uri must be a text")
        return {"contents": server.read(uri)}
    raise RpcError(NO_METHOD, f"unknown method {method}")


def _error(request_id: Any, error: RpcError) -> dict[str, Any]:
    said: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        said["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": said}
