"""Whatever stands in a stream or a session file, reading it never breaks."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay import plugins
from assay.adapters.acp import AcpAdapter
from assay.adapters.declared import DeclaredAdapter
from assay.plugin import Reading
from assay.records.capture import AgentInfo, AnyStep, Failure, Usage
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef
from assay.testing.conformance import load_recording

RECORDINGS = Path(__file__).parents[1] / "recordings"
FOLDERS = sorted(
    path.parent
    for agent in ("claude", "codex", "gemini", "opencode")
    for path in RECORDINGS.glob(f"{agent}-*/*/end.json")
)
JUNK: list[Any] = [
    None,
    True,
    -1,
    1.5,
    1e300,
    10**30,
    10**400,
    "",
    "ünï\ud83c",
    [],
    [None],
    [[]],
    {},
    {"x": None},
    "x" * 99,
]


def damaged(value: Any, dice: random.Random) -> Any:
    """Replace some part of a value by something that does not belong there."""
    if dice.random() < 0.06:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {k: damaged(v, dice) for k, v in value.items() if dice.random() > 0.03}
    if isinstance(value, list):
        return [damaged(entry, dice) for entry in value]
    return value


def damaged_line(line: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.05:
        return line[: dice.randrange(len(line) + 1)]
    return json.dumps(damaged(json.loads(line), dice)).encode("utf-8", "surrogatepass")


def check(reading: Reading) -> None:
    """A row with a field of another type could never be read again."""
    for value, kind in (
        (reading.steps, list[AnyStep]),
        (reading.usage, Usage | None),
        (reading.agent, AgentInfo | None),
        (reading.failure, Failure | None),
        (reading.session_id, str | None),
        (reading.outputs, list[str]),
    ):
        assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == value


def same(lines: list[RawLine]) -> list[RawLine]:
    return lines


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_damaged_recordings_are_read(folder: Path, tmp_path: Path) -> None:
    agent = folder.parent.name.partition("-")[0]
    adapter = plugins.adapter(PluginRef(name=agent, options={"max_turns": 3}))
    whole = load_recording(folder)
    for seed in range(40):
        dice = random.Random(seed)
        kept = tmp_path / str(seed)
        kept.mkdir()
        for path in sorted(folder.glob("files/*")):
            lines = [damaged_line(line, dice) for line in path.read_bytes().splitlines()]
            (kept / path.name).write_bytes(b"\n".join(lines))
        turns = []
        for turn in whole.turns:
            lines = [RawLine(t, damaged_line(text, dice)) for t, text, _ in turn.lines()]
            turns.append(Turn(text="", end=TurnEnd(exit_code=0), lines=partial(same, lines)))
        made = Recording(
            start_ms=whole.start_ms, end_ms=whole.end_ms, turns=tuple(turns), kept=kept
        )
        reading = adapter.read(made)
        assert len(reading.outputs) == len(turns)
        check(reading)
        for turn in made.turns:
            watch = adapter.watch()
            for line in turn.lines():
                watch.feed(line)
            assert isinstance(watch.output(), str)


def update(**fields: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": "s", "update": fields}}


TEXT = {"type": "text", "text": "hi"}
CALL = {"toolCallId": "c", "title": "t", "kind": "execute", "status": "pending", "rawInput": {}}
NUMBERS = {"inputTokens": 1, "outputTokens": 2, "cachedReadTokens": 1}
ACP = [
    {"id": 1, "result": {"protocolVersion": 1, "agentInfo": {"name": "a", "version": "1"}}},
    {"id": 2, "result": {"sessionId": "s", "models": {"currentModelId": "m"}}},
    update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m"),
    update(sessionUpdate="tool_call", _meta={"v": {"toolName": "Bash"}}, **CALL),
    update(
        sessionUpdate="tool_call_update",
        toolCallId="c",
        status="completed",
        content=[{"type": "content", "content": TEXT}],
        rawOutput={"exitCode": 0},
    ),
    update(sessionUpdate="plan", entries=[{"content": "x", "status": "pending"}]),
    update(sessionUpdate="usage_update", cost={"currency": "USD", "amount": 0.1}),
    {"id": 9, "method": "session/request_permission", "params": {"toolCall": CALL}},
    {"id": 100, "result": {"stopReason": "end_turn", "usage": NUMBERS, "_meta": {"assay": {}}}},
    {"id": 100, "error": {"code": -32000, "message": "m", "data": {"cause": "auth"}}},
]
SHOWN = [{"type": "terminal", "terminalId": "t"}]
DRAFT = [
    {"id": 1, "result": {"protocolVersion": 2, "info": {"name": "a", "version": "1"}}},
    {"id": 2, "result": {"sessionId": "s", "configOptions": [{"configId": "model"}]}},
    {"id": 10, "result": {"messageId": "u"}},
    update(sessionUpdate="state_update", state="running"),
    update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m"),
    update(sessionUpdate="agent_message", content=[TEXT], messageId="m"),
    update(sessionUpdate="tool_call_update", content=SHOWN, **CALL),
    update(sessionUpdate="terminal_output_chunk", terminalId="t", data="b25l"),
    update(sessionUpdate="terminal_update", terminalId="t", exitStatus={"exitCode": 1}),
    update(sessionUpdate="tool_call_content_chunk", toolCallId="c", content=SHOWN[0]),
    {"id": 9, "method": "session/request_permission", "params": {"subject": {"toolCall": CALL}}},
    update(sessionUpdate="state_update", state="idle", stopReason="error", error={"code": 1}),
]
EVENTS = [
    {"type": "message", "text": "a", "parent": "b"},
    {"type": "tool", "name": "n", "status": "completed", "input": {}, "out": "x", "code": 0},
    {"type": "usage", "tokens": 3},
    {"type": "usage", "tokens": 0.5},
    {"type": "result", "text": "r"},
]


@pytest.fixture
def declared(schema: dict[str, Any]) -> DeclaredAdapter:
    tool = {"title": "$.name", "status": "$.status", "output": "$.out", "exitCode": "$.code"}
    events = [
        {
            "match": {"path": "$.type", "value": "message"},
            "emitAs": "message",
            "extract": {"content": "$.text", "parent": "$.parent"},
        },
        {
            "match": {"path": "$.type", "value": "tool"},
            "emitAs": "tool_call",
            "extract": tool,
        },
    ]
    match = {"path": "$.type", "value": "usage"}
    usage = [{"match": match, "inputTokens": "$.tokens"}]
    return DeclaredAdapter(schema | {"outputEvents": events, "usage": usage})


def test_damaged_messages_of_other_agents_are_read(declared: DeclaredAdapter) -> None:
    draft = AcpAdapter(command=["x"], version=2)
    acp = AcpAdapter(command=["x"])
    for adapter, messages in ((acp, ACP), (draft, DRAFT), (draft, ACP), (declared, EVENTS)):
        for seed in range(400):
            dice = random.Random(seed)
            texts = [damaged_line(json.dumps(each).encode(), dice) for each in messages]
            lines = [RawLine(5, text) for text in texts]
            turn = Turn(text="", end=TurnEnd(exit_code=0), lines=partial(same, lines))
            check(adapter.read(Recording(start_ms=0, end_ms=9, turns=(turn,))))
            dialogue = adapter.dialogue("/w")
            for text in texts if dialogue is not None else ():
                dialogue.hear(text)
