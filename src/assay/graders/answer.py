"""Get and read what a grader answered, strictly: types, 0..1, no NaN."""

import math
from typing import Any

import msgspec

from assay.errors import PluginError
from assay.records.grade import Grade
from assay.seams import Served


def ask_served(served: Served, question: bytes, timeout_s: float) -> bytes:
    """Put a question to a running program; say in its failures who failed."""
    try:
        return served.ask(question, timeout_s)
    except PluginError as error:
        msg = f"Grader {error.message}"
        raise PluginError(msg) from error


def parse_answer(answer: bytes) -> Grade:
    """Read one JSON object."""
    text = answer.decode("utf-8-sig", "replace").strip()
    if not text:
        msg = "Grader produced no output"
        raise PluginError(msg)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        msg = f"Grader output is not valid JSON: {text[:100]}"
        raise PluginError(msg) from error
    return check_answer(value)


def check_value(value: Any) -> Grade:
    """Check what Python code returned: it must also be possible to write it down."""
    if isinstance(value, bool):
        return Grade(pass_=value, score=float(value))
    if isinstance(value, Grade):
        value = msgspec.to_builtins(value)
    grade = check_answer(value)
    if not grade.outcome and (not grade.reasoning or grade.reasoning.isascii()):
        return grade
    try:
        msgspec.json.encode(grade)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"Invalid grader result: cannot be written as JSON: {error}"
        raise PluginError(msg) from error
    return grade


def check_answer(value: Any) -> Grade:
    """Check a value that should be a grade."""
    if isinstance(value, dict) and "version" in value:
        value = {name: said for name, said in value.items() if name != "version"}
    try:
        grade = msgspec.convert(value, Grade)
    except msgspec.ValidationError as error:
        msg = f"Invalid grader result: {error}"
        raise PluginError(msg) from error
    if math.isnan(grade.score):
        msg = "Invalid grader result: score is not a number - at `$.score`"
        raise PluginError(msg)
    return grade
