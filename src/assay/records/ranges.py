"""Work on the lines of a large file with all cores: ranges of it in forked processes, in order.

A range holds the lines that begin in one stretch of the file. How a file is divided depends on
nothing but its bytes, so one core and several do the same and return the same.
"""

import io
import os
from collections.abc import Buffer, Callable, Iterator
from functools import partial
from typing import BinaryIO, NamedTuple, cast

from assay import system
from assay.records.forked import ForkedWorker, has_threads

_RANGE = 4 * 1024 * 1024
_LARGE = 48 * 1024 * 1024
"""With 24 MB, summarize was slower with two processes than with one."""
_MOST_WORKERS = 8
"""More would wait for the one that puts their results together, and each takes some MB."""
_STEP = 16 * 1024


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


def _count_workers(ranges: "_Ranges") -> int:
    if ranges.size < _LARGE or has_threads():
        return 1
    return min(len(system.usable_cpus()), len(ranges), _MOST_WORKERS)


def _map_in_workers[T](fd: int, ranges: "_Ranges", work: Work[T], n_workers: int) -> Iterator[T]:
    """Worker n does the ranges n, n + n_workers and so on."""
    workers: list[ForkedWorker[T]] = []
    try:
        for first in range(n_workers):
            numbers = range(first, len(ranges), n_workers)
            todo = partial(_work_on_ranges, fd, ranges, work, numbers)
            workers.append(ForkedWorker(todo, others=workers))
        for number in range(len(ranges)):
            yield workers[number % n_workers].result()
    finally:
        for worker in workers:
            worker.end()


def _work_on_ranges[T](fd: int, ranges: "_Ranges", work: Work[T], numbers: range) -> Iterator[T]:
    file = cast(BinaryIO, io.BufferedReader(_OwnPosition(fd)))
    for number in numbers:
        yield work(file, ranges[number])


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
