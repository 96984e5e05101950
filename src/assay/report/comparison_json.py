"""Write a comparison as JSON, its rows per prompt as they come."""

from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec


def write_json(
    out: BinaryIO, sections: dict[str, Any], rows: Iterable[list[bytes]], key: tuple[str, ...]
) -> None:
    """Write two-space JSON; rows go to key, which names a section or a field of one."""
    out.write(b"{")
    first = True
    for name, value in sections.items():
        out.write(b"\n  " if first else b",\n  ")
        first = False
        out.write(msgspec.json.encode(name) + b": ")
        if key[0] == name:
            _write_with_rows(out, value, rows, key[1])
        else:
            out.write(_indented(value))
    if key[0] not in sections:
        out.write(b",\n  " + msgspec.json.encode(key[0]) + b": ")
        _write_rows(out, rows, b"    ", b"  ")
    out.write(b"\n}\n")


def _write_with_rows(
    out: BinaryIO, section: dict[str, Any], rows: Iterable[list[bytes]], field: str
) -> None:
    out.write(b"{\n    " + msgspec.json.encode(field) + b": ")
    _write_rows(out, rows, b"      ", b"    ")
    for name, value in section.items():
        text = _indented(value).replace(b"\n", b"\n  ")
        out.write(b",\n    " + msgspec.json.encode(name) + b": " + text)
    out.write(b"\n  }")


def _write_rows(out: BinaryIO, rows: Iterable[list[bytes]], indent: bytes, closing: bytes) -> None:
    out.write(b"[")
    comma, written = b",\n" + indent, False
    for some in rows:
        out.write((comma if written else b"\n" + indent) + comma.join(some))
        written = True
    out.write(b"\n" + closing + b"]" if written else b"]")


def _indented(value: Any) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return text.replace(b"\n", b"\n  ")
