"""Writes a comparison as Markdown: the seed's tables, then what the statistics say."""

from collections.abc import Sequence

from assay.benchmarks.arc_agi.report.comparison import Comparison, Entry, GameDelta, Side
from assay.benchmarks.arc_agi.report.facts import BUDGETS
from assay.benchmarks.arc_agi.report.run_report import is_unverified
from assay.benchmarks.arc_agi.report.table import money, number, signed, table
from assay.stats.interval import Interval


def comparison_markdown(comparison: Comparison, entries: Sequence[Entry]) -> str:
    """Write all of it."""
    sections = [
        ["# ARC-AGI-3 Run Comparison", "", *_ranking(comparison, entries)],
        _warnings(comparison),
        ["## Verdict", "", *_verdicts(comparison, entries)],
        ["## Per-Environment Comparison", "", *_games(comparison, entries)],
        _level_tables(comparison),
        _config(comparison),
        ["## Cost, Effort and Progress", "", *_effort(comparison, entries)],
        _trend(entries),
    ]
    return "\n\n".join("\n".join(part).rstrip() for part in sections if part) + "\n"


def _ranking(comparison: Comparison, entries: Sequence[Entry]) -> list[str]:
    by_id = {entry.run.meta.run_id: entry for entry in entries}
    rows = []
    for place, run_id in enumerate(comparison.ranking, 1):
        entry = by_id[run_id]
        side = next(side for side in comparison.runs if side.run_id == run_id)
        rows.append(
            [
                f"{place}. {_name(entry)}",
                entry.run.meta.timestamp[:16],
                number(side.overall_percent, 2),
                f"{side.games_scored}/{len(entry.card.games)}",
                f"{side.levels_completed}/{side.total_levels}",
                side.verified or "-",
            ]
        )
    return table(["Run", "Date", "Score / 100", "Games scored", "Levels", "Verified"], rows)


def _warnings(comparison: Comparison) -> list[str]:
    if not comparison.warnings:
        return []
    return ["## Warnings", "", *(f"- WARNING: {text}" for text in comparison.warnings)]


def _verdicts(comparison: Comparison, entries: Sequence[Entry]) -> list[str]:
    by_id = {entry.run.meta.run_id: entry for entry in entries}
    lines = []
    for pair in comparison.pairs:
        paired = pair.paired
        lines.append(f"- **{pair.verdict.words}**")
        if paired.difference is None:
            continue
        name = by_id[pair.current_run_id].run.label
        test = f"{paired.test}, p = {paired.p_value:.3g}" if paired.p_value is not None else ""
        holm = f", Holm {pair.adjusted_p:.3g}" if len(comparison.pairs) > 1 else ""
        points = _points(paired.difference, paired.interval)
        lines.append(
            f"- {name}: {points} points over {paired.n_prompts} games "
            f"({paired.wins} won, {paired.ties} equal, {paired.losses} lost; {test}{holm})"
        )
    delta = comparison.overall_delta["score_delta_points"]
    relative = comparison.overall_delta["score_delta_percent"]
    words = f" ({signed(relative)}% of the first)" if relative is not None else ""
    lines.append(
        f"- Overall, {entries[1].run.label} against {entries[0].run.label}: "
        f"{signed(delta, 2)} points{words}"
    )
    return lines


def _games(comparison: Comparison, entries: Sequence[Entry]) -> list[str]:
    rows = [
        [
            delta.game_id,
            _score(delta.baseline_score, delta.baseline_interval),
            _score(delta.current_score, delta.current_interval),
            signed(delta.score_delta_points),
            f"{_count(delta.baseline_levels_completed)} -> "
            f"{_count(delta.current_levels_completed)}",
            delta.status,
        ]
        for delta in comparison.environment_deltas
    ]
    head = ["Game", _name(entries[0]), _name(entries[1]), "Delta", "Levels", "Status"]
    counts = comparison.summary
    told = ", ".join(f"{name.removeprefix('total_')} {n}" for name, n in counts.items() if n)
    return [*table(head, rows), "", f"Tolerance {comparison.tolerance_points:g} points: {told}"]


