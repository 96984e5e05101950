"""What an experiment took, small pictures of what it found, and what to look at first."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from assay.records.experiment import EditLook
from assay.records.text import counted_noun
from assay.report.sentence import BY_CHANCE
from assay.report.text import points

_MINUTE_S = 60.0
_WIDTH = 31
_WIDEST_NAME = 24


class Effort(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run took."""

    n_trials: int
    n_planned: int
    n_reused: int = 0
    """Of n_trials: those that an earlier run had made."""
    cost_usd: float | None = None
    """Of the trials that were not reused; None if no agent says what it costs."""
    seconds: float = 0.0


def edit_lines(arm: str, looks: Sequence[EditLook]) -> Iterator[str]:
    """Draw every verdict about an arm: the interval of the difference on a line from -1 to +1."""
    yield f"  {arm}: {counted_noun(len(looks), 'verdict')} against this control"
    for look in looks:
        size = "" if look.difference is None else f"{100 * look.difference:+.0f}"
        named = "confirmation" if look.is_confirmation else look.code
        drawn = _drawn(look.low, look.difference, look.high)
        yield f"  {look.ended[:10]} {drawn} {size:>4} {named}"


def effect_lines(effects: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Draw the effect of each treatment of an ablation, with its interval, from -1 to +1."""
    names = [len(effect["name"]) for effect in effects]
    width = max((n for n in names if n <= _WIDEST_NAME), default=0)
    for effect in effects:
        ends = effect["interval"] or {"low": None, "high": None}
        low, at, high = ends["low"], effect["difference"], ends["high"]
        size = "not measured"
        if at is not None and low is not None and high is not None:
            shown = points(at, (low, high), 0.0)
            size = f"{shown[0]} ({shown[1]} to {shown[2]})"
        name = effect["name"]
        if len(name) > width:  # a long one has a line of its own
            yield f"  {name}"
            name = ""
        yield f"  {name:{width}} {_drawn(low, at, high)} {size}"


def _drawn(low: float | None, at: float | None, high: float | None) -> str:
    line = [" "] * _WIDTH
    line[_WIDTH // 2] = "|"
    if at is not None and low is not None and high is not None:
        begin, middle, end = (
            round((max(-1.0, min(1.0, value)) + 1.0) / 2.0 * (_WIDTH - 1))
            for value in (low, at, high)
        )
        line[begin : end + 1] = "-" * (end + 1 - begin)
        line[middle] = "o"
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
    """Say what a person should look at before anything else: changes beyond chance come first."""
    if reasons:
        return "First fix what the verdict names; the same command then runs what is missing."
    kinds = (("got worse", "regressed"), ("got better", "improved"))
    for most in (BY_CHANCE, 1.0):
        for words, name in kinds:
            for pair in pairs:
                chances = zip(pair[name], pair[f"{name}Chance"], strict=True)
                found = next((id_ for id_, chance in chances if chance <= most), None)
                if found is not None:
                    return f"Look first at prompt {found}, which {words} with {pair['runB']}."
    return "No prompt changed its result from one arm to the other."
