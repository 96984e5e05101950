"""What we ask: the input of the whole flow."""

from typing import Any

import msgspec


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
