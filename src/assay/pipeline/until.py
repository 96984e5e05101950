"""End a batch as soon as its question is decided: look after every trial, in the order of the plan.

Trials that finish early are often those that went well: an agent that hangs fails late. So a trial
counts only when all that were to start before it have finished, and prompts come in an order that
has nothing to do with the file, where they may be sorted by what they are about.

Against a baseline, nothing passes before every prompt has run: what is broken may be in those that
would have come last. A pass that was found earlier waits for them, and stands unless they turn the
estimate towards a loss. Of two arms nothing is the same before every prompt has run in both.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from assay.records.capture import Cause
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import Trial
from assay.stats.rates import excused_shares
from assay.stats.sequential import (
    ExtremeLooks,
    Look,
    SequentialDecision,
    look_at_extremes,
    look_at_rates,
    turn_of,
)
from assay.stats.significance import losses_differ

type Decide = Callable[[Look, ExtremeLooks | None, bool], SequentialDecision]
"""Takes a look, what trials that were not measured leave open, and whether it is the last look."""
type Earlier = tuple[int, str, int, bool | None] | tuple[int, str, int, bool | None, bool]
"""A finished trial: its arm, its prompt, its number, and whether it passed; None if it was not
measured. At the end: whether the provider is to blame for that."""
type _Key = tuple[int, str, int]
"""Arm, prompt and number of a trial."""
_FRESH = 1
_HOPELESS = 20


def is_lost(trial: Trial) -> bool:
    """Whether the provider kept a trial from being measured."""
    return trial.passed is None and bool(trial.failure) and trial.failure.cause is Cause.PROVIDER


class Order(NamedTuple):
    """In what order prompts start, and what that asks of a pass."""

    seed: int | None = None
    """It draws the order; without one it is always the same."""
    first: Collection[str] = ()
    """Prompts that come before the others; of those that the baseline lacks, the first trial."""
    least: float = -1.0
    """A pass that was found before every prompt had run needs an estimate above this when they
    have."""
    is_planned: bool = False
    """Whether the plan has the order already."""
    lost_before: tuple[int, int] = (0, 0)
    """Of the baseline: trials that the provider lost, and all of them."""


_USUAL = Order()


class UntilDecided:
    """Compares arm 1 with arm 0, which may be a baseline, until a decision falls."""

    def __init__(
        self,
        decide: Decide,
        *,
        baseline: Mapping[str, tuple[int, int]] | None = None,
        earlier: Callable[[], Iterable[Earlier]] = tuple,
        arm_of: Callable[[TrialSpec], int] = lambda spec: _FRESH,
        plan: Sequence[TrialSpec] | None = None,
        order: Order | None = _USUAL,
        copies: Mapping[str, str] | None = None,
    ) -> None:
        """baseline has (passes, measured trials) of each prompt of arm 0, if no trial of it runs.

        earlier is asked once for the trials that finished before this run; those that the plan
        lacks do not count. plan has all trials; without it, they are those that are missing.
        With None for the order, the plan has them in the order in which they should start.
        copies names for a prompt another one that it is a copy of; both count as one.
        """
        self._plan, self._order = plan, order
        self._passed_at: SequentialDecision | None = None
        self._decide, self._earlier, self._arm_of = decide, earlier, arm_of
        self._baseline, self._copies = baseline, copies or {}
        self._number: dict[str, int] = {}
        self._passed = self._measured = self._finished = np.zeros((2, 0), dtype=np.int64)
        self._lost = self._finished
        self._place: dict[_Key, int] = {}
        self._waiting: dict[int, tuple[int, str, bool | None, bool]] = {}
        self._n_counted, self._is_over = 0, False
        self.decision = decide(Look(0), None, False)
        """Of the last look, or of the one that decided."""

    @property
    def n_trials(self) -> int:
        """How many trials of the arms that run here the decision rests on."""
        of_arms = self._finished.sum(axis=1)
        return int(of_arms[_FRESH] if self._baseline is not None else of_arms.sum())

    def begin(self, missing: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials in the order in which they should start: each prompt once before any
        twice, the arms of a prompt one after the other.

        What finished earlier counts at its place in this order, as if it finished now: of an
        interrupted run the trials that hung are missing, and nothing behind them counts before
        they have been run.
        """
        specs = missing if self._plan is None else self._plan
        is_planned = self._order is None or self._order.is_planned
        order = specs if is_planned else sorted(specs, key=self._turn)
        self._prepare(dict.fromkeys(spec.prompt.id for spec in specs))
        self._place = {self._key(spec): place for place, spec in enumerate(order)}
        to_run = {self._key(spec) for spec in missing}
        for arm, prompt_id, number, passed, *lost in self._earlier():
            key = arm, prompt_id, number
            if key in self._place and key not in to_run:
                self._waiting[self._place[key]] = arm, prompt_id, passed, any(lost)
        self._count_in_turn()
        return [] if self._is_over else [spec for spec in order if self._key(spec) in to_run]

    def add(self, spec: TrialSpec, result: Trial) -> bool:
        """Count a finished trial as soon as those before it have finished, and look."""
        self._waiting[self._place[self._key(spec)]] = (
            self._arm_of(spec),
            spec.prompt.id,
            result.passed,
            is_lost(result),
        )
        self._count_in_turn()
        return self._is_over

    @property
    def is_over(self) -> bool:
        """Whether no further trial is needed: it is decided, or more trials would not decide it."""
        return self._is_over

    def in_order(self, specs: Sequence[TrialSpec]) -> list[TrialSpec]:
        """Return all trials of the plan in the order in which they count."""
        return sorted(specs, key=lambda spec: self._place[self._key(spec)])

    def finish(self) -> SequentialDecision:
        """Take the last look if every planned trial has finished; return the decision."""
        if not self._is_over and self._n_counted == len(self._place):
            self._look(is_last=True)
        return self.decision

    def _prepare(self, ids: Iterable[str]) -> None:
        ids = list(ids)
        units = dict.fromkeys(self._copies.get(id_, id_) for id_ in ids)
        places = {id_: n for n, id_ in enumerate(units)}
        self._number = {id_: places[self._copies.get(id_, id_)] for id_ in ids}
        counts = np.zeros((4, 2, len(units)), dtype=np.int64)
        self._passed, self._measured, self._finished, self._lost = counts
        for id_, (passed, measured) in (self._baseline or {}).items():
            if (n := self._number.get(id_)) is not None:
                self._passed[0, n] += passed
                self._measured[0, n] += measured
                self._finished[0, n] += measured

    def _count_in_turn(self) -> None:
        """Count the trials whose turn it is, and look after each of them.

        The plan ends if every prompt has had its turn and repeats would add nothing, or if so many
        trials without one measured show that none will be: no key, no quota.
        """
        while not self._is_over and self._n_counted in self._waiting:
            arm, prompt_id, passed, lost = self._waiting.pop(self._n_counted)
            self._n_counted += 1
            place = arm, self._number[prompt_id]
            self._finished[place] += 1
            self._lost[place] += lost
            if passed is not None:
                self._measured[place] += 1
                self._passed[place] += passed
            self._look(is_last=False)
            if self._is_over:
                return
            n_fresh = self._finished[_FRESH].sum()
            is_hopeless = n_fresh >= _HOPELESS and not self._measured[_FRESH].any()
            if is_hopeless or (self.decision.repeats_are_idle and self._is_whole_round()):
                self._look(is_last=True)
                self._is_over = True

    def _turn(self, spec: TrialSpec) -> tuple[bool, int, bool, bytes, int]:
        prompt_id = spec.prompt.id
        drawn = self._order or _USUAL
        unknown = self._baseline is not None and prompt_id not in self._baseline
        unknown = unknown and (spec.number > 1 or prompt_id not in drawn.first)
        place = unknown, spec.number, prompt_id not in drawn.first
        return *place, turn_of(prompt_id, drawn.seed), self._arm_of(spec)

    def _key(self, spec: TrialSpec) -> _Key:
        return self._arm_of(spec), spec.prompt.id, spec.number

    def _is_whole_round(self) -> bool:
        counts = self._finished
        if self._baseline is not None:
            counts = counts[_FRESH:, counts[0] > 0]
        return bool(counts.size and counts.min() == counts.max() > 0)

    def _look(self, *, is_last: bool) -> None:
        arms = [(self._passed[arm], self._measured[arm]) for arm in (0, 1)]
        both = (self._finished > 0).all(axis=0)
        extremes = None
        if (self._measured < self._finished).any() and both.any():
            planned = self._planned()
            first, second = (
                (*(counts[both] for counts in arms[arm]), planned[arm, both]) for arm in (0, 1)
            )
            extremes = look_at_extremes(first, second)
        look = look_at_rates(arms[0], arms[1])
        self.decision = self._decide(look, extremes, is_last)
        if self._baseline is not None and self.decision.outcome != "fail":
            self._wait_for_all(extremes.worst if extremes is not None else look)
        elif self.decision.outcome == "same":
            self._hold_back(self.decision, int((self._finished == 0).any(axis=0).sum()))
        self._is_over = self.decision.is_decided

    def _planned(self) -> Any:
        """Return what the trials of each prompt leave open: less what both arms lost alike."""
        lost, n = self._lost.sum(axis=1).tolist(), self._finished.sum(axis=1).tolist()
        if self._baseline is not None:
            lost[0], n[0] = (self._order or _USUAL).lost_before
        differ = losses_differ(lost[0], n[0], lost[1], n[1])
        shares = excused_shares((lost[0], lost[1]), (n[0], n[1]), differ=differ)
        if not any(shares):
            return self._finished
        excused = np.where(self._measured > 0, self._lost, 0)
        return self._finished - np.array(shares)[:, None] * excused

    def _wait_for_all(self, worst: Look) -> None:
        """Hold a pass back until every prompt has run; see the head of this file."""
        if self.decision.outcome == "pass":
            self._passed_at = self._passed_at or self.decision
        unseen = int(((self._finished[0] > 0) & (self._finished[_FRESH] == 0)).sum())
        known = self._passed_at
        if known is None:
            return
        if unseen:
            self._hold_back(known, unseen)
        elif self.decision.outcome != "pass":
            least = (self._order or _USUAL).least
            self.decision = known if (worst.difference or 0.0) > least else self.decision

    def _hold_back(self, known: SequentialDecision, unseen: int) -> None:
        """Go on after a decision that nothing has changed while there are prompts left to see."""
        if unseen:
            left = f"{counted_noun(unseen, 'prompt')} must run before it counts"
            words = f"{known.words}; {left}"
            self.decision = msgspec.structs.replace(known, outcome="go-on", words=words)


