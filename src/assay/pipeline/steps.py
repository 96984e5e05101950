"""What happens around every trial of a batch: budget, stop rule, retries, rate, first start, edits.

Each of these is a step. A step wraps the function that does a trial, and may hold trials back
before they start; the steps of a batch are one list, the first of them outermost.
"""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from assay import plugins
from assay.errors import AssayError
from assay.pipeline.limiter import RateLimiter, provider_of
from assay.pipeline.loaded import CODE
from assay.plugin import Executor
from assay.records.capture import AnyStep, Failure, Identity
from assay.records.files import hash_file
from assay.records.setup import CHANGED_FILES
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import Trial
from assay.run.process import pause, raise_if_stopping, start_over, stop_all
from assay.run.served import close_served

type OnTrialStep = Callable[[TrialSpec, AnyStep | None], None]
"""Called with each step of a trial; None is its beginning."""
_CHECK_S = 0.1
"""How often a waiting worker checks whether everything is to stop."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


class Outcome(NamedTuple):
    """What a trial came to: the record that is kept, and what the steps around it need."""

    result: Any
    failure: Failure | None = None
    cost_usd: float | None = None
    """None if it is not known."""
    raw: str | None = None
    """Where the raw streams are kept."""
    extra_usd: float = 0.0
    """What judges and a simulated user have cost besides, as far as it is known."""


type DoTrial = Callable[[TrialSpec, OnTrialStep | None], Outcome]


class Step:
    """Something that happens around every trial of a batch; by default nothing does."""

    def around(self, run: DoTrial) -> DoTrial:
        """Return a function that does a trial with run, and this step around it."""
        return run

    def admit(self, specs: Iterable[TrialSpec]) -> Iterable[TrialSpec]:
        """Yield the trials that may start, each when it may; called in the workers' threads."""
        return specs

    def notes(self) -> Iterable[str]:
        """Say at the end of the batch what was assumed."""
        return ()


def with_steps(steps: Sequence[Step], run: DoTrial) -> DoTrial:
    """Put the steps around a function that does a trial; the first step is outermost."""
    for step in reversed(steps):
        run = step.around(run)
    return run


class Budget:
    """What agents may cost, and have cost so far; several batches may share one.

    A running trial has reserved what it may cost: as much as the most expensive so far of its agent
    and model, or an even share of the budget while none is known. A trial of unknown cost counts as
    that much, too. When nothing runs, any rest of the budget is enough to start one trial.
    """

    def __init__(self, max_cost: float | None, n_calls: int) -> None:
        """n_calls is how often agents are to be started."""
        self._max_cost = max_cost
        self._share = (max_cost or 0.0) / max(n_calls, 1)
        self._spent = 0.0
        self._running: dict[int, TrialSpec] = {}
        self._highest: dict[tuple[str, str], float] = {}
        self._changed = threading.Condition()

    @property
    def is_limited(self) -> bool:
        return self._max_cost is not None

    def reserve(self, spec: TrialSpec) -> bool:
        """Return whether there is money for a trial; wait while running ones may leave some."""
        if self._max_cost is None:
            return True
        with self._changed:
            while True:
                # What they reserve grows with the most expensive trial seen meanwhile.
                reserved = sum(map(self.bound, self._running.values()))
                left = self._max_cost - self._spent - reserved
                if left > 0 and (self.bound(spec) <= left or not self._running):
                    self._running[id(spec)] = spec
                    return True
                if not self._running:
                    return False
                self._changed.wait(_CHECK_S)
                raise_if_stopping()

    def settle(self, spec: TrialSpec, cost: float | None) -> float:
        """Count what a trial has cost, or what it reserved if that is not known; return it."""
        with self._changed:
            self._running.pop(id(spec), None)
            if cost is None:
                cost = self.bound(spec)
            else:
                lane = provider_of(spec)
                self._highest[lane] = max(cost, self._highest.get(lane, 0.0))
            self._spent += cost
            self._changed.notify_all()
        return cost

    def spend(self, cost: float) -> None:
        """Count what was paid for something that is no trial, and says nothing of their cost."""
        with self._changed:
            self._spent += cost
            self._changed.notify_all()

    def bound(self, spec: TrialSpec) -> float:
        """Return what a trial may cost."""
        return self._highest.get(provider_of(spec), self._share)

    @property
    def left(self) -> float:
        """What has not been spent; of an unlimited budget there is always enough."""
        return math.inf if self._max_cost is None else max(0.0, self._max_cost - self._spent)


