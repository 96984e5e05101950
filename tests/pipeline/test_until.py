"""The stopper of a gate: results count in the order of the plan, the arms take turns."""

from collections.abc import Callable

import msgspec
import pytest

from assay.pipeline.changes import copies_in
from assay.pipeline.gate import settled_anchor
from assay.pipeline.until import Order, UntilAllDecided, UntilDecided
from assay.records.capture import Cause, Failure, Grade, Timing
from assay.records.spec import Prompt, TrialSpec
from assay.records.trial import Trial
from assay.stats.sequential import (
    ExtremeLooks,
    Look,
    SequentialDecision,
    decide_effect,
    decide_gate,
)


def result(passed: bool | None, cause: Cause | None = None) -> Trial:
    capture = Trial(
        id="p",
        input="q",
        output="",
        trajectory=[],
        metadata={},
        timing=Timing(start=0, end=1, total=1),
    )
    if passed is not None:
        capture.grade = Grade(pass_=passed, score=float(passed))
    if cause is not None:
        capture.failure = Failure(cause=cause, message="why")
    return capture


@pytest.fixture
def plan(spec: Callable[..., TrialSpec]) -> Callable[[int, int], list[TrialSpec]]:
    def make(n: int, k: int) -> list[TrialSpec]:
        one = spec("q")
        return [
            msgspec.structs.replace(one, prompt=Prompt(id=f"p{i}", input="q"), number=number)
            for i in range(n)
            for number in range(1, k + 1)
        ]

    return make


def gate(look: Look, extremes: ExtremeLooks | None, is_last: bool) -> SequentialDecision:
    return decide_gate(look, margin=0.3, extremes=extremes, is_last=is_last)


BASELINE = {f"p{i}": (5, 5) for i in range(40)}


def test_each_prompt_once_before_any_twice(plan: Callable):
    order = UntilDecided(gate, baseline=BASELINE).begin(plan(12, 2))
    assert [spec.number for spec in order] == [1] * 12 + [2] * 12
    ids = [spec.prompt.id for spec in order]
    assert ids[:12] == ids[12:]
    assert ids[:12] != [f"p{i}" for i in range(12)]


def test_prompts_without_a_baseline_come_last(plan: Callable):
    order = UntilDecided(gate, baseline={"p3": (1, 1), "p7": (1, 1)}).begin(plan(12, 2))
    assert {spec.prompt.id for spec in order[:4]} == {"p3", "p7"}


def test_the_arms_of_a_prompt_take_turns(plan: Callable):
    specs = plan(8, 1)
    both = [
        msgspec.structs.replace(spec, prompt=Prompt(id=f"p{i % 4}", input="q"))
        for i, spec in enumerate(specs)
    ]
    arms = {id(spec): int(i >= 4) for i, spec in enumerate(both)}
    order = UntilDecided(gate, arm_of=lambda spec: arms[id(spec)]).begin(both)
    assert [arms[id(spec)] for spec in order] == [0, 1] * 4


def test_what_hangs_is_waited_for(plan: Callable):
    """The first trial fails slowly: until it has finished, no success behind it counts."""
    stopper = UntilDecided(gate, baseline=BASELINE)
    order = stopper.begin(plan(40, 1))
    assert not any(stopper.add(spec, result(True)) for spec in order[1:])
    assert stopper.n_trials == 0
    assert stopper.add(order[0], result(False))
    assert stopper.n_trials == 40
    assert stopper.decision.outcome == "pass"


