"""Where a trial got stuck: the level it did not complete, what it saw, thought and did there."""

import html
import itertools
from collections.abc import Sequence

import msgspec

from assay.records.text import counted_noun, visible, visible_line
from assay.report.markdown import escape
from assay_arc import ArcProblem
from assay_arc.cards import RESULTS, intact_log, is_intact, read_entries
from assay_arc.effort import AgentEffort, agent_times
from assay_arc.log import SIDE, Event, GameLog, read_log, unpack_frames
from assay_arc.observe import RGB
from assay_arc.store import Scorecard, StoredRun

MOST_THOUGHTS, MOST_ACTIONS, MOST_CHARS = 40, 400, 2000


class StuckLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The level that a trial was at when it ended; of its last play."""

    game_id: str
    trial: int
    level: int
    level_count: int
    first: bytes
    last: bytes
    actions: list[str]
    thoughts: list[str]
    """What the agent told itself while it played this level."""

    @property
    def title(self) -> str:
        where = f"level {self.level} of {self.level_count}"
        actions = counted_noun(len(self.actions), "action")
        return f"{self.game_id} trial {self.trial}: stuck on {where}, {actions} there"

    @property
    def actions_words(self) -> str:
        """The actions in order, the same one several times counted."""
        groups = [(name, len(list(same))) for name, same in itertools.groupby(self.actions)]
        words = [name if n == 1 else f"{name} x{n}" for name, n in groups]
        more = f" ... and {len(words) - MOST_ACTIONS} more" if len(words) > MOST_ACTIONS else ""
        return " ".join(words[:MOST_ACTIONS]) + more


def stuck_levels(run: StoredRun, card: Scorecard) -> list[StuckLevel]:
    """One for each trial that has a log and did not win."""
    efforts = _efforts(run)
    found = []
    for game in card.games:
        for trial in game.trials:
            if trial.won or trial.log is None:
                continue
            try:
                log = read_log(intact_log(run, trial.log))
            except ArcProblem:
                continue  # read_card has said that it is missing, or that it was changed
            if (
                one := stuck_level(log, efforts.get(trial.log, AgentEffort()), trial.trial)
            ) is not None:
                found.append(one)
    return found


def stuck_level(log: GameLog, agent: AgentEffort, trial: int) -> StuckLevel | None:
    """Find the end of a game in its log; None if nothing was played."""
    events = [event for event in log.events if event.outcome == "executed" and event.answer]
    if not events:
        return None
    level = _level(events[-1])
    start = len(events) - 1
    while start > 0 and _level(events[start - 1]) == level and not _is_new_play(events[start]):
        start -= 1
    thoughts = thoughts_before(log, events, agent)
    # What was thought after the last action is about this level, too.
    said = [text for texts in thoughts[start + 1 :] for text in texts]
    return StuckLevel(
        game_id=log.header.game_id,
        trial=trial,
        level=min(level + 1, log.header.level_count),
        level_count=log.header.level_count,
        first=_picture(events[start]),
        last=_picture(events[-1]),
        actions=[action_words(event) for event in events[start + 1 :]],
        thoughts=said,
    )


def thoughts_before(log: GameLog, events: Sequence[Event], agent: AgentEffort) -> list[list[str]]:
    """What the agent told itself before each event, and last what it did after all of them.

    By the clock, for a step of the agent; what came with an action itself belongs to that.
    """
    found: list[list[str]] = [[] for _ in range(len(events) + 1)]
    times = agent_times(log, events)
    for step in agent.steps:
        if step.type == "thought" and step.content:
            place = next((i for i, at in enumerate(times) if step.timestamp <= at), len(events))
            found[place].append(step.content[:MOST_CHARS])
    for texts, event in zip(found, events, strict=False):
        said = event.received.get("reasoning") if isinstance(event.received, dict) else None
        if isinstance(said, str) and said:
            texts.append(said[:MOST_CHARS])
    return found


def stuck_lines(levels: Sequence[StuckLevel]) -> list[str]:
    """In Markdown: what was done, and the last that was thought."""
    lines = []
    for one in levels:
        lines.append(f"- **{escape(one.title)}**: {escape(one.actions_words)}")
        if one.thoughts:
            lines.append(f"- The last it thought: {escape(one.thoughts[-1])}")
    return lines


def stuck_picture(one: StuckLevel) -> str:
    """As a part of a page: the level as it was entered and as it was left, thoughts and actions."""
    thoughts = one.thoughts[-MOST_THOUGHTS:]
    said = "".join(f"<li>{_escape(text)}</li>" for text in thoughts)
    return (
        f"<h3>{_escape(one.title)}</h3>\n"
        f"<figure>{_svg(one.first, 'as it was entered')} {_svg(one.last, 'as it was left')}"
        f"<figcaption>The level as it was entered, and as it was left.</figcaption></figure>\n"
        f"<p><b>Actions</b>: {_escape(one.actions_words)}</p>\n"
        f"<p><b>Reasoning</b>{'' if said else ': none is known'}</p>\n"
        + (f"<ol>{said}</ol>" if said else "")
    )


def action_words(event: Event) -> str:
    place = f"({event.x},{event.y})" if event.x is not None else ""
    return f"{event.action}{place}"


def read_effort(run: StoredRun, log: str | None) -> AgentEffort:
    """What is known about the agent in the trial with this log."""
    return _efforts(run).get(str(log), AgentEffort())


def _efforts(run: StoredRun) -> dict[str, AgentEffort]:
    if not (run.folder / RESULTS).is_file() or not is_intact(run, RESULTS):
        return {}
    return {
        str(entry.evidence.get("log")): entry.effort for _, _, entry in read_entries(run.folder)
    }


def _level(event: Event) -> int:
    return event.answer.levels_completed if event.answer else 0


def _is_new_play(event: Event) -> bool:
    return event.action == "RESET" and bool(event.answer and event.answer.full_reset)


def _picture(event: Event) -> bytes:
    frames = unpack_frames(event.answer.frames) if event.answer else []
    return frames[-1] if frames else bytes(SIDE * SIDE)


def _svg(frame: bytes, words: str) -> str:
    """Draw a frame: for each colour a path of its horizontal lines."""
    runs: dict[int, list[str]] = {}
    for y in range(SIDE):
        x = 0
        for colour, same in itertools.groupby(frame[y * SIDE : (y + 1) * SIDE]):
            n = len(list(same))
            runs.setdefault(min(colour, len(RGB) - 1), []).append(f"M{x} {y}h{n}v1h-{n}z")
            x += n
    paths = "".join(
        f'<path fill="#{bytes(RGB[colour]).hex()}" d="{"".join(parts)}"/>'
        for colour, parts in runs.items()
    )
    return (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" width="320" height="320" role="img" '
        f'aria-label="{words}" shape-rendering="crispEdges">{paths}</svg>'
    )


def _escape(text: str) -> str:
    return html.escape(visible_line(visible(text)))
