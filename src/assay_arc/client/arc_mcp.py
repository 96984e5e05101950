"""An MCP server over stdio with the game's tools; JSON-RPC by hand, standard library only."""

import contextlib
import json
import sys
from collections.abc import Iterable
from typing import IO, Any

from assay_arc.client import GameConnection, GameGone, connect_from_environment, shown_ways

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
INSTRUCTIONS = (
    "You play one game on a 64x64 picture. Nobody tells the rules: look, act, and find out. "
    "Complete all levels with as few actions as you can."
)
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


class RpcError(Exception):
    """A request that gets a JSON-RPC error as its answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def serve(game: GameConnection, incoming: Iterable[str], outgoing: IO[str]) -> None:
    """Answer JSON-RPC lines until the client closes its side."""
    for line in incoming:
        if not line.strip():
            continue
        reply = answer_line(game, line)
        if reply is not None:
            outgoing.write(json.dumps(reply) + "\n")
            outgoing.flush()


def answer_line(game: GameConnection, line: str) -> Any:
    """Answer one line; a batch gets a list, a notification nothing."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, "not valid JSON")
    if isinstance(message, list):
        replies = [reply for part in message if (reply := _answer(game, part)) is not None]
        return replies or None
    return _answer(game, message)


def _answer(game: GameConnection, message: Any) -> dict[str, Any] | None:
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        is_reply = isinstance(message, dict) and ("result" in message or "error" in message)
        return None if is_reply else _error(None, INVALID_REQUEST, "not a request")
    if "id" not in message:
        return None  # a notification
    try:
        result = _result(game, message["method"], message.get("params") or {})
    except RpcError as error:
        return _error(message["id"], error.code, error.message)
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _result(game: GameConnection, method: str, params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object")
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "arc", "version": "1"},
                "instructions": INSTRUCTIONS,
            }
        case "ping":
            return {}
        case "tools/list":
            with contextlib.suppress(GameGone):
                game.ask(op="tools")  # so that its log shows that the player has them
            return {"tools": tool_list()}
        case "tools/call":
            return _call(game, params)
        case _:
            raise RpcError(NO_METHOD, f"unknown method {method}")


def _call(game: GameConnection, params: dict[str, Any]) -> dict[str, Any]:
    """Call a tool; what the game refuses is a tool error that the model can read."""
    arguments = params.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "arguments must be an object")
    request = tool_request(str(params.get("name")), arguments)
    if request is None:
        raise RpcError(INVALID_PARAMS, f"unknown tool {params.get('name')!r}")
    try:
        reply = game.ask(**request)
    except GameGone as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    content: list[dict[str, Any]] = [{"type": "text", "text": reply["text"]}]
    if "image" in reply:
        content.append({"type": "image", "data": reply["image"], "mimeType": "image/png"})
    return {"content": content, "isError": not reply["ok"]}


def _error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


SHOWS_CHANGES = "Answers with what changed."
SHOWS_GRID = "Answers with the whole picture."
SHOWS_NOTHING = "Look afterwards to see what it did."
LOOK_IMAGE = "Look at the whole picture, as an image."
LOOK = "Look at the whole picture: rows of hex digits, one colour each, and the colours used."
ACT = (
    "Do one action (ACTION1..ACTION5, ACTION7). What each does is for you to find out; often 1 up, "
    "2 down, 3 left, 4 right, 5 interact, 7 undo. Answers with what changed."
)
CLICK = "Do ACTION6: click a pixel of the 64x64 picture; x from the left, y from the top."
RESET = (
    "Restart the current level (costs one action). A reset straight after another, or before any "
    "action, restarts the whole game from level 1."
)
STATUS = "Say state, level, actions and resets used, and which actions are available."

FULL = {"type": "boolean", "description": "also show the whole picture"}
PIXEL = {"type": "integer", "minimum": 0, "maximum": 63}


def tool_list() -> list[dict[str, Any]]:
    """The tools; what the game does not show is not offered."""
    ways = shown_ways()
    image = {"type": "boolean", "description": "also give the picture as an image"}
    frames = {"type": "boolean", "description": "show the last animation frame by frame"}
    action = {"type": "string", "description": "ACTION1 to ACTION7"}
    tools = [
        _tool("look", LOOK, {"image": image, "frames": frames}, []),
        _tool("act", ACT, {"action": action, "full": FULL}, ["action"]),
        _tool("click", CLICK, {"x": PIXEL, "y": PIXEL, "full": FULL}, ["x", "y"]),
        _tool("reset", RESET, {}, []),
        _tool("status", STATUS, {}, []),
    ]
    if ways == {"image", "grid", "diff"}:
        return tools
    look, act, click = tools[:3]
    if "grid" not in ways:
        look["description"] = LOOK_IMAGE
    if "image" not in ways or "grid" not in ways:  # without a grid the image is always given
        look["inputSchema"]["properties"].pop("image")
    for tool in (act, click):
        if "diff" not in ways:
            after = SHOWS_GRID if "grid" in ways else SHOWS_NOTHING
            tool["description"] = tool["description"].replace(SHOWS_CHANGES, after)
            tool["inputSchema"]["properties"].pop("full")
        elif "grid" not in ways:
            tool["inputSchema"]["properties"].pop("full")
    return tools


def tool_request(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Turn a tool call into a request; only fields the tool has are passed on."""
    for tool in tool_list():
        if tool["name"] == name:
            known = tool["inputSchema"]["properties"]
            asked = {key: value for key, value in arguments.items() if key in known}
            always = {"image": True} if name == "look" and "grid" not in shown_ways() else {}
            return asked | always | {"op": name}
    return None


def _tool(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "inputSchema": schema}


def main() -> int:
    """Serve the game of the environment on stdin and stdout."""
    try:
        game = connect_from_environment()
    except GameGone as error:
        sys.stderr.write(f"arc-mcp: {error}\n")
        return 1
    lines = (line.decode("utf-8", "replace") for line in sys.stdin.buffer)
    serve(game, lines, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
