"""The gate of `assay trials --until decided`: what it compares with, what it says at the end."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from assay.compare.anchors import find_anchor
from assay.compare.builds import Builds, read_builds
from assay.compare.calibration import calibration_for
from assay.compare.decided import AnchorDecision, Consent, KeptDecision, Worse, keep_decision
from assay.compare.pairs import align, differences, unequal_excuses, unlike
from assay.compare.report import NOT_ALIKE, problems_of
from assay.compare.runs import Run, load_run
from assay.errors import InputError, NotJudged
from assay.pipeline.arms import trials_in
from assay.pipeline.changes import Changes, copies_in, find_changes, named
from assay.pipeline.trials import TrialRows
from assay.pipeline.until import Earlier, Order, UntilDecided, is_lost
from assay.records.spec import PluginRef, TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.records.trial import ORDER_SEED, Trial
from assay.records.trial.files import detect_kind
from assay.stats.sequential import (
    FEWEST_UNITS,
    ExtremeLooks,
    Look,
    SequentialDecision,
    decide_gate,
    describe_use,
    judged_look,
    smallest_margin,
)
from assay.stats.significance import chance_of_drop

_CODES = {"pass": 0, "fail": 3}
_UNDECIDED = NotJudged.exit_code
_LEAST_SHARE = 0.5
"""Of the margin: a larger loss on all prompts takes back a pass that the first of them showed, and
one since the anchor stops a branch."""
_BY_CHANCE = 0.05
_HIDDEN = (
    "with the prompts that were set aside, {:+.1f} points, which is more than half of the margin; "
    "if that is wanted, give --accept-changes"
)


class GateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate needs to know before the first trial."""

    against: Path
    output: Path
    margin: float
    specs: Sequence[TrialSpec]
    graders: Sequence[PluginRef] = ()
    """Those of the run, to compare changed ones by what they say."""
    chosen: bool = False
    """Whether the user asked for a part of the prompts."""
    anchor: str | None = None
    """A name or a file of a baseline that merges do not move; "latest" is the newest."""
    seed: int = 0
    """It draws the order of a new run."""
    accepted_by: str | None = None
    """Who accepts what has changed in prompts and graders."""
    judge: Path | None = None
    """What is known of the errors of the judge; see calibration_for."""


class GateVerdict(NamedTuple):
    """What a gate says at the end."""

    exit_code: int
    words: str
    notes: list[str]
    """What to know besides."""


