"""Decode one line of an agent's stream, whatever state it is in."""

import json
from typing import Any

import msgspec


def parse_line(line: bytes) -> Any:
    """Give the JSON value of a line, or None when it is not JSON.

    Invalid UTF-8, lone surrogates and NaN are mended (U+FFFD, ?, null) rather than lost.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _mend(line)
    except RecursionError:
        return None


def is_blank(line: bytes) -> bool:
    """Whether a line holds nothing but white space."""
    return not line or line.isspace()


def _mend(line: bytes) -> Any:
    if not line.lstrip().startswith((b"{", b"[")):
        return None
    try:
        value = json.loads(line.decode("utf-8", "replace"), parse_constant=lambda _name: None)
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
