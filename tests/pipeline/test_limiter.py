"""Providers that refuse: how long they ask for, and that no worker starts a trial before."""

import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay.pipeline import limiter as limiter_module
from assay.pipeline.extract import checked_excuse
from assay.pipeline.limiter import RateLimiter, provider_of, with_pause
from assay.pipeline.steps import Budget, BudgetGuard, Outcome
from assay.records.capture import Cause, Failure
from assay.records.spec import PluginRef, TrialSpec


def failed(message: str, cause: Cause = Cause.PROVIDER) -> Failure:
    return Failure(cause=cause, message=message)


@pytest.mark.parametrize(
    ("message", "stderr", "expected"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", "", 0),
        ("Rate limit reached for gpt-5. Please try again in 1.242s.", "", 1242),
        ("Rate limit reached. Please try again in 350ms.", "", 350),
        ("429: try again in 2m", "", 120_000),
        ("API Error: Request rejected (429)", "retry-after: 7", 7000),
        ("[API Error: Resource exhausted]", "  retryDelayMs: 2500,\n  status: 429", 2500),
        ("[API Error: Resource exhausted]", "  retryDelayMs: undefined,", 0),
        ("Repeated 529 Overloaded errors", "", 0),
        ("500 internal error", "retry-after: 7", None),
        ("[API Error: You have exhausted your daily quota on this model.]", "429", None),
        ("Quota exceeded. Check your plan and billing details.", "", None),
    ],
)
def test_the_pause_is_read_from_what_the_agent_prints(
    message: str, stderr: str, expected: float | None
) -> None:
    assert with_pause(failed(message), stderr).retry_after_ms == expected


def test_only_a_providers_failure_asks_for_a_pause() -> None:
    crash = failed("429 Too Many Requests", Cause.AGENT_CRASH)
    assert with_pause(crash, "retry-after: 9") == crash


def of_model(spec: TrialSpec, model: str) -> TrialSpec:
    agent = PluginRef(name="demo", options={"model": model})
    return msgspec.structs.replace(spec, agent=agent)


def refused(after_ms: float = 0) -> Failure:
    return Failure(cause=Cause.PROVIDER, message="429", retry_after_ms=after_ms)


