"""Read Gemini CLI's own session files: thoughts, what tools really answered, tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.adapters.events import parse_line
from assay.adapters.moments import epoch_ms

_TOKENS = ("input", "output", "cached", "thoughts", "tool", "total")
type Tokens = dict[str, int]


@dataclass
class Answer:
    """One answer of the model, in its last version."""

    id: str
    at_ms: float | None
    text: str = ""
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    tokens: Tokens | None = None
    model: str | None = None


@dataclass
class Segment:
    """What one process wrote."""

    at_ms: float | None = None
    answers: list[Answer] = field(default_factory=list)

    @property
    def tokens(self) -> Tokens | None:
        """Of all its answers."""
        known = [answer.tokens for answer in self.answers if answer.tokens is not None]
        if not known:
            return None
        return {name: sum(tokens.get(name, 0) for tokens in known) for name in _TOKENS}


@dataclass
class Session:
    """One session, or that of a sub-agent."""

    id: str = ""
    kind: str = "main"
    segments: list[Segment] = field(default_factory=list)


def read_sessions(kept: Path | None) -> dict[str, Session]:
    """Read all session files among the kept ones, by session; one may have several files."""
    if kept is None:
        return {}
    found: dict[str, Session] = {}
    for path in sorted(kept.rglob("*.jsonl")):
        with path.open("rb") as file:
            session = read_session(file)
        if session.id in found:
            found[session.id].segments += session.segments
        elif session.id:
            found[session.id] = session
    return found


def read_session(lines: Iterable[bytes]) -> Session:
    """Read one file: each header begins what one process wrote; a later version wins."""
    session = Session()
    known: dict[str, Answer] = {}
    for line in lines:
        entry = parse_line(line)
        if not isinstance(entry, dict):
            continue
        if "sessionId" in entry and "type" not in entry:
            session.id = session.id or str(entry["sessionId"])
            session.kind = str(entry.get("kind", session.kind))
            session.segments.append(Segment(epoch_ms(entry.get("startTime"))))
        elif entry.get("type") == "gemini" and isinstance(entry.get("id"), str):
            _take_answer(entry, session, known)
    return session


def _take_answer(entry: dict[str, Any], session: Session, known: dict[str, Answer]) -> None:
    answer = known.get(entry["id"])
    if answer is None:
        answer = known[entry["id"]] = Answer(entry["id"], epoch_ms(entry.get("timestamp")))
        if not session.segments:
            session.segments.append(Segment())
        session.segments[-1].answers.append(answer)
    answer.text = _text(entry.get("content")) or answer.text
    thoughts = entry.get("thoughts")
    if isinstance(thoughts, list) and thoughts:
        answer.thoughts = [text for thought in thoughts if (text := _thought(thought))]
    calls = entry.get("toolCalls")
    if isinstance(calls, list):
        named = [call for call in calls if isinstance(call, dict)]
        answer.calls = [call for call in named if isinstance(call.get("id"), str)]
    tokens = entry.get("tokens")
    if isinstance(tokens, dict):
        answer.tokens = {name: n for name in _TOKENS if isinstance(n := tokens.get(name), int)}
    if isinstance(entry.get("model"), str):
        answer.model = entry["model"]


def _thought(thought: Any) -> str:
    """Put subject and description together as the model wrote them."""
    if isinstance(thought, str):
        return thought
    if not isinstance(thought, dict):
        return ""
    subject, description = thought.get("subject"), thought.get("description")
    parts = [f"**{subject}**" if subject else "", str(description or "")]
    return "\n".join(part for part in parts if part)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))
