"""Read the sessions that Claude Code keeps below ~/.claude/projects."""

from collections.abc import Container, Iterable, Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from assay.adapters.claude.stream import ClaudeTurn
from assay.adapters.prices import with_cost
from assay.adapters.reading import (
    epoch_ms,
    integer_at,
    object_at,
    objects_at,
    or_unset,
    parse_line,
    text_at,
    value_at,
)
from assay.plugin import AgentInfo, PastSession, PastTurn, Usage
from assay.records.recording import RawLine

_NOT_ASKED = (
    *("<command-", "<local-command-", "<bash-", "<system-reminder>", "<task-notification>"),
    *("Caveat: The messages below", "[Request interrupted by user"),
)
"""Messages that the program itself wrote in the user's name begin so."""


class _Line(NamedTuple):
    raw: bytes
    event: dict[str, Any]
    at_ms: float


def read_transcript(path: Path, lines: Iterable[bytes]) -> PastSession | None:
    """Return the session in a transcript; None if the user has said nothing in it.

    The work of sub-agents stands in files of its own, or in lines that are marked as theirs; of it
    only the calls that started them are read.
    """
    known = list(_messages(lines))
    asked = [index for index, line in enumerate(known) if _asked(line.event) is not None]
    if not asked:
        return None
    start_ms = known[asked[0]].at_ms
    turns = [
        _turn(number, known[first:last], start_ms)
        for number, (first, last) in enumerate(pairwise((*asked, len(known))), 1)
    ]
    events = [line.event for line in known]
    return PastSession(
        id=text_at(events[0], "sessionId") or path.stem,
        path=path,
        turns=turns,
        agent=AgentInfo(
            adapter="claude",
            version=or_unset(_last(events, "version")),
            model=or_unset(_last(events, "message", "model")),
        ),
        start_ms=start_ms,
        end_ms=max(line.at_ms for line in known),
        cwd=_last(events, "cwd"),
        branch=_last(events, "gitBranch"),
    )


def _last(events: list[dict[str, Any]], *names: str) -> str | None:
    found = (text_at(event, *names) for event in reversed(events))
    return next((text for text in found if text and text != "<synthetic>"), None)


def _messages(lines: Iterable[bytes]) -> Iterator[_Line]:
    at_ms = 0.0
    for raw in lines:
        event = parse_line(raw)
        if text_at(event, "type") not in ("user", "assistant") or event.get("isSidechain") is True:
            continue
        at_ms = epoch_ms(event.get("timestamp")) or at_ms
        yield _Line(raw, event, at_ms)


def _asked(event: dict[str, Any]) -> str | None:
    """Return what the user asked in a line; None for a result of a tool and the like."""
    if event.get("type") != "user" or event.get("isMeta") or event.get("isCompactSummary"):
        return None
    text = text_at(event, "message", "content")
    if text is None:
        parts = objects_at(event, "message", "content")
        text = "\n".join(text_at(part, "text") or "" for part in parts)
    text = text.strip()
    return None if not text or text.startswith(_NOT_ASKED) else text


def _turn(number: int, lines: list[_Line], start_ms: float) -> PastTurn:
    reader = ClaudeTurn(number)
    for line in lines:
        reader.feed(RawLine(max(0, round(line.at_ms - start_ms)), line.raw))
    found = usages_of((line.event for line in lines), None)
    return PastTurn(
        text=_asked(lines[0].event) or "",
        at_ms=lines[0].at_ms,
        steps=reader.steps,
        usage=reduce(Usage.plus, found) if found else None,
    )


def usages_of(events: Iterable[Any], answers: Container[str] | None) -> list[Usage]:
    """Return what the answers with these ids used, all answers without any.

    Each block of an answer has a line of its own with the id of its message; the last one counts.
    """
    last: dict[str, tuple[str, dict[str, Any]]] = {}
    for event in events:
        name, fields = text_at(event, "message", "id"), object_at(event, "message", "usage")
        if name is not None and fields and (answers is None or name in answers):
            last[name] = str(value_at(event, "message", "model")), fields
    return [
        with_cost(model, counted(fields, OF_API), output_includes_reasoning=True)
        for model, fields in last.values()
    ]


OF_API = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
"""Names of counts in the provider's answers."""


def counted(fields: dict[str, Any], names: dict[str, str]) -> Usage:
    """Return counts by our names."""
    counts: dict[str, Any] = {}
    for ours, theirs in names.items():
        counts[ours] = or_unset(integer_at(fields, theirs))
    if counts.get("reasoning_tokens") == 0:  # the CLI also writes 0 if it does not know
        counts["reasoning_tokens"] = UNSET
    return Usage(**counts)
