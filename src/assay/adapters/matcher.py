"""Decide which events, or which items of an event's array, a mapping takes."""

from typing import Any

from assay.adapters.paths import compile_match
from assay.records.adapter_schema import Match


class Matcher:
    """A path and a value of a schema, compiled."""

    def __init__(self, match: Match, where: str) -> None:
        self._get = compile_match(match.path, f"{where}.path")
        self._value = match.value

    def items(self, event: Any) -> tuple[int, list[tuple[int, Any]]] | None:
        """Give an array's identity and the items taken with their places; None: no array."""
        found = self._get(event)
        if not isinstance(found, list):
            return None
        return id(found), [(i, item) for i, item in enumerate(found) if self._takes(item)]

    def fits(self, event: Any) -> bool:
        """Whether the event matches; a string only equals a string, as in the seed."""
        found = self._get(event)
        if isinstance(found, list):
            return any(self._takes(item) for item in found)
        return found is not None if self._value == "*" else found == self._value

    def _takes(self, item: Any) -> bool:
        if self._value == "*":
            return item is not None
        return item == self._value or (isinstance(item, dict) and item.get("type") == self._value)
