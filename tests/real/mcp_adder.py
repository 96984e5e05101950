"""A tiny MCP server on stdio: add(a, b), boom() that fails, and whoami() that reads WHO."""

import json
import os
import sys
from typing import Any

NUMBER = {"type": "integer"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "add",
        "description": "Add two integers",
        "inputSchema": {
            "type": "object",
            "properties": {"a": NUMBER, "b": NUMBER},
            "required": ["a", "b"],
        },
    },
    {"name": "boom", "description": "Fails", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "whoami", "description": "Who", "inputSchema": {"type": "object", "properties": {}}},
]


def call(name: str, given: dict[str, Any]) -> tuple[str, bool]:
    if name == "add":
        # Not a bare number, which Gemini CLI takes for structured content.
        return f"sum {given['a'] + given['b']}", False
    return (os.environ.get("WHO", "nobody"), False) if name == "whoami" else ("boom failed", True)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        version = params.get("protocolVersion", "2024-11-05")
        info = {"name": "adder", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text, failed = call(params["name"], params.get("arguments") or {})
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "?"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
