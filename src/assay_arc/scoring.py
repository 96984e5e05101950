"""Scores of a game, computed from its plays; every score names its formula and its scale."""

from collections.abc import Callable, Sequence

import msgspec

from assay_arc.result import GameResult, PlayResult


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one level contributes to a score."""

    index: int
    completed: bool
    actions: int
    baseline: int


def official_rows(
    actions: int, marks: Sequence[tuple[int, int]], baselines: Sequence[int]
) -> list[LevelRow]:
    """Give one row for each baseline; each mark completes one level, whatever number it says."""
    rows, before = [], 0
    for i, baseline in enumerate(baselines):
        completed = i < len(marks)
        until = marks[i][1] if completed else actions
        row = LevelRow(index=i + 1, completed=completed, actions=until - before, baseline=baseline)
        rows.append(row)
        before = until
    return rows


def baseline_problem(baselines: Sequence[int] | None, level_count: int) -> str | None:
    """Say why these baselines can not be scored with, or None when they can."""
    if not baselines:
        return "the game's metadata has no baselines"
    if len(baselines) != level_count:
        return f"the game's metadata has {len(baselines)} baselines for {level_count} levels"
    for i, baseline in enumerate(baselines):
        if baseline < 0:
            return f"the baseline of level {i + 1} is {baseline}, below zero"
    return None


# The toolkit whose scorer the current formula was tested against, to 1e-9.
SCORER = "arc_agi 0.9.9/RHAE-1.15"


def rhae_squared_115(rows: Sequence[LevelRow]) -> tuple[float, list[float]]:
    """Since 2026-04-14: squared, a level at most 115, a game at most its completed share."""
    scores = [_level_percent(row, power=2, cap=115.0) for row in rows]
    weight = sum(row.index for row in rows)
    earned = sum(row.index for row, score in zip(rows, scores, strict=True) if score > 0)
    return min(_weighted(rows, scores), earned / weight * 100), scores


def rhae_squared_100(rows: Sequence[LevelRow]) -> tuple[float, list[float]]:
    """Before 2026-04-14: squared, a level at most 100, weighted by its index."""
    scores = [_level_percent(row, power=2, cap=100.0) for row in rows]
    return _weighted(rows, scores), scores


def rhae_linear_100(rows: Sequence[LevelRow]) -> tuple[float, list[float]]:
    """The first toolkits: plain ratio, a level at most 100, all levels equal."""
    scores = [_level_percent(row, power=1, cap=100.0) for row in rows]
    return sum(scores) / len(scores), scores


PERCENT_FORMULAS: dict[str, Callable[[Sequence[LevelRow]], tuple[float, list[float]]]] = {
    "rhae-squared-1.15": rhae_squared_115,
    "rhae-squared-1.00": rhae_squared_100,
    "rhae-linear-1.00": rhae_linear_100,
}


def _level_percent(row: LevelRow, *, power: int, cap: float) -> float:
    if not row.completed or row.actions <= 0:
        return 0.0
    return float(min((row.baseline / row.actions) ** power * 100, cap))


def _weighted(rows: Sequence[LevelRow], scores: Sequence[float]) -> float:
    total = sum(score * row.index for row, score in zip(rows, scores, strict=True))
    return total / sum(row.index for row in rows)


OFFICIAL, FIRST_PLAY, SEED = "official", "first_play", "seed-1.0.0"
FORMULAS = (OFFICIAL, FIRST_PLAY, *PERCENT_FORMULAS, SEED)


class Score(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One score; exactly one of percent and fraction is set, or neither and a reason.

    toolkit_percent is what arc_agi itself prints, which is 0 where it has no usable baselines.
    """

    formula: str
    scorer: str
    score_percent: float | None = None
    score_fraction: float | None = None
    reason: str | None = None
    play: int | None = None
    level_scores_percent: tuple[float, ...] | None = None
    level_scores_fraction: tuple[float, ...] | None = None
    toolkit_percent: float | None = None


def score_game(result: GameResult, formula: str = OFFICIAL) -> Score:
    """Score a game: the best of its plays, or the first alone for first_play."""
    if formula not in FORMULAS:
        message = f"unknown scoring formula {formula!r}; known: {', '.join(FORMULAS)}"
        raise ValueError(message)
    plays = result.plays[:1] if formula == FIRST_PLAY else result.plays
    if not plays:
        return Score(formula=formula, scorer=_scorer(formula), reason="nothing was played")
    reason = baseline_problem(result.baselines, result.level_count)
    if reason:
        toolkit = _toolkit_percent(plays, result) if formula in (OFFICIAL, FIRST_PLAY) else None
        return Score(
            formula=formula, scorer=_scorer(formula), reason=reason, toolkit_percent=toolkit
        )
    scores = [_score_play(formula, play, result) for play in plays]
    return max(scores, key=lambda s: (s.score_percent or 0.0) + (s.score_fraction or 0.0))


def score_all(result: GameResult) -> dict[str, Score]:
    """Score a game under every formula."""
    return {formula: score_game(result, formula) for formula in FORMULAS}


def mean_percent(scores: Sequence[Score]) -> float | None:
    """Average the games that have a score; None when none has."""
    known = [score.score_percent for score in scores if score.score_percent is not None]
    return sum(known) / len(known) if known else None


def toolkit_play_percent(play: PlayResult, baselines: Sequence[int] | None) -> float:
    """Give what arc_agi's scorecard prints for a play, with its zeros for unusable baselines."""
    if not baselines or len(baselines) < len(play.marks):
        return 0.0
    return rhae_squared_115(official_rows(play.actions, play.marks, baselines))[0]


def _toolkit_percent(plays: Sequence[PlayResult], result: GameResult) -> float:
    return max(toolkit_play_percent(play, result.baselines) for play in plays)


def _score_play(formula: str, play: PlayResult, result: GameResult) -> Score:
    rows = official_rows(play.actions, play.marks, result.baselines or ())
    if formula == SEED:
        return _seed_score(play, rows, result.level_count)
    current = formula in (OFFICIAL, FIRST_PLAY)
    percent, levels = PERCENT_FORMULAS["rhae-squared-1.15" if current else formula](rows)
    return Score(
        formula=formula,
        scorer=_scorer(formula),
        score_percent=percent,
        play=play.index,
        level_scores_percent=tuple(levels),
        toolkit_percent=percent if current else None,
    )


def _seed_score(play: PlayResult, rows: Sequence[LevelRow], level_count: int) -> Score:
    return Score(
        formula=SEED,
        scorer=_scorer(SEED),
        score_fraction=seed_game_fraction(rows, level_count),
        play=play.index,
        level_scores_fraction=tuple(seed_level_fraction(row) for row in rows),
    )


def _scorer(formula: str) -> str:
    return SCORER if formula in (OFFICIAL, FIRST_PLAY) else f"assay/{formula}"


def seed_game_fraction(rows: Sequence[LevelRow], total_levels: int) -> float:
    """Weigh the levels by their place; levels without a row count as not completed."""
    n = max(len(rows), total_levels)
    if n == 0:
        return 0.0
    total = sum(seed_level_fraction(row) * (i + 1) for i, row in enumerate(rows))
    return total / (n * (n + 1) / 2)


def seed_level_fraction(row: LevelRow) -> float:
    """Square of baseline over actions, at most 1; 0 when the level was not completed."""
    if not row.completed or row.actions <= 0:
        return 0.0
    return float(min((row.baseline / row.actions) ** 2, 1.0))