def _level_tables(comparison: Comparison) -> list[str]:
    tolerance = comparison.tolerance_points
    moved = [
        delta
        for delta in comparison.environment_deltas
        if delta.score_delta_points is not None and abs(delta.score_delta_points) > tolerance
    ]
    lines = ["## Per-Level Comparison"] if moved else []
    for delta in moved:
        lines += ["", f"### {delta.game_id}", "", *_level_table(delta)]
    return lines


def _level_table(delta: GameDelta) -> list[str]:
    def percent(share: float | None) -> float | None:
        return None if share is None else share * 100

    rows = [
        [
            str(level.level_index),
            number(percent(level.baseline_score)),
            number(percent(level.current_score)),
            signed(percent(level.delta)),
        ]
        for level in delta.level_deltas
    ]
    return table(["Level", "Baseline", "Current", "Delta"], rows)


def _config(comparison: Comparison) -> list[str]:
    diff, lines = comparison.config_diff, []
    if diff["model_changed"]:
        lines.append(f"- Model: {diff['old_model']} -> {diff['new_model']}")
    for name in ("plugins", "skills", "mcp_servers"):
        for change, sign in (("added", "+"), ("removed", "-")):
            if diff[f"{name}_{change}"]:
                lines.append(f"- {name}: {sign}{', '.join(diff[f'{name}_{change}'])}")
    return ["## Configuration Changes", "", *lines] if lines else []


def _effort(comparison: Comparison, entries: Sequence[Entry]) -> list[str]:
    def row(name: str, tell: list[str]) -> list[str]:
        return [name, *tell]

    sides: list[Side] = comparison.runs
    rows = [
        row("Cost", [money(side.cost_usd) for side in sides]),
        row("Cost per level", [money(side.cost_per_level_usd) for side in sides]),
        row(
            "Actions for one of a person's",
            [number(side.actions_per_baseline, 2) for side in sides],
        ),
    ]
    for budget in BUDGETS:
        shares = [side.progress[str(budget)] for side in sides]
        told = [number(None if share is None else share * 100, 0, "%") for share in shares]
        rows.append(row(f"Levels within {budget} actions", told))
    return table(["", *(_name(entry) for entry in entries)], rows)


def _trend(entries: Sequence[Entry]) -> list[str]:
    """The seed's two tables for three runs and more."""
    if len(entries) < 3:
        return []
    rows: list[list[str]] = []
    before: float | None = None
    for entry in entries:
        percent = entry.card.percent
        delta = None if before is None or percent is None else percent - before
        rows.append(
            [_name(entry), entry.run.meta.timestamp[:16], number(percent, 2), signed(delta, 2)]
        )
        before = percent
    shared = sorted(set.intersection(*(set(entry.games) for entry in entries)))
    games = [[g, *(number(entry.games[g].percent) for entry in entries)] for g in shared]
    head = ["Game", *(_name(entry) for entry in entries)]
    return [
        "## Trend",
        "",
        *table(["Run", "Date", "Score", "Delta"], rows),
        "",
        *table(head, games),
    ]


def _name(entry: Entry) -> str:
    return entry.run.label + (" [unverified]" if is_unverified(entry.run) else "")


def _score(share: float | None, interval: Interval | None) -> str:
    if share is None:
        return "-"
    if interval is None:
        return f"{share * 100:.1f}"
    return f"{share * 100:.1f} ({interval.low * 100:.0f}-{interval.high * 100:.0f})"


def _points(difference: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{difference * 100:+.2f}"
    return f"{difference * 100:+.2f} ({interval.low * 100:+.1f} to {interval.high * 100:+.1f})"


def _count(levels: int | None) -> str:
    return "-" if levels is None else str(levels)
