"""Put Gemini's stream and its session file together: the stream's order, the file's knowledge."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from assay.adapters.gemini_calls import todo_step, tool_step
from assay.adapters.gemini_session import Answer, Segment, Session
from assay.adapters.gemini_stream import GeminiTurn, Text, Use
from assay.adapters.moments import TrialClock
from assay.records.trajectory import AnyStep, Message, Thought


@dataclass
class Merge:
    """How the steps of one trial are made."""

    clock: TrialClock
    children: dict[str, Session] = field(default_factory=dict)
    """Sessions of sub-agents that no call has claimed yet."""

    def steps(self, turn: GeminiTurn, segment: Segment | None, number: int | None) -> list[AnyStep]:
        """Give the steps of one turn, nothing twice and nothing left out."""
        answers = segment.answers if segment is not None else []
        calls = {call.get("id"): call for answer in answers for call in answer.calls}
        placed: list[tuple[float, int, list[AnyStep]]] = []
        for index, part in enumerate(turn.parts):
            placed.append((index, 0, list(self._part(part, calls, number))))
        ids = {part.id: index for index, part in enumerate(turn.parts) if isinstance(part, Use)}
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
            turn=UNSET if turn is None else turn,
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
                yield from self._answer(answer, turn, str(step.call_id), step.timestamp)

    def _unseen(
        self,
        answer: Answer,
        turn: GeminiTurn,
        ids: dict[str, int],
        number: int | None,
        seen: list[int],
    ) -> Iterator[AnyStep]:
        """Give what the stream does not show of an answer: thoughts, and all of it when cut."""
        latest = self._moment(turn.parts[seen[0]]) if seen else None
        yield from self._thoughts(answer, number, None, 0, latest)
        if not seen and not turn.ended and answer.text:
            yield self._message(answer, number, None, 0)
        for call in answer.calls:
            if call.get("id") not in ids:
                yield from self._call(None, call, number)

    def _answer(
        self, answer: Answer, turn: int | None, parent: str, default_ms: float
    ) -> Iterator[AnyStep]:
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
        """Give the thoughts; they are written down with their answer but came before it."""
        moments = [m for m in (self.clock.at(answer.at_ms), latest) if m is not None]
        for text in answer.thoughts:
            yield Thought(
                content=text,
                timestamp=min(moments, default=default_ms),
                turn=UNSET if turn is None else turn,
                parent=UNSET if parent is None else parent,
            )

    def _message(
        self, answer: Answer, turn: int | None, parent: str | None, default_ms: float
    ) -> AnyStep:
        at = self.clock.at(answer.at_ms)
        return Message(
            content=answer.text,
            timestamp=default_ms if at is None else at,
            turn=UNSET if turn is None else turn,
            parent=UNSET if parent is None else parent,
        )


def assign_segments(
    turns: list[GeminiTurn], session: Session | None, clock: TrialClock
) -> list[Segment | None]:
    """Give each turn its part of the session; that may be older than the trial."""
    segments = session.segments if session is not None else []
    within = [segment for segment in segments if clock.at(segment.at_ms) is not None]
    left = (within or segments)[-len(turns) :] if turns else []
    begun = [turn for turn in turns if turn.session_id is not None]
    by_turn = dict(zip(map(id, begun), left, strict=False))
    return [by_turn.get(id(turn)) for turn in turns]


def _seen(answer: Answer, parts: list[Text | Use], ids: dict[str, int], start: int) -> list[int]:
    """Find the parts of the stream that show an answer, in order."""
    found = [ids[call["id"]] for call in answer.calls if call.get("id") in ids]
    text = answer.text.strip()
    for index in range(start, len(parts)) if text else ():
        part = parts[index]
        if isinstance(part, Text) and text in part.content:
            return sorted([index, *found])
    return sorted(found)
