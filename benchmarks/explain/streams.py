"""Writes steps as the four agents print them, so that the real adapters read them."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay import plugins
from assay.pipeline.extract import extract
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef, Prompt
from assay.records.trial import Trial

type Event = dict[str, Any]
START_MS = 1_794_726_009_000
TIME = "2026-11-15T07:00:{:02}.000Z"


class Do(NamedTuple):
    """A step: what is done to what, what comes back, and the exit code or 1 for an error."""

    what: str
    target: str
    output: str = ""
    code: int = 0
    text: str = ""


class End(NamedTuple):
    """How a trial ends: answer, timeout, turns, provider or context."""

    how: str = "answer"
    words: str = ""


def trial(agent: str, prompt: Prompt, steps: Sequence[Do], end: End) -> Trial:
    """Return what the adapter of an agent reads from its own stream of these steps."""
    events = list(_WRITERS[agent](steps, end))
    lines = [RawLine(10 * n, json.dumps(event).encode()) for n, event in enumerate(events)]
    cut = end.how == "timeout"
    closing = TurnEnd(
        exit_code=None if cut else int(end.how != "answer"),
        signal="SIGKILL" if cut else None,
        timed_out=cut,
        end_ms=60_000,
    )
    with tempfile.TemporaryDirectory() as folder:
        if agent == "gemini":
            session = "".join(json.dumps(line) + "\n" for line in gemini_session(steps))
            Path(folder, "session.jsonl").write_text(session)
        turn = Turn(text=str(prompt.input), end=closing, lines=lambda: lines)
        recording = Recording(
            start_ms=START_MS, end_ms=START_MS + 60_000, turns=(turn,), kept=Path(folder)
        )
        return extract(prompt, recording, plugins.adapter(PluginRef(name=agent)))


_CLAUDE = {"sh": "Bash", "read": "Read", "edit": "Edit", "write": "Write", "web": "WebFetch"}
_GEMINI = {
    "sh": "run_shell_command",
    "read": "read_file",
    "edit": "replace",
    "write": "write_file",
    "web": "web_fetch",
}
_OPENCODE = {"sh": "bash", "read": "read", "edit": "edit", "write": "write", "web": "webfetch"}


def _given(step: Do, path: str) -> Event:
    if step.what == "sh":
        return {"command": step.target, "description": "d"}
    if step.what == "web":
        return {"url": step.target, "prompt": "read it"}
    if step.what == "write":
        return {path: step.target, "content": step.text}
    if step.what == "edit":
        return {path: step.target, "old_string": "a", "new_string": step.text or "b"}
    return {path: step.target} if step.what == "read" else {"x": 1}


def claude(steps: Sequence[Do], end: End) -> Iterator[Event]:
    yield {"type": "system", "subtype": "init", "session_id": "s", "tools": [], "model": "m"}
    for n, step in enumerate(steps):
        if step.what in ("say", "think"):
            kind = "text" if step.what == "say" else "thinking"
            yield _claude_says({"type": kind, kind: step.target})
            continue
        name = step.target if step.what == "tool" else _CLAUDE[step.what]
        given = _given(step, "file_path")
        yield _claude_says({"type": "tool_use", "id": f"t{n}", "name": name, "input": given})
        text = (
            f"Exit code {step.code}\n{step.output}"
            if step.what == "sh" and step.code
            else step.output
        )
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text}
        if step.code:
            result["is_error"] = True
        yield {"type": "user", "message": {"role": "user", "content": [result]}}
    if end.how == "answer":
        yield _claude_says({"type": "text", "text": end.words})
        yield _claude_end(subtype="success", is_error=False, result=end.words)
    elif end.how == "turns":
        yield _claude_end(subtype="error_max_turns", is_error=True, errors=[end.words])
    elif end.how in ("provider", "context"):
        yield _claude_says({"type": "text", "text": end.words})
        reason = "prompt_too_long" if end.how == "context" else "api_error"
        status = 400 if end.how == "context" else 529
        yield _claude_end(
            subtype="success",
            is_error=True,
            result=end.words,
            terminal_reason=reason,
            api_error_status=status,
        )


def _claude_says(content: Event) -> Event:
    return {
        "type": "assistant",
        "message": {"id": "m", "role": "assistant", "model": "m", "content": [content]},
        "session_id": "s",
    }


def _claude_end(**fields: Any) -> Event:
    return {"type": "result", "session_id": "s", "num_turns": 3, "usage": {}, **fields}


def codex(steps: Sequence[Do], end: End) -> Iterator[Event]:
    yield {"type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53"}
    yield {"type": "turn.started"}
    for n, step in enumerate(steps):
        yield from _codex_item(n, step)
    if end.how == "answer":
        yield _item("agent_message", len(steps), text=end.words)
        yield {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 9}}
    elif end.how != "timeout":
        yield {"type": "error", "message": end.words}
        yield {"type": "turn.failed", "error": {"message": end.words}}


def _codex_item(n: int, step: Do) -> Iterator[Event]:
    if step.what in ("say", "think"):
        yield _item("agent_message" if step.what == "say" else "reasoning", n, text=step.target)
    elif step.what in ("edit", "write"):
        kind = "add" if step.what == "write" else "update"
        changes = [{"path": f"/ws/{step.target}", "kind": kind}]
        yield _item(
            "file_change", n, changes=changes, status="failed" if step.code else "completed"
        )
    elif step.what == "tool":
        fields = {"server": "demo", "tool": step.target, "arguments": {"x": 1}, "status": "failed"}
        yield _item("mcp_tool_call", n, error={"message": step.output}, **fields)
    else:
        command = {"sh": "{}", "read": "cat {}", "web": "curl -s {}"}[step.what]
        yield _item(
            "command_execution",
            n,
            command=f"/bin/bash -lc '{command.format(step.target)}'",
            aggregated_output=step.output,
            exit_code=step.code,
            status="failed" if step.code else "completed",
        )


def _item(kind: str, number: int, **fields: Any) -> Event:
    return {"type": "item.completed", "item": {"id": f"item_{number}", "type": kind, **fields}}


def gemini(steps: Sequence[Do], end: End) -> Iterator[Event]:
    yield {"type": "init", "timestamp": TIME.format(0), "session_id": "s", "model": "m"}
    for n, step in enumerate(steps):
        at = {"timestamp": TIME.format(min(n + 1, 58))}
        if step.what in ("say", "think"):
            yield {
                "type": "message",
                **at,
                "role": "assistant",
                "content": step.target,
                "delta": True,
            }
            continue
        name = step.target if step.what == "tool" else _GEMINI[step.what]
        given = _given(step, "file_path")
        yield {"type": "tool_use", **at, "tool_name": name, "tool_id": f"t{n}", "parameters": given}
        failed = bool(step.code) and step.what != "sh"
        result = {"type": "tool_result", **at, "tool_id": f"t{n}", "output": step.output}
        if failed:
            result["error"] = {"type": "error", "message": step.output}
        yield {**result, "status": "error" if failed else "success"}
    at = {"timestamp": TIME.format(59)}
    if end.how == "answer":
        yield {"type": "message", **at, "role": "assistant", "content": end.words, "delta": True}
        yield {"type": "result", **at, "status": "success", "stats": {}}
    elif end.how != "timeout":
        kind = "FatalTurnLimitedError" if end.how == "turns" else "unknown"
        error = {"type": kind, "message": end.words}
        yield {"type": "result", **at, "status": "error", "error": error, "stats": {}}


def gemini_session(steps: Sequence[Do]) -> Iterator[Event]:
    """Yield the lines of its session file, which alone has exit codes."""
    yield {"sessionId": "s", "startTime": TIME.format(0), "kind": "main"}
    for n, step in enumerate(steps):
        if step.what != "sh":
            continue
        told = f"Output: {step.output}\nExit Code: {step.code}\nProcess Group PGID: 1"
        response = {"id": f"t{n}", "name": _GEMINI["sh"], "response": {"output": told}}
        call = {
            "id": f"t{n}",
            "name": _GEMINI["sh"],
            "args": _given(step, "file_path"),
            "result": [{"functionResponse": response}],
            "status": "success",
            "timestamp": TIME.format(min(n + 1, 58)),
            "resultDisplay": step.output,
        }
        at = TIME.format(min(n + 1, 58))
        yield {"id": f"m{n}", "timestamp": at, "type": "gemini", "content": "", "toolCalls": [call]}


def opencode(steps: Sequence[Do], end: End) -> Iterator[Event]:
    for n, step in enumerate(steps):
        yield from _opencode_part(n, step)
    at = {"timestamp": START_MS + 59_000, "sessionID": "ses_1"}
    if end.how == "answer":
        part = {"type": "text", "text": end.words, "time": {"start": START_MS, "end": START_MS}}
        yield {"type": "text", **at, "part": part}
        yield {"type": "step_finish", **at, "part": {"type": "step-finish", "reason": "stop"}}
    elif end.how == "turns":
        yield {"type": "step_finish", **at, "part": {"type": "step-finish", "reason": "length"}}
    elif end.how in ("provider", "context"):
        name = "ContextOverflowError" if end.how == "context" else "APIError"
        data = {"message": end.words, "statusCode": 529, "isRetryable": False}
        yield {"type": "error", **at, "error": {"name": name, "data": data}}


def _opencode_part(n: int, step: Do) -> Iterator[Event]:
    at = {"timestamp": START_MS + 1000 * n, "sessionID": "ses_1"}
    time = {"start": START_MS + 1000 * n, "end": START_MS + 1000 * n + 500}
    if step.what in ("say", "think"):
        kind = "text" if step.what == "say" else "reasoning"
        yield {"type": kind, **at, "part": {"type": kind, "text": step.target, "time": time}}
        return
    given = _given(step, "filePath")
    state: Event = {"status": "completed", "input": given, "output": step.output, "time": time}
    if step.what == "tool":
        why = f"Model tried to call unavailable tool '{step.target}'."
        state = {**state, "input": {"tool": step.target, "error": why}}
        state["output"] = f"The arguments provided to the tool are invalid: {why}"
    elif step.what == "sh":
        state["metadata"] = {"output": step.output, "exit": step.code}
    elif step.code:
        state = {"status": "error", "input": given, "error": step.output, "time": time}
    name = "invalid" if step.what == "tool" else _OPENCODE[step.what]
    part = {"type": "tool", "tool": name, "callID": f"c{n}", "state": state}
    yield {"type": "tool_use", **at, "part": part}


_WRITERS: dict[str, Callable[[Sequence[Do], End], Iterator[Event]]] = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
}
