"""OpenAI Responses: read a request, write an answer with its streamed items."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay.testing.model.chat import error_body
from assay.testing.model.exchange import (
    FIXED_TIME_S,
    Conversation,
    Event,
    Item,
    JsonObject,
    ModelRequest,
    OfferedTool,
    Reply,
    ReplyCall,
    Wire,
    cut,
    items_of,
    texts_of,
)
from assay.testing.model.script import Fault


@dataclass(frozen=True)
class StreamedItem:
    """One output item: its final form, and the events that stream it."""

    done: JsonObject
    events: list[JsonObject]


def streamed_items(reply: Reply) -> list[StreamedItem]:
    """Make the items of an answer, in order: reasoning, message, calls."""
    items = []
    if reply.thinking:
        items.append(_reasoning(reply))
    if reply.text:
        items.append(_message(reply))
    for number, call in enumerate(reply.calls):
        make = _function_call if call.use.input is None else _custom_call
        items.append(make(call, f"{reply.label}_{number:02d}", reply.chunks))
    return items


def _reasoning(reply: Reply) -> StreamedItem:
    item_id, text = f"rs_{reply.label}", "".join(reply.thinking)
    part = {"type": "summary_text", "text": text}
    head: JsonObject = {"id": item_id, "type": "reasoning", "summary": []}
    done = {**head, "summary": [part], "encrypted_content": f"encrypted_{reply.label}"}
    at: JsonObject = {"item_id": item_id, "summary_index": 0}
    name = "response.reasoning_summary"
    deltas = [{"type": f"{name}_text.delta", **at, "delta": piece} for piece in reply.thinking]
    between = [
        {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}},
        *deltas,
        {"type": f"{name}_text.done", **at, "text": text},
        {"type": f"{name}_part.done", **at, "part": part},
    ]
    return _item(head, between, done)


def _message(reply: Reply) -> StreamedItem:
    item_id, text = f"msg_{reply.label}", "".join(reply.text)
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    head: JsonObject = {"id": item_id, "type": "message", "role": "assistant"}
    head |= {"status": "in_progress", "content": []}
    done = {**head, "status": "completed", "content": [part]}
    at: JsonObject = {"item_id": item_id, "content_index": 0}
    deltas = [
        {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        for piece in reply.text
    ]
    between = [
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        *deltas,
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
    ]
    return _item(head, between, done)


def _function_call(call: ReplyCall, label: str, n_pieces: int) -> StreamedItem:
    head: JsonObject = {"id": f"fc_{label}", "type": "function_call", "call_id": call.id}
    head |= {"name": call.use.name, "status": "in_progress", "arguments": ""}
    if call.use.namespace:
        head["namespace"] = call.use.namespace
    done = {**head, "status": "completed", "arguments": call.raw}
    at: JsonObject = {"item_id": head["id"]}
    name = "response.function_call_arguments"
    deltas = [{"type": f"{name}.delta", **at, "delta": p} for p in cut(call.raw, n_pieces)]
    return _item(head, [*deltas, {"type": f"{name}.done", **at, "arguments": call.raw}], done)


def _custom_call(call: ReplyCall, label: str, n_pieces: int) -> StreamedItem:
    text = call.use.input or ""
    head: JsonObject = {"id": f"ctc_{label}", "type": "custom_tool_call", "call_id": call.id}
    head |= {"name": call.use.name, "status": "in_progress", "input": ""}
    done = {**head, "status": "completed", "input": text}
    at: JsonObject = {"item_id": head["id"]}
    name = "response.custom_tool_call_input"
    deltas = [{"type": f"{name}.delta", **at, "delta": piece} for piece in cut(text, n_pieces)]
    return _item(head, [*deltas, {"type": f"{name}.done", **at, "input": text}], done)


def _item(head: JsonObject, between: list[JsonObject], done: JsonObject) -> StreamedItem:
    added = {"type": "response.output_item.added", "item": head}
    ended = {"type": "response.output_item.done", "item": done}
    return StreamedItem(done, [added, *between, ended])


_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


def read(request: ModelRequest) -> Conversation:
    """Read a Responses request."""
    body = request.body
    answer_format = (body.get("text") or {}).get("format") or {}
    return Conversation(
        provider="responses",
        model=str(body.get("model") or "scripted-model"),
        stream=bool(body.get("stream")),
        items=(*items_of("system", texts_of(body.get("instructions"))), *_items(body)),
        tools=tuple(_offered(body)),
        answer_schema=answer_format.get("schema"),
    )


def events(reply: Reply) -> list[Event]:
    """Return the events that stream an answer."""
    blank = _response(reply, "in_progress", [])
    out: list[JsonObject] = [
        {"type": "response.created", "response": blank},
        {"type": "response.in_progress", "response": blank},
    ]
    items = streamed_items(reply)
    for index, item in enumerate(items):
        out.extend({**event, "output_index": index} for event in item.events)
    final = _final(reply, items)
    out.append({"type": f"response.{final['status']}", "response": final})
    return [{**event, "sequence_number": number} for number, event in enumerate(out)]


def whole(reply: Reply) -> JsonObject:
    return _final(reply, streamed_items(reply))


def error_event(fault: Fault) -> Event:
    """Return the event for an error in the middle of a stream."""
    error = error_body(fault)["error"]
    details = {"code": error["code"], "message": error["message"]}
    response = {"id": "resp_error", "object": "response", "status": "failed", "error": details}
    return {"type": "response.failed", "response": response}


WIRE = Wire("responses", read, events, whole, error_body, error_event, named_events=True)


def _items(body: JsonObject) -> Iterator[Item]:
    given = body.get("input")
    if isinstance(given, str):
        yield Item("user", given)
        return
    for item in given or []:
        kind, role = str(item.get("type", "message")), item.get("role")
        if kind == "reasoning" or kind.endswith("_call") or role == "assistant":
            yield Item("assistant", "\n".join(texts_of(item.get("content"))))
        elif kind.endswith("_output"):
            yield from items_of("tool", [_output_text(item.get("output"))])
        elif kind == "message":
            yield from items_of(
                "user" if role == "user" else "system", texts_of(item.get("content"))
            )


def _output_text(output: Any) -> str:
    texts = list(texts_of(output))
    return "\n".join(texts) if texts else json.dumps(output, ensure_ascii=False)


def _offered(body: JsonObject) -> Iterator[OfferedTool]:
    """Read the tools of a request; for some models Codex sends them as an item of the input."""
    yield from _tools(body.get("tools"))
    given = body.get("input")
    for item in given if isinstance(given, list) else []:
        if item.get("type") == "additional_tools":
            yield from _tools(item.get("tools"))


def _tools(tools: Any, namespace: str | None = None) -> Iterator[OfferedTool]:
    for tool in tools or []:
        # Codex groups the tools of an MCP server in a namespace.
        kind, name = tool.get("type"), tool.get("name")
        if kind == "namespace":
            yield from _tools(tool.get("tools"), name)
        elif kind == "custom":
            yield OfferedTool(str(name), custom=True)
        else:
            yield OfferedTool(str(name or kind), tool.get("parameters") or {}, namespace)


def _final(reply: Reply, items: list[StreamedItem]) -> JsonObject:
    output = [item.done for item in items]
    if reply.stop in _INCOMPLETE:
        details = {"reason": _INCOMPLETE[reply.stop]}
        return {**_response(reply, "incomplete", output), "incomplete_details": details}
    if reply.stop not in ("end", "tool"):
        error = {"code": reply.stop, "message": f"scripted failure: {reply.stop}"}
        return {**_response(reply, "failed", output), "error": error}
    return _response(reply, "completed", output)


def _response(reply: Reply, status: str, output: list[JsonObject]) -> JsonObject:
    return {
        "id": f"resp_{reply.label}",
        "object": "response",
        "created_at": FIXED_TIME_S,
        "status": status,
        "model": reply.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None if status == "in_progress" else _usage(reply),
    }


def _usage(reply: Reply) -> JsonObject:
    usage = reply.usage
    # Here input includes cached tokens, and output includes reasoning.
    n_input = usage.input + usage.cache_read + usage.cache_write
    n_output = usage.output + usage.reasoning
    details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    return {
        "input_tokens": n_input,
        "input_tokens_details": details,
        "output_tokens": n_output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": n_input + n_output,
    }
