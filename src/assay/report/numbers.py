"""Print numbers as JSON in JavaScript does: 1.0 is 1, 1e3 is 1000, exact ties round up."""

from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

_LARGEST_PLAIN = 21
_SMALLEST_PLAIN = -7


def js_number(value: float) -> str:
    """Give the shortest text that reads back as this number."""
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


@lru_cache(maxsize=4096)
def fixed(value: float, places: int) -> str:
    """Round the exact binary value, half away from zero: 0.0625 with 3 places is 0.063."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))
