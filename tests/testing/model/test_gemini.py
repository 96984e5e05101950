"""Gemini generateContent as documented: parts, thoughts, finish, usage; JSON that a schema asks."""

import json

from assay.testing.model import ScriptedModel

STEP = {
    "thinking": "**Plan** I think.",
    "text": "I say.",
    "calls": [{"tool": "shell", "command": "ls"}],
    "usage": {"input": 5, "output": 6, "cacheRead": 7, "cacheWrite": 8, "reasoning": 9},
}


def test_stream_says_one_part_in_each_event(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        events = client(model, "gemini").ask().events
    candidates = [event["candidates"][0] for event in events]
    parts = [candidate["content"]["parts"][0] for candidate in candidates]
    assert parts[0] == {"text": "**Plan** I think.", "thought": True}
    assert "".join(part["text"] for part in parts[1:3]) == "I say."
    call = {"id": "call_main_00_00", "name": "run_shell_command", "args": {"command": "ls"}}
    assert parts[3]["functionCall"] == call
    assert "thoughtSignature" in parts[3]
    assert ["finishReason" in candidate for candidate in candidates] == [False] * 3 + [True]
    assert candidates[-1]["finishReason"] == "STOP"
    assert events[-1]["modelVersion"] == "test-model"
    assert events[-1]["usageMetadata"] == {
        "promptTokenCount": 20,
        "candidatesTokenCount": 6,
        "totalTokenCount": 35,
        "cachedContentTokenCount": 7,
        "thoughtsTokenCount": 9,
    }


def test_whole_answer_has_whole_texts(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model, "gemini").ask(stream=False).json
    parts = got["candidates"][0]["content"]["parts"]
    assert [part.get("text") for part in parts] == ["**Plan** I think.", "I say.", None]


def test_stream_without_sse_is_a_json_list(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        body = {
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}],
        }
        got = client(model).post("/v1beta/models/m:streamGenerateContent", body)
    assert len(got.json) == 4


def test_empty_and_malformed_answers(client) -> None:
    broken = {"calls": [{"name": "x", "rawArguments": "{"}]}
    for step, finish in (({}, "STOP"), ({"stop": "length"}, "MAX_TOKENS"),
                         ({"stop": "refusal"}, "SAFETY"), (broken, "MALFORMED_FUNCTION_CALL"),
                         ({"stop": "RECITATION"}, "RECITATION")):  # fmt: skip
        with ScriptedModel({"steps": [step]}) as model:
            (event,) = client(model, "gemini").ask().events
        assert event["candidates"][0]["finishReason"] == finish
        assert event["candidates"][0]["content"]["parts"] == []


def test_side_request_with_a_schema_gets_json(client) -> None:
    schema = {
        "type": "object",
        "properties": {"why": {"type": "string"}, "model": {"enum": ["flash", "pro"]}},
        "required": ["why", "model"],
    }
    with ScriptedModel({"steps": [STEP]}) as model:
        config = {"generationConfig": {"responseJsonSchema": schema}}
        got = client(model, "gemini").ask(stream=False, tools=False, **config).json
    text = got["candidates"][0]["content"]["parts"][0]["text"]
    assert json.loads(text) == {"why": "scripted", "model": "flash"}
    assert model.requests[0].served == "side"


def test_count_tokens(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model).post("/v1beta/models/m:countTokens", {"contents": []})
    assert got.json["totalTokens"] >= 1
