"""The query language of the search: `tool:Bash rm`, `failed:true cost>0.1`, `-not "exact words"`.

The page has the same in query.js, for reports without a server; tests/viewer/queries.json is run
on both. Words are looked for within one part of a trial: a step, the answer, the input or a
grader's reason. So a hit is a place that one can open.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from assay.errors import InputError
from assay.records.tools import kind_meant, kind_of_tool, paths_in

_WORD = re.compile(r"[^\W_]+")
_TERM = re.compile(r'(-?)(?:([a-z]+)(>=|<=|:|=|>|<))?(?:"([^"]*)"?|(\S+))', re.IGNORECASE)
_AMOUNT = re.compile(r"\$?(\d+\.?\d*|\.\d+)(ms|s|m|h)?", re.IGNORECASE | re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
NUMBERS = ("cost", "time", "steps", "score")
FLAGS = ("failed", "passed", "measured")
NAMES = ("run", "category", "cause")
_PART_WORDS = ("", "tool", "file")
TYPES = ("thought", "message", "plan", "tool", "answer", "input", "reason")
_FIELDS = {*NUMBERS, *FLAGS, *NAMES, "tool", "file", "id", "exit", "error", "type"}
_MOST_QUERY = 1000
_AROUND = 70


class Term(msgspec.Struct, frozen=True):
    """One condition; words of a text, or a value with its comparison."""

    field: str
    op: str
    text: str
    words: tuple[str, ...] = ()
    prefix: bool = False
    value: float | bool | None = None
    negated: bool = False
    kind: str = ""
    """What the tools do that are asked for, whatever their agents call them."""


class Part(NamedTuple):
    """A place of a trial in which words are looked for."""

    kind: str
    step: int | None
    text: str
    call: dict[str, Any] = {}  # noqa: RUF012 - never changed


class TrialFacts(NamedTuple):
    """What a query may ask of a trial as a whole; None is not known or not measured."""

    run: str
    id: str
    category: str
    cause: str
    passed: bool | None
    cost: float | None
    time: float | None
    steps: float
    score: float | None


def parse(text: str) -> list[Term]:
    """Read a query; one that cannot be understood is refused with what is wrong."""
    if len(text) > _MOST_QUERY:
        msg = f"the query is longer than {_MOST_QUERY} characters"
        raise InputError(msg)
    terms: list[Term] = []
    for found in _TERM.finditer(text):
        # In `rm -rf /srv` the -rf is an option of a command: text, as is all that begins with -
        # behind a word. A field or a phrase is negated wherever it stands.
        follows = any(term.field == "" and not term.negated for term in terms)
        terms.append(_term(*found.groups(default=""), follows=follows))
    return terms


def _term(minus: str, name: str, op: str, quoted: str, bare: str, *, follows: bool) -> Term:
    field, value = name.lower(), quoted or bare
    if field and field not in _FIELDS:  # not one of ours: `http://x`, `a=b` are text
        field, op, value = "", "", f"{name}{op}{value}"
    negated = bool(minus) and (bool(field) or bool(quoted) or not follows)
    if field in (*NUMBERS, "exit"):
        return Term(field, op, value, value=_number(field, value), negated=negated)
    if field in (*FLAGS, "error"):
        if value.lower() not in ("true", "false"):
            msg = f'{field}: "{value}" is neither true nor false'
            raise InputError(msg)
        return Term(field, op, value, value=value.lower() == "true", negated=negated)
    if field == "type" and value.lower() not in TYPES:
        msg = f'type: "{value}" is none of {", ".join(TYPES)}'
        raise InputError(msg)
    prefix = value.endswith("*") and not quoted
    text = value.removesuffix("*") if prefix else value
    term = Term(field, op, text.lower(), words(text), prefix, negated=negated)
    if field == "tool" and not quoted and not prefix:  # in quotes it is a name and nothing else
        term = msgspec.structs.replace(term, kind=kind_meant(term.text))
    return term


def words(text: str) -> tuple[str, ...]:
    """Split a text into words: letters and digits, in lower case."""
    return tuple(_WORD.findall(text.lower()))


def _number(field: str, text: str) -> float:
    found = _AMOUNT.fullmatch(text)
    if found is None or (found[2] and field != "time"):
        msg = f'{field}: "{text}" is not a number'
        raise InputError(msg)
    return float(found[1]) * _UNITS[found[2].lower() if found[2] else "s"]


def is_about_trial(term: Term) -> bool:
    """Whether a term asks about a trial as a whole, and not about a part of it."""
    return term.field in (*NUMBERS, *FLAGS, *NAMES, "id")


def matches_trial(terms: list[Term], facts: TrialFacts) -> bool:
    return all(_holds(term, facts) != term.negated for term in terms if is_about_trial(term))


def _holds(term: Term, facts: TrialFacts) -> bool:
    if term.field in NUMBERS:
        return compare(term, getattr(facts, term.field))
    if term.field in FLAGS:
        known = facts.passed is not None
        now = {"failed": facts.passed is False, "passed": facts.passed is True, "measured": known}
        return now[term.field] == term.value
    if term.field == "id":
        return has_words(facts.id, term)
    name = str(getattr(facts, term.field)).lower()
    return name.startswith(term.text) if term.prefix else name == term.text


def compare(term: Term, number: float | None) -> bool:
    """Compare a number as the term says; one that is not known is neither."""
    if number is None or not isinstance(term.value, (int, float)):
        return False
    wanted = term.value
    return {
        ">": number > wanted,
        "<": number < wanted,
        ">=": number >= wanted,
        "<=": number <= wanted,
    }.get(term.op, number == wanted)


def hits(terms: list[Term], trial: dict[str, Any], input_: Any) -> Iterator[Part]:
    """Yield the parts of a trial that match; without terms about parts, the trial itself."""
    asked = [term for term in terms if not is_about_trial(term)]
    if not asked:
        yield Part("trial", None, _text_of(input_))
        return
    for part in parts(trial, input_):
        if all(_in_part(term, part) != term.negated for term in asked):
            yield part


def _in_part(term: Term, part: Part) -> bool:
    call = part.call
    if term.field == "":
        return has_words(part.text, term)
    if term.field == "type":
        return part.kind == term.text
    if not call:
        return False
    if term.field == "tool":
        return _is_tool(str(call.get("name", "")), term)
    if term.field == "file":
        return any(has_words(path, term) for path in paths_in(call.get("input")))
    code = call.get("exitCode")
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    if term.field == "exit":
        return compare(term, code)
    failed = call.get("status") == "failed" or bool(call.get("error")) or bool(code)
    return failed == term.value


def _is_tool(name: str, term: Term) -> bool:
    lower = name.lower()
    named = lower.startswith(term.text) if term.prefix else lower == term.text
    return named or (bool(term.kind) and kind_of_tool(name) == term.kind)


def has_words(text: str, term: Term) -> bool:
    """Whether the words of a term follow each other in a text; of the last, its beginning may."""
    if not term.words:
        return term.text in text.lower()  # only signs, such as ->
    return _pattern(term).search(text.lower()) is not None


def _pattern(term: Term) -> re.Pattern[str]:
    between = r"[\W_]+"
    body = between.join(map(re.escape, term.words))
    return re.compile(rf"(?<![^\W_]){body}" + ("" if term.prefix else r"(?![^\W_])"))


def parts(trial: dict[str, Any], input_: Any) -> Iterator[Part]:
    """Yield everything of a trial in which something can be found."""
    yield Part("input", None, _text_of(input_))
    steps = trial.get("trajectory")
    for number, step in enumerate(steps if isinstance(steps, list) else [], 1):
        if isinstance(step, dict):
            yield _step(number, step)
    yield Part("answer", None, _text_of(trial.get("output")))
    yield Part("reason", None, _reason(trial))


def _reason(trial: dict[str, Any]) -> str:
    score, failure = trial.get("score"), trial.get("failure")
    grade = score if isinstance(score, dict) else trial
    told = failure.get("message") if isinstance(failure, dict) else None
    return "\n".join(filter(None, map(_text_of, (grade.get("reasoning"), told))))


def _step(number: int, step: dict[str, Any]) -> Part:
    if step.get("type") == "tool_call":
        texts = [_text_of(step.get(key)) for key in ("name", "input", "output", "error")]
        return Part("tool", number, "\n".join(filter(None, texts)), step)
    kind = step.get("type")
    text = _text_of(step.get("content")) or _text_of(step.get("entries"))
    return Part(kind if kind in TYPES else "message", number, text)


def _text_of(value: Any) -> str:
    """Join all texts and whole numbers of a value; keys do not count."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return ""
    if isinstance(value, int):
        return str(value)
    inner = value.values() if isinstance(value, dict) else value
    return "\n".join(filter(None, map(_text_of, inner)))


def snippet(text: str, terms: list[Term]) -> str:
    """Cut a text around the first word that was looked for, on one line."""
    found = [
        match.start()
        for term in terms
        if term.field in _PART_WORDS and term.words and not term.negated
        if (match := _pattern(term).search(text.lower())) is not None
    ]
    at = min(found, default=0)
    start, end = max(0, at - _AROUND), at + 2 * _AROUND
    cut = " ".join(text[start:end].split())
    return ("…" if start else "") + cut + ("…" if end < len(text) else "")
