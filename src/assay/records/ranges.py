"""Work on the lines of a large file with all cores: ranges of it in forked processes, in order.

A range holds the lines that begin in one stretch of the file. How a file is divided depends on
nothing but its bytes, so one core and several do the same and return the same.
"""

import io
import os
import signal
import sys
from collections.abc import Buffer, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast

from assay.errors import OutOfResources
from assay.records.files import temporary_file

_RANGE = 4 * 1024 * 1024
_LARGE = 48 * 1024 * 1024
"""With 24 MB, summarize was slower with two processes than with one."""
_MOST_WORKERS = 8
"""More would wait for the one that puts their results together, and each takes some MB."""
_PIPE = 1024 * 1024
"""What a worker may be ahead; more than the usual 64 kB, after which it would have to wait."""
_STEP = 16 * 1024
_PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""


class Range(NamedTuple):
    """Where lines begin and end in a file; an end of None is that of the file."""

    start: int
    end: int | None


type Work[T] = Callable[[BinaryIO, Range], T]
"""Reads one range of a file. In a forked process: what it changes besides its result is lost."""


def map_ranges[T](file: BinaryIO, work: Work[T]) -> Iterator[T]:
    """Yield what work returns for each range, in order; an error is raised where it occurred."""
    try:
        file.seek(0)  # also writes what is still buffered
        fd = file.fileno()
        ranges = _Ranges(fd)
    except io.UnsupportedOperation:  # in memory
        yield work(file, Range(0, None))
        return
    n_workers = _count_workers(ranges)
    if n_workers > 1:
        yield from _map_in_workers(fd, ranges, work, n_workers)
        return
    for number in range(len(ranges)):
        yield work(file, ranges[number])


def in_copy[T](work: Callable[[], T], what: str) -> T:
    """Do work in a copy of this process, so that a crash of foreign code is only an error here.

    what names the code in that error. What work changes besides its result and files is lost.
    """
    if not hasattr(os, "fork") or _has_threads():
        return work()
    with temporary_file() as said:
        copy = _Worker(())
        if copy.is_child:
            os.dup2(said.fileno(), sys.__stderr__.fileno() if sys.__stderr__ else 2)
            copy.answer_once(work)
        try:
            return cast(T, copy.result())
        except _Killed as error:
            said.seek(0)
            last = said.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            msg = f"{what} ended without an answer{f': {last}' if last else ''}"
            hint = "perhaps memory ran out: ask for less at once, or free some memory"
            raise OutOfResources(msg, hint=hint) from error
        finally:
            copy.end()


class _Ranges:
    """The ranges of a file by number, for a process that asks for them in ascending order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self._found = 0
        """The last line found; a line may be longer than many ranges, and is read only once."""

    def __len__(self) -> int:
        return max(1, -(-self.size // _RANGE))

    def __getitem__(self, number: int) -> Range:
        start = self._line_from(number * _RANGE)
        last = number + 1 == len(self)  # it goes on to the end, also if the file has grown
        return Range(start, None if last else self._line_from((number + 1) * _RANGE))

    def _line_from(self, at: int) -> int:
        """Return where the first line begins that begins there or later."""
        if self._found < at:
            at -= 1  # a line may begin exactly there
            while (found := self._read(at).find(b"\n")) < 0 and at < self.size:
                at += _STEP
            self._found = at + found + 1 if found >= 0 else self.size
        return self._found

    def _read(self, at: int) -> bytes:
        return os.pread(self._fd, max(0, min(_STEP, self.size - at)), at)


def _count_workers(ranges: _Ranges) -> int:
    if ranges.size < _LARGE or sys.platform != "linux" or _has_threads():
        return 1
    return min(len(os.sched_getaffinity(0)), len(ranges), _MOST_WORKERS)


def _has_threads() -> bool:
    """Whether there are threads: a fork copies the locks they hold, but not them."""
    try:
        return len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208
    except OSError:
        return True


def _map_in_workers[T](fd: int, ranges: _Ranges, work: Work[T], n_workers: int) -> Iterator[T]:
    """Worker n does the ranges n, n + n_workers and so on."""
    workers: list[_Worker] = []
    try:
        for first in range(n_workers):
            workers.append(_Worker(workers))
            if workers[-1].is_child:
                workers[-1].answer(fd, ranges, work, range(first, len(ranges), n_workers))
        for number in range(len(ranges)):
            yield workers[number % n_workers].result()
    finally:
        for worker in workers:
            worker.end()


class _Killed(OutOfResources):
    """A worker ended before it had sent its result."""


class _Worker:
    """A copy of this process, which sends its results through a pipe."""

    def __init__(self, others: "Sequence[_Worker]") -> None:
        read, write = os.pipe()
        # Held back while the copy still has our handlers: they would act in our name.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self.is_child:
                _ignore_interrupts()
        except OSError as error:
            os.close(read)
            os.close(write)
            msg = f"cannot fork a process: {error.strerror}"
            raise OutOfResources(msg, hint="free some memory or processes") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self.is_child:  # a pipe breaks only if no other worker has its end open
            for worker in others:
                worker.close()
        os.close(read if self.is_child else write)
        self._pipe = open(write if self.is_child else read, "wb" if self.is_child else "rb")  # noqa: SIM115, PTH123

    @property
    def is_child(self) -> bool:
        return self._pid == 0

    def close(self) -> None:
        self._pipe.close()

    def answer(self, fd: int, ranges: _Ranges, work: Work[Any], numbers: Sequence[int]) -> NoReturn:
        """Work on these ranges, in the copy; nothing of the parent's is flushed or cleaned up."""
        try:
            _enlarge(self._pipe)
            file = cast(BinaryIO, io.BufferedReader(_OwnPosition(fd)))

            def work_on(number: int) -> Any:
                return work(file, ranges[number])

            for number in numbers:
                if not self._send(partial(work_on, number)):
                    break
        finally:
            os._exit(0)

    def answer_once(self, work: Callable[[], Any]) -> NoReturn:
        """Do one piece of work, in the copy, for as long as the parent lives."""
        try:
            _end_with_parent()
            self._send(work)
        finally:
            os._exit(0)

    def _send(self, work: Callable[[], Any]) -> bool:
        """Send the result of some work, or its error; return whether it went well."""
        import pickle  # late: only large files need it

        error, result = None, None
        try:
            result = work()
        except Exception as failure:  # noqa: BLE001 - raised again by the parent
            error = failure
        pickle.dump((error, result), self._pipe, pickle.HIGHEST_PROTOCOL)
        self._pipe.flush()
        return error is None

    def result(self) -> Any:
        """Wait for the next result."""
        import pickle

        try:
            error, result = pickle.load(self._pipe)
        except (EOFError, pickle.UnpicklingError) as lost:
            msg = "a process that reads the file was killed"
            hint = "perhaps memory ran out: look at the system's log"
            raise _Killed(msg, hint=hint) from lost
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        self.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _end_with_parent() -> None:
    """Let the system kill this process when its parent ends: nobody waits for it any more."""
    if sys.platform == "linux":
        import ctypes  # late: a thread that looks for the parent would take much address space

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which ends its workers."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _enlarge(pipe: Any) -> None:
    import fcntl

    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)


class _OwnPosition(io.RawIOBase):
    """A file with a position of its own: forked processes share that of an open file."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at = fd, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}
        self._at = offset + (base[whence] if whence in base else os.fstat(self._fd).st_size)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        n_bytes = os.preadv(self._fd, [buffer], self._at)
        self._at += n_bytes
        return n_bytes
