"""Runs of different harnesses side by side, as numbers and in words."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from assay.records.text import counted_noun, visible
from assay.stats.paired import PairedDifference, compare_scores
from assay.stats.rates import Interval
from assay.stats.significance import adjust_holm
from assay.stats.verdict import Verdict, judge_difference
from assay_arc.curves import score_by_actions, score_by_cost
from assay_arc.matrix import (
    ComparedRun,
    MatrixRow,
    build_matrix,
    common_games,
    common_words,
    level_markdown,
    matrix_markdown,
    mean_percent,
    notes,
    same_version,
    score_interval,
    tag_percents,
)
from assay_arc.report import (
    BUDGETS,
    cost_per_level,
    efficiency,
    is_unverified,
    money,
    number,
    part_of_card,
    progress_curve,
    run_name,
    signed,
    table,
)
from assay_arc.store import GameRow, StoredRun

# Of the resampling, so that the same runs give the same numbers.
SEED = 20260414
ORDER = ("Regressed", "Improved", "New", "Unchanged", "Missing", "Not scored", "Not measured")
REGRESSED, IMPROVED, NEW, UNCHANGED, MISSING, UNSCORED, NOT_MEASURED = ORDER

CONFIG_LISTS = ("plugins", "skills", "mcp_servers")


class RunSummary(msgspec.Struct, kw_only=True):
    run_id: str
    harness: str
    timestamp: str
    overall_score: float | None
    overall_percent: float | None
    config_hash: str
    verified: str | None
    formula: str | None
    games_scored: int
    games_not_played: int
    games_not_measured: int
    common_percent: float | None
    """Over the games that all runs have a score for: the number that is ranked."""
    common_levels_completed: int
    common_levels: int
    common_actions: int
    common_cost_usd: float | None
    levels_completed: int
    total_levels: int
    cost_usd: float | None
    cost_per_level_usd: float | None
    actions_per_baseline: float | None
    progress: dict[str, float | None]
    """Mean share of levels completed within each budget of actions.

    These last three, and the curves, are over the common games."""
    score_by_actions: list[tuple[float, float]]
    """Actions a trial, and the mean score in percent with that many."""
    score_by_cost: list[tuple[float, float]]
    """US dollars a trial, and the same; empty unless all costs are known."""
    tags: dict[str, float | None]
    """The mean score in percent of the common games with each tag."""


class LevelDelta(msgspec.Struct, kw_only=True):
    """One level in both runs, shares of 1."""

    level_index: int
    baseline_score: float | None
    current_score: float | None
    delta: float | None


class GameDelta(msgspec.Struct, kw_only=True):
    game_id: str
    status: str
    baseline_score: float | None
    current_score: float | None
    score_delta: float | None
    score_delta_points: float | None
    baseline_levels_completed: int | None
    current_levels_completed: int | None
    level_deltas: list[LevelDelta]
    baseline_interval: Interval | None = None
    """Over the trials of the game, when there are several."""
    current_interval: Interval | None = None
    same_version: bool | None = None


class RunPair(msgspec.Struct, kw_only=True):
    """The first run against another, over the games both have."""

    baseline_run_id: str
    current_run_id: str
    paired: PairedDifference
    adjusted_p: float | None
    """Holm, over all runs compared with the first."""
    verdict: Verdict


class Comparison(msgspec.Struct, kw_only=True):
    """The reference's comparison file, followed by our own fields."""

    comparison_id: str
    timestamp: str
    runs: list[RunSummary]
    overall_delta: dict[str, Any]
    environment_deltas: list[GameDelta]
    config_diff: dict[str, Any]
    summary: dict[str, int]
    tolerance_points: float
    warnings: list[str]
    pairs: list[RunPair]
    ranking: list[str]
    common_games: list[str]
    """Scored in every run, in the same version: totals are over these alone."""
    matrix: list[MatrixRow]
    scale: str = "scores are shares of 1; names with percent or points are of 100"
    seed: int = SEED


