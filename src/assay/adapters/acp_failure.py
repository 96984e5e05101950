"""What an error or a stop reason of the Agent Client Protocol means for the trial."""

import re
from typing import Any

import msgspec

from assay.adapters.acp_messages import AUTH_REQUIRED
from assay.records.failure import Cause, Failure

_STOPS = {
    "max_tokens": (Cause.AGENT_LIMIT, "stopped: it reached its limit of tokens"),
    "max_turn_requests": (Cause.AGENT_LIMIT, "stopped: it reached its limit of model requests"),
    "refusal": (Cause.AGENT_REFUSED, "refused to go on"),
    "cancelled": (Cause.AGENT_CRASH, "says the turn was cancelled; nobody cancelled it"),
}
KNOWN_STOPS = frozenset({"end_turn", *_STOPS})
_AUTH = re.compile(
    r"\b401\b|\b403\b|unauthori[sz]ed|unauthenticated|invalid.{0,3}api.?key|authenticat|log.?in\b",
    re.IGNORECASE,
)
_PROVIDER = re.compile(
    r"\b429\b|\b5\d\d\b.{0,40}(error|unavailable|gateway)|(status|http|error|code).{0,10}\b5\d\d\b"
    r"|rate.?limit|overloaded|quota|unavailable|ECONN|ENOTFOUND|ETIMEDOUT|fetch failed"
    r"|connection (error|refused|reset)",
    re.IGNORECASE,
)


def stop_failure(stop_reason: Any) -> Failure | None:
    """Give the failure that a stop reason names, None for a proper end."""
    found = _STOPS.get(stop_reason) if isinstance(stop_reason, str) else None
    return Failure(cause=found[0], message=found[1]) if found else None


def error_failure(method: str, error: Any) -> Failure:
    """Give the failure of a request that the agent answered with an error."""
    if not isinstance(error, dict):
        error = {"message": str(error)}
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    said = _said_cause(data)
    details = "" if said else _details(data)
    text = " ".join(part for part in (str(message or "error"), details) if part)[:2000]
    code_text = f" ({code})" if code is not None else ""
    return Failure(cause=said or _cause(code, text), message=f"{method}{code_text}: {text}")


def _said_cause(data: Any) -> Cause | None:
    """Our own headless command says the cause in so many words."""
    said = data.get("cause") if isinstance(data, dict) else None
    return Cause(said) if isinstance(said, str) and said in set(Cause) else None


def _cause(code: Any, text: str) -> Cause:
    if code == AUTH_REQUIRED or _AUTH.search(text):
        return Cause.AUTH
    if _PROVIDER.search(text):
        return Cause.PROVIDER
    return Cause.AGENT_CRASH


def _details(data: Any) -> str:
    if data is None or data == {}:
        return ""
    if isinstance(data, dict):
        for name in ("details", "message"):
            if isinstance(data.get(name), str):
                return str(data[name])
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()
