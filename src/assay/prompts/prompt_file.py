"""Read a prompt file, check every line before anything runs, and choose among the prompts."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.records.jsonl import decode_row, read_lines
from assay.records.prompt import Prompt

type PromptRow = tuple[Prompt, dict[str, Any]]
HINT = 'one JSON object per line, each with a unique id: {"id": "a", "input": "Say hello"}'


def read_prompts(path: Path | None) -> list[PromptRow]:
    """Read all prompts with their unknown fields; stdin, which must hold some, if no path."""
    rows: list[PromptRow] = []
    places: dict[str, str] = {}
    for place, line in read_lines(path):
        prompt, extra = decode_row(place, line, Prompt, hint=HINT)
        _check(prompt, place, places)
        places[prompt.id] = place
        rows.append((prompt, extra))
    if not rows and path is None:
        msg = "stdin: no prompts"
        raise InputError(msg, hint=HINT)
    return rows


def choose(rows: Iterable[PromptRow], filters: Iterable[str], limit: int | None) -> list[PromptRow]:
    """Keep prompts that fit every filter: an id pattern, or metadata as key=pattern."""
    kept = [row for row in rows if all(_fits(row[0], text) for text in filters)]
    return kept if limit is None else kept[:limit]


def _check(prompt: Prompt, place: str, places: dict[str, str]) -> None:
    if not prompt.id:
        msg = f'{place}: "id" is empty; every prompt needs a unique id'
        raise InputError(msg)
    if prompt.id in places:
        msg = f'{place}: id "{prompt.id}" was used before, at {places[prompt.id]}'
        raise InputError(msg, hint="give every prompt an id of its own")
    if not prompt.turns:
        msg = f'{place}: "input" is an empty list; a prompt needs at least one turn'
        raise InputError(msg)
    if prompt.timeout is not None and prompt.timeout <= 0:
        msg = f'{place}: "timeout" is {prompt.timeout}; it must be more than 0 ms'
        raise InputError(msg)


def _fits(prompt: Prompt, text: str) -> bool:
    key, equals, pattern = text.partition("=")
    if not equals:
        return fnmatchcase(prompt.id, text)
    return any(fnmatchcase(value, pattern) for value in _values(prompt.metadata.get(key)))


def _values(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if item is not None:
            yield ("true" if item else "false") if isinstance(item, bool) else str(item)