class TrialsGate:
    """Compares fresh trials with an earlier run, and with an anchor, after every one of them."""

    def __init__(self, request: GateRequest) -> None:
        self._request, self._output = request, request.output
        self._first = _Side(request.against, request)
        self._anchor: _Side | None = None
        self.notes: list[str] = []
        """What to know before the first trial."""
        if (builds := self._first.run.builds) is not None:
            self._note(builds.noise_words)
            if builds.changed_words:
                self._note(f"{request.against}: {builds.changed_words}")
        if self._first.judge_words:
            self._note(self._first.judge_words)
        self._consent = self._check_changes()
        self._is_waived = self._check_size()
        """Whether nothing is left to judge, and somebody accepted that."""
        if request.anchor is not None and not self._is_waived:
            self._open_anchor(request.anchor)

    def begin(self, missing: list[TrialSpec], rows: TrialRows) -> list[TrialSpec]:
        """Return the trials in their order; rows has those of an interrupted run."""
        if self._is_waived:
            return missing

        # The last of the same number counts.
        to_run = {(spec.prompt.id, spec.number) for spec in missing}
        known = [
            trial
            for trial in (*trials_in(self._output), *rows.open_trials())
            if (trial.id, trial.number) not in to_run
        ]
        # A run that goes on keeps its order; one of an older version has the order without a seed.
        seed = known[0].metadata.get(ORDER_SEED) if known else self._request.seed
        seed = seed if isinstance(seed, int) else None
        if seed is not None:
            rows.notes[ORDER_SEED] = seed

        def earlier() -> Iterable[Earlier]:
            for trial in known:
                yield 1, trial.id, trial.number, trial.passed, is_lost(trial)

        first = self._first.order(seed)
        order = self._first.begin(missing, self._request.specs, earlier, first)
        if self._anchor is None:
            return order
        whole = self._first.stopper.in_order(self._request.specs)
        as_planned = self._anchor.order(None)._replace(is_planned=True)
        second = self._anchor.begin(missing, whole, earlier, as_planned)
        return order or ([] if self._is_over() else second)

    def add(self, spec: TrialSpec, result: Trial) -> bool:
        """Count a finished trial; return whether it is decided."""
        for side in self._sides:
            if not side.stopper.is_over:
                side.stopper.add(spec, result)
        return not self._is_waived and self._is_over()

    def needs(self, spec: TrialSpec) -> bool:
        """Whether a trial has to be started: all of them, until it is decided."""
        return True

    def is_over(self) -> bool:
        """Whether no further trial is needed; the last look is taken if none is left."""
        self.finish()
        begun = not self._is_waived and all(side.begun for side in self._sides)
        return begun and self._is_over()

    @property
    def n_to_repeat(self) -> int:
        """How many trials were not measured and keep the gate open."""
        open_ = [side.stopper.decision for side in self._sides if side.begun]
        return max((one.n_unmeasured or 0 for one in open_ if not one.is_decided), default=0)

    def finish(self) -> None:
        """Take the last look if every planned trial has finished."""
        for side in self._sides:
            if side.begun:
                side.stopper.finish()

    @property
    def _sides(self) -> list["_Side"]:
        if self._is_waived:
            return []
        return [side for side in (self._first, self._anchor) if side is not None]

    def _is_over(self) -> bool:
        """A failed gate is a failed gate; a passed one waits for the other."""
        failed = any(side.stopper.decision.outcome == "fail" for side in self._sides)
        return failed or all(side.stopper.is_over for side in self._sides)

    def conclude(self) -> "GateVerdict":
        """Say what was found, what it took and what it saved."""
        if self._is_waived and self._consent is not None:
            what = f"regression against {self._first.run.label}: not judged"
            return GateVerdict(0, visible_line(f"{what}; {self._consent.words}"), [])
        self.finish()
        side, output, fresh = self._first, self._output, None
        if output.is_file() and output.stat().st_size:
            fresh = load_run("fresh", output, "trials", "category")
        runs = [side.run] if fresh is None else [side.run, fresh]
        notes = [visible_line(f"note: {note}") for note in differences(align(runs), growing=True)]
        outcome, words = self._outcome(fresh)
        if fresh is not None:
            self._keep(outcome, words, fresh)
        decision, n_trials = side.stopper.decision, self._n_trials
        use = describe_use(decision, n_trials)
        line = f"regression against {side.run.label}: {outcome} ({words}); {use.words}"
        if fresh is not None and (n_more := fresh.health.n_trials - n_trials) > 0:
            others = counted_noun(n_more, "other trial")
            line += f"; {others} that ran at the same time are in the file, not in the decision"
        return GateVerdict(_CODES.get(outcome, _UNDECIDED), visible_line(line), notes)

    @property
    def _n_trials(self) -> int:
        return max(side.stopper.n_trials for side in self._sides)

    def _outcome(self, fresh: Run | None) -> tuple[str, str]:
        """Return what both gates say together, and why."""
        first = self._first
        decision = first.stopper.decision
        outcome, words = str(decision.outcome), decision.words + first.judged_words
        if decision.n_unmeasured:
            words += "; the same command with --resume runs these trials again"
        if fresh is not None and (problems := problems_of(fresh)):
            return "undecided", f"the measurement is unhealthy: {'; '.join(problems)}"
        known = first.changes.words or first.changes.same_graders
        if fresh is not None and not known and (found := unlike(align([first.run, fresh]), 0, 1)):
            return "undecided", NOT_ALIKE + "; ".join(found)
        excused = fresh and outcome == "pass" and unequal_excuses(first.run, fresh)
        if excused:
            return "undecided", excused.could_turn
        if fresh and outcome == "pass" and self._consent is None:
            seen = first.with_changed(fresh)
            if seen is not None and seen <= -_LEAST_SHARE * self._request.margin:
                return "undecided", f"{words}; {_HIDDEN.format(100 * seen)}"
        if self._anchor is None:
            return outcome, words
        second = settled_anchor(self._anchor.stopper.decision, self._request.margin)
        words += f"; against the anchor {self._anchor.run.label}: {second.outcome} ({second.words})"
        both = (outcome, str(second.outcome))
        order = ("fail", "undecided", "go-on", "pass")
        return min(both, key=order.index), words

    def _keep(self, outcome: str, words: str, fresh: Run) -> None:
        first, anchor = self._first, None
        if self._anchor is not None:
            found = settled_anchor(self._anchor.stopper.decision, self._request.margin)
            anchor = AnchorDecision(
                name=self._anchor.run.label,
                outcome=str(found.outcome),
                words=found.words,
                decision=found,
            )
        kept = KeptDecision(
            margin=self._request.margin,
            baseline="",
            fresh="",
            n_trials=self._n_trials,
            decision=first.stopper.decision,
            outcome=outcome,
            words=words,
            against=first.run.label,
            set_aside=first.changes.aside,
            left_out=first.left_out,
            graders=first.changes.same_graders,
            consent=self._consent,
            anchor=anchor,
            worse=first.worse(fresh),
        )
        keep_decision(first.run.path, self._output, kept)

    def _note(self, words: str) -> None:
        self.notes.append(visible_line(f"note: {words}"))

    def _check_changes(self) -> Consent | None:
        """Set prompts aside that changed; refuse more than a few of them, unless it is accepted."""
        side, by = self._first, self._request.accepted_by
        changes = side.changes
        if changes.same_graders:
            self._note(changes.same_graders)
        if not changes.words:
            return None
        consent = Consent(by=by, changes=changes.words) if by else None
        told = consent.words if consent else "; ".join(changes.words)
        self._note(f"changed since {side.run.label} was made: {told}")
        if consent is None and changes.needs_consent(len(side.run.ids)):
            words = f"regression against {side.run.label}: cannot be judged ({NOT_ALIKE}"
            words += f"{'; '.join(changes.words)}); if that is wanted, give --accept-changes"
            raise NotJudged("\n".join([*self.notes, visible_line(words)]))
        if changes.aside:
            self._note(f"{named(changes.aside)} set aside; {side.n_judged} prompts are judged")
        return consent

    def _check_size(self) -> bool:
        """Refuse what can never be decided before an agent is started for it.

        Return whether it was accepted that too few prompts are left.
        """
        side, request = self._first, self._request
        if problems := problems_of(side.run):
            msg = f"{request.against} cannot be compared with: {'; '.join(problems)}"
            raise InputError(msg, hint="measure it again, or give another --against")
        if self._consent is not None and (side.n_judged < FEWEST_UNITS or side.too_few):
            return True
        if side.n_judged < FEWEST_UNITS:
            msg = f"{side.shared}, and at least {FEWEST_UNITS} are needed to decide anything"
            raise InputError(msg, hint="give an earlier run of the same prompts")
        if why := side.too_few:
            raise NotJudged(why)
        return False

    def _open_anchor(self, name: str) -> None:
        """Open the second gate; one that can no longer be judged is said and left out."""
        path = find_anchor(self._request.against, name)
        again = "; set a new one with `assay baseline anchor NAME`"
        try:
            side = _Side(path, self._request)
        except NotJudged as refused:
            self._note(f"the anchor is not judged: {refused}{again}")
            return
        changes = side.changes
        if side.n_judged < FEWEST_UNITS or side.too_few or changes.graders:
            why = "; ".join(changes.graders) or side.shared
            self._note(f"the anchor {side.run.label} is not judged: {why}{again}")
            return
        if changes.words:
            told = "; ".join(changes.words)
            self._note(f"changed since the anchor {side.run.label} was made: {told}")
        self._anchor = side


