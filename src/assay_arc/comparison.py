"""Runs of different harnesses side by side, as numbers."""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from assay.report.sentence import pair_sentence
from assay.stats.means import estimate_mean_score
from assay.stats.paired import PairedDifference, compare_scores
from assay.stats.rates import Interval
from assay.stats.significance import adjust_holm
from assay.stats.verdict import Verdict, judge_difference
from assay_arc.figures import (
    BUDGETS,
    efficiency,
    part_of_card,
    progress_curve,
    score_by_actions,
    score_by_cost,
)
from assay_arc.report import broken_words, setting_words, tampering_words
from assay_arc.store import GameRow, RunMeta, Scorecard, StoredRun

# Of the resampling, so that the same runs give the same numbers.
SEED = 20260414
ORDER = ("Regressed", "Improved", "New", "Unchanged", "Missing", "Not scored", "Not measured")
REGRESSED, IMPROVED, NEW, UNCHANGED, MISSING, UNSCORED, NOT_MEASURED = ORDER
"""What became of a game from one run to another."""

CONFIG_LISTS = ("plugins", "skills", "mcp_servers")
type CellState = Literal["scored", "not scored", "not played", "not measured", "missing"]


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
    state: CellState
    score: float | None = None
    interval: Interval | None = None
    """Over the trials of the game, when there are several."""
    levels_completed: int | None = None
    """Of the best play."""
    actions: int | None = None
    trials: int = 0
    level_scores: list[float] = []
    level_actions: list[int] = []
    level_tokens: list[float | None] = []
    """An estimate, a trial on average: agents report the tokens of whole trials."""
    note: str | None = None
    """Why there is no score, or what broke."""

    @property
    def is_measured(self) -> bool:
        return self.state not in ("missing", "not measured")


class MatrixRow(msgspec.Struct, kw_only=True):
    game_id: str
    levels: int
    common: bool
    """Whether every run has a score for this version of the game: only then it is in totals."""
    cells: list[Cell]
    """In the order of the runs."""


class RunSummary(msgspec.Struct, kw_only=True):
    run_id: str
    harness: str
    model: str
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
    common_tokens: int | None
    tokens_per_level: float | None
    """Of each completed level; like those before and after over the common games."""
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


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    name: str
    reason: str


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
    left_out: list[LeftOut] = []
    """Runs that --all would have taken, and why it did not."""
    scale: str = "scores are shares of 1; names with percent or points are of 100"
    seed: int = SEED


def compare_runs(
    entries: Sequence[ComparedRun],
    comparison_id: str,
    timestamp: str,
    *,
    tolerance: float,
    rank_all: bool,
    left_out: Sequence[LeftOut] = (),
) -> Comparison:
    """Compare every run with the first; the reference's tables are of the first two."""
    first, second = entries[0], entries[1]
    deltas = game_deltas(first, second, tolerance)
    shared = common_games(entries)
    return Comparison(
        comparison_id=comparison_id,
        timestamp=timestamp,
        runs=[_summarize_run(entry, shared) for entry in entries],
        overall_delta=_overall_delta(first, second),
        environment_deltas=deltas,
        config_diff=config_diff(first.run, second.run),
        summary={
            f"total_{status.lower().replace(' ', '_')}": sum(d.status == status for d in deltas)
            for status in ORDER
        },
        tolerance_points=tolerance,
        warnings=find_warnings(entries),
        pairs=_pairs(entries, tolerance),
        ranking=[entry.run.meta.run_id for entry in rank(entries, rank_all=rank_all)],
        common_games=shared,
        matrix=build_matrix(entries),
        left_out=list(left_out),
    )


def with_shared_games(
    entries: Sequence[ComparedRun],
) -> tuple[list[ComparedRun], list[LeftOut]]:
    """Leave out runs until the others have a game in common: first those that share the least."""
    kept, left_out = list(entries), []
    while len(kept) > 2 and not common_games(kept):
        shared = [
            sum(len(common_games([one, other])) for other in kept if other is not one)
            for one in kept
        ]
        if not any(shared):
            return list(entries), []
        one = kept.pop(shared.index(min(shared)))
        reason = "it has no scored game in common with all the others"
        left_out.append(LeftOut(run_id=one.run.meta.run_id, name=one.run.label, reason=reason))
    return kept, left_out


