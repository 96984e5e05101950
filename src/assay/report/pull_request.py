"""Runs in short, as Markdown for a pull request: at most 40 lines, whatever the runs hold.

What agents, graders and prompts say is shown as code, in which GitHub finds no mention, no link and
no reference to an issue. Names stand in the text, with all of these taken apart.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from assay.records.text import counted_noun, visible_line
from assay.report.comparison import health_lines, measured, proof_lines
from assay.report.experiment import effect_lines
from assay.report.markdown import table_line
from assay.report.sentence import BY_CHANCE, gate_sentence, sentences
from assay.report.text import percents, points, seconds_text

MOST_LINES = 40
MOST_REGRESSIONS = 5
_MOST_PAIRS = 3
_MOST_RUNS = 4
_MOST_NOTES = 2
_MOST_NAME = 80
_MOST_REASON = 140
_MOST_NOTE = 300
_MOST_ASIDE = 5
_AROUND_CATEGORIES = 7
"""Lines that the folded table needs besides its rows."""
_TIE = 1e-9
_SIGNS = {"better": "✅", "confirmed": "✅", "promising": "🔎", "worse": "❌", "same": "🟰"}
_GATE_SIGNS = {"pass": "✅", "fail": "❌", "cannot-judge": "⚠️"}
_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|~#$!"})
_LINKED = re.compile(r"@|#|:(?=//)|www(?=\.)|GH(?=-)", re.IGNORECASE)
_HASH = re.compile(r"\b[0-9a-f]{7,40}\b", re.IGNORECASE)
"""In these GitHub would see a person, an issue, an address or a commit."""
_TICKS = re.compile("`+")


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that passed less often: a trial of either run, and what the graders said."""

    id: str
    rate_a: float
    rate_b: float
    trial_a: int
    trial_b: int
    why_a: str
    why_b: str


type Regressions = Mapping[tuple[str, str], Sequence[Regression]]
"""By the names of both runs: the worst prompts, worst first."""


def pull_request_markdown(
    overview: dict[str, Any],
    regressions: Regressions,
    heading: str | None = None,
    link: str | None = None,
) -> str:
    """Return the verdict, the difference, what got worst and why, and the cost.

    link is the address of the HTML report, into which the prompts lead.
    """
    groups = overview["groups"]
    lines = [f"### {plain(heading or 'Evaluation')}", ""]
    for number, group in enumerate(groups):
        room = (MOST_LINES - len(lines)) // (len(groups) - number)
        lines += _Group(group["sections"], regressions, link).lines(room)
    return "\n".join(lines).rstrip("\n") + "\n"


