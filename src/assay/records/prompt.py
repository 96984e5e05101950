"""What we ask: the input of the whole flow."""

from typing import Any

import msgspec

from assay.errors import InputError

HINT = 'one JSON object per line, each with a unique id: {"id": "a", "input": "Say hello"}'


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One case put to an agent: one fresh session, one or several turns."""

    id: str
    """Unique in its file; every later record carries it."""
    input: str | list[str]
    """One turn, or the turns of a conversation in order."""
    hint: str | None = None
    """What a grader may look for. Never shown to the agent."""
    reference: str | None = None
    """A solution that must pass; used by validate-refs."""
    metadata: dict[str, Any] = {}
    """Category, difficulty and the like; copied into every result."""
    timeout: float | None = None
    """Wall clock for each turn of this prompt, in ms; stronger than -t."""

    @property
    def turns(self) -> tuple[str, ...]:
        """What is said to the agent, in order."""
        return (self.input,) if isinstance(self.input, str) else tuple(self.input)


def check_prompt(prompt: Prompt, place: str, places: dict[str, str]) -> None:
    """Refuse a prompt that cannot be run; places holds where the ids before it stand."""
    if not prompt.id:
        msg = f'{place}: "id" is empty; every prompt needs a unique id'
        raise InputError(msg)
    if prompt.id in places:
        msg = f'{place}: id "{prompt.id}" was used before, at {places[prompt.id]}'
        raise InputError(msg, hint="give every prompt an id of its own")
    if not prompt.turns:
        msg = f'{place}: "input" is an empty list; a prompt needs at least one turn'
        raise InputError(msg)
    if prompt.timeout is not None and prompt.timeout <= 0:
        msg = f'{place}: "timeout" is {prompt.timeout}; it must be more than 0 ms'
        raise InputError(msg)
    places[prompt.id] = place
