"""Judge how a trial ended: from our own clock, the terminal event, and only then the exit code."""

from assay.records.failure import Cause, Failure
from assay.records.recording import Recording, TurnEnd
from assay.seams import Reading


def failure_of(recording: Recording, reading: Reading) -> Failure | None:
    """Give the cause when the trial did not go well, None when it did."""
    if recording.failure is not None:
        return recording.failure
    if not recording.turns or recording.unsplit:
        return reading.failure
    end = recording.turns[-1].end
    cut = _cut_short(end)
    if cut is not None and not (reading.failure and _explains(reading.failure, cut)):
        return cut
    return reading.failure or _unclean(end, recording, reading)


def _explains(failure: Failure, cut: Failure) -> bool:
    """An agent that waited for its provider until we ended it did not fail itself."""
    waited = cut.cause is Cause.AGENT_TIMEOUT
    return waited and failure.cause in (Cause.PROVIDER, Cause.AUTH)


def _cut_short(end: TurnEnd) -> Failure | None:
    length_s = (end.end_ms - end.start_ms) / 1000
    if end.over_limit:
        return Failure(cause=Cause.AGENT_LIMIT, message="wrote more output than it may")
    if end.stalled:
        return Failure(
            cause=Cause.AGENT_TIMEOUT,
            message=f"stalled: no output any more, ended at {length_s:.1f} s",
        )
    if end.timed_out:
        return Failure(
            cause=Cause.AGENT_TIMEOUT, message=f"no result in time, ended at {length_s:.1f} s"
        )
    return None


def _unclean(end: TurnEnd, recording: Recording, reading: Reading) -> Failure | None:
    answered = reading.events.terminal
    if end.lingered:
        return None
    if end.signal is not None:
        return _crash(f"died of {end.signal}", recording, answered=answered)
    if end.exit_code:
        return _crash(f"ended with exit code {end.exit_code}", recording, answered=answered)
    if not answered and reading.events.oversized:
        return Failure(
            cause=Cause.HARNESS,
            message="a line was too long to be read and no terminal event came after; see raw",
        )
    if not answered and reading.terminal_required:
        return _crash("ended without its terminal event", recording, answered=True)
    return None


def _crash(what: str, recording: Recording, *, answered: bool) -> Failure:
    last_words = recording.stderr.splitlines()[-1:] or [""]
    message = f"{what}: {last_words[0][:500]}" if last_words[0] else what
    return Failure(cause=Cause.AGENT_CRASH, message=message, answered=answered)
