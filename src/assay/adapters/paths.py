"""Compile the paths of an adapter schema into functions.

Four kinds: an empty one finds nothing; 'literal' in single quotes; the seed's dotted dialect
($.a.b[0].c and [*]), compiled here because it also allows names that JSONPath would want quoted;
everything else is RFC 9535, by the jsonpath library, which is only imported when a schema needs it.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from assay.errors import InputError

type Getter = Callable[[Any], Any]


class Several(list[Any]):
    """What a path found in more than one place."""


_DOTTED = re.compile(r"\$(?:\.(?:[^.\[\]'\"*\s]+(?:\[(?:\d+|\*)\])?|\[(?:\d+|\*)\]))+")
_SEGMENT = re.compile(r"([^.\[\]]+)|\[(\d+|\*)\]")


def compile_value(path: str, where: str) -> Getter:
    """Compile a path that gives one value: None when there is nothing.

    An RFC 9535 path that finds more than one gives them as Several.
    """
    if _DOTTED.fullmatch(path) and "[*]" not in path.removesuffix("[*]"):
        return _walker(_steps(path))
    return _constant(path) or _rfc_9535(path, where)


def compile_match(path: str, where: str) -> Getter:
    """Compile a path to be matched: as in the seed, [*] gives the whole array and ends the path."""
    if _DOTTED.fullmatch(path):
        return _walker(_steps(path))
    return _constant(path) or _rfc_9535(path, where)


def as_text(value: Any) -> str | None:
    """Turn an extracted value into text, as the seed does; structures become JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Several):
        return "\n".join(as_text(item) or "" for item in value)
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ",".join(as_text(item) or "" for item in value)
    return msgspec.json.encode(value).decode()


def _constant(path: str) -> Getter | None:
    """Compile a path that says the same of every event: nothing, or a literal."""
    if not path:
        return lambda _event: None
    literal = path[1:-1]
    quoted = len(path) >= 2 and path[0] == path[-1] == "'"
    return (lambda _event: literal) if quoted else None


def _steps(path: str) -> list[str | int | None]:
    """Give names, indexes, and None for the wildcard, after which nothing counts."""
    steps: list[str | int | None] = []
    for name, index in _SEGMENT.findall(path[1:]):
        if index == "*":
            return [*steps, None]
        steps.append(int(index) if index else name)
    return steps


def _walker(steps: list[str | int | None]) -> Getter:
    name = steps[0]
    if len(steps) == 1 and isinstance(name, str):  # most paths, and asked of every line
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
    import jsonpath

    try:
        query = jsonpath.compile(path, strict=True)
    except jsonpath.JSONPathError as error:
        msg = f"{where}: {path!r} is not a path: {str(error).splitlines()[0]}"
        raise InputError(
            msg, hint="write $.name.list[0].name, an RFC 9535 JSONPath, or a 'literal' in quotes"
        ) from error
    single = query.singular_query()

    def find(value: Any) -> Any:
        if not isinstance(value, dict | list):
            return None
        found = query.findall(value)
        if single or len(found) < 2:
            return found[0] if found else None
        return Several(found)

    return find


def _number(value: float) -> str:
    """Write a number the way JavaScript does: 1.0 is 1, 1e-07 is 1e-7."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return re.sub(r"e([+-])0+", r"e\1", repr(value))
