"""Cut and fence texts for reports, and write them out in large pieces."""

import re
from collections.abc import Iterable
from typing import BinaryIO

_BLOCK = 1 << 20
_TICKS = re.compile(r"`{3,}")


def head(text: str, units: int) -> str:
    """Give the first UTF-16 units of a text (as the seed counts), never half a character."""
    cut = text[:units]
    if cut.isascii():
        return cut
    return cut.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "ignore")


def shorten(text: str, units: int) -> str:
    """Give the text, or its head with three dots behind."""
    cut = head(text, units)
    return text if len(cut) == len(text) else cut + "..."


def one_text(text: str | list[str], between: str) -> str:
    """Give the turns of an input as one text."""
    return text if isinstance(text, str) else between.join(text)


def fence(text: str) -> str:
    """Give backticks enough that the text cannot end its own fence."""
    if "```" not in text:
        return "```"
    return "`" * (max(map(len, _TICKS.findall(text))) + 1)


def write_pieces(out: BinaryIO, pieces: Iterable[str]) -> None:
    """Write many small texts in few large writes."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > _BLOCK:
            out.write("".join(held).encode())
            held, size = [], 0
    out.write("".join(held).encode())
