"""An adapter schema compiled: one event in, what it means out."""

from typing import Any

import msgspec

from assay.adapters.matcher import Matcher
from assay.adapters.paths import Getter, as_text, compile_value
from assay.adapters.update import Extractor, Update
from assay.records.adapter_schema import AdapterSchema, EmitAs, ErrorEvent, Match, UsagePaths

_SEED_TYPES: dict[str, EmitAs] = {
    "thought": "thought",
    "tool_call": "tool_call",
    "message": "message",
    "plan": "plan",
}


class Mapping:
    """All rules of a schema, ready to be applied to events."""

    def __init__(self, schema: AdapterSchema, source: str) -> None:
        self.schema = schema
        self._rules = [
            (
                Matcher(entry.match, f"{source}: outputEvents[{i}].match"),
                Extractor(entry.emit_as, entry.extract, f"{source}: outputEvents[{i}].extract"),
            )
            for i, entry in enumerate(schema.output_events)
        ]
        passthrough = schema.output_mode == "passthrough"
        self._types = schema.passthrough_type_map if passthrough else None
        self._result_match = Match(path=schema.result.match_path, value=schema.result.match_value)
        self._result = Matcher(self._result_match, f"{source}: result.matchPath")
        self._content = compile_value(schema.result.content_path, f"{source}: result.contentPath")
        end = schema.terminal.match
        self._terminal = Matcher(end, f"{source}: terminal.match") if end else None
        self._ignored = [Matcher(m, f"{source}: ignore[{i}]") for i, m in enumerate(schema.ignore)]
        self._errors = [
            _compile_error(entry, f"{source}: errors[{i}]") for i, entry in enumerate(schema.errors)
        ]
        self.usage = [
            _compile_usage(entry, f"{source}: usage[{i}]")
            for i, entry in enumerate(schema.usage or [_usual_usage(self._result_match)])
        ]
        resumed = schema.resume.session_id_path if schema.resume else "$.session_id"
        self.session_id = compile_value(
            schema.session_id_path or resumed, f"{source}: sessionIdPath"
        )
        self.model = compile_value(schema.model_path or "$.model", f"{source}: modelPath")
        self.version = (
            compile_value(schema.version_path, f"{source}: versionPath")
            if schema.version_path
            else None
        )

    def updates(self, event: Any) -> list[Update]:
        """Give the steps an event holds.

        As in the seed the first mapping that matches a whole event wins. Mappings on an array
        each take their items, an item goes to the first that wants it, and what they give stands
        in the order of the items; a later whole-event mapping is added if it finds anything more.
        """
        if self._types is not None:
            return self._passthrough(event)
        taken: dict[tuple[int, int], Update] = {}
        for matcher, extractor in self._rules:
            found = matcher.items(event)
            if found is not None:
                array, items = found
                for place, item in items:
                    taken.setdefault((array, place), extractor.update(item))
            elif matcher.fits(event):
                update = extractor.update(event)
                if not taken:
                    return [update]
                return _in_order(taken) + ([] if extractor.is_empty(update) else [update])
        return _in_order(taken)

    def result(self, event: Any) -> str | None:
        """Give the answer when this is the result event; "" when it holds none."""
        if not self._result.fits(event):
            return None
        return as_text(self._content(event)) or ""

    def is_terminal(self, event: Any, *, is_result: bool) -> bool:
        """Whether the event ends the turn."""
        return is_result if self._terminal is None else self._terminal.fits(event)

    def is_ignored(self, event: Any) -> bool:
        """Whether the schema knows the event as one that carries nothing."""
        return any(matcher.fits(event) for matcher in self._ignored)

    def error(self, event: Any) -> tuple[ErrorEvent, str] | None:
        """Give the error an event reports."""
        for entry, matcher, message in self._errors:
            if matcher.fits(event):
                return entry, as_text(message(event)) or "the agent reported an error"
        return None

    def _passthrough(self, event: Any) -> list[Update]:
        assert self._types is not None
        type_name = event.get(self._types.type_field) if isinstance(event, dict) else None
        if not isinstance(type_name, str):
            return []
        kind = self._types.type_values.get(type_name) or _SEED_TYPES.get(type_name)
        if kind is None:
            return []
        values = {
            "content": _string(event.get("content")),
            "title": _string(event.get("name")) or _string(event.get("title")),
            "status": _string(event.get("status")),
        }
        return [Update(kind, event, values)]


def _compile_error(entry: ErrorEvent, where: str) -> tuple[ErrorEvent, Matcher, Getter]:
    message = compile_value(entry.message or "$.message", f"{where}.message")
    return entry, Matcher(entry.match, f"{where}.match"), message


def _compile_usage(entry: UsagePaths, where: str) -> tuple[UsagePaths, Matcher, dict[str, Getter]]:
    getters = {
        name: compile_value(path, f"{where}.{name}")
        for name, path in msgspec.structs.asdict(entry).items()
        if name not in ("match", "mode") and path is not None
    }
    return entry, Matcher(entry.match, f"{where}.match"), getters


def _usual_usage(result: Match) -> UsagePaths:
    """Look under the usual names in the result event when the schema says nothing."""
    return UsagePaths(
        match=result,
        input_tokens="$.usage.input_tokens",
        output_tokens="$.usage.output_tokens",
        cache_read_tokens="$.usage.cache_read_input_tokens",
        cache_write_tokens="$.usage.cache_creation_input_tokens",
        cost_usd="$.total_cost_usd",
    )


def _in_order(taken: dict[tuple[int, int], Update]) -> list[Update]:
    arrays = {array: n for n, array in enumerate(dict.fromkeys(array for array, _ in taken))}
    keys = sorted(taken, key=lambda key: (arrays[key[0]], key[1]))
    return [taken[key] for key in keys]


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
