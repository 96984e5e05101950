"""Runs on disk: .arc-agi-benchmarks/ with runs, imports and comparisons.

Layout and fields are those of the reference, arc-agi-benchmarker; fields of our own follow its."""

import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from assay.errors import OutputError
from assay.records.files import replaced_file
from assay.records.rows import UNREADABLE
from assay_arc import GameProblem, StoreProblem
from assay_arc.catalog import BUILT_IN, list_games
from assay_arc.effort import CurvePoint, LevelEffort
from assay_arc.seal import Seal, read_seal

RECORDED, REPLAYED, UNVERIFIED = "recorded", "replayed", "unverified"
"""How far a run can be trusted: our own game process wrote its logs; they were replayed in the
engine and agreed; or it could not be checked."""


class HarnessConfig(msgspec.Struct, kw_only=True):
    model: str = "unknown"
    plugins: list[str] = []
    skills: list[str] = []
    mcp_servers: list[str] = []


class OfficialCard(msgspec.Struct, kw_only=True):
    card_id: str
    url: str
    score_percent: float | None = None
    """As the server scored it, once the card was closed."""
    closed: bool = False


class ReportedAgent(msgspec.Struct, kw_only=True):
    """What agents said about themselves when they started, alike in some trials of a run."""

    model: str | None = None
    version: str | None = None
    setup: dict[str, Any] = {}
    trials: list[str] = []


class RunMeta(msgspec.Struct, kw_only=True):
    run_id: str
    harness: str
    timestamp: str
    duration_seconds: float = 0
    game_set: str = "all"
    game_ids: list[str] = []
    seed: int = 0
    max_steps: int | None = 0
    max_resets: int | None = 0
    config_hash: str = ""
    harness_config: HarnessConfig = msgspec.field(default_factory=HarnessConfig)
    status: str = "running"
    arc_agi_version: str = "unknown"
    plugin_version: str = "1.0.0"
    games_played: int = 0
    games_total: int = 0
    trials: int = 1
    """Trials of each game."""
    tools: list[str] | None = None
    """What the player was given: some of image, grid, diff, memory; null for other harnesses."""
    verified: str | None = None
    verification: str | None = None
    """Why it is not verified."""
    game_sources: dict[str, str] = {}
    """sha256 of each game's source: the version that was played."""
    game_tags: dict[str, list[str]] = {}
    cost_usd: float | None = None
    tokens: int | None = None
    reasoning_chars: int | None = None
    transcripts: list[str] = []
    """What the agent of an imported run printed: files in the folder of the run."""
    not_measured: dict[str, str] = {}
    """Trials that say nothing about the agent, and why."""
    agents: list[ReportedAgent] = []
    """As the agents reported themselves; several where trials differ."""
    tampered: dict[str, list[str]] = {}
    """Trials in which the player changed files that are not its own, or killed its game."""
    content_sha256: str | None = None
    """Of an imported result, so that the same content is not imported twice."""
    session_sha256: dict[str, str] = {}
    """Of the session log of each imported game: the same sessions are not a second run."""
    notes: str | None = None
    official: OfficialCard | None = None
    """The scorecard on the official server, of an online run."""
    agent: dict[str, Any] | None = None
    """Which plugin with which options, for --resume."""
    benchmark: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


def config_hash(config: HarnessConfig, more: dict[str, Any] | None = None) -> str:
    """The reference's fingerprint of a configuration: sha256 of its JSON with sorted keys."""
    encoded = msgspec.json.encode(msgspec.to_builtins(config) | (more or {}), order="sorted")
    return hashlib.sha256(encoded).hexdigest()


