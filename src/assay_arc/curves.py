"""The score of a run against what it spent: as numbers, and as a picture for the report."""

import html

from assay_arc.effort import mean_curve
from assay_arc.store import Scorecard, TrialRow

type Curve = list[tuple[float, float]]
"""What was spent, and the mean official score in percent; the score stays until the next point."""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 48, 36, 14, 16


def score_by_actions(card: Scorecard) -> Curve:
    """The mean score over the games, had every trial been stopped after so many actions."""
    games = [
        [([(p.actions, p.score_percent) for p in trial.curve], trial.actions) for trial in trials]
        for trials in _scored(card)
    ]
    return mean_curve(games) if games else []


def score_by_cost(card: Scorecard) -> Curve:
    """The same against US dollars a trial; empty unless the cost of every trial is known."""
    games = _scored(card)
    if not games or any(trial.cost_usd is None for trials in games for trial in trials):
        return []
    return mean_curve([[_by_cost(trial) for trial in trials] for trials in games])


def _by_cost(trial: TrialRow) -> tuple[list[tuple[float, float]], float]:
    total = trial.cost_usd or 0.0
    points = [(total if p.cost_usd is None else p.cost_usd, p.score_percent) for p in trial.curve]
    return points, total


def _scored(card: Scorecard) -> list[list[TrialRow]]:
    """The trials of each game that has a score."""
    return [game.trials for game in card.games if game.percent is not None and game.trials]


def score_at(curve: Curve, spent: float) -> float | None:
    """The score with this much spent."""
    return max((score for x, score in curve if x <= spent), default=None)


def curve_picture(title: str, unit: str, curve: Curve) -> str:
    """Draw a curve as SVG, as steps: the score changes only when a level is completed."""
    most = max((x for x, _ in curve), default=0.0)
    if most <= 0:
        return ""
    top = max(score for _, score in curve) or 1.0

    places = [(_across(x, most), _down(y, top)) for x, y in curve]
    line = f"M{places[0][0]},{places[0][1]}" + "".join(f" H{x} V{y}" for x, y in places[1:])
    words = html.escape(f"{title}: {top:.1f} % after {_amount(most, unit)}")
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="{words}"><path d="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>'
        f"{_axes(most, top, unit)}</svg><figcaption>{words}</figcaption></figure>"
    )


def _across(value: float, most: float) -> float:
    return round(LEFT + value / most * (WIDTH - LEFT - RIGHT), 1)


def _down(score: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - score / top * (HEIGHT - BOTTOM - TOP), 1)


def _axes(most: float, top: float, unit: str) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    style = 'font-size="12" fill="currentColor" font-family="system-ui, sans-serif"'
    return (
        f'<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="currentColor"/>'
        f'<text x="4" y="{TOP + 4}" {style}>{top:.0f} %</text>'
        f'<text x="20" y="{bottom}" {style}>0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 14}" {style}>0</text>'
        f'<text x="{right}" y="{HEIGHT - 14}" text-anchor="end" {style}>'
        f"{html.escape(_amount(most, unit))}</text>"
    )


def _amount(value: float, unit: str) -> str:
    return f"${value:.4f}" if unit == "$" else f"{value:.0f} {unit}"
