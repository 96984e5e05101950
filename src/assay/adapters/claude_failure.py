"""How a turn of Claude Code went: judged from its result line, never from its exit code."""

import re
from typing import Any

from assay.adapters.claude_stream import ClaudeTurn
from assay.adapters.vendor import start_failure, status_cause, text_cause
from assay.records.failure import Cause, Failure
from assay.records.recording import TurnEnd

_ERRORS = {
    "authentication_failed": Cause.AUTH,
    "oauth_org_not_allowed": Cause.AUTH,
    "billing_error": Cause.PROVIDER,
    "rate_limit": Cause.PROVIDER,
    "overloaded": Cause.PROVIDER,
    "server_error": Cause.PROVIDER,
    "model_not_found": Cause.PROVIDER,
    "invalid_request": Cause.PROVIDER,
    "max_output_tokens": Cause.AGENT_LIMIT,
}
"""The words of `error` in a line that tells of an API error; "unknown" says nothing."""
_LIMITS = frozenset({"max_turns", "budget_exhausted", "prompt_too_long", "max_output_tokens"})
_LOST_SESSION = re.compile(r"no conversation found|session.{0,20}not found", re.IGNORECASE)


def failure_of_turn(turn: ClaudeTurn, end: TurnEnd, stderr: str) -> Failure | None:
    """Give what Claude Code itself says went wrong, None when it says nothing."""
    if turn.results:
        result = turn.results[-1]
        return _failure_of_result(result, turn) if result.get("is_error") is True else None
    if turn.retry is not None:
        return _of_retry(turn.retry)
    if turn.interrupted:
        return Failure(cause=Cause.AGENT_CRASH, message="was interrupted before it gave a result")
    if turn.events.total == 0:
        return start_failure("claude", end, stderr)
    return None


def _failure_of_result(result: dict[str, Any], turn: ClaudeTurn) -> Failure:
    message = _message(result)
    return Failure(cause=_cause(result, turn, message), message=message)


def _cause(result: dict[str, Any], turn: ClaudeTurn, message: str) -> Cause:
    subtype, reason = str(result.get("subtype")), result.get("terminal_reason")
    if subtype.startswith("error_max") or reason in _LIMITS:
        return Cause.AGENT_LIMIT
    if result.get("stop_reason") == "refusal" or turn.refused:
        return Cause.AGENT_REFUSED
    if _LOST_SESSION.search(message):
        return Cause.HARNESS
    if reason == "api_error" or "api_error" in result or turn.api_error is not None:
        return _api_cause(result, turn.api_error or {}, message)
    return text_cause(message) or Cause.AGENT_CRASH


def _api_cause(result: dict[str, Any], line: dict[str, Any], message: str) -> Cause:
    status = result.get("api_error_status") or line.get("api_error_status")
    if isinstance(status, int):
        return status_cause(status)
    return _ERRORS.get(str(line.get("error"))) or text_cause(message) or Cause.PROVIDER


def _of_retry(retry: dict[str, Any]) -> Failure:
    """It was still asking its provider again when it was ended."""
    status = retry.get("error_status")
    error = str(retry.get("error"))
    cause = status_cause(status) if isinstance(status, int) else _ERRORS.get(error, Cause.PROVIDER)
    said = " ".join(str(part) for part in (status, error) if part is not None)
    attempt, most = retry.get("attempt"), retry.get("max_retries")
    return Failure(
        cause=cause, message=f"no answer from the provider: {said}, retry {attempt}/{most}"
    )


def _message(result: dict[str, Any]) -> str:
    errors = result.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join(str(error) for error in errors)[:2000]
    text = result.get("result")
    return text[:2000] if isinstance(text, str) and text else str(result.get("subtype"))