class PlayRow(msgspec.Struct, kw_only=True):
    """One play of one trial, as in the reference's `runs`."""

    id: str = ""
    guid: str = ""
    score: float | None = None
    levels_completed: int = 0
    actions: int = 0
    resets: int = 0
    state: str = "NOT_PLAYED"
    completed: bool = False
    level_scores: list[float] = []
    level_actions: list[int] = []
    level_baseline_actions: list[int | None] = []
    number_of_levels: int = 0
    trial: int = 1
    play: int = 1
    score_percent: float | None = None
    level_scores_percent: list[float] = []
    """By the formula of score_percent; the official one gives up to 115."""

    @property
    def level_percents(self) -> list[float]:
        """The scores of the levels in percent; a card of the reference has its own alone."""
        return self.level_scores_percent or [score * 100 for score in self.level_scores]

    @property
    def actions_and_baselines(self) -> list[tuple[int, int]]:
        """Actions and baseline of each completed level that has both."""
        pairs = zip(self.level_actions, self.level_baseline_actions, strict=False)
        done = list(pairs)[: self.levels_completed]
        return [(taken, usual) for taken, usual in done if taken > 0 and usual]


class TrialRow(msgspec.Struct, kw_only=True):
    """One trial of a game: all its plays together."""

    trial: int
    score_percent: float | None = None
    score_fraction: float | None = None
    first_play_percent: float | None = None
    levels_completed: int
    total_levels: int
    won: bool
    state: str
    stop_reason: str
    actions: int
    """As scored: a reset of a level counts as one."""
    steps: int = 0
    resets: int
    game_failure: str | None = None
    """How the game itself broke, if that was the end of it."""
    claimed_actions: int | None = None
    """What an imported result says; a reset is not an action there."""
    duration_s: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    reasoning_tokens: int | None = None
    reasoning_chars: int | None = None
    progress: list[int] = []
    """Actions of all plays until each level was first completed."""
    levels: list[LevelEffort] = []
    """What each level took, over all plays."""
    curve: list[CurvePoint] = []
    """The score against the actions and the cost spent."""
    log: str | None = None
    log_sha256: str | None = None
    verified: str | None = None


class TagScore(msgspec.Struct, kw_only=True):
    """The games with one tag: the mean of their scores."""

    id: str
    games: int
    score: float | None
    score_percent: float | None
    levels_completed: int
    total_levels: int
    actions: int


class GameRow(msgspec.Struct, kw_only=True):
    """One game: the mean over its trials."""

    id: str
    score: float | None = None
    runs: list[PlayRow] = []
    title: str = ""
    tags: list[str] = []
    score_percent: float | None = None
    score_reason: str | None = None
    """Why there is no score, or why it is 0: not played."""
    source_sha256: str | None = None
    level_count: int | None = None
    baselines: list[int] | None = None
    trials: list[TrialRow] = []

    @property
    def percent(self) -> float | None:
        """The official score; for a card of the reference, its own times 100."""
        if self.score_percent is not None or self.trials:
            return self.score_percent
        return None if self.score is None else self.score * 100

    @property
    def best(self) -> PlayRow:
        """The play to show: the best one, or an empty one when nothing was played."""

        def merit(play: PlayRow) -> tuple[float, int]:
            return play.score_percent or play.score or 0, -play.actions

        return max(self.runs, key=merit, default=PlayRow())

    @property
    def is_played(self) -> bool:
        """Whether anything was played in any trial."""
        return any(play.state != "NOT_PLAYED" for play in self.runs)

    @property
    def n_levels(self) -> int:
        return self.level_count or self.best.number_of_levels

    @property
    def actions(self) -> int:
        """Of all trials; of the best play for a card of the reference, which has no trials."""
        return sum(trial.actions for trial in self.trials) or self.best.actions

    @property
    def resets(self) -> int:
        return sum(trial.resets for trial in self.trials) or self.best.resets

    @property
    def reference_trials(self) -> list[TrialRow]:
        """The best play as a trial, for a card of the reference, which has no trials."""
        play = self.best
        if not self.runs:
            return []
        return [
            TrialRow(
                trial=1,
                score_percent=self.percent,
                levels_completed=play.levels_completed,
                total_levels=play.number_of_levels,
                won=play.completed,
                state=play.state,
                stop_reason="unknown",
                actions=play.actions,
                steps=play.actions,
                resets=play.resets,
            )
        ]


