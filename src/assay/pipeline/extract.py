"""Read a recording into a capture. Can be run again, years later, without the agent."""

from typing import Any

import msgspec
from msgspec import UNSET

from assay.pipeline.limiter import with_pause
from assay.plugin import Adapter, Reading
from assay.records.capture import AnyStep, Cause, Failure, Message, Plan, Thought, Timing, ToolCall
from assay.records.recording import RawOutput, Recording, TurnEnd
from assay.records.spec import Prompt
from assay.records.trial import ENDED_EARLY, Trial


def extract(prompt: Prompt, recording: Recording, adapter: Adapter) -> Trial:
    """Make the row of one trial, not graded yet."""
    reading = adapter.read(recording)
    failure = failure_of(recording, reading)
    if failure is not None:
        failure = with_pause(failure, recording.stderr)
    never_started = recording.failure is not None and not recording.turns
    timed_out = any(turn.end.timed_out for turn in recording.turns[-1:])
    return Trial(
        id=prompt.id,
        input=prompt.input,
        output=_output(recording, reading),
        hint=prompt.hint or UNSET,
        trajectory=reading.steps,
        metadata=_metadata(prompt, recording, reading, adapter.name),
        timing=_timing(recording, reading),
        tool_errors=has_tool_errors(reading.steps) or timed_out or recording.failure is not None,
        errors=[failure.message] if never_started and failure else UNSET,
        usage=reading.usage or UNSET,
        failure=failure or UNSET,
        agent=reading.agent or UNSET,
        session_id=reading.session_id or UNSET,
        events=UNSET if never_started else reading.events,
        turn_usage=reading.turn_usage or UNSET,
        setup=reading.setup or UNSET,
        permission_denials=reading.permission_denials or UNSET,
        provider_retries=reading.provider_retries or UNSET,
        retried=list(recording.retried) or UNSET,
        stderr=recording.stderr or UNSET,
        raw=recording.raw or UNSET,
        cwd=recording.cwd or UNSET,
        changes=recording.changes or UNSET,
        warnings=[*recording.warnings, *reading.warnings] or UNSET,
    )


def has_tool_errors(steps: list[AnyStep]) -> bool:
    """Whether any tool call among the steps failed."""
    return any(isinstance(step, ToolCall) and step.status in ("failed", "error") for step in steps)


def richness(steps: list[AnyStep]) -> str:
    """Return how much of the agent's work the steps show."""
    if any(isinstance(step, Thought | ToolCall | Plan) for step in steps):
        return "full"
    return "messages-only" if steps else "minimal"


def _output(recording: Recording, reading: Reading) -> str:
    """Return the last turn's answer, or else its messages; an earlier turn answers another text."""
    last = reading.outputs[-1] if reading.outputs else ""
    own = (UNSET, len(recording.turns))
    said = (s.content for s in reading.steps if isinstance(s, Message) and s.turn in own)
    return last or "\n".join(said)


def _metadata(prompt: Prompt, recording: Recording, reading: Reading, agent: str) -> dict[str, Any]:
    metadata = {
        **prompt.metadata,
        "agent": agent,
        "trajectoryRichness": richness(reading.steps),
        "turnCount": len(prompt.turns),
    }
    if recording.workspace is not None:
        metadata["workspaceDir"] = recording.workspace
    if recording.turns and not recording.unsplit:
        end = recording.turns[-1].end
        metadata["exitCode"] = end.exit_code
        if end.signal is not None:
            metadata["signal"] = end.signal
        metadata["timedOut"] = end.timed_out
        if end.lingered:
            metadata["lingered"] = True
        if end.settled and not reading.events.terminal:
            metadata[ENDED_EARLY] = True
        if end.limits:
            metadata["limits"] = end.limits
    if recording.evidence:
        metadata["evidence"] = recording.evidence
    return metadata


def _timing(recording: Recording, reading: Reading) -> Timing:
    usage = reading.usage
    first = recording.turns[0].end if recording.turns else None
    return Timing(
        start=recording.start_ms,
        end=recording.end_ms,
        first_response=reading.steps[0].timestamp if reading.steps else UNSET,
        session_creation=first.spawned_ms - first.start_ms if first else 0,
        total=recording.end_ms - recording.start_ms,
        input_tokens=usage.input_tokens if usage else UNSET,
        output_tokens=usage.output_tokens if usage else UNSET,
    )


def failure_of(recording: Recording, reading: Reading) -> Failure | None:
    """Return why the trial failed, None when it did not; see World.evidence for its part in it."""
    failure = _agents_failure(recording, reading)
    if "failure" not in recording.evidence:
        return failure
    worlds = msgspec.convert(recording.evidence["failure"], Failure)
    says_more = failure is not None and (
        worlds.cause.measures_agent or not failure.cause.measures_agent
    )
    return failure if says_more else worlds


def _agents_failure(recording: Recording, reading: Reading) -> Failure | None:
    """Judge from our own clock, then the agent's terminal event, and only then the exit code."""
    if recording.failure is not None:
        return recording.failure
    if not recording.turns or recording.unsplit:
        return reading.failure
    end = recording.turns[-1].end
    if end.settled:  # what came after the step that settled it is our doing, and not wanted
        return None
    if end.out_of_memory and (end.signal or end.exit_code):
        message = "killed for memory: it used more than --memory allows"
        answered = reading.events.terminal
        return Failure(cause=Cause.AGENT_LIMIT, message=message, answered=answered)
    cut = _cut_short(end)
    if cut is not None and not (reading.failure and _explains(reading.failure, cut)):
        return cut
    return reading.failure or _unclean(end, recording, reading)


def _explains(failure: Failure, cut: Failure) -> bool:
    """Whether a failed provider explains the timeout: then it is not the agent that failed."""
    timed_out = cut.cause is Cause.AGENT_TIMEOUT
    return timed_out and failure.cause in (Cause.PROVIDER, Cause.AUTH)


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
    if end.lingered:  # we ended it after its answer: signal and exit code are our doing
        return None
    if how := _how_it_died(end):
        return _crash(how, recording.stderr, answered=answered)
    if not answered and reading.events.oversized:
        return Failure(
            cause=Cause.HARNESS,
            message="a line was too long to be read and no terminal event came after; see raw",
        )
    if not answered and reading.terminal_required:
        said = bool(reading.steps or any(reading.outputs))
        return _crash("ended without its terminal event", recording.stderr, answered=said)
    return None


def raw_failure(row: RawOutput) -> Failure | None:
    """Return why a trial failed, as far as the end of its last process tells."""
    if row.failure or not row.turns:
        return row.failure or None
    end = row.turns[-1]
    how = "" if end.lingered else _how_it_died(end)
    return _cut_short(end) or (_crash(how, row.stderr or "", answered=False) if how else None)


def _how_it_died(end: TurnEnd) -> str:
    if end.signal is not None:
        return f"died of {end.signal}"
    return f"ended with exit code {end.exit_code}" if end.exit_code else ""


def _crash(what: str, stderr: str, *, answered: bool) -> Failure:
    lines = [line for line in stderr.splitlines() if line.strip()]
    # An indented line belongs to the one before it, as a hint or a stack trace does.
    last_line = next((line for line in reversed(lines) if not line[0].isspace()), "")
    message = f"{what}: {last_line[:500]}" if last_line else what
    return Failure(cause=Cause.AGENT_CRASH, message=message, answered=answered)
