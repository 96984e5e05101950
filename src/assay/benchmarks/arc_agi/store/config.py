"""config.json of the seed: where games are, and the defaults of a run."""

from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.catalog.games import BUILT_IN, list_games
from assay.benchmarks.arc_agi.problems import GameProblem
from assay.benchmarks.arc_agi.store.files import read_json
from assay.benchmarks.arc_agi.store.meta import HarnessConfig

CONFIG = "config.json"


class CrossHarness(msgspec.Struct, kw_only=True):
    """What is spoken with other harnesses."""

    result_schema_version: str = "1.0.0"
    supported_harnesses: list[str] = msgspec.field(
        default_factory=lambda: ["codex", "gemini", "opencode"]
    )


class Config(msgspec.Struct, kw_only=True):
    """The seed's settings; the toolkit is always used offline here."""

    version: str = "1.0.0"
    operation_mode: str = "offline"
    environments_dir: str = "./environment_files"
    recordings_dir: str = ".arc-agi-benchmarks/runs"
    default_seed: int = 0
    default_game_set: str = "all"
    default_max_steps: int | None = 500
    default_max_resets: int | None = 10
    harness: str = "assay"
    harness_config: HarnessConfig = msgspec.field(default_factory=HarnessConfig)
    cross_harness: CrossHarness = msgspec.field(default_factory=CrossHarness)
    created_at: str = ""
    updated_at: str = ""
    cached_env_count: int | None = None


def read_config(root: Path) -> Config:
    """Read config.json; without one the defaults hold."""
    path = root / CONFIG
    return read_json(path, Config) if path.is_file() else Config()


def games_folder(root: Path, config: Config, given: Path | None = None) -> Path:
    """Find the games: the folder that was given, the configured one, or the package's own."""
    if given is not None:
        if str(given) == "builtin":
            return BUILT_IN
        return _with_games(given)
    configured = root.parent / config.environments_dir
    if configured.is_dir() and any(configured.rglob("metadata.json")):
        return configured
    return BUILT_IN


def _with_games(folder: Path) -> Path:
    if not folder.is_dir() or not list_games(folder).games:
        msg = f"No ARC-AGI environments found in {folder}."
        raise GameProblem(
            msg, hint="give a folder with <game>/<version>/metadata.json, or see: assay arc setup"
        )
    return folder
