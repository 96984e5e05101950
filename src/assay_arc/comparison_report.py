"""A comparison of runs in words: Markdown, in the reference's tables where two are compared."""

from collections.abc import Sequence

from assay.records.text import counted_noun, visible
from assay.report.markdown import escape, join_sections, section, table
from assay.report.text import money, number
from assay.stats.rates import Interval
from assay_arc.comparison import (
    CONFIG_LISTS,
    Cell,
    ComparedRun,
    Comparison,
    MatrixRow,
    mean_percent,
)
from assay_arc.figures import BUDGETS
from assay_arc.report import cell_text
from assay_arc.store import StoredRun


def run_name(run: StoredRun) -> str:
    return cell_text(run.label) + (" [unverified]" if run.is_unverified else "")


def comparison_markdown(comparison: Comparison, entries: Sequence[ComparedRun]) -> str:
    """The first two runs in the reference's tables; three and more as games by runs."""
    several = len(entries) > 2
    if several:
        rows = comparison.matrix
        middle = [
            section("Game by Run", _matrix(rows, entries)),
            ["## Level by Run", *_levels_by_run(rows, entries)],
            section("Configurations", _configs(entries)),
        ]
    else:
        middle = [
            section("Per-Environment Comparison", _games(comparison, entries)),
            _level_tables(comparison),
            section("Configuration Changes", _config_changes(comparison)),
        ]
    left_out = [f"- {escape(one.name)}: {escape(one.reason)}" for one in comparison.left_out]
    warnings = [f"- WARNING: {escape(text)}" for text in comparison.warnings]
    sections = [
        ["# ARC-AGI-3 Run Comparison", "", *_ranking(comparison, entries)],
        section("Left Out", left_out),
        section("Warnings", warnings),
        section("Verdict", _verdicts(comparison, entries)),
        *middle,
        section("Scores by Tag", _tags(comparison, entries)),
        section("Cost, Effort and Progress", _effort(comparison, entries)),
        section("Tokens by Level", _tokens(comparison, entries)),
        section("Trend", _trend(comparison, entries)),
    ]
    return visible(join_sections(sections))


