"""Derives from a log what was played: plays, levels, totals and why it stopped."""

from datetime import datetime

import msgspec

from assay_arc.log import Answer, Counters, End, Event, GameLog, Header, StopReason

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
        """Take over where the game stands now."""
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
        """Count one action that the engine executed."""
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
        """Where the current play stands."""
        return self.plays[-1].state if self.plays else "NOT_PLAYED"

    def counters(self) -> Counters:
        """Give the totals for a log record."""
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
    """Say why the game ended: first what the game says, then the limits, then who closed it."""
    limits, events = log.header.limits, log.events
    if tally.state == "WIN":
        return "win"
    engine_events = [e for e in events if e.outcome in ("executed", "failed")]
    if engine_events and engine_events[-1].outcome == "failed":
        return "crash"
    if limits.max_steps is not None and tally.steps >= limits.max_steps:
        return "step_limit"
    if tally.state == "GAME_OVER":
        last = engine_events[-1].seq if engine_events else -1
        refused = any(e.limit == "resets" and e.seq > last for e in events)
        return "reset_limit" if refused else "game_over"
    end = log.records[-1] if log.records else None
    return end.reason if isinstance(end, End) else "crash"


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
    """Share the actions out among the levels; two levels won in one action give the second none."""
    spent = [0] * header.level_count
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
            baseline=_baseline(header, i),
        )
        for i, actions in enumerate(spent)
    ]


def _baseline(header: Header, i: int) -> int | None:
    known = header.baselines
    return known[i] if known is not None and i < len(known) else None


def _duration_s(log: GameLog) -> float | None:
    if not log.records:
        return None
    began = datetime.fromisoformat(log.header.started_at)
    return (datetime.fromisoformat(log.records[-1].at) - began).total_seconds()
