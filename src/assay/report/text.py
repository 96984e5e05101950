"""Cut, join and fence texts for reports."""

import re

_TICKS = re.compile(r"`{3,}")


def head(text: str, units: int) -> str:
    """Give the first UTF-16 units of a text (as the seed counts), never half a character."""
    cut = text[:units]
    if cut.isascii():
        return cut
    return cut.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "ignore")


def shorten(text: str, units: int) -> str:
    """Give the text, or its head with three dots behind."""
    if text.isascii():
        return text if len(text) <= units else text[:units] + "..."
    if 2 * len(text) <= units:
        return text
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
