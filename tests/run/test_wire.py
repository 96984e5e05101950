"""What tapes hold of requests and answers: no secrets, and nothing that differs from run to run."""

import json
from typing import Any

import pytest

from assay.records.answers import tokens_in
from assay.run.secrets import Secrets
from assay.run.wire import (
    Names,
    Pieces,
    TimedPiece,
    asked,
    first_difference,
    for_tape,
    model_in,
)

NONE = Secrets({})
SECRET = "s3cret-value-0123456789"
SECRETS = Secrets({"MY_API_KEY": SECRET})
HERE = Names("/work/here", "/home/one", "/tmp/scratch-1")
THERE = Names("/elsewhere/deep", "/users/two", "/tmp/scratch-2")


def request_of(
    folder: str, home: str, date: str, uid: str, result: str
) -> dict[str, dict[str, Any]]:
    """Give the same request in the four formats."""
    words = f"In {folder}/a.py and {home}/.config on {date}, session {uid}"
    call = {"command": f"cat {folder}/a.py"}
    chat = {"name": "bash", "arguments": json.dumps(call)}
    return {
        "anthropic": {
            "metadata": {"user_id": f"user_{uid}_account_{uid}"},
            "messages": [
                {"role": "user", "content": words},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": f"toolu_{uid}", "name": "Bash", "input": call}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": f"toolu_{uid}", "content": result}]},
            ],
        },
        "chat": {
            "messages": [
                {"role": "user", "content": words},
                {"role": "assistant", "tool_calls": [
                    {"id": f"call_{uid}", "type": "function", "function": chat}]},
                {"role": "tool", "tool_call_id": f"call_{uid}", "content": result},
            ],
        },
        "responses": {
            "prompt_cache_key": uid,
            "input": [
                {"type": "message", "id": f"msg_{uid}", "role": "user", "content": words},
                {"type": "function_call", "call_id": f"call_{uid}", **chat},
                {"type": "function_call_output", "call_id": f"call_{uid}", "output": result},
            ],
        },
        "gemini": {
            "contents": [
                {"role": "user", "parts": [{"text": words}]},
                {"role": "model", "parts": [{"functionCall": {"name": "shell", "args": call}}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": uid, "name": "shell",
                                          "response": {"output": result}}}]},
            ],
        },
    }  # fmt: skip


FIRST = request_of(
    "/work/here", "/home/one", "2026-11-19", "0a1b2c3d-0000-4000-8000-0123456789ab", "at 12:01:02"
)
LATER = request_of(
    "/elsewhere/deep",
    "/users/two",
    "2027-01-02T03:04:05Z",
    "ffffffff-1111-4111-9111-abcdefabcdef",
    "another",
)


@pytest.mark.parametrize("name", FIRST)
def test_the_same_request_in_another_place_and_time_is_the_same(name: str) -> None:
    old = asked(json.dumps(FIRST[name]).encode(), HERE, NONE)
    new = asked(json.dumps(LATER[name]).encode(), THERE, NONE)
    assert old.request == new.request
    assert len(old.results) == len(new.results) == 1
    assert old.results != new.results
    assert "another" not in json.dumps(new.request)


@pytest.mark.parametrize("name", FIRST)
def test_what_the_agent_says_otherwise_is_another_request(name: str) -> None:
    text = json.dumps(FIRST[name])
    old = asked(text.encode(), HERE, NONE).request
    new = asked(text.replace("In /work", "At /work").encode(), HERE, NONE).request
    found = first_difference(old, new)
    assert found is not None
    assert found[0].endswith(("content", "text"))
    assert ("In " in found[1], "At " in found[2]) == (True, True)


@pytest.mark.parametrize(
    "date",
    [
        "2026-11-19", "2026/11/19", "11/19/2026", "Thursday, November 19, 2026",
        "Thu Nov 19 2026", "19 November 2026", "November 2026", "2026-11-19T02:03:04.567Z",
        "Thu Nov 19 02:03:04 UTC 2026", "02:03:04",
    ],
)  # fmt: skip
def test_dates_have_one_name(date: str) -> None:
    body = json.dumps({"system": f"Today is {date}."}).encode()
    assert asked(body, HERE, NONE).request == {"system": "Today is <assay:date>."}


