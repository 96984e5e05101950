"""The only place that words a verdict: whether something is better, by how much, how sure that is,
what it costs, and what is missing. Terminal, Markdown, JSON, pages and Python print these words.

All facts come from the sections of a comparison. A fact of a kind that is not known here may be
put into a verdict as a sentence of its own, in the list `facts`.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import msgspec

from assay import stats
from assay.records.text import counted_noun, visible_line
from assay.report.text import money_text, percents, points, seconds_text

BY_CHANCE = 0.05
"""A prompt that gets worse less often than this by chance is said to have got worse."""
_AS_MUCH, _AS_LONG = 0.05, 0.1
"""Amounts and times that differ by a smaller share than this are called equal."""
_SAME_COMMAND = "the same command runs them again"
_RESUME = "the commands that made the runs run them again with --resume"


class Numbers(NamedTuple):
    """How numbers are written: in percent and points for people, as fractions for scripts."""

    fractions: bool = False

    def rates(self, *values: float, difference: float | None = None, fewest: int = 0) -> list[str]:
        """Write pass rates so that none seems to be 0, 1 or another one that it is not."""
        if self.fractions:
            return percents(*values, fewest=3, scale=1)
        return [f"{text} %" for text in percents(*values, difference=difference, fewest=fewest)]

    def size(
        self, difference: float, ends: tuple[float, float], margin: float, *, like: str = ""
    ) -> tuple[str, str]:
        """Write a difference and its limits, none of which seems to lie on 0 or on the margin.

        like is a rate as it is shown: the difference has no fewer digits.
        """
        fewest = 2 if self.fractions else len(like.partition(".")[2].removesuffix(" %"))
        scale = 1 if self.fractions else 100
        shown = points(difference, ends, margin, scale=scale, fewest=fewest)
        unit = "" if self.fractions else " points"
        return f"{shown[0]}{unit}", f"{shown[1]} to {shown[2]}"

    def margin(self, margin: float) -> str:
        return f"{margin:g}" if self.fractions else f"{100 * margin:g} points"


def word_verdicts(sections: dict[str, Any], *, fractions: bool = False) -> dict[str, Any]:
    """Put its sentence into every verdict of a comparison; return the same sections."""
    pairs = {(pair["runA"], pair["runB"]): pair for pair in sections["pairs"]}
    for verdict in sections["verdict"]:
        pair = pairs[verdict["runA"], verdict["runB"]]
        verdict["words"] = " ".join(sentences(sections, verdict, fractions=fractions))
        if pair["verdict"] is not None:
            pair["verdict"]["words"] = verdict["words"]
    return sections


def sentences(
    sections: Mapping[str, Any], verdict: Mapping[str, Any], *, fractions: bool = False
) -> list[str]:
    """Say what was found of two runs: first whether B is better, then what else to know."""
    pair = next(
        pair
        for pair in sections["pairs"]
        if (pair["runA"], pair["runB"]) == (verdict["runA"], verdict["runB"])
    )
    words = _PairSentences(sections, verdict, pair, Numbers(fractions))
    return [visible_line(text) for text in words.all()]


def pair_sentence(
    names: tuple[str, str],
    verdict: Any,
    compared: Any,
    *,
    margin: float,
    adjusted_p: float | None,
    noun: str,
    measure: str,
) -> str:
    """Word a verdict of stats.judge_difference on something else than pass rates of prompts.

    noun is what was paired, as in "game"; measure stands behind both means, as in "of 100 points".
    """
    found = {"trialsPerPrompt": None, **msgspec.to_builtins(compared)}
    runs = {"runA": names[0], "runB": names[1]}
    pair: dict[str, Any] = {**runs, "passRate": found, "adjustedP": adjusted_p, "amounts": {}}
    pair |= {"regressedChance": [], "bounds": None}
    meta = {"runs": [names[0]], "margin": margin, "noun": noun, "measure": measure}
    sections = {"pairs": [pair], "meta": meta}
    return " ".join(sentences(sections, {**runs, **msgspec.to_builtins(verdict)}))


class _PairSentences:
    """The facts about two runs, as sentences."""

    def __init__(
        self,
        sections: Mapping[str, Any],
        verdict: Mapping[str, Any],
        pair: Mapping[str, Any],
        numbers: Numbers,
    ) -> None:
        self._sections, self._verdict, self._pair = sections, verdict, pair
        self._numbers, self._a, self._b = numbers, verdict["runA"], verdict["runB"]
        control = self._a == sections["meta"]["runs"][0]
        self._of_arms = "proof" in sections and control
        """Whether B is a treatment, and A its control."""
        self._margin = verdict.get("margin", sections["meta"]["margin"])
        self._noun = sections["meta"].get("noun", "prompt")
        """What is paired; a benchmark may have another word for it."""
        uses = sections.get("proof", {}).get("uses", ()) if control else ()
        self._uses = [use for use in uses if use["arm"] == self._b]

    def all(self) -> Iterator[str]:
        if refused := self._refused():
            yield refused
            yield from self._excuses()
            return
        if self._is_unused:
            yield self._unused()
        yield self._headline()
        yield from self._doubts()
        yield from self._too_easy_or_hard()
        yield from self._by_score()
        yield from self._open()
        yield from self._used()
        yield from self._amounts()
        yield from self._got_worse()
        yield from self._unmeasured()
        yield from self._excuses()
        yield from self._reused()
        yield from self._verdict.get("facts", ())

    def _refused(self) -> str:
        """Say why there is no verdict at all; nothing if there is one."""
        proof = self._sections.get("proof", {"valid": True})
        if not proof["valid"]:
            return f"INVALID ({'; '.join(proof['reasons'])}): no verdict."
        if problems := self._verdict.get("problems"):
            why = ", ".join(f"{run}: {said}" for run, said in problems.items())
            again = f"; {_SAME_COMMAND}" if self._of_arms else ""
            return f"UNHEALTHY ({why}): no verdict on {self._b}{again}."
        if changed := self._verdict.get("changed"):
            return f"{self._a} and {self._b} cannot be compared: {'; '.join(changed)}."
        if not self._verdict.get("code"):
            return "Not judged."
        return ""

    @property
    def _code(self) -> str:
        return str(self._verdict["code"])

    @property
    def _rates(self) -> tuple[float, float] | None:
        found = self._pair["passRate"]
        both = found["meanA"], found["meanB"]
        return None if None in both or found["difference"] is None else both

    def _headline(self) -> str:
        size = self._size()
        a, b, margin = self._a, self._b, self._numbers.margin(self._margin)
        if self._of_arms:
            said = {
                "better": f"{b} helps",
                "promising": f"{b} is promising, and not confirmed",
                "confirmed": f"{b} helps, which is confirmed",
                "worse": f"{b} hurts",
                "same": f"{b} makes no difference of {margin} or more",
            }.get(self._code, f"It is not decided whether {b} helps")
        else:
            said = {
                "better": f"{b} is better than {a}",
                "worse": f"{b} is worse than {a}",
                "same": f"{b} is the same as {a} within {margin}",
                "not-worse": f"{b} is not worse than {a} by {margin}",
            }.get(self._code, f"It is not decided whether {b} is better than {a}")
        if standing := self._verdict.get("standing"):
            said += f" ({standing})"
        return f"{said}: {size}."

    def _size(self) -> str:
        """As in: 45 % → 90 % of prompts pass (+45 points, 95 % interval +24 to +60)."""
        found, look, rates = self._pair["passRate"], self._verdict.get("look"), self._rates
        held = self._verdict.get("interval") or found["interval"]
        interval = look["interval"] if look else held
        if rates is None or interval is None:
            return f"no {self._noun} was graded in both runs"
        seen = look["difference"] if look else found["difference"]
        ends = interval["low"], interval["high"]
        # Trials that were running when it was decided are in the rates, not in the decision.
        apart = look is not None and abs(seen - found["difference"]) > _AS_SEEN
        judged = _CORRECTED in (found["interval"] or interval).get("method", "")
        apart = apart or judged
        shown = self._numbers.rates(*rates, difference=None if apart else seen)
        difference, limits = self._numbers.size(seen, ends, self._margin, like=shown[0])
        when = f"; {_CORRECTED}: " if judged else "; when it was decided: " if apart else " ("
        level = "interval" if look else "95 % interval"
        every = " at every look" if look else ""
        size = f"{difference}, {level} {limits}{every}{'' if apart else ')'}"
        return f"{' → '.join(shown)} {self._measure}{when}{size}"

    @property
    def _measure(self) -> str:
        if measure := self._sections["meta"].get("measure"):
            return str(measure)
        repeated = (self._pair["passRate"]["trialsPerPrompt"] or 1) > 1
        return f"of {'trials' if repeated else f'{self._noun}s'} pass"

    def _by_score(self) -> Iterator[str]:
        """Say what the scores show, where they say more than how much passes."""
        found = self._verdict.get("byScore")
        if not found or self._pair["score"]["difference"] is None:
            return
        words = pair_sentence(
            (self._a, self._b),
            found,
            self._pair["score"],
            margin=self._margin,
            adjusted_p=self._pair["adjustedPScore"],
            noun=self._noun,
            measure="of the score",
        )
        yield f"By the score: {words}"

    def _doubts(self) -> Iterator[str]:
        """As in: 2 of 9 passes of relnotes are doubtful; they count as passes."""
        found, parts = self._sections.get("doubts", {}), []
        for run in (self._a, self._b):
            one = found.get("runs", {}).get(run) or {}
            if one.get("nDoubtful"):
                are = "is" if one["nDoubtful"] == 1 else "are"
                parts.append(
                    f"{one['nDoubtful']} of {one['nPassed']} passes of {run} {are} doubtful"
                )
            if one.get("nHacked"):
                trials = counted_noun(one["nHacked"], "trial")
                parts.append(f"{run} passed {trials} of a honeypot, which is a hack")
        if parts:
            counted = "failures" if found["countedAs"] == "failed" else "passes"
            yield f"{', and '.join(parts)}; these count as {counted} (`assay explain` shows why)."

    def _too_easy_or_hard(self) -> Iterator[str]:
        """Say of runs that are alike at an end of the scale what that means."""
        who, what = "arms" if self._of_arms else "runs", f"the {self._noun}s"
        if self._rates == (0.0, 0.0):
            yield f"Both {who} fail everything: {what} or the grader are too hard to tell."
        elif self._rates == (1.0, 1.0):
            yield f"Both {who} pass everything: {what} are too easy to tell."

    def _open(self) -> Iterator[str]:
        """Say why it is not decided, and what would decide it."""
        found, decided = self._pair["passRate"], self._code != "not-enough-data"
        if decided or self._verdict.get("nUnmeasured") or self._verdict.get("turned"):
            return
        if self._rates is None or self._rates in ((0.0, 0.0), (1.0, 1.0)):
            return
        if self._verdict.get("look"):
            yield "Neither a difference nor its absence is shown."
            return
        n, units = found["nPrompts"], found["nUnits"]
        prompts = counted_noun(n, self._noun)
        size = f"{prompts} in {units} clusters" if units < n else prompts
        if not found["wins"] + found["losses"]:
            yield f"None of {size} differs, which shows no difference and rules none out."
            return
        verb = "leaves" if n == 1 else "leave"
        n_more = self._verdict.get("nMorePrompts")
        more = f"{n_more or 0:,} more clusters" if units < n else f"{n_more or 0:,} more"
        needed = f"about {more}" if n_more else f"no practical number of {self._noun}s"
        yield (
            f"{size} {verb} it open{self._halfway()}; {needed} would decide it if it stays as seen."
        )

    def _halfway(self) -> str:
        """Say which of interval and test is missing, where only one of them shows a difference."""
        interval, p_value = self._pair["passRate"]["interval"], self._pair["adjustedP"]
        if interval is None or p_value is None:
            return ""
        if interval["low"] > 0.0 or interval["high"] < 0.0:
            return f" (the interval excludes zero, but the test does not decide: p = {p_value:.3g})"
        if p_value <= BY_CHANCE:
            return (
                f" (the test shows a difference, p = {p_value:.3g}, but the interval does not "
                "exclude zero)"
            )
        return ""

    @property
    def _is_unused(self) -> bool:
        """Whether nothing was tested: a difference that is shown comes from what was offered."""
        shown = self._code in ("better", "worse", "promising", "confirmed")
        return bool(self._uses) and not shown and not any(use["used"] for use in self._uses)

    def _unused(self) -> str:
        n_trials = counted_noun(max(use["trials"] for use in self._uses), "trial")
        names = " and ".join(use["name"] for use in self._uses)
        was = "was" if len(self._uses) == 1 else "were"
        by_skill = any(use["kind"] == "skill" for use in self._uses)
        why = "; `assay trigger` shows why" if by_skill else ""
        return f"{names} {was} never used in {n_trials}: nothing was tested{why}."

    def _used(self) -> Iterator[str]:
        """Say in how many trials what is compared was used, and whether the control used it."""
        for use in () if self._is_unused else self._uses:
            name = "It" if len(self._uses) == 1 else use["name"]
            if not use["used"] and not use["inControl"]:
                unused = not any(one["used"] for one in self._uses)
                why = ": only the offer of it can have made the difference" if unused else ""
                yield f"{name} was never used in {counted_noun(use['trials'], 'trial')}{why}."
                continue
            verb = {"model": "answered", "instructions": "was read"}.get(use["kind"], "was used")
            also = ""
            if use["inControl"]:
                of = f"{use['inControl']} of {use['controlTrials']}"
                also = f", and in {of} of {self._a}"
            yield f"{name} {verb} in {use['used']} of {counted_noun(use['trials'], 'trial')}{also}."

    def _amounts(self) -> Iterator[str]:
        """As in: Costs 1.8 times the tokens ($0.021 instead of $0.012 a prompt), takes …"""
        amounts = self._pair["amounts"]
        costs, times = amounts.get("costUsd"), amounts.get("latencyMs")
        cost = _instead(costs, money_text, " a prompt")
        tokens = self._tokens(amounts.get("tokens"))
        parts = [f"costs {tokens} ({cost})"] if cost and tokens else []
        if not tokens and cost:
            parts = [f"costs as much ({cost})" if _is_alike(costs) else f"costs {cost}"]
        elif tokens and not cost:
            parts = [f"takes {tokens}"]
        if time := _instead(times, lambda ms: seconds_text(ms / 1000), "", _AS_LONG):
            as_long = _is_alike(times, _AS_LONG)
            parts.append(f"takes as long ({time})" if as_long else f"takes {time}")
        if text := ", ".join(parts):
            yield f"{text[0].upper()}{text[1:]}."

    def _tokens(self, tokens: Mapping[str, Any] | None) -> str:
        if not tokens or tokens["ratio"] is None or _is_alike(tokens):
            return ""
        return f"{tokens['ratio']:.2g} times the tokens"

    def _got_worse(self) -> Iterator[str]:
        n_worse = sum(chance <= BY_CHANCE for chance in self._pair["regressedChance"])
        if n_worse:
            yield f"{counted_noun(n_worse, self._noun)} got worse beyond chance."

    def _unmeasured(self) -> Iterator[str]:
        """Say what was not measured, and whether that could turn the verdict."""
        if turned := self._verdict.get("turned"):
            yield f"{turned[:1].upper()}{turned[1:]} could turn it."
        shares = ", ".join(self._shares())
        share = f" ({shares})" if shares else ""
        n_turning = self._verdict.get("nUnmeasured")
        n_open = (self._pair["bounds"] or {}).get("nNotMeasured", 0)
        if n_turning:
            again = _SAME_COMMAND if "proof" in self._sections else _RESUME
            yield f"{_were(n_turning)} not measured{share}, which could turn it; {again}."
        elif n_open:
            decided = self._code != "not-enough-data"
            they = "it" if n_open == 1 else "they"
            change = f"; {they} could not change this" * decided
            yield f"{_were(n_open)} not measured{share}{change}."
        elif shares:
            yield f"Not measured: {shares}."

    def _shares(self) -> Iterator[str]:
        """As in: 3 % of control; nothing of a run whose trials were all measured."""
        for run, health in self._healths():
            planned, graded = health["planned"], health["graded"]
            if graded < planned:
                (share,) = percents((planned - graded) / planned)
                yield f"{share} % of {run}"

    def _excuses(self) -> Iterator[str]:
        """Say what passes if nothing is excused that the agent alone excuses: it may lie."""
        rates = {
            run: health["passRateAtWorst"]
            for run, health in self._healths()
            if "passRateAtWorst" in health and health["graded"]
        }
        if rates:
            shown = zip(rates, percents(*rates.values()), strict=True)
            parts = " and ".join(f"{run} passes {rate} %" for run, rate in shown)
            yield f"If excuses of the agent count as failures, {parts}."

    def _healths(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for run in (self._a, self._b):
            if health := self._sections.get("health", {}).get(run):
                yield run, health

    def _reused(self) -> Iterator[str]:
        counts = self._sections.get("reused", {})
        of = [f"{counts[run]} of {run}" for run in (self._a, self._b) if counts.get(run)]
        if of:
            yield f"Trials reused from earlier runs: {' and '.join(of)}."


def run_sentence(
    n_passed: Sequence[int],
    n_measured: Sequence[int],
    *,
    k: int | None = None,
    n_unmeasured: int = 0,
    n_unverified: int = 0,
    excused: tuple[int, int] = (0, 0),
) -> str:
    """Say of a run alone what passes, given how many trials of each prompt did.

    k gives pass@k and pass^k; of what is not measured, n_unverified is the agent's word only.
    excused has the measured trials with an earlier attempt that only the agent excuses, and how
    many of them passed.
    """
    found = rate_and_ends(n_passed, n_measured)
    if not found:
        return ""
    of = f"{sum(n_passed)} of {counted_noun(sum(n_measured), 'trial')}"
    line = f"Pass rate {found[0]} (95 % interval {found[1]}), {of}"
    worst = ""
    if n_unverified or excused[0]:
        n_sure = sum(n_passed) - excused[1]
        (share,) = percents(n_sure / (sum(n_measured) + n_unverified))
        worst = f"; {share} % pass if excuses of the agent count as failures"
    if excused[0]:
        again = counted_noun(excused[0], "trial")
        line += f"; {again} tried again after an error of the provider that only the agent reports"
        line += "" if n_unmeasured else worst
    if n_unmeasured:
        n_all = sum(n_measured) + n_unmeasured
        (lost,) = percents(n_unmeasured / n_all)
        line += f"; not measured: {lost} % ({n_unmeasured} of {n_all}{worst})"
    return " ".join([f"{line}.", *_repeated(n_passed, n_measured, k or 0)])


def _repeated(n_passed: Sequence[int], n_measured: Sequence[int], k: int) -> Iterator[str]:
    """As in: pass@3 90 %, pass^3 40 %."""
    whole = [counts for counts in zip(n_passed, n_measured, strict=True) if counts[1] >= k]
    if k < _FEWEST_REPEATS or not whole:
        return
    never = [comb(n - passed, k) / comb(n, k) for passed, n in whole]
    always = [comb(passed, k) / comb(n, k) for passed, n in whole]
    at_k, exp_k = percents(1 - sum(never) / len(whole), sum(always) / len(whole))
    all_whole = len(whole) == len(n_measured)
    few = "" if all_whole else f" (of {len(whole)} prompts with all {k} trials)"
    yield f"pass@{k} {at_k} %, pass^{k} {exp_k} %{few}."


_FEWEST_REPEATS = 2
NO_INTERVAL = "needs numpy"
"""In place of an interval, in assay.pyz, which has no numpy."""


def rate_and_ends(n_passed: Sequence[int], n_measured: Sequence[int]) -> tuple[str, str] | None:
    """The pass rate and its interval as in reports: trials of a prompt are no prompts."""
    if not sum(n_measured):
        return None
    try:
        rate, interval = stats.rates.rate_interval(n_passed, n_measured)
    except ImportError:
        return f"{percents(sum(n_passed) / sum(n_measured))[0]} %", NO_INTERVAL
    if rate is None or interval is None:
        return None
    shown, low, high = percents(rate, interval.low, interval.high)
    return f"{shown} %", f"{low} to {high}"


_AS_SEEN = 1e-9
_CORRECTED = "corrected for the judge's errors"
"""As the method of an interval says it; the rates are those of the judge."""


def interval_words(low: float | None, high: float | None) -> str:
    """Say in a cell of a table what the interval of a difference shows."""
    if low is None or high is None:
        return "not measured"
    if low > 0:
        return "helps"
    return "harms" if high < 0 else "no difference shown"


def _were(n: int) -> str:
    return f"{counted_noun(n, 'trial')} {'was' if n == 1 else 'were'}"


def _is_alike(amount: Mapping[str, Any] | None, share: float = _AS_MUCH) -> bool:
    if amount is None or amount["ratio"] is None:
        return False
    return bool(abs(amount["ratio"] - 1.0) < share)


def _instead(
    amount: Mapping[str, Any] | None, show: Any, unit: str, share: float = _AS_MUCH
) -> str:
    """As in: $0.021 instead of $0.012 a prompt; one number where they hardly differ."""
    if not amount or amount["meanA"] is None or amount["meanB"] is None:
        return ""
    before, now = show(amount["meanA"]), show(amount["meanB"])
    if before == now or _is_alike(amount, share):
        return f"{now}{unit}"
    return f"{now} instead of {before}{unit}"


def gate_sentence(
    gate: Mapping[str, Any], pair: Mapping[str, Any], sections: Mapping[str, Any]
) -> tuple[str, str]:
    """Say what a gate decided, and with which numbers."""
    a, b = pair["runA"], pair["runB"]
    margin = Numbers().margin(sections["meta"]["margin"])
    said = f"Not decided: whether {b} is worse than {a} by {margin} is open."
    if gate["outcome"] == "pass":
        said = f"Passed: {b} is not worse than {a} by {margin}."
    elif gate["outcome"] == "fail":
        anchor = gate.get("anchor") or {}
        than = f"the anchor {anchor['name']}" if anchor.get("outcome") == "fail" else a
        said = f"Failed: {b} is worse than {than}."
    elif gate["outcome"] == "cannot-judge":
        problems = {run: "; ".join(sections["health"][run]["problems"]) for run in (a, b)}
        why = ", ".join(f"{run}: {text}" for run, text in problems.items() if text)
        said = f"Cannot be judged: {f'UNHEALTHY ({why})' if why else gate['words']}."
    return said, _gate_numbers(gate, pair, sections["meta"]["margin"])


def _gate_numbers(gate: Mapping[str, Any], pair: Mapping[str, Any], margin: float) -> str:
    found, numbers = pair["passRate"], Numbers()
    used = gate.get("sequential")
    interval = used["interval"] if used else found["interval"]
    if found["difference"] is None or interval is None:
        return "Difference of the pass rate: not measured."
    rates = numbers.rates(found["meanA"], found["meanB"], fewest=1)
    ends = interval["low"], interval["high"]
    difference, limits = numbers.size(found["difference"], ends, margin, like=rates[0])
    every = " at every look" if used else ""
    prompts = counted_noun(found["nPrompts"], "prompt")
    return f"{' → '.join(rates)} pass ({difference}, interval {limits}{every}), {prompts}."


def effects_section(sections: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Say what an ablation shows, given its stats.factorial.FactorialEffects as data."""
    effects = sorted(found["effects"], key=lambda one: -abs(one["difference"] or 0.0))
    return {
        "words": visible_line(effects_sentence(sections, effects)),
        "found": effects,
        "interactions": found["interactions"],
        "more": [visible_line(text) for text in (*_interactions(found), *_missing_cells(found))],
    }


