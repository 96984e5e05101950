# ruff: noqa: PTH110, PTH123
import json
import os
import sys


def emit(**event):
    print(json.dumps(event), flush=True)


asked = sys.argv[-1]
emit(type="start", session="s-1", model="toy-1")
if "overloaded" in asked:
    emit(type="failed", why="the provider is overloaded")
    sys.exit(1)
tool = {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": "UTC"}}
emit(
    type="assistant",
    blocks=[
        {"type": "thinking", "text": "I need the time."},
        {"type": "text", "text": "Let me look."},
        tool,
        dict(tool, id="c2", name="Read", input={"path": "gone.txt"}),
    ],
)
result = {"type": "tool_result", "tool_use_id": "c1", "content": "12:00"}
emit(
    type="tool",
    blocks=[result, dict(result, tool_use_id="c2", content="no such file", is_error=True)],
)
emit(type="odd", value=1)
print("not JSON", flush=True)
emit(type="usage", **{"in": 20, "out": 9, "usd": 0.0004})
if os.path.exists("marker.txt"):
    with open("marker.txt") as file:
        asked += " [" + file.read().strip() + "]"
if "environment" in asked:
    asked = ",".join(sorted(name for name in os.environ if name in ("HOME", "SEEN", "UNSEEN")))
emit(type="done", answer=f"Asked {asked!r} at 12:00 with {sys.argv[1:-1]}.")
