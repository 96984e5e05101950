"""Runs one game in the real toolkit, offline, and reads its answers into observations."""

import inspect
from importlib.metadata import version
from typing import Any

from assay.benchmarks.arc_agi.catalog.game import GameInfo
from assay.benchmarks.arc_agi.engine.answer import Observation
from assay.benchmarks.arc_agi.engine.quiet import silence_toolkit
from assay.benchmarks.arc_agi.log.frames import FRAME_BYTES, SIDE
from assay.benchmarks.arc_agi.problems import GameProblem


def toolkit_versions() -> tuple[str, str]:
    """Give the versions of arc_agi and of its engine."""
    return version("arc-agi"), version("arcengine")


class ToolkitEngine:
    """One game of one folder; keeps the toolkit's own scorecard beside it."""

    def __init__(self, info: GameInfo, seed: int = 0) -> None:
        logger = silence_toolkit()
        from arc_agi import Arcade, OperationMode
        from arcengine import GameAction

        self._actions: dict[str, Any] = {action.name: action for action in GameAction}
        self._arcade = Arcade(
            operation_mode=OperationMode.OFFLINE, environments_dir=str(info.folder), logger=logger
        )
        self._card = self._arcade.open_scorecard()
        self._env = self._make(info, seed)
        if self._env is None or self._env.observation_space is None:
            message = f"{info.source}: the toolkit could not start {info.game_id}"
            raise GameProblem(
                message, hint="does the file define the class named in metadata.json?"
            )
        self.seed_used = "seed" in inspect.signature(type(self._env._game)).parameters

    def _make(self, info: GameInfo, seed: int) -> Any:
        """Run the game's file and make its class; both are a stranger's code."""
        try:
            return self._arcade.make(info.game_id, seed=seed, scorecard_id=self._card)
        except Exception as error:
            message = f"{info.source}: {info.game_id} failed to start: {error!r}"
            raise GameProblem(message) from error

    def start(self) -> Observation | None:
        """Give the observation of the reset that the toolkit did by itself."""
        return _observe(self._env.observation_space)

    def act(self, action: str, x: int | None = None, y: int | None = None) -> Observation | None:
        """Do one action; a click carries its place."""
        if action == "RESET":
            return _observe(self._env.reset())
        data = {"x": x, "y": y} if x is not None else None
        return _observe(self._env.step(self._actions[action], data=data))

    def official_scorecard(self) -> Any:
        """Give the toolkit's own scorecard of this process; a test oracle, never a source."""
        return self._arcade.get_scorecard(self._card)


def _observe(raw: Any) -> Observation | None:
    """Read an answer; one without frames is not an answer (the toolkit gives it after the end)."""
    if raw is None or not raw.frame:
        return None
    if any(frame.shape != (SIDE, SIDE) for frame in raw.frame):
        return None
    frames = tuple(frame.astype("uint8").tobytes() for frame in raw.frame)
    if any(len(frame) != FRAME_BYTES for frame in frames):
        return None
    return Observation(
        state=raw.state.name,
        levels_completed=int(raw.levels_completed),
        win_levels=int(raw.win_levels),
        full_reset=bool(raw.full_reset),
        available_actions=tuple(int(action) for action in raw.available_actions),
        frames=frames,
    )
