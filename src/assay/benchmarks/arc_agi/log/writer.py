"""Appends records to a log; each is on disk before the call returns, and one process writes."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from assay.benchmarks.arc_agi.log.records import Record
from assay.benchmarks.arc_agi.problems import LogProblem

# How every log begins.
HEAD = b'{"type":"header",'


class LogWriter:
    """Open a log for appending; a torn last line, left by a kill, is cut off first."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        is_new = not path.exists()
        self._path = path
        self._fd = os.open(path, flags, 0o600)
        self._encode = msgspec.json.Encoder().encode
        self._lock()
        self._repair()
        if is_new:
            _sync_folder(path.parent)

    def append(self, record: Record) -> None:
        """Write one record and wait until the disk has it."""
        size = os.fstat(self._fd).st_size
        line = self._encode(record) + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                message = f"{self._path}: the disk took only a part of a record; is it full?"
                raise OSError(message)
            _sync_data(self._fd)
        except OSError:
            os.ftruncate(self._fd, size)
            raise

    def close(self) -> None:
        """Let go of the file and its lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            message = f"{self._path}: another game process is writing this log; wait until it ends"
            raise LogProblem(message) from None

    def _repair(self) -> None:
        """Cut the file after its last whole line; a file that is no log is left as it is."""
        head = os.pread(self._fd, len(HEAD), 0)
        if not HEAD.startswith(head):
            os.close(self._fd)
            message = f"{self._path}: exists and is not an ARC event log; choose another path"
            raise LogProblem(message)
        end = os.fstat(self._fd).st_size
        while end > 0:
            start = max(0, end - 65536)
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        os.ftruncate(self._fd, end)


# Not every system can sync data without the file's times.
_sync_data = getattr(os, "fdatasync", os.fsync)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
