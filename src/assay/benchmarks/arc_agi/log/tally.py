"""Counts what the engine did, as the official scorecard does; used live and on reading."""

from assay.benchmarks.arc_agi.log.records import Answer, Counters

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