def test_a_refusal_holds_back_this_provider_and_model_only(spec: Callable[..., TrialSpec]) -> None:
    limiter, told = RateLimiter(), []
    limiter.on_wait = lambda seconds, why: told.append((round(seconds, 1), why))
    one, other = spec("a"), of_model(spec("b"), "anthropic/opus")
    assert provider_of(other) == ("anthropic", "opus")
    limiter.wait(one)
    limiter.note(one, refused(300), time.monotonic())
    began_s = time.monotonic()
    limiter.wait(other)
    assert time.monotonic() - began_s < 0.2
    threads = [threading.Thread(target=limiter.wait, args=(one,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.28 < time.monotonic() - began_s < 1
    assert told == [(0.3, "for the provider (429)")]  # once, not for each worker


def test_pauses_grow_until_a_trial_succeeds(
    spec: Callable[..., TrialSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(limiter_module.time, "monotonic", lambda: clock[0])
    slept: list[float] = []

    def pause(seconds: float) -> None:
        slept.append(round(seconds, 3))
        clock[0] += seconds

    monkeypatch.setattr(limiter_module, "pause", pause)
    limiter, one = RateLimiter(), spec("a")
    for _ in range(8):
        began_s = clock[0]
        clock[0] += 0.1
        limiter.note(one, refused(), began_s)
        limiter.note(one, refused(), began_s)  # ran beside it: counts once
        limiter.wait(one)
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60]
    limiter.note(one, None, clock[0])
    limiter.note(one, refused(), clock[0] + 1)
    limiter.wait(one)
    assert slept[-1] == 1
    for longest_s in (60, 7):  # --longest-wait, whatever the provider, or an agent, asks for
        limiter.longest_s = longest_s
        limiter.note(one, refused(10_000_000), clock[0] + 2)
        limiter.wait(one)
        assert slept[-1] == longest_s


def test_a_rate_spaces_the_starts(spec: Callable[..., TrialSpec]) -> None:
    limiter = RateLimiter()
    limiter.interval_s = 0.1
    starts: list[float] = []

    def work() -> None:
        for _ in range(3):
            limiter.wait(spec("a"))
            starts.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    starts.sort()
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert min(gaps) > 0.08
    assert starts[-1] - starts[0] < 3


class Paid:
    """Trials that cost so much one after the other, within a budget."""

    def __init__(self, budget: Budget, *costs: float | None) -> None:
        left = iter(costs)
        self.step = BudgetGuard(budget)
        self.run = self.step.around(lambda spec, on_step: Outcome(None, cost_usd=next(left)))


def test_running_trials_reserve_what_the_most_expensive_cost(
    spec: Callable[..., TrialSpec],
) -> None:
    paid = Paid(Budget(1.0, 100), 0.3, 0.1)
    trials = [spec(str(n)) for n in range(100)]
    plan = paid.step.admit(trials)
    first = next(plan)
    paid.run(first, None)  # 0.3 are spent, and each trial may cost as much
    second, third = next(plan), next(plan)  # 0.6 are reserved
    waiting: list[TrialSpec] = []
    thread = threading.Thread(target=lambda: waiting.append(next(plan)))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()  # a fourth might pass the budget
    paid.run(second, None)  # cost only 0.1: 0.4 spent, 0.3 reserved, 0.3 left
    thread.join(5)
    assert waiting == [trials[3]]
    assert third is trials[2]


def test_unknown_costs_count_by_the_bound_and_are_told(spec: Callable[..., TrialSpec]) -> None:
    paid = Paid(Budget(1.0, 4), *[None] * 9)  # 0.25 each
    done = [paid.run(each, None) for each in paid.step.admit([spec(str(n)) for n in range(9)])]
    assert len(done) == 4
    (note,) = paid.step.notes()
    assert "The cost of 4 trials is not known" in note
    assert "$1.0000" in note


def test_the_rest_of_a_budget_is_enough_for_one_more_trial(
    spec: Callable[..., TrialSpec],
) -> None:
    paid = Paid(Budget(1.0, 9), *[0.4] * 9)
    done = [paid.run(each, None) for each in paid.step.admit([spec(str(n)) for n in range(9)])]
    assert len(done) == 3  # 0.8 spent, 0.2 left: as with one worker ever since


def test_claude_and_opencode_tell_the_pause(tmp_path: Path) -> None:
    from assay.adapters.claude.stream import refusal_ms
    from assay.adapters.opencode import _of_error
    from assay.adapters.opencode.files import OpenCodeLog

    assert refusal_ms({"error_status": 429, "retry_delay_ms": 1043}) == 1043
    assert refusal_ms({"error_status": 500, "retry_delay_ms": 1043}) is None
    error = json.loads(
        '{"name":"APIError","data":{"message":"slow down","statusCode":429,'
        '"responseHeaders":{"retry-after":"3"}}}'
    )
    assert _of_error(error, OpenCodeLog()).retry_after_ms == 3000


SEEN = {"connections": 1, "opaque": 0, "failed": 0, "dropped": 0, "refused": 0}


@pytest.mark.parametrize(
    ("cause", "seen", "expected", "by", "pause"),
    [
        (Cause.PROVIDER, {}, Cause.PROVIDER, "the agent only", 9.0),
        (Cause.HARNESS, {}, Cause.HARNESS, "the agent only", 9.0),
        (Cause.PROVIDER, {"answers": {"500": 1}, "last": "500"}, Cause.PROVIDER,
         "the gateway", None),
        (Cause.PROVIDER, {"answers": {"429": 1}, "last": "429"}, Cause.PROVIDER,
         "the gateway", 9.0),
        (Cause.PROVIDER, {"failed": 2, "last": "failed"}, Cause.PROVIDER, "the gateway", None),
        # Not at the end, or of a kind that an agent can provoke: nothing is proved.
        (Cause.PROVIDER, {"answers": {"500": 1, "200": 4}, "last": "200"}, Cause.PROVIDER,
         "the agent only", None),
        *((Cause.PROVIDER, {"answers": {status: 1}, "last": status}, Cause.PROVIDER,
           "the agent only", None) for status in ("408", "501", "505", "599")),
        (Cause.AUTH, {"answers": {"401": 1}, "last": "401"}, Cause.AUTH, "the agent only", None),
        (Cause.PROVIDER, {"opaque": 1}, Cause.PROVIDER, "the agent only", 9.0),
        (Cause.PROVIDER, {"dropped": 1}, Cause.PROVIDER, "the agent only", None),
        (Cause.PROVIDER, {"proxied": True}, Cause.PROVIDER, "the agent only", None),
        (Cause.PROVIDER, {"refused": 1}, Cause.PROVIDER, "the agent only", None),
        (Cause.AUTH, {"connections": 0}, Cause.AUTH, "the agent only", None),
        # It never asked, or was always answered well: that is its own failure.
        (Cause.PROVIDER, {"connections": 0}, Cause.AGENT_CRASH, "", None),
        (Cause.AUTH, {"answers": {"200": 3}, "last": "200"}, Cause.AGENT_CRASH, "", None),
    ],
)  # fmt: skip
def test_an_excuse_is_compared_with_what_the_gateway_saw(cause, seen, expected, by, pause) -> None:
    reported = Failure(cause=cause, message="500", retry_after_ms=9.0)
    found = checked_excuse(reported, {**SEEN, "answers": {}, "last": "", **seen} if seen else {})
    assert (found.cause, found.reported_by, found.retry_after_ms) == (expected, by, pause)
    assert found.is_unverified == (by == "the agent only")
