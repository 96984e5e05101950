"""The one loop that runs a batch of trials: leftovers, workers, budget, rows, progress."""

import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any, Protocol

import msgspec

from assay import plugins
from assay.errors import AssayError
from assay.pipeline.limiter import RateLimiter, provider_of
from assay.pipeline.stages import AskingHost, OnTrialStep
from assay.plugin import Executor
from assay.records.capture import AnyStep
from assay.records.spec import PluginRef, TrialSpec
from assay.records.text import counted_noun
from assay.run.family import end_leftovers, no_strays
from assay.run.host import close_served
from assay.run.one_at_a_time import one_at_a_time
from assay.run.process import pause, raise_if_stopping, start_over, stop_all
from assay.run.resources import allow_open_files
from assay.run.trial import check_program

_STOP_S = 0.1
"""How often a waiting worker checks whether everything is to stop."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The trials to run, and how."""

    specs: list[TrialSpec]
    """All that were asked for; those that have a result already are left out later."""
    run_token: str
    resume: bool = False
    """Whether an earlier run of this output may have left agents behind, to be ended."""
    workers: int = 1
    max_cost: float | None = None
    """In dollars; once they are spent, no other trial is started."""
    budget: "Budget | None" = None
    """The same, where other batches and questions to agents are paid from it, too."""
    rate_per_s: float | None = None
    """Most trials of one provider and model that are started in a second."""
    executor: PluginRef = PluginRef(name="local")
    """Where the trials run."""

    @property
    def is_local(self) -> bool:
        return self.executor.name == "local"


class Work[R](Protocol):
    """What is done with each trial.

    It may have a `limiter` too, a RateLimiter that it asks before each start of an agent.
    """

    def prepare(self) -> None:
        """Get ready while there are no threads yet: what is forked must be forked before them."""
        ...

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> R:
        """Do one trial, in any thread; on_step is called for each step."""
        ...

    def lost(self, spec: TrialSpec, why: str) -> R:
        """Return the result of a trial whose worker died."""
        ...

    def cost_usd(self, result: R) -> float | None:
        """Return what a trial cost, None if that is not known."""
        ...


class Rows[R](Protocol):
    """Where results go."""

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials that have no result there yet."""
        ...

    def add(self, spec: TrialSpec, result: R) -> None:
        """Save one result, so that a kill cannot lose it."""
        ...


class Stopper[R](Protocol):
    """Ends a batch before its plan does."""

    def begin(self, missing: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials to run, in the order in which they are to start; none if it is over."""
        ...

    def add(self, spec: TrialSpec, result: R) -> bool:
        """Take note of a finished trial; once this returns True, no other trial is started.

        It is called in the threads of the workers, but never by two at once, and before the worker
        takes its next trial.
        """
        ...


class BatchProgress(AbstractContextManager[object, None], Protocol):
    """Shows how far the batch is.

    It may have `waiting(seconds, why)` too, called in a worker's thread when trials have to wait.
    """

    @property
    def watches(self) -> bool:
        """Whether on_step is wanted: it costs a little."""
        ...

    def on_step(self, spec: TrialSpec, step: AnyStep | None) -> None:
        """Take note, in a worker's thread, that a trial began (no step) or made a step."""
        ...

    def finished(self, spec: TrialSpec, result: Any) -> None:
        """Count one finished trial."""
        ...

    def note(self, text: str) -> None:
        """Keep a sentence for the end of the run."""
        ...


def run_batch[R, S: BatchProgress](
    batch: Batch,
    work: Work[R],
    rows: Rows[R],
    show: Callable[[list[TrialSpec]], S],
    place: AbstractContextManager[object] | None = None,
    stopper: Stopper[R] | None = None,
) -> S:
    """Run the trials that have no result yet; return the progress made by show(these trials).

    place is entered once nothing of an earlier run is alive, and left when all trials are done.
    Trials that run when the stopper ends the batch finish and are kept.
    """
    limiter: RateLimiter | None = getattr(work, "limiter", None)
    work.prepare()
    if batch.resume:
        end_leftovers(batch.run_token)
    with place or nullcontext(), no_strays():
        missing = rows.missing(batch.specs)
        if stopper is not None:
            missing = stopper.begin(missing)
        workers = max(1, min(batch.workers, len(missing)))
        check_startable(missing, workers, here=batch.is_local)
        with (progress := show(missing)):
            executor = _executor(batch, workers)
            if (connect := getattr(executor, "connect", None)) is not None:
                work = _elsewhere(work, connect(), missing, batch.run_token)
            n_slots = getattr(work, "n_slots", None)
            if workers > 1 and any(map(_first_start_alone, _by_agent(missing))):
                work = _FirstAlone(work)
            stopping = _Stopping(work, stopper, n_slots)
            shared = batch.budget or Budget(batch.max_cost, len(missing))
            budget = _Budgeted(stopping, shared)
            if limiter is not None:
                limiter.interval_s = 1 / batch.rate_per_s if batch.rate_per_s else 0.0
                limiter.on_wait = getattr(progress, "waiting", None)
                AskingHost.limiter.on_wait = limiter.on_wait
            on_step = progress.on_step if progress.watches else None
            chosen = stopping.until_stopped(budget.affordable(missing))
            with closing(run_all(chosen, budget, executor, on_step)) as done:
                for spec, result in done:
                    rows.add(spec, result)
                    progress.finished(spec, result)
            for text in budget.notes():
                progress.note(text)
    return progress


