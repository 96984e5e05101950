"""What an answer on a tape says, in any of the formats in which models answer."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from assay.records.tape import Tokens


class Call(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A tool that an answer calls."""

    id: str = ""
    name: str


class Said(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an answer says."""

    text: str = ""
    calls: list[Call] = []


def data_of(text: str) -> tuple[str | None, Any, str]:
    """Return what stands before the JSON of an event, the value, and what stands behind it.

    The first is None where there is no JSON.
    """
    start = text.find("data:")
    start = start + 5 if start >= 0 else 0
    rest = text[start:]
    body = rest.strip()
    if body[:1] not in ("{", "["):
        return None, None, ""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None, None, ""
    lead = len(rest) - len(rest.lstrip())
    return text[: start + lead], value, rest[lead + len(body) :]


def said_in(answer: Iterable[tuple[int, str]]) -> Said:
    """Return the text of an answer and the tools that it calls, in order."""
    texts: list[str] = []
    calls: list[Call] = []
    for _, event in answer:
        _, value, _ = data_of(event)
        for found in _said(value) if isinstance(value, dict) else ():
            if isinstance(found, Call):
                calls.append(found)
            else:
                texts.append(found)
    return Said(text="".join(texts), calls=calls)


def _said(value: dict[str, Any]) -> Iterator[str | Call]:
    """Yield what one event, or a whole answer, says."""
    # Anthropic: blocks of a stream begin with all of a call but its arguments.
    for part in (value.get("content_block"), *_list(value.get("content"))):
        yield from _part(part)
    if isinstance(delta := value.get("delta"), dict):
        yield from _part(delta)
    # OpenAI, responses: an item that is done is whole; the last event repeats them all.
    if value.get("type") == "response.output_item.done":
        yield from _item(value.get("item"))
    for item in _list(value.get("output")):
        yield from _item(item)
    for choice in _list(value.get("choices")):
        one = choice.get("delta") or choice.get("message") if isinstance(choice, dict) else None
        yield from _message(one)
    for candidate in _list(value.get("candidates")):
        content = candidate.get("content") if isinstance(candidate, dict) else None
        for part in _list(content.get("parts")) if isinstance(content, dict) else ():
            yield from _part(part)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _part(part: Any) -> Iterator[str | Call]:
    if not isinstance(part, dict) or part.get("thought") is True:
        return
    if isinstance(part.get("text"), str):
        yield part["text"]
    call = part.get("functionCall") if "functionCall" in part else part
    if isinstance(call, dict) and (call is not part or part.get("type") == "tool_use"):
        yield _call(call)


def _item(item: Any) -> Iterator[str | Call]:
    if isinstance(item, dict) and str(item.get("type")).endswith("_call"):
        yield _call(item)
    elif isinstance(item, dict):
        for part in _list(item.get("content")):
            yield from _part(part)


def _message(message: Any) -> Iterator[str | Call]:
    if not isinstance(message, dict):
        return
    if isinstance(message.get("content"), str):
        yield message["content"]
    for call in _list(message.get("tool_calls")):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and function.get("name"):
            yield _call({**function, "id": call.get("id")})


def _call(call: Mapping[str, Any]) -> Call:
    found = call.get("call_id") or call.get("id") or ""
    return Call(id=str(found), name=str(call.get("name") or call.get("type") or "?"))


def tokens_in(answer: Iterable[tuple[int, str]]) -> Tokens | None:
    """Return what an answer says that it used; a stream says so more than once, the last counts."""
    found: dict[str, int] = {}
    for _, text in answer:
        if '"usage' not in text:
            continue
        _, value, _ = data_of(text)
        for usage in _usages(value):
            for ours, theirs in _COUNTS.items():
                n = sum(_number(usage, name) for name in theirs)
                found[ours] = max(found.get(ours, 0), n)
    return Tokens(**found) if found else None


_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_COUNTS = {
    "input": ("input_tokens", _READ, _WRITTEN, "prompt_tokens", "promptTokenCount"),
    "output": ("output_tokens", "completion_tokens", "candidatesTokenCount", "thoughtsTokenCount"),
    "cache_read": (_READ, "cached_tokens", "cachedContentTokenCount"),
    "cache_write": (_WRITTEN,),
}
"""What adds up to what an answer used. Only Anthropic's input leaves out what was cached."""


def _number(usage: dict[str, Any], name: str) -> int:
    for holder in (usage, usage.get("input_tokens_details"), usage.get("prompt_tokens_details")):
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, int) and 0 <= value <= _MOST_TOKENS:
            return value
    return 0


_MOST_TOKENS = 10**12
"""More cannot be true; a provider can say anything, too."""


def _usages(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        return
    for holder in (value, value.get("message"), value.get("response")):
        if isinstance(holder, dict):
            for name in ("usage", "usageMetadata"):
                if isinstance(usage := holder.get(name), dict):
                    yield usage
