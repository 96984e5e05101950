"""Text that comes from agents, prompts and providers, made fit to be shown to a person."""

import re
from collections.abc import Iterable
from typing import Any

# Control characters (C0, DEL, C1), what turns the direction of text round, and half characters.
# A line feed, one behind a carriage return, and a tab are lines and columns.
_UNSEEN = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    "|\r(?!\n)"
)
_PLAIN = b"\n" + bytes(range(0x20, 0x7F))
_BREAKS = "[\t\n\r\u2028\u2029]"


def visible(text: str) -> str:
    r"""Write as \u001b what a terminal would obey instead of showing it.

    In JSON this is another spelling of the same text.
    """
    # Nearly all texts have nothing of the kind, which is found out in a tenth of the time: what is
    # not plain ASCII is looked at, and that is little. And to compile the expression would take
    # 0.4 ms of each start.
    unusual = text.encode(errors="surrogatepass").translate(None, _PLAIN)
    if unusual.decode(errors="surrogatepass").isprintable():
        return text
    return re.sub(_UNSEEN, _escape, text)


def visible_line(text: str) -> str:
    """The same for a name within a line: it cannot begin another line either."""
    return text if text.isprintable() else re.sub(_BREAKS, _escape, visible(text))


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def shortened(text: str, most: int) -> str:
    """Cut a text to this many characters, of which the last says that there was more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def with_trial(row_id: str, number: Any) -> str:
    """Name a trial by its prompt, and by its number where that is known (of `assay trials`)."""
    return f"{row_id} (trial {number})" if number else row_id


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that was probably meant; empty if none is like it."""
    from difflib import get_close_matches  # late: only for a wrong name

    return next(iter(get_close_matches(name, list(known), n=1)), "")


def counted_noun(n: int, noun: str) -> str:
    """A number and what it counts: 1 row, 2 rows."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


LEAST_MEMORY = 1024**2
"""Fewer bytes are no limit that a program could start with."""
_SIZE = r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?"


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as 512M or 4G, in powers of 1024; None if it is none."""
    found = re.fullmatch(_SIZE, text, re.IGNORECASE | re.ASCII)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) if found else None


_AGE_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_age(text: str) -> float | None:
    """Return the seconds of an age such as 7d, 12h, 30m or 2w; None if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text, re.IGNORECASE | re.ASCII)
    return float(found[1]) * _AGE_S[found[2].lower()] if found else None


def shown_size(n_bytes: float) -> str:
    """Return a size as a person reads it: 1.2 GB, in powers of 1024."""
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} bytes" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} GB"
