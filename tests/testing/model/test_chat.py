"""OpenAI chat completions as documented: deltas, the usage chunk, [DONE]."""

import json

from assay.testing.model import ScriptedModel

STEP = {
    "thinking": "I think.",
    "text": "I say.",
    "calls": [{"tool": "shell", "command": "ls"}, {"tool": "shell", "command": "pwd"}],
    "usage": {"input": 5, "output": 6, "cacheRead": 7, "reasoning": 9},
}


def test_stream_says_deltas_then_done(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model, "chat").ask(stream_options={"include_usage": True})
    assert got.text.endswith("data: [DONE]\n\n")
    chunks = got.events
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "I think."
    assert "".join(d.get("content", "") for d in deltas) == "I say."
    calls = [call for d in deltas for call in d.get("tool_calls", [])]
    assert [call["id"] for call in calls if "id" in call] == ["call_main_00_00", "call_main_00_01"]
    second = "".join(c["function"]["arguments"] for c in calls if c["index"] == 1)
    assert json.loads(second) == {"command": "pwd"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 15


def test_no_usage_chunk_unless_asked(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model, "chat").ask()
    assert all("usage" not in chunk for chunk in got.events)


def test_whole_completion(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model, "chat").ask(stream=False).json
    message = got["choices"][0]["message"]
    assert message["content"] == "I say."
    assert message["reasoning_content"] == "I think."
    assert message["tool_calls"][0]["function"] == {
        "name": "bash",
        "arguments": '{"command": "ls"}',
    }
    assert got["choices"][0]["finish_reason"] == "tool_calls"
    assert got["usage"]["prompt_tokens"] == 12
    assert got["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}
    assert got["usage"]["total_tokens"] == 27


def test_broken_arguments_go_out_as_they_are(client) -> None:
    call = {"name": "bash", "rawArguments": '{"command": '}
    with ScriptedModel({"steps": [{"calls": [call]}]}) as model:
        got = client(model, "chat").ask(stream=False).json
    function = got["choices"][0]["message"]["tool_calls"][0]["function"]
    assert function["arguments"] == '{"command": '
