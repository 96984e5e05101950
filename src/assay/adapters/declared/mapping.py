"""An adapter schema, compiled: maps one event to steps, result, usage and errors."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.adapter_schema import (
    AdapterSchema,
    EmitAs,
    ErrorEvent,
    Extract,
    Match,
    UsagePaths,
)
from assay.records.patterns import UnsupportedPatternError


class Matcher:
    """A path and the value to match, compiled."""

    def __init__(self, match: Match, where: str) -> None:
        self._get = compile_match(match.path, f"{where}.path")
        self._value = match.value

    def items(self, event: Any) -> tuple[int, list[tuple[int, Any]]] | None:
        """Return the array's identity and the matching items with their indexes; None: no array."""
        found = self._get(event)
        if not isinstance(found, list):
            return None
        # By identity: several mappings may match items of the same array.
        return id(found), [(i, item) for i, item in enumerate(found) if self._takes(item)]

    def fits(self, event: Any) -> bool:
        """Whether the event matches; "1" does not match 1, as in the reference harness."""
        found = self._get(event)
        if isinstance(found, list):
            return any(self._takes(item) for item in found)
        return found is not None if self._value == "*" else found == self._value

    def _takes(self, item: Any) -> bool:
        if self._value == "*":
            return item is not None
        return item == self._value or (isinstance(item, dict) and item.get("type") == self._value)


_CALL_ID_NAMES = (
    *("tool_use_id", "tool_call_id", "call_id", "callId", "callID"),
    *("toolUseId", "toolCallId", "tool_id", "id"),
)
_INPUT_NAMES = ("input", "arguments", "parameters", "args")
_OUTPUT_NAMES = ("output", "result", "content")


class Update:
    """The kind of a step, the part of the event that holds it, and the extracted values."""

    __slots__ = ("kind", "part", "values")

    def __init__(self, kind: EmitAs, part: Any, values: dict[str, Any]) -> None:
        self.kind = kind
        self.part = part
        self.values = values

    def text(self, name: str) -> str | None:
        """Return an extracted value as text."""
        return as_text(self.values.get(name))

    def call_id(self) -> str | None:
        """Return the call id: as declared, else under the usual names."""
        found = self.text("call_id") or self._guess(_CALL_ID_NAMES)
        return found if isinstance(found, str) else None

    def tool_input(self) -> Any:
        """Return the tool's input: as declared, else under the usual names."""
        value = self.values.get("input")
        return self._guess(_INPUT_NAMES) if value is None else value

    def tool_output(self) -> Any:
        """Return the tool's output: as declared, else under the usual names."""
        value = self.values.get("output")
        return self._guess(_OUTPUT_NAMES) if value is None else value

    def failed(self) -> bool:
        """Whether the event reports that the call failed."""
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
                # A literal is found in every event, so it is no sign of a match.
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


type Getter = Callable[[Any], Any]


class MatchedValues(list[Any]):
    """All values of a path that matched more than once, as opposed to one value that is a list."""


PATTERN_FUNCTIONS = ("match(", "search(")
"""What a path with a regular expression contains."""
_DOTTED = re.compile(r"\$(?:\.(?:[^.\[\]'\"*\s]+(?:\[(?:\d+|\*)\])?|\[(?:\d+|\*)\]))+")
_SEGMENT = re.compile(r"([^.\[\]]+)|\[(\d+|\*)\]")


def compile_value(path: str, where: str) -> Getter:
    """Compile a path to one value; the getter returns None when there is none.

    An RFC 9535 path that matches more than once returns MatchedValues.
    """
    if _DOTTED.fullmatch(path) and "[*]" not in path.removesuffix("[*]"):
        return _walker(_steps(path))
    return _constant(path) or _rfc_9535(path, where)


def compile_match(path: str, where: str) -> Getter:
    """Compile a path to match: as in the reference harness, [*] is the whole array and ends it."""
    if _DOTTED.fullmatch(path):
        return _walker(_steps(path))
    return _constant(path) or _rfc_9535(path, where)


