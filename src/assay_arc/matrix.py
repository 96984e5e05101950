"""Games by runs: what each run did in each game, also where it did nothing."""

from collections.abc import Sequence

import msgspec

from assay.records.text import counted_noun
from assay.stats.means import estimate_mean_score
from assay.stats.rates import Interval
from assay_arc.report import broken_words, number, run_name, table
from assay_arc.store import GameRow, Scorecard, StoredRun

SCORED, UNSCORED, NOT_PLAYED = "scored", "not scored", "not played"
NOT_MEASURED, MISSING = "not measured", "missing"


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its card, as they were read."""

    run: StoredRun
    card: Scorecard

    @property
    def games(self) -> dict[str, GameRow]:
        return {game.id: game for game in self.card.games}

    @property
    def lost(self) -> dict[str, str]:
        """Why trials of a game are not measured, by game."""
        found: dict[str, list[str]] = {}
        for trial_id, why in self.run.meta.not_measured.items():
            found.setdefault(trial_id.split(".trial-")[0], []).append(why)
        return {
            game: whys[0] if len(whys) == 1 else f"{len(whys)} trials, the first: {whys[0]}"
            for game, whys in found.items()
        }


class Cell(msgspec.Struct, kw_only=True):
    """One game in one run; scores are shares of 1."""

    run_id: str
    state: str
    score: float | None = None
    interval: Interval | None = None
    """Over the trials of the game, when there are several."""
    levels_completed: int | None = None
    """Of the best play."""
    actions: int | None = None
    trials: int = 0
    level_scores: list[float] = []
    level_actions: list[int] = []
    note: str | None = None
    """Why there is no score, or what broke."""


class MatrixRow(msgspec.Struct, kw_only=True):
    game_id: str
    levels: int
    common: bool
    """Whether every run has a score for this version of the game: only then it is in totals."""
    cells: list[Cell]
    """In the order of the runs."""


def build_matrix(entries: Sequence[ComparedRun]) -> list[MatrixRow]:
    """Every game of every run, those common to all of them first."""
    ids = {game_id for entry in entries for game_id in (*entry.games, *entry.lost)}
    common = set(common_games(entries))
    order = sorted(ids, key=lambda game_id: (game_id not in common, game_id))
    return [
        MatrixRow(
            game_id=game_id,
            levels=max(
                (entry.games[game_id].n_levels for entry in entries if game_id in entry.games),
                default=0,
            ),
            common=game_id in common,
            cells=[_cell(entry, game_id) for entry in entries],
        )
        for game_id in order
    ]


def common_games(entries: Sequence[ComparedRun]) -> list[str]:
    """The games that have a score in all runs, in the same version."""
    shared = set.intersection(*(set(entry.games) for entry in entries))
    return sorted(game_id for game_id in shared if _is_common(game_id, entries))


def _is_common(game_id: str, entries: Sequence[ComparedRun]) -> bool:
    rows = [entry.games[game_id] for entry in entries]
    return all(row.percent is not None and same_version(rows[0], row) is not False for row in rows)


def same_version(a: GameRow, b: GameRow) -> bool | None:
    """Whether two rows are of the same source; None when it is unknown."""
    if not a.source_sha256 or not b.source_sha256:
        return None
    return a.source_sha256 == b.source_sha256


def common_words(n: int) -> str:
    return counted_noun(n, "common game")


def mean_percent(entry: ComparedRun, game_ids: Sequence[str]) -> float | None:
    """The mean score over some games of a run."""
    known = [entry.games[game_id].percent for game_id in game_ids]
    scores = [percent for percent in known if percent is not None]
    return sum(scores) / len(scores) if scores else None


def tag_percents(entry: ComparedRun, game_ids: Sequence[str]) -> dict[str, float | None]:
    """The mean score over some games of a run, for each tag they have."""
    tags = sorted({tag for game_id in game_ids for tag in entry.games[game_id].tags})
    return {
        tag: mean_percent(entry, [g for g in game_ids if tag in entry.games[g].tags])
        for tag in tags
    }


def score_interval(game: GameRow) -> Interval | None:
    """Of the mean score over the trials, when there are several."""
    known = [t.score_percent / 100 for t in game.trials if t.score_percent is not None]
    return estimate_mean_score(known).interval if len(known) > 1 else None


def _cell(entry: ComparedRun, game_id: str) -> Cell:
    run_id, game, lost = entry.run.meta.run_id, entry.games.get(game_id), entry.lost.get(game_id)
    if game is None:
        return Cell(run_id=run_id, state=NOT_MEASURED if lost else MISSING, note=lost)
    best = game.best
    state = UNSCORED if game.percent is None else SCORED
    return Cell(
        run_id=run_id,
        state=state if game.is_played else NOT_PLAYED,
        score=None if game.percent is None else game.percent / 100,
        interval=score_interval(game),
        levels_completed=best.levels_completed,
        actions=game.actions,
        trials=len(game.trials),
        level_scores=best.level_scores,
        level_actions=best.level_actions,
        note=lost or broken_words(game) or (game.score_reason if state == UNSCORED else None),
    )


def matrix_markdown(rows: Sequence[MatrixRow], entries: Sequence[ComparedRun]) -> list[str]:
    """A table of games by runs, the mean over the common games, and what broke."""
    names = [run_name(entry.run) for entry in entries]
    shared = [row.game_id for row in rows if row.common]
    lines = [
        [row.game_id + ("" if row.common else " *"), *(_cell_text(row, cell) for cell in row.cells)]
        for row in rows
    ]
    means = [number(mean_percent(entry, shared)) for entry in entries]
    lines.append([f"Mean of {common_words(len(shared))}", *means])
    text = table(["Game: score, levels", *names], lines)
    if len(shared) < len(rows):
        text += ["", "\\* not in the mean: not every run has a score for this version of the game"]
    return [*text, *notes(rows, entries)]


def notes(rows: Sequence[MatrixRow], entries: Sequence[ComparedRun]) -> list[str]:
    """A line for each cell in which something broke or is missing for a reason."""
    found = [
        f"- {row.game_id}, {entry.run.label}: "
        + (f"not measured: {cell.note}" if cell.state == NOT_MEASURED else str(cell.note))
        for row in rows
        for cell, entry in zip(row.cells, entries, strict=True)
        if cell.note
    ]
    return ["", *found] if found else []


def level_markdown(rows: Sequence[MatrixRow], entries: Sequence[ComparedRun]) -> list[str]:
    """For each game a table of levels by runs: score and actions of the best play."""
    lines: list[str] = []
    names = [run_name(entry.run) for entry in entries]
    for row in rows:
        if not any(cell.level_actions for cell in row.cells):
            continue
        levels = [
            [str(level + 1), *(_level_text(cell, level) for cell in row.cells)]
            for level in range(row.levels)
        ]
        head = ["Level: score (actions)", *names]
        lines += ["", f"### {row.game_id}", "", *table(head, levels)]
    return lines


def _cell_text(row: MatrixRow, cell: Cell) -> str:
    if cell.state in (MISSING, NOT_MEASURED):
        return "-" if cell.state == MISSING else cell.state
    score = "-" if cell.score is None else f"{cell.score * 100:.1f}"
    if cell.interval is not None:
        score += f" ({cell.interval.low * 100:.0f}-{cell.interval.high * 100:.0f})"
    if cell.state == NOT_PLAYED:
        return f"{score}, {NOT_PLAYED}"
    return f"{score}, {cell.levels_completed}/{row.levels}"


def _level_text(cell: Cell, level: int) -> str:
    if level >= len(cell.level_actions):
        return "-"
    score = cell.level_scores[level] * 100 if level < len(cell.level_scores) else None
    return f"{number(score)} ({cell.level_actions[level]})"
