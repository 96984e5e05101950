"""Read a recording into a capture. Can be run again, years later, without the agent."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.prices import estimate_cost
from assay.pipeline.limiter import with_pause
from assay.plugin import Adapter, Reading
from assay.records.capture import (
    AGENT_ONLY,
    GATEWAY,
    MOST_USD,
    RECORDED,
    AnyStep,
    Cause,
    Failure,
    Message,
    Plan,
    Thought,
    Timing,
    ToolCall,
    Usage,
    Wire,
    WireDifference,
)
from assay.records.recording import RawOutput, Recording, TurnEnd
from assay.records.setup import WIRE, is_another_model
from assay.records.spec import Prompt
from assay.records.trial import ENDED_EARLY, Trial


def extract(prompt: Prompt, recording: Recording, adapter: Adapter) -> Trial:
    """Make the row of one trial, not graded yet."""
    reading = adapter.read(recording)
    usage, doubts = believed_usage(reading, max(1, len(recording.turns)))
    if usage is not None and _is_paid_for(recording):
        usage = usage.paid_before(RECORDED)
    wire, apart = compared_wire(recording.wire, usage, reading)
    failure = failure_of(recording, reading)
    if failure is not None and not failure.reported_by:
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
        timing=_timing(recording, reading, usage),
        tool_errors=has_tool_errors(reading.steps) or timed_out or recording.failure is not None,
        errors=[failure.message] if never_started and failure else UNSET,
        usage=usage or UNSET,
        failure=failure or UNSET,
        agent=reading.agent or UNSET,
        session_id=reading.session_id or UNSET,
        simulated_user=recording.user or UNSET,
        replay=recording.replay or UNSET,
        wire=wire or UNSET,
        events=UNSET if never_started else reading.events,
        turn_usage=[_possible(one, 1) for one in reading.turn_usage] or UNSET,
        setup={**(reading.setup or {}), **({WIRE: apart} if apart else {})} or UNSET,
        permission_denials=reading.permission_denials or UNSET,
        provider_retries=reading.provider_retries or UNSET,
        retried=list(recording.retried) or UNSET,
        stderr=recording.stderr or UNSET,
        raw=recording.raw or UNSET,
        cwd=recording.cwd or UNSET,
        changes=recording.changes or UNSET,
        warnings=[*recording.warnings, *reading.warnings, *_left_out(reading), *doubts] or UNSET,
    )


def _is_paid_for(recording: Recording) -> bool:
    """Whether no provider was asked: all answers came from a tape."""
    replay, wire = recording.replay, recording.wire
    return replay is not None and wire is not None and replay.hits == wire.requests


def compared_wire(
    wire: Wire | None, usage: Usage | None, reading: Reading
) -> tuple[Wire | None, list[str]]:
    """Compare what an agent says of its tokens and its model with what the proxy saw.

    Also return what is so far apart that the run is unhealthy. Agents count cached tokens and
    thoughts with the others or apart: what fits either way is no difference.
    """
    if wire is None:
        return None, []
    found, apart = [], []
    for what, ways, seen in _token_counts(usage or Usage(), wire):
        if ways and seen and seen not in ways:
            nearest = min(ways, key=lambda count: abs(count - seen))
            found.append(WireDifference(what=what, agent=nearest, seen=seen))
            apart += [what] if abs(nearest - seen) > _MOST_TOKENS_APART * seen else []
    named = reading.agent.model if reading.agent is not None else UNSET
    if named and wire.models and all(is_another_model(asked, named) for asked in wire.models):
        found.append(WireDifference(what="model", agent=named, seen=", ".join(wire.models)))
        apart.append("model")
    return msgspec.structs.replace(wire, differs=found), apart


_MOST_TOKENS_APART = 0.02


def _token_counts(usage: Usage, wire: Wire) -> list[tuple[str, list[int], int]]:
    """Return what each number of tokens may be by the agent's account, and what was seen."""
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    ways = []
    for name, count, more in (
        ("inputTokens", usage.input_tokens, cached),
        ("outputTokens", usage.output_tokens, usage.reasoning_tokens or 0),
    ):
        counts = [] if count is UNSET else [int(count), int(count + more)]
        seen = wire.input_tokens if name == "inputTokens" else wire.output_tokens
        ways.append((name, counts, seen))
    return ways