@pytest.mark.parametrize("seed", range(5))
def test_a_pass_waits_for_the_prompts_that_come_last(plan: Callable, seed: int):
    """Whatever is broken is what would have come last: the rest alone would have passed."""
    options = {"baseline": BASELINE, "order": Order(seed=seed, least=-0.15)}
    specs = plan(40, 1)
    order = UntilDecided(gate, **options).begin(specs)
    for n_broken, outcome in ((0, "pass"), (2, "pass"), (14, "fail")):
        stopper = UntilDecided(gate, **options)
        assert stopper.begin(specs) == order
        for place, spec in enumerate(order):
            is_over = stopper.add(spec, result(place < 40 - n_broken))
            if place == 25:
                assert "14 prompts must run before it counts" in stopper.decision.words
            if is_over:
                break
        assert stopper.decision.outcome == outcome
        assert (place == 39) == (outcome == "pass")


def test_what_was_not_measured_leaves_a_pass_open(plan: Callable):
    stopper = UntilDecided(gate, baseline=BASELINE)
    order = stopper.begin(plan(40, 1))
    for i, spec in enumerate(order):
        stopper.add(spec, result(None, Cause.PROVIDER) if i % 2 else result(True))
    assert stopper.finish().outcome == "undecided"
    assert "all that was not measured had failed" in stopper.decision.words


def test_trials_of_an_earlier_run_count(plan: Callable):
    earlier = [(1, f"p{i}", 1, True) for i in range(40)]
    stopper = UntilDecided(
        gate, order=Order(), baseline=BASELINE, earlier=lambda: earlier, plan=plan(40, 2)
    )
    missing = [spec for spec in plan(40, 2) if spec.number == 2]
    assert stopper.begin(missing) == []
    assert stopper.decision.outcome == "pass"


def test_what_hung_when_a_run_was_interrupted_is_waited_for_when_it_goes_on(plan: Callable):
    """All others passed; but those that hang, and fail, are just those that are missing."""
    specs = plan(40, 2)
    order = UntilDecided(gate, baseline=BASELINE).begin(specs)
    hung = {spec.prompt.id for spec in order[5:20]}
    earlier = [(1, s.prompt.id, s.number, True) for s in specs if s.prompt.id not in hung]
    stopper = UntilDecided(
        gate, order=Order(), baseline=BASELINE, earlier=lambda: earlier, plan=specs
    )
    missing = stopper.begin([spec for spec in specs if spec.prompt.id in hung])
    assert stopper.n_trials == 5
    assert {spec.prompt.id for spec in missing} == hung
    for spec in missing:
        if stopper.add(spec, result(False)):
            break
    assert stopper.finish().outcome == "fail"


def test_trials_outside_the_plan_do_not_count(plan: Callable):
    earlier = [(1, f"p{i}", 1, True) for i in range(12, 40)]
    stopper = UntilDecided(
        gate, order=Order(), baseline=BASELINE, earlier=lambda: earlier, plan=plan(12, 1)
    )
    assert len(stopper.begin(plan(12, 1))) == 12
    assert stopper.n_trials == 0


@pytest.mark.parametrize(
    ("trial", "passed"),
    [
        (result(True), True),
        (result(False), False),
        (result(None), None),
        (result(None, Cause.AGENT_TIMEOUT), False),
        (result(None, Cause.PROVIDER), None),
    ],
)
def test_what_counts(trial: Trial, passed: bool | None):
    assert trial.passed is passed


def test_a_gate_ends_when_nothing_can_be_measured(plan: Callable):
    stopper = UntilDecided(gate, baseline=BASELINE)
    order = stopper.begin(plan(40, 8))
    ends = [stopper.add(spec, result(None, Cause.AUTH)) for spec in order[:20]]
    assert ends == [False] * 19 + [True]
    assert stopper.finish().outcome == "undecided"


def arms_of(plan: Callable, n_arms: int, n: int, k: int) -> tuple[list[TrialSpec], dict[int, int]]:
    """Return the trials of all arms in turn, and the arm of each by its id()."""
    turns = list(zip(*(plan(n, k) for _ in range(n_arms)), strict=True))
    turns.sort(key=lambda specs: specs[0].number)
    arms = {id(spec): arm for specs in turns for arm, spec in enumerate(specs)}
    return [spec for specs in turns for spec in specs], arms


