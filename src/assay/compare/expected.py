"""What a prompt expects, as texts that may appear in what an agent reads."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.compare.calls import Call
from assay.records.cases import open_prompts
from assay.records.spec import HINT
from assay.records.trial.views import ExplainedRow

_FIELDS = ("hint", "reference", "expected", "answer", "solution", "target")
_LEAST = 3


def expected_texts(row: ExplainedRow) -> list[str]:
    """Return what graders look for: texts of the row, of its metadata and of `expect.contains`."""
    metadata = row.metadata or {}
    given = [getattr(row, name) for name in _FIELDS]
    given += [metadata.get(name) for name in _FIELDS]
    if isinstance(row.expect, dict):
        given.append(row.expect.get("contains"))
        files = row.expect.get("file")
        given.append(list(files.values()) if isinstance(files, dict) else None)
    found = dict.fromkeys(text.strip() for one in given for text in _strings(one))
    return [text for text in found if len(text) >= _LEAST]


def read_expectations(path: Path | None) -> dict[str, ExplainedRow]:
    """Read what the prompts of a file, or of stdin, expect, by id."""
    with open_prompts(path, hint=HINT) as rows:
        return {row.id: row for row in rows.rows(msgspec.json.Decoder(ExplainedRow))}


def expect_also(row: ExplainedRow, prompt: ExplainedRow | None) -> None:
    """Complete a row with what its prompt expects."""
    for name in (*_FIELDS, "expect", "graders", "files", "honeypot") if prompt else ():
        if getattr(row, name) is None:
            setattr(row, name, getattr(prompt, name))


def written_by_agent(calls: Sequence[Call]) -> list[tuple[int, str]]:
    """Return what the agent itself wrote into calls, with the numbers of their steps."""
    return [(call.number, str(call.step.input)) for call in calls if call.kind != "read"]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
