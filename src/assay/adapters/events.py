"""Decode one line of an agent's stream, whatever state it is in."""

from math import isfinite
from typing import Any

import msgspec

from assay.records.capture import Events
from assay.records.recording import RawLine


def parse_line(line: bytes) -> Any:
    """Give the JSON value of a line, or None when it is not JSON.

    Invalid UTF-8, lone surrogates, NaN and 1e999 are mended (U+FFFD, ?, null), not lost.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _mend(line)
    except RecursionError:
        return None


def is_readable(line: RawLine, events: Events) -> bool:
    """Count a line; say whether there is anything in it to read, and not too much."""
    if not line.text or line.text.isspace():
        return False
    events.total += 1
    events.oversized += line.oversized
    return not line.oversized


def _mend(line: bytes) -> Any:
    if not line.lstrip().startswith((b"{", b"[")):
        return None
    import json

    try:
        text = line.decode("utf-8", "replace")
        value = json.loads(text, parse_constant=lambda _name: None, parse_float=_finite)
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None
