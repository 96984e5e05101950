"""The tools an MCP client sees, and the request each one makes of the game."""

from typing import Any

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
    """Describe the tools as MCP wants them."""
    image = {"type": "boolean", "description": "also give the picture as an image"}
    frames = {"type": "boolean", "description": "show the last animation frame by frame"}
    action = {"type": "string", "description": "ACTION1 to ACTION7"}
    return [
        _tool("look", LOOK, {"image": image, "frames": frames}, []),
        _tool("act", ACT, {"action": action, "full": FULL}, ["action"]),
        _tool("click", CLICK, {"x": PIXEL, "y": PIXEL, "full": FULL}, ["x", "y"]),
        _tool("reset", RESET, {}, []),
        _tool("status", STATUS, {}, []),
    ]


def tool_request(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Turn a tool call into a request; only fields the tool has are passed on."""
    for tool in tool_list():
        if tool["name"] == name:
            known = tool["inputSchema"]["properties"]
            return {key: value for key, value in arguments.items() if key in known} | {"op": name}
    return None


def _tool(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "inputSchema": schema}
