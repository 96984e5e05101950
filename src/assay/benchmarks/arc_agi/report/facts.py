"""Numbers about a run that several reports show; all from its scorecard."""

from collections.abc import Sequence
from typing import NamedTuple

from assay.benchmarks.arc_agi.store.card import GameRow, PlayRow, Scorecard, TrialRow

BUDGETS = (10, 25, 50, 100, 200, 500, 1000)


class Efficiency(NamedTuple):
    """Actions on completed levels against what a person needs."""

    actions: int
    baseline: int

    @property
    def ratio(self) -> float | None:
        """Actions for each action of a person; lower is better."""
        return self.actions / self.baseline if self.baseline else None


def all_trials(card: Scorecard) -> list[TrialRow]:
    """Give every trial of a card; a card of the seed has one for each game."""
    return [trial for game in card.games for trial in game.trials or _seed_trial(game)]


def efficiency(games: Sequence[GameRow]) -> Efficiency:
    """Add up the completed levels of the best play of each game."""
    actions = baseline = 0
    for game in games:
        play = game.best
        if play is None:
            continue
        for taken, usual in completed_levels(play):
            actions, baseline = actions + taken, baseline + usual
    return Efficiency(actions, baseline)


def completed_levels(play: PlayRow) -> list[tuple[int, int]]:
    """Give actions and baseline of each completed level that has both."""
    pairs = zip(play.level_actions, play.level_baseline_actions, strict=False)
    done = list(pairs)[: play.levels_completed]
    return [(taken, usual) for taken, usual in done if taken > 0 and usual]


def level_reach(card: Scorecard) -> list[tuple[int, int, int]]:
    """Give for each level: its number, trials that completed it, trials whose game has it."""
    trials = all_trials(card)
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
    """Give the mean share of levels completed within so many actions."""
    trials = [trial for game in card.games for trial in game.trials if trial.total_levels]
    if not trials:
        return [None for _ in budgets]
    return [
        sum(sum(at <= budget for at in t.progress) / t.total_levels for t in trials) / len(trials)
        for budget in budgets
    ]


def cost_per_level(card: Scorecard) -> float | None:
    """Give what one completed level cost; None when nobody said or none was completed."""
    if card.cost_usd is None or card.total_levels_completed == 0:
        return None
    return card.cost_usd / card.total_levels_completed


def _seed_trial(game: GameRow) -> list[TrialRow]:
    play = game.best
    if play is None:
        return []
    return [
        TrialRow(
            trial=1,
            score_percent=game.percent,
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
