"""What is wrong with a value that did not decode, in words for the person who wrote it."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from assay.records.text import closest

_KINDS = {
    "bool": "true or false",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_GIVEN = {**_KINDS, "int": "a number", "float": "a decimal number"}
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_WHERE = re.compile(r" - at (`key` in )?`\$\.?(.*)`$", re.DOTALL)
_WRONG_KIND = re.compile(r"Expected `(.+)`, got `(.+)`$")
_OUT_OF_RANGE = re.compile(r"Expected `(int|float)` (>=|<=|>|<) (\S+)$")
_NAMED = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`$", re.DOTALL)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and the field that it is wrong with."""

    field: str
    """As in expect.contains or graders[1]; empty for the whole value."""
    words: str
    """What is to be said behind the name of the field, as in: must be text, not a number."""
    is_about_name: bool = False
    """Whether the field is missing or unknown; the words then say which it is."""

    def __str__(self) -> str:
        return (
            self.words if self.is_about_name or not self.field else f'"{self.field}" {self.words}'
        )


def problem_in(error: msgspec.ValidationError, kind: Any = None) -> Problem:
    """Put an error of msgspec into words; kind is what was to be decoded, if that is known."""
    text = str(error)
    found = _WHERE.search(text)
    path = found[2].replace("[...]", "") if found else ""
    what = text[: found.start()] if found else text
    whose = "has a key that " if found and found[1] else ""
    if named := _NAMED.match(what):
        return _about_name(named[1], path, kind, is_missing="missing" in what)
    if what.startswith("Invalid enum value"):
        values = _values(_type_at(kind, path))
        if values:
            return Problem(path, f"must be one of: {', '.join(values)}")
    return Problem(path, f"{whose}{_words(what)}")


REMARKS = r"^(_|x-|\$schema$|\$comment$|comment$|description$)"
"""What people write into files for themselves, their editors and other programs."""


def unknown_fields(value: Any, kind: Any) -> Iterator[Problem]:
    """Yield the fields of a value, at every depth, that a record does not have."""
    return _unknown(value, _members(inspect.type_info(kind)), "")


def _unknown(value: Any, kinds: Iterable[inspect.Type], path: str) -> Iterator[Problem]:
    kinds = list(kinds)
    known = _field_names(kinds)
    inside: list[tuple[str, Any, str]] = []
    if isinstance(value, list):
        inside = [("", item, f"{path}[{number}]") for number, item in enumerate(value)]
    elif isinstance(value, dict):
        inside = [(key, item, f"{path}.{key}" if path else key) for key, item in value.items()]
    for name, item, full in inside:
        below = [member for one in kinds for kind in _below(one, name) for member in _members(kind)]
        if below:
            yield from _unknown(item, below, full)
        elif known and name and not re.match(REMARKS, name):
            yield _unknown_name(name, path, known)


def _about_name(name: str, path: str, kind: Any, *, is_missing: bool) -> Problem:
    if not is_missing:
        return _unknown_name(name, path, _field_names(_type_at(kind, path)))
    full = f"{path}.{name}" if path else name
    return Problem(full, f"missing field `{name}`{f' in "{path}"' if path else ''}", True)


def _unknown_name(name: str, path: str, known: list[str]) -> Problem:
    meant = closest(name, known)
    begin = f"{path}." if path else ""
    more = f"; the fields are: {', '.join(known)}" if known else ""
    more = f'; did you mean "{begin}{meant}"?' if meant else more
    return Problem(f"{begin}{name}", f'unknown field "{begin}{name}"{more}', True)


def _words(what: str) -> str:
    if found := _WRONG_KIND.match(what):
        given = _GIVEN.get(found[2], found[2])
        return f"must be {_listed(found[1])}, not {given}"
    if found := _OUT_OF_RANGE.match(what):
        bound = found[3].removesuffix(".0")
        # msgspec names the kind that was given here, not the one that is wanted.
        return f"must be a number {_BOUNDS[found[2]]} {bound}"
    return f"{what[:1].lower()}{what[1:]}".replace("`", "")


def _listed(kinds: str) -> str:
    """As in: text, a list or an object. null is not worth a word: such a field is left out."""
    names = [name for name in kinds.split(" | ") if name != "null"] or ["null"]
    if "float" in names:
        names = [name for name in names if name != "int"]
    said = [_KINDS.get(name, name) for name in names]
    return " or ".join(filter(None, (", ".join(said[:-1]), said[-1])))


def _type_at(kind: Any, path: str) -> Iterator[inspect.Type]:
    """Yield what may stand at a path in a value of some kind; nothing if that is not known."""
    if kind is None:
        return
    found: Iterable[inspect.Type] = _members(inspect.type_info(kind))
    for part in filter(None, re.split(r"[.\[\]]+", path)):
        found = [
            member for one in found for inner in _below(one, part) for member in _members(inner)
        ]
    yield from found


def _below(kind: inspect.Type, part: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == part)
    elif isinstance(kind, inspect.ListType):
        yield kind.item_type
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _field_names(kinds: Iterable[inspect.Type]) -> list[str]:
    return [
        field.encode_name
        for kind in kinds
        if isinstance(kind, inspect.StructType)
        for field in kind.fields
    ]


def _values(kinds: Iterable[inspect.Type]) -> list[str]:
    found: list[Any] = []
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            found += kind.values
        elif isinstance(kind, inspect.EnumType):
            found += [member.value for member in kind.cls]
    return [str(value) for value in found]