def compare_runs(
    entries: Sequence[ComparedRun],
    comparison_id: str,
    timestamp: str,
    *,
    tolerance: float,
    rank_all: bool,
) -> Comparison:
    """Compare every run with the first; the reference's tables are of the first two."""
    first, second = entries[0], entries[1]
    deltas = game_deltas(first, second, tolerance)
    shared = common_games(entries)
    return Comparison(
        comparison_id=comparison_id,
        timestamp=timestamp,
        runs=[_summarize_run(entry, shared) for entry in entries],
        overall_delta=_overall(first, second),
        environment_deltas=deltas,
        config_diff=config_diff(first.run, second.run),
        summary={_summary_name(s): sum(d.status == s for d in deltas) for s in ORDER},
        tolerance_points=tolerance,
        warnings=find_warnings(entries),
        pairs=_pairs(entries, tolerance),
        ranking=[entry.run.meta.run_id for entry in rank(entries, rank_all=rank_all)],
        common_games=shared,
        matrix=build_matrix(entries),
    )


def rank(entries: Sequence[ComparedRun], *, rank_all: bool) -> list[ComparedRun]:
    """Order runs by their score over the common games, unverified ones below all others."""
    shared = common_games(entries)

    def sort_key(entry: ComparedRun) -> tuple[bool, bool, float]:
        percent = mean_percent(entry, shared)
        below = is_unverified(entry.run) and not rank_all
        return below, percent is None, -(percent or 0.0)

    return sorted(entries, key=sort_key)


def game_deltas(first: ComparedRun, second: ComparedRun, tolerance: float) -> list[GameDelta]:
    """Compare two runs game by game, in the reference's order."""
    before, now = first.games, second.games
    deltas = [
        _game_delta(game_id, first, second, tolerance)
        for game_id in sorted({*before, *now, *first.lost, *second.lost})
    ]
    return sorted(deltas, key=lambda d: (ORDER.index(d.status), -abs(d.score_delta or 0.0)))


