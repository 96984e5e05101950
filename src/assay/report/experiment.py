"""The verdict of an experiment in one sentence, and what to look at first."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from assay.records.experiment import EditLook, Standing
from assay.records.text import counted_noun

if TYPE_CHECKING:  # its module needs numpy
    from assay.stats.sequential import SequentialDecision

_MINUTE_S = 60.0
_WIDTH = 41
_MOST_DIGITS = 6
_BY_CHANCE = 0.05
"""A prompt that gets worse less often than this by chance is said to have got worse."""
_SAME_COMMAND = "the same command runs what was not measured again"


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
    pair: dict[str, Any],
    decision: "SequentialDecision | None",
    effort: Effort,
    margin: float,
    *,
    unhealthy: str = "",
    turned: str = "",
    standing: Standing | None = None,
) -> str:
    """Say whether a treatment helps, by how much, and what it took to find out.

    Of a sequential run, the interval holds however often somebody looked. unhealthy says why there
    is no verdict, turned what could turn it.
    """
    name, rate = pair["runB"], pair["passRate"]
    if unhealthy:
        return f"{name}: {unhealthy}, {effort_words(effort)}; {_SAME_COMMAND}"
    # A run that ended before its first look has only the interval of a single look.
    known = decision.interval if decision else None
    of_same = (pair["verdict"] or {}).get("interval")
    interval = msgspec.to_builtins(known) if known else of_same or rate["interval"]
    if rate["difference"] is None or interval is None:
        return f"{name}: not measured in both arms, {effort_words(effort)}"
    # Estimate and interval are of one look: trials that were running then come after it.
    seen = decision.difference if decision and known else None
    size = _size(rate["difference"] if seen in (None, UNSET) else seen, interval, margin)
    alone = verdict_code(pair, decision)
    code = standing.code(alone) if standing else alone
    begin = {
        "better": f"{name} helps: {size}",
        "promising": f"{name} is promising, and not confirmed: {size}",
        "confirmed": f"{name} helps, which is confirmed: {size}",
        "worse": f"{name} hurts: {size}",
        "same": f"{name} makes no difference of {margin:g} or more: {size}",
    }.get("" if turned else code, f"It is not decided whether {name} helps: {size}")
    known_n = decision.n_unmeasured if decision else (pair["verdict"] or {}).get("nUnmeasured")
    n_worse = sum(chance <= _BY_CHANCE for chance in pair["regressedChance"])
    more = f"; {counted_noun(n_worse, 'prompt')} got worse beyond chance" if n_worse else ""
    if turned:
        more += f"; {turned} could turn it"
    elif known_n:
        unmeasured = counted_noun(known_n, "unmeasured trial")
        more += f"; {unmeasured} could turn it, and {_SAME_COMMAND}"
    if standing and standing.words:
        more += f"; {standing.words}"
    return f"{begin} in {effort_words(effort)}{more}"


def _size(difference: float, interval: dict[str, Any], margin: float) -> str:
    """Write a difference so that no limit seems to lie on zero or on the margin."""
    digits, limits = 2, (interval["low"], interval["high"])
    while digits < _MOST_DIGITS and any(
        limit != line and round(limit, digits) == round(line, digits)
        for limit in limits
        for line in (-margin, 0.0, margin)
    ):
        digits += 1
    low, high = (f"{limit:+.{digits}f}" for limit in limits)
    return f"{difference:+.{digits}f} ({low} to {high})"


def edit_lines(arm: str, looks: Sequence[EditLook]) -> Iterator[str]:
    """Draw every verdict about an arm: the interval of the difference on a line from -1 to +1."""
    yield f"  {arm}: {counted_noun(len(looks), 'verdict')} against this control"
    for look in looks:
        size = "" if look.difference is None else f"{look.difference:+.2f}"
        named = "confirmation" if look.is_confirmation else look.code
        yield f"  {look.ended[:10]} {_drawn(look)} {size:>5} {named}"


def _drawn(look: EditLook) -> str:
    line = [" "] * _WIDTH
    line[_WIDTH // 2] = "|"
    if look.difference is not None and look.low is not None and look.high is not None:
        low, at, high = (
            round((max(-1.0, min(1.0, value)) + 1.0) / 2.0 * (_WIDTH - 1))
            for value in (look.low, look.difference, look.high)
        )
        line[low : high + 1] = "-" * (high + 1 - low)
        line[at] = "o"
    return "".join(line)


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
        return "Fix this first: " + reasons[0]
    for words, name in (("got worse", "regressed"), ("got better", "improved")):
        for pair in pairs:
            if ids := pair[name]:
                return f"Look first at prompt {ids[0]}, which {words} with {pair['runB']}."
    return "No prompt changed its result from one arm to the other."
