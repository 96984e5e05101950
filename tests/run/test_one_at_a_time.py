"""Workers alternate, but none of them ever waits for long, whatever another one does."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from assay.run.family import Mark
from assay.run.one_at_a_time import OneAtATime, one_at_a_time
from assay.run.process import Launch, Process, pause


def in_another_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(timeout=10)
    return results[0]


def got(lock: OneAtATime) -> bool:
    lock.take()
    return lock.give()


def test_only_one_thread_has_it() -> None:
    lock = OneAtATime()
    with lock:
        assert in_another_thread(lambda: got(lock)) is False
    assert in_another_thread(lambda: got(lock)) is True


def test_who_waits_too_long_goes_on_without_it() -> None:
    lock = OneAtATime()
    with lock:
        began_s = time.monotonic()
        assert in_another_thread(lambda: got(lock)) is False
        assert time.monotonic() - began_s < 1
        assert lock.give() is True


def test_a_thread_that_takes_it_twice_does_not_wait_for_itself() -> None:
    lock = OneAtATime()
    with lock, lock:
        pass
    assert in_another_thread(lambda: got(lock)) is True


def test_others_have_it_while_a_worker_waits_for_its_agent() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    launch = Launch(argv=["sleep", "5"], cwd="/", env=dict(os.environ), stdout=null, stderr=null)
    with one_at_a_time:
        process = Process(launch, Mark("test.one-at-a-time"))
        assert in_another_thread(lambda: got(one_at_a_time)) is False
        other = threading.Timer(0.05, lambda: results.append(got(one_at_a_time)))
        results: list[bool] = []
        other.start()
        began_s = time.monotonic()
        while not results and time.monotonic() - began_s < 4:
            process.wait(1)
        assert one_at_a_time.give() is True, "it is taken again after the wait"
    other.join()
    process.end(0)
    process.release()
    os.close(null)
    assert results == [True]


def test_a_pause_does_not_keep_others_waiting() -> None:
    with one_at_a_time:
        pause(0.01)
        assert in_another_thread(lambda: got(one_at_a_time)) is True