def config_diff(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return what was configured differently: model, plugins, skills and MCP servers."""
    old, new = first.meta.harness_config, second.meta.harness_config
    diff: dict[str, Any] = {
        "model_changed": old.model != new.model,
        "old_model": old.model,
        "new_model": new.model,
    }
    for name in CONFIG_LISTS:
        left, right = set(getattr(old, name)), set(getattr(new, name))
        diff[f"{name}_added"] = sorted(right - left)
        diff[f"{name}_removed"] = sorted(left - right)
    return diff


def find_warnings(entries: Sequence[ComparedRun]) -> list[str]:
    """List everything that makes the runs less comparable than their numbers suggest."""
    first, warnings = entries[0], []
    for other in entries[1:]:
        names = f"{first.run.label} and {other.run.label}"
        a, b = first.run.meta, other.run.meta
        for field, what in (
            ("seed", "seeds"),
            ("max_steps", "step limits"),
            ("max_resets", "reset limits"),
            ("trials", "numbers of trials"),
        ):
            left, right = getattr(a, field), getattr(b, field)
            if left != right:
                values = " and ".join("none" if v is None else str(v) for v in (left, right))
                warnings.append(f"{names} have different {what}: {values}")
        if a.tools is not None and b.tools is not None and a.tools != b.tools:
            tools = " and ".join(", ".join(one.tools or []) for one in (a, b))
            warnings.append(f"{names} gave the player different tools: {tools}")
        versions = {a.arc_agi_version, b.arc_agi_version} - {"unknown"}
        if len(versions) > 1:
            warnings.append(f"{names} used different arc-agi versions: {' and '.join(versions)}")
        warnings += _game_warnings(first, other, names)
        if again := set(a.session_sha256.values()) & set(b.session_sha256.values()):
            warnings.append(f"{names} hold the same {len(again)} sessions: one run, two names")
        if first.card.formula != other.card.formula:
            formulas = [entry.card.formula or "the seed's 1.0.0" for entry in (first, other)]
            warnings.append(f"{names} are scored by different formulas: {' and '.join(formulas)}")
    for entry in entries:
        if is_unverified(entry.run):
            why = entry.run.meta.verification or "no session logs"
            warnings.append(f"{entry.run.label} is UNVERIFIED ({why}): its numbers are a claim")
    return warnings


def _game_warnings(first: ComparedRun, other: ComparedRun, names: str) -> list[str]:
    mine, theirs = first.games, other.games
    found = []
    if set(mine) != set(theirs):
        both = len(set(mine) & set(theirs))
        found.append(
            f"{names} played different games; {both} {'is' if both == 1 else 'are'} in both"
        )
    for game_id in sorted(set(mine) & set(theirs)):
        if same_version(mine[game_id], theirs[game_id]) is False:
            found.append(f"{names} played different versions of {game_id} (its source differs)")
    return found


def _summarize_run(entry: ComparedRun, shared: Sequence[str]) -> RunSummary:
    meta, card = entry.run.meta, entry.card
    common = part_of_card(card, shared)
    curve = progress_curve(common)
    return RunSummary(
        run_id=meta.run_id,
        harness=meta.harness,
        timestamp=meta.timestamp,
        overall_score=_share(card.percent),
        overall_percent=card.percent,
        config_hash=meta.config_hash,
        verified=meta.verified,
        formula=card.formula,
        games_scored=sum(game.percent is not None for game in card.games),
        games_not_played=sum(not game.is_played for game in card.games),
        games_not_measured=len(set(entry.lost) - set(entry.games)),
        common_percent=mean_percent(entry, shared),
        common_levels_completed=common.total_levels_completed,
        common_levels=common.total_levels,
        common_actions=common.total_actions,
        common_cost_usd=common.cost_usd,
        levels_completed=card.total_levels_completed,
        total_levels=card.total_levels,
        cost_usd=card.cost_usd,
        cost_per_level_usd=cost_per_level(common),
        actions_per_baseline=efficiency(common.games).ratio,
        progress={str(budget): share for budget, share in zip(BUDGETS, curve, strict=True)},
        score_by_actions=score_by_actions(common),
        score_by_cost=score_by_cost(common),
        tags=tag_percents(entry, shared),
    )


def _overall(first: ComparedRun, second: ComparedRun) -> dict[str, Any]:
    shared = common_games([first, second])
    before, now = (_share(mean_percent(entry, shared)) for entry in (first, second))
    delta = _minus(now, before)
    relative = delta / before * 100 if delta is not None and before else None
    return {
        "baseline_run_id": first.run.meta.run_id,
        "current_run_id": second.run.meta.run_id,
        "score_delta": delta,
        "score_delta_percent": relative,
        "score_delta_points": None if delta is None else delta * 100,
        "n_games": len(shared),
    }


def _game_delta(
    game_id: str, first: ComparedRun, second: ComparedRun, tolerance: float
) -> GameDelta:
    before, now = first.games.get(game_id), second.games.get(game_id)
    is_lost = (before is None and game_id in first.lost) or (now is None and game_id in second.lost)
    old = _share(before.percent) if before else None
    new = _share(now.percent) if now else None
    delta = _minus(new, old)
    return GameDelta(
        game_id=game_id,
        status=NOT_MEASURED if is_lost else _status(before, now, delta, tolerance),
        baseline_score=old,
        current_score=new,
        score_delta=delta,
        score_delta_points=None if delta is None else delta * 100,
        baseline_levels_completed=_levels(before),
        current_levels_completed=_levels(now),
        level_deltas=_level_deltas(before, now) if before and now else [],
        baseline_interval=score_interval(before) if before else None,
        current_interval=score_interval(now) if now else None,
        same_version=same_version(before, now) if before and now else None,
    )


def _status(
    before: GameRow | None, now: GameRow | None, delta: float | None, tolerance: float
) -> str:
    if before is None:
        return NEW
    if now is None:
        return MISSING
    if delta is None:
        return UNSCORED
    points = delta * 100
    if points > tolerance:
        return IMPROVED
    return REGRESSED if points < -tolerance else UNCHANGED


def _level_deltas(before: GameRow, now: GameRow) -> list[LevelDelta]:
    pairs = zip_longest(before.best.level_scores, now.best.level_scores)
    return [
        LevelDelta(level_index=level, baseline_score=a, current_score=b, delta=_minus(b, a))
        for level, (a, b) in enumerate(pairs, 1)
    ]


def _pairs(entries: Sequence[ComparedRun], tolerance: float) -> list[RunPair]:
    first = entries[0]
    compared = [_paired(first, other) for other in entries[1:]]
    # Comparisons without a p-value take no part in the adjustment.
    known = [one.p_value for one in compared if one.p_value is not None]
    adjusted = iter(adjust_holm(known).tolist() if known else [])
    pairs = []
    for other, paired in zip(entries[1:], compared, strict=True):
        p_value = next(adjusted) if paired.p_value is not None else None
        names = (first.run.label, other.run.label)
        verdict = judge_difference(
            paired, margin=min(tolerance / 100, 0.99), adjusted_p=p_value, names=names
        )
        # The statistics speak of prompts; here each is a game.
        words = verdict.words.replace("prompts", "games").replace("prompt", "game")
        pairs.append(
            RunPair(
                baseline_run_id=first.run.meta.run_id,
                current_run_id=other.run.meta.run_id,
                paired=paired,
                adjusted_p=p_value,
                verdict=msgspec.structs.replace(verdict, words=words),
            )
        )
    return pairs


def _paired(first: ComparedRun, other: ComparedRun) -> PairedDifference:
    """Pair by game; only games of the same version that have a score in both."""
    mine, theirs = first.games, other.games
    both = [
        (a, b)
        for game_id in sorted(set(mine) & set(theirs))
        if (a := _share(mine[game_id].percent)) is not None
        and (b := _share(theirs[game_id].percent)) is not None
        and same_version(mine[game_id], theirs[game_id]) is not False
    ]
    return compare_scores([a for a, _ in both], [b for _, b in both], seed=SEED)


def _levels(game: GameRow | None) -> int | None:
    return game.best.levels_completed if game and game.runs else None


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _summary_name(status: str) -> str:
    return f"total_{status.lower().replace(' ', '_')}"


def comparison_markdown(comparison: Comparison, entries: Sequence[ComparedRun]) -> str:
    """The first two runs in the reference's tables; three and more as games by runs."""
    rows = comparison.matrix
    several = len(entries) > 2
    games = matrix_markdown(rows, entries) if several else _games(comparison, entries)
    sections = [
        ["# ARC-AGI-3 Run Comparison", "", *_ranking(comparison, entries)],
        _warnings(comparison),
        ["## Verdict", "", *_verdicts(comparison, entries)],
        ["## Game by Run" if several else "## Per-Environment Comparison", "", *games],
        ["## Level by Run", *level_markdown(rows, entries)] if several else [],
        [] if several else _level_tables(comparison),
        _config_table(entries) if several else _config(comparison),
        _tags(comparison, entries),
        ["## Cost, Effort and Progress", "", *_effort(comparison, entries)],
        _trend(comparison, entries),
    ]
    return visible("\n\n".join("\n".join(part).rstrip() for part in sections if part) + "\n")


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
                entry.run.meta.timestamp[:16],
                number(summary.common_percent, 2),
                *([number(summary.overall_percent, 2)] if is_partial else []),
                f"{summary.games_scored}/{len(entry.card.games) + summary.games_not_measured}",
                f"{summary.common_levels_completed}/{summary.common_levels}",
                summary.verified or "-",
            ]
        )
    score = f"Score / 100 ({common_words(len(comparison.common_games))})"
    columns = [score, "All its games"] if is_partial else ["Score / 100"]
    return table(["Run", "Date", *columns, "Games scored", "Levels", "Verified"], rows)


