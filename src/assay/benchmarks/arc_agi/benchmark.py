"""ARC-AGI-3 as a benchmark: one prompt for each game, a game process as the world of each trial."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.benchmarks.arc_agi.catalog.game import GameInfo
from assay.benchmarks.arc_agi.catalog.games import BUILT_IN, list_games, pick_game
from assay.benchmarks.arc_agi.log.records import Limits
from assay.benchmarks.arc_agi.problems import GameProblem
from assay.benchmarks.arc_agi.prompt_text import player_prompt
from assay.benchmarks.arc_agi.world import GameWorld
from assay.records.prompt import Prompt
from assay.records.trial import PluginRef, TrialSpec
from assay.seams import Machine


@dataclass(frozen=True)
class ArcBenchmark:
    """Games of a folder, the package's own by default."""

    games: Sequence[str] = ()
    """Ids or base ids; none means all."""
    games_dir: str | None = None
    seed: int = 0
    max_steps: int | None = None
    max_resets: int | None = None
    mcp: bool = True
    """Offer the MCP server to the agent, not only the command."""
    logs_dir: str | None = None
    """Where event logs are written; without it they are kept with the raw streams."""
    logs_prefix: str = ""
    """The same as the rows of the output name it."""

    def prompts(self) -> Iterable[tuple[Prompt, dict[str, Any]]]:
        """Give a prompt for each game; its metadata pins the game's version and the rules."""
        text = player_prompt(self._limits, mcp=self.mcp)
        for info in self.chosen_games():
            metadata = {
                "game": info.game_id,
                "sourceSha256": info.source_sha256,
                "seed": self.seed,
                "maxSteps": self.max_steps,
                "maxResets": self.max_resets,
            }
            yield Prompt(id=info.game_id, input=text, metadata=metadata), {}

    def chosen_games(self) -> list[GameInfo]:
        """Give the games that are meant, each once, in the order asked for."""
        folder = self._folder
        known = list_games(folder).games
        if not self.games:
            return list(known)
        found = [pick_game(name, known, folder) for name in self.games]
        return list({info.game_id: info for info in found}.values())

    @contextmanager
    def world(self, spec: TrialSpec, workspace: Path, host: Machine) -> Iterator[GameWorld]:
        """Run the trial's game in a process of its own, in a folder nothing else is in."""
        info = self._game_of(spec)
        log, prefix = self._log_path(spec)
        with tempfile.TemporaryDirectory(prefix="arc-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            world = GameWorld(
                info,
                log or folder / "l" / "game.jsonl",
                folder,
                host,
                seed=self.seed,
                limits=self._limits,
                mcp=self.mcp,
            )
            world.env["ARC_PLAYER_SEED"] = str(spec.number)
            world.log_name = prefix
            try:
                world.open()
                yield world
            finally:
                world.close()
                if log is None:
                    world.keep_log(_raw_folder(spec))

    def graders(self) -> Sequence[PluginRef]:
        """Name the grader that reads the world's evidence."""
        return (PluginRef(name="arc"),)

    @property
    def _limits(self) -> Limits:
        return Limits(max_steps=self.max_steps, max_resets=self.max_resets)

    @property
    def _folder(self) -> Path:
        return Path(self.games_dir) if self.games_dir else BUILT_IN

    def _game_of(self, spec: TrialSpec) -> GameInfo:
        name = str(spec.prompt.metadata.get("game", spec.prompt.id))
        info = pick_game(name, list_games(self._folder).games, self._folder)
        planned = spec.prompt.metadata.get("sourceSha256", info.source_sha256)
        if planned != info.source_sha256:
            message = f"{info.source} has changed since this run was planned"
            raise GameProblem(message, hint="begin a new run with the game as it is now")
        return info

    def _log_path(self, spec: TrialSpec) -> tuple[Path | None, str]:
        if self.logs_dir is None:
            return None, "game.jsonl"
        name = f"{spec.raw_folder}.jsonl"
        return Path(self.logs_dir, name), f"{self.logs_prefix}{name}"


def _raw_folder(spec: TrialSpec) -> Path | None:
    raw = spec.surroundings.raw_dir
    return Path(raw, spec.raw_folder) if raw is not None else None
