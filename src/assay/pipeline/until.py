"""End a batch as soon as its question is decided: look after every trial, in the order of the plan.

Trials that finish early are often those that went well: an agent that hangs fails late. So a trial
counts only when all that were to start before it have finished, and prompts come in an order that
has nothing to do with the file, where they may be sorted by what they are about.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from assay.records.capture import Capture, TrialEntry
from assay.records.spec import TrialSpec
from assay.stats.rates import Bounds, bound_difference
from assay.stats.sequential import Look, SequentialDecision, look_at_rates

type Decide = Callable[[Look, Bounds | None, bool], SequentialDecision]
"""Takes a look, what trials that were not measured leave open, and whether it is the last look."""
type Earlier = tuple[int, str, bool | None]
"""A finished trial: its arm, its prompt, and whether it passed; None if it was not measured."""
_FRESH = 1


class UntilDecided:
    """Compares arm 1 with arm 0, which may be a baseline, until a decision falls."""

    def __init__(
        self,
        decide: Decide,
        *,
        baseline: Mapping[str, tuple[int, int]] | None = None,
        earlier: Callable[[], Iterable[Earlier]] = tuple,
        arm_of: Callable[[TrialSpec], int] = lambda spec: _FRESH,
    ) -> None:
        """baseline has (passes, measured trials) of each prompt of arm 0, if no trial of it runs.

        earlier is asked once for the trials that finished before this run.
        """
        self._decide, self._earlier, self._arm_of = decide, earlier, arm_of
        self._baseline = baseline
        self._number: dict[str, int] = {}
        self._passed = self._measured = self._finished = np.zeros((2, 0), dtype=np.int64)
        self._place: dict[tuple[int, str, int], int] = {}
        self._waiting: dict[int, Earlier] = {}
        self._n_counted = 0
        self.decision = decide(Look(0), None, False)
        """Of the last look, or of the one that decided."""

    @property
    def n_trials(self) -> int:
        """How many trials of the arms that run here the decision rests on."""
        of_arms = self._finished.sum(axis=1)
        return int(of_arms[_FRESH] if self._baseline is not None else of_arms.sum())

    def begin(self, missing: list[TrialSpec]) -> list[TrialSpec]:
        """Count what finished earlier; return the trials in the order in which they should start:
        each prompt once before any twice, the arms of a prompt one after the other.
        """
        earlier = list(self._earlier())
        ids = dict.fromkeys(
            [*(spec.prompt.id for spec in missing), *(id_ for _, id_, _ in earlier)]
        )
        self._number = {id_: n for n, id_ in enumerate(ids)}
        self._passed, self._measured, self._finished = np.zeros((3, 2, len(ids)), dtype=np.int64)
        for id_, (passed, measured) in (self._baseline or {}).items():
            if (n := self._number.get(id_)) is not None:
                self._passed[0, n], self._measured[0, n] = passed, measured
                self._finished[0, n] = measured
        for trial in earlier:
            self._count(*trial)
        if earlier:
            self._look(is_last=False)
        order = [] if self.decision.is_decided else sorted(missing, key=self._turn)
        self._place = {self._key(spec): place for place, spec in enumerate(order)}
        return order

    def add(self, spec: TrialSpec, result: Capture) -> bool:
        """Count a finished trial as soon as those before it have finished, and look."""
        self._waiting[self._place[self._key(spec)]] = (
            self._arm_of(spec),
            spec.prompt.id,
            has_passed(result),
        )
        while not self.decision.is_decided and self._n_counted in self._waiting:
            self._count(*self._waiting.pop(self._n_counted))
            self._n_counted += 1
            self._look(is_last=False)
        return self.decision.is_decided

    def finish(self) -> SequentialDecision:
        """Take the last look if every planned trial has finished; return the decision."""
        if not self.decision.is_decided and self._n_counted == len(self._place):
            self._look(is_last=True)
        return self.decision

    def _turn(self, spec: TrialSpec) -> tuple[bool, int, bytes, int]:
        prompt_id = spec.prompt.id
        unknown = self._baseline is not None and prompt_id not in self._baseline
        shuffled = hashlib.sha256(prompt_id.encode("utf-8", "surrogatepass")).digest()
        return unknown, spec.number, shuffled, self._arm_of(spec)

    def _key(self, spec: TrialSpec) -> tuple[int, str, int]:
        return self._arm_of(spec), spec.prompt.id, spec.number

    def _count(self, arm: int, prompt_id: str, passed: bool | None) -> None:
        place = arm, self._number[prompt_id]
        self._finished[place] += 1
        if passed is not None:
            self._measured[place] += 1
            self._passed[place] += passed

    def _look(self, *, is_last: bool) -> None:
        arms = [(self._passed[arm], self._measured[arm]) for arm in (0, 1)]
        both = (self._finished > 0).all(axis=0)
        bounds = None
        if (self._measured < self._finished).any() and both.any():
            sides = [
                (*(counts[both] for counts in arms[arm]), self._finished[arm, both])
                for arm in (0, 1)
            ]
            bounds = bound_difference(sides[0], sides[1])
        self.decision = self._decide(look_at_rates(arms[0], arms[1]), bounds, is_last)


def has_passed(trial: Capture | TrialEntry) -> bool | None:
    """Whether a trial passed; None if it was not measured. The agent's own failure is no pass."""
    passed = trial.pass_ if isinstance(trial, TrialEntry) else None
    if isinstance(trial, Capture) and trial.score:
        passed = trial.score.pass_
    if isinstance(passed, bool):
        return passed
    failure = trial.failure or None
    by_agent = failure is not None and failure.cause.measures_agent and not failure.answered
    return False if by_agent else None