def rank(entries: Sequence[ComparedRun], *, rank_all: bool) -> list[ComparedRun]:
    """Order runs by their score over the common games, unverified ones below all others."""
    shared = common_games(entries)

    def sort_key(entry: ComparedRun) -> tuple[bool, bool, float]:
        percent = mean_percent(entry, shared)
        below = entry.run.is_unverified and not rank_all
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
        "model_changed": first.models != second.models,
        "old_model": first.models,
        "new_model": second.models,
        "settings_changed": setting_changes(first.meta, second.meta),
    }
    for name in CONFIG_LISTS:
        left, right = set(getattr(old, name)), set(getattr(new, name))
        diff[f"{name}_added"] = sorted(right - left)
        diff[f"{name}_removed"] = sorted(left - right)
    return diff


def setting_changes(first: RunMeta, second: RunMeta) -> dict[str, list[str]]:
    """The settings that the agents reported differently, with what each of the two said."""
    said = []
    for meta in (first, second):
        found: dict[str, list[str]] = {}
        for one in meta.agents:
            for name, value in {"version": one.version, **one.setup}.items():
                words = setting_words(value)
                if words not in found.setdefault(name, []):
                    found[name].append(words)
        said.append({name: " or ".join(words) for name, words in found.items()})
    if not all(said):  # other harnesses and the built-in players report nothing
        return {}
    names = dict.fromkeys((*said[0], *said[1]))
    pairs = {name: [one.get(name, "unknown") for one in said] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


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
        warnings += _agent_warnings(first.run, other.run, names)
        advice = [(one.benchmark or {}).get("advice", "") for one in (a, b)]
        if advice[0] != advice[1]:
            shown = [textwrap.shorten(text, 60, placeholder=" ...") or "none" for text in advice]
            warnings.append(f"{names} told the agent different things: {' and '.join(shown)}")
        versions = {a.arc_agi_version, b.arc_agi_version} - {"unknown"}
        if len(versions) > 1:
            warnings.append(f"{names} used different arc-agi versions: {' and '.join(versions)}")
        warnings += _game_warnings(first, other, names)
        if again := set(a.session_sha256.values()) & set(b.session_sha256.values()):
            warnings.append(f"{names} hold the same {len(again)} sessions: one run, two names")
        if first.card.formula != other.card.formula:
            formulas = [entry.card.formula or "the seed's 1.0.0" for entry in (first, other)]
            warnings.append(f"{names} are scored by different formulas: {' and '.join(formulas)}")
    return warnings + [text for entry in entries for text in _trust_warnings(entry)]


def _agent_warnings(first: StoredRun, other: StoredRun, names: str) -> list[str]:
    """Where two runs of one harness were not played by the same agent."""
    found = []
    if first.meta.harness == other.meta.harness and first.models != other.models:
        found.append(f"{names} have different models: {first.models} and {other.models}")
    for run in (first, other):
        if len({one.model for one in run.meta.agents}) > 1:
            found.append(f"{run.label} was played by several models: {run.models}")
    if first.meta.harness == other.meta.harness:
        for name, (left, right) in setting_changes(first.meta, other.meta).items():
            found.append(f"{names} have different settings: {name} {left} and {right}")
    return found


REPLAYED_WORDS = "was replayed: this checks the harness, not the agent"


def _trust_warnings(entry: ComparedRun) -> list[str]:
    found = [f"{entry.run.label} tampered: {words}" for words in tampering_words(entry.run.meta)]
    if entry.run.replayed_from:
        found.append(f"{entry.run.label} {REPLAYED_WORDS}")
    if entry.run.is_unverified:
        why = entry.run.meta.verification or "no session logs"
        found.append(f"{entry.run.label} is UNVERIFIED ({why}): its numbers are a claim")
    return found


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
        model=entry.run.models,
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
        cost_per_level_usd=common.cost_per_level,
        common_tokens=common.tokens,
        tokens_per_level=common.tokens_per_level,
        actions_per_baseline=efficiency(common.games)[2],
        progress={str(budget): share for budget, share in zip(BUDGETS, curve, strict=True)},
        score_by_actions=score_by_actions(common),
        score_by_cost=score_by_cost(common),
        tags=tag_percents(entry, shared),
    )