class Scorecard(msgspec.Struct, kw_only=True):
    card_id: str = ""
    source_url: str | None = None
    tags: list[str] = []
    opaque: str | None = None
    competition_mode: bool = False
    score: float | None = None
    total_environments_completed: int = 0
    total_environments: int = 0
    total_levels_completed: int = 0
    total_levels: int = 0
    total_actions: int = 0
    games: list[GameRow] = []
    tags_scores: list[Any] = []
    """A TagScore for each tag; other programs put other things here."""
    scoring_formula_version: str = "1.0.0"
    score_percent: float | None = None
    formula: str | None = None
    scorer: str | None = None
    games_scored: int = 0
    total_resets: int = 0
    total_actions_claimed: int | None = None
    """As an imported result says; total_actions is counted."""
    games_not_played: int = 0
    """Chosen and not played: each of them is 0 in the scores."""
    cost_usd: float | None = None
    tokens: int | None = None
    reasoning_chars: int | None = None
    verified: str | None = None
    not_measured: dict[str, str] | UnsetType = UNSET

    @property
    def percent(self) -> float | None:
        """The official score; for a card of the reference, its own times 100."""
        if self.formula is not None:
            return self.score_percent
        return None if self.score is None else self.score * 100

    @property
    def best_first(self) -> list[GameRow]:
        """The games by their scores; those without a score last."""
        return sorted(self.games, key=lambda game: (game.percent is None, -(game.percent or 0)))

    @property
    def trials(self) -> list[TrialRow]:
        """Every trial; a card of the reference has one for each game that was played."""
        return [trial for game in self.games for trial in game.trials or game.reference_trials]

    @property
    def tokens_per_level(self) -> float | None:
        """The tokens of a completed level; None as with the cost."""
        if self.tokens is None or self.total_levels_completed == 0:
            return None
        return self.tokens / self.total_levels_completed

    @property
    def cost_per_level(self) -> float | None:
        """The cost of a completed level; None when it is unknown or none was completed."""
        if self.cost_usd is None or self.total_levels_completed == 0:
            return None
        return self.cost_usd / self.total_levels_completed


class LevelScore(msgspec.Struct, kw_only=True):
    level_index: int
    score: float
    actions_taken: int
    baseline_actions: int | None
    completed: bool


class EnvironmentScore(msgspec.Struct, kw_only=True):
    game_id: str
    title: str
    tags: list[str]
    score: float | None
    levels_completed: int
    total_levels: int
    total_actions: int
    total_resets: int
    state: str
    completed: bool
    levels: list[LevelScore]
    official_percent: float | None = None
    score_reason: str | None = None
    total_actions_claimed: int | None = None
    trials: int = 1
    verified: str | None = None


class EnvironmentScores(msgspec.Struct, kw_only=True):
    run_id: str
    overall_score: float | None
    environments: list[EnvironmentScore]
    official_percent: float | None = None


