"""What the agent of a trial asked its models, from the tape that was recorded beside its row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.records.answers import Said, said_in
from assay.records.raw_streams import place_inside
from assay.records.tape import Exchange, Lane, Tape

_ALIKE = 80
"""Characters of a message that are enough to find it in an answer."""
_NO_TAPE = "Requests are kept with --record TAPE; this trial was run without."


class TapeOfTrial:
    """The requests of one trial; open it with `with`."""

    def __init__(self, base: Path, prompt_id: str, entry: dict[str, Any]) -> None:
        wire = entry.get("wire")
        known = wire if isinstance(wire, dict) else {}
        self.why, self._tape = _NO_TAPE, None
        name, number = known.get("tape"), known.get("lane")
        if not isinstance(name, str) or not isinstance(number, int) or not name:
            return
        path = place_inside(base, name) or place_inside(base, Path(name).name)
        self.why = f"The tape {name} is not in the folder of the results: put it there to see this."
        if path is None or not path.is_file():
            return
        tape = Tape(path)
        lane = next((one for one in tape.lanes if one.lane == number), None)
        if lane is None or lane.prompt != prompt_id:
            tape.close()
            self.why = f"The tape {name} is not the one of this trial."
            return
        self._tape, self._lane = tape, lane

    def __enter__(self) -> "TapeOfTrial":
        return self

    def __exit__(self, *_error: object) -> None:
        if self._tape is not None:
            self._tape.close()

    def listing(self, trajectory: Sequence[Any]) -> dict[str, Any]:
        """Return the requests in a line each, and for each step the number of its request."""
        if self._tape is None:
            return {"why": self.why}
        found = [(one, said_in(one.answer)) for one in self._tape.exchanges(self._lane.lane)]
        said = [(one.number, text) for one, text in found]
        lines = [_line(one, text) for one, text in found]
        return {"requests": lines, "steps": requests_of_steps(trajectory, said)}

    def request(self, number: int) -> dict[str, Any] | None:
        """Return a request in full: instructions, tools, messages, and the rest of its settings."""
        if self._tape is None:
            return None
        spots = [spot for spot in self._tape.spots(self._lane.lane) if spot.number == number]
        return _shown(self._tape.exchange(spots[0]), self._lane) if spots else None


def _line(one: Exchange, said: Said) -> dict[str, Any]:
    return {
        "request": one.number,
        "turn": one.turn,
        "model": one.model,
        "status": one.status,
        "inputTokens": one.tokens.input if one.tokens else None,
        "outputTokens": one.tokens.output if one.tokens else None,
        "ms": one.took_ms,
        "said": said.text[:200],
        "calls": [call.name for call in said.calls],
    }


def _shown(one: Exchange, lane: Lane) -> dict[str, Any]:
    body = one.request if isinstance(one.request, dict) else {"body": one.request}
    names = {
        "system": ("system", "instructions", "systemInstruction", "system_instruction"),
        "tools": ("tools",),
        "messages": ("messages", "input", "contents"),
    }
    parts = {
        name: next((body[one] for one in spelled if one in body), None)
        for name, spelled in names.items()
    }
    taken = {name for spelled in names.values() for name in spelled}
    rest = {name: value for name, value in body.items() if name not in taken}
    return {
        "request": one.number,
        "lane": lane.lane,
        "path": one.path,
        **parts,
        "results": one.results,
        "rest": rest,
    }


def requests_of_steps(
    trajectory: Sequence[Any], said: Sequence[tuple[int, Said]]
) -> list[int | None]:
    """Return for each step the request whose answer it was: by the id of its call or by its text,
    and for a step that says neither, that of the next one."""
    by_id = {call.id: number for number, one in said for call in one.calls if call.id}
    left = [(call.name, number) for number, one in said for call in one.calls]
    found: list[int | None] = []
    for step in trajectory:
        known = step if isinstance(step, dict) else {}
        number = by_id.get(str(known.get("callId")))
        if number is None and known.get("type") == "tool_call":
            number = next((n for name, n in left if name == known.get("name")), None)
        if number is None and isinstance(content := known.get("content"), str) and content.strip():
            start = content.strip()[:_ALIKE]
            number = next((n for n, one in said if start in one.text), None)
        if number is not None and (known.get("name"), number) in left:
            left.remove((known["name"], number))
        found.append(number)
    following: int | None = None
    for place in range(len(found) - 1, -1, -1):
        following = found[place] = found[place] if found[place] is not None else following
    return found