def _ranking(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    by_id = {entry.run.meta.run_id: entry for entry in entries}
    # Where all runs have the same games, the total of a run is that of the common games.
    is_partial = any(row.common is False for row in comparison.matrix)
    rows = []
    for place, run_id in enumerate(comparison.ranking, 1):
        entry = by_id[run_id]
        summary = next(one for one in comparison.runs if one.run_id == run_id)
        rows.append(
            [
                f"{place}. {run_name(entry.run)}",
                cell_text(summary.model),
                cell_text(entry.run.meta.timestamp[:16]),
                number(summary.common_percent, 2),
                *([number(summary.overall_percent, 2)] if is_partial else []),
                f"{summary.games_scored}/{len(entry.card.games) + summary.games_not_measured}",
                f"{summary.common_levels_completed}/{summary.common_levels}",
                summary.verified or "-",
            ]
        )
    score = f"Score / 100 ({counted_noun(len(comparison.common_games), 'common game')})"
    columns = [score, "All its games"] if is_partial else ["Score / 100"]
    return table(["Run", "Model", "Date", *columns, "Games scored", "Levels", "Verified"], rows)


def _verdicts(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    labels = {entry.run.meta.run_id: entry.run.label for entry in entries}
    first, several = entries[0].run.label, len(comparison.pairs) > 1
    lines = []
    for pair in comparison.pairs:
        paired, words, name = pair.paired, pair.verdict.words, labels[pair.current_run_id]
        lines.append(f"- **{escape(words)}**")
        if paired.difference is None:
            continue
        test = f"{paired.test}, p = {paired.p_value:.3g}" if paired.p_value is not None else ""
        holm = f", Holm {pair.adjusted_p:.3g}" if several else ""
        points = f"{paired.difference * 100:+.2f}"
        if limits := paired.interval:
            points += f" ({limits.low * 100:+.1f} to {limits.high * 100:+.1f})"
        lines.append(
            f"- {escape(name)}: {points} points over {counted_noun(paired.n_prompts, 'game')} "
            f"({paired.wins} won, {paired.ties} equal, {paired.losses} lost; {test}{holm})"
        )
    if len(entries) > 2:
        return lines
    delta = number(comparison.overall_delta["score_delta_points"], 2, sign=True)
    relative = comparison.overall_delta["score_delta_percent"]
    share = "" if relative is None else f" ({number(relative, sign=True)}% of the first)"
    both = escape(f"{entries[1].run.label} against {first}")
    lines.append(f"- Overall, {both}: {delta} points{share}")
    return lines


def _games(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    rows = [
        [
            cell_text(delta.game_id),
            _score(delta.baseline_score, delta.baseline_interval),
            _score(delta.current_score, delta.current_interval),
            number(delta.score_delta_points, sign=True),
            f"{number(delta.baseline_levels_completed, 0)} -> "
            f"{number(delta.current_levels_completed, 0)}",
            delta.status,
        ]
        for delta in comparison.environment_deltas
    ]
    head = ["Game", *(run_name(entry.run) for entry in entries), "Delta", "Levels", "Status"]
    summary = comparison.summary.items()
    counts = ", ".join(f"{name.removeprefix('total_')} {n}" for name, n in summary if n)
    lines = [*table(head, rows), "", f"Tolerance {comparison.tolerance_points:g} points: {counts}"]
    notes = _notes(comparison.matrix, entries)
    notes += [
        f"- {escape(f'{game.id}, {entry.run.label}')}: not played, counted as 0"
        for entry in entries
        for game in entry.card.games
        if not game.is_played
    ]
    return [*lines, "", *notes] if notes else lines


def _matrix(rows: Sequence[MatrixRow], entries: Sequence[ComparedRun]) -> list[str]:
    """A table of games by runs, the mean over the common games, and what broke."""
    shared = [row.game_id for row in rows if row.common]
    cells = [
        [
            cell_text(row.game_id) + ("" if row.common else " *"),
            *(_cell_text(row, cell) for cell in row.cells),
        ]
        for row in rows
    ]
    means = [number(mean_percent(entry, shared)) for entry in entries]
    cells.append([f"Mean of {counted_noun(len(shared), 'common game')}", *means])
    lines = table(["Game: score, levels", *(run_name(entry.run) for entry in entries)], cells)
    if len(shared) < len(rows):
        lines += ["", "\\* not in the mean: not every run has a score for this version of the game"]
    notes = _notes(rows, entries)
    return [*lines, "", *notes] if notes else lines


def _notes(rows: Sequence[MatrixRow], entries: Sequence[ComparedRun]) -> list[str]:
    """A line for each cell in which something broke or is missing for a reason."""
    return [
        "- "
        + escape(f"{row.game_id}, {entry.run.label}: ")
        + ("not measured: " if cell.state == "not measured" else "")
        + escape(str(cell.note))
        for row in rows
        for cell, entry in zip(row.cells, entries, strict=True)
        if cell.note
    ]


def _cell_text(row: MatrixRow, cell: Cell) -> str:
    if not cell.is_measured:
        return "-" if cell.state == "missing" else cell.state
    score = _score(cell.score, cell.interval)
    if cell.state == "not played":
        return f"{score}, {cell.state}"
    return f"{score}, {cell.levels_completed}/{row.levels}"


def _levels_by_run(rows: Sequence[MatrixRow], entries: Sequence[ComparedRun]) -> list[str]:
    """For each game a table of levels by runs: score and actions of the best play."""
    lines: list[str] = []
    head = ["Level: score (actions)", *(run_name(entry.run) for entry in entries)]
    for row in rows:
        if any(cell.level_actions for cell in row.cells):
            levels = [
                [str(level + 1), *(_level_text(cell, level) for cell in row.cells)]
                for level in range(row.levels)
            ]
            lines += ["", f"### {escape(row.game_id)}", "", *table(head, levels)]
    return lines


def _level_text(cell: Cell, level: int) -> str:
    if level >= len(cell.level_actions):
        return "-"
    score = cell.level_scores[level] if level < len(cell.level_scores) else None
    return f"{_percent(score)} ({cell.level_actions[level]})"


def _level_tables(comparison: Comparison) -> list[str]:
    """The levels of the games whose score has changed."""
    lines: list[str] = []
    for delta in comparison.environment_deltas:
        if abs(delta.score_delta_points or 0.0) > comparison.tolerance_points:
            rows = [
                [
                    str(level.level_index),
                    _percent(level.baseline_score),
                    _percent(level.current_score),
                    _percent(level.delta, sign=True),
                ]
                for level in delta.level_deltas
            ]
            head = ["Level", "Baseline", "Current", "Delta"]
            lines += ["", f"### {escape(delta.game_id)}", "", *table(head, rows)]
    return ["## Per-Level Comparison", *lines] if lines else []


def _config_changes(comparison: Comparison) -> list[str]:
    diff, lines = comparison.config_diff, []
    if diff["model_changed"]:
        lines.append(f"- Model: {escape(diff['old_model'])} -> {escape(diff['new_model'])}")
    for name, (before, now) in diff["settings_changed"].items():
        lines.append(f"- {escape(name)}: {escape(before)} -> {escape(now)}")
    for name in CONFIG_LISTS:
        for change, sign in (("added", "+"), ("removed", "-")):
            if diff[f"{name}_{change}"]:
                lines.append(f"- {name}: {sign}{escape(', '.join(diff[f'{name}_{change}']))}")
    return lines


def _configs(entries: Sequence[ComparedRun]) -> list[str]:
    """How the runs were set up, where they differ."""
    setups = [entry.run.meta.harness_config for entry in entries]
    models = {entry.run.models for entry in entries}
    if all(setup == setups[0] for setup in setups) and len(models) == 1:
        return []
    rows = [
        [
            run_name(entry.run),
            cell_text(entry.run.models),
            *(cell_text(", ".join(getattr(setup, name))) or "-" for name in CONFIG_LISTS),
        ]
        for entry, setup in zip(entries, setups, strict=True)
    ]
    return table(["Run", "Model", "Plugins", "Skills", "MCP servers"], rows)


def _tags(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    tags = sorted({tag for run in comparison.runs for tag in run.tags})
    rows = [
        [cell_text(tag), *(number(run.tags.get(tag)) for run in comparison.runs)] for tag in tags
    ]
    return table(["Tag", *(run_name(entry.run) for entry in entries)], rows) if rows else []


def _effort(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    runs = comparison.runs
    rows = [
        ["Cost", *(money(run.common_cost_usd) for run in runs)],
        ["Cost per level", *(money(run.cost_per_level_usd) for run in runs)],
        ["Tokens", *(number(run.common_tokens, 0) for run in runs)],
        ["Tokens per level", *(number(run.tokens_per_level, 0) for run in runs)],
        ["Actions for one of a person's", *(number(run.actions_per_baseline, 2) for run in runs)],
    ]
    for budget in BUDGETS:
        shares = [run.progress[str(budget)] for run in runs]
        cells = ["-" if share is None else f"{share * 100:.0f}%" for share in shares]
        rows.append([f"Levels within {budget} actions", *cells])
    return table(["", *(run_name(entry.run) for entry in entries)], rows)


def _tokens(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    """What each level took, where agents report tokens."""
    rows = [
        [
            cell_text(f"{row.game_id} level {level + 1}"),
            *(_tokens_text(c, level) for c in row.cells),
        ]
        for row in comparison.matrix
        if any(cell.level_tokens for cell in row.cells)
        for level in range(row.levels)
        if any(_tokens_text(cell, level) != "-" for cell in row.cells)
    ]
    if not rows:
        return []
    note = "Of a trial, on average; an estimate: levels share the tokens of a trial by their steps."
    return [*table(["Level", *(run_name(entry.run) for entry in entries)], rows), "", note]


def _tokens_text(cell: Cell, level: int) -> str:
    return number(cell.level_tokens[level] or None, 0) if level < len(cell.level_tokens) else "-"


def _trend(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    """The reference's table for three or more runs: only runs of one harness are a series."""
    harnesses = {(entry.run.imported, entry.run.meta.harness) for entry in entries}
    if len(entries) < 3 or len(harnesses) > 1:
        return []
    rows: list[list[str]] = []
    before: float | None = None
    for entry, summary in zip(entries, comparison.runs, strict=True):
        percent = summary.common_percent
        delta = None if before is None or percent is None else percent - before
        when = entry.run.meta.timestamp[:16]
        rows.append([run_name(entry.run), when, number(percent, 2), number(delta, 2, sign=True)])
        before = percent
    return table(["Run", "Date", "Score", "Delta"], rows)


def _score(share: float | None, interval: Interval | None) -> str:
    score = _percent(share)
    if share is None or interval is None:
        return score
    return f"{score} ({interval.low * 100:.0f}-{interval.high * 100:.0f})"


def _percent(share: float | None, *, sign: bool = False) -> str:
    return number(None if share is None else share * 100, sign=sign)
