"""What a request says, whichever provider's words it came in."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.testing.model.script import Provider

Role = Literal["system", "user", "assistant", "tool"]
JsonObject = dict[str, Any]

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)


@dataclass(frozen=True)
class Item:
    """One piece of the history: who said what."""

    role: Role
    text: str


@dataclass(frozen=True)
class OfferedTool:
    """A tool that the request offers to the model."""

    name: str
    parameters: JsonObject = field(default_factory=dict)
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True)
class Conversation:
    """A request to the model."""

    provider: Provider
    model: str
    stream: bool
    items: tuple[Item, ...]
    tools: tuple[OfferedTool, ...]
    answer_schema: JsonObject | None = None
    wants_usage: bool = True

    @property
    def turns(self) -> int:
        """How often the model has answered: runs of its items, cut by anyone else's."""
        roles = [item.role for item in self.items if item.role != "system"]
        starts = zip(["user", *roles], roles, strict=False)
        return sum(now == "assistant" != before for before, now in starts)

    @property
    def system(self) -> str:
        """All that the system said."""
        return "\n".join(item.text for item in self.items if item.role == "system")

    @property
    def first_user(self) -> str:
        """What the user said before the model's first answer."""
        return _until_answer(self.items)

    @property
    def last_user(self) -> str:
        """What the user said since the model's last answer; agents add their own context to it."""
        return _until_answer(reversed(self.items))

    @property
    def last_prompt(self) -> str:
        """The last single text of the user."""
        return self._last("user")

    @property
    def last_tool_result(self) -> str:
        """The text of the last tool result, as this agent wraps it."""
        return self._last("tool")

    def _last(self, role: Role) -> str:
        return next((item.text for item in reversed(self.items) if item.role == role), "")


def texts_of(content: Any) -> Iterator[str]:
    """Give each text in a message's content: a string, a part or a list of parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from texts_of(part)
    elif isinstance(content, dict) and isinstance(content.get("text"), str):
        yield content["text"]


def items_of(role: Role, texts: Iterable[str]) -> Iterator[Item]:
    """Make an item of each text, without the reminders that agents slip in."""
    for text in texts:
        bare = _REMINDER.sub("", text) if role in ("user", "tool") else text
        if bare or role in ("assistant", "tool"):
            yield Item(role, bare)


def strings_in(value: Any) -> Iterator[str]:
    """Give every string anywhere in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def _until_answer(items: Iterable[Item]) -> str:
    said = []
    for item in items:
        if item.role == "assistant":
            break
        if item.role == "user":
            said.append(item.text)
    return "\n".join(said)


_EMPTY: dict[str, Any] = {
    "string": "scripted",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "null": None,
}


def minimal_value(schema: dict[str, Any]) -> Any:
    """Make a value with only what the schema requires; first choices everywhere."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return minimal_value(schema[choice][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        properties = schema.get("properties") or {}
        return {
            name: minimal_value(properties.get(name, {})) for name in schema.get("required", [])
        }
    if kind == "array":
        return [minimal_value(schema.get("items") or {}) for _ in range(schema.get("minItems", 0))]
    return _EMPTY.get(kind, "scripted")
