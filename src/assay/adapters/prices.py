"""Prices of tokens: a dated table, for agents that do not report their cost."""

import os
import re
from functools import cache
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from assay.errors import InputError, UsageError
from assay.records.capture import Usage, possible_usd

_MILLION = 1_000_000
_DATED = re.compile(r"[-@](20\d{6}|20\d\d-\d\d-\d\d|latest)$")


class Price(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """USD per million tokens of one model; a missing cache price is that of input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class PriceTable(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Prices as of one day."""

    as_of: str
    models: dict[str, Price]
    source: str = ""
    unit: str = "USD per million tokens"


def price_table() -> PriceTable:
    """Read the user's table (ASSAY_PRICES=FILE) or ours."""
    return _read(os.environ.get("ASSAY_PRICES") or str(Path(__file__).with_name("prices.json")))


def estimate_cost(
    model: str | None,
    usage: Usage,
    *,
    input_includes_cache: bool = False,
    output_includes_reasoning: bool = False,
) -> float | None:
    """Return the cost in USD; None when the model has no price or no token was counted.

    Token categories do not overlap, unless the arguments say so.
    """
    price = _price(model)
    if price is None or (usage.input_tokens is UNSET and usage.output_tokens is UNSET):
        return None
    read, written = _count(usage.cache_read_tokens), _count(usage.cache_write_tokens)
    fresh, output = _count(usage.input_tokens), _count(usage.output_tokens)
    if input_includes_cache:
        fresh = max(0, fresh - read - written)
    if not output_includes_reasoning:
        output += _count(usage.reasoning_tokens)
    total = fresh * price.input + output * price.output
    total += read * (price.input if price.cache_read is None else price.cache_read)
    total += written * (price.input if price.cache_write is None else price.cache_write)
    return total / _MILLION


def with_cost(
    model: str | None,
    usage: Usage,
    *,
    input_includes_cache: bool = False,
    output_includes_reasoning: bool = False,
) -> Usage:
    """Return usage with an estimated cost, beside the one that the agent reported, if it did."""
    cost = estimate_cost(
        model,
        usage,
        input_includes_cache=input_includes_cache,
        output_includes_reasoning=output_includes_reasoning,
    )
    if cost is None:
        return usage
    if usage.cost_usd is not UNSET:
        return msgspec.structs.replace(usage, estimated_usd=cost)
    return msgspec.structs.replace(usage, cost_usd=possible_usd(cost), cost_source="estimated")


def _price(model: str | None) -> Price | None:
    """Look up a model by its full name, else without its provider, else without its date too."""
    if not model:
        return None
    models = price_table().models
    bare = model.rsplit("/", 1)[-1]
    for name in (model, bare, _DATED.sub("", bare)):
        if name in models:
            return models[name]
    return None


def _count(tokens: int | UnsetType) -> int:
    return 0 if tokens is UNSET else tokens


@cache
def _read(path: str) -> PriceTable:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=PriceTable)
    except OSError as error:
        msg = f"ASSAY_PRICES={path}: {error.strerror}"
        raise UsageError(msg, hint="unset ASSAY_PRICES to use the built-in prices") from error
    except msgspec.MsgspecError as error:
        msg = f"{path}: {error}"
        hint = 'a price table is {"asOf": "YYYY-MM-DD", "models": {NAME: {"input", "output"}}}'
        raise InputError(msg, hint=hint) from error
