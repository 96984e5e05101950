"""Graders that look at the answer alone: exact, contains, regex, numeric, json-schema."""

import re
from dataclasses import dataclass, field
from decimal import Decimal, DecimalException
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from assay.errors import InputError, PluginError
from assay.graders.python_code import PythonCode, version_with
from assay.plugin import Trial
from assay.plugins import package_version
from assay.records.capture import Grade
from assay.records.rows import decode_json


@dataclass
class Exact(PythonCode):
    """Compares with text, or else with the row's hint or reference."""

    name = "exact"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    can_hang: ClassVar[bool] = False
    text: str | None = None
    against: Literal["", "hint", "reference"] = ""
    trim: bool = True
    ignore_case: bool = False

    def judge(self, trial: Trial) -> Grade:
        wanted = expected_text(self.text, trial, self.against)
        same = self._plain(trial.output) == self._plain(wanted)
        reason = "equal" if same else f"expected {shown(wanted)}, got {shown(trial.output)}"
        return Grade(pass_=same, score=float(same), reasoning=reason)

    def _plain(self, text: str) -> str:
        text = text.strip() if self.trim else text
        return text.casefold() if self.ignore_case else text


@dataclass
class Contains(PythonCode):
    """Passes when all texts are there; the score is the share that is. None given: the hint."""

    name = "contains"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    can_hang: ClassVar[bool] = False
    text: list[str] = field(default_factory=list)
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if "" in self.text:
            msg = "contains: an empty text is in every answer"
            raise InputError(msg, hint="for example: -g contains:Paris")

    def judge(self, trial: Trial) -> Grade:
        wanted = self.text or [expected_text(None, trial, "")]
        output = self._plain(trial.output)
        missing = [text for text in wanted if self._plain(text) not in output]
        reason = f"missing {', '.join(map(shown, missing))}" if missing else "all found"
        return Grade(pass_=not missing, score=1 - len(missing) / len(wanted), reasoning=reason)

    def _plain(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text


@dataclass
class Regex(PythonCode):
    """Python's `re`; inline flags such as (?im) work. negate: it must not match."""

    name = "regex"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    pattern: str = ""
    ignore_case: bool = False
    negate: bool = False

    def __post_init__(self) -> None:
        if not self.pattern:
            msg = "regex: no pattern is given"
            raise InputError(msg, hint=r"for example: -g 'regex:^\d+$'")
        _ = self._compiled  # refuses a bad pattern before anything runs

    def judge(self, trial: Trial) -> Grade:
        found = self._compiled.search(trial.output)
        passed = (found is None) if self.negate else (found is not None)
        reason = f"matched {shown(found[0])}" if found else f"no match of {shown(self.pattern)}"
        return Grade(pass_=passed, score=float(passed), reasoning=reason)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return compiled(self.pattern, re.IGNORECASE if self.ignore_case else 0)


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a user's pattern."""
    try:
        return re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"not a regular expression: {pattern!r}: {error}"
        raise InputError(msg) from error


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

    name = "numeric"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
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
        reason = f"got {_short(got)}, expected {_short(wanted)}"
        reason += f", off by {_short(off)}" if off else ""
        return Grade(pass_=near, score=float(near), reasoning=reason)

    def _number(self, output: str) -> Decimal | None:
        if self._compiled is None:
            return last_number(output)
        found = self._compiled.search(output)
        # The only group, or group 0, the whole match.
        return last_number(found[found.re.groups] or "") if found else None

    @cached_property
    def _compiled(self) -> re.Pattern[str] | None:
        return compiled(self.pattern) if self.pattern is not None else None


def last_number(text: str) -> Decimal | None:
    last = None
    for found in _NUMBER.finditer(text):
        last = found
    if last is None:
        return None
    try:
        return Decimal(last[0].replace(",", "").replace("−", "-"))  # U+2212, the minus sign
    except DecimalException:
        return None


def _short(number: Decimal) -> str:
    """Write a number for a sentence; one with very many digits in scientific notation."""
    text = str(number)
    return text if len(text) <= _SHOWN_CHARS else f"{number:.6e}"


_FENCES = ("```", "~~~")
_FENCE = re.compile(r"(`{3,}|~{3,})[^`]*")


@dataclass
class JsonSchema(PythonCode):
    """The answer is JSON, or has JSON in its last fenced block. schema is a file, or the schema."""

    name = "json-schema"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    file_options = ("schema",)
    schema: str | dict[str, Any] = ""

    def __post_init__(self) -> None:
        if self.schema == "":
            msg = "json-schema: no schema is given"
            raise InputError(msg, hint="for example: -g json-schema:answer.schema.json")
        if isinstance(self.schema, str):
            self.schema = _read(Path(self.schema))
        _ = self._validator  # refuses a bad schema before anything runs

    @cached_property
    def version(self) -> str:
        """The version of the code, the schema and the library that reads it."""
        parts = {"schema": self.schema, "jsonschema": package_version("jsonschema")}
        return version_with(self.code_version, parts)

    def judge(self, trial: Trial) -> Grade:
        """Validate the answer; the reasoning names the first problems."""
        try:
            value = find_json(trial.output)
        except ValueError as error:
            return Grade(pass_=False, score=0.0, reasoning=str(error))
        try:
            problems = [
                f"{error.json_path}: {error.message[:200]}"
                for error in self._validator.iter_errors(value)
            ]
        except RecursionError:
            problems = ["nested too deeply"]
        reason = "; ".join(problems[:3]) or "valid"
        return Grade(pass_=not problems, score=float(not problems), reasoning=reason)

    @cached_property
    def _validator(self) -> Any:
        try:
            library: Any = import_module("jsonschema")
            registry = import_module("referencing").Registry()  # an empty one fetches nothing
        except ImportError as error:
            msg = "the grader json-schema needs the package jsonschema"
            raise PluginError(msg, hint="in a checkout of Assay: pip install '.[grade]'") from error
        kind = library.validators.validator_for(self.schema)
        try:
            kind.check_schema(self.schema)
        except library.SchemaError as error:
            msg = f"not a JSON Schema: {error.json_path}: {error.message}"
            raise InputError(msg) from error
        return kind(self.schema, registry=registry)


def find_json(text: str) -> Any:
    """Read a text as JSON, or else its last fenced block."""
    stripped = text.strip()
    blocks = _fenced_blocks(text)
    for candidate in [stripped, *blocks[-1:]]:
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    msg = "the last fenced block is not JSON" if blocks else "the answer is not JSON"
    raise ValueError(msg)


def _fenced_blocks(text: str) -> list[str]:
    """Return what stands between two lines with the same fence, in one pass over the lines.

    An agent may write a million fences: no line may be looked at once for each of them.
    """
    lines = text.split("\n")
    ends: dict[str, list[int]] = {}
    for number in range(len(lines) - 1, -1, -1):  # backwards, so that the next one is the last
        if lines[number].startswith(_FENCES):
            ends.setdefault(lines[number].rstrip(" \t"), []).append(number)
    blocks, number = [], 0
    while number < len(lines):
        begin = _FENCE.fullmatch(lines[number])
        end = _end_of_block(begin[1], number, ends) if begin else None
        if end is not None:
            blocks.append("".join(f"{line}\n" for line in lines[number + 1 : end]))
            number = end
        number += 1
    return blocks


def _end_of_block(fence: str, begin: int, ends: dict[str, list[int]]) -> int | None:
    """Return the next line that closes a fence; one of tildes may be closed by a shorter one."""
    shorter = [mark for mark in ends if fence.startswith(mark)] if fence[0] == "~" else [fence]
    for mark in sorted(shorter, key=len, reverse=True):
        numbers = ends.get(mark, [])
        while numbers and numbers[-1] <= begin:
            numbers.pop()
        if numbers:
            return numbers[-1]
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"schema not found: {path}: {error.strerror}"
        raise InputError(msg) from error
    schema: dict[str, Any] = decode_json(str(path), data, dict[str, Any])
    return schema


def expected_text(given: str | None, trial: Trial, against: str) -> str:
    """Return the expected text: the option, else the row's hint, else its reference."""
    found = given
    if found is None and against in ("", "hint"):
        found = trial.hint
    if found is None and against in ("", "reference"):
        found = trial.reference
    if given is None and found is not None and not found.strip():
        msg = "nothing to compare with: what the row expects is empty, which any answer would meet"
        raise PluginError(msg)
    if found is None:
        what = against or "hint or reference"
        msg = f"nothing to compare with: the row has no {what} and the grader was given no text"
        raise PluginError(msg)
    return found


def shown(text: str, n_chars: int = 80) -> str:
    """Shorten a text for a sentence; line ends and quotes are made visible."""
    return repr(text if len(text) <= n_chars else f"{text[:n_chars]}…")
