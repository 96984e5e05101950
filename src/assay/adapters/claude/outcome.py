"""The failure and the usage of a turn of Claude Code, from its result line."""

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.claude.stream import ClaudeTurn, refusal_ms
from assay.adapters.prices import with_cost
from assay.adapters.reading import parse_line
from assay.adapters.vendor import start_failure, status_cause, text_cause
from assay.records.capture import Cause, Failure, Usage
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
"""Values of `error` in the line of an API error; "unknown" carries no information."""
_LIMITS = frozenset({"max_turns", "budget_exhausted", "prompt_too_long", "max_output_tokens"})
_LOST_SESSION = re.compile(r"no conversation found|session.{0,20}not found", re.IGNORECASE)


def failure_of_turn(turn: ClaudeTurn, end: TurnEnd, stderr: str) -> Failure | None:
    """Return the failure that Claude Code itself reports, None when it reports none."""
    if turn.results:
        result = turn.results[-1]
        # API errors have the subtype "success": only is_error tells.
        return _failure_of_result(result, turn) if result.get("is_error") is True else None
    if turn.retry is not None:  # killed while Claude Code was retrying its provider
        status = turn.retry.get("error_status")
        error = str(turn.retry.get("error"))
        cause = (
            status_cause(status) if isinstance(status, int) else _ERRORS.get(error, Cause.PROVIDER)
        )
        reason = " ".join(str(part) for part in (status, error) if part is not None)
        attempt, most = turn.retry.get("attempt"), turn.retry.get("max_retries")
        message = f"no answer from the provider: {reason}, retry {attempt}/{most}"
        return Failure(cause=cause, message=message, retry_after_ms=refusal_ms(turn.retry))
    if turn.interrupted:  # SIGINT: no result, and exit code 0
        return Failure(cause=Cause.AGENT_CRASH, message="was interrupted before it gave a result")
    if turn.events.total == 0:
        return start_failure("claude", end, stderr)
    return None


def _failure_of_result(result: dict[str, Any], turn: ClaudeTurn) -> Failure:
    message = _message(result)
    cause = _cause(result, turn, message)
    pause_ms = turn.retry_ms if cause is Cause.PROVIDER else None
    return Failure(cause=cause, message=message, retry_after_ms=pause_ms)


def _cause(result: dict[str, Any], turn: ClaudeTurn, message: str) -> Cause:
    subtype, reason = str(result.get("subtype")), result.get("terminal_reason")
    if subtype.startswith("error_max") or reason in _LIMITS:
        return Cause.AGENT_LIMIT
    if result.get("stop_reason") == "refusal" or turn.refused:
        return Cause.AGENT_REFUSED
    if _LOST_SESSION.search(message):
        return Cause.HARNESS
    if reason == "api_error" or "api_error" in result or turn.api_error is not None:
        line = turn.api_error or {}
        status = result.get("api_error_status") or line.get("api_error_status")
        if isinstance(status, int):
            return status_cause(status)
        return _ERRORS.get(str(line.get("error"))) or text_cause(message) or Cause.PROVIDER
    return text_cause(message) or Cause.AGENT_CRASH


def _message(result: dict[str, Any]) -> str:
    errors = result.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join(str(error) for error in errors)[:2000]
    text = result.get("result")
    return text[:2000] if isinstance(text, str) and text else str(result.get("subtype"))


_BY_MODEL = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadInputTokens",
    "cache_write_tokens": "cacheCreationInputTokens",
    "reasoning_tokens": "thinkingTokens",
}
_OF_API = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


def usage_of_turn(turn: ClaudeTurn, kept: Path | None) -> Usage | None:
    """Add up the results of a turn; a killed turn has none, so its session file is read."""
    found = [usage for result in turn.results if (usage := _usage_of_result(result, turn.model))]
    if not turn.results and kept is not None:
        found = _of_session(turn, kept)
    total: Usage | None = None
    for usage in found:
        total = usage if total is None else total.plus(usage)
    return total


def _usage_of_result(result: dict[str, Any], model: str | None) -> Usage | None:
    """Return this turn's usage with sub-agents; older versions report only the main thread."""
    # Not modelUsage or total_cost_usd: those are totals of the session, even across processes.
    share = result.get("model_usage_since_last_result")
    if isinstance(share, dict) and share:
        total: Usage | None = None
        for name, fields in share.items():
            if isinstance(fields, dict):
                usage = _of_model(name, fields)
                total = usage if total is None else total.plus(usage)
        return total
    fields = result.get("usage")
    usage = _counted(fields if isinstance(fields, dict) else {}, _OF_API)
    if not (usage.input_tokens or usage.output_tokens):
        return None  # an API error: the model has not answered
    models = result.get("modelUsage")
    if model is None and isinstance(models, dict) and len(models) == 1:
        model = next(iter(models))
    return with_cost(model, usage, output_includes_reasoning=True)


def _of_model(name: str, fields: dict[str, Any]) -> Usage:
    usage = _counted(fields, _BY_MODEL)
    cost = fields.get("costUSD")
    # For a model of unknown price the CLI computes a cost at some default price.
    if isinstance(cost, int | float) and fields.get("costBasis", "list") != "unknown":
        return msgspec.structs.replace(usage, cost_usd=float(cost), cost_source="reported")
    return with_cost(name, usage, output_includes_reasoning=True)


def _of_session(turn: ClaudeTurn, kept: Path) -> list[Usage]:
    """Find the answers of a turn in the session files, which hold their final token counts."""
    # Each content block has its own line with its message's id; the last one counts.
    last: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(kept.rglob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                event = parse_line(line) if b'"usage"' in line else None
                message = event.get("message") if isinstance(event, dict) else None
                if isinstance(message, dict) and message.get("id") in turn.message_ids:
                    fields = message.get("usage")
                    if isinstance(fields, dict):
                        last[message["id"]] = str(message.get("model")), fields
    return [
        with_cost(model, _counted(fields, _OF_API), output_includes_reasoning=True)
        for model, fields in last.values()
    ]


def _counted(fields: dict[str, Any], names: dict[str, str]) -> Usage:
    counts: dict[str, Any] = {}
    for ours, theirs in names.items():
        value = fields.get(theirs)
        counts[ours] = value if isinstance(value, int) and not isinstance(value, bool) else UNSET
    if counts.get("reasoning_tokens") == 0:  # the CLI also writes 0 if it does not know
        counts["reasoning_tokens"] = UNSET
    return Usage(**counts)
