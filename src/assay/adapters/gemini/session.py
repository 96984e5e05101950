"""Read Gemini CLI's own session files, and merge them with the stream."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import UNSET

from assay.adapters.gemini.stream import GeminiTurn, Text, Use, todo_step, tool_step
from assay.adapters.prices import with_cost
from assay.adapters.reading import (
    TrialClock,
    epoch_ms,
    integer_at,
    list_at,
    objects_at,
    or_unset,
    parse_line,
    text_at,
    value_at,
)
from assay.adapters.vendor import add_usage
from assay.plugin import AgentInfo, PastSession, PastTurn
from assay.records.capture import AnyStep, Message, Thought, Usage

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


@dataclass(frozen=True)
class UserMessage:
    """A message of the user."""

    text: str
    at_ms: float | None
    n_before: int
    """How many answers of its segment came before it."""


@dataclass
class Segment:
    """What one process wrote into the session file."""

    at_ms: float | None = None
    answers: list[Answer] = field(default_factory=list)
    asked: list[UserMessage] = field(default_factory=list)

    @property
    def tokens(self) -> Tokens | None:
        known = [answer.tokens for answer in self.answers if answer.tokens is not None]
        if not known:
            return None
        return {name: sum(tokens.get(name, 0) for tokens in known) for name in _TOKENS}


@dataclass
class Session:
    """The session of the agent or of a sub-agent."""

    id: str = ""
    kind: str = "main"
    path: Path = Path()
    """Its first file."""
    segments: list[Segment] = field(default_factory=list)


def read_sessions(kept: Path | None) -> dict[str, Session]:
    """Read the session files among the kept ones, keyed by session id; one may have several."""
    if kept is None:
        return {}
    found: dict[str, Session] = {}
    for path in sorted(kept.rglob("*.jsonl")):
        with path.open("rb") as file:
            session = read_session(file)
        if session.id in found:
            found[session.id].segments += session.segments
        elif session.id:
            session.path = path
            found[session.id] = session
    for session in found.values():
        _fill_empty_segments(session.segments)
    return found


def _fill_empty_segments(segments: list[Segment]) -> None:
    """Give each process what it wrote into the file of an earlier one.

    When a minute has passed since then, a process makes a file of its own with nothing but a
    header, and goes on in the earlier file without one.
    """
    for empty in reversed(segments):
        start_ms = empty.at_ms
        if empty.answers or empty.asked or start_ms is None:
            continue
        for other in segments:
            kept = [one for one in other.answers if one.at_ms is None or one.at_ms < start_ms]
            if other is empty or other.at_ms is None or other.at_ms > start_ms:
                continue
            empty.answers += [one for one in other.answers if one not in kept]
            for message in other.asked:
                if message.at_ms is not None and message.at_ms >= start_ms:
                    n_before = max(0, message.n_before - len(kept))
                    empty.asked.append(replace(message, n_before=n_before))
            other.asked = [m for m in other.asked if m.at_ms is None or m.at_ms < start_ms]
            other.answers = kept


def read_session(lines: Iterable[bytes]) -> Session:
    """Read one file: each process starts with a header; later versions of an answer replace it."""
    session = Session()
    known: dict[str, Answer] = {}
    for line in lines:
        entry = parse_line(line)
        if not isinstance(entry, dict):
            continue
        # Only a header has no type.
        if "sessionId" in entry and "type" not in entry:
            session.id = session.id or str(entry["sessionId"])
            session.kind = str(entry.get("kind", session.kind))
            session.segments.append(Segment(epoch_ms(entry.get("startTime"))))
        elif entry.get("type") == "gemini" and isinstance(entry.get("id"), str):
            _take_answer(entry, session, known)
        elif entry.get("type") == "user" and (text := _text(entry.get("content"))):
            segment = session.segments[-1] if session.segments else Segment()
            at_ms, n_before = epoch_ms(entry.get("timestamp")), len(segment.answers)
            segment.asked.append(UserMessage(text, at_ms, n_before))
    return session


def _take_answer(entry: dict[str, Any], session: Session, known: dict[str, Answer]) -> None:
    answer = known.get(entry["id"])
    if answer is None:
        answer = known[entry["id"]] = Answer(entry["id"], epoch_ms(entry.get("timestamp")))
        if not session.segments:
            session.segments.append(Segment())
        session.segments[-1].answers.append(answer)
    # A later version may be partial: keep what it lacks.
    answer.text = _text(entry.get("content")) or answer.text
    if thoughts := list_at(entry, "thoughts"):
        answer.thoughts = [text for thought in thoughts if (text := _thought(thought))]
    if isinstance(entry.get("toolCalls"), list):
        calls = objects_at(entry, "toolCalls")
        answer.calls = [call for call in calls if isinstance(call.get("id"), str)]
    tokens = entry.get("tokens")
    if isinstance(tokens, dict):
        counts = {name: integer_at(tokens, name) for name in _TOKENS}
        answer.tokens = {name: n for name, n in counts.items() if n is not None}
    answer.model = text_at(entry, "model") or answer.model


def _thought(thought: Any) -> str:
    """Join subject and description as the model wrote them."""
    if isinstance(thought, str):
        return thought
    subject, description = value_at(thought, "subject"), value_at(thought, "description")
    parts = [f"**{subject}**" if subject else "", str(description or "")]
    return "\n".join(part for part in parts if part)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "".join(text_at(part, "text") or "" for part in parts)


@dataclass
class Merge:
    """Makes the steps of one trial from the stream and the session files."""

    clock: TrialClock
    children: dict[str, Session] = field(default_factory=dict)
    """Sessions of sub-agents that no call has claimed yet."""

    def steps(self, turn: GeminiTurn, segment: Segment | None, number: int | None) -> list[AnyStep]:
        """Return the steps of one turn: the stream's parts in order, and between them what only the
        session file has.
        """
        answers = segment.answers if segment is not None else []
        calls = {call.get("id"): call for answer in answers for call in answer.calls}
        placed: list[tuple[float, int, list[AnyStep]]] = []
        for index, part in enumerate(turn.parts):
            placed.append((index, 0, list(self._part(part, calls, number))))
        ids = {part.id: index for index, part in enumerate(turn.parts) if isinstance(part, Use)}
        # An answer goes before the first part that shows it (thoughts precede their text), or, if
        # the stream shows nothing of it, behind the last part seen so far.
        first, last = 0, -1
        for order, answer in enumerate(answers):
            seen = _seen(answer, turn.parts, ids, first)
            if seen:
                first, last = seen[0], max(last, seen[-1])
            steps = list(self._unseen(answer, turn, ids, number, seen))
            placed.append((seen[0] - 0.5 if seen else last + 0.5, order, steps))
        placed.sort(key=lambda one: one[:2])
        return [step for _, _, steps in placed for step in steps]

    def _part(
        self, part: Text | Use, calls: dict[Any, dict[str, Any]], turn: int | None
    ) -> Iterator[AnyStep]:
        if isinstance(part, Use):
            yield from self._call(part, calls.get(part.id), turn)
            return
        yield Message(
            content=part.content,
            timestamp=self._moment(part),
            turn=or_unset(turn),
        )

    def _moment(self, part: Text | Use) -> float:
        at = self.clock.at(part.at_ms)
        return part.t_ms if at is None else at

    def _call(
        self,
        use: Use | None,
        call: dict[str, Any] | None,
        turn: int | None,
        parent: str | None = None,
        default_ms: float = 0,
    ) -> Iterator[AnyStep]:
        step = tool_step(use, call, self.clock, turn, parent, default_ms)
        yield step
        plan = todo_step(step)
        if plan is not None:
            yield plan
        child = self.children.pop(str((call or {}).get("agentId")), None)
        for segment in child.segments if child is not None else ():
            for answer in segment.answers:
                yield from self.answer(answer, turn, str(step.call_id), step.timestamp)

    def _unseen(
        self,
        answer: Answer,
        turn: GeminiTurn,
        ids: dict[str, int],
        number: int | None,
        seen: list[int],
    ) -> Iterator[AnyStep]:
        """Yield what the stream does not show: thoughts, and whole answers if it was cut."""
        latest = self._moment(turn.parts[seen[0]]) if seen else None
        yield from self._thoughts(answer, number, None, 0, latest)
        if not seen and not turn.ended and answer.text:
            yield self._message(answer, number, None, 0)
        for call in answer.calls:
            if call.get("id") not in ids:
                yield from self._call(None, call, number)

    def answer(
        self, answer: Answer, turn: int | None, parent: str | None, default_ms: float
    ) -> Iterator[AnyStep]:
        """Yield all steps of an answer that no stream shows."""
        yield from self._thoughts(answer, turn, parent, default_ms)
        if answer.text:
            yield self._message(answer, turn, parent, default_ms)
        for call in answer.calls:
            yield from self._call(None, call, turn, parent, default_ms)

    def _thoughts(
        self,
        answer: Answer,
        turn: int | None,
        parent: str | None,
        default_ms: float,
        latest: float | None = None,
    ) -> Iterator[AnyStep]:
        """Yield the thoughts; the file gives them the time of their answer, which they precede."""
        moments = [m for m in (self.clock.at(answer.at_ms), latest) if m is not None]
        for text in answer.thoughts:
            yield Thought(
                content=text,
                timestamp=min(moments, default=default_ms),
                turn=or_unset(turn),
                parent=or_unset(parent),
            )

    def _message(
        self, answer: Answer, turn: int | None, parent: str | None, default_ms: float
    ) -> AnyStep:
        at = self.clock.at(answer.at_ms)
        return Message(
            content=answer.text,
            timestamp=default_ms if at is None else at,
            turn=or_unset(turn),
            parent=or_unset(parent),
        )


def past_session(session: Session, children: dict[str, Session]) -> PastSession | None:
    """Return a session that Gemini CLI kept; None if the user has said nothing in it."""
    known = [
        (asked, segment.answers[asked.n_before : upto])
        for segment in session.segments
        # A segment in which nothing was asked, as the context of a fresh chat, is no turn.
        for asked, upto in zip(
            segment.asked, [*(one.n_before for one in segment.asked[1:]), None], strict=False
        )
    ]
    moments = [at for asked, answers in known for at in (asked.at_ms, *(a.at_ms for a in answers))]
    times = [at for at in moments if at is not None]
    if not times:
        return None
    start_ms, end_ms = min(times), max(times)
    merge = Merge(TrialClock(start_ms, end_ms), children)
    turns = []
    for number, (asked, answers) in enumerate(known, 1):
        at_ms = asked.at_ms or start_ms
        steps = [
            step for one in answers for step in merge.answer(one, number, None, at_ms - start_ms)
        ]
        used = [
            counted(one.tokens, one.tokens.get("thoughts", 0), one.model)
            for one in answers
            if one.tokens
        ]
        turns.append(PastTurn(text=asked.text, at_ms=at_ms, steps=steps, usage=add_usage(used)))
    models = [one.model for _, answers in known for one in answers if one.model]
    project = session.path.parent.parent / ".project_root"
    return PastSession(
        id=session.id,
        path=session.path,
        turns=turns,
        agent=AgentInfo(adapter="gemini", model=or_unset(models[-1] if models else None)),
        start_ms=start_ms,
        end_ms=end_ms,
        cwd=project.read_text("utf-8", "replace").strip() if project.is_file() else None,
    )


def counted(tokens: Tokens, thought: int, model: str | None) -> Usage:
    """Count as Gemini CLI does: input includes cached tokens, output excludes thoughts."""
    usage = Usage(
        input_tokens=tokens.get("input", UNSET),
        output_tokens=tokens.get("output", UNSET),
        cache_read_tokens=tokens.get("cached", UNSET),
        reasoning_tokens=thought,
    )
    return with_cost(model, usage, input_includes_cache=True)


def _seen(answer: Answer, parts: list[Text | Use], ids: dict[str, int], start: int) -> list[int]:
    """Return the indexes of the stream's parts that show an answer, in order."""
    found = [ids[call["id"]] for call in answer.calls if call.get("id") in ids]
    text = answer.text.strip()
    # A part may join the texts of several answers without tool calls between them.
    for index in range(start, len(parts)) if text else ():
        part = parts[index]
        if isinstance(part, Text) and text in part.content:
            return sorted([index, *found])
    return sorted(found)
