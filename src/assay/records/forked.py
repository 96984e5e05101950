"""Compute in copies of this process, which send their results back. They run no other program.

It stands here and not in run/ because every stage reads files, and a large file is read by several
processes at once (see ranges.py).
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn, cast

from assay import system
from assay.errors import OutOfResources
from assay.records.files import temporary_file
from assay.system.calls import die_with_parent

_PIPE = 1024 * 1024
"""What a worker may be ahead; more than the usual 64 kB, after which it would have to wait."""


def compute_in_child_process[T](work: Callable[[], T], what: str) -> T:
    """Do work in a copy of this process, so that a crash of foreign code is only an error here.

    what names the code in that error. What work changes besides its result and files is lost.
    """
    if not hasattr(os, "fork") or has_threads():
        return work()
    with temporary_file() as said:

        def do() -> Iterator[T]:
            die_with_parent()  # nobody waits for it once that has ended
            os.dup2(said.fileno(), sys.__stderr__.fileno() if sys.__stderr__ else 2)
            yield work()

        worker = ForkedWorker(do)
        try:
            return worker.result()
        except WorkerKilled as error:
            said.seek(0)
            last = said.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            msg = f"{what} ended without an answer{f': {last}' if last else ''}"
            hint = "perhaps memory ran out: ask for less at once, or free some memory"
            raise OutOfResources(msg, hint=hint) from error
        finally:
            worker.end()


def has_threads() -> bool:
    """Whether there are threads: a fork copies the locks they hold, but not them."""
    return system.has_threads() is not False


class WorkerKilled(OutOfResources):
    """A worker ended before it had sent its result."""


class ForkedWorker[T]:
    """A copy of this process, which sends its results through a pipe."""

    def __init__(
        self, work: Callable[[], Iterator[T]], others: "Sequence[ForkedWorker[T]]" = ()
    ) -> None:
        """Work yields the results. The others were forked before and live as long as this one."""
        self._results: BinaryIO
        read, write = os.pipe()
        # Held back while the copy still has our handlers: they would act in our name.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self._pid == 0:  # Ctrl-C is for the parent, which ends its workers
                for number in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except OSError as error:
            os.close(read)
            os.close(write)
            msg = f"cannot fork a process: {error.strerror}"
            raise OutOfResources(msg, hint="free some memory or processes") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._pid == 0:
            for worker in others:  # a pipe breaks only if no other worker has its end open
                worker._results.close()
            os.close(read)
            _send_results(work, write)
        os.close(write)
        self._results = open(read, "rb")  # noqa: SIM115, PTH123

    def result(self) -> T:
        """Wait for the next result."""
        try:
            error, result = pickle.load(self._results)
        except (EOFError, pickle.UnpicklingError) as lost:
            msg = "a process that reads the file was killed"
            hint = "perhaps memory ran out: look at the system's log"
            raise WorkerKilled(msg, hint=hint) from lost
        if error is not None:
            raise error
        return cast(T, result)

    def end(self) -> None:
        """Kill it if it has not ended."""
        self._results.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _send_results(work: Callable[[], Iterator[Any]], fd: int) -> NoReturn:
    """Be the copy: send each result, or the first error; nothing of the parent's is cleaned up."""
    try:
        system.widen_pipe(fd, _PIPE)
        pipe, results, error = open(fd, "wb"), work(), None  # noqa: SIM115
        while error is None:
            result = None
            try:
                result = next(results)
            except StopIteration:
                break
            except Exception as raised:  # noqa: BLE001 - raised again by the parent
                error = raised
            pickle.dump((error, result), pipe, pickle.HIGHEST_PROTOCOL)
            pipe.flush()
    finally:
        os._exit(0)
