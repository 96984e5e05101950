"""scorecard.json and environment-scores.json: the seed's fields and scales, ours beside them.

In the seed's files `score` is its own formula 1.0.0: 0 to 1 in scorecard.json, times 100 in
environment-scores.json. Ours say their scale in their name: `score_percent` is the official one.
"""

import msgspec


class PlayRow(msgspec.Struct, kw_only=True):
    """One play of one trial, as the seed's `runs` has it."""

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
    duration_s: float | None = None
    cost_usd: float | None = None
    progress: list[int] = []
    """Actions of all plays until each level was first completed."""
    log: str | None = None
    log_sha256: str | None = None
    verified: str | None = None


class GameRow(msgspec.Struct, kw_only=True):
    """One game: the mean over its trials."""

    id: str
    score: float | None = None
    runs: list[PlayRow] = []
    title: str = ""
    tags: list[str] = []
    score_percent: float | None = None
    score_reason: str | None = None
    """Why there is no score."""
    source_sha256: str | None = None
    level_count: int | None = None
    baselines: list[int] | None = None
    trials: list[TrialRow] = []

    @property
    def percent(self) -> float | None:
        """The official score; for a card of the seed, its own times 100."""
        if self.score_percent is not None or self.trials:
            return self.score_percent
        return None if self.score is None else self.score * 100

    @property
    def best(self) -> PlayRow | None:
        """The play that is shown: the best one."""
        if not self.runs:
            return None
        return max(self.runs, key=lambda run: (run.score_percent or run.score or 0, -run.actions))

    @property
    def n_levels(self) -> int:
        """How many levels the game has."""
        best = self.best
        return self.level_count or (best.number_of_levels if best else 0)


class Scorecard(msgspec.Struct, kw_only=True):
    """What a run achieved."""

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
    tags_scores: list[str] = []
    scoring_formula_version: str = "1.0.0"
    score_percent: float | None = None
    formula: str | None = None
    scorer: str | None = None
    games_scored: int = 0
    total_resets: int = 0
    cost_usd: float | None = None
    verified: str | None = None

    @property
    def percent(self) -> float | None:
        """The official score; for a card of the seed, its own times 100."""
        if self.formula is not None:
            return self.score_percent
        return None if self.score is None else self.score * 100


class LevelScore(msgspec.Struct, kw_only=True):
    """A level in environment-scores.json."""

    level_index: int
    score: float
    actions_taken: int
    baseline_actions: int | None
    completed: bool


class EnvironmentScore(msgspec.Struct, kw_only=True):
    """A game in environment-scores.json."""

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
    trials: int = 1
    verified: str | None = None


class EnvironmentScores(msgspec.Struct, kw_only=True):
    """The whole of environment-scores.json."""

    run_id: str
    overall_score: float | None
    environments: list[EnvironmentScore]
    official_percent: float | None = None