class BudgetGuard(Step):
    """Lets no trial start that the budget may not suffice for."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._unknown: list[float] = []

    def around(self, run: DoTrial) -> DoTrial:
        if not self._budget.is_limited:
            return run

        def paid(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            cost, extra = None, 0.0
            try:
                outcome = run(spec, on_step)
                cost, extra = outcome.cost_usd, outcome.extra_usd
            finally:
                counted = self._budget.settle(spec, cost if cost is None else cost + extra)
                if cost is None and extra:
                    self._budget.spend(extra)
                if cost is None:
                    self._unknown.append(counted)
            return outcome

        return paid

    def admit(self, specs: Iterable[TrialSpec]) -> Iterator[TrialSpec]:
        for spec in specs:
            if not self._budget.reserve(spec):
                return
            yield spec

    def notes(self) -> Iterator[str]:
        if sum(self._unknown):
            n, total = len(self._unknown), sum(self._unknown)
            yield (
                f"The cost of {counted_noun(n, 'trial')} is not known; --max-cost counted "
                f"${total:.4f} for {'it' if n == 1 else 'them'}, as much as the most "
                "expensive trial before, or an even share"
            )


class FolderQueue(Step):
    """Lets trials of one prompt that work in the same folder run one after another.

    Trials of other prompts, and those with a workspace of their own, run beside them. It is the
    first step: what it admits either runs, or is the last that another step lets through.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], deque[tuple[int, TrialSpec]]] = {}
        self._ready: list[tuple[int, TrialSpec]] = []
        self._running: dict[tuple[str, str], int] = {}
        self._changed = threading.Condition()

    @staticmethod
    def is_needed(specs: Iterable[TrialSpec]) -> bool:
        """Whether any two of the trials share their folder and their prompt."""
        shared = [_folder_and_prompt(spec) for spec in specs if not spec.has_own_workspace]
        return len(shared) > len(set(shared))

    def around(self, run: DoTrial) -> DoTrial:
        def in_turn(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            try:
                return run(spec, on_step)
            finally:
                self._ended(spec)

        return in_turn

    def admit(self, specs: Iterable[TrialSpec]) -> Iterator[TrialSpec]:
        for place, spec in enumerate(specs):
            key = _folder_and_prompt(spec)
            if spec.has_own_workspace:
                self._ready.append((place, spec))
            elif key in self._waiting:
                self._waiting[key].append((place, spec))
            else:
                self._ready.append((place, spec))
                self._waiting[key] = deque()
        while (chosen := self._next()) is not None:
            yield chosen

    def _next(self) -> TrialSpec | None:
        with self._changed:
            while not self._ready:
                if not any(self._waiting.values()):
                    return None
                self._changed.wait(_CHECK_S)
                raise_if_stopping()
            _, spec = heappop(self._ready)
            if not spec.has_own_workspace:
                self._running[_folder_and_prompt(spec)] = id(spec)
            return spec

    def _ended(self, spec: TrialSpec) -> None:
        key = _folder_and_prompt(spec)
        with self._changed:
            if self._running.get(key) != id(spec):  # a lost trial ends twice
                return
            del self._running[key]
            if waiting := self._waiting[key]:
                heappush(self._ready, waiting.popleft())
            self._changed.notify_all()


def _folder_and_prompt(spec: TrialSpec) -> tuple[str, str]:
    return spec.surroundings.cwd, spec.prompt.id


class StopRule(Protocol):
    """Ends a batch before its plan does."""

    def begin(self, missing: list[TrialSpec], rows: Any) -> list[TrialSpec]:
        """Return the trials to run, in the order in which they are to start; none if it is over.

        rows has the trials that finished earlier.
        """
        ...

    def add(self, spec: TrialSpec, result: Any) -> bool:
        """Take note of a finished trial; once this returns True, no other trial is started.

        It is called in the threads of the workers, but never by two at once, and before the worker
        takes its next trial.
        """
        ...

    def needs(self, spec: TrialSpec) -> bool:
        """Whether a trial whose turn it is has to be started; one of a decided arm need not be.

        It is asked before there is money for the trial.
        """
        ...


class StopCheck(Step):
    """Tells a stop rule of each finished trial before the worker takes another one."""

    def __init__(self, rule: StopRule, n_slots: Callable[[TrialSpec], int] | None = None) -> None:
        """n_slots returns how many trials other machines can run at once."""
        self._rule, self._n_slots = rule, n_slots
        self._stopped, self._lock = False, threading.Lock()
        self._n_running = 0

    def around(self, run: DoTrial) -> DoTrial:
        def reported(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            outcome = run(spec, on_step)
            with self._lock:
                self._n_running -= 1
                self._stopped = self._rule.add(spec, outcome.result) or self._stopped
            return outcome

        return reported

    def admit(self, specs: Iterable[TrialSpec]) -> Iterator[TrialSpec]:
        slots = self._n_slots
        for spec in specs:
            # A trial that waited for a machine would start there after the decision.
            while not self._stopped and slots and self._n_running >= max(1, slots(spec)):
                pause(_CHECK_S)
            if self._stopped:
                return
            with self._lock:
                self._n_running += 1
            yield spec


class FinishedTrials(Step):
    """Holds what workers have finished until it is kept, so that an early end loses none of it."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[TrialSpec, Any]] = {}

    def around(self, run: DoTrial) -> DoTrial:
        def noted(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            outcome = run(spec, on_step)
            self._waiting[id(spec)] = spec, outcome.result
            return outcome

        return noted

    def take(self, spec: TrialSpec) -> None:
        """Forget a trial, which is kept now."""
        self._waiting.pop(id(spec), None)

    def take_all(self) -> list[tuple[TrialSpec, Any]]:
        """Return, and forget, the trials that nobody has asked for yet."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())


class SameModel(Step):
    """Says whether rows that are continued are answers of another model, asked for by default.

    What was asked for is in the identity of a row; what answers is known only when it has.
    """

    def __init__(self, before: Set[str]) -> None:
        """before has the models that the rows which were there name."""
        self._before = before
        self._now: set[str] = set()

    def around(self, run: DoTrial) -> DoTrial:
        def followed(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            outcome = run(spec, on_step)
            if isinstance(outcome.result, Trial) and outcome.result.agent:
                self._now.add(outcome.result.agent.model or "")
            return outcome

        return followed

    def notes(self) -> Iterator[str]:
        if self._before and (others := self._now - self._before - {""}):
            before, now = (", ".join(sorted(models)) for models in (self._before, others))
            yield (
                f"Warning: this file mixes models: the rows that were there are answers of {before}"
                f", and now {now} answered. Use another -o, and --model to choose one."
            )


class ErrorGuard(Step):
    """Turns an unexpected error into a lost trial; one that is meant for the operator goes on."""

    def __init__(self, lost: Callable[[TrialSpec, str], Outcome]) -> None:
        self._lost = lost

    def around(self, run: DoTrial) -> DoTrial:
        def survived(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            try:
                return run(spec, on_step)
            except AssayError:
                raise
            except Exception as error:  # noqa: BLE001 - one trial never takes the others down with it
                return self._lost(spec, f"{type(error).__name__}: {error}")

        return survived


class FirstTrialGate(Step):
    """Lets the first agent make its first step before the others start."""

    def __init__(self) -> None:
        self._first = threading.Lock()  # taken once and never given back
        self._ready = threading.Event()

    @staticmethod
    def is_needed(spec: TrialSpec) -> bool:
        """Whether an agent sets something up at its first start; its own HOME is nobody else's."""
        alone = plugins.adapter(spec.agent).first_start_alone
        return alone and not spec.surroundings.has_own_home

    def around(self, run: DoTrial) -> DoTrial:
        def in_turn(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            if not self._first.acquire(blocking=False):
                while not self._ready.wait(_CHECK_S):
                    raise_if_stopping()
                return run(spec, on_step)
            try:
                return run(spec, partial(self._note, on_step))
            finally:
                self._ready.set()

        return in_turn

    def _note(self, on_step: OnTrialStep | None, spec: TrialSpec, step: AnyStep | None) -> None:
        if step is not None:
            self._ready.set()
        if on_step is not None:
            on_step(spec, step)


class Retry(Step):
    """Runs a trial again that failed for reasons other than the agent."""

    def __init__(self, retries: int) -> None:
        self._retries = retries

    def around(self, run: DoTrial) -> DoTrial:
        def retried(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            while True:
                outcome = run(spec, on_step)
                failure, tried = outcome.failure, len(spec.retried)
                if failure is None or not failure.may_pass or tried >= self._retries:
                    return outcome
                if failure.retry_after_ms is None:  # otherwise the limiter holds all trials back
                    # Exponential backoff: these failures are mostly the provider's.
                    pause(min(_FIRST_PAUSE_S * 2**tried, _LONGEST_PAUSE_S))
                failure = msgspec.structs.replace(failure, raw=outcome.raw or "")
                spec = msgspec.structs.replace(spec, retried=(*spec.retried, failure))

        return retried if self._retries else run


class RatePacing(Step):
    """Starts no attempt faster than asked for, and none while its provider refuses requests."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    def around(self, run: DoTrial) -> DoTrial:
        def limited(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            self._limiter.wait(spec)  # before the trial's own clock starts
            began_s = time.monotonic()
            outcome = run(spec, on_step)
            self._limiter.note(spec, outcome.failure, began_s)
            return outcome

        return limited


def run_all[R](
    specs: Iterable[TrialSpec],
    run: Callable[[TrialSpec, OnTrialStep | None], R],
    lost: Callable[[TrialSpec, str], tuple[TrialSpec, R]],
    executor: Executor,
    on_step: OnTrialStep | None = None,
) -> Generator[tuple[TrialSpec, R], None, None]:
    """Do every trial; yield each as it finishes. Closing the generator ends the agents."""

    def run_one(spec: TrialSpec) -> tuple[TrialSpec, R]:
        try:
            return spec, run(spec, on_step)
        except BaseException as error:
            # An error that ends the run must end the other agents first: the executor joins all
            # workers, and would wait for their trials.
            if isinstance(error, AssayError) or not isinstance(error, Exception):
                stop_all()
            raise

    start_over()
    results = executor.map(run_one, specs, lost)
    try:
        for result in results:  # noqa: UP028 - `yield from` would end the workers before the agents
            yield result
    except BaseException:
        stop_all()
        raise
    finally:
        if isinstance(results, Generator):
            results.close()  # waits for the workers: graders must not be closed while one asks
        close_served()


type _FileStamp = tuple[int, int, int] | None


class EditCheck(Step):
    """Notes in a trial what was edited since the run began: the trial may be of other code.

    Only code counts: agents write data beside themselves.
    """

    def __init__(self, specs: Iterable[TrialSpec]) -> None:
        self._of: dict[tuple[int, str], dict[str, Path]] = {}
        self._identities: list[Identity] = []
        self._stamps: dict[Path, _FileStamp] = {}
        self._hashes: dict[Path, str] = {}
        for spec in specs:
            key = (id(spec.identity), spec.surroundings.cwd)
            if spec.identity is not None and key not in self._of:
                self._identities.append(spec.identity)  # its id is nobody else's meanwhile
                self._of[key] = self._watch(spec.identity, Path(spec.surroundings.cwd))

    def around(self, run: DoTrial) -> DoTrial:
        """Look at the files when a trial is over."""

        def watched(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            outcome = run(spec, on_step)
            files = self._of.get((id(spec.identity), spec.surroundings.cwd), {})
            changed = [name for name, path in files.items() if self._is_changed(path)]
            if not changed:
                return outcome
            setup = {**(outcome.result.setup or {}), CHANGED_FILES: changed}
            return outcome._replace(result=msgspec.structs.replace(outcome.result, setup=setup))

        return watched

    def _watch(self, identity: Identity, cwd: Path) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for name, known in {**identity.loads, **identity.mcp_files}.items():
            path = cwd / Path(name).expanduser()
            if path.suffix in CODE and not name.endswith("/"):
                files[name] = path
                self._hashes[path] = known
                self._stamps[path] = _file_stamp(path)
        return files

    def _is_changed(self, path: Path) -> bool:
        now = _file_stamp(path)
        if now == self._stamps[path]:
            return False
        if hash_file(path) == self._hashes[path]:
            self._stamps[path] = now
            return False
        return True


def _file_stamp(path: Path) -> _FileStamp:
    try:
        about = os.stat(path)  # noqa: PTH116 - quicker
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns
