"""Paths of a schema, with the regular expressions in them; apart, because jsonpath takes 20 ms."""

from collections.abc import Iterator
from typing import Any

import jsonpath
from jsonpath.function_extensions import ExpressionType, FilterFunction

from assay.records.patterns import Pattern, pattern_of, work_here


class _Function(FilterFunction):  # type: ignore[misc]  # jsonpath is read without its types
    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012 - as the base has it
    return_type = ExpressionType.LOGICAL

    def __init__(self, method: str) -> None:
        self._method = method

    def __call__(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        found = pattern_of(pattern)
        return found is not None and getattr(found, self._method)(value, work_here())


def compile_path(path: str) -> Any:
    """Compile a path; the patterns that are written in it must be supported."""
    environment = jsonpath.JSONPathEnvironment(strict=True)
    for name in ("match", "search"):
        environment.function_extensions[name] = _Function(name)
    query = environment.compile(path)
    for text in _written_patterns(query):
        Pattern(text)
    return query


def _written_patterns(query: Any) -> Iterator[str]:
    waiting = [
        selector.expression
        for segment in query.segments
        for selector in segment.selectors
        if hasattr(selector, "expression")
    ]
    while waiting:
        expression = waiting.pop()
        waiting += expression.children()
        if getattr(expression, "name", None) in ("match", "search"):
            text = getattr(expression.args[1], "value", None)
            if isinstance(text, str):
                yield text
