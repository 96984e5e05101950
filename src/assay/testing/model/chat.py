"""OpenAI chat completions: read a request, write an answer or an error."""

from collections.abc import Iterator

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
    error_message,
    items_of,
    texts_of,
)
from assay.testing.model.script import Fault

_TYPES_AND_CODES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", "server_is_overloaded"),
}


def error_body(fault: Fault) -> JsonObject:
    """Return the body of an HTTP error response."""
    kind, code = _TYPES_AND_CODES.get(fault.status or 0, ("server_error", "server_error"))
    if fault.type:
        kind = code = fault.type
    return {"error": {"message": error_message(fault), "type": kind, "param": None, "code": code}}


_STOP = {"end": "stop", "tool": "tool_calls", "length": "length", "refusal": "content_filter"}


def read(request: ModelRequest) -> Conversation:
    """Read a chat completions request."""
    body = request.body
    answer_format = body.get("response_format") or {}
    return Conversation(
        provider="chat",
        model=str(body.get("model") or "scripted-model"),
        stream=bool(body.get("stream")),
        items=tuple(_items(body)),
        tools=tuple(_tools(body)),
        answer_schema=(answer_format.get("json_schema") or {}).get("schema"),
        wants_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def events(reply: Reply) -> list[Event]:
    """Return the events that stream an answer."""
    out: list[Event] = [_chunk(reply, {"role": "assistant", "content": ""})]
    out += [_chunk(reply, {"reasoning_content": piece}) for piece in reply.thinking]
    out += [_chunk(reply, {"content": piece}) for piece in reply.text]
    for index, call in enumerate(reply.calls):
        head = {"index": index, **_call(call, "")}
        out.append(_chunk(reply, {"tool_calls": [head]}))
        for piece in cut(call.raw, reply.chunks):
            part = {"index": index, "function": {"arguments": piece}}
            out.append(_chunk(reply, {"tool_calls": [part]}))
    out.append(_chunk(reply, {}, _STOP.get(reply.stop, reply.stop)))
    if reply.wants_usage:  # only on request (stream_options), in a last chunk without choices
        head = {**_head(reply, "chat.completion.chunk"), "choices": []}
        out.append({**head, "usage": _usage(reply)})
    out.append("[DONE]")
    return out


def whole(reply: Reply) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": "".join(reply.text) or None}
    message["refusal"] = None
    if reply.thinking:
        message["reasoning_content"] = "".join(reply.thinking)
    if reply.calls:
        message["tool_calls"] = [_call(call, call.raw) for call in reply.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _STOP.get(reply.stop, reply.stop),
    }
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


WIRE = Wire("chat", read, events, whole, error_body, error_body)


def _items(body: JsonObject) -> Iterator[Item]:
    for message in body.get("messages") or []:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            yield Item("assistant", "\n".join(texts_of(content)))
        elif role in ("tool", "function"):
            yield from items_of("tool", ["\n".join(texts_of(content))])
        else:
            yield from items_of("user" if role == "user" else "system", texts_of(content))


def _tools(body: JsonObject) -> Iterator[OfferedTool]:
    for tool in body.get("tools") or []:
        function = tool.get("function") or {}
        if function.get("name"):
            yield OfferedTool(function["name"], function.get("parameters") or {})


def _head(reply: Reply, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl_{reply.label}",
        "object": kind,
        "created": FIXED_TIME_S,
        "model": reply.model,
    }


def _chunk(reply: Reply, delta: JsonObject, finish: str | None = None) -> JsonObject:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_head(reply, "chat.completion.chunk"), "choices": [choice]}


def _call(call: ReplyCall, arguments: str) -> JsonObject:
    function = {"name": call.use.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _usage(reply: Reply) -> JsonObject:
    usage = reply.usage
    n_prompt = usage.input + usage.cache_read + usage.cache_write
    n_completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