def _left_out(reading: Reading) -> Sequence[str]:
    n_lines = reading.events.left_out
    what = "lines came after more than can be held in memory, and are in the raw stream only"
    return [f"{n_lines} {what}"] if n_lines else ()


def believed_usage(reading: Reading, n_calls: int) -> tuple[Usage | None, Sequence[str]]:
    """Return the usage as far as it can be true, and what is to be said about it."""
    if reading.usage is None:
        return None, ()
    usage, doubts = _believed_cost(reading, _possible(reading.usage, n_calls))
    if any(getattr(usage, name) != getattr(reading.usage, name) for name in _TOKENS):
        what = "negative, or more than a million millions"
        doubts = (*doubts, f"the agent's number of tokens cannot be true ({what}) and is unknown")
    return usage, doubts


_TOKENS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))
_MOST_TOKENS = 10**12


def _believed_cost(reading: Reading, usage: Usage) -> tuple[Usage, Sequence[str]]:
    if reading.usage is None or reading.usage.cost_usd is UNSET:
        return usage, ()
    estimates = [cost for cost in _estimates(reading) if cost >= 0]
    by_tokens = f"; by its tokens it is about ${estimates[0]:.4f}" if estimates else ""
    if usage.cost_usd is UNSET:
        what = "negative, not finite or more than $1,000 for a call"
        return usage, (f"the agent's cost cannot be true ({what}) and is unknown{by_tokens}",)
    known = usage.cost_usd or 0.0
    is_low = estimates and known * _MOST_APART < min(estimates)
    if is_low or (estimates and known > max(estimates) * _MOST_APART):
        usage = msgspec.structs.replace(usage, estimated_usd=estimates[0])
        return usage, (f"the agent reports a cost of ${known:.4f}{by_tokens}",)
    return usage, ()


_MOST_APART = 2
"""How many times as much one of two costs may be, before it is said that they disagree."""


def _possible(usage: Usage, n_calls: int) -> Usage:
    impossible = [
        name
        for name in _TOKENS
        if isinstance(n := getattr(usage, name), int | float) and not 0 <= n <= _MOST_TOKENS
    ]
    usage = msgspec.structs.replace(usage, estimated_usd=UNSET, **dict.fromkeys(impossible, UNSET))
    if usage.cost_usd is UNSET or 0 <= usage.cost_usd <= MOST_USD * n_calls:
        return usage
    return msgspec.structs.replace(usage, cost_usd=UNSET, cost_source=UNSET)


def _estimates(reading: Reading) -> list[float]:
    """Return what the tokens may have cost: input may or may not include what was cached."""
    usage, agent = reading.usage, reading.agent
    if usage is None or usage.cost_source != "reported":
        return []
    if usage.estimated_usd is not UNSET:
        return [usage.estimated_usd] if usage.estimated_usd >= 0 else []
    model = agent.model or None if agent is not None else None
    both = (estimate_cost(model, usage, input_includes_cache=cached) for cached in (False, True))
    return [cost for cost in both if cost is not None]


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
        "turnCount": len(prompt.turns) + len(recording.user.said if recording.user else ()),
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


def _timing(recording: Recording, reading: Reading, usage: Usage | None) -> Timing:
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
        reported = reading.failure
        if reported is None or reported.cause.measures_agent:
            return reported
        return checked_excuse(with_pause(reported, recording.stderr), {})
    end = recording.turns[-1].end
    if end.settled:  # what came after the step that settled it is our doing, and not wanted
        return None
    if end.out_of_memory and (end.signal or end.exit_code):
        message = "killed for memory: it used more than --memory allows"
        answered = reading.events.terminal
        return Failure(cause=Cause.AGENT_LIMIT, message=message, answered=answered)
    cut, reported = _cut_short(end), reading.failure
    if reported is not None and not reported.cause.measures_agent:
        reported = checked_excuse(with_pause(reported, recording.stderr), end.gateway)
    if cut is not None and not (reported and _explains(reported, cut)):
        return cut
    return reported or _unclean(end, recording, reading)


