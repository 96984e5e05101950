"""Built-in `regex`: the answer matches a pattern somewhere."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from assay.errors import InputError
from assay.graders.expected import shown
from assay.graders.guard import PythonCode
from assay.records.grade import Grade
from assay.seams import Trial


@dataclass
class Regex(PythonCode):
    """Python's `re`; inline flags such as (?im) work. negate: it must not match."""

    name: ClassVar[str] = "regex"
    pattern: str = ""
    ignore_case: bool = False
    negate: bool = False

    def __post_init__(self) -> None:
        if not self.pattern:
            msg = "regex: no pattern is given"
            raise InputError(msg, hint=r"for example: -g 'regex:^\d+$'")
        _ = self._compiled

    def judge(self, trial: Trial) -> Grade:
        """Search the answer."""
        found = self._compiled.search(trial.output)
        passed = (found is None) if self.negate else (found is not None)
        said = f"matched {shown(found[0])}" if found else f"no match of {shown(self.pattern)}"
        return Grade(pass_=passed, score=float(passed), reasoning=said)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return compiled(self.pattern, re.IGNORECASE if self.ignore_case else 0)


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile an operator's pattern."""
    try:
        return re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"not a regular expression: {pattern!r}: {error}"
        raise InputError(msg) from error