FOLDER = ".arc-agi-benchmarks"
HARNESSES = ("codex", "gemini", "opencode")
META, CARD, SCORES = "run-meta.json", "scorecard.json", "environment-scores.json"
SHORT = 8


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run folder and its metadata: as sealed, or as found and then unverified."""

    folder: Path
    meta: RunMeta
    imported: bool = False
    seal: Seal | None = None
    problem: str | None = None
    """How run-meta.json contradicts the seal."""

    def distrust(self, why: str) -> None:
        """Mark the run as unverified, here and not on disk."""
        self.meta.verified, self.meta.verification = UNVERIFIED, why

    @property
    def models(self) -> str:
        """The model that answered: as the agent reported it, otherwise as it was asked for."""
        reported = [one.model for one in self.meta.agents if one.model]
        return ", ".join(dict.fromkeys(reported)) or self.meta.harness_config.model

    @property
    def replayed_from(self) -> str:
        """The tape that answered its agent; empty if providers did."""
        tape = (self.meta.options or {}).get("tape")
        return str(tape.get("replay") or "") if isinstance(tape, dict) else ""

    @property
    def store(self) -> "Store":
        return Store(self.folder.parents[3 if self.imported else 1])

    @property
    def is_unfinished(self) -> bool:
        """Whether it is a run of our own that was stopped, or is still going on."""
        return not self.imported and self.meta.status != "completed"

    @property
    def is_unverified(self) -> bool:
        """Whether nobody could check this run."""
        return self.meta.verified == UNVERIFIED or (self.imported and self.meta.verified is None)

    @property
    def resume_command(self) -> str:
        return f"assay arc run --resume {self.meta.run_id}{self.store.option}"

    @property
    def label(self) -> str:
        """A short name for people: the harness and the beginning of the id."""
        return f"{self.meta.harness} {self.meta.run_id[:SHORT]}"


class Store:
    """One .arc-agi-benchmarks folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs_dir = root / "runs"
        self.cross_dir = root / "cross-harness"

    @property
    def option(self) -> str:
        """What a command that we tell needs to find this store: nothing if it is the default."""
        if self.root == Path(FOLDER).absolute():
            return ""
        return f" --store {shlex.quote(os.path.relpath(self.root))}"

    def import_dir(self, harness: str) -> Path:
        return self.cross_dir / harness / "runs"

    def native(self) -> list[StoredRun]:
        """Our own runs, oldest first."""
        return _sorted(self._read(self.runs_dir, imported=False))

    def unfinished(self) -> list[StoredRun]:
        """Our own runs that were stopped or are still going on, oldest first."""
        return [run for run in self.native() if run.is_unfinished]

    def imported(self) -> list[StoredRun]:
        """The runs imported from all harnesses, oldest first."""
        if not self.cross_dir.is_dir():
            return []
        folders = [path / "runs" for path in sorted(self.cross_dir.iterdir())]
        return _sorted(run for f in folders for run in self._read(f, imported=True))

    def completed(self) -> list[StoredRun]:
        """Every finished run, native and imported, oldest first."""
        runs = [*self.native(), *self.imported()]
        return _sorted(run for run in runs if run.meta.status == "completed")

    def find(self, name: str) -> StoredRun:
        """Find a run by its id, the beginning of it, `latest` or `previous`."""
        completed = self.completed()
        if name in ("latest", "previous"):
            place = -1 if name == "latest" else -2
            if not completed:
                msg = "No completed runs found."
                raise StoreProblem(msg, hint=self._first_hint())
            if len(completed) < -place:
                msg = "Only one completed run exists."
                hint = f"play another one with: assay arc run AGENT{self.option}"
                raise StoreProblem(msg, hint=hint)
            return completed[place]
        matches = [r for r in (*self.native(), *self.imported()) if r.meta.run_id.startswith(name)]
        exact = [run for run in matches if run.meta.run_id == name]
        found = exact or (matches if len(name) >= 4 else [])
        if len(found) == 1:
            return found[0]
        if found:
            msg = f"Run {name} is ambiguous: {', '.join(run.meta.run_id for run in found)}"
            raise StoreProblem(msg, hint="give more of the id")
        raise _not_found(name, completed)

    def _first_hint(self) -> str:
        """What to do where no run is complete."""
        if open_runs := self.unfinished():
            return f"one is unfinished; continue it with: {open_runs[-1].resume_command}"
        return f"play first with: assay arc run random --games all{self.option}"

    def _read(self, folder: Path, *, imported: bool) -> Iterator[StoredRun]:
        """Read the runs of a folder; anything else in it is skipped."""
        if not folder.is_dir():
            return
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") or not (path / META).is_file():
                continue
            try:
                run = stored_run(path, imported=imported)
            except StoreProblem:
                continue
            if run.meta.run_id == path.name:
                yield run


