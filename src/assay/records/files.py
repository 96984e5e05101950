"""Temporary files and copies. What they need takes 8 ms to load, so it is loaded at first use."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

_BLOCK = 1024 * 1024
_SHORT = 12
"""Hex digits of a hash: enough to tell the few set-ups of a user apart."""
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


def copy_part(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    """Copy some bytes of a file, inside the system where it can."""
    with suppress(OSError):  # one of them is in memory, or the system cannot
        fds = target.fileno(), source.fileno()
        target.flush()
        while start < end and (n_bytes := os.sendfile(*fds, start, end - start)):
            start += n_bytes
    target.seek(0, os.SEEK_END)
    source.seek(start)
    while start < end and (block := source.read(min(_BLOCK, end - start))):
        target.write(block)
        start += len(block)


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


def short_hash(data: bytes) -> str:
    """Hash some bytes."""
    return hashlib.sha256(data).hexdigest()[:_SHORT]


def hash_file(path: Path) -> str:
    """Hash the content of a file; say why if it cannot be read."""
    try:
        return short_hash(path.read_bytes())
    except OSError as error:
        return f"unreadable: {error.strerror}"


def hash_folder(folder: Path) -> str:
    """Hash a folder: names, contents, modes and the targets of links."""
    total = hashlib.sha256()
    for path in sorted(_everything(folder)):
        about = os.lstat(path)
        total.update(f"{path.relative_to(folder)}\0{about.st_mode:o}\0".encode(errors="replace"))
        if path.is_symlink():
            total.update(os.fsencode(path.readlink()))
        elif path.is_file():
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:_SHORT]


def _everything(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(path, name)
