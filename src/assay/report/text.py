"""Cut, join and fence texts, and print numbers for people or as JavaScript prints them in JSON."""

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache

_TICKS = re.compile(r"`{3,}")


def head(text: str, units: int) -> str:
    """Return the first UTF-16 units of a text (as the seed counts), never half a character."""
    cut = text[:units]
    if cut.isascii():
        return cut
    # "ignore" drops the first half of a pair that the cut went through.
    return cut.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "ignore")


def shorten(text: str, units: int) -> str:
    """Return the text, or its head followed by three dots."""
    if text.isascii():
        return text if len(text) <= units else text[:units] + "..."
    if 2 * len(text) <= units:  # no character takes more than two units
        return text
    cut = head(text, units)
    return text if len(cut) == len(text) else cut + "..."


def one_text(text: str | list[str], between: str) -> str:
    """Return the turns of an input as one text."""
    return text if isinstance(text, str) else between.join(text)


def fence(text: str) -> str:
    """Return a fence of so many backticks that the text cannot close it."""
    if "```" not in text:
        return "```"
    return "`" * (max(map(len, _TICKS.findall(text))) + 1)


def number(value: float | None, digits: int = 1, unit: str = "", *, sign: bool = False) -> str:
    """Format a number; an unknown one is a dash, never a zero."""
    return "-" if value is None else f"{value:{'+' if sign else ''}.{digits}f}{unit}"


def money(usd: float | None) -> str:
    """Format US dollars with four digits after the point; an unknown amount is a dash."""
    return "-" if usd is None else f"${usd:.4f}"


# Powers of ten between which JavaScript prints a number without an exponent.
_LARGEST_PLAIN = 21
_SMALLEST_PLAIN = -7


def js_number(value: float) -> str:
    """Return the shortest text that reads back as this number."""
    text = repr(value)
    if type(value) is int:
        return text
    if "e" not in text:
        text = text.removesuffix(".0")
        return "0" if text == "-0" else text
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if _SMALLEST_PLAIN < power < _LARGEST_PLAIN:
        return format(Decimal(text), "f")
    return f"{mantissa.removesuffix('.0')}e{power:+d}"


_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)  # enough digits for the largest float


@lru_cache(maxsize=4096)
def fixed(value: float, places: int) -> str:
    """Round the exact binary value, half away from zero: 0.0625 with 3 places is 0.063."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-places), context=_EXACT))
