"""Put what only the database knows into a turn: sub-agents, and what was cut short."""

from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from assay.adapters.moments import TrialClock
from assay.adapters.opencode_db import OpenCodeDb, StoredPart
from assay.adapters.opencode_parts import PartReader, began_ms
from assay.adapters.opencode_stream import OpenCodeTurn, usage_of_part
from assay.adapters.prices import with_cost
from assay.adapters.steps import StepBuilder
from assay.records.capture import Usage
from assay.records.trajectory import AnyStep, ToolCall

_STEPS = frozenset({"text", "reasoning", "tool"})


@dataclass
class Completed:
    """The steps of a turn with those of its sub-agents, and what these used."""

    steps: list[AnyStep] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)


class Completer:
    """Goes through the turns of a trial in order; nothing is told or counted twice."""

    def __init__(self, database: OpenCodeDb, clock: TrialClock) -> None:
        self._db = database
        self._clock = clock
        self._told: set[str] = set()

    def complete(self, turn: OpenCodeTurn, number: int | None, *, last: bool) -> Completed:
        """Give a turn's steps, each sub-agent's behind the call that began it."""
        done = Completed()
        self._told |= turn.part_ids
        for step in turn.steps:
            self._put(step, turn.parts, number, done)
        if last and turn.session_id and not turn.ended:
            reader = PartReader(StepBuilder(number))
            missing = [p for p in self._untold(turn.session_id) if p.data.get("type") in _STEPS]
            for part in missing:
                for step in reader.read(part.data, self._moment(part, 0)):
                    self._put(step, reader, number, done)
        return done

    def _put(self, step: AnyStep, by: PartReader, number: int | None, done: Completed) -> None:
        done.steps.append(step)
        child = by.children.get(str(step.call_id)) if isinstance(step, ToolCall) else None
        if child is None or not isinstance(step, ToolCall):
            return
        reader = PartReader(StepBuilder(number))
        for part in self._untold(child):
            if part.data.get("type") == "step-finish":
                done.usages.append(with_cost(part.model, usage_of_part(part.data)))
                continue
            for inner in reader.read(part.data, self._moment(part, step.timestamp), _id(step)):
                self._put(inner, reader, number, done)

    def _untold(self, session_id: str) -> list[StoredPart]:
        parts = [p for p in self._db.parts.get(session_id, []) if p.id not in self._told]
        self._told |= {part.id for part in parts}
        return parts

    def _moment(self, part: StoredPart, otherwise: float) -> float:
        at = self._clock.at(began_ms(part.data) or part.created_ms or None)
        return otherwise if at is None else at


def _id(call: ToolCall) -> Any:
    return None if call.call_id is UNSET else call.call_id
