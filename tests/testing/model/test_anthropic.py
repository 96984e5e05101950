"""Anthropic Messages as documented: events in order, blocks, usage, errors."""

import json

from assay.testing.model import ScriptedModel

STEP = {
    "thinking": "I think.",
    "text": "I say.",
    "calls": [{"tool": "shell", "command": "ls"}],
    "usage": {"input": 5, "output": 6, "cacheRead": 7, "cacheWrite": 8, "reasoning": 9},
}


def test_stream_has_the_documented_order_of_events(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model).ask()
    kinds = [event["type"] for event in got.events]
    block = ["content_block_start", *["content_block_delta"] * 2, "content_block_stop"]
    thinking = block[:3] + block[2:]
    assert kinds == [
        "message_start", "ping", *thinking, *block, *block, "message_delta", "message_stop",
    ]  # fmt: skip
    names = [line[7:] for line in got.text.splitlines() if line.startswith("event: ")]
    assert names == kinds


def test_stream_says_blocks_and_usage(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model).ask()
    starts = [event["content_block"] for event in got.of_type("content_block_start")]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "toolu_main_00_00", "name": "Bash", "input": {}},
    ]
    deltas = [event["delta"] for event in got.of_type("content_block_delta")]
    assert "".join(d.get("thinking", "") for d in deltas) == "I think."
    assert [d["type"] for d in deltas if "signature" in d] == ["signature_delta"]
    assert json.loads("".join(d.get("partial_json", "") for d in deltas)) == {"command": "ls"}
    (start,) = got.of_type("message_start")
    assert start["message"]["usage"]["input_tokens"] == 5
    assert start["message"]["stop_reason"] is None
    (end,) = got.of_type("message_delta")
    assert end["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 15
    assert end["usage"]["cache_read_input_tokens"] == 7
    assert end["usage"]["cache_creation_input_tokens"] == 8


def test_whole_message(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        message = client(model).ask(stream=False).json
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][2]["input"] == {"command": "ls"}
    assert message["role"] == "assistant"
    assert message["model"] == "test-model"
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens"] == 15


def test_stop_words(client) -> None:
    words = {"end": "end_turn", "length": "max_tokens", "refusal": "refusal", "pause_turn": None}
    for word, said in words.items():
        with ScriptedModel({"steps": [{"text": "x", "stop": word}]}) as model:
            assert client(model).ask(stream=False).json["stop_reason"] == (said or word)


def test_reminders_are_not_the_users_words(client) -> None:
    body = {
        "model": "m",
        "tools": [{"name": "Bash"}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nnoise\n</system-reminder>"},
                {"type": "text", "text": "real prompt"},
            ]},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
                {"type": "text", "text": "out\n<system-reminder>left</system-reminder>"}]}]},
        ],
    }  # fmt: skip
    with ScriptedModel({"steps": [{}, {"text": "{{last_user}}|{{last_tool_result}}"}]}) as model:
        got = client(model).post("/v1/messages?beta=true", body)
    assert got.json["content"][0]["text"] == "real prompt|out"


def test_count_tokens_and_probes_use_up_no_step(client) -> None:
    with ScriptedModel({"select": "counter", "steps": [{"text": "first"}]}) as model:
        one = client(model)
        assert one.post("/v1/messages/count_tokens", {"messages": []}).json["input_tokens"] > 0
        assert one.send("HEAD", "/").status == 200
        assert one.send("GET", "/api/hello").status == 200
        listed = one.send("GET", "/v1/models").json["data"][0]
        kinds = {"object": "model", "type": "model", "created": 0}
        assert listed == {"id": "scripted-model", **kinds}
        assert one.ask(stream=False).json["content"][0]["text"] == "first"
    assert [r.served for r in model.requests] == [
        "count_tokens", "probe", "probe", "models", "step",
    ]  # fmt: skip
