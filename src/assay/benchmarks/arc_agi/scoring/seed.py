"""The seed's formula 1.0.0, on its scale of 0 to 1; kept so that its files keep their meaning."""

from collections.abc import Sequence

from assay.benchmarks.arc_agi.scoring.rows import LevelRow


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
