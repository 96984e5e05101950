"""The verdict of an experiment in one sentence, and what to look at first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from assay.records.text import counted_noun

if TYPE_CHECKING:  # its module needs numpy
    from assay.stats.sequential import SequentialDecision

_MINUTE_S = 60.0


class Effort(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run took."""

    n_trials: int
    n_planned: int
    n_reused: int = 0
    """Of n_trials: those that an earlier run had made."""
    cost_usd: float | None = None
    """Of the trials that were not reused; None if no agent says what it costs."""
    seconds: float = 0.0


def verdict_code(pair: dict[str, Any], decision: "SequentialDecision | None") -> str:
    """Return better, worse, same or not-enough-data."""
    if decision is not None:
        return str(decision.outcome) if decision.is_decided else "not-enough-data"
    return str((pair["verdict"] or {}).get("code", "not-enough-data"))


def sentence(
    pair: dict[str, Any], decision: "SequentialDecision | None", effort: Effort, margin: float
) -> str:
    """Say whether a treatment helps, by how much, and what it took to find out.

    Of a sequential run, the interval holds however often somebody looked.
    """
    name, rate = pair["runB"], pair["passRate"]
    # A run that ended before its first look has only the interval of a single look.
    known = decision.interval if decision else None
    interval = msgspec.to_builtins(known) if known else rate["interval"]
    if rate["difference"] is None or interval is None:
        return f"{name}: not measured in both arms, {effort_words(effort)}"
    size = f"{rate['difference']:+.2f} ({interval['low']:+.2f} to {interval['high']:+.2f})"
    begin = {
        "better": f"{name} helps: {size}",
        "worse": f"{name} hurts: {size}",
        "same": f"{name} makes no difference of {margin:g} or more: {size}",
    }.get(verdict_code(pair, decision), f"It is not decided whether {name} helps: {size}")
    n_worse = len(pair["regressed"])
    got_worse = f"; {counted_noun(n_worse, 'prompt')} got worse" if n_worse else ""
    return f"{begin} in {effort_words(effort)}{got_worse}"


def effort_words(effort: Effort) -> str:
    """As in: 74 of 200 planned trials (12 reused), $1.92, 6 minutes."""
    reused = f" ({effort.n_reused} reused)" if effort.n_reused else ""
    parts = [f"{effort.n_trials} of {effort.n_planned} planned trials{reused}"]
    if effort.cost_usd is not None:
        parts.append(money(effort.cost_usd))
    return ", ".join([*parts, span(effort.seconds)])


def money(usd: float) -> str:
    """Dollars with two digits that say something."""
    return f"${usd:.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.4f}"


def span(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 2 * _MINUTE_S:
        return counted_noun(round(seconds), "second")
    if seconds < 120 * _MINUTE_S:
        return f"{round(seconds / _MINUTE_S)} minutes"
    return f"{seconds / 3600:.1f} hours"


def look_first(pairs: Sequence[dict[str, Any]], reasons: Sequence[str]) -> str:
    """Say what a person should look at before anything else."""
    if reasons:
        return "Mend this first: " + reasons[0]
    for words, name in (("got worse", "regressed"), ("got better", "improved")):
        for pair in pairs:
            if ids := pair[name]:
                return f"Look first at prompt {ids[0]}, which {words} with {pair['runB']}."
    return "No prompt changed its result from one arm to the other."