def effect(size: float) -> Callable:
    def decide(look: Look, extremes: ExtremeLooks | None, is_last: bool) -> SequentialDecision:
        return decide_effect(look, effect=size, extremes=extremes, is_last=is_last)

    return decide


def test_nothing_is_the_same_before_every_prompt_has_run_in_both_arms(plan: Callable):
    """Twenty prompts would decide; what is broken may be among the other twenty."""
    specs, arms = arms_of(plan, 2, 40, 2)
    rule = UntilDecided(effect(0.3), arm_of=lambda spec: arms[id(spec)], plan=specs, order=None)
    order = rule.begin(specs)
    assert not any(rule.add(spec, result(True)) for spec in order[: 2 * 30])
    assert rule.decision.outcome == "go-on"
    assert rule.decision.words.endswith("; 10 prompts must run before it counts")
    assert not any(rule.add(spec, result(True)) for spec in order[2 * 30 : 2 * 40 - 1])
    assert rule.add(order[2 * 40 - 1], result(True))
    assert rule.decision.outcome == "same"


def test_a_decided_arm_gets_no_more_trials(plan: Callable):
    """Of two treatments one is decided at once; the other goes on, and so does the control."""
    specs, arms = arms_of(plan, 3, 30, 2)

    def rule(key: int) -> UntilDecided:
        own = [spec for spec in specs if arms[id(spec)] in (0, key)]
        return UntilDecided(
            effect(0.1), arm_of=lambda spec: int(arms[id(spec)] == key), plan=own, order=None
        )

    rules = {"1": rule(1), "2": rule(2)}
    both = UntilAllDecided(rules, lambda spec: str(arms[id(spec)]))
    run = []
    for spec in both.begin(specs):
        if both.needs(spec):
            run.append(arms[id(spec)])
            both.add(spec, result(run[-1] == 1))
    assert rules["1"].decision.outcome == "better"
    assert run.count(1) < 30
    assert run.count(2) == run.count(0) == 60
    again = UntilAllDecided(rules, lambda spec: str(arms[id(spec)]))
    assert not again.needs(specs[1])


@pytest.mark.parametrize(
    ("seen", "outcome"), [(-0.02, "pass"), (-0.08, "undecided"), (0.05, "pass")]
)
def test_an_anchor_that_is_not_decided_stops_only_what_is_seen_to_have_lost(
    seen: float, outcome: str
):
    found = decide_gate(Look(50, seen, 0.5), margin=0.12, is_last=True)
    assert found.outcome == "undecided"
    settled = settled_anchor(found, 0.12)
    assert settled.outcome == outcome
    assert ("less than half of it is seen" in settled.words) == (outcome == "pass")
    lost = msgspec.structs.replace(found, n_unmeasured=3)
    assert settled_anchor(lost, 0.12).outcome == "undecided"
    failed = decide_gate(Look(50, -0.5, 0.1), margin=0.12)
    assert settled_anchor(failed, 0.12) is failed


def test_copies_of_a_prompt_are_further_trials_of_it(spec: Callable[..., TrialSpec]) -> None:
    """Six copies of each of four prompts: too few for any decision, however often they pass."""
    one = spec("q")
    specs = [
        msgspec.structs.replace(one, prompt=Prompt(id=f"p{i}", input=f"q{i % 4}"))
        for i in range(24)
    ]
    copies = copies_in(specs)
    assert copies == {f"p{i}": f"p{i % 4}" for i in range(4, 24)}
    baseline = {f"p{i}": (0, 5) for i in range(24)}
    for known, outcome in ((copies, "undecided"), ({}, "pass")):
        rule = UntilDecided(gate, baseline=baseline, plan=specs, copies=known)
        for each in rule.begin(specs):
            rule.add(each, result(True))
        found = rule.finish()
        assert (found.outcome, found.n_units) == (outcome, 24 if not known else 4)
