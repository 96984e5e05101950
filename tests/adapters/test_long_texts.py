"""Texts of an agent that are long: some patterns would look at them from every character."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import assay.adapters.gemini as gemini
from assay.adapters import reading, text
from assay.adapters.acp import AcpReader
from assay.adapters.acp.messages import SessionRequest
from assay.adapters.claude import ClaudeAdapter
from assay.adapters.claude.stream import ClaudeTurn
from assay.adapters.codex.stream import CodexTurn
from assay.adapters.declared import DeclaredAdapter
from assay.adapters.gemini import stream as gemini_stream
from assay.adapters.gemini.stream import GeminiTurn
from assay.adapters.opencode import files as opencode_files
from assay.adapters.opencode.stream import OpenCodeTurn
from assay.adapters.reading import EventReader, StepBuilder
from assay.adapters.vendor import text_cause
from assay.graders.answer import find_json
from assay.pipeline.extract import extract
from assay.records.capture import Plan
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import Prompt

N = 300_000


def find(text: str) -> Any:
    try:
        return find_json(text)
    except ValueError:
        return None


CASES: dict[str, Callable[[], Any]] = {
    "a log line of one word": lambda: opencode_files._fields("a" * N),
    "a log line of quotes": lambda: opencode_files._fields('a="' * (N // 3)),
    "many API errors": lambda: gemini._cause("[API Error: " * (N // 12)),
    "many thrown errors": lambda: gemini._thrown_error("ApiError: {" * (N // 11)),
    "a shell output of line feeds": lambda: gemini_stream._shell("Output: " + "\n" * N + "x", None),
    "a shell output of blanks": lambda: gemini_stream._shell("Output: " + " " * N + "x", None),
    "a long exit code": lambda: gemini_stream._shell(f"Output: x\nExit Code: {'1' * N}", None),
    "an answer of fences": lambda: find("```x\n" * (N // 5)),
    "an answer of tildes": lambda: find("~" * N),
    "an answer of tilde fences": lambda: find("".join("~" * n + "x\n" for n in range(3, 700))),
    "an error of words": lambda: text_cause("invalid connection " * (N // 19)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_in_time(name: str) -> None:
    began_s = time.process_time()
    CASES[name]()
    assert time.process_time() - began_s < 3


def test_the_error_of_the_api_is_found() -> None:
    said = 'x [API Error: {"error": {"code": 401}}] y'
    assert gemini._api_error(said) == '{"error": {"code": 401}}'
    assert gemini._api_error("[API Error: x") is None
    assert gemini._thrown_error('a\nApiError: {"a": {}} b\n}') == '{"a": {}}'
    assert gemini._thrown_error("ApiError: {\n}") is None


def lines(*events: dict[str, Any]) -> list[RawLine]:
    return [RawLine(0, msgspec.json.encode(event)) for event in events]


TEXT = "a" * 900
FLOODS: dict[str, tuple[Callable[[], EventReader], dict[str, Any], dict[str, Any]]] = {
    "claude": (
        ClaudeTurn,
        {"type": "assistant", "message": {"content": TEXT}},
        {"type": "result", "result": "done"},
    ),
    "codex": (
        CodexTurn,
        {"type": "item.completed", "item": {"type": "agent_message", "id": "i", "text": TEXT}},
        {"type": "turn.completed"},
    ),
    "gemini": (
        GeminiTurn,
        {"type": "message", "role": "assistant", "content": TEXT},
        {"type": "result", "status": "success"},
    ),
    "opencode": (
        OpenCodeTurn,
        {"type": "text", "part": {"type": "text", "id": "t", "text": TEXT}},
        {"type": "step_finish", "part": {"type": "step-finish", "reason": "stop"}},
    ),
    "acp": (
        lambda: AcpReader(SessionRequest(cwd="/x")),
        {
            "method": "session/update",
            "params": {
                "update": {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": TEXT},
                }
            },
        },
        {"id": 1000, "result": {"stopReason": "end_turn"}},
    ),
}


@pytest.mark.parametrize("name", [*FLOODS, "declared"])
def test_what_an_agent_prints_becomes_steps_only_up_to_a_limit(
    name: str, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its turn is read all the same; a flood of ends is not."""
    monkeypatch.setattr(reading, "MOST_READ", 10_000)
    monkeypatch.setattr(reading, "_MOST_ENDS", 5_000)
    declared = {"type": "message", "text": TEXT}, {"type": "result", "result": "done"}
    make, event, end = FLOODS.get(name, (DeclaredAdapter(schema).watch, *declared))
    reader: Any = make()
    for line in lines(*[event] * 50):
        reader.feed(line)
    assert not reader.ended
    assert 5 < 50 - reader.events.oversized < 10
    assert reader.events.left_out == reader.events.oversized
    assert len(msgspec.json.encode(reader.steps if name != "gemini" else reader.output())) < 10_000
    (line,) = lines(end)
    reader.feed(line)
    assert reader.ended
    left_out = reader.events.left_out
    for _ in range(100):
        reader.feed(line)
    assert reader.events.left_out > left_out or name == "declared"  # nothing comes after its end
    assert reader.n_read <= 15_000


def test_the_turns_of_a_trial_share_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_READ", 10_000)
    monkeypatch.setattr(text, "MOST_READ", 10_000)
    event = {"type": "assistant", "message": {"content": TEXT}}
    flood = lines(*[event] * 6, {"type": "result", "result": "done"})
    turns = tuple(Turn("x", TurnEnd(), lambda: flood) for _ in range(3))
    recording = Recording(0, 1, turns)
    trial = extract(Prompt(id="p", input=["x"] * 3), recording, ClaudeAdapter())
    assert trial.events.left_out == trial.events.oversized > 6
    assert len(msgspec.json.encode(trial.steps)) < 12_000
    assert not trial.failure
    assert trial.output == "done"
    assert "in the raw stream only" in trial.warnings[0]
    plain = text.read_text(recording, "x")
    assert sum(map(len, plain.outputs)) == 10_000
    assert plain.failure.cause.measures_agent


def test_many_calls_are_matched_in_time() -> None:
    """Each result once looked at all calls before it, or repeated all tasks."""
    began_s = time.process_time()
    codex, gemini_turn, claude = CodexTurn(), GeminiTurn(), ClaudeTurn()
    steps = StepBuilder()
    for n in range(20_000):
        item = {"type": "command_execution", "id": f"i{n}", "command": "x"}
        codex.feed(*lines({"type": "item.started", "item": item}))
        gemini_turn.feed(*lines({"type": "tool_use", "tool_id": str(n), "tool_name": "x"}))
        task = {"type": "tool_use", "name": "TaskCreate", "id": str(n), "input": {"subject": "x"}}
        claude.feed(*lines({"type": "assistant", "message": {"content": [task]}}))
        steps.tool(0, status="pending", name="x")
    for n in range(20_000):
        gemini_turn.feed(*lines({"type": "tool_result", "tool_id": "unknown"}))
        ended = {"type": "tool_result", "tool_use_id": str(n), "content": "x"}
        claude.feed(*lines({"type": "user", "message": {"content": [ended]}}))
        steps.tool(0, status="completed", name="y", call_id=None)
    assert len(codex.items) == 20_000
    plans = [step for step in claude.steps if isinstance(step, Plan)]
    assert sum(len(plan.entries) for plan in plans) <= 200_000
    assert time.process_time() - began_s < 10
