"""The MCP server with the game's tools, over stdio; standard library only."""

import contextlib
import sys
from typing import Any

from assay.mcp import INVALID_PARAMS, McpServer, RpcError, serve, text_content, tool
from assay_arc.client import GameConnection, GameGone, connect_from_environment, shown_ways


class GameServer(McpServer):
    """Offers one game; what the game refuses is a tool error that the model can read."""

    name = "arc"
    instructions = (
        "You play one game on a 64x64 picture. Nobody tells the rules: look, act, and find out. "
        "Complete all levels with as few actions as you can."
    )

    def __init__(self, game: GameConnection) -> None:
        self._game = game

    def tools(self) -> list[dict[str, Any]]:
        with contextlib.suppress(GameGone):
            self._game.ask(op="tools")  # so that its log shows that the player has them
        return tool_list()

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        request = tool_request(name, arguments)
        if request is None:
            raise RpcError(INVALID_PARAMS, f"unknown tool {name!r}")
        try:
            reply = self._game.ask(**request)
        except GameGone as error:
            return text_content(str(error), is_error=True)
        said = text_content(reply["text"], is_error=not reply["ok"])
        if "image" in reply:
            image = {"type": "image", "data": reply["image"], "mimeType": "image/png"}
            said["content"].append(image)
        return said


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
        tool("look", LOOK, {"image": image, "frames": frames}, []),
        tool("act", ACT, {"action": action, "full": FULL}, ["action"]),
        tool("click", CLICK, {"x": PIXEL, "y": PIXEL, "full": FULL}, ["x", "y"]),
        tool("reset", RESET, {}, []),
        tool("status", STATUS, {}, []),
    ]
    if ways == {"image", "grid", "diff"}:
        return tools
    look, act, click = tools[:3]
    if "grid" not in ways:
        look["description"] = LOOK_IMAGE
    if "image" not in ways or "grid" not in ways:  # without a grid the image is always given
        look["inputSchema"]["properties"].pop("image")
    for one in (act, click):
        if "diff" not in ways:
            after = SHOWS_GRID if "grid" in ways else SHOWS_NOTHING
            one["description"] = one["description"].replace(SHOWS_CHANGES, after)
            one["inputSchema"]["properties"].pop("full")
        elif "grid" not in ways:
            one["inputSchema"]["properties"].pop("full")
    return tools


def tool_request(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Turn a tool call into a request; only fields the tool has are passed on."""
    for one in tool_list():
        if one["name"] == name:
            known = one["inputSchema"]["properties"]
            asked = {key: value for key, value in arguments.items() if key in known}
            always = {"image": True} if name == "look" and "grid" not in shown_ways() else {}
            return asked | always | {"op": name}
    return None


def main() -> int:
    """Serve the game of the environment on stdin and stdout."""
    try:
        game = connect_from_environment()
    except GameGone as error:
        sys.stderr.write(f"arc-mcp: {error}\n")
        return 1
    serve(GameServer(game), sys.stdin.buffer, _write)
    return 0


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main())
