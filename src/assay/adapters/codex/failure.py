"""What an error of Codex means for the trial."""

import re
from typing import Any

import msgspec

from assay.adapters.vendor import start_failure, status_cause, text_cause
from assay.records.capture import Cause, Failure
from assay.records.recording import TurnEnd

_INFO = {
    "context_window_exceeded": Cause.AGENT_LIMIT,
    "session_budget_exceeded": Cause.AGENT_LIMIT,
    "usage_limit_exceeded": Cause.PROVIDER,
    "rate_limit_exceeded": Cause.PROVIDER,
    "server_overloaded": Cause.PROVIDER,
    "model_not_found": Cause.PROVIDER,
    "policy_capacity_unavailable": Cause.PROVIDER,
    "http_connection_failed": Cause.PROVIDER,
    "response_stream_connection_failed": Cause.PROVIDER,
    "response_stream_disconnected": Cause.PROVIDER,
    "response_too_many_failed_attempts": Cause.PROVIDER,
    "internal_server_error": Cause.PROVIDER,
    "bad_request": Cause.PROVIDER,
    "unauthorized": Cause.AUTH,
    "cyber_policy": Cause.AGENT_REFUSED,
    "bio_policy": Cause.AGENT_REFUSED,
    "misalignment_policy_violation": Cause.AGENT_REFUSED,
    "invalid_prompt": Cause.AGENT_REFUSED,
}
"""The words of codex_error_info in the rollout; "other" says nothing."""
_WORDS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    (re.compile(r"missing environment variable", re.IGNORECASE), Cause.AUTH),
    (
        re.compile(r"context window|token budget|max_output_tokens|maximum.{0,20}tokens", re.I),
        Cause.AGENT_LIMIT,
    ),
    (
        re.compile(r"content_filter|usage policy|policy violation|safety|flagged", re.IGNORECASE),
        Cause.AGENT_REFUSED,
    ),
    (
        re.compile(r"high demand|usage limit|connection failed|incomplete response", re.IGNORECASE),
        Cause.PROVIDER,
    ),
)
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_SERVER = re.compile(r"MCP server startup failed server_name=\"([^\"]+)\"")
_NOISE = re.compile(r"^(WARNING: proceeding|Reading additional input from stdin|\s|\[redacted)")


def turn_failure(message: str, error: dict[str, Any] | None) -> Failure:
    """Judge a turn that Codex says has failed; error is what the rollout has about it."""
    info = error.get("codex_error_info") if error else None
    return Failure(cause=_info_cause(info) or _cause(message), message=message[:2000])


def waiting_failure(notice: str) -> Failure | None:
    """Judge a turn that was cut while Codex tried to reach its provider."""
    cause = _cause(notice)
    if cause not in (Cause.AUTH, Cause.PROVIDER):
        return None
    return Failure(cause=cause, message=notice[:2000])


def never_started(end: TurnEnd, stderr: str) -> Failure | None:
    """Judge a process that ended before its first event."""
    words = "\n".join(line for line in stderr.splitlines() if not _NOISE.match(line))
    return start_failure("codex", end, words)


def failed_servers(stderr: str) -> set[str]:
    """Name the MCP servers that did not start."""
    return set(_SERVER.findall(stderr))


def _info_cause(info: Any) -> Cause | None:
    if isinstance(info, str):
        return _INFO.get(info)
    if not isinstance(info, dict):
        return None
    for name, details in info.items():
        status = details.get("http_status_code") if isinstance(details, dict) else None
        return status_cause(status) if isinstance(status, int) else _INFO.get(name)
    return None


def _cause(message: str) -> Cause:
    status = _STATUS.search(message)
    if status is not None:
        return status_cause(int(status.group(1)))
    for pattern, cause in _WORDS:
        if pattern.search(message):
            return cause
    return text_cause(message) or _body_cause(message) or Cause.AGENT_CRASH


def _body_cause(message: str) -> Cause | None:
    """A refused request is told as the provider's answer, word for word."""
    try:
        body = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Cause.PROVIDER if isinstance(body, dict) and "error" in body else None
