"""ARC-AGI-3 games as a benchmark: played in their own process, scored from its log."""

from assay.errors import InputError


class ArcProblem(InputError):
    """A fault in ARC-AGI-3 input or files that the user has to fix."""


class GameProblem(ArcProblem):
    """A game folder that cannot be used: missing, unreadable or broken."""


class LogProblem(ArcProblem):
    """An event log that is not a log: no header, a bad line in the middle, records out of order."""


class ServeProblem(ArcProblem):
    """A game process that cannot start: bad settings, a folder others can read, a log in use."""


class StoreProblem(ArcProblem):
    """A stored run that is missing, broken or not finished."""


class ResultProblem(ArcProblem):
    """A result of another harness that cannot be imported; lists everything that is wrong."""
