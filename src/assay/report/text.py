"""Cut, join and fence texts, and print numbers for people or as JavaScript prints them in JSON."""

import re
from collections.abc import Sequence
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


_MOST_DIGITS = 4
_EQUAL = 1e-9


def percents(
    *rates: float, difference: float | None = None, fewest: int = 0, scale: int = 100
) -> list[str]:
    """Write rates in percent, with so many digits that none seems to be 0, 100 or another rate.

    difference is that of the first two: as it is rounded, it should be that of what is shown.
    A scale of 1 writes fractions.
    """
    digits, most = fewest, max(fewest, _MOST_DIGITS if scale > 1 else _MOST_DIGITS + 2)
    while digits < most and _is_blurred(rates, difference, digits, scale):
        digits += 1
    return [f"{scale * rate:.{digits}f}" for rate in rates]


def _is_blurred(rates: Sequence[float], difference: float | None, digits: int, scale: int) -> bool:
    shown = [round(scale * rate, digits) for rate in rates]
    for n, (rate, seen) in enumerate(zip(rates, shown, strict=True)):
        if any(abs(seen - scale * end) < _EQUAL < abs(rate - end) for end in (0.0, 1.0)):
            return True
        if any(seen == shown[i] and abs(rate - rates[i]) > _EQUAL for i in range(n)):
            return True
    if digits or difference is None:  # one digit is enough for people to do the sum
        return False
    return abs(shown[1] - shown[0] - round(scale * difference)) > _EQUAL


def points(
    difference: float,
    ends: Sequence[float],
    margin: float,
    *,
    scale: int = 100,
    fewest: int = 0,
) -> list[str]:
    """Write a difference and its limits so that no limit seems to lie on zero or on the margin."""
    digits, lines = fewest, (-margin, 0.0, margin)
    most = max(digits, _MOST_DIGITS)
    values = (difference, *ends)
    while digits < most and any(
        abs(value - line) > _EQUAL and round(scale * value, digits) == round(scale * line, digits)
        for value in values
        for line in lines
    ):
        digits += 1
    shown = [f"{scale * value:+.{digits}f}" for value in values]
    return ["0" if float(text) == 0.0 else text for text in shown]


def money_text(usd: float) -> str:
    """Write dollars with two digits that say something."""
    if usd == 0 or usd >= 1:
        return f"${usd:.2f}"
    return f"${usd:.3f}" if usd >= 0.01 else f"${usd:.2g}" if usd >= 0.0001 else f"${usd:.6f}"


def seconds_text(seconds: float) -> str:
    """Write a short time as people say it: 0.14 s, 12 s, 3.5 min."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


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
