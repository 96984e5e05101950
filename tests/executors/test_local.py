"""The local executor: lazy, bounded, honest about errors, and quiet when it is closed."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from assay.errors import Interrupted, OutputError
from assay.executors import LocalExecutor


def lost(item: int, why: str) -> int:
    raise AssertionError((item, why))


def test_one_worker_gives_results_in_order() -> None:
    assert list(LocalExecutor(1).map(lambda n: n * 2, range(50), lost)) == [
        n * 2 for n in range(50)
    ]


def test_many_workers_give_every_result_once() -> None:
    assert sorted(LocalExecutor(8).map(lambda n: n, range(500), lost)) == list(range(500))


def test_results_come_as_they_finish() -> None:
    slow = threading.Event()

    def work(n: int) -> int:
        if n == 0:
            slow.wait(10)
        return n

    results = LocalExecutor(2).map(work, range(3), lost)
    assert {next(results), next(results)} == {1, 2}
    slow.set()
    assert list(results) == [0]


def test_workers_really_run_side_by_side() -> None:
    together = threading.Barrier(6)
    assert len(list(LocalExecutor(6).map(lambda _: together.wait(10), range(6), lost))) == 6


def test_items_are_taken_only_when_a_worker_is_free(
    eventually: Callable[..., bool],
) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for n in range(1000):
            taken.append(n)
            yield n

    results = LocalExecutor(2).map(lambda n: n, items(), lost)
    next(results)
    eventually(lambda: len(taken) > 7, 0.3)
    assert len(taken) <= 1 + 2 * 2 + 2 + 1
    results.close()


@pytest.mark.parametrize("error", [OutputError, Interrupted, SystemExit])
def test_an_error_for_the_operator_comes_out_and_ends_the_rest(
    error: type[BaseException],
) -> None:
    done: list[int] = []

    def work(n: int) -> int:
        if n == 5:
            raise error("five")
        done.append(n)
        return n

    with pytest.raises(error, match="five"):
        list(LocalExecutor(2).map(work, range(1000), lost))
    assert len(done) < 100


def test_a_surprise_in_the_function_loses_one_item_and_the_rest_goes_on() -> None:
    def work(n: int) -> str:
        if n == 5:
            raise LookupError("five")
        return str(n)

    results = LocalExecutor(2).map(work, range(20), lambda n, why: f"lost {n}: {why}")
    assert sorted(results) == sorted(
        [str(n) for n in range(20) if n != 5] + ["lost 5: LookupError: five"]
    )


def test_an_error_in_the_items_comes_out() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("bad item")

    with pytest.raises(LookupError, match="bad item"):
        list(LocalExecutor(2).map(lambda n: n, items(), lost))


def test_closing_early_stops_the_workers_and_waits_for_them() -> None:
    running = threading.active_count()
    started: list[int] = []

    def work(n: int) -> int:
        started.append(n)
        time.sleep(0.02)
        return n

    results = LocalExecutor(4).map(work, range(10_000), lost)
    next(results)
    results.close()
    seen = len(started)
    assert threading.active_count() == running
    assert len(started) == seen < 50


def test_no_items_no_results() -> None:
    assert list(LocalExecutor(3).map(lambda n: n, [], lost)) == []


def test_an_interruption_while_workers_are_started_waits_for_those_that_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, ended = threading.Event(), threading.Event()
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        if began.is_set():
            raise KeyboardInterrupt
        start(thread)
        began.wait(10)

    def work(n: int) -> int:
        began.set()
        time.sleep(0.2)
        ended.set()
        return n

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        list(LocalExecutor(4).map(work, range(9), lost))
    assert ended.is_set()


def test_a_signal_while_a_thread_starts_is_no_want_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's own wait for a new thread breaks on an exception of a signal's handler."""

    def interrupted(self: threading.Thread) -> None:
        try:
            raise Interrupted("interrupted")
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(Interrupted):
        list(LocalExecutor(2).map(lambda n: n, range(3), lost))
