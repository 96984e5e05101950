"""Read a recording into a capture. Can be run again, years later, without the agent."""

from typing import Any

from msgspec import UNSET

from assay.extract.failure import failure_of
from assay.records.capture import Capture, Timing
from assay.records.prompt import Prompt
from assay.records.recording import Recording
from assay.records.trajectory import AnyStep, Message, Plan, Thought, ToolCall
from assay.seams import Adapter, Reading


def extract(prompt: Prompt, recording: Recording, adapter: Adapter) -> Capture:
    """Make the journal line of one trial, not graded yet."""
    reading = adapter.read(recording)
    failure = failure_of(recording, reading)
    unborn = recording.failure is not None and not recording.turns
    timed_out = any(turn.end.timed_out for turn in recording.turns[-1:])
    return Capture(
        id=prompt.id,
        input=prompt.input,
        output=_output(reading),
        hint=prompt.hint or UNSET,
        trajectory=reading.steps,
        metadata=_metadata(prompt, recording, reading, adapter.name),
        timing=_timing(recording, reading),
        tool_errors=has_tool_errors(reading.steps) or timed_out or recording.failure is not None,
        errors=[failure.message] if unborn and failure else UNSET,
        usage=reading.usage or UNSET,
        failure=failure or UNSET,
        agent=reading.agent or UNSET,
        session_id=reading.session_id or UNSET,
        events=UNSET if unborn else reading.events,
        turn_usage=reading.turn_usage or UNSET,
        setup=reading.setup or UNSET,
        permission_denials=reading.permission_denials or UNSET,
        provider_retries=reading.provider_retries or UNSET,
        retried=list(recording.retried) or UNSET,
        stderr=recording.stderr or UNSET,
        raw=recording.raw or UNSET,
    )


def has_tool_errors(steps: list[AnyStep]) -> bool:
    """Whether any tool call among the steps failed."""
    return any(isinstance(step, ToolCall) and step.status in ("failed", "error") for step in steps)


def richness(steps: list[AnyStep]) -> str:
    """Say how much of the agent's doing can be seen."""
    if any(isinstance(step, Thought | ToolCall | Plan) for step in steps):
        return "full"
    return "messages-only" if steps else "minimal"


def _output(reading: Reading) -> str:
    """The last turn's answer, or else everything that was said."""
    last = reading.outputs[-1] if reading.outputs else ""
    return last or "\n".join(s.content for s in reading.steps if isinstance(s, Message))


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
