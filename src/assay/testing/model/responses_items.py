"""The output items of an OpenAI Responses answer, each with the events that stream it."""

from dataclasses import dataclass

from assay.testing.model.conversation import JsonObject
from assay.testing.model.reply import Reply, ReplyCall, cut


@dataclass(frozen=True)
class StreamedItem:
    """One output item: as it is in the end, and the events that lead there."""

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