def as_text(value: Any) -> str | None:
    """Turn an extracted value into text, as the reference harness does; structures become JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, MatchedValues):
        return "\n".join(as_text(item) or "" for item in value)
    # JavaScript joins an array with commas.
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ",".join(as_text(item) or "" for item in value)
    return msgspec.json.encode(value).decode()


def _constant(path: str) -> Getter | None:
    """Compile a path with the same value for every event: nothing, or a literal."""
    if not path:
        return lambda _event: None
    literal = path[1:-1]
    quoted = len(path) >= 2 and path[0] == path[-1] == "'"
    return (lambda _event: literal) if quoted else None


def _steps(path: str) -> list[str | int | None]:
    """Split a path into names, indexes and None for the wildcard, which ends it."""
    steps: list[str | int | None] = []
    for name, index in _SEGMENT.findall(path[1:]):
        if index == "*":
            return [*steps, None]
        steps.append(int(index) if index else name)
    return steps


def _walker(steps: list[str | int | None]) -> Getter:
    name = steps[0]
    if len(steps) == 1 and isinstance(name, str):  # most paths, and used on every line
        return lambda value: value.get(name) if isinstance(value, dict) else None

    def walk(value: Any) -> Any:
        for step in steps:
            if step is None:
                return value if isinstance(value, list) else None
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            else:
                fits = isinstance(value, list) and step < len(value)
                value = value[step] if fits else None
            if value is None:
                return None
        return value

    return walk


def _rfc_9535(path: str, where: str) -> Getter:
    import jsonpath  # late: most schemas need only dotted paths

    try:
        has_patterns = any(name in path for name in PATTERN_FUNCTIONS)
        query = _with_patterns(path, where) if has_patterns else jsonpath.compile(path, strict=True)
    except jsonpath.JSONPathError as error:
        msg = f"{where}: {path!r} is not a path: {str(error).splitlines()[0]}"
        raise InputError(
            msg, hint="write $.name.list[0].name, an RFC 9535 JSONPath, or a 'literal' in quotes"
        ) from error
    single = query.singular_query()

    def find(value: Any) -> Any:
        if not isinstance(value, dict | list):
            return None
        try:
            found = query.findall(value)
        except jsonpath.JSONPathError:  # an event that is nested too deeply: it does not match
            return None
        if single or len(found) < 2:
            return found[0] if found else None
        return MatchedValues(found)

    return find


def _with_patterns(path: str, where: str) -> Any:
    from assay.adapters.declared.patterns import compile_path  # late: it and jsonpath take 20 ms

    try:
        return compile_path(path)
    except UnsupportedPatternError as error:
        msg = f"{where}: the regular expression in {path!r} cannot be used: {error}"
        raise InputError(
            msg, hint="write it without lookaround, back references and large repetitions"
        ) from error


def _number(value: float) -> str:
    """Write a number the way JavaScript does: 1.0 is 1, 1e-07 is 1e-7."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return re.sub(r"e([+-])0+", r"e\1", repr(value))


_SEED_TYPES: dict[str, EmitAs] = {
    "thought": "thought",
    "tool_call": "tool_call",
    "message": "message",
    "plan": "plan",
}


class Mapping:
    """All rules of a schema, compiled."""

    def __init__(self, schema: AdapterSchema, source: str) -> None:
        self.schema = schema
        text = msgspec.json.encode(schema).decode()
        self.has_patterns = any(name in text for name in PATTERN_FUNCTIONS)
        self._rules = [
            (
                Matcher(entry.match, f"{source}: outputEvents[{i}].match"),
                Extractor(entry.emit_as, entry.extract, f"{source}: outputEvents[{i}].extract"),
            )
            for i, entry in enumerate(schema.output_events)
        ]
        passthrough = schema.output_mode == "passthrough"
        self._types = schema.passthrough_type_map if passthrough else None
        result = schema.result
        assert result is not None  # only a schema for plain text has none
        self._result_match = Match(path=result.match_path, value=result.match_value)
        self._result = Matcher(self._result_match, f"{source}: result.matchPath")
        self._content = compile_value(result.content_path, f"{source}: result.contentPath")
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
        """Return the steps of an event.

        As in the reference harness, the first mapping that matches a whole event wins. Of mappings
        on an array, each item goes to the first that matches it, and the steps are in the order of
        the items; a later whole-event mapping is added if it finds anything more.
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
        """Return the answer if this is the result event, "" if that holds none."""
        if not self._result.fits(event):
            return None
        return as_text(self._content(event)) or ""

    def is_terminal(self, event: Any, *, is_result: bool) -> bool:
        """Whether the event ends the turn."""
        return is_result if self._terminal is None else self._terminal.fits(event)

    def is_ignored(self, event: Any) -> bool:
        """Whether the schema lists the event as one without content."""
        return any(matcher.fits(event) for matcher in self._ignored)

    def error(self, event: Any) -> tuple[ErrorEvent, str] | None:
        """Return the error that an event reports."""
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
        if kind == "tool_call":
            values |= _passed_tool(event, type_name, values["status"])
        elif kind == "plan":
            values["entries"] = event.get("entries")
        return [Update(kind, event, values)]


def _passed_tool(event: dict[str, Any], type_name: str, status: str | None) -> dict[str, Any]:
    """Return what an event of Assay's own form says of a tool call besides its name."""
    known = {
        "error": event.get("error"),
        "exit_code": event.get("exitCode"),
        "parent": event.get("parent"),
        "input": next((event[name] for name in _INPUT_NAMES if name in event), None),
    }
    # A result is an event of its own in most agents, and says by its name or its content that the
    # call has ended.
    has_ended = bool(_RESULT_TYPE.search(type_name)) or any(
        event.get(name) is not None for name in ("output", "result", "error", "is_error")
    )
    return known | {"status": status or ("completed" if has_ended else None)}


_RESULT_TYPE = re.compile(r"result|output|response|(?:^|[._-])(?:end|done|finish|complete)", re.I)


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
    """Return the paths to use if the schema has none: the usual names in the result event."""
    return UsagePaths(
        match=result,
        input_tokens="$.usage.input_tokens",
        output_tokens="$.usage.output_tokens",
        cache_read_tokens="$.usage.cache_read_input_tokens",
        cache_write_tokens="$.usage.cache_creation_input_tokens",
        cost_usd="$.total_cost_usd",
    )


def _in_order(taken: dict[tuple[int, int], Update]) -> list[Update]:
    # Arrays in the order in which mappings found them, their items by index.
    arrays = {array: n for n, array in enumerate(dict.fromkeys(array for array, _ in taken))}
    keys = sorted(taken, key=lambda key: (arrays[key[0]], key[1]))
    return [taken[key] for key in keys]


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
