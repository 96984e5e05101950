"""Read and write rows: one JSON object per line, unknown fields kept, errors with file and line."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from assay.errors import InputError

_BUFFER = 256 * 1024
"""Rows are longer than the usual buffer: with this one they are read in half the time."""
_ROW = msgspec.json.Decoder(dict[str, Any])
BOM = b"\xef\xbb\xbf"
"""What some editors put before the first row."""
type Place = str
"""Where a row stands: file:line."""


def read_lines(path: Path | None) -> Iterator[tuple[Place, bytes]]:
    """Give the non-blank lines of a file, or of stdin, one at a time."""
    if path is None:
        yield from _file_lines("stdin", sys.stdin.buffer)
        return
    try:
        with path.open("rb", buffering=_BUFFER) as file:
            yield from _file_lines(str(path), file)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


def decode_row[T](
    place: Place, line: bytes, kind: type[T], *, hint: str = ""
) -> tuple[T, dict[str, Any]]:
    """Check one line against a record; give it with the fields the record does not know."""
    try:
        row = _ROW.decode(line)
        record = msgspec.convert(row, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{place}: {explain(error)}"
        raise InputError(msg, hint=hint) from error
    known = _field_names(kind)
    return record, {name: value for name, value in row.items() if name not in known}


def encode_row(record: Any, extra: dict[str, Any]) -> bytes:
    """Write a record as one line, with the fields it did not know behind its own."""
    line = msgspec.json.encode(record)
    own = _field_names(type(record))
    more = {name: value for name, value in extra.items() if name not in own}
    return line[:-1] + b"," + msgspec.json.encode(more)[1:] if more else line


def _file_lines(name: str, file: Iterable[bytes] | BinaryIO) -> Iterator[tuple[Place, bytes]]:
    for number, line in enumerate(file, 1):
        text = line.removeprefix(BOM) if number == 1 else line
        if text and not text.isspace():
            yield f"{name}:{number}", text


def explain(error: Exception) -> str:
    """Say in words what is wrong with a row that did not decode."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start} of a text"
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return text.replace("Object missing required field", "missing field")
    return f"not a JSON object: {text}"


def _field_names(kind: type[Any]) -> frozenset[str]:
    names = _FIELD_NAMES.get(kind)
    if names is None:
        fields = msgspec.structs.fields(kind)
        names = _FIELD_NAMES[kind] = frozenset(field.encode_name for field in fields)
    return names


_FIELD_NAMES: dict[type[Any], frozenset[str]] = {}
