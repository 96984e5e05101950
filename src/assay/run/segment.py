"""A segment: one file with the raw streams of many small trials (see records/raw_streams.py).

Only this process writes to it, by appending whole records of trials that are over. A row is written
after its record, so a kill loses no record that a row names. It can leave a torn record at the end
of the segment, which is cut off by the next run that appends.
"""

import contextlib
import fcntl
import os
import re
import stat
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from assay.records.files import write_all
from assay.records.raw_streams import SegmentHeader, read_header, record_name

_FULL_BYTES = 256 * 1024 * 1024
"""Then another segment is started."""
_REUSED_BYTES = 4 * 1024 * 1024
"""A longer one is not appended to by a later run, which would have to read through it first."""
_COUNTED = re.compile(r"segment-(\d{1,8})(?:-[0-9a-f]{8})?")
"""Names from which the next number follows: it has at most as many digits as can be read."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SegmentWriter:
    """Appends records to the newest segment of a run; threads may share it."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._fd = -1
        self._name = ""
        self._size = 0
        self._inode = 0, 0

    def append(
        self, trial: str, streams: Mapping[str, bytes], folder: int
    ) -> tuple[str, list[str]]:
        """Write the streams of a trial to a segment in an open folder.

        Return the name of the record, and warnings.
        """
        header = SegmentHeader(
            self._run, trial, {name: len(data) for name, data in streams.items()}
        )
        record = b"".join((msgspec.json.encode(header), b"\n", *streams.values(), b"\n"))
        with self._lock:
            warnings = self._check(folder)
            try:
                write_all(self._fd, record)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                raise
            offset, self._size = self._size, self._size + len(record)
            return record_name(self._name, offset), warnings

    def _check(self, folder: int) -> list[str]:
        """Open another segment where there is none, or it is full, or somebody has touched it."""
        if self._fd < 0:
            self._open(folder)
            return []
        try:
            about = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
            touched = (about.st_dev, about.st_ino, about.st_size) != (*self._inode, self._size)
        except FileNotFoundError:
            touched = True
        if not touched and self._size < _FULL_BYTES:
            return []
        name = self._name
        self.close()
        self._open(folder, again=False)
        return [f"somebody removed or changed {name} with earlier raw streams"] if touched else []

    def close(self) -> None:
        """Let other processes append; the next record opens a segment again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, folder: int, *, again: bool = True) -> None:
        """Open the newest segment again, or a new one."""
        # Agents may have put anything under these names.
        found = filter(None, map(_COUNTED.fullmatch, os.listdir(folder)))
        number, name = max(((int(each[1]), each[0]) for each in found), default=(0, ""))
        fd = _opened_again(name, self._run, folder) if name and again else None
        while fd is None:
            # Rows may still name a segment that was lost: none gets its name again.
            name = f"segment-{number + 1}-{os.urandom(4).hex()}"
            with contextlib.suppress(FileExistsError):
                fd = os.open(name, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = os.fstat(fd)
        self._fd, self._name = fd, name
        self._size, self._inode = about.st_size, (about.st_dev, about.st_ino)


def _opened_again(name: str, run: str, folder: int) -> int | None:
    """Open a segment of an earlier process of the same run, without what a kill left torn."""
    try:
        fd = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        if _may_append(about):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process may be writing
            os.ftruncate(fd, _whole_end(fd, os.fstat(fd).st_size, run))
            return fd
    except (OSError, ValueError):
        pass
    os.close(fd)
    return None


def _may_append(about: Any) -> bool:
    # An empty one has lost its records: rows may still name their offsets.
    has_room = 0 < about.st_size < _REUSED_BYTES
    return stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and has_room


def _whole_end(fd: int, size: int, run: str) -> int:
    """Return where the last whole record ends. Raises ValueError for a segment of another run."""
    end = 0
    while end < size and (found := read_header(fd, end)) is not None:
        header, start = found
        if header.run != run:
            msg = f"a segment of {header.run}"
            raise ValueError(msg)
        after = start + sum(header.files.values()) + 1
        if after > size:
            break
        end = after
    return end


def remove_segments(folder: str, names: Iterable[str]) -> None:
    """Remove segments, and nothing else that may be called so."""
    for name in {*names}:
        path = f"{folder}/{name}"
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(path, _FLAGS)
            try:
                is_ours = stat.S_ISREG(os.fstat(fd).st_mode) and read_header(fd, 0) is not None
            finally:
                os.close(fd)
            if is_ours:
                Path(path).unlink()