class _Group:
    """Runs that can be compared with each other: captures, or repeated trials."""

    def __init__(
        self, sections: dict[str, Any], regressions: Regressions, link: str | None
    ) -> None:
        self._sections, self._regressions, self._link = sections, regressions, link
        self._labels: list[str] = sections["meta"]["runs"]
        # The first run is the baseline. What the others are to each other stands in the report.
        first = self._labels[0]
        self._pairs = [pair for pair in sections["pairs"] if pair["runA"] == first]

    def lines(self, room: int) -> list[str]:
        """Return at most this many lines: the most important parts come first."""
        proof = [line for words in proof_lines(self._sections) for line in (plain(words), "")]
        lines = [*proof, *self._together(), *self._verdicts(), *self._effects()]
        lines += [*self._rates(), *self._worst(), *self._amounts(), ""]
        if len(lines) > room:
            lines = [*lines[: room - 2], "- More is in the report.", ""]
        return [*lines, *self._categories(room - len(lines))]

    def _together(self) -> Iterator[str]:
        """A leaderboard of the arms of an experiment, or a table of its skills."""
        if "together" in self._sections:
            for line in self._sections["together"]["lines"]:
                yield from [f"- {plain(line.strip())}"] if line[:1] == " " else [plain(line), ""]
            yield ""

    def _verdicts(self) -> Iterator[str]:
        pairs = self._pairs[:_MOST_PAIRS]
        if "effects" in self._sections:  # what treatments do says more than what arms do
            pairs = [pair for pair in pairs if not self._verdict(pair)["healthy"]]
        for pair in pairs:
            if gate := self._gate(pair):
                said, numbers = gate_sentence(gate, pair, self._sections)
                sign = _GATE_SIGNS.get(gate["outcome"], "❔")
                yield f"{sign} **{plain(said)}** {plain(numbers)}"
                yield ""
                yield from _gate_notes(gate)
                continue
            verdict = self._verdict(pair)
            sign = _SIGNS.get(verdict.get("code", ""), "❔") if verdict["healthy"] else "⚠️"
            first, *rest = sentences(self._sections, verdict)
            yield f"{sign} **{plain(first)}** {plain(' '.join(rest))}".rstrip()
            yield ""
        for label, health in self._sections["health"].items() if not self._pairs else ():
            if not health["healthy"]:
                yield f"⚠️ **{plain(label)}: UNHEALTHY: {plain('; '.join(health['problems']))}**"
                yield ""

    def _effects(self) -> Iterator[str]:
        """What each treatment of an ablation does, with a small picture."""
        if effects := self._sections.get("effects"):
            yield f"**{plain(effects['words'])}**"
            yield from ("", "```text")
            yield from (
                visible_line(line).replace("`", "'") for line in effect_lines(effects["found"])
            )
            yield from ("```", "")
            for text in effects["more"]:
                yield from (plain(text), "")

    def _gate(self, pair: dict[str, Any]) -> dict[str, Any] | None:
        """What the sequential gate says: there is no other verdict then."""
        both = pair["runA"], pair["runB"]
        gates: list[dict[str, Any]] = self._sections.get("gate", [])
        return next((one for one in gates if (one["runA"], one["runB"]) == both), None)

    def _verdict(self, pair: dict[str, Any]) -> dict[str, Any]:
        both = pair["runA"], pair["runB"]
        verdicts: list[dict[str, Any]] = self._sections["verdict"]
        return next(one for one in verdicts if (one["runA"], one["runB"]) == both)

    def _rates(self) -> Iterator[str]:
        yield "| run | pass rate | 95 % interval |"
        yield "|---|---|---|"
        for label in self._labels[:_MOST_RUNS]:
            quality = (self._sections.get("quality") or {}).get(label) or {}
            ends = quality.get("confidenceIntervals", {}).get("passRate")
            yield table_line(plain(label), *_rate_and_ends(quality.get("passRate"), ends))
        for pair in self._pairs[:_MOST_PAIRS]:
            name = plain(f"{pair['runB']} - {pair['runA']}")
            yield from self._shared_rates(pair)
            margin = self._sections["meta"]["margin"]
            yield table_line(name, *_difference_cells(pair, self._gate(pair), margin))
        left_out = len(self._labels) - _MOST_RUNS
        yield f"\nand {counted_noun(left_out, 'more run')} in the report" if left_out > 0 else ""

    def _shared_rates(self, pair: dict[str, Any]) -> Iterator[str]:
        """Where a run has more prompts than are compared, its rate over those that are."""
        found = pair["passRate"]
        for label, mean in ((pair["runA"], found["meanA"]), (pair["runB"], found["meanB"])):
            rate = ((self._sections.get("quality") or {}).get(label) or {}).get("passRate")
            if mean is not None and rate is not None and abs(mean - rate) > _TIE:
                shared = counted_noun(found["nPrompts"], "prompt")
                yield table_line(
                    f"{plain(label)}, the {shared} in both", *_rate_and_ends(mean, None)
                )

    def _worst(self) -> Iterator[str]:
        room = MOST_REGRESSIONS
        for pair in self._pairs:
            found = self._regressions.get((pair["runA"], pair["runB"]), ())[:room]
            if not found:
                continue
            room -= len(found)
            n_all, name = len(pair["regressed"]), plain(pair["runB"])
            which = "" if n_all == len(found) else f", the worst {len(found)}"
            beyond = self._beyond_chance(pair)
            yield f"**{name} did worse on {counted_noun(n_all, 'prompt')}{beyond}{which}:**"
            yield ""
            yield from (self._regression(pair, one) for one in found)
            yield ""

    def _beyond_chance(self, pair: dict[str, Any]) -> str:
        """Of prompts that ran several times: on how many chance does not explain it."""
        n = sum(chance <= BY_CHANCE for chance in pair["regressedChance"])
        if "inputFormat" not in self._sections["meta"] or n == len(pair["regressed"]):
            return ""
        return f" (beyond chance on {n or 'none'})"

    def _regression(self, pair: dict[str, Any], one: Regression) -> str:
        name = code(one.id, _MOST_NAME)
        if self._link:
            trials = (pair["runA"], one.trial_a, pair["runB"], one.trial_b)
            parts = [quote(str(part), safe="") for part in ("beside", one.id, *trials)]
            name = f"[{name}]({self._link}#/{'/'.join(parts)})"
        reasons = [
            f"{plain(label)}: {code(why, _MOST_REASON)}"
            for label, why in ((pair["runB"], one.why_b), (pair["runA"], one.why_a))
            if why.strip()
        ]
        rates = " → ".join(f"{rate} %" for rate in percents(one.rate_a, one.rate_b))
        return f"- {name} {rates}; {'; '.join(reasons)}".rstrip("; ")

    def _amounts(self) -> Iterator[str]:
        """One line for each unit: score, cost, time; then what to know of the measurement."""
        yield from self._score()
        yield f"- Cost: {self._of_runs(_cost)}{self._change('costUsd', _dollars)}"
        yield f"- Median time: {self._of_runs(_median)}{self._change('latencyMs', _seconds)}"
        if "measures" in self._sections:
            names, rows = measured(self._sections)
            for run, *values in rows[:_MOST_RUNS]:
                shown = ", ".join(f"{n} {v}" for n, v in zip(names, values, strict=True))
                yield f"- {plain(run)}: a trial on average: {plain(shown)}"
        yield from (f"- {plain(line)}" for line in health_lines(self._sections)[:_MOST_RUNS])
        notes = self._sections["notes"]
        yield from (f"- note: {plain(note)}" for note in notes[:_MOST_NOTES])
        if len(notes) > _MOST_NOTES:
            yield f"- {counted_noun(len(notes) - _MOST_NOTES, 'more note')} in the report"

    def _score(self) -> Iterator[str]:
        """Where scores are only passes counted once more, they are left out."""
        quality = {
            label: (self._sections.get("quality") or {}).get(label) or {} for label in self._labels
        }
        if all(one.get("avgScore") == one.get("passRate") for one in quality.values()):
            return
        shown = ", ".join(
            f"{plain(label)} {_score_text(quality[label])}" for label in self._labels[:_MOST_RUNS]
        )
        yield f"- Score: {shown}{self._score_change()}"

    def _score_change(self) -> str:
        if len(self._pairs) != 1 or self._pairs[0]["score"]["difference"] is None:
            return ""
        score = self._pairs[0]["score"]
        return f"; difference {score['difference']:+.2f}{_ends_text(score['interval'], '+.2f')}"

    def _of_runs(self, show: Any) -> str:
        performance = self._sections["performance"]
        health = self._sections["health"]
        return ", ".join(
            f"{plain(label)} {show(performance[label], health[label]['run'])}"
            for label in self._labels[:_MOST_RUNS]
        )

    def _change(self, name: str, show: Any) -> str:
        """What a prompt costs or takes more or less; of several pairs the report tells it."""
        amount = self._pairs[0]["amounts"].get(name) if len(self._pairs) == 1 else None
        if not amount or amount["difference"] is None:
            return ""
        interval = amount["differenceInterval"]
        ends = f" ({show(interval['low'])} to {show(interval['high'])})" if interval else ""
        return f"; a prompt {show(amount['difference'])}{ends}"

    def _categories(self, room: int) -> Iterator[str]:
        by_run = self._sections["categories"]
        names = sorted({name for by_name in by_run.values() for name in by_name})
        if len(names) < 2 or room <= _AROUND_CATEGORIES:
            return
        labels = self._labels[:_MOST_RUNS]
        shown = names[: room - _AROUND_CATEGORIES]
        left_out = f", {len(shown)} of {len(names)}" if len(shown) < len(names) else ""
        yield f"<details><summary>Pass rate by category{left_out}</summary>"
        yield ""
        yield table_line("category", *map(plain, labels))
        yield table_line("---", *("---" for _ in labels))
        for name in shown:
            cells = (_category_text(by_run[label].get(name)) for label in labels)
            yield table_line(plain(name[:_MOST_NAME]), *cells)
        yield from ("", "</details>", "")


