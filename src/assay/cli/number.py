"""Numbers on a command line, read strictly. A file of its own: it needs nothing but click."""

from math import isnan
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range; "nan" is in none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