def _interactions(found: Mapping[str, Any]) -> Iterator[str]:
    """Name the interactions that chance does not explain; of few treatments all of them."""
    pairs, numbers = found["interactions"], Numbers()
    shown = [one for one in pairs if len(pairs) <= _FEW_PAIRS or one["adjustedP"] <= BY_CHANCE]
    for one in sorted(shown, key=lambda one: one["adjustedP"]):
        named = " or ".join(f"{a} and {b}" for a, b in one["pairs"])
        ends = one["interval"]["low"], one["interval"]["high"]
        size, limits = numbers.size(one["difference"], ends, 0.0)
        if one["adjustedP"] > BY_CHANCE:
            yield f"{named} are not shown to change each other's effect ({size}, {limits})."
            continue
        line = f"{named} change each other's effect ({size}, {limits})"
        if one["alone"] is not None and one["together"] is not None:
            first, second = one["pairs"][0]
            alone, together = (points(one[key], (0.0, 0.0), 0.0)[0] for key in _WITH_OR_WITHOUT)
            line += f": {first} {alone} points without {second}, {together} with it"
        yield f"{line}."
    if n_left := len(pairs) - len(shown):
        others = "other pairs" if shown else "pairs of treatments"
        yield f"{n_left} {others} are not shown to change each other's effect."


