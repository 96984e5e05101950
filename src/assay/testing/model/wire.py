"""How a provider's protocol plugs in: read a request, write an answer or an error."""

from collections.abc import Callable
from dataclasses import dataclass

from assay.testing.model.conversation import Conversation, JsonObject
from assay.testing.model.reply import Reply
from assay.testing.model.script import Fault, Provider

Event = JsonObject | str
"""One server-sent event; a string is its data as it stands."""


@dataclass(frozen=True)
class Asked:
    """A request as it came: the parsed body, and what only the URL says."""

    body: JsonObject
    model: str | None = None
    stream: bool | None = None


@dataclass(frozen=True)
class Wire:
    """One provider's protocol, as pure functions."""

    provider: Provider
    read: Callable[[Asked], Conversation]
    events: Callable[[Reply], list[Event]]
    whole: Callable[[Reply], JsonObject]
    error_body: Callable[[Fault], JsonObject]
    error_event: Callable[[Fault], Event]
    named_events: bool = False


def error_message(fault: Fault) -> str:
    """Say what went wrong, in the script's words if it has any."""
    return fault.message or f"scripted error {fault.status}"