def stored_run(folder: Path, *, imported: bool) -> StoredRun:
    """A run as its seal says; without one, what run-meta.json says of trust counts for nothing."""
    found, seal = read_json(folder / META, RunMeta), read_seal(folder)
    if isinstance(seal, str):
        run = StoredRun(folder=folder, meta=found, imported=imported)
        run.distrust(seal if imported else f"{seal}; `assay arc verify` replays its logs")
        return run
    meta = msgspec.convert(seal.meta, RunMeta)
    problem = None
    if found != meta:
        name = next(n for n in RunMeta.__struct_fields__ if getattr(found, n) != getattr(meta, n))
        was, now = (msgspec.json.encode(getattr(one, name)).decode() for one in (meta, found))
        problem = f"{META} says {name} {now[:80]}, but it was {was[:80]} when Assay wrote it"
    return StoredRun(folder=folder, meta=meta, imported=imported, seal=seal, problem=problem)


def _sorted(runs: Iterator[StoredRun]) -> list[StoredRun]:
    return sorted(runs, key=lambda run: (run.meta.timestamp, run.meta.run_id))


def _not_found(name: str, completed: list[StoredRun]) -> StoreProblem:
    msg = f"Run {name} not found."
    if not completed:
        return StoreProblem(
            msg, hint="there are no completed runs; play first with: assay arc run random"
        )
    lines = [f"{r.meta.run_id}  {r.meta.harness}  {r.meta.timestamp[:16]}" for r in completed[-10:]]
    return StoreProblem(msg, hint="Available runs:\n    " + "\n    ".join(lines))


CONFIG = "config.json"
BUILT_IN_NAME = "builtin"
"""Stands for the games of the package, in the configuration and for --env-dir."""


class CrossHarness(msgspec.Struct, kw_only=True):
    """Which harnesses results are exchanged with, and in which schema."""

    result_schema_version: str = "1.0.0"
    supported_harnesses: list[str] = msgspec.field(default_factory=lambda: list(HARNESSES))


class StoreConfig(msgspec.Struct, kw_only=True):
    """The reference's settings; here the toolkit is used offline, except by `arc run --online`."""

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


def read_config(root: Path) -> StoreConfig:
    """Read config.json; without one the defaults apply."""
    path = root / CONFIG
    return read_json(path, StoreConfig) if path.is_file() else StoreConfig()


def games_folder(root: Path, config: StoreConfig, given: Path | None = None) -> Path:
    """Find the games: the folder that was given, the configured one, or the package's own.

    The package's own take the place of the default folder only: another one was chosen by someone.
    """
    if given is not None:
        return BUILT_IN if str(given) == BUILT_IN_NAME else _with_games(given)
    if config.environments_dir == BUILT_IN_NAME:
        return BUILT_IN
    # The games of this folder, wherever the runs are kept; else those beside the runs.
    for configured in (
        Path(config.environments_dir).absolute(),
        root.parent / config.environments_dir,
    ):
        if configured.is_dir() and any(configured.rglob("metadata.json")):
            return configured
    if Path(config.environments_dir) == Path(StoreConfig().environments_dir):
        return BUILT_IN
    what = "has no games in it" if configured.is_dir() else "does not exist"
    msg = f"{root / CONFIG}: environments_dir {config.environments_dir} {what}"
    raise GameProblem(
        msg, hint="correct it there, or give the folder of the games with --env-dir DIR or builtin"
    )


def _with_games(folder: Path) -> Path:
    if not folder.is_dir() or not list_games(folder).games:
        msg = f"No ARC-AGI environments found in {folder}."
        raise GameProblem(
            msg, hint="give a folder with <game>/<version>/metadata.json, or see: assay arc setup"
        )
    return folder


def write_json(path: Path, value: Any) -> None:
    """Write a record or plain data, indented like the reference's files; NaN becomes null."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    write_bytes(path, data)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(path) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise OutputError(
            msg, hint="check the folder, its permissions and the free space"
        ) from error


def read_json[T](path: Path, kind: type[T]) -> T:
    """Read a file written by us or by the reference; errors name the file and the fault."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        msg = f"{path.name} not found in {path.parent}"
        raise StoreProblem(msg) from error
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror}"
        raise StoreProblem(msg) from error
    except UNREADABLE as error:
        msg = f"{path}: has an unexpected format: {error}"
        raise StoreProblem(msg) from error