def checked_excuse(reported: Failure, seen: dict[str, Any]) -> Failure:
    """Compare what an agent reports, and what would not be its fault, with what a gateway saw.

    An agent can say anything, so without a gateway there is only its word. With one, an error that
    no answer of a provider showed is the agent's own. Answers such as 400 or 501 an agent can
    provoke: they contradict nothing and confirm nothing.
    """
    if not seen:
        return msgspec.structs.replace(reported, reported_by=AGENT_ONLY)
    errors = [name for name in seen.get("answers", {}) if name >= "400"]
    last = str(seen.get("last", ""))
    of_provider = reported.cause in (Cause.PROVIDER, Cause.AUTH)
    unclear = any(seen.get(name) for name in _UNCLEAR)
    if not seen.get("answers"):
        # Without a key, or by way of a proxy that it does not know, an agent may never ask.
        unclear |= reported.cause is Cause.AUTH or bool(seen.get("proxied"))
    if not errors and of_provider and not unclear:
        what = f"the gateway did not see ({_seen_by_gateway(seen)}): {reported.message}"
        return Failure(cause=Cause.AGENT_CRASH, message=f"it reports a failure that {what}")
    confirmed = of_provider and last in _CONFIRMING
    pause_ms = reported.retry_after_ms
    if not seen.get("opaque") and not _REFUSALS & {*errors}:
        pause_ms = None
    by = GATEWAY if confirmed else AGENT_ONLY
    return msgspec.structs.replace(reported, reported_by=by, retry_after_ms=pause_ms)


_UNCLEAR = ("opaque", "failed", "dropped", "refused")
_CONFIRMING = frozenset(
    {"failed", "429", "500", "502", "503", "504", "529", *map(str, range(520, 528))}
)
"""What a provider answers to a good request. 408, 501 and 505 it answers to half of one, or to one
with another method or version of HTTP."""
_REFUSALS = frozenset({"429", "503", "529"})


def _seen_by_gateway(seen: dict[str, Any]) -> str:
    answers = ", ".join(f"{n} of status {name}" for name, n in seen.get("answers", {}).items())
    return answers or "no answer at all"


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
    if how := _end_of_process(end):
        return _crash(how, recording.stderr, answered=answered)
    if not answered and reading.events.oversized:
        left_out = reading.events.left_out
        what = "more was printed than can" if left_out else "a line was too long to"
        message = f"{what} be read and no terminal event came after; see raw"
        # The agent wrote it: it does not take itself out of the count.
        return Failure(cause=Cause.AGENT_LIMIT, message=message)
    if not answered and reading.terminal_required:
        said = bool(reading.steps or any(reading.outputs))
        return _crash("ended without its terminal event", recording.stderr, answered=said)
    return None


def raw_failure(row: RawOutput) -> Failure | None:
    """Return why a trial failed, as far as the end of its last process tells."""
    if row.failure or not row.turns:
        return row.failure or None
    end = row.turns[-1]
    how = "" if end.lingered else _end_of_process(end)
    return _cut_short(end) or (_crash(how, row.stderr or "", answered=False) if how else None)


def _end_of_process(end: TurnEnd) -> str:
    if end.signal is not None:
        return f"died of {end.signal}"
    return f"ended with exit code {end.exit_code}" if end.exit_code else ""


def _crash(what: str, stderr: str, *, answered: bool) -> Failure:
    lines = [line for line in stderr.splitlines() if line.strip()]
    # An indented line belongs to the one before it, as a hint or a stack trace does.
    last_line = next((line for line in reversed(lines) if not line[0].isspace()), "")
    message = f"{what}: {last_line[:500]}" if last_line else what
    return Failure(cause=Cause.AGENT_CRASH, message=message, answered=answered)