def settled_anchor(decision: SequentialDecision, margin: float) -> SequentialDecision:
    """Return what the second gate says when no trial is left.

    The first gate has ruled out that this branch loses the margin. The second is there for losses
    that add up: one that it cannot rule out stops a branch only if more than half of the margin is
    seen. Otherwise it would stop many branches that change nothing.
    """
    seen = decision.difference
    if decision.outcome != "undecided" or decision.n_unmeasured or seen is UNSET:
        return decision
    if seen <= -_LEAST_SHARE * margin:
        return decision
    words = f"{decision.words}, but less than half of it is seen: {seen:+.3f}"
    return msgspec.structs.replace(decision, outcome="pass", words=words)


class _Side:
    """An earlier run that fresh trials are compared with, without the prompts that changed."""

    stopper: UntilDecided

    def __init__(self, path: Path, request: GateRequest) -> None:
        self.path, self._margin, self.begun = path, request.margin, False
        self.run = load_run(path.stem, path, detect_kind(path), "category")
        self.run.builds = refuse_drift(self.run)
        self._errors, self.judge_words = calibration_for([self.run], request.judge)
        self.changes: Changes = find_changes(
            self.run, request.specs, request.graders, chosen=request.chosen
        )
        planned = {spec.prompt.id for spec in request.specs}
        ids = np.array(self.run.ids, dtype=object)[self.run.n_measured > 0]
        self._copies = copies_in(request.specs)
        self._judged = planned.intersection(ids) - set(self.changes.aside)
        self._n_planned = len(planned)
        self.left_out = sorted(set(ids) - planned)

    @property
    def n_judged(self) -> int:
        """How many prompts count; copies of one count as one."""
        return len({self._copies.get(id_, id_) for id_ in self._judged})

    @property
    def shared(self) -> str:
        """Say how many prompts can be compared."""
        return f"{self.path} has {self.n_judged} of {counted_noun(self._n_planned, 'prompt')}"

    @property
    def too_few(self) -> str:
        """Say why so few prompts can never pass; empty if they can."""
        smallest = smallest_margin(self.n_judged)
        if smallest is not None and self._margin >= smallest:
            return ""
        return (
            f"{self.shared}. So few can never show that a loss of {self._margin:g} is absent; use "
            f"--margin {smallest or 0.5:g} or more, or more prompts."
        )

    @property
    def judged_words(self) -> str:
        """Say how many prompts were judged, where some were set aside or are not in this run."""
        aside = f", {named(self.changes.aside)} set aside" if self.changes.aside else ""
        if self.left_out:
            aside += f"; {named(self.left_out)} of {self.run.label} not in this run"
        return f"; {self.n_judged} prompts judged{aside}" if aside else ""

    def order(self, seed: int | None) -> Order:
        """Return the order of the prompts, and what it asks of a pass."""
        run = self.run
        return Order(
            seed=seed,
            # Those that changed are not judged, but whether they pass has to be known.
            first=_failed_last(run) | set(self.changes.aside),
            least=-_LEAST_SHARE * self._margin,
            lost_before=(int(run.n_lost.sum()), run.health.n_trials),
        )

    def begin(
        self,
        missing: list[TrialSpec],
        plan: Sequence[TrialSpec],
        earlier: Callable[[], Iterable[Earlier]],
        order: Order,
    ) -> list[TrialSpec]:
        """Begin to compare; return the trials in their order."""
        run, margin = self.run, self._margin
        counts = zip(run.n_passed.tolist(), run.n_measured.tolist(), strict=True)
        tallies = zip(run.ids, counts, strict=True)
        builds = run.builds
        noise = (builds.noise.of_difference(),) if builds and builds.noise else ()
        errors = self._errors

        def decide(look: Look, extremes: ExtremeLooks | None, is_last: bool) -> SequentialDecision:
            look = judged_look(msgspec.structs.replace(look, noise=noise), errors, margin)
            extremes = extremes and extremes.with_noise(noise, errors)
            return decide_gate(look, margin=margin, extremes=extremes, is_last=is_last)

        self.stopper = UntilDecided(
            decide,
            baseline={id_: tally for id_, tally in tallies if id_ in self._judged},
            earlier=earlier,
            plan=plan,
            order=order,
            copies=self._copies,
        )
        self.begun = True
        return self.stopper.begin(missing)

    def with_changed(self, fresh: Run) -> float | None:
        """Return the difference over all prompts, those that changed among them; None without any.

        Whoever breaks prompts could reword just these. Where graders judge otherwise, verdicts of
        both runs cannot be compared.
        """
        changes = self.changes
        changed = {*changes.inputs, *changes.expected, *changes.tasks} - {*changes.regraded}
        before = {
            id_: passed / n
            for id_, passed, n in zip(
                self.run.ids, self.run.n_passed, self.run.n_measured, strict=True
            )
            if n and id_ in self._judged | changed
        }
        found = [
            passed / n - before[id_]
            for id_, passed, n in zip(fresh.ids, fresh.n_passed, fresh.n_measured, strict=True)
            if n and id_ in before
        ]
        return float(np.mean(found)) if changed & before.keys() and found else None

    def worse(self, fresh: Run) -> list[Worse]:
        """Name the prompts that pass less often than before, by more than chance explains."""
        tallies = zip(self.run.n_passed, self.run.n_measured, strict=True)
        before = dict(zip(self.run.ids, tallies, strict=True))
        found = []
        for id_, passed, n in zip(fresh.ids, fresh.n_passed, fresh.n_measured, strict=True):
            if id_ not in self._judged or not n:
                continue
            passed_a, n_a = before[id_]
            if chance_of_drop(int(passed_a), int(n_a), int(passed), int(n)) <= _BY_CHANCE:
                found.append(Worse(id=id_, before=float(passed_a / n_a), after=float(passed / n)))
        return found


def _failed_last(run: Run) -> set[str]:
    """Return the prompts whose newest measured trial failed: they come early in the next run."""
    known = np.flatnonzero(~np.isnan(run.passed))
    newest = dict(zip(run.prompt[known].tolist(), run.passed[known].tolist(), strict=True))
    return {run.ids[prompt] for prompt, passed in newest.items() if not passed}


def refuse_drift(run: Run) -> Builds | None:
    """Refuse a baseline whose builds do not measure the same; return its builds."""
    builds = read_builds(run)
    if builds is not None and builds.problem:
        msg = visible_line(f"{run.path} cannot be judged against: {builds.problem}")
        raise NotJudged(msg)
    return builds
