"""What a game engine promises to the rest of the package; knows nothing of arc_agi."""

from typing import Protocol

import msgspec

from assay.benchmarks.arc_agi.log.frames import frames_digest, pack_frames
from assay.benchmarks.arc_agi.log.records import Answer


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a game stands; frames are 4096 bytes each, the last one is what is seen now."""

    state: str
    levels_completed: int
    win_levels: int
    full_reset: bool
    available_actions: tuple[int, ...]
    frames: tuple[bytes, ...]

    @property
    def frame(self) -> bytes:
        """The picture as it is now."""
        return self.frames[-1]

    def to_answer(self) -> Answer:
        """Make the record of this observation for the log."""
        return Answer(
            state=self.state,
            levels_completed=self.levels_completed,
            win_levels=self.win_levels,
            full_reset=self.full_reset,
            available_actions=self.available_actions,
            n_frames=len(self.frames),
            frame_sha256=frames_digest(self.frames),
            frames=pack_frames(self.frames),
        )


class Engine(Protocol):
    """One game, started; None means the game itself broke on the action."""

    def start(self) -> Observation | None:
        """Give the first observation: the toolkit resets once when it makes a game."""
        ...

    def act(self, action: str, x: int | None = None, y: int | None = None) -> Observation | None:
        """Do ACTION1 to ACTION7, or RESET."""
        ...
