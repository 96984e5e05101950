"""What follows from a game's log: how its plays went, why it stopped, and its scores.

Every score names its formula and its scale.
"""

from collections.abc import Callable, Sequence

import msgspec

from assay_arc.log import Answer, Counters, End, Event, GameLog, Header, StopReason, read_time

RESET = "RESET"


class PlayTally:
    """One play: from one full reset to the next."""

    def __init__(self, first_seq: int) -> None:
        self.first_seq = self.last_seq = first_seq
        self.actions = 0
        self.resets = 0
        self.levels_completed = 0
        self.state = "NOT_PLAYED"
        # (levels completed, actions so far) at each change: the scorecard's actions_by_level.
        self.marks: list[tuple[int, int]] = []
        self.resets_in_level: dict[int, int] = {}

    def count(self, action: str, answer: Answer) -> None:
        """Count one executed action; a level reset costs an action as any other does."""
        if action == RESET:
            self.resets += 1
            level = self.levels_completed
            self.resets_in_level[level] = self.resets_in_level.get(level, 0) + 1
        self.actions += 1
        self.observe(answer)

    def observe(self, answer: Answer) -> None:
        """Update the state and the levels completed."""
        self.state = answer.state
        if answer.levels_completed != self.levels_completed:
            self.marks.append((answer.levels_completed, self.actions))
            self.levels_completed = answer.levels_completed


class Tally:
    """All plays of one game, and the totals that limits look at."""

    def __init__(self) -> None:
        self.plays: list[PlayTally] = []
        self.steps = 0
        self.resets = 0
        self.rejected = 0

    def execute(self, seq: int, action: str, answer: Answer) -> None:
        # The toolkit's own reset at the start opens the first play and costs nothing.
        is_first = not self.plays
        if action == RESET:
            self.resets += not is_first
        else:
            self.steps += 1
        if is_first or (action == RESET and answer.full_reset):
            self.plays.append(PlayTally(seq))
            self.plays[-1].observe(answer)
        else:
            self.plays[-1].count(action, answer)
        self.plays[-1].last_seq = seq

    @property
    def state(self) -> str:
        return self.plays[-1].state if self.plays else "NOT_PLAYED"

    def counters(self) -> Counters:
        play = self.plays[-1] if self.plays else None
        return Counters(
            steps=self.steps,
            resets=self.resets,
            rejected=self.rejected,
            play=len(self.plays),
            play_actions=play.actions if play else 0,
            play_resets=play.resets if play else 0,
        )


class LevelResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One level of one play; actions include the resets of that level."""

    index: int
    completed: bool
    actions: int
    resets: int = 0
    baseline: int | None = None


class PlayResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One play, counted as the official scorecard counts; marks are its actions_by_level."""

    index: int
    state: str
    levels_completed: int
    actions: int
    resets: int
    marks: tuple[tuple[int, int], ...]
    levels: tuple[LevelResult, ...]
    first_seq: int
    last_seq: int


class GameResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that follows from one log except scores."""

    game_id: str
    level_count: int
    baselines: tuple[int, ...] | None
    seed: int
    stop_reason: StopReason
    state: str
    won: bool
    levels_completed: int
    steps: int
    resets: int
    rejected: int
    started_at: str
    duration_s: float | None
    plays: tuple[PlayResult, ...]


def derive_result(log: GameLog) -> GameResult:
    """Work out the result of one game from its log alone."""
    header, tally = log.header, tally_events(log.events)
    plays = tuple(_play(i + 1, play, header) for i, play in enumerate(tally.plays))
    return GameResult(
        game_id=header.game_id,
        level_count=header.level_count,
        baselines=header.baselines,
        seed=header.seed,
        stop_reason=stop_reason(log, tally),
        state=tally.state,
        won=any(play.state == "WIN" for play in plays),
        levels_completed=max((play.levels_completed for play in plays), default=0),
        steps=tally.steps,
        resets=tally.resets,
        rejected=tally.rejected,
        started_at=header.started_at,
        duration_s=_duration_s(log),
        plays=plays,
    )


def tally_events(events: tuple[Event, ...]) -> Tally:
    """Count the events of a log; only what the engine executed is an action."""
    tally = Tally()
    for event in events:
        if event.outcome == "executed" and event.action and event.answer:
            tally.execute(event.seq, event.action, event.answer)
        elif event.outcome == "rejected":
            tally.rejected += 1
    return tally


def stop_reason(log: GameLog, tally: Tally) -> StopReason:
    """Why the game ended: first by its state, then by the limits, then by the end record."""
    limits, events = log.header.limits, log.events
    if tally.state == "WIN":
        return "win"
    engine_events = [e for e in events if e.outcome in ("executed", "failed")]
    if game_failure(log) is not None:
        return "crash"
    if limits.max_steps is not None and tally.steps >= limits.max_steps:
        return "step_limit"
    if tally.state == "GAME_OVER":
        # A lost game can continue only with a reset, so a refused one was the end.
        last = engine_events[-1].seq if engine_events else -1
        refused = any(e.limit == "resets" and e.seq > last for e in events)
        return "reset_limit" if refused else "game_over"
    end = log.records[-1] if log.records else None
    return end.reason if isinstance(end, End) else "crash"


def game_failure(log: GameLog) -> str | None:
    """How the game itself broke, if that was the last that happened in the engine."""
    last = next((e for e in reversed(log.events) if e.outcome in ("executed", "failed")), None)
    if last is None or last.outcome == "executed":
        return None
    return last.message or f"it broke on {last.action}"


def _play(index: int, play: PlayTally, header: Header) -> PlayResult:
    return PlayResult(
        index=index,
        state=play.state,
        levels_completed=play.levels_completed,
        actions=play.actions,
        resets=play.resets,
        marks=tuple(play.marks),
        levels=tuple(_levels(play, header)),
        first_seq=play.first_seq,
        last_seq=play.last_seq,
    )


def _levels(play: PlayTally, header: Header) -> list[LevelResult]:
    """Divide the actions among the levels; of two levels won in one action, the second has none."""
    spent, baselines = [0] * header.level_count, header.baselines or ()
    done, before = 0, 0
    for reached, actions in play.marks:
        if done < header.level_count:
            spent[done] += actions - before
        done, before = max(done, reached), actions
    if done < header.level_count:
        spent[done] += play.actions - before
    return [
        LevelResult(
            index=i + 1,
            completed=i < play.levels_completed,
            actions=actions,
            resets=play.resets_in_level.get(i, 0),
            baseline=baselines[i] if i < len(baselines) else None,
        )
        for i, actions in enumerate(spent)
    ]


def _duration_s(log: GameLog) -> float | None:
    if not log.records:
        return None
    return (read_time(log.records[-1].at) - read_time(log.header.started_at)).total_seconds()


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    completed: bool
    actions: int
    baseline: int


def official_rows(
    actions: int, marks: Sequence[tuple[int, int]], baselines: Sequence[int]
) -> list[LevelRow]:
    """One row for each baseline; as in arc_agi, a mark completes one level, whatever its number."""
    rows, before = [], 0
    for i, baseline in enumerate(baselines):
        completed = i < len(marks)
        until = marks[i][1] if completed else actions
        row = LevelRow(index=i + 1, completed=completed, actions=until - before, baseline=baseline)
        rows.append(row)
        before = until
    return rows


def baseline_problem(baselines: Sequence[int] | None, level_count: int) -> str | None:
    """Why these baselines cannot be used for scoring, or None when they can."""
    if not baselines:
        return "the game's metadata has no baselines"
    if len(baselines) != level_count:
        return f"the game's metadata has {len(baselines)} baselines for {level_count} levels"
    for i, baseline in enumerate(baselines):
        if baseline < 0:
            return f"the baseline of level {i + 1} is {baseline}, below zero"
    return None


# The toolkit whose scorer the current formula was tested against, to 1e-9.
SCORER = "arc_agi 0.9.9/RHAE-1.15"


def rhae_squared_115(rows: Sequence[LevelRow]) -> tuple[float, list[float]]:
    """Since 2026-04-14: squared, a level at most 115, a game at most its completed share."""
    scores = [_level_percent(row, power=2, cap=115.0) for row in rows]
    weight = sum(row.index for row in rows)
    # As in the toolkit, a completed level with baseline 0 scores 0 and does not raise the cap.
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


OFFICIAL, FIRST_PLAY, SEED = "official", "first_play", "seed-1.0.0"
FORMULAS = (OFFICIAL, FIRST_PLAY, *PERCENT_FORMULAS, SEED)
NOT_PLAYED = "not played"
"""The reason beside a score of 0."""


class Score(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One score; exactly one of percent and fraction is set, or neither and a reason.

    A game that was not played is 0, and the reason says so.
    toolkit_percent is what arc_agi itself prints, which is 0 where it has no usable baselines.
    """

    formula: str
    scorer: str
    score_percent: float | None = None
    score_fraction: float | None = None
    reason: str | None = None
    play: int | None = None
    level_scores_percent: tuple[float, ...] | None = None
    level_scores_fraction: tuple[float, ...] | None = None
    toolkit_percent: float | None = None


