"""Codex and Gemini CLI: every recording of tests/recordings.tar.xz reads as the specs say."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.adapters.reading import epoch_ms
from assay.pipeline.extract import failure_of
from assay.plugin import Reading
from assay.records.capture import Message, Plan, Thought, ToolCall
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef

TESTS = Path(__file__).parents[1]
EXPECTED = {
    agent: json.loads((TESTS / "recordings" / f"archived-{agent}.json").read_text())
    for agent in ("codex", "gemini")
}
CASES = [(agent, name) for agent, scenarios in EXPECTED.items() for name in scenarios]
SIGNALS = {-15: "SIGTERM", -9: "SIGKILL"}


def load(base: Path, name: str, kept: Path | None) -> Recording:
    """Give a recording, with the agent's session files when a folder for them is given."""
    index = [line.split("\t") for line in (base / "INDEX.tsv").read_text().splitlines()]
    rows = {row[0]: row for row in index}
    whole = base / f"{name}.jsonl"
    paths = [whole] if whole.exists() else sorted(base.glob(f"{name}.[0-9].jsonl"))
    turns = []
    for path in paths:
        code, killed = int(rows[path.stem][1]), bool(rows[path.stem][4])
        end = TurnEnd(exit_code=code, signal=SIGNALS.get(code), timed_out=killed, end_ms=1000)
        turns.append(Turn(text="do the task", end=end, lines=partial(lines_of, path)))
    stderr = paths[-1].with_suffix(".stderr").read_text()[-4096:].strip()
    sessions = [*base.glob(f"sessions/{name}.jsonl"), *base.glob(f"sessions/{name}.rollout-*")]
    if kept is None or not sessions:
        return Recording(start_ms=0, end_ms=1000, turns=tuple(turns), stderr=stderr)
    times: list[float] = []
    for path in sessions:
        shutil.copy(path, kept)
        found = map(epoch_ms, re.findall(r'"timestamp":"([^"]+)"', path.read_text()))
        times += [moment for moment in found if moment is not None]
    return Recording(
        start_ms=round(min(times)) - 100,
        end_ms=round(max(times)) + 100,
        turns=tuple(turns),
        stderr=stderr,
        kept=kept,
    )


def lines_of(path: Path) -> list[RawLine]:
    return [RawLine(n, line) for n, line in enumerate(path.read_bytes().splitlines())]


def read(agent: str, recording: Recording) -> Reading:
    return plugins.adapter(PluginRef(name=agent)).read(recording)


def tools(reading: Reading) -> list[ToolCall]:
    return [step for step in reading.steps if isinstance(step, ToolCall)]


def texts(reading: Reading, kind: type[Message] | type[Thought]) -> list[str]:
    return [step.content for step in reading.steps if isinstance(step, kind)]


@pytest.mark.parametrize(("agent", "name"), CASES)
def test_with_the_session_file(agent: str, name: str, recordings: Path, tmp_path: Path) -> None:
    recording = load(recordings / agent, name, tmp_path)
    reading, wanted = read(agent, recording), EXPECTED[agent][name]
    failure = failure_of(recording, reading)
    assert (failure.cause.value if failure else None) == wanted["cause"]
    assert reading.outputs == wanted["outputs"]
    assert texts(reading, Message) == wanted["messages"]
    assert texts(reading, Thought) == wanted["thoughts"]
    assert sum(isinstance(step, Plan) for step in reading.steps) == wanted["plans"]
    assert [told(step) for step in tools(reading)] == wanted["tools"]
    assert tokens(reading) == wanted["tokens"]
    assert reading.provider_retries == wanted["retries"]
    assert reading.events.unknown == {}
    assert reading.events.unparsed == 0
    length = recording.end_ms - recording.start_ms
    assert all(0 <= step.timestamp <= length for step in reading.steps)


@pytest.mark.parametrize(("agent", "name"), CASES)
def test_the_stream_alone_is_a_sound_record(agent: str, name: str, recordings: Path) -> None:
    recording = load(recordings / agent, name, None)
    reading, wanted = read(agent, recording), EXPECTED[agent][name]
    failure = failure_of(recording, reading)
    assert (failure.cause.value if failure else None) == wanted["cause"]
    assert reading.outputs == wanted["outputs"]
    assert texts(reading, Message) == wanted["messages"]
    assert reading.events.unknown == {}
    shown = {(call[0], call[3]) for call in wanted["tools"]}
    if agent == "gemini":
        assert {(step.name, json.dumps(step.input)[:80]) for step in tools(reading)} <= shown
    assert len(tools(reading)) <= len(wanted["tools"])
    ended = failure is None
    if ended and reading.usage is not None:
        assert tokens(reading) == wanted["tokens"]


@pytest.mark.parametrize(("agent", "name"), CASES)
def test_no_text_is_lost(agent: str, name: str, recordings: Path, tmp_path: Path) -> None:
    recording = load(recordings / agent, name, tmp_path)
    steps = json.dumps([step_texts(step) for step in read(agent, recording).steps])
    for turn in recording.turns:
        for line in turn.lines():
            for text in said(line.text):
                assert json.dumps(text)[1:-1] in steps, text


@pytest.mark.parametrize("agent", EXPECTED)
def test_all_recordings_are_expected(agent: str, recordings: Path) -> None:
    streams = {re.sub(r"(\.\d)?\.jsonl$", "", p.name) for p in (recordings / agent).glob("*.jsonl")}
    assert streams == set(EXPECTED[agent])


def told(step: ToolCall) -> list[Any]:
    code = step.exit_code if isinstance(step.exit_code, int) else None
    output = step.output if isinstance(step.output, str) else ""
    return [step.name, step.status, code, json.dumps(step.input)[:80], output[:40]]


def tokens(reading: Reading) -> list[int | None] | None:
    if reading.usage is None:
        return None
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens")
    found = [getattr(reading.usage, name) for name in names]
    return [n if isinstance(n, int) else None for n in found]


def step_texts(step: Any) -> list[str]:
    names = ("content", "output", "error", "name")
    return [text for name in names if isinstance(text := getattr(step, name, None), str)]


def said(line: bytes) -> list[str]:
    """Give the texts of a stream line, found without any knowledge of the readers."""
    try:
        event = json.loads(line)
    except ValueError:
        return []
    if not isinstance(event, dict):
        return []
    item = event.get("item") or {}
    if event.get("type") == "item.completed":
        return [item[key] for key in ("text", "aggregated_output") if item.get(key)]
    if event.get("role") == "assistant":
        return [event["content"]]
    shown = event.get("output")  # failed calls: the model is told more than is shown
    return [shown] if isinstance(shown, str) and event.get("status") == "success" else []
