"""What each level took: actions, time, reasoning, and its part of tokens and cost.

The game's log has the time of every action, the capture that of every step of the agent. Agents
say how many tokens a whole trial took, not each step: levels share them by their steps.
"""

import itertools
from collections.abc import Sequence

import msgspec

from assay_arc.log import Event, GameLog, read_time
from assay_arc.scoring import OFFICIAL, GameResult, score_game

MOST_POINTS = 400


class StepTime(msgspec.Struct):
    """When the agent did a step, in ms from its own start, and what it said."""

    type: str = ""
    timestamp: float = 0
    content: str | None = None


class AgentEffort(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an agent's work in one trial."""

    steps: Sequence[StepTime] = ()
    tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None

    @property
    def reasoning_chars(self) -> int | None:
        """Of everything the agent told itself; None without any step."""
        return sum(map(_reasoning, self.steps)) if self.steps else None


class LevelEffort(msgspec.Struct, kw_only=True):
    """One level, over all plays of a trial; null where it is not known."""

    level: int
    actions: int = 0
    seconds: float = 0.0
    steps: int | None = None
    reasoning_chars: int | None = None
    tokens: float | None = None
    """The level's part of all tokens, by its steps: an estimate."""
    cost_usd: float | None = None
    """The same for the cost."""


class CurvePoint(msgspec.Struct, kw_only=True):
    """The score that a trial would have had, had it been stopped here."""

    actions: int
    """Of all plays, as scored."""
    score_percent: float
    cost_usd: float | None = None
    """Up to here, by the steps done: an estimate."""


def level_efforts(log: GameLog, agent: AgentEffort) -> list[LevelEffort]:
    """Divide a trial among the levels of its game."""
    most = log.header.level_count
    levels = [LevelEffort(level=i + 1) for i in range(most)]
    events = _executed(log)
    for before, event in itertools.pairwise(events):
        level = levels[_level_after(before, most)]
        level.actions += not (event.answer and event.action == "RESET" and event.answer.full_reset)
        level.seconds += max(0.0, (event_ms(event) - event_ms(before)) / 1000)
    if not agent.steps or not events:
        return levels
    for level in levels:
        level.steps = level.reasoning_chars = 0
    for step, at in zip(agent.steps, _levels_of_steps(log, agent, most), strict=True):
        level = levels[at]
        level.steps = (level.steps or 0) + 1
        level.reasoning_chars = (level.reasoning_chars or 0) + _reasoning(step)
    for level in levels:
        part = (level.steps or 0) / len(agent.steps)
        level.tokens = None if agent.tokens is None else agent.tokens * part
        level.cost_usd = None if agent.cost_usd is None else agent.cost_usd * part
    return levels


def score_curve(
    log: GameLog, result: GameResult, agent: AgentEffort, formula: str = OFFICIAL
) -> list[CurvePoint]:
    """The score after each level that was completed, from the first action on."""
    points: list[CurvePoint] = []
    before, best = 0, 0.0
    for play in result.plays:
        for i, (_, actions) in enumerate(play.marks):
            # Each play alone: the best of them counts, and there may be thousands.
            cut = msgspec.structs.replace(play, marks=play.marks[: i + 1], actions=actions)
            score = score_game(msgspec.structs.replace(result, plays=(cut,)), formula)
            percent = score.score_percent
            if percent is None and score.score_fraction is not None:
                percent = score.score_fraction * 100
            if percent is not None and percent > best:
                best = percent
                points.append(CurvePoint(actions=before + actions, score_percent=percent))
        before += play.actions
    _add_costs(points, log, agent)
    return points


def _add_costs(points: list[CurvePoint], log: GameLog, agent: AgentEffort) -> None:
    """Say what had been spent when each point was reached."""
    events = _executed(log)
    if agent.cost_usd is None or not agent.steps or not events:
        return
    # The actions of a log, counted as the score counts them: see CurvePoint.actions.
    times, counted = {0: 0.0}, 0
    for event, at in zip(events[1:], agent_times(log, events)[1:], strict=True):
        counted += not (event.action == "RESET" and event.answer and event.answer.full_reset)
        times[counted] = at
    for point in points:
        until = times.get(point.actions, 0.0)
        n = sum(step.timestamp <= until for step in agent.steps)
        point.cost_usd = agent.cost_usd * n / len(agent.steps)


def mean_curve(
    trials_by_game: Sequence[Sequence[tuple[Sequence[tuple[float, float]], float]]],
) -> list[tuple[float, float]]:
    """The mean score against what was spent: over the trials of a game, then over the games.

    A trial is its points (spent, score in percent) and all that it spent.
    """
    spent = sorted(
        {x for trials in trials_by_game for points, _ in trials for x, _ in points}
        | {total for trials in trials_by_game for _, total in trials}
    )
    curve = [(0.0, 0.0)]
    for x in spent:
        games = [
            sum(max((s for spent, s in points if spent <= x), default=0.0) for points, _ in trials)
            / len(trials)
            for trials in trials_by_game
            if trials
        ]
        curve.append((x, sum(games) / len(games) if games else 0.0))
    # The points at which the score changes, and the last; at most MOST_POINTS of them.
    kept = [p for i, p in enumerate(curve) if i == 0 or p[1] != curve[i - 1][1]]
    if kept[-1] != curve[-1]:
        kept.append(curve[-1])
    if len(kept) <= MOST_POINTS:
        return kept
    step = (len(kept) - 1) / (MOST_POINTS - 1)
    return [kept[round(i * step)] for i in range(MOST_POINTS)]


def _executed(log: GameLog) -> list[Event]:
    return [event for event in log.events if event.outcome == "executed" and event.answer]


def _level_after(event: Event, most: int) -> int:
    """The level that is being played after an event, from 0."""
    done = event.answer.levels_completed if event.answer else 0
    return max(0, min(done, most - 1))


def _levels_of_steps(log: GameLog, agent: AgentEffort, most: int) -> list[int]:
    """The level that was being played when each step was done."""
    events = _executed(log)
    times = agent_times(log, events)
    levels, place = [], 0
    for step in agent.steps:
        # Steps are in the order of time, but for the last lines of a stream.
        while place + 1 < len(events) and times[place + 1] <= step.timestamp:
            place += 1
        levels.append(_level_after(events[place], most))
    return levels


def agent_times(log: GameLog, events: Sequence[Event]) -> list[float]:
    """When each event was, in ms from the start of the agent."""
    # The agent is started as soon as its game has said that it is ready, which is a status.
    ready = (
        e for e in log.events if isinstance(e.received, dict) and e.received.get("op") == "status"
    )
    zero = event_ms(next(ready, events[0])) if events else 0.0
    return [event_ms(event) - zero for event in events]


def _reasoning(step: StepTime) -> int:
    return len(step.content or "") if step.type == "thought" else 0


def event_ms(event: Event) -> float:
    return read_time(event.at).timestamp() * 1000