def _executor(batch: Batch, workers: int) -> Executor:
    options = {**batch.executor.options, "workers": workers}
    return plugins.executor(PluginRef(name=batch.executor.name, options=options))


def _elsewhere(work: Any, cluster: Any, missing: list[TrialSpec], run_token: str) -> Any:
    """Return work that runs its trials on other machines, once these are known to be fit."""
    from assay.pipeline.remote import RemoteTrials  # late: few runs need it

    remote = RemoteTrials(cluster)
    remote.prepare(missing, run_token)
    return msgspec.structs.replace(work, elsewhere=remote.attempt, n_slots=remote.n_slots)


def check_startable(specs: Sequence[TrialSpec], workers: int, *, here: bool = True) -> None:
    """Refuse trials that cannot be run, before the first of them and before any row.

    If they do not run here, the other machines are asked later for the agent's program.
    """
    allow_open_files(min(workers, max(1, len(specs))))
    for spec in _by_agent(specs):
        if here:
            check_program(spec)
        if check := getattr(plugins.adapter(spec.agent), "check_trials", None):
            check([each for each in specs if each.agent is spec.agent])


def _by_agent(specs: Sequence[TrialSpec]) -> Iterable[TrialSpec]:
    """Return one trial of each agent: a run has many trials of few."""
    return {id(spec.agent): spec for spec in reversed(specs)}.values()


def run_all[R](
    specs: Iterable[TrialSpec],
    work: Work[R],
    executor: Executor,
    on_step: OnTrialStep | None = None,
) -> Generator[tuple[TrialSpec, R], None, None]:
    """Do every trial; yield each as it finishes. Closing the generator ends the agents."""
    start_over()
    results = executor.map(partial(_run_one, work, on_step), specs, partial(_lost, work))
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


def _run_one[R](work: Work[R], on_step: OnTrialStep | None, spec: TrialSpec) -> tuple[TrialSpec, R]:
    try:
        with one_at_a_time if _only_starts_a_program(spec) else nullcontext():
            return spec, work.run(spec, on_step)
    except BaseException as error:
        # An error that ends the run must end the other agents first: the executor joins all
        # workers, and would wait for their trials.
        if isinstance(error, AssayError) or not isinstance(error, Exception):
            stop_all()
        raise


def _only_starts_a_program(spec: TrialSpec) -> bool:
    """Whether nothing is copied, opened or confined for a trial, which may take long."""
    around = spec.surroundings
    prepares = around.workspace_dir or around.own_home or around.snapshot or spec.is_confined
    return not prepares and spec.benchmark.name == "prompts"


def _lost[R](work: Work[R], spec: TrialSpec, why: str) -> tuple[TrialSpec, R]:
    return spec, work.lost(spec, why)


def _first_start_alone(spec: TrialSpec) -> bool:
    # A HOME of its own is shared with no other agent.
    alone: bool = getattr(plugins.adapter(spec.agent), "first_start_alone", False)
    return alone and not spec.surroundings.own_home


class _FirstAlone[R]:
    """Does the work, but lets the first agent make its first step before the others start."""

    def __init__(self, work: Work[R]) -> None:
        self._work = work
        self._first = threading.Lock()  # taken once and never given back
        self._ready = threading.Event()
        self.prepare, self.lost, self.cost_usd = work.prepare, work.lost, work.cost_usd

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> R:
        if not self._first.acquire(blocking=False):
            one_at_a_time.give()
            while not self._ready.wait(_STOP_S):
                raise_if_stopping()
            return self._work.run(spec, on_step)
        try:
            return self._work.run(spec, partial(self._step, on_step))
        finally:
            self._ready.set()

    def _step(self, on_step: OnTrialStep | None, spec: TrialSpec, step: AnyStep | None) -> None:
        if step is not None:
            self._ready.set()
        if on_step is not None:
            on_step(spec, step)


