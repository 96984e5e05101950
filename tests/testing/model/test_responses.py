"""OpenAI Responses as documented: items, their events, custom tools, namespaces, failures."""

import json

from assay.testing.model import ScriptedModel

STEP = {
    "thinking": "I think.",
    "text": "I say.",
    "calls": [{"tool": "shell", "command": "ls"}, {"name": "apply_patch", "input": "*** Patch"}],
    "usage": {"input": 5, "output": 6, "cacheRead": 7, "cacheWrite": 8, "reasoning": 9},
}


def test_stream_builds_each_item(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        got = client(model, "responses").ask()
    events = got.events
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    done = [e["item"] for e in got.of_type("response.output_item.done")]
    added = [e["item"]["id"] for e in got.of_type("response.output_item.added")]
    assert [item["type"] for item in done] == [
        "reasoning", "message", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert added == [item["id"] for item in done]
    deltas = got.of_type("response.output_text.delta")
    assert "".join(event["delta"] for event in deltas) == "I say."
    arguments = got.of_type("response.function_call_arguments.delta")
    assert json.loads("".join(event["delta"] for event in arguments)) == {"cmd": "ls"}
    final = events[-1]
    assert final["type"] == "response.completed"
    assert final["response"]["output"] == done
    assert [e["output_index"] for e in got.of_type("response.output_item.done")] == [0, 1, 2, 3]


def test_usage_counts_cached_and_reasoning_inside(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        usage = client(model, "responses").ask(stream=False).json["usage"]
    assert usage == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 8},
        "output_tokens": 15,
        "output_tokens_details": {"reasoning_tokens": 9},
        "total_tokens": 35,
    }


def test_whole_and_streamed_say_the_same(client) -> None:
    with ScriptedModel({"steps": [STEP]}) as model:
        streamed = client(model, "responses").ask().events[-1]["response"]
        whole = client(model, "responses").ask(stream=False).json
    assert streamed == whole


def test_ways_to_end(client) -> None:
    for stop, status, field in (
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("refusal", "incomplete", {"reason": "content_filter"}),
        ("context_length_exceeded", "failed", None),
    ):
        with ScriptedModel({"steps": [{"text": "x", "stop": stop}]}) as model:
            last = client(model, "responses").ask().events[-1]
        assert last["type"] == f"response.{status}"
        assert last["response"]["incomplete_details"] == field
        if status == "failed":
            assert last["response"]["error"]["code"] == stop


def test_namespaced_tools_and_paths_without_v1(client) -> None:
    inner = {"type": "function", "name": "add", "parameters": {}}
    body = {"input": "hi", "tools": [{"type": "namespace", "name": "mcp__demo", "tools": [inner]}]}
    call = {"tool": "mcp", "server": "demo", "name": "add", "arguments": {"a": 1}}
    with ScriptedModel({"steps": [{"calls": [call]}]}) as model:
        got = client(model, "responses").post("/responses", body)
    (item,) = got.json["output"]
    assert (item["namespace"], item["name"]) == ("mcp__demo", "add")


def test_tools_that_come_as_an_item_of_the_input(client) -> None:
    """As Codex sends them for its default model since 0.147."""
    shell = {"type": "function", "name": "exec_command", "parameters": {}}
    inner = {"type": "function", "name": "look", "parameters": {}}
    tools = [shell, {"type": "namespace", "name": "mcp__arc", "tools": [inner]}]
    items = [{"type": "additional_tools", "tools": tools}, {"role": "user", "content": "hi"}]
    call = {"tool": "mcp", "server": "arc", "name": "look"}
    with ScriptedModel({"steps": [{"calls": [call]}]}) as model:
        got = client(model, "responses").post("/v1/responses", {"input": items})
    (item,) = got.json["output"]
    assert (item["namespace"], item["name"]) == ("mcp__arc", "look")
    assert model.requests[0].tools == ("exec_command", "look")


def test_a_script_that_calls_tools_refuses_an_agent_that_offers_none(client) -> None:
    """Otherwise an agent whose tools are not understood would do nothing, and be measured."""
    call = {"tool": "shell", "command": "true"}
    with ScriptedModel({"steps": [{"calls": [call]}]}) as model:
        got = client(model, "responses").post("/v1/responses", {"input": "hi"})
    assert got.status == 418
    assert "offered no tools" in got.text
    with ScriptedModel({"steps": [{"text": "x"}]}) as model:
        assert client(model, "responses").post("/v1/responses", {"input": "hi"}).status == 200


def test_websocket_upgrade_is_sent_away(client) -> None:
    with ScriptedModel({"steps": [{"text": "x"}]}) as model:
        got = client(model).send("GET", "/v1/responses", upgrade="websocket", connection="Upgrade")
    assert got.status == 426
    assert model.requests[0].served == "websocket"