_FEW_PAIRS = 3
"""So many interactions are all shown."""
_WITH_OR_WITHOUT = ("alone", "together")


def _missing_cells(found: Mapping[str, Any]) -> Iterator[str]:
    """Say of how many prompts something is missing."""
    if found["nIncomplete"]:
        prompts = counted_noun(found["nIncomplete"], "prompt")
        yield f"{prompts} of {found['nPrompts']} not measured in all arms; the other arms count."
    if found["nLeftOut"]:
        yield f"{counted_noun(found['nLeftOut'], 'prompt')} left out: measured in too few arms."


def effects_sentence(
    sections: Mapping[str, Any], effects: Sequence[Mapping[str, Any]], *, fractions: bool = False
) -> str:
    """Say which treatments of an ablation matter, and whether all together do more."""
    numbers, parts = Numbers(fractions), []
    for effect in effects:
        interval = effect["interval"]
        if effect["difference"] is None or interval is None:
            parts.append(f"{effect['name']} was not measured in all arms")
            continue
        ends = interval["low"], interval["high"]
        difference, limits = numbers.size(effect["difference"], ends, 0.0)
        shown = ends[0] > 0.0 or ends[1] < 0.0
        p_value = effect.get("adjustedP")
        shown = shown and (p_value is None or p_value <= BY_CHANCE)
        verb = "does not show an effect"
        if shown:
            verb = "matters" if effect["difference"] > 0.0 else "does harm"
        elif n_unused := _trials_without_use(sections, effect["name"]):
            trials = counted_noun(n_unused, "trial")
            verb = f"was never used in {trials}: nothing was tested of it"
        parts.append(f"{effect['name']} {verb} ({difference}, {limits})")
    parts += _together(sections, effects, numbers)
    return f"{'; '.join(parts)}.{_alike_at_an_end(sections)}"


