"""Choose what a request gets: which thread, which step, which fault before it."""

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from assay.testing.model.conversation import Conversation
from assay.testing.model.minimal import minimal_value
from assay.testing.model.script import Fault, Play, Side, Step, Thread, When

Served = Literal["step", "fault", "side", "exhausted", "unexpected"]

_EXHAUSTED = Step(text="The script has no further step.")


@dataclass(frozen=True)
class Question:
    """A request with what the choice needs beside the conversation."""

    conversation: Conversation
    haystack: str
    """All texts of the request, decoded and as they came."""
    session: str = ""
    """The agent's own session id, where it sends one."""


@dataclass(frozen=True)
class Choice:
    """What a request gets, and why."""

    served: Served
    step: Step
    thread: str
    number: int = 0
    attempt: int = 0
    label: str = "side"
    fault: Fault | None = None
    problems: tuple[str, ...] = ()


class Player:
    """Plays one script to one base URL; many requests may come at once."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self._lock = threading.Lock()
        self._answered: Counter[str] = Counter()
        self._attempts: Counter[tuple[str, int, int]] = Counter()
        self._known: dict[str, list[str]] = {}

    def choose(self, question: Question) -> Choice:
        """Choose the answer and count it."""
        side = _side_answer(self.play, question)
        if side is not None:
            return Choice("side", side, "side")
        thread, steps = _thread_of(self.play, question)
        with self._lock:
            return self._step(question, thread, steps)

    def _step(self, question: Question, thread: str, steps: list[Step]) -> Choice:
        counted = self.play.select == "counter"
        number = self._answered[thread] if counted else question.conversation.turns
        ordinal = 1 if counted else self._ordinal(thread, question)
        label = f"{thread}{ordinal if ordinal > 1 else ''}_{number:02d}"
        if number >= len(steps):
            rest = self.play.exhausted or _EXHAUSTED
            return Choice("exhausted", rest, thread, number, label=label)
        step = steps[number]
        problems = _problems(step, question.haystack)
        if problems:
            return Choice("unexpected", step, thread, number, label=label, problems=problems)
        attempt = self._attempts[thread, ordinal, number]
        self._attempts[thread, ordinal, number] += 1
        fault = _fault_at(step, attempt)
        if fault is None:
            self._answered[thread] += 1
        served: Served = "fault" if fault else "step"
        return Choice(served, step, thread, number, attempt, label, fault)

    def _ordinal(self, thread: str, question: Question) -> int:
        """Number the conversations of a thread, so that each has its own attempts and ids."""
        said = f"{question.session}\n{question.conversation.first_user}"
        key = hashlib.sha256(said.encode(errors="replace")).hexdigest()
        known = self._known.setdefault(thread, [])
        if key not in known:
            known.append(key)
        return known.index(key) + 1


def _side_answer(play: Play, question: Question) -> Step | None:
    named = _first_match(play.side, question)
    if named is not None:
        return play.side[named].answer
    if question.conversation.tools or play.toolless == "step":
        return None
    return play.aux or _default_aux(question.conversation)


def _default_aux(conversation: Conversation) -> Step:
    if conversation.answer_schema is not None:
        answer = minimal_value(conversation.answer_schema)
        return Step(text=msgspec.json.encode(answer).decode())
    return Step(text="side answer: the request offered no tools")


def _thread_of(play: Play, question: Question) -> tuple[str, list[Step]]:
    index = _first_match(play.threads, question)
    if index is None:
        return "main", play.steps
    return play.threads[index].name or f"thread{index}", play.threads[index].steps


def _first_match(rules: Sequence[Side | Thread], question: Question) -> int | None:
    conditions = [rule.when for rule in rules]
    return next((at for at, when in enumerate(conditions) if _holds(when, question)), None)


def _holds(when: When, question: Question) -> bool:
    conversation = question.conversation
    wanted = (
        (when.first_user_contains, conversation.first_user),
        (when.last_user_contains, conversation.last_user),
        (when.system_contains, conversation.system),
        (when.model_contains, conversation.model),
        (when.body_contains, question.haystack),
    )
    if when.provider not in (None, conversation.provider):
        return False
    return all(needle is None or needle in text for needle, text in wanted)


def _problems(step: Step, haystack: str) -> tuple[str, ...]:
    missing = [f"the request lacks {text!r}" for text in step.expect if text not in haystack]
    present = [f"the request holds {text!r}" for text in step.refuse if text in haystack]
    return (*missing, *present)


def _fault_at(step: Step, attempt: int) -> Fault | None:
    for fault in step.faults:
        if fault.times == "always" or attempt < fault.times:
            return fault
        attempt -= fault.times
    return None
