"""Anthropic Messages: read a request, write an answer."""

from collections.abc import Iterator
from typing import Any

from assay.testing.model.exchange import (
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
    error_message,
    items_of,
    texts_of,
)
from assay.testing.model.script import Fault

_STOP = {"end": "end_turn", "tool": "tool_use", "length": "max_tokens"}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SIGNATURE = "c2NyaXB0ZWQtc2lnbmF0dXJl"


def read(request: ModelRequest) -> Conversation:
    """Read a Messages request."""
    body = request.body
    output = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return Conversation(
        provider="anthropic",
        model=str(body.get("model") or "scripted-model"),
        stream=bool(body.get("stream")),
        items=(*items_of("system", texts_of(body.get("system"))), *_items(body)),
        tools=tuple(
            OfferedTool(str(tool.get("name")), tool.get("input_schema") or {})
            for tool in body.get("tools") or []
        ),
        answer_schema=output.get("schema"),
    )


def events(reply: Reply) -> list[Event]:
    """Return the events that stream an answer."""
    # The API sends a preliminary count at the start, and the final one in message_delta.
    message = {**_message(reply, []), "stop_reason": None, "usage": _usage(reply, n_output=1)}
    out: list[Event] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, (start, deltas) in enumerate(_streamed_blocks(reply)):
        out.append({"type": "content_block_start", "index": index, "content_block": start})
        out.extend({"type": "content_block_delta", "index": index, "delta": d} for d in deltas)
        out.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": _stop(reply), "stop_sequence": None}
    out.append({"type": "message_delta", "delta": delta, "usage": _usage(reply)})
    out.append({"type": "message_stop"})
    return out


def whole(reply: Reply) -> JsonObject:
    content: list[JsonObject] = []
    if reply.thinking:
        thought = "".join(reply.thinking)
        content.append({"type": "thinking", "thinking": thought, "signature": _SIGNATURE})
    if reply.text:
        content.append({"type": "text", "text": "".join(reply.text)})
    content.extend({**_call_start(call), "input": call.arguments or {}} for call in reply.calls)
    return _message(reply, content)


def error_body(fault: Fault) -> JsonObject:
    """Return the body of an HTTP error response."""
    kind = fault.type or _ERROR_TYPES.get(fault.status or 0, "api_error")
    error = {"type": kind, "message": error_message(fault)}
    return {"type": "error", "error": error, "request_id": "req_scripted"}


def error_event(fault: Fault) -> Event:
    """Return the event for an error in the middle of a stream."""
    return {"type": "error", "error": error_body(fault)["error"]}


WIRE = Wire("anthropic", read, events, whole, error_body, error_event, named_events=True)


def _items(body: JsonObject) -> Iterator[Item]:
    for message in body.get("messages") or []:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            yield Item("assistant", "\n".join(texts_of(content)))
        elif role == "user":
            for part in content if isinstance(content, list) else [content]:
                yield from _user_items(part)
        else:
            yield from items_of("system", texts_of(content))


def _user_items(part: Any) -> Iterator[Item]:
    if isinstance(part, dict) and part.get("type") == "tool_result":
        yield from items_of("tool", ["\n".join(texts_of(part.get("content")))])
    else:
        yield from items_of("user", texts_of(part))


def _streamed_blocks(reply: Reply) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    if reply.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in reply.thinking]
        deltas.append({"type": "signature_delta", "signature": _SIGNATURE})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if reply.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in reply.text],
        )
    for call in reply.calls:
        pieces = cut(call.raw, reply.chunks)
        yield (
            {**_call_start(call), "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
        )


def _call_start(call: ReplyCall) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.use.name}


def _message(reply: Reply, content: list[JsonObject]) -> JsonObject:
    return {
        "id": f"msg_{reply.label}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": _stop(reply),
        "stop_sequence": None,
        "usage": _usage(reply),
    }


def _stop(reply: Reply) -> str:
    return _STOP.get(reply.stop, reply.stop)


def _usage(reply: Reply, n_output: int | None = None) -> JsonObject:
    usage = reply.usage
    # Here input excludes cached tokens, and output includes thinking.
    total = usage.output + usage.reasoning
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": total if n_output is None else n_output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning if n_output is None else 0},
        "service_tier": "standard",
    }
