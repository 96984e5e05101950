"""What a turn of Claude Code used: never the session's sums, never a message's first guess."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.claude_stream import ClaudeTurn
from assay.adapters.events import parse_line
from assay.adapters.prices import with_cost
from assay.records.capture import Usage

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
    """Add up the results of a turn; one that was cut short is looked up in the session file."""
    found = [usage for result in turn.results if (usage := _usage_of_result(result, turn.model))]
    if not turn.results and kept is not None:
        found = _of_session(turn, kept)
    total: Usage | None = None
    for usage in found:
        total = usage if total is None else total.plus(usage)
    return total


def _usage_of_result(result: dict[str, Any], model: str | None) -> Usage | None:
    """Take this turn's share, with sub-agents; older versions tell only the main thread's."""
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
        return None  # an API error: nothing was answered
    models = result.get("modelUsage")
    if model is None and isinstance(models, dict) and len(models) == 1:
        model = next(iter(models))
    return with_cost(model, usage, output_includes_reasoning=True)


def _of_model(name: str, fields: dict[str, Any]) -> Usage:
    usage = _counted(fields, _BY_MODEL)
    cost = fields.get("costUSD")
    if isinstance(cost, int | float) and fields.get("costBasis", "list") != "unknown":
        return msgspec.structs.replace(usage, cost_usd=float(cost), cost_source="reported")
    return with_cost(name, usage, output_includes_reasoning=True)


def _of_session(turn: ClaudeTurn, kept: Path) -> list[Usage]:
    """Find the answers of a turn in the session files; there each has its final count."""
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
    if counts.get("reasoning_tokens") == 0:  # also what it says when it was not told
        counts["reasoning_tokens"] = UNSET
    return Usage(**counts)
