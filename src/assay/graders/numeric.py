"""Built-in `numeric`: the answer's number is near enough."""

import re
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from functools import cached_property
from typing import ClassVar, Literal

from assay.errors import InputError, PluginError
from assay.graders.expected import expected_text
from assay.graders.guard import PythonCode
from assay.graders.pattern import compiled
from assay.records.grade import Grade
from assay.seams import Trial

_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?(?<=\d)(?:[eE][-+]?\d{1,4})?"
    r"(?!\.?\d|[eE][-+]?\d)"
)
"""1  -2.5  .5  1,234,567.8  6.02e23; not the 3 of v3 nor the parts of 1.2.3."""
_SHOWN_CHARS = 40


@dataclass
class Numeric(PythonCode):
    """Takes the last number, or the one that pattern's first group finds; all in decimals.

    Near enough: off by at most tolerance, or by at most relative times the expected number.
    """

    name: ClassVar[str] = "numeric"
    expected: str | None = None
    tolerance: float = 0.0
    relative: float = 0.0
    pattern: str | None = None
    against: Literal["", "hint", "reference"] = ""

    def __post_init__(self) -> None:
        if not (self.tolerance >= 0 and self.relative >= 0):
            msg = "numeric: tolerance and relative cannot be negative"
            raise InputError(msg)
        if self._compiled is not None and self._compiled.groups > 1:
            msg = "numeric: pattern may have one group, the number; make the others (?:…)"
            raise InputError(msg)

    def judge(self, trial: Trial) -> Grade:
        """Compare the numbers."""
        wanted_text = expected_text(self.expected, trial, self.against)
        wanted = last_number(wanted_text)
        if wanted is None:
            msg = f"no number to compare with in {wanted_text[:80]!r}"
            raise PluginError(msg)
        got = self._number(trial.output)
        if got is None:
            return Grade(pass_=False, score=0.0, reasoning=f"no number; expected {_short(wanted)}")
        off = abs(got - wanted)
        near = off <= max(Decimal(str(self.tolerance)), abs(wanted) * Decimal(str(self.relative)))
        said = f"got {_short(got)}, expected {_short(wanted)}"
        said += f", off by {_short(off)}" if off else ""
        return Grade(pass_=near, score=float(near), reasoning=said)

    def _number(self, output: str) -> Decimal | None:
        if self._compiled is None:
            return last_number(output)
        found = self._compiled.search(output)
        return last_number(found[found.re.groups] or "") if found else None

    @cached_property
    def _compiled(self) -> re.Pattern[str] | None:
        return compiled(self.pattern) if self.pattern is not None else None


def last_number(text: str) -> Decimal | None:
    """Give the last number of a text."""
    last = None
    for found in _NUMBER.finditer(text):
        last = found
    if last is None:
        return None
    try:
        return Decimal(last[0].replace(",", "").replace("−", "-"))
    except DecimalException:
        return None


def _short(number: Decimal) -> str:
    """Write a number for a sentence; one with very many digits by its size."""
    text = str(number)
    return text if len(text) <= _SHOWN_CHARS else f"{number:.6e}"
