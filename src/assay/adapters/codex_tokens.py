"""Token counts as Codex tells them, and sums of them."""

from collections.abc import Iterable
from typing import Any

_TOKENS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
type Tokens = dict[str, int]


def add_tokens(several: Iterable[Tokens | None]) -> Tokens | None:
    """Add up; None when nobody knows."""
    total: Tokens | None = None
    for tokens in several:
        if tokens is not None:
            total = {name: (total or {}).get(name, 0) + tokens.get(name, 0) for name in _TOKENS}
    return total


def take_tokens(usage: Any) -> Tokens | None:
    """Read the token counts of a usage object."""
    if not isinstance(usage, dict):
        return None
    return {name: n for name in _TOKENS if isinstance(n := usage.get(name), int)}


def subtract_tokens(after: Tokens, before: Tokens | None) -> Tokens:
    """Give what was added to a running total; one that began anew is taken as it is."""
    if before is None or any(after.get(name, 0) < before.get(name, 0) for name in _TOKENS):
        return after
    return {name: n - before.get(name, 0) for name, n in after.items()}
