"""Tapes for people: what is on them, how two differ, and smaller tapes made of them."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.adapters.prices import estimate_cost
from assay.errors import InputError
from assay.records.answers import said_in
from assay.records.capture import Usage
from assay.records.tape import Exchange, Lane, Tape, copy_lanes
from assay.run.wire import first_difference, history, replace_in_answer

REMOVED = "[removed]"
"""In place of what was scrubbed."""
_PLACE = "<assay:result "
"""In place of what a tool returned."""


class TurnOnTape(msgspec.Struct, kw_only=True, rename="camel"):
    """One request of a lane and its answer, in a line."""

    request: int
    turn: int
    model: str
    status: int
    input_tokens: int | None
    output_tokens: int | None
    ms: int
    text: str
    calls: list[str]
    cut: bool


class LaneOnTape(msgspec.Struct, kw_only=True, rename="camel"):
    """A lane, and what is in it."""

    lane: int
    words: str
    prompt: str
    trial: int
    arm: str
    agent: str
    version: str
    is_current: bool
    """Whether a replay uses it; a later lane of the same trial takes its place."""
    turns: list[TurnOnTape]


def describe_lanes(tape: Tape, only: int | None = None) -> Iterator[LaneOnTape]:
    """Yield what is in each lane."""
    current = {lane.lane for lane in tape.current.values()}
    for lane in tape.lanes:
        if only in (None, lane.lane):
            yield LaneOnTape(
                lane=lane.lane,
                words=lane.words,
                prompt=lane.prompt,
                trial=lane.trial,
                arm=lane.arm,
                agent=lane.agent,
                version=lane.version,
                is_current=lane.lane in current,
                turns=[describe_exchange(one) for one in tape.exchanges(lane.lane)],
            )


def describe_exchange(one: Exchange) -> TurnOnTape:
    """Return an exchange in a line."""
    said = said_in(one.answer)
    return TurnOnTape(
        request=one.number,
        turn=one.turn,
        model=one.model,
        status=one.status,
        input_tokens=one.tokens.input if one.tokens else None,
        output_tokens=one.tokens.output if one.tokens else None,
        ms=one.took_ms,
        text=said.text,
        calls=[call.name for call in said.calls],
        cut=one.cut,
    )


def prompts_on(tape: Tape) -> Iterator[dict[str, Any]]:
    """Yield the prompts of a tape, each once, as a prompt file has them."""
    seen = set()
    for lane in tape.lanes:
        if lane.prompt not in seen and not lane.role:
            seen.add(lane.prompt)
            yield tape.about(lane).get("prompt") or {"id": lane.prompt, "input": lane.asked}


class ModelOnTape(msgspec.Struct, kw_only=True, rename="camel"):
    """What one model was asked, in all."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """By the table of prices; unknown if the model has none."""


class TapeStats(msgspec.Struct, kw_only=True, rename="camel"):
    """What a replay of a tape saves."""

    bytes: int
    lanes: int
    trials: int
    """Lanes of an agent that a replay uses."""
    requests: int = 0
    models: dict[str, ModelOnTape]
    cost_usd: float | None = None
    seconds: float = 0.0
    """How long the models took."""


def tape_stats(tape: Tape) -> TapeStats:
    """Count what is on a tape, without the lanes that others replace."""
    current = {lane.lane for lane in tape.current.values()}
    stats = TapeStats(
        bytes=os.fstat(tape.fd).st_size,
        lanes=len(tape.lanes),
        trials=sum(not lane.role for lane in tape.current.values()),
        models={},
    )
    for one in tape.exchanges():
        if one.lane in current:
            stats.requests += 1
            stats.seconds += one.took_ms / 1000
            _count(stats.models.setdefault(one.model, ModelOnTape()), one)
    costs = [model.cost_usd for model in stats.models.values() if model.cost_usd is not None]
    stats.cost_usd = sum(costs) if costs else None
    return stats


def _count(model: ModelOnTape, one: Exchange) -> None:
    model.requests += 1
    if (used := one.tokens) is None:
        return
    model.input_tokens += used.input
    model.output_tokens += used.output
    usage = Usage(
        input_tokens=used.input,
        output_tokens=used.output,
        cache_read_tokens=used.cache_read,
        cache_write_tokens=used.cache_write,
    )
    cost = estimate_cost(
        one.model, usage, input_includes_cache=True, output_includes_reasoning=True
    )
    if cost is not None:
        model.cost_usd = (model.cost_usd or 0.0) + cost


def tape_differences(old: Tape, new: Tape) -> Iterator[str]:
    """Say in words where two tapes differ: in their lanes, then in what each was asked and said."""
    mine, theirs = old.current, new.current
    for key in dict.fromkeys((*mine, *theirs)):
        before, after = mine.get(key), theirs.get(key)
        if before is None or after is None:
            lane, place = (before, old.path) if before else (after, new.path)
            assert lane is not None
            yield f"{lane.words}: only on {place}"
            continue
        yield from (
            f"{before.words}: {words}" for words in _lane_differences(old, new, before, after)
        )


def _lane_differences(old: Tape, new: Tape, before: Lane, after: Lane) -> Iterator[str]:
    if (before.agent, before.version) != (after.agent, after.version):
        names = [f"{lane.agent} {lane.version}".strip() for lane in (before, after)]
        yield f"agent {names[0]!r} and {names[1]!r}"
    n_before, n_after = len(old.spots(before.lane)), len(new.spots(after.lane))
    pairs = zip(old.exchanges(before.lane), new.exchanges(after.lane), strict=False)
    for one, two in pairs:
        for what, values in _parts(one, two):
            if found := first_difference(*values):
                place, was, now = found
                where = f" at {place}" if place != "the request" else ""
                yield f"request {one.number}: {what}{where}: {was!r} and {now!r}"
                break
    if n_before != n_after:
        yield f"{n_before} requests and {n_after}"


def _parts(one: Exchange, two: Exchange) -> Iterator[tuple[str, tuple[Any, Any]]]:
    yield "the address differs", (one.path, two.path)
    yield "the request differs", (one.request, two.request)
    yield "a tool's result differs", (one.results, two.results)
    yield "the status differs", (one.status, two.status)
    said = [msgspec.to_builtins(said_in(each.answer)) for each in (one, two)]
    yield "the answer differs", (said[0], said[1])


def cut(source: Tape, target: Path, prompt: str, trial: int | None, arm: str | None) -> Lane:
    """Write a tape with one trial alone, as the first of its prompt; return what it was."""
    fitting = [
        lane
        for lane in source.current.values()
        if lane.prompt == prompt
        and not lane.role
        and trial in (None, lane.trial)
        and arm in (None, lane.arm)
    ]
    kinds = sorted({(lane.arm, lane.trial) for lane in fitting})
    if len(kinds) != 1:
        msg, hint = _why_not_cut(source, prompt, kinds)
        raise InputError(msg, hint=hint)
    first = fitting[0]
    of = msgspec.structs.replace(first, attempt=0).words
    lanes = {lane.lane: msgspec.structs.replace(lane, arm="", trial=1, of=of) for lane in fitting}
    copy_lanes(source, target, lanes)
    return first


def _why_not_cut(source: Tape, prompt: str, kinds: Sequence[tuple[str, int]]) -> tuple[str, str]:
    if kinds:
        shown = ", ".join(f"{arm + ' ' if arm else ''}{trial}" for arm, trial in kinds)
        msg = f"{source.path} has several trials of {prompt!r}: {shown}"
        return msg, f"name one, as in --trial {prompt}:{kinds[0][1]}, and the arm with --arm"
    known = sorted({lane.prompt for lane in source.lanes if not lane.role})
    return f"{source.path} has no such trial of {prompt!r}", f"its prompts: {', '.join(known[:10])}"


def prune(source: Tape, target: Path, prompts: Collection[str] | None) -> tuple[int, int]:
    """Write a tape without the lanes that others replace, and those of other prompts.

    Return how many lanes and exchanges went.
    """
    kept = {
        lane.lane: lane
        for lane in source.current.values()
        if prompts is None or lane.role or lane.prompt in prompts
    }
    n_exchanges = sum(
        len(source.spots(lane.lane)) for lane in source.lanes if lane.lane not in kept
    )
    n_lanes = len(source.lanes) - len(kept)
    copy_lanes(source, target, kept)
    return n_lanes, n_exchanges


class Scrubbed(msgspec.Struct, kw_only=True):
    """What became of a lane that texts were removed from."""

    lane: Lane
    n_requests: int
    n_left: int = 0
    """How many requests, from the first on, a replay of the same trial still finds."""
    n_texts: int = 0
    where: str = ""
    """What a replay misses first."""


def scrub(source: Tape, target: Path, patterns: Sequence[re.Pattern[str]]) -> list[Scrubbed]:
    """Write a tape without what fits any of the patterns; say what can still be replayed."""
    made = {
        lane.lane: Scrubbed(lane=lane, n_requests=len(source.spots(lane.lane)))
        for lane in source.lanes
    }
    numbers = {number: old for number, old in enumerate(sorted(made), 1)}

    def change(one: Exchange) -> Exchange:
        return _scrubbed(one, patterns, made[numbers[one.lane]])

    lanes = {}
    for lane in source.lanes:
        about = _replaced(source.about(lane), patterns)
        asked = _replaced(lane.asked, patterns)
        lanes[lane.lane] = msgspec.structs.replace(lane, asked=asked, about=about)
    copy_lanes(source, target, lanes, change)
    return [*made.values()]


def _scrubbed(one: Exchange, patterns: Sequence[re.Pattern[str]], note: Scrubbed) -> Exchange:
    request, results = _replaced(one.request, patterns), _replaced(one.results, patterns)
    pieces = replace_in_answer(one.answer, lambda text: (text, _spans(text, patterns)))
    changed = (request != one.request, results != one.results, pieces != one.answer)
    note.n_texts += sum(changed)
    lost = _asked_by_client(one.request, request)
    if not note.where and not lost:
        note.n_left += 1
    note.where = note.where or (f"request {one.number} at {lost}" if lost else "")
    return msgspec.structs.replace(one, request=request, results=results, answer=pieces)


def _asked_by_client(old: Any, new: Any) -> str:
    """Return the first place that differs and that a replay makes anew.

    What a model wrote, and what its tools returned, a replay has as it is on the tape.
    """
    mine, theirs = history(old), history(new)
    for number, (was, now) in enumerate(zip(mine, theirs, strict=True)):
        by_model = isinstance(was, dict) and was.get("role") in (None, "assistant", "model")
        if was != now and not by_model:
            return f"message {number + 1}"
    before, after = (
        {name: part for name, part in one.items() if part is not messages}
        if isinstance(one, dict)
        else one
        for one, messages in ((old, mine), (new, theirs))
    )
    found = first_difference(before, after)
    return found[0] if found else ""


def _replaced(value: Any, patterns: Sequence[re.Pattern[str]]) -> Any:
    if isinstance(value, str):
        for pattern in patterns if not value.startswith(_PLACE) else ():
            value = pattern.sub(REMOVED, value)
        return value
    if isinstance(value, list):
        return [_replaced(one, patterns) for one in value]
    if isinstance(value, dict):
        return {_replaced(name, patterns): _replaced(one, patterns) for name, one in value.items()}
    return value


def _spans(text: str, patterns: Sequence[re.Pattern[str]]) -> list[tuple[int, int, str]]:
    """Return what is to be replaced in a text; of two that overlap, the first one."""
    found = sorted(m.span() for pattern in patterns for m in pattern.finditer(text) if m[0])
    spans: list[tuple[int, int, str]] = []
    for start, end in found:
        if not spans or start >= spans[-1][1]:
            spans.append((start, end, REMOVED))
    return spans