def _overall_delta(first: ComparedRun, second: ComparedRun) -> dict[str, Any]:
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
    both = [level_shares(row) for row in (before, now) if row]
    pairs = zip_longest(*both) if len(both) == 2 else ()
    return GameDelta(
        game_id=game_id,
        status=NOT_MEASURED if is_lost else _status(before, now, delta, tolerance),
        baseline_score=old,
        current_score=new,
        score_delta=delta,
        score_delta_points=None if delta is None else delta * 100,
        baseline_levels_completed=before.best.levels_completed if before and before.runs else None,
        current_levels_completed=now.best.levels_completed if now and now.runs else None,
        level_deltas=[
            LevelDelta(level_index=level, baseline_score=a, current_score=b, delta=_minus(b, a))
            for level, (a, b) in enumerate(pairs, 1)
        ],
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


def _pairs(entries: Sequence[ComparedRun], tolerance: float) -> list[RunPair]:
    first = entries[0]
    compared = [_paired(first, other) for other in entries[1:]]
    # Comparisons without a p-value take no part in the adjustment.
    known = [one.p_value for one in compared if one.p_value is not None]
    adjusted = iter(adjust_holm(known).tolist() if known else [])
    pairs = []
    for other, paired in zip(entries[1:], compared, strict=True):
        p_value = next(adjusted) if paired.p_value is not None else None
        names, margin = (first.run.label, other.run.label), min(tolerance / 100, 0.99)
        verdict = judge_difference(paired, margin=margin, adjusted_p=p_value)
        words = pair_sentence(
            names,
            verdict,
            paired,
            margin=margin,
            adjusted_p=p_value,
            noun="game",
            measure="of the score",
        )
        if replayed := [entry.run.label for entry in (first, other) if entry.run.replayed_from]:
            verdict = Verdict("not-enough-data")
            words = f"no verdict: {' and '.join(replayed)} {REPLAYED_WORDS}"
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


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


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
    by_run = [entry.games for entry in entries]
    return sorted(
        game_id
        for game_id in set.intersection(*map(set, by_run))
        if all(
            games[game_id].percent is not None
            and same_version(by_run[0][game_id], games[game_id]) is not False
            for games in by_run
        )
    )


def same_version(a: GameRow, b: GameRow) -> bool | None:
    """Whether two rows are of the same source; None when it is unknown."""
    if not a.source_sha256 or not b.source_sha256:
        return None
    return a.source_sha256 == b.source_sha256


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


def _level_tokens(game: GameRow) -> list[float | None]:
    """What each level took of the tokens of a trial, over the trials in which that is known."""
    found: list[float | None] = []
    for i in range(game.n_levels):
        levels = [trial.levels[i] for trial in game.trials if i < len(trial.levels)]
        known = [level.tokens for level in levels if level.tokens is not None]
        found.append(sum(known) / len(known) if known else None)
    return found if any(found) else []


def level_shares(game: GameRow) -> list[float]:
    """The scores of the levels by the formula of the game's, as shares of 1: up to 1.15."""
    return [percent / 100 for percent in game.best.level_percents]


def score_interval(game: GameRow) -> Interval | None:
    """Of the mean score over the trials, when there are several."""
    known = [t.score_percent / 100 for t in game.trials if t.score_percent is not None]
    return estimate_mean_score(known).interval if len(known) > 1 else None


def _cell(entry: ComparedRun, game_id: str) -> Cell:
    run_id, game, lost = entry.run.meta.run_id, entry.games.get(game_id), entry.lost.get(game_id)
    if game is None:
        return Cell(run_id=run_id, state="not measured" if lost else "missing", note=lost)
    best, unscored = game.best, game.percent is None
    state: CellState = "not scored" if unscored else "scored"
    return Cell(
        run_id=run_id,
        state=state if game.is_played else "not played",
        score=_share(game.percent),
        interval=score_interval(game),
        levels_completed=best.levels_completed,
        actions=game.actions,
        trials=len(game.trials),
        level_scores=level_shares(game),
        level_actions=best.level_actions,
        level_tokens=_level_tokens(game),
        note=lost or broken_words(game) or (game.score_reason if unscored else None),
    )
