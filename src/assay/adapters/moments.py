"""Put the agent's own clock readings on the time line of a trial."""

from datetime import datetime
from typing import Any

from assay.records.recording import Recording

_SLACK_MS = 1000


class TrialClock:
    """Turns moments since the epoch into moments of the trial; refuses those outside of it."""

    def __init__(self, recording: Recording) -> None:
        self._start_ms = recording.start_ms
        self._length_ms = recording.end_ms - recording.start_ms

    def at(self, epoch_ms: float | None) -> float | None:
        """Give the milliseconds since the start of the trial; None when that cannot be."""
        if epoch_ms is None:
            return None
        passed_ms = epoch_ms - self._start_ms
        if not -_SLACK_MS <= passed_ms <= self._length_ms + _SLACK_MS:
            return None
        return float(min(max(round(passed_ms), 0), self._length_ms))


def epoch_ms(text: Any) -> float | None:
    """Read an ISO time stamp; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp() * 1000
    except ValueError:
        return None
