"""The scripted agents that ship with Assay: no model, no key, but a real process and stream."""

import sys
from pathlib import Path
from typing import Any

from assay.adapters.declared import DeclaredAdapter
from assay.errors import InputError

PERSONAS = {
    "steady": "solves what it can, always the same way",
    "flaky": "knows the same, but slips on about a third of its attempts",
    "better": "like steady, and does not give up on the hard ones",
    "skilled": "reads a skill in its folder if the description fits the prompt",
}


def demo_adapter(
    argument: str = "steady", model: str | None = None, args: tuple[str, ...] = ()
) -> DeclaredAdapter:
    """Build the adapter of one persona: demo, demo:flaky, demo:better, demo:skilled."""
    if argument not in PERSONAS:
        msg = f"there is no demo agent {argument!r}"
        raise InputError(msg, hint=f"choose one of: {', '.join(PERSONAS)}")
    return DeclaredAdapter(_schema(argument), f"demo:{argument}", model, args)


def _schema(persona: str) -> dict[str, Any]:
    program = str(Path(__file__).with_name("agent.py"))
    content = "$.message.content[*]"
    return {
        "version": 1,
        "name": f"demo-{persona}",
        # -I -S: without the user's Python variables and site-packages it starts fast, and the same
        # way everywhere.
        "command": [sys.executable, "-I", "-S", program, "--persona", persona],
        "sessionMode": "stream",
        "prompt": {"flag": "-p"},
        "output": {"flag": "--output-format", "value": "stream-json"},
        "resume": {"flag": "--resume", "sessionIdPath": "$.session_id"},
        "modelFlag": "--model",
        "outputEvents": [
            {
                "match": {"path": content, "value": "thinking"},
                "emitAs": "thought",
                "extract": {"content": "$.thinking"},
            },
            {
                "match": {"path": content, "value": "text"},
                "emitAs": "message",
                "extract": {"content": "$.text"},
            },
            {
                "match": {"path": content, "value": "tool_use"},
                "emitAs": "tool_call",
                "extract": {
                    "title": "$.name",
                    "status": "'pending'",
                    "callId": "$.id",
                    "input": "$.input",
                },
            },
            {
                "match": {"path": content, "value": "tool_result"},
                "emitAs": "tool_call",
                "extract": {
                    "status": "'completed'",
                    "callId": "$.tool_use_id",
                    "output": "$.content",
                    "error": "$.is_error",
                },
            },
        ],
        "ignore": [{"path": "$.type", "value": "system"}],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
        "modelPath": "$.model",
        "versionPath": "$.version",
    }
