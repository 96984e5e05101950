"""The loop that capture, trials, run and ARC share: only what is missing, and within budget."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from assay import plugins
from assay.adapters.declared import DeclaredAdapter
from assay.pipeline.run import Batch, BatchProgress, Rows, execute
from assay.records.spec import PluginRef, TrialSpec
from assay.records.trial import Trial


class Output(Rows):
    """Rows in memory; what is there before counts as done."""

    def __init__(self, log: list[str], *done: TrialSpec) -> None:
        self._log = log
        self._done = done

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        self._log.append("missing")
        return [spec for spec in specs if spec not in self._done]

    def add(self, spec: TrialSpec, result: Trial) -> None:
        self._log.append(f"row {result.output}")


@pytest.fixture
def dollar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each trial cost a dollar."""
    monkeypatch.setattr(Trial, "cost_usd", property(lambda trial: 1.0))


class Counter(BatchProgress):
    """Progress that nobody looks at."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.total = -1

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        self.total = len(missing)

    def __exit__(self, *error: object) -> None:
        self._log.append("closed")

    def on_step(self, spec: TrialSpec, step: Any) -> None:
        raise AssertionError("nobody watches")

    def finished(self, spec: TrialSpec, result: Trial) -> None:
        self._log.append(f"counted {result.output}")


def run(specs: list[TrialSpec], log: list[str], *done: TrialSpec, **how: Any) -> Counter:
    @contextmanager
    def place() -> Iterator[None]:
        log.append("place made")
        yield
        log.append("place gone")

    batch = Batch(specs=specs, earlier_tokens=["t" * 16], **how)
    counter, rows = Counter(log), nullcontext(Output(log, *done))
    for result in execute(batch, progress=counter, rows=rows, place=place()):
        log.append(f"yielded {result.output}")
    return counter


def test_only_what_is_missing_runs_inside_the_place(spec: Callable[..., TrialSpec]) -> None:
    specs, log = [spec("a"), spec("b"), spec("c")], []
    progress = run(specs, log, specs[1])
    assert progress.total == 2
    each = [f"{what} {text}" for text in "ac" for what in ("row", "counted", "yielded")]
    assert log == ["place made", "missing", *each, "closed", "place gone"]


@pytest.mark.usefixtures("dollar")
def test_no_trial_begins_when_the_budget_is_spent(spec: Callable[..., TrialSpec]) -> None:
    log: list[str] = []
    progress = run([spec(str(n)) for n in range(9)], log, max_cost=2.0)
    rows = [line for line in log if line.startswith("row")]
    assert rows == ["row 0", "row 1"]
    assert progress.total == 9


def test_nothing_to_run_is_no_error(spec: Callable[..., TrialSpec]) -> None:
    specs, log = [spec("a")], []
    assert run(specs, log, *specs).total == 0
    assert log == ["place made", "missing", "closed", "place gone"]


class Careful(DeclaredAdapter):
    """An agent that sets something up in its HOME when it first starts."""

    first_start_alone = True


class Times(Output):
    """Notes when each trial began, made its first step and ended, in ms since the epoch."""

    def __init__(self) -> None:
        super().__init__([])
        self.times: list[tuple[float, float, float]] = []

    def add(self, spec: TrialSpec, result: Trial) -> None:
        timing = result.timing
        assert timing.first_response
        self.times.append((timing.start, timing.start + timing.first_response, timing.end))


@pytest.mark.parametrize("isolate", [False, True])
def test_the_first_start_in_a_shared_home_is_alone(
    spec: Callable[..., TrialSpec],
    schema: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    isolate: bool,
) -> None:
    monkeypatch.setitem(sys.modules, "careful_adapter", SimpleNamespace(Careful=Careful))
    monkeypatch.setitem(plugins.BUILT_IN["assay.adapters"], "careful", "careful_adapter:Careful")
    ref = PluginRef(name="careful", options={"schema": schema})
    text, around = "!do wait 0.7 ; say hi ; wait 1", {"isolate": isolate}
    specs = [msgspec.structs.replace(spec(text, surroundings=around), agent=ref) for _ in range(4)]
    rows = Times()
    assert len(list(execute(Batch(specs=specs, jobs=4, overlap=True), rows=nullcontext(rows)))) == 4
    (_, first_step, first_end), *others = sorted(rows.times)
    if isolate:
        assert all(began < first_step for began, *_ in others)
    else:
        assert all(first_step - 50 <= began < first_end for began, *_ in others)


def test_what_has_finished_is_kept_when_the_caller_breaks_off(
    spec: Callable[..., TrialSpec], alive: Callable[[], list[int]], eventually: Callable[..., bool]
) -> None:
    """Trials that ended while the caller was busy with the first one are in the rows, too."""
    log: list[str] = []
    specs = [*(spec(text) for text in "abc"), spec("!do deaf ; wait 300")]
    rows = nullcontext(Output(log))
    results = execute(Batch(specs=specs, jobs=4), rows=rows)
    assert next(results).output in "abc"
    assert eventually(lambda: len(alive()) == 1)
    time.sleep(0.3)
    results.close()
    assert sorted(line for line in log if line.startswith("row")) == ["row a", "row b", "row c"]
    assert alive() == []


def test_a_batch_runs_in_any_thread(spec: Callable[..., TrialSpec]) -> None:
    done: list[str] = []

    def work() -> None:
        done.extend(result.output for result in execute(Batch(specs=[spec("a"), spec("b")])))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert sorted(done) == ["a", "b"]
