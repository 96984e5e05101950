"""What one trial's processes emitted, before anybody reads a meaning into it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.failure import Failure


class RawLine(NamedTuple):
    """One line as the agent wrote it, with the moment it reached us."""

    t_ms: int
    """Since the start of the trial."""
    text: bytes
    oversized: bool = False
    """Too long to read: text holds only its beginning."""


class TurnEnd(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """How one turn's process began and ended."""

    start_ms: int = 0
    """Since the start of the trial."""
    spawned_ms: int = 0
    end_ms: int = 0
    exit_code: int | None = None
    signal: str | None = None
    """What ended the process, when a signal did."""
    timed_out: bool = False
    stalled: bool = False
    over_limit: bool = False
    """Wrote more than Limits.output_bytes."""
    lingered: bool = False
    """Was ended by us after its result event."""
    lines: int | UnsetType = UNSET
    """How many of a raw row's lines belong to this turn."""


class Turn(msgspec.Struct, frozen=True):
    """One turn: what was said, how it ended, and its lines, read when asked for."""

    text: str
    end: TurnEnd
    lines: Callable[[], Iterable[RawLine]]
    seen: Any = None
    """Whoever followed the turn live and saw every line of it; an adapter may know its own."""


class Recording(msgspec.Struct, frozen=True):
    """All turns of one trial and what was kept of the agent's own files."""

    start_ms: int
    """Since the epoch."""
    end_ms: int
    turns: tuple[Turn, ...] = ()
    failure: Failure | None = None
    """Set when the trial could not be run at all."""
    stderr: str = ""
    kept: Path | None = None
    """Folder with the agent's own session files."""
    raw: str | None = None
    workspace: str | None = None
    evidence: dict[str, Any] = {}
    retried: tuple[Failure, ...] = ()
    unsplit: bool = False
    """Made by another harness that did not keep the turns apart: they are all in one."""
