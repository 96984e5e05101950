"""The lines of an event log: a header, then one record for each command, pause and end."""

from typing import Any, Literal

import msgspec

SCHEMA = "assay-arc-log/1"

Outcome = Literal["executed", "rejected", "shown", "failed"]
StopReason = Literal[
    "win", "game_over", "step_limit", "reset_limit", "timeout", "player_quit", "crash"
]


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much a player may do; null means as much as it likes."""

    max_steps: int | None = None
    max_resets: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the engine said after one action; frames are its pixels, packed (see frames.py)."""

    state: str
    levels_completed: int
    win_levels: int
    full_reset: bool = False
    available_actions: tuple[int, ...] = ()
    n_frames: int = 0
    frame_sha256: str = ""
    frames: str = ""


class Counters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals after this command: steps and resets of all plays, actions as scored of this play."""

    steps: int = 0
    resets: int = 0
    rejected: int = 0
    play: int = 0
    play_actions: int = 0
    play_resets: int = 0


class Header(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="header", tag_field="type"
):
    """The first line: which game exactly, under which rules, in which engine."""

    schema: str = SCHEMA
    game_id: str
    title: str = ""
    source_sha256: str
    baselines: tuple[int, ...] | None = None
    level_count: int
    toolkit_version: str
    engine_version: str
    seed: int = 0
    seed_used: bool = False
    limits: Limits = Limits()
    started_at: str


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag="event",
    tag_field="type",
    omit_defaults=True,
):
    """One command as received, and what became of it.

    executed: the engine did it; failed: the engine broke on it; rejected: the engine never saw
    it; shown: the player only looked. The engine's own first reset is an executed RESET, seq 0.
    """

    seq: int
    at: str
    received: Any = None
    outcome: Outcome
    action: str | None = None
    x: int | None = None
    y: int | None = None
    message: str | None = None
    limit: Literal["steps", "resets"] | None = None
    answer: Answer | None = None
    counters: Counters = Counters()


class Resumed(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="resumed", tag_field="type"
):
    """The game process was started again and replayed everything above this line."""

    seq: int
    at: str
    replayed_actions: int


class End(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="end", tag_field="type"):
    """The game was closed on purpose; why is known only to the one who closed it."""

    seq: int
    at: str
    reason: Literal["player_quit", "timeout", "crash"]
    message: str = ""


Record = Header | Event | Resumed | End
