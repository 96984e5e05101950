"""Gemini generateContent: read a request, write an answer."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from assay.testing.model.exchange import (
    Conversation,
    Event,
    Item,
    JsonObject,
    ModelRequest,
    OfferedTool,
    Reply,
    Wire,
    error_message,
    items_of,
    texts_of,
)
from assay.testing.model.script import Fault

_FINISH = {"end": "STOP", "tool": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_SIGNATURE = "c2NyaXB0ZWQtc2lnbmF0dXJl"


def read(request: ModelRequest) -> Conversation:
    """Read a generateContent request."""
    body = request.body
    system = body.get("systemInstruction") or body.get("system_instruction") or {}
    config = body.get("generationConfig") or {}
    return Conversation(
        provider="gemini",
        model=request.model or "scripted-model",
        stream=bool(request.stream),
        items=(*items_of("system", texts_of(system.get("parts"))), *_items(body)),
        tools=tuple(_tools(body)),
        answer_schema=config.get("responseJsonSchema") or config.get("responseSchema"),
    )


def events(reply: Reply) -> list[Event]:
    """Return the events that stream an answer; the last one has finish reason and usage."""
    parts = _parts(reply)
    return [
        *(_response(reply, [part]) for part in parts[:-1]),
        _response(reply, parts[-1:], last=True),
    ]


def whole(reply: Reply) -> JsonObject:
    joined = replace(reply, thinking=_joined(reply.thinking), text=_joined(reply.text))
    return _response(reply, _parts(joined), last=True)


def error_body(fault: Fault) -> JsonObject:
    """Return the body of an HTTP error response."""
    status = fault.type or _STATUSES.get(fault.status or 0, "INTERNAL")
    return {"error": {"code": fault.status, "message": error_message(fault), "status": status}}


WIRE = Wire("gemini", read, events, whole, error_body, error_body)


def _items(body: JsonObject) -> Iterator[Item]:
    for content in body.get("contents") or []:
        parts = content.get("parts") or []
        if content.get("role") == "model":
            yield Item("assistant", "\n".join(texts_of(parts)))
            continue
        for part in parts:
            if "functionResponse" in part:
                response = part["functionResponse"].get("response") or {}
                yield from items_of("tool", [_result_text(response)])
            else:
                yield from items_of("user", texts_of(part))


def _result_text(response: Any) -> str:
    for key in ("output", "error", "result"):
        if isinstance(response, dict) and isinstance(response.get(key), str):
            return str(response[key])
    return json.dumps(response, ensure_ascii=False)


def _tools(body: JsonObject) -> Iterator[OfferedTool]:
    for tool in body.get("tools") or []:
        for declared in tool.get("functionDeclarations") or []:
            schema = declared.get("parametersJsonSchema") or declared.get("parameters") or {}
            yield OfferedTool(str(declared.get("name")), schema)


def _joined(pieces: tuple[str, ...]) -> tuple[str, ...]:
    return ("".join(pieces),) if pieces else ()


def _parts(reply: Reply) -> list[JsonObject]:
    parts: list[JsonObject] = [{"text": piece, "thought": True} for piece in reply.thinking]
    parts += [{"text": piece} for piece in reply.text]
    for number, call in enumerate(reply.calls):
        if call.arguments is None:  # args is an object here: it cannot be malformed JSON
            continue
        function = {"id": call.id, "name": call.use.name, "args": call.arguments}
        part: JsonObject = {"functionCall": function}
        if number == 0:
            part["thoughtSignature"] = _SIGNATURE
        parts.append(part)
    return parts


def _finish(reply: Reply) -> str:
    if any(call.arguments is None for call in reply.calls):
        return "MALFORMED_FUNCTION_CALL"
    return _FINISH.get(reply.stop, reply.stop)


def _response(reply: Reply, parts: list[JsonObject], *, last: bool = False) -> JsonObject:
    candidate: JsonObject = {"content": {"role": "model", "parts": parts}, "index": 0}
    response: JsonObject = {
        "candidates": [candidate],
        "modelVersion": reply.model,
        "responseId": f"resp_{reply.label}",
    }
    if last:
        candidate["finishReason"] = _finish(reply)
        usage = reply.usage
        # Here the prompt includes cached tokens, and candidates exclude thoughts.
        n_prompt = usage.input + usage.cache_read + usage.cache_write
        response["usageMetadata"] = {
            "promptTokenCount": n_prompt,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": n_prompt + usage.output + usage.reasoning,
            "cachedContentTokenCount": usage.cache_read,
            "thoughtsTokenCount": usage.reasoning,
        }
    return response
