"""What a schema says about starting an agent and reading its lines."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from assay.adapters.declared import DeclaredAdapter, DeclaredTurn
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


PASSTHROUGH = {"outputMode": "passthrough", "outputEvents": []}


def passed(read: Callable, *events: Any, **types: str) -> list[Any]:
    """Read events of an agent in passthrough mode; give its tool calls without their times."""
    type_map = {"typeValues": {"tool_use": "tool_call", "tool_result": "tool_call"} | types}
    steps = read(*events, **PASSTHROUGH, passthroughTypeMap=type_map).steps
    known = [msgspec.to_builtins(step) for step in steps]
    clock = ("timestamp", "duration", "type")
    return [{k: v for k, v in step.items() if k not in clock} for step in known]


CALL = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}}
DONE = {"name": "Read", "input": {"path": "a"}, "status": "completed", "output": "text"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # By the id of the call, which a result gives under another name.
        ([CALL, {"type": "tool_result", "tool_use_id": "c1", "content": "text"}], {"callId": "c1"}),
        ([CALL, {"type": "tool_result", "toolCallId": "c1", "output": "text"}], {"callId": "c1"}),
        # In the seed's own form, where only the name joins them.
        (
            [
                {"type": "tool_call", "name": "Read", "status": "pending", "input": {"path": "a"}},
                {"type": "tool_call", "name": "Read", "status": "in_progress"},
                {"type": "tool_call", "name": "Read", "status": "completed", "output": "text"},
            ],
            {},
        ),
        # Neither: the result of the only open call.
        (
            [
                {"type": "tool_use", "name": "Read", "input": {"path": "a"}},
                {"type": "tool_result", "content": "text"},
            ],
            {},
        ),
        # Each event has an id of its own.
        (
            [
                {"type": "tool_use", "id": "e1", "name": "Read", "args": {"path": "a"}},
                {"type": "tool_result", "id": "e2", "name": "Read", "result": "text"},
            ],
            {"callId": "e1"},
        ),
        # One event holds it all.
        ([{"type": "tool_call", "name": "Read", "input": {"path": "a"}, "output": "text"}], {}),
    ],
)
def test_passthrough_folds_a_result_into_its_call(
    read: Callable, events: list[Any], expected: dict[str, Any]
) -> None:
    assert passed(read, *events) == [DONE | expected]


def test_passthrough_keeps_what_failed_and_what_runs_side_by_side(read: Callable) -> None:
    second = CALL | {"id": "c2", "input": {"path": "b"}}
    steps = passed(
        read,
        CALL,
        second,
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c1", "output": "yes", "exitCode": 0},
    )
    assert [(s["callId"], s["status"], s["output"]) for s in steps] == [
        ("c1", "completed", "yes"),
        ("c2", "failed", "no"),
    ]
    assert steps[0]["exitCode"] == 0


def test_two_calls_of_one_name_in_passthrough_stay_two(read: Callable) -> None:
    events = [
        {"type": "tool_call", "name": "Read", "status": status, "input": {"path": path}}
        for path in "ab"
        for status in ("pending", "completed")
    ]
    steps = passed(read, *events)
    assert [(s["input"]["path"], s["status"]) for s in steps] == [
        ("a", "completed"),
        ("b", "completed"),
    ]


def test_a_result_without_name_and_id_ends_the_oldest_call(read: Callable) -> None:
    seen = read(
        {"type": "tool_call", "name": "a", "status": "pending"},
        {"type": "tool_call", "status": "completed", "output": "x"},
    )
    assert [(s.name, s.status, s.output) for s in seen.steps] == [("a", "completed", "x")]
