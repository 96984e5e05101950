"""How a turn of OpenCode went: from its last model call and its errors, not from its exit code."""

import re
from typing import Any

import msgspec

from assay.adapters.opencode.files import OpenCodeLog
from assay.adapters.opencode.stream import OpenCodeTurn
from assay.adapters.vendor import start_failure, status_cause, text_cause
from assay.records.capture import Cause, Failure
from assay.records.recording import TurnEnd

_NAMES = {
    "ProviderAuthError": Cause.AUTH,
    "ContextOverflowError": Cause.AGENT_LIMIT,
    "MessageOutputLengthError": Cause.AGENT_LIMIT,
    "MessageAbortedError": Cause.AGENT_CRASH,
    "ContentFilterError": Cause.AGENT_REFUSED,
}
_REASONS = {
    "length": (Cause.AGENT_LIMIT, "stopped: it reached its limit of output tokens"),
    "content-filter": (Cause.AGENT_REFUSED, "stopped by a content filter"),
    "error": (Cause.PROVIDER, "the model call ended with an error"),
    "unknown": (Cause.PROVIDER, "the provider's stream was cut"),
}
_LOST_SESSION = re.compile(r"session not found", re.IGNORECASE)


def failure_of_turn(
    turn: OpenCodeTurn, end: TurnEnd, stderr: str, log: OpenCodeLog, start_ms: float
) -> Failure | None:
    """Give what OpenCode itself says went wrong, None when it says nothing.

    start_ms is when the turn began, since the epoch: the log may tell of earlier ones too.
    """
    if turn.over_limit or (end.lingered and not turn.ended):
        message = f"reached the limit of {turn.n_calls} model calls"
        return Failure(cause=Cause.AGENT_LIMIT, message=message)
    if turn.error is not None:
        return _of_error(turn.error)
    if turn.ended or (turn.reason in _REASONS and not end.timed_out):
        return _of_reason(turn)
    failure = log.waiting_failure(max(turn.last_ms, start_ms))
    if failure is not None:
        return failure
    if turn.events.total == 0:
        return _of_start(end, stderr)
    if turn.parts.denied and not end.exit_code and end.signal is None and not end.timed_out:
        message = "stopped: a permission was asked for and nobody could give it"
        return Failure(cause=Cause.AGENT_CRASH, message=message)
    return None


def _of_reason(turn: OpenCodeTurn) -> Failure | None:
    found = _REASONS.get(turn.reason or "")
    if found is not None:
        return Failure(cause=found[0], message=found[1])
    if turn.overflow is not None:
        message = f"went on after its context was too long: {_message(turn.overflow)}"
        return Failure(cause=Cause.AGENT_LIMIT, message=message, answered=True)
    return None


def _of_error(error: dict[str, Any]) -> Failure:
    name, message = str(error.get("name")), _message(error)
    status = _data(error).get("statusCode")
    if name in _NAMES:
        cause = _NAMES[name]
    elif isinstance(status, int):
        cause = status_cause(status)
    else:
        cause = text_cause(message) or (Cause.PROVIDER if name == "APIError" else Cause.AGENT_CRASH)
    said = f"{status} {message}" if isinstance(status, int) else message
    return Failure(cause=cause, message=f"{name}: {said}"[:2000])


def _of_start(end: TurnEnd, stderr: str) -> Failure | None:
    failure = start_failure("opencode", end, stderr)
    if failure is not None and _LOST_SESSION.search(failure.message):
        return msgspec.structs.replace(failure, cause=Cause.HARNESS)
    return failure


def _message(error: dict[str, Any]) -> str:
    return str(_data(error).get("message") or error.get("message") or error.get("name") or error)


def _data(error: dict[str, Any]) -> dict[str, Any]:
    data = error.get("data")
    return data if isinstance(data, dict) else {}
