"""The viewer shows what the agent of a step asked its model, from the tape beside the rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.test_serve import ask  # noqa: F401 - a fixture

from assay.records.answers import Call, Said
from assay.records.tape import Exchange, Lane, TapeWriter
from assay.viewer.requests import requests_of_steps

TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]


def said(text: str, *calls: str) -> str:
    made = [{"id": f"call_{name}", "function": {"name": name}} for name in calls]
    return json.dumps({"choices": [{"message": {"content": text, "tool_calls": made}}]})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A row of a trial with two requests, beside its tape."""
    with TapeWriter(tmp_path / "a.tape") as tape:
        lane = tape.add_lane(Lane(lane=0, prompt="p")).lane
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
        for number, answer in enumerate((said("I look.", "bash"), said("Done.")), 1):
            body = {"model": "m", "system": "Be brief.", "tools": TOOLS, "messages": messages}
            tape.add(
                Exchange(lane=lane, number=number, method="POST", path="/v1", request=body,
                         status=200, answer=[(5, answer)], model="m", turn=1)
            )  # fmt: skip
    steps = [
        {"type": "message", "content": "I look.", "timestamp": 1},
        {"type": "tool_call", "name": "bash", "callId": "call_bash", "status": "completed",
         "timestamp": 2},
        {"type": "message", "content": "Done.", "timestamp": 3},
    ]  # fmt: skip
    row = {"id": "p", "input": "Go.", "output": "Done.", "trajectory": steps, "metadata": {}}
    row |= {"timing": {"start": 0, "end": 9, "total": 9}, "toolErrors": False}
    rows = [row | {"wire": {"requests": 2, "tape": "a.tape", "lane": lane}}]
    for number, (name, lane) in enumerate((("gone.tape", 1), ("a.tape", 2), ("../a.tape", 1))):
        rows.append(row | {"id": f"q{number}", "wire": {"tape": name, "lane": lane}})
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "run.jsonl"


def test_requests_are_given_on_demand(
    ask: Callable[..., Any],  # noqa: F811
    results: Path,
) -> None:
    get = ask(results)
    found = get("api/requests?run=run&id=p&n=1")[1]
    assert [(one["model"], one["calls"]) for one in found["requests"]] == [
        ("m", ["bash"]),
        ("m", []),
    ]
    assert found["steps"] == [1, 1, 2]
    whole = get("api/request?run=run&id=p&n=1&request=2")[1]
    assert whole["system"] == "Be brief."
    assert whole["tools"] == TOOLS
    assert whole["messages"][1]["content"] == "Go."
    assert whole["rest"] == {"model": "m"}
    assert get("api/request?run=run&id=p&n=1&request=9")[1] is None
    assert get("api/request?run=run&id=p&n=1&request=x")[0] == 400
    assert "is not in the folder of the results" in get("api/requests?run=run&id=q0&n=1")[1]["why"]
    # A tape of another trial is not shown, nor one outside of the folder.
    assert "is not the one of this trial" in get("api/requests?run=run&id=q1&n=1")[1]["why"]
    assert "why" in get("api/requests?run=run&id=q2&n=1")[1]


def test_steps_are_found_by_call_by_text_or_by_their_place() -> None:
    answers = [
        (1, Said(text="I look.", calls=[Call(id="a", name="bash")])),
        (2, Said(calls=[Call(name="edit"), Call(name="edit")])),
        (3, Said(calls=[Call(name="edit")])),
        (4, Said(text="All is done.")),
    ]
    steps = [
        {"type": "thought", "content": "not in any answer"},
        {"type": "tool_call", "callId": "a", "name": "bash"},
        *[{"type": "tool_call", "callId": "other", "name": "edit"}] * 3,
        {"type": "message", "content": " All is done."},
        {"type": "message", "content": "unknown"},
        "no step",
    ]
    assert requests_of_steps(steps, answers) == [1, 1, 2, 2, 3, 4, None, None]


@pytest.mark.browser
def test_a_reader_unfolds_the_request_of_a_step(
    view: Callable[..., str], browser: Any, results: Path
) -> None:
    browser.draw(f"{view(results)}#/run/run/prompt/p/trial/1")
    browser.console()  # a page of an earlier test may have lost its server
    browser.see("h2", "Steps (3)")
    browser.click("#step-2 summary", "Request to the model")
    browser.click("#step-2 summary", "System prompt")
    browser.see("#step-2 pre", "Be brief.")
    browser.click("#step-2 summary", "Tools offered (1)")
    browser.see("#step-2 summary", "bash")
    browser.click("summary", "Requests to models")
    browser.see("summary", "1 (turn 1) m · 5 ms · calls bash")
    assert browser.console() == []
