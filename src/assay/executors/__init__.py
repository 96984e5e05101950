"""Run items in threads of this process: the work is waiting for other processes."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue

import msgspec

from assay.errors import AssayError, OutOfResources
from assay.plugin import Executor

_WAKE_S = 0.1
"""A signal that comes just before the main thread begins to wait does not wake it: its handler runs
only when the wait is over. So no wait is longer than this."""


class LocalExecutor(Executor, msgspec.Struct, frozen=True):
    """Fields are the options a user may set."""

    workers: int = 1

    def map[T, R](
        self, fn: Callable[[T], R], items: Iterable[T], lost: Callable[[T, str], R]
    ) -> Iterator[R]:
        """Yield results as they finish. Items are taken only when a worker is free.

        A thread does not die without its process, but fn may raise an unexpected error: that item
        is lost and the rest go on. An AssayError is meant for the operator and ends the run.
        """
        pool = _Pool(partial(_result, fn, lost), iter(items), self.workers)
        try:
            pool.start()
            yield from pool.results()
        finally:
            pool.stop()


class _Pool[T, R]:
    """Threads that take items and queue results, or the error that ended one of them."""

    def __init__(self, fn: Callable[[T], R], items: Iterator[T], workers: int) -> None:
        self._fn = fn
        self._items = items
        self._pull = threading.Lock()
        self._stopped = False
        self._done: SimpleQueue[tuple[str, R | BaseException | None]] = SimpleQueue()
        self._room = threading.Semaphore(2 * workers)  # results not yet taken: bounds memory
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def start(self) -> None:
        """Start the workers. The caller must call stop, also when this is interrupted."""
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:  # the system has no more threads or memory
            if error.__context__ is not None:  # a signal came while Python waited for a thread
                raise error.__context__ from None
            msg = f"cannot start {len(self._threads)} worker threads: {error}"
            raise OutOfResources(msg, hint="use a smaller -j") from error

    def results(self) -> Iterator[R]:
        """Yield results until every worker has ended."""
        running = len(self._threads)
        while running:
            try:
                kind, value = self._done.get(timeout=_WAKE_S)
            except Empty:
                continue
            if kind == "end":
                running -= 1
                if isinstance(value, BaseException):
                    raise value
                continue
            self._room.release()
            yield value  # type: ignore[misc]

    def stop(self) -> None:
        """Take no more items and wait for running ones; a worker that starts later takes none."""
        self._stopped = True
        # Nobody takes results any more: a worker that waits for room must go on to its end.
        for _ in self._threads:
            self._room.release()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _work(self) -> None:
        try:
            while not self._stopped:
                with self._pull:  # a generator cannot be advanced by two threads at once
                    try:
                        item = next(self._items)
                    except StopIteration:
                        break
                result = self._fn(item)
                self._room.acquire()
                self._done.put(("result", result))
            self._done.put(("end", None))
        except BaseException as error:  # noqa: BLE001 - handed over to the thread that reads
            self._done.put(("end", error))


def _result[T, R](fn: Callable[[T], R], lost: Callable[[T, str], R], item: T) -> R:
    try:
        return fn(item)
    except AssayError:
        raise
    except Exception as error:  # noqa: BLE001 - one item never takes the others down with it
        return lost(item, f"{type(error).__name__}: {error}")
