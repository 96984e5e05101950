"""Temporary files and copies. What they need takes 8 ms to load, so it is loaded at first use."""

import errno
import os
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, BinaryIO

_BLOCK = 1024 * 1024
_FILE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_CANNOT = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
"""What a file system answers that knows no files without names."""


def nameless_file(place: str, handle: int | None = None) -> int:
    """Open a new file without a name in a folder, which may be relative to an open one."""
    if _TMPFILE:
        try:
            return os.open(place, _FILE | _TMPFILE, 0o666, dir_fd=handle)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
    path = f"{place}/.{os.urandom(16).hex()}"  # a name that nobody can guess, for a moment
    fd = os.open(path, _FILE | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=handle)
    os.unlink(path, dir_fd=handle)
    return fd


def copy_bytes(source: int, target: int) -> int:
    """Copy a whole open file to the position of another; return how many bytes."""
    done = 0
    while block := os.pread(source, _BLOCK, done):
        write_all(target, block)
        done += len(block)
    return done


def same_bytes(one: int, other: int) -> bool:
    """Compare two open files."""
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    done = 0
    while block := os.pread(one, _BLOCK, done):
        if block != os.pread(other, len(block), done):
            return False
        done += len(block)
    return True


def write_all(fd: int, data: bytes) -> None:
    """Write all of data, also where the system takes it in pieces."""
    while data:
        data = data[os.write(fd, data) :]


def temporary_file() -> BinaryIO:
    """Return a file without a name, deleted when it is closed."""
    return _tempfile().TemporaryFile()  # type: ignore[no-any-return]


def named_temporary_file() -> BinaryIO:
    """Return a file with a name, deleted when it is closed."""
    return _tempfile().NamedTemporaryFile()  # type: ignore[no-any-return]


def temporary_folder(prefix: str) -> AbstractContextManager[str]:
    """Return a folder as a context, deleted at its end."""
    return _tempfile().TemporaryDirectory(  # type: ignore[no-any-return]
        prefix=prefix, ignore_cleanup_errors=True
    )


def temporary_place() -> str:
    """Return the folder for temporary files, as tempfile finds it but without loading it."""
    return _usable(tuple(map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))))


@cache
def _usable(places: tuple[str | None, ...]) -> str:
    for place in (*places, "/tmp"):
        if place and os.access(place, os.W_OK | os.X_OK):
            return os.path.abspath(place)  # noqa: PTH100
    return str(_tempfile().gettempdir())


def copy_stream(source: BinaryIO, target: BinaryIO) -> None:
    """Copy from where source stands to its end."""
    while block := source.read(_BLOCK):
        target.write(block)


def remove_folder(folder: str, *, missing_ok: bool = False) -> None:
    _shutil().rmtree(folder, ignore_errors=missing_ok)


def copy_folder(source: str, target: str) -> None:
    """Copy a folder into a new one; links stay links."""
    _shutil().copytree(source, target, symlinks=True)


def _tempfile() -> Any:
    import tempfile

    return tempfile


def _shutil() -> Any:
    import shutil

    return shutil