def score_game(result: GameResult, formula: str = OFFICIAL) -> Score:
    """Score a game: the best of its plays, or the first alone for first_play."""
    if formula not in FORMULAS:
        message = f"unknown scoring formula {formula!r}; known: {', '.join(FORMULAS)}"
        raise ValueError(message)
    plays = result.plays[:1] if formula == FIRST_PLAY else result.plays
    reason = baseline_problem(result.baselines, result.level_count)
    if reason:
        current = plays and formula in (OFFICIAL, FIRST_PLAY)
        percents = [toolkit_play_percent(play, result.baselines) for play in plays]
        toolkit = max(percents) if current else None
        return Score(
            formula=formula, scorer=_scorer(formula), reason=reason, toolkit_percent=toolkit
        )
    if not plays:
        return _not_played(formula, result.level_count)
    scores = [_score_play(formula, play, result) for play in plays]
    # Only one of the two is set, so the sum is that one.
    return max(scores, key=lambda s: (s.score_percent or 0.0) + (s.score_fraction or 0.0))


def _not_played(formula: str, level_count: int) -> Score:
    """A game that was chosen and not played is lost: whoever leaves out games must not gain."""
    nothing = (0.0,) * level_count
    is_seed = formula == SEED
    return Score(
        formula=formula,
        scorer=_scorer(formula),
        score_percent=None if is_seed else 0.0,
        score_fraction=0.0 if is_seed else None,
        reason=NOT_PLAYED,
        level_scores_percent=None if is_seed else nothing,
        level_scores_fraction=nothing if is_seed else None,
    )


def score_all(result: GameResult) -> dict[str, Score]:
    return {formula: score_game(result, formula) for formula in FORMULAS}


def toolkit_play_percent(play: PlayResult, baselines: Sequence[int] | None) -> float:
    """What arc_agi's scorecard prints for a play, including its zeros for unusable baselines."""
    if not baselines or len(baselines) < len(play.marks):
        return 0.0
    return rhae_squared_115(official_rows(play.actions, play.marks, baselines))[0]


def _score_play(formula: str, play: PlayResult, result: GameResult) -> Score:
    rows = official_rows(play.actions, play.marks, result.baselines or ())
    if formula == SEED:
        return Score(
            formula=SEED,
            scorer=_scorer(SEED),
            score_fraction=seed_game_fraction(rows, result.level_count),
            play=play.index,
            level_scores_fraction=tuple(seed_level_fraction(row) for row in rows),
        )
    current = formula in (OFFICIAL, FIRST_PLAY)
    percent, levels = PERCENT_FORMULAS["rhae-squared-1.15" if current else formula](rows)
    return Score(
        formula=formula,
        scorer=_scorer(formula),
        score_percent=percent,
        play=play.index,
        level_scores_percent=tuple(levels),
        toolkit_percent=percent if current else None,
    )


def _scorer(formula: str) -> str:
    return SCORER if formula in (OFFICIAL, FIRST_PLAY) else f"assay/{formula}"


def seed_game_fraction(rows: Sequence[LevelRow], total_levels: int) -> float:
    """The reference's formula: levels weighted by index; one without a row is not completed."""
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
