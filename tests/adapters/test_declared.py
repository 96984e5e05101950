"""What a schema says about starting an agent and reading its lines."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.adapters.declared import DeclaredAdapter
from assay.adapters.declared.reader import DeclaredTurn
from assay.plugin import Ask
from assay.records.recording import RawLine


@pytest.fixture
def read(schema: dict[str, Any]) -> Callable[..., DeclaredTurn]:
    """Read events by the schema with changes."""

    def reader(*events: Any, **changes: Any) -> DeclaredTurn:
        watch = DeclaredAdapter(schema | changes).watch()
        for event in events:
            watch.feed(RawLine(0, json.dumps(event).encode()))
        assert isinstance(watch, DeclaredTurn)
        return watch

    return reader


def event(match: tuple[str, str], emit_as: str, **extract: str) -> dict[str, Any]:
    path, value = match
    return {"match": {"path": path, "value": value}, "emitAs": emit_as, "extract": extract}


def test_an_empty_path_finds_nothing(read: Callable) -> None:
    result = {"matchPath": "$.type", "matchValue": "result", "contentPath": ""}
    events = [event(("$.type", "message"), "message", content="$.text", title="")]
    seen = read(
        {"type": "message", "text": "m"}, {"type": "result"}, result=result, outputEvents=events
    )
    assert (seen.ended, seen.output()) == (True, "m")
    never = {"matchPath": "", "matchValue": "", "contentPath": ""}
    assert not read({"type": "result"}, result=never).ended


def test_a_literal_matches_every_event(read: Callable) -> None:
    events = [event(("'x'", "x"), "message", content="$.text")]
    seen = read({"type": "odd", "text": "m"}, outputEvents=events)
    assert [step.content for step in seen.steps] == ["m"]
    other = [event(("'x'", "y"), "message", content="$.text")]
    assert read({"type": "odd", "text": "m"}, outputEvents=other).steps == []


def test_empty_messages_are_no_part_of_the_answer(read: Callable) -> None:
    seen = read({"type": "message"}, *({"type": "message", "text": t} for t in ("a", "", "b")))
    assert [step.content for step in seen.steps] == ["", "a", "", "b"]
    assert seen.output() == "a\nb"


def test_an_empty_status_is_a_status(read: Callable) -> None:
    seen = read({"type": "tool_call", "name": "a", "status": ""}, {"type": "tool_call"})
    assert [step.status for step in seen.steps] == ["", "pending"]


def test_an_empty_template_tells_nothing(schema: dict[str, Any]) -> None:
    adapter = DeclaredAdapter(schema | {"sessionMode": "iterative", "historyTemplate": ""})
    ask = Ask(text="two", cwd="/", history=(("one", "answer"),))
    assert adapter.command(ask).argv[-1] == "\n\nUser: two"