def _warnings(comparison: Comparison) -> list[str]:
    if not comparison.warnings:
        return []
    return ["## Warnings", "", *(f"- WARNING: {text}" for text in comparison.warnings)]


def _verdicts(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    by_id = {entry.run.meta.run_id: entry for entry in entries}
    lines = []
    for pair in comparison.pairs:
        paired, words = pair.paired, pair.verdict.words
        if len(comparison.pairs) > 1 and pair.verdict.code == "not-enough-data":
            current = by_id[pair.current_run_id].run.label
            words = f"{current} against {entries[0].run.label}: {words}"
        lines.append(f"- **{words}**")
        if paired.difference is None:
            continue
        name = by_id[pair.current_run_id].run.label
        test = f"{paired.test}, p = {paired.p_value:.3g}" if paired.p_value is not None else ""
        holm = f", Holm {pair.adjusted_p:.3g}" if len(comparison.pairs) > 1 else ""
        points = _points(paired.difference, paired.interval)
        lines.append(
            f"- {name}: {points} points over {counted_noun(paired.n_prompts, 'game')} "
            f"({paired.wins} won, {paired.ties} equal, {paired.losses} lost; {test}{holm})"
        )
    return lines if len(entries) > 2 else [*lines, _overall_line(comparison, entries)]


def _overall_line(comparison: Comparison, entries: Sequence[ComparedRun]) -> str:
    delta = comparison.overall_delta["score_delta_points"]
    relative = comparison.overall_delta["score_delta_percent"]
    share = f" ({signed(relative)}% of the first)" if relative is not None else ""
    return (
        f"- Overall, {entries[1].run.label} against {entries[0].run.label}: "
        f"{signed(delta, 2)} points{share}"
    )


def _games(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    rows = [
        [
            delta.game_id,
            _score(delta.baseline_score, delta.baseline_interval),
            _score(delta.current_score, delta.current_interval),
            signed(delta.score_delta_points),
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
    unplayed = [
        f"- {game.id}, {entry.run.label}: not played, counted as 0"
        for entry in entries
        for game in entry.card.games
        if not game.is_played
    ]
    told = [*notes(comparison.matrix, entries), *unplayed]
    return [*lines, *([""] if unplayed and told == unplayed else []), *told]


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
    rows = [
        [
            str(level.level_index),
            number(_percent(level.baseline_score)),
            number(_percent(level.current_score)),
            signed(_percent(level.delta)),
        ]
        for level in delta.level_deltas
    ]
    return table(["Level", "Baseline", "Current", "Delta"], rows)


def _config(comparison: Comparison) -> list[str]:
    diff, lines = comparison.config_diff, []
    if diff["model_changed"]:
        lines.append(f"- Model: {diff['old_model']} -> {diff['new_model']}")
    for name in CONFIG_LISTS:
        for change, sign in (("added", "+"), ("removed", "-")):
            if diff[f"{name}_{change}"]:
                lines.append(f"- {name}: {sign}{', '.join(diff[f'{name}_{change}'])}")
    return ["## Configuration Changes", "", *lines] if lines else []


def _tags(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    tags = sorted({tag for run in comparison.runs for tag in run.tags})
    rows = [[tag, *(number(run.tags.get(tag)) for run in comparison.runs)] for tag in tags]
    head = ["Tag", *(run_name(entry.run) for entry in entries)]
    return ["## Scores by Tag", "", *table(head, rows)] if rows else []


def _effort(comparison: Comparison, entries: Sequence[ComparedRun]) -> list[str]:
    runs = comparison.runs
    rows = [
        ["Cost", *(money(run.common_cost_usd) for run in runs)],
        ["Cost per level", *(money(run.cost_per_level_usd) for run in runs)],
        ["Actions for one of a person's", *(number(run.actions_per_baseline, 2) for run in runs)],
    ]
    for budget in BUDGETS:
        shares = [number(_percent(run.progress[str(budget)]), 0, "%") for run in runs]
        rows.append([f"Levels within {budget} actions", *shares])
    return table(["", *(run_name(entry.run) for entry in entries)], rows)


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
        rows.append([run_name(entry.run), when, number(percent, 2), signed(delta, 2)])
        before = percent
    return ["## Trend", "", *table(["Run", "Date", "Score", "Delta"], rows)]


def _config_table(entries: Sequence[ComparedRun]) -> list[str]:
    """How the runs were set up, where they differ."""
    setups = [entry.run.meta.harness_config for entry in entries]
    if all(setup == setups[0] for setup in setups):
        return []
    rows = [
        [
            run_name(entry.run),
            setup.model,
            *(", ".join(getattr(setup, name)) or "-" for name in CONFIG_LISTS),
        ]
        for entry, setup in zip(entries, setups, strict=True)
    ]
    head = ["Run", "Model", "Plugins", "Skills", "MCP servers"]
    return ["## Configurations", "", *table(head, rows)]


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
