"""Trials of another day in an experiment: which they are, and whether they still hold.

A provider changes under the same name. So an arm whose trials come from an earlier run, which the
other arms have no part in, was measured under another condition, and the difference in time looks
like an effect. The same holds for trials that were chosen out of an earlier run, when its results
were known. A few of these trials are run again beside the others. If they differ from the earlier
ones, all are run again. If they agree, the earlier ones count; but whatever is then said of the
arms has to hold against trials of today alone, of which two rounds are run for this.
"""

import datetime
import math
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.pipeline.arms import EarlierTrials, arm_key, drop_trials, trials_in
from assay.records.experiment import ReuseMode
from assay.records.spec import TrialSpec, made_from
from assay.records.text import counted_noun
from assay.records.trial import REUSED, Trial
from assay.stats.paired import PairedDifference, compare_rates
from assay.stats.verdict import judge_difference

FEWEST_CHECKS = 8
_PROMPTS_PER_CHECK = 4
ROUNDS_FOR_CLAIM = 2
"""As many trials of each prompt have to be of today before anything is said about the arms."""
_ALPHA = 0.05
_ALPHA_EARLY = 0.03
"""Of a look at these rounds. Whatever the earlier trials were like, a useless change then seems to
help at this look or at the last one in at most 1.5 + 2.5 % of runs (2 % in simulations)."""
_DAY_S = 86_400.0
_MOST_HOURS = 48

type Place = tuple[str, int]
"""Prompt and number of a trial."""
type Tally = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Passes and measured trials of each prompt."""


class AgedTrials(NamedTuple):
    """The trials of one arm that an earlier run made and in which other arms have no part."""

    earlier: Mapping[Place, Trial]
    """By prompt and number, those in whose place a new one has been run included."""
    again: frozenset[Place]
    """Those that are run again to check the others."""

    @property
    def rest(self) -> set[Place]:
        return self.earlier.keys() - self.again

    def first_rounds(self) -> set[Place]:
        """Return what has to be run before anything is said about the arms."""
        numbers = sorted({number for _, number in self.earlier})[:ROUNDS_FOR_CLAIM]
        return {place for place in self.earlier if place[1] in numbers}


class ReuseCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the earlier trials of an arm agree with those that were run again."""

    n_again: int
    rate_before: float | None = None
    """Of all earlier trials of the prompts that were run again."""
    rate_now: float | None = None
    p_value: float | None = None
    agrees: bool = False


class ReuseReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was taken of earlier trials for one arm, and what was found out about them."""

    n_reused: int
    n_trials: int
    oldest: str | None = None
    """When the earliest of the runs ended that the trials are from."""
    check: ReuseCheck | None = None
    claim: str | None = None
    """held, if trials of today alone say the same; failed, if they did not, so that all were run
    again; None if nothing was said that needed it."""

    def words(self, arm: str, now: datetime.datetime) -> str:
        """Say it in one sentence."""
        if self.check is None:
            return f"{arm}: {self._reused(now)}; they were not checked"
        found, check = self._rates(), self.check
        again = f"{counted_noun(check.n_again, 'trial')} run again"
        if not check.agrees:
            why = f"{again} did not confirm them{found}"
            return f"{arm}: earlier trials are not used, because {why}; all were run again"
        if self.claim == "failed":
            why = "trials of today alone do not show what the earlier ones showed"
            return f"{arm}: earlier trials are not used, because {why}; all were run again"
        held = "; the verdict holds against these alone" if self.claim else ""
        used = self._reused(now) if self.n_reused else "trials of another day are not used"
        agree = "agrees" if check.n_again == 1 else "agree"
        return f"{arm}: {used}; {again} {agree} with them{found}{held}"

    def _reused(self, now: datetime.datetime) -> str:
        age = ""
        if self.oldest:
            seconds = (now - datetime.datetime.fromisoformat(self.oldest)).total_seconds()
            hours, days = math.ceil(seconds / 3600), math.ceil(seconds / _DAY_S)
            span = counted_noun(hours, "hour") if hours <= _MOST_HOURS else f"{days} days"
            age = f", up to {span} old" if seconds > 0 else ""
        return f"{self.n_reused} of {counted_noun(self.n_trials, 'trial')} reused{age}"

    def _rates(self) -> str:
        check = self.check
        if check is None or check.rate_before is None or check.rate_now is None:
            return ""
        p = "" if check.p_value is None else f", p {check.p_value:.2g}"
        before, now = 100 * check.rate_before, 100 * check.rate_now
        return f" ({before:.0f} % before, {now:.0f} % now{p})"


class ReusingArm(Protocol):
    """What is asked of an arm here."""

    @property
    def name(self) -> str: ...

    @property
    def output(self) -> Path: ...

    @property
    def specs(self) -> list[TrialSpec]: ...


class ReuseGuard:
    """Sees to it that an experiment does not take a difference in time for an effect."""

    def __init__(
        self,
        arms: Mapping[str, ReusingArm],
        earlier: EarlierTrials | None,
        seed: int,
        mode: ReuseMode,
    ) -> None:
        """arms by their keys, the control first; earlier is where their trials may come from."""
        self._arms, self._earlier = arms, earlier
        self._aged: dict[str, AgedTrials] = {}
        self._checks: dict[str, ReuseCheck] = {}
        self._claim: str | None = None
        if earlier is not None:
            specs = {key: arm.specs for key, arm in arms.items()}
            found = {key: _by_place(earlier, arm.specs) for key, arm in arms.items()}
            done = {key: self._done(key) for key in arms}
            known = [trial for each in (*found.values(), *done.values()) for trial in each.values()]
            sources = {_source(trial) for trial in known} - {""}
            planned = [spec for own in specs.values() for spec in own]
            chosen = earlier.chosen_from(sources, planned)
            self._aged = aged_trials(specs, done, found, seed, chosen)
        self._is_checked = mode == "check" and bool(self._aged)
        if self._is_checked:
            for key, aged in self._aged.items():
                self._refuse(key, aged.again)

    @property
    def is_checked(self) -> bool:
        """Whether an arm rests on trials of another day, which are checked."""
        return self._is_checked

    def first(self, specs: Sequence[TrialSpec], *, all_prompts: bool) -> list[TrialSpec]:
        """Return what is run before the earlier trials are looked at.

        Of a run that may end early these are only the prompts that are run again, in all arms.
        """
        again = {place for aged in self._aged.values() for place in aged.again}
        chosen = []
        for spec in specs:
            place, aged = (spec.prompt.id, spec.number), self._aged.get(arm_key(spec))
            waits = aged is not None and place in aged.rest
            if not waits and (all_prompts or place in again):
                chosen.append(spec)
        return chosen

    def check(self) -> None:
        """Compare earlier trials with those that were run again; refuse them if they differ."""
        for key, aged in self._aged.items():
            self._checks[key] = check_reuse(aged, self._done(key))
            if not self._checks[key].agrees:
                self._drop(key, set(aged.earlier))

    def claims(self, margin: float) -> dict[str, str]:
        """Return what the arms show beyond "not enough data", by the keys of the treatments."""
        return self._judge(margin, today=False)

    def rests_on_earlier(self) -> bool:
        """Whether trials of another day are in the journals."""
        return any(
            _is_reused(trial) and place in aged.earlier
            for key, aged in self._aged.items()
            for place, trial in self._done(key).items()
        )

    def run_rounds_again(self) -> None:
        """Make room for trials of today: as many of each prompt as a claim needs."""
        for key, aged in self._aged.items():
            self._drop(key, aged.first_rounds())

    def run_all_again(self) -> None:
        """Make room for trials of today in place of all earlier ones."""
        for key, aged in self._aged.items():
            self._drop(key, set(aged.earlier))

    def holds(self, claims: Mapping[str, str], margin: float) -> bool:
        """Whether trials of today alone show the same, and do not differ from the earlier ones."""
        for key, aged in self._aged.items():
            self._checks[key] = check_reuse(aged, self._done(key))
        agree = all(check.agrees for check in self._checks.values())
        return agree and self._judge(margin, today=True) == claims

    def conclude(self, *, held: bool) -> None:
        """Remember whether what was shown holds against trials of today."""
        self._claim = "held" if held else "failed"

    def report(self) -> dict[str, ReuseReport]:
        """Say of each arm with trials of another day what became of them, by its name."""
        found = {}
        for key, aged in self._aged.items():
            done = self._done(key)
            reused = [t for p, t in done.items() if _is_reused(t) and p in aged.earlier]
            sources = {str(trial.metadata[REUSED]) for trial in reused}
            ended = [self._earlier.ended(one) for one in sources] if self._earlier else []
            found[self._arms[key].name] = ReuseReport(
                n_reused=len(reused),
                n_trials=len(done),
                oldest=min(filter(None, ended), default=None),
                check=self._checks.get(key),
                claim=self._claim,
            )
        return found

    def _judge(self, margin: float, *, today: bool) -> dict[str, str]:
        control, *others = (key for key in self._arms)
        ids = list(dict.fromkeys(spec.prompt.id for spec in self._arms[control].specs))
        tallies = {key: tally(ids, self._counted(key, today=today)) for key in self._arms}
        found = {
            key: claim(tallies[control], tallies[key], margin, is_early=today) for key in others
        }
        return {key: code for key, code in found.items() if code != "not-enough-data"}

    def _counted(self, key: str, *, today: bool) -> dict[Place, Trial]:
        done, aged = self._done(key), self._aged.get(key)
        if not today or aged is None:
            return done
        return {p: t for p, t in done.items() if not (_is_reused(t) and p in aged.earlier)}

    def _drop(self, key: str, places: set[Place]) -> None:
        """Take reused trials out of the journal of an arm, and do not take them again."""
        reused = {place for place, t in self._done(key).items() if _is_reused(t)}
        if reused & places:
            drop_trials(self._arms[key].output, reused & places)
        self._refuse(key, places)

    def _refuse(self, key: str, places: Iterable[Place]) -> None:
        assert self._earlier is not None
        wanted = set(places)
        self._earlier.refused |= {
            (made_from(spec.hash), spec.number)
            for spec in self._arms[key].specs
            if (spec.prompt.id, spec.number) in wanted
        }

    def _done(self, key: str) -> dict[Place, Trial]:
        return {(trial.id, trial.number): trial for trial in trials_in(self._arms[key].output)}


def _by_place(earlier: EarlierTrials, specs: Sequence[TrialSpec]) -> dict[Place, Trial]:
    found = earlier.find(specs)
    return {
        (spec.prompt.id, spec.number): one.trial
        for spec in specs
        if (one := found.get((made_from(spec.hash), spec.number))) is not None
    }


def aged_trials(
    specs: Mapping[str, Sequence[TrialSpec]],
    done: Mapping[str, Mapping[Place, Trial]],
    found: Mapping[str, Mapping[Place, Trial]],
    seed: int,
    chosen: Collection[str] = (),
) -> dict[str, AgedTrials]:
    """Find the arms that rest on trials of another day; all by the key of the arm.

    specs has the planned trials, done those that are in the journals already, found those that
    earlier runs have. Where all arms have a trial from the same run, they were measured side by
    side, and nothing has to be checked; unless it is one of the runs of which only some trials
    were chosen, as their results may have been known.
    """
    aged: dict[str, AgedTrials] = {}
    for key, own in specs.items():
        places = [(spec.prompt.id, spec.number) for spec in own]
        earlier = {**found[key], **{p: t for p, t in done[key].items() if _is_reused(t)}}
        others = [other for other in specs if other != key]
        apart = {
            place: earlier[place]
            for place in places
            if place in earlier
            and (
                _source(earlier[place]) in chosen
                or any(
                    _source(done[other].get(place) or found[other].get(place))
                    != _source(earlier[place])
                    for other in others
                )
            )
        }
        # Where all of them have been run anew, nothing rests on them.
        if any(place not in done[key] or _is_reused(done[key][place]) for place in apart):
            again = _chosen([place for place in places if place in apart], seed)
            aged[key] = AgedTrials(apart, frozenset(again))
    return aged


def _source(trial: Trial | None) -> str:
    """Name the earlier run that made a trial; nothing for a trial of this run."""
    return str(trial.metadata.get(REUSED, "")) if trial is not None else ""


def _is_reused(trial: Trial | None) -> bool:
    return trial is not None and REUSED in trial.metadata


def _chosen(places: Sequence[Place], seed: int) -> set[Place]:
    """Choose what is run again: the first trial of every fourth prompt, of eight at least.

    The first place of all is among them, which is the smoke trial of the arm.
    """
    first: dict[str, int] = {}
    for id_, number in places:
        first[id_] = min(number, first.get(id_, number))
    start, *others = first
    n = min(len(first), max(FEWEST_CHECKS, math.ceil(len(first) / _PROMPTS_PER_CHECK)))
    chosen = [start, *random.Random(seed).sample(sorted(others), n - 1)]
    return {(id_, first[id_]) for id_ in chosen}


def check_reuse(aged: AgedTrials, done: Mapping[Place, Trial]) -> ReuseCheck:
    """Compare the trials that were run again with all earlier ones of the same prompts."""
    fresh = {place: t for place, t in done.items() if not _is_reused(t)}
    ids = sorted({id_ for id_, _ in fresh} & {id_ for id_, _ in aged.earlier})
    return compare_days(tally(ids, aged.earlier), tally(ids, fresh), len(aged.again))


def compare_days(before: Tally, now: Tally, n_asked: int) -> ReuseCheck:
    """Compare trials of the same prompts from two days; n_asked were run again for this."""
    n_again = int(now[1].sum())
    if n_again == 0 or before[1].sum() == 0:
        return ReuseCheck(n_again=n_again)
    found = compare_rates(before, now, seed=1)
    is_enough = n_again >= min(FEWEST_CHECKS, n_asked)
    return ReuseCheck(
        n_again=n_again,
        rate_before=found.mean_a,
        rate_now=found.mean_b,
        p_value=found.p_value,
        agrees=is_enough and (found.p_value is None or found.p_value > _ALPHA),
    )


def tally(ids: Sequence[str], trials: Mapping[Place, Trial]) -> Tally:
    """Count passes and measured trials of each prompt."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (id_, _), trial in trials.items():
        if (passed := trial.passed) is not None:
            counts[id_][0] += passed
            counts[id_][1] += 1
    both = np.array([counts[id_] for id_ in ids], dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def claim(control: Tally, arm: Tally, margin: float, *, is_early: bool = False) -> str:
    """Return what two arms show: better, worse, same or not-enough-data."""
    alpha = _ALPHA_EARLY if is_early else _ALPHA
    found: PairedDifference = compare_rates(control, arm, seed=1, level=1.0 - alpha)
    return judge_difference(found, margin=margin, alpha=alpha).code
