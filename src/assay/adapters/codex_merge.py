"""Put Codex's stream and its rollout together: the stream's order, the rollout's knowledge."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from assay.adapters.codex_calls import PLAN, belongs, call_step, plan_of, plan_step, receivers
from assay.adapters.codex_items import TEXTS, Item, item_step, plan_entries
from assay.adapters.codex_stream import CodexTurn
from assay.adapters.codex_thread import Call, Entry, Rollout, Said, Segment
from assay.adapters.codex_tokens import Tokens, add_tokens
from assay.adapters.moments import TrialClock
from assay.records.trajectory import AnyStep


@dataclass
class Family:
    """The rollouts of sub-agents that no call has claimed yet, and what they used."""

    rollouts: dict[str, Rollout]
    seen: frozenset[str | None] = frozenset()
    """What stands in the main thread."""
    tokens: list[Tokens | None] = field(default_factory=list)

    def claim(self, call: Call) -> list[Rollout]:
        """Give the sub-agents that this call began."""
        found = [self.rollouts.pop(name) for name in receivers(call) if name in self.rollouts]
        self.tokens += [segment.tokens for child in found for segment in child.segments]
        return found

    def spent(self) -> Tokens | None:
        """Give what was used since this was asked last."""
        tokens, self.tokens = add_tokens(self.tokens), []
        return tokens


def ids_of(rollout: Rollout | None) -> frozenset[str | None]:
    """Give the ids of all that stands in a rollout."""
    segments = rollout.segments if rollout is not None else []
    return frozenset(_id_of(entry) for segment in segments for entry in segment.entries)


def assign_segments(
    turns: list[CodexTurn], rollout: Rollout | None, clock: TrialClock
) -> list[Segment | None]:
    """Give each turn its part of the rollout; a session may be older than the trial."""
    segments = rollout.segments if rollout is not None else []
    within = [segment for segment in segments if clock.at(segment.at_ms) is not None]
    left = (within or segments)[-len(turns) :] if turns else []
    begun = [turn for turn in turns if turn.session_id is not None]
    by_turn = dict(zip(map(id, begun), left, strict=False))
    return [by_turn.get(id(turn)) for turn in turns]


def merge_turn(
    turn: CodexTurn, segment: Segment | None, clock: TrialClock, number: int | None, family: Family
) -> list[AnyStep]:
    """Give the steps of one turn, nothing twice and nothing left out."""
    entries = segment.entries if segment is not None else []
    found = _match(turn.items, entries)
    placed: list[tuple[float, int, list[AnyStep]]] = []
    for index, item in enumerate(turn.items):
        entry = found.get(index)
        placed.append((index, 0, _stream_steps(item, entry, clock, number, family)))
    matched = {id(entry): index for index, entry in found.items()}
    after, at_ms = -1.0, turn.items[0].begun_ms if turn.items else 0.0
    for order, entry in enumerate(entries):
        if id(entry) in matched:
            after = max(after, matched[id(entry)])
            at_ms = turn.items[int(after)].begun_ms
        elif _is_missing(entry, turn):
            placed.append((after + 0.5, order, entry_steps(entry, clock, number, at_ms, family)))
    placed.sort(key=lambda place: place[:2])
    return [step for _, _, steps in placed for step in steps]


def entry_steps(
    entry: Entry,
    clock: TrialClock,
    turn: int | None,
    default_ms: float,
    family: Family,
    parent: str | None = None,
) -> list[AnyStep]:
    """Make the steps of something that only a rollout tells."""
    if isinstance(entry, Said):
        at = clock.at(entry.at_ms)
        step = TEXTS[entry.type](
            content=entry.text,
            timestamp=default_ms if at is None else at,
            turn=UNSET if turn is None else turn,
            parent=UNSET if parent is None else parent,
        )
        return [step]
    at = clock.at(entry.at_ms)
    if plan_of(entry) is not None:
        return [plan_step(entry, default_ms if at is None else at, turn, parent)]
    made = call_step(entry, None, clock, turn, default_ms, parent)
    return [made, *_children(entry, clock, turn, made.timestamp, family)]


def _children(
    call: Call, clock: TrialClock, turn: int | None, default_ms: float, family: Family
) -> Iterable[AnyStep]:
    for child in family.claim(call):
        for segment in child.segments:
            for entry in segment.entries:
                if child.is_fork and _id_of(entry) in family.seen:
                    continue  # a fork begins with its parent's history
                yield from entry_steps(entry, clock, turn, default_ms, family, call.call_id)


def _id_of(entry: Entry) -> str | None:
    return entry.call_id if isinstance(entry, Call) else entry.id


def _stream_steps(
    item: Item, entry: Entry | None, clock: TrialClock, turn: int | None, family: Family
) -> list[AnyStep]:
    if isinstance(entry, Said):
        at = clock.at(entry.at_ms)
        step = item_step(item)
        return [step if at is None else msgspec.structs.replace(step, timestamp=at)]
    if item.type == "todo_list":
        if entry is None:
            return [item_step(item)]
        at = clock.at(entry.at_ms)
        return [plan_step(entry, item.begun_ms if at is None else at, turn)]
    if not item.is_tool:
        return [item_step(item)]
    step = call_step(entry, item, clock, turn)
    if entry is None:
        return [step]
    return [step, *_children(entry, clock, turn, step.timestamp, family)]


def _match(items: list[Item], entries: list[Entry]) -> dict[int, Entry]:
    """Find the entry of each item: the one most like it, and the first of those."""
    free = list(entries)
    found: dict[int, Entry] = {}
    for care in (2, 1, 0):
        for index, item in enumerate(items):
            if index in found:
                continue
            place = next((n for n, entry in enumerate(free) if _fits(item, entry, care)), None)
            if place is not None:
                found[index] = free.pop(place)
    return found


def _fits(item: Item, entry: Entry, care: int) -> bool:
    if isinstance(entry, Said):
        text = item.value.get("text")
        return entry.type == item.type and isinstance(text, str) and _is_like(entry.text, text)
    if item.type == "todo_list":
        return _ticked(plan_of(entry)) == _ticked(plan_entries(item.value))
    return item.is_tool and entry.name != PLAN and belongs(item, entry, care)


def _is_like(one: str, other: str) -> bool:
    return one == other or "".join(one.split()) == "".join(other.split())


def _ticked(entries: list[dict[str, str]] | None) -> list[tuple[str, bool]] | None:
    if entries is None:
        return None
    return [(entry["content"], entry["status"] == "completed") for entry in entries]


def _is_missing(entry: Entry, turn: CodexTurn) -> bool:
    """Whether something that stands only in the rollout belongs into the trajectory.

    Texts are missing when the stream was cut or shows none of their kind: else it has them in
    other words. A plan that did not change is shown once.
    """
    if isinstance(entry, Said):
        cut = not turn.ended or turn.over_limit
        return cut or not any(item.type == entry.type for item in turn.items)
    if plan_of(entry) is not None:
        return not any(item.type == "todo_list" for item in turn.items)
    return True
