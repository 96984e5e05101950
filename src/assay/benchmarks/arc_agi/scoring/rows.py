"""Splits a play into the level rows a formula reads, exactly as arc_agi's scorecard does."""

from collections.abc import Sequence

import msgspec


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
