"""Figures of a scorecard: efficiency, progress, and the score against what was spent."""

import html
from collections.abc import Sequence

import msgspec

from assay_arc.effort import mean_curve
from assay_arc.store import GameRow, Scorecard, TrialRow

BUDGETS = (10, 25, 50, 100, 200, 500, 1000)
"""Numbers of actions for which reports say how far a run had come."""

type Curve = list[tuple[float, float]]
"""What was spent, and the mean official score in percent; the score stays until the next point."""


def part_of_card(card: Scorecard, game_ids: Sequence[str]) -> Scorecard:
    """The card as if only these games had been chosen; its scores are left out."""
    part = msgspec.structs.replace(card, games=[g for g in card.games if g.id in game_ids])
    trials = part.trials
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    part.cost_usd = sum(costs) if costs else None
    tokens = [trial.tokens for trial in trials if trial.tokens is not None]
    part.tokens = sum(tokens) if tokens else None
    part.total_levels_completed = sum(trial.levels_completed for trial in trials)
    part.total_levels = sum(trial.total_levels for trial in trials)
    part.total_actions = sum(trial.actions for trial in trials)
    part.score = part.score_percent = None
    return part


def efficiency(games: Sequence[GameRow]) -> tuple[int, int, float | None]:
    """Actions on the completed levels of each best play, those of a person, and their ratio."""
    pairs = [pair for game in games for pair in game.best.actions_and_baselines]
    taken, usual = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return taken, usual, taken / usual if usual else None


def level_reach(card: Scorecard) -> list[tuple[int, int, int]]:
    """For each level: its number, trials that completed it, trials whose game has it."""
    trials = card.trials
    most = max((trial.total_levels for trial in trials), default=0)
    return [
        (
            level,
            sum(trial.levels_completed >= level for trial in trials),
            sum(trial.total_levels >= level for trial in trials),
        )
        for level in range(1, most + 1)
    ]


def progress_curve(card: Scorecard, budgets: Sequence[int] = BUDGETS) -> list[float | None]:
    """The mean share of levels completed within each budget of actions."""
    trials = [trial for game in card.games for trial in game.trials if trial.total_levels]
    if not trials:
        return [None for _ in budgets]
    return [
        sum(sum(at <= budget for at in t.progress) / t.total_levels for t in trials) / len(trials)
        for budget in budgets
    ]


def score_by_actions(card: Scorecard) -> Curve:
    """The mean score over the games, had every trial been stopped after this many actions."""
    games = [
        [([(p.actions, p.score_percent) for p in trial.curve], trial.actions) for trial in trials]
        for trials in _scored(card)
    ]
    return mean_curve(games) if games else []


def score_by_cost(card: Scorecard) -> Curve:
    """The same against US dollars a trial; empty unless the cost of every trial is known."""
    games = []
    for trials in _scored(card):
        points = []
        for trial in trials:
            if (total := trial.cost_usd) is None:
                return []
            spent = [
                (total if p.cost_usd is None else p.cost_usd, p.score_percent) for p in trial.curve
            ]
            points.append((spent, total))
        games.append(points)
    return mean_curve(games) if games else []


def _scored(card: Scorecard) -> list[list[TrialRow]]:
    """The trials of each game that has a score."""
    return [game.trials for game in card.games if game.percent is not None and game.trials]


def score_at(curve: Curve, spent: float) -> float | None:
    """The score with this much spent."""
    return max((score for x, score in curve if x <= spent), default=None)


WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 48, 36, 14, 16


def curve_picture(title: str, unit: str, curve: Curve) -> str:
    """Draw a curve as SVG, as steps: the score changes only when a level is completed."""
    most = max((x for x, _ in curve), default=0.0)
    if most <= 0:
        return ""
    highest = max(score for _, score in curve) or 1.0
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    places = [
        (
            round(LEFT + x / most * (right - LEFT), 1),
            round(bottom - y / highest * (bottom - TOP), 1),
        )
        for x, y in curve
    ]
    line = f"M{places[0][0]},{places[0][1]}" + "".join(f" H{x} V{y}" for x, y in places[1:])
    amount = f"${most:.4f}" if unit == "$" else f"{most:.0f} {unit}"
    words = html.escape(f"{title}: {highest:.1f} % after {amount}")
    font = 'font-size="12" fill="currentColor" font-family="system-ui, sans-serif"'
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="{words}"><path d="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>'
        f'<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="currentColor"/>'
        f'<text x="4" y="{TOP + 4}" {font}>{highest:.0f} %</text>'
        f'<text x="20" y="{bottom}" {font}>0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 14}" {font}>0</text>'
        f'<text x="{right}" y="{HEIGHT - 14}" text-anchor="end" {font}>{html.escape(amount)}</text>'
        f"</svg><figcaption>{words}</figcaption></figure>"
    )
