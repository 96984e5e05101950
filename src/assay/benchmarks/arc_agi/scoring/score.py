"""Scores one game under a named formula; null with a reason where it can not be scored."""

from collections.abc import Sequence

import msgspec

from assay.benchmarks.arc_agi.log.result import GameResult, PlayResult
from assay.benchmarks.arc_agi.scoring.official import PERCENT_FORMULAS, SCORER, rhae_squared_115
from assay.benchmarks.arc_agi.scoring.rows import LevelRow, baseline_problem, official_rows
from assay.benchmarks.arc_agi.scoring.seed import seed_game_fraction, seed_level_fraction

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