def _gate_notes(gate: dict[str, Any]) -> Iterator[str]:
    """The second gate, what was set aside, and who accepted it."""
    if anchor := gate.get("anchor"):
        yield f"- Against the anchor {plain(anchor['name'])}: {plain(anchor['outcome'])}"
    for name, what in (("setAside", "Changed and not judged"), ("leftOut", "Not in this run")):
        if found := gate.get(name):
            ids = ", ".join(code(one, _MOST_NAME) for one in found[:_MOST_ASIDE])
            more = f" and {len(found) - _MOST_ASIDE} more" if len(found) > _MOST_ASIDE else ""
            yield f"- {what}: {counted_noun(len(found), 'prompt')}: {ids}{more}"
    if graders := gate.get("graders"):
        yield f"- Changed grader: {plain(graders[:_MOST_NOTE])}"
    if accepted := gate.get("accepted"):
        yield f"- Changes {plain(accepted[:_MOST_REASON])}"
    if any(gate.get(name) for name in ("anchor", "setAside", "leftOut", "graders", "accepted")):
        yield ""


def _difference_cells(
    pair: dict[str, Any], gate: dict[str, Any] | None, margin: float
) -> tuple[str, str]:
    """The difference and its interval: those that decided, of a gate or an experiment that ended
    early the ones that hold at every look.

    One that holds for a single look could seem to contradict what was decided, and so could a limit
    that is rounded to zero or to the margin.
    """
    found, verdict = pair["passRate"], pair["verdict"] or {}
    interval = gate["sequential"]["interval"] if gate else verdict.get("interval")
    interval = interval or (None if gate else found["interval"])
    difference = found["difference"] if gate else verdict.get("difference", found["difference"])
    if difference is None or interval is None:
        return "not measured", ""
    low, high = points(interval["low"], (interval["high"],), margin, fewest=1)
    held = " at every look" if gate or "difference" in verdict else ""
    return f"{100 * difference:+.1f} points", f"{low} to {high}{held}"


def _rate_and_ends(rate: float | None, ends: Sequence[float] | None) -> tuple[str, str]:
    if rate is None:
        return "not measured", ""
    shown, *limits = percents(rate, *(ends or ()), fewest=1)
    return f"{shown} %", " to ".join(limits)


def _category_text(category: dict[str, Any] | None) -> str:
    if category is None or category["passRate"] is None:
        return "not measured"
    rate, ends = _rate_and_ends(category["passRate"], category["interval"])
    return f"{rate} ({ends})" if ends else rate


def _score_text(quality: dict[str, Any]) -> str:
    value = quality.get("avgScore")
    if value is None:
        return "not measured"
    ends = quality["confidenceIntervals"].get("avgScore")
    return f"{value:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else "")


def _ends_text(interval: dict[str, Any] | None, form: str) -> str:
    return f" ({interval['low']:{form}} to {interval['high']:{form}})" if interval else ""


def _cost(performance: dict[str, Any], n_trials: int) -> str:
    cost = performance.get("costUsd")
    if not cost:
        return "not known"
    known = "" if cost["n"] == n_trials else f", known for {cost['n']} of {n_trials} trials"
    return f"${cost['total']:.4f}{known}"


def _median(performance: dict[str, Any], n_trials: int) -> str:
    latency = performance["latency"]
    return seconds_text(latency["p50"] / 1000) if latency else "not known"


def _dollars(usd: float) -> str:
    shown = f"{abs(usd):.5f}"
    return f"{'-' if usd < 0 else '+'}${shown}" if float(shown) else "$0"


def _seconds(ms: float) -> str:
    return f"{'-' if ms < 0 else '+'}{seconds_text(abs(ms) / 1000)}" if round(ms) else "0 s"


def plain(text: str) -> str:
    """Show a name as it is: no Markdown, no HTML, no mention, and nothing that becomes a link."""
    safe = visible_line(text).translate(_SPECIAL).replace("&", "&amp;")
    safe = _HASH.sub(r"`\g<0>`", safe)  # in code GitHub sees no commit, and it can be copied
    return _LINKED.sub(lambda found: f"{found[0]}\u200b", safe)


def code(text: str, most: int) -> str:
    """Show a text of an agent, a grader or a prompt on one line, cut to this many characters."""
    line = visible_line(" ".join(text.split()))
    line = line if len(line) <= most else f"{line[: most - 1]}…"
    # No run of backticks in the text is as long as those around it, so that it cannot end the code.
    ticks = "`" * (max(map(len, _TICKS.findall(line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}" if line else "``` ```"
