"""The official formulas, by id: RHAE as arc_agi computes it now and as it did before."""

from collections.abc import Callable, Sequence

from assay.benchmarks.arc_agi.scoring.rows import LevelRow

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