class UntilAllDecided:
    """Compares several arms with one control, until there is a decision about each of them."""

    def __init__(self, rules: Mapping[str, UntilDecided], key: Callable[[TrialSpec], str]) -> None:
        """rules has the comparison of each arm by its key; any other key is the control."""
        self._rules, self._key = rules, key

    def begin(self, missing: list[TrialSpec], rows: object = None) -> list[TrialSpec]:
        """Count what finished earlier; return the trials in their order, none if all is over."""
        for key, rule in self._rules.items():
            rule.begin(
                [spec for spec in missing if self._key(spec) not in self._rules.keys() - {key}]
            )
        return [] if self._is_over() else [spec for spec in missing if self.needs(spec)]

    def needs(self, spec: TrialSpec) -> bool:
        """Whether a trial could still decide something: not if its arm is decided."""
        own = self._rules.get(self._key(spec))
        return own is None or not own.is_over

    def add(self, spec: TrialSpec, result: Trial) -> bool:
        """Count a finished trial in every comparison that it belongs to."""
        own = self._rules.get(self._key(spec))
        for rule in self._rules.values() if own is None else (own,):
            if not rule.is_over:
                rule.add(spec, result)
        return self._is_over()

    def _is_over(self) -> bool:
        return all(rule.is_over for rule in self._rules.values())
