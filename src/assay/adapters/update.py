"""One step that an event holds, as the schema's paths and the usual names give it."""

from typing import Any

from assay.adapters.paths import Getter, as_text, compile_value
from assay.records.adapter_schema import EmitAs, Extract

_CALL_ID_NAMES = ("tool_use_id", "tool_call_id", "call_id", "callId", "callID", "tool_id", "id")
_INPUT_NAMES = ("input", "arguments", "parameters", "args")
_OUTPUT_NAMES = ("output", "result", "content")


class Update:
    """The kind of step, the part of the event it stands in, and the values found there."""

    __slots__ = ("kind", "part", "values")

    def __init__(self, kind: EmitAs, part: Any, values: dict[str, Any]) -> None:
        self.kind = kind
        self.part = part
        self.values = values

    def text(self, name: str) -> str | None:
        """Give an extracted value as text."""
        return as_text(self.values.get(name))

    def call_id(self) -> str | None:
        """Give the call id: as declared, else under the usual names."""
        found = self.text("call_id") or self._guess(_CALL_ID_NAMES)
        return found if isinstance(found, str) else None

    def tool_input(self) -> Any:
        """Give the tool's input: as declared, else under the usual names."""
        value = self.values.get("input")
        return self._guess(_INPUT_NAMES) if value is None else value

    def tool_output(self) -> Any:
        """Give the tool's output: as declared, else under the usual names."""
        value = self.values.get("output")
        return self._guess(_OUTPUT_NAMES) if value is None else value

    def failed(self) -> bool:
        """Whether the event says that the call went wrong."""
        error = self.values.get("error")
        if error is None:
            return isinstance(self.part, dict) and self.part.get("is_error") is True
        return error is True or (isinstance(error, str) and error not in ("", "false"))

    def _guess(self, names: tuple[str, ...]) -> Any:
        if not isinstance(self.part, dict):
            return None
        return next((self.part[name] for name in names if self.part.get(name) is not None), None)


class Extractor:
    """The extract paths of one mapping, compiled."""

    def __init__(self, kind: EmitAs, extract: Extract, where: str) -> None:
        self.kind = kind
        self._getters: dict[str, Getter] = {}
        self._literals: set[str] = set()
        for name in Extract.__struct_fields__:
            path = getattr(extract, name)
            if path is not None:
                self._getters[name] = compile_value(path, f"{where}.{name}")
                if path.startswith("'"):
                    self._literals.add(name)

    def update(self, part: Any) -> Update:
        """Extract the values from a matched event or item."""
        return Update(self.kind, part, {name: get(part) for name, get in self._getters.items()})

    def is_empty(self, update: Update) -> bool:
        """Whether nothing but literals was found."""
        return all(
            value is None for name, value in update.values.items() if name not in self._literals
        )
