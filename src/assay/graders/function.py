"""A grader that is a function of the program that uses Assay as a library."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import CoroutineType
from typing import Any

from assay import functions
from assay.errors import PluginError
from assay.graders.program import check_value
from assay.graders.python_code import PythonCode
from assay.graders.python_file import ARGUMENTS
from assay.plugin import Trial
from assay.records.capture import Grade

_PASSES_FROM = 0.5
"""The score that passes, where a function returns nothing but a score."""


@dataclass(kw_only=True)
class FunctionGrader(PythonCode):
    """Calls the function in a forked process, so that one that hangs can be killed.

    The function takes the trial, or any of ARGUMENTS by name, and may be async.
    """

    name = functions.PLUGIN
    only_computes = False
    sees = None  # type: ignore[assignment]
    key: str

    def __post_init__(self) -> None:
        self.name, self.version = functions.split_key(self.key)

    def judge(self, trial: Trial) -> Grade:
        value = self._call(trial)
        if isinstance(value, CoroutineType):
            value = self._runner.run(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"pass": value >= _PASSES_FROM, "score": value}
        return check_value(value)

    @cached_property
    def _call(self) -> Callable[[Trial], Any]:
        function = functions.find(self.key)
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # some functions written in C
            return function
        required = [p for p in parameters if p.default is p.empty and p.kind not in _VARIADIC]
        if len(required) == 1 and (
            required[0].kind is inspect.Parameter.POSITIONAL_ONLY
            or required[0].name not in ARGUMENTS
        ):
            return function
        by_name = {p.name for p in parameters if p.kind in _BY_NAME} & set(ARGUMENTS)
        unknown = [p.name for p in required if p.name not in by_name]
        if unknown or not parameters:
            named = (
                f"an argument {unknown[0]!r} that Assay does not provide"
                if unknown
                else "no argument"
            )
            msg = f"the grader {self.name} takes {named}"
            hint = f"let it take the trial, or any of: {', '.join(ARGUMENTS)}"
            raise PluginError(msg, hint=hint)
        return lambda trial: function(
            **{name: trial if name == "trial" else getattr(trial, name) for name in by_name}
        )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
