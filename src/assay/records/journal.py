"""The output file as a journal: one appended line per finished trial, one writer, never torn."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from assay.errors import OutputError
from assay.records.rows import UNREADABLE, open_rows

type Mode = Literal["new", "resume", "append", "overwrite"]
_BLOCK = 64 * 1024
RESUMABLE = (
    "use --resume to run only what is missing, --append to add rows, or --overwrite to replace it"
)
"""What to do about an output that exists, for commands that can resume."""
DERIVED = "choose another -o, or use --overwrite to replace it"
"""The same for commands whose output can be made again."""


class RowKey(msgspec.Struct, rename="camel", gc=False):
    """What identifies a row, and what it was made from."""

    id: str
    spec_hash: str | None = None
    k: int | None = None


class Journal:
    """Appends whole lines. A kill at any moment can tear at most the last of them."""

    def __init__(self, path: Path, mode: Mode, hint: str = RESUMABLE) -> None:
        self.path = path
        self._fd = _open(path, mode, hint)
        self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
        try:
            # Truncated only under the lock: the rows of a running writer stay.
            self._lock()
            if self._regular and mode == "overwrite":
                os.ftruncate(self._fd, 0)
            elif self._regular:
                _repair(self._fd)
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):  # a pipe or a terminal cannot be synced
            os.fsync(self._fd)
        try:
            # No name leads to the file any more, but its data lives until it is closed.
            if self._regular and os.fstat(self._fd).st_nlink == 0:
                self._put_back()
                msg = f"{self.path} was removed while it was being written"
                if error is None:
                    raise OutputError(
                        msg, hint="all rows were written to it again; raw streams may be missing"
                    )
        finally:
            os.close(self._fd)

    def append(self, line: bytes) -> None:
        """Write one row; on a full disk, no part of it is left behind."""
        data = line + b"\n"
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            if self._regular:  # we hold the lock, so the last bytes are ours
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            msg = f"cannot write to {self.path}: {error.strerror}"
            raise OutputError(
                msg,
                hint="all earlier rows are intact; free some space, then continue with --resume",
            ) from error

    def rows(self) -> Iterator[RowKey]:
        """Yield id and fingerprint of every row that is there."""
        with open_rows(self.path, hint="fix the line, or use --overwrite") as file:
            yield from file.rows(msgspec.json.Decoder(RowKey))

    def _put_back(self) -> None:
        """Write all rows to their path again."""
        done = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("xb") as file:  # x: never over a file that has taken its place
                while chunk := os.pread(self._fd, _BLOCK, done):
                    done += file.write(chunk)
        except OSError as error:
            msg = f"{self.path} was removed while it was being written: {error.strerror}"
            raise OutputError(
                msg, hint="its rows are lost; choose an -o that is not removed"
            ) from error

    def _lock(self) -> None:
        if not self._regular:
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            msg = f"{self.path} is being written by another assay process"
            raise OutputError(msg, hint="wait until it ends, or choose another -o") from error


def _open(path: Path, mode: Mode, hint: str) -> int:
    if mode == "new" and path.is_file() and path.stat().st_size > 0:
        msg = f"{path} already exists"
        raise OutputError(msg, hint=hint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        msg = f"cannot open {path}: {error.strerror}"
        raise OutputError(msg, hint="check the folder and its permissions") from error


def _repair(fd: int) -> None:
    """Drop a last line torn by a kill; one that lacks only its line feed gets it."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return
    start = _last_line_start(fd, size)
    if _is_row(os.pread(fd, size - start, start)):
        os.write(fd, b"\n")
    else:
        os.ftruncate(fd, start)


def _last_line_start(fd: int, size: int) -> int:
    end = size  # backwards, block by block: a row may be longer than a block
    while end > 0:
        begin = max(0, end - _BLOCK)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line, type=dict[str, Any]), dict)
    except UNREADABLE:
        return False
