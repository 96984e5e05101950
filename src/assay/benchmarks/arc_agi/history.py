"""What was ever played of each game: from all scorecards, native and imported."""

import msgspec

from assay.benchmarks.arc_agi.problems import StoreProblem
from assay.benchmarks.arc_agi.report.run_report import is_unverified
from assay.benchmarks.arc_agi.store.card import GameRow
from assay.benchmarks.arc_agi.store.layout import SHORT, Store, StoredRun


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One game in one run."""

    run: StoredRun
    game: GameRow

    def words(self) -> str:
        """Say it in the seed's line."""
        meta, best = self.run.meta, self.game.best
        percent = self.game.percent
        score = "-" if percent is None else f"{percent:.1f}"
        done = best.levels_completed if best else 0
        actions = sum(t.actions for t in self.game.trials) or (best.actions if best else 0)
        mark = " [unverified]" if is_unverified(self.run) else ""
        return (
            f"Run {meta.run_id[:SHORT]} ({meta.timestamp[:10]}, {meta.harness}): Score {score}, "
            f"Levels {done}/{self.game.n_levels}, {actions} actions{mark}"
        )


def past_of_games(store: Store) -> tuple[dict[str, list[Past]], list[str]]:
    """Give the history of each game, oldest first, and the runs whose card can not be read."""
    past: dict[str, list[Past]] = {}
    problems = []
    for run in store.completed():
        try:
            games = run.card().games
        except StoreProblem as problem:
            problems.append(problem.message)
            continue
        for game in games:
            past.setdefault(game.id, []).append(Past(run=run, game=game))
    return past, problems


def best_percent(past: list[Past]) -> float | None:
    """Give the best score that can be believed."""
    known = [p.game.percent for p in past if not is_unverified(p.run)]
    return max((percent for percent in known if percent is not None), default=None)