class _Stopping[R]:
    """Does the work, and asks the stopper before the worker takes another trial."""

    def __init__(
        self,
        work: Work[R],
        stopper: Stopper[R] | None,
        n_slots: Callable[[TrialSpec], int] | None = None,
    ) -> None:
        """n_slots returns how many trials other machines can run at once."""
        self._work, self._stopper, self._n_slots = work, stopper, n_slots
        self._stopped, self._lock = False, threading.Lock()
        self._n_running = 0
        self.prepare, self.cost_usd = work.prepare, work.cost_usd

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> R:
        return self._told(spec, self._work.run(spec, on_step))

    def lost(self, spec: TrialSpec, why: str) -> R:
        return self._told(spec, self._work.lost(spec, why))

    def until_stopped(self, specs: Iterable[TrialSpec]) -> Iterator[TrialSpec]:
        """Yield trials until the stopper has heard enough."""
        for spec in specs:
            # A trial that waited for a machine would start there after the decision.
            while not self._stopped and self._is_full(spec):
                pause(_STOP_S)
            if self._stopped:
                return
            with self._lock:
                self._n_running += 1
            yield spec

    def _is_full(self, spec: TrialSpec) -> bool:
        if self._stopper is None or self._n_slots is None:
            return False
        return self._n_running >= max(1, self._n_slots(spec))

    def _told(self, spec: TrialSpec, result: R) -> R:
        if self._stopper is not None:
            with self._lock:
                self._n_running -= 1
                self._stopped = self._stopper.add(spec, result) or self._stopped
        return result


class Budget:
    """What agents may cost, and have cost so far; several batches may share one.

    A running trial has reserved what it may cost: as much as the dearest so far of its agent and
    model, or an even share of the budget while none is known. A trial of unknown cost counts as
    that much, too. When nothing runs, any rest of the budget is enough to start one trial.
    """

    def __init__(self, max_cost: float | None, n_calls: int) -> None:
        """n_calls is how often agents are to be started."""
        self._max_cost = max_cost
        self._share = (max_cost or 0.0) / max(n_calls, 1)
        self._spent = 0.0
        self._running: dict[int, TrialSpec] = {}
        self._dearest: dict[tuple[str, str], float] = {}
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
                # What they reserve grows with the dearest trial seen meanwhile.
                reserved = sum(map(self.bound, self._running.values()))
                left = self._max_cost - self._spent - reserved
                if left > 0 and (self.bound(spec) <= left or not self._running):
                    self._running[id(spec)] = spec
                    return True
                if not self._running:
                    return False
                self._changed.wait(_STOP_S)
                raise_if_stopping()

    def settle(self, spec: TrialSpec, cost: float | None) -> float:
        """Count what a trial has cost, or what it reserved if that is not known; return it."""
        with self._changed:
            self._running.pop(id(spec), None)
            if cost is None:
                cost = self.bound(spec)
            else:
                lane = provider_of(spec)
                self._dearest[lane] = max(cost, self._dearest.get(lane, 0.0))
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
        return self._dearest.get(provider_of(spec), self._share)

    @property
    def left(self) -> float:
        """What has not been spent; of an unlimited budget there is always enough."""
        return math.inf if self._max_cost is None else max(0.0, self._max_cost - self._spent)


class _Budgeted[R]:
    """Does the work, and lets no trial start that the budget may not suffice for."""

    def __init__(self, work: Work[R], budget: Budget) -> None:
        self._work, self._budget = work, budget
        self._unknown: list[float] = []
        self.prepare, self.lost, self.cost_usd = work.prepare, work.lost, work.cost_usd

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> R:
        if not self._budget.is_limited:
            return self._work.run(spec, on_step)
        cost: float | None = None
        try:
            result = self._work.run(spec, on_step)
            cost = self._work.cost_usd(result)
        finally:
            counted = self._budget.settle(spec, cost)
            if cost is None:
                self._unknown.append(counted)
        return result

    def affordable(self, specs: Iterable[TrialSpec]) -> Iterator[TrialSpec]:
        """Yield trials while there is money for them."""
        for spec in specs:
            if not self._budget.reserve(spec):
                return
            yield spec

    def notes(self) -> Iterator[str]:
        """Say what was assumed."""
        if sum(self._unknown):
            n, total = len(self._unknown), sum(self._unknown)
            yield (
                f"The cost of {counted_noun(n, 'trial')} is not known; --max-cost counted "
                f"${total:.4f} for {'it' if n == 1 else 'them'}, as much as the dearest trial "
                "before, or an even share"
            )