def _alike_at_an_end(sections: Mapping[str, Any]) -> str:
    """Say of an ablation whose arms all pass everything, or nothing, that it cannot tell."""
    quality = sections.get("quality", {})
    rates = {(quality.get(run) or {}).get("passRate") for run in sections.get("arms", ())}
    if rates == {0.0}:
        return " All arms fail everything: the prompts or the grader are too hard to tell."
    return " All arms pass everything: the prompts are too easy to tell." * (rates == {1.0})


def _trials_without_use(sections: Mapping[str, Any], treatment: str) -> int:
    """Count the trials that had a treatment, if it was used in none of them; otherwise 0."""
    arms, uses = sections.get("arms", {}), sections.get("proof", {}).get("uses", ())
    alone = {use["name"] for use in uses if list(arms.get(use["arm"], ())) == [treatment]}
    names = alone or {treatment}
    own = [use for use in uses if use["name"] in names and treatment in arms.get(use["arm"], ())]
    return 0 if any(use["used"] for use in own) else sum(use["trials"] for use in own)


def _together(
    sections: Mapping[str, Any], effects: Sequence[Mapping[str, Any]], numbers: Numbers
) -> Iterator[str]:
    """Compare the arm that has all treatments with the best one that has a single treatment."""
    names = [effect["name"] for effect in effects]
    arms = {arm: set(found) for arm, found in sections.get("arms", {}).items()}
    whole = next((arm for arm, has in arms.items() if has == set(names)), None)
    single = {arm for arm, has in arms.items() if len(has) == 1}
    rates = {run: (sections["quality"].get(run) or {}).get("passRate") for run in single}
    known = {run: rate for run, rate in rates.items() if rate is not None}
    if whole is None or not known or len(names) < 2:
        return
    best = max(known, key=lambda run: known[run])
    for pair in sections["pairs"]:
        if {pair["runA"], pair["runB"]} == {best, whole} and pair["passRate"]["interval"]:
            sign = 1 if pair["runB"] == whole else -1
            ends = pair["passRate"]["interval"]
            low, high = sorted((sign * ends["low"], sign * ends["high"]))
            more = sign * pair["passRate"]["difference"]
            size, limits = numbers.size(more, (low, high), 0.0)
            alone = f"{next(iter(arms[best]))} alone"
            if low > 0.0:
                yield f"together more than {alone} ({size}, {limits})"
            elif high < 0.0:
                yield f"together less than {alone} ({size}, {limits})"
            else:
                yield f"together not shown to be more than {alone} ({size}, {limits})"