@pytest.mark.parametrize("text", ["version 1.2.3", "/work/heretic", "10/20 points", "1234567890"])
def test_other_words_stay(text: str) -> None:
    assert asked(json.dumps({"a": f"say {text}"}).encode(), HERE, NONE).request == {
        "a": f"say {text}"
    }


def test_no_secret_is_left_of_a_request() -> None:
    body = {"messages": [{"role": "user", "content": f"My key {SECRET} and sk-{'a1' * 12}."}]}
    text = json.dumps(asked(json.dumps(body).encode(), HERE, SECRETS))
    assert SECRET not in text
    assert "a1a1" not in text


def deltas(texts: list[str]) -> list[TimedPiece]:
    made = []
    for number, text in enumerate(texts):
        event = {"type": "content_block_delta", "index": 0, "delta": {"partial_json": text}}
        made.append(TimedPiece(number, f"event: x\ndata: {json.dumps(event)}\n\n"))
    return made


def joined(answer: list[tuple[int, str]]) -> str:
    parts = [json.loads(text.partition("data: ")[2]) for _, text in answer]
    return "".join(part["delta"]["partial_json"] for part in parts)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_paths_and_secrets_that_come_piece_by_piece_are_found(size: int) -> None:
    whole = f'{{"path": "/work/here/a.py", "key": "{SECRET}", "in": "/home/one"}} end'
    answer = for_tape(
        deltas([whole[at : at + size] for at in range(0, len(whole), size)]), HERE, SECRETS, {}
    )
    assert [ms for ms, _ in answer] == [*range(len(answer))]
    kept = joined(answer)
    assert SECRET not in kept
    assert "/work/here" not in kept
    shown = joined([(ms, THERE.show(text)) for ms, text in answer])
    assert '"path": "/elsewhere/deep/a.py"' in shown
    assert '"in": "/users/two"} end' in shown


def test_an_answer_without_anything_to_hide_stays_as_it_came() -> None:
    pieces = [*deltas(["one", "two"]), TimedPiece(3, "data: [DONE]\n\n")]
    assert for_tape(pieces, HERE, SECRETS, {}) == [(one.ms, one.text) for one in pieces]


def test_a_stream_is_cut_into_events_wherever_its_blocks_end() -> None:
    data = 'data: {"a": "ü"}\n\ndata: [DONE]\n\nrest'.encode()
    for size in (1, 3, 1000):
        pieces = Pieces("text/event-stream; charset=utf-8")
        for at in range(0, len(data), size):
            pieces.add(at, data[at : at + size])
        texts = [piece.text for piece in pieces.close(99)]
        assert texts == ['data: {"a": "ü"}\n\n', "data: [DONE]\n\n", "rest"]


@pytest.mark.parametrize(
    ("events", "tokens"),
    [
        ([{"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1,
           "cache_read_input_tokens": 40}}}, {"type": "message_delta",
           "usage": {"output_tokens": 30}}], (45, 30)),
        ([{"type": "response.completed", "response": {"usage": {"input_tokens": 50,
           "output_tokens": 7}}}], (50, 7)),
        ([{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}], (9, 3)),
        ([{"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3,
           "thoughtsTokenCount": 2}}], (9, 5)),
    ],
)  # fmt: skip
def test_tokens_are_those_that_the_provider_counts(
    events: list[Any], tokens: tuple[int, int]
) -> None:
    found = tokens_in((0, f"data: {json.dumps(event)}\n\n") for event in events)
    assert found is not None
    assert (found.input, found.output) == tokens


def test_the_model_stands_in_the_body_or_in_the_path() -> None:
    assert model_in({"model": "m"}, "/v1/messages") == "m"
    assert model_in({}, "/v1beta/models/gemini-2.5-pro:streamGenerateContent") == "gemini-2.5-pro"
