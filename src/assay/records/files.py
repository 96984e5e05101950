"""Temporary files and copies. What they need takes 8 ms to load, so it is loaded at first use."""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from assay import system

_BLOCK = 1024 * 1024
_SHORT = 12
"""Hex digits of a hash: enough to tell the few set-ups of a user apart."""
_FILE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


def nameless_file(place: str, handle: int | None = None) -> int:
    """Open a new file without a name in a folder, which may be relative to an open one."""
    made = system.open_nameless(place, _FILE, handle)
    if made is not None:
        return made
    path = f"{place}/.{os.urandom(16).hex()}"  # a name that nobody can guess, for a moment
    fd = os.open(path, _FILE | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=handle)
    os.unlink(path, dir_fd=handle)
    return fd


def copy_bytes(source: int, target: int) -> int:
    """Copy a whole open file to the position of another; return how many bytes."""
    done = 0
    while block := os.pread(source, _BLOCK, done):
        write_all(target, block)
        done += len(block)
    return done


def next_data(fd: int, offset: int) -> int:
    """Return where the next bytes of a file are that are no hole; a very large number at its end.

    Where the system cannot tell, the offset itself.
    """
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        return sys.maxsize if error.errno == errno.ENXIO else offset


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
    return _TemporaryFolder(prefix)


class _TemporaryFolder(AbstractContextManager[str]):
    """Deleted with the process if its context is never left."""

    def __init__(self, prefix: str) -> None:
        # By the process in the name, what a kill leaves is known.
        prefix = f"{prefix}{os.getpid()}-{_pid_namespace()}-"
        self._made = _tempfile().TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)

    def __enter__(self) -> str:
        return str(self._made.name)

    def __exit__(self, *_: object) -> None:
        _is_removed_file(self._made.name)
        self._made.cleanup()


def abandoned_folders() -> Iterator[Path]:
    """Yield the temporary folders of this user whose processes were killed."""
    with suppress(OSError), os.scandir(temporary_place()) as entries:
        for entry in entries:
            found = _TEMPORARY.fullmatch(entry.name)
            if found is None or found[2] != _pid_namespace() or entry.is_symlink():
                continue
            is_ours = entry.is_dir() and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if is_ours and not system.process_exists(int(found[1])):
                yield Path(entry.path)


def remove_abandoned_folders() -> None:
    """Remove what killed processes have left: agents' logins, and copies of rows."""
    for path in list(abandoned_folders()):
        with suppress(OSError):
            remove_folder(str(path), missing_ok=True)


_TEMPORARY = re.compile(r"assay-(?:[a-z]+-)?([0-9]{1,10})-([0-9a-f]{4})-[a-z0-9_]{8}")


@cache
def _pid_namespace() -> str:
    """Return a mark of the processes that this one sees: others may share its temporary folder."""
    return system.pid_namespace()


def _is_removed_file(path: str) -> bool:
    """Remove what stands under the name of a folder and is none; return whether that was so.

    An agent may have put a FIFO there: to open it, as shutil does, would wait for ever.
    """
    with suppress(OSError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108 - this module is loaded at every start
            return True
    return False


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
    """Remove a folder, or what stands under its name; no link is followed."""
    if _is_removed_file(folder):
        return
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        if not missing_ok:
            raise
    except OSError:
        _make_removable(folder)
        shutil.rmtree(folder, ignore_errors=missing_ok)


def _make_removable(folder: str) -> None:
    """Let the owner change all folders in a folder: an agent may have forbidden that."""
    with suppress(OSError):
        os.chmod(folder, 0o700)  # noqa: PTH101
        for place, folders, _ in os.walk(folder):
            for path in (f"{place}/{name}" for name in folders):
                if not os.path.islink(path):  # noqa: PTH114
                    os.chmod(path, 0o700)  # noqa: PTH101


def copy_folder(source: str, target: str) -> None:
    """Copy a folder into a new one; links stay links.

    Where the file system can, a copy shares its blocks with the original until either is written
    to. Hard links would not do: who may chmod a file, as the agent may, could write to all others.
    """
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)
    except shutil.Error as error:  # its text is a list of tuples
        first, *others = error.args[0]
        more = f", and {len(others)} more" if others else ""
        msg = f"{first[0]}: {first[2]}{more}"
        raise OSError(msg) from error


def _copy_file(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    if not follow_symlinks and os.path.islink(source):  # noqa: PTH114
        shutil.copy2(source, target, follow_symlinks=False)
        return
    if not _cloned(source, target):
        shutil.copyfile(source, target)
    shutil.copystat(source, target)


def _cloned(source: str, target: str) -> bool:
    """Make a file that shares the blocks of another one; return whether the file system can."""
    if not stat.S_ISREG(os.stat(source).st_mode):  # noqa: PTH116 - a FIFO would wait for ever
        return False
    with open(source, "rb") as old, open(target, "wb") as new:  # noqa: PTH123
        return system.share_blocks(old.fileno(), new.fileno())


def copy_with_linked(source: Path, target: Path, names: Sequence[str] = ()) -> None:
    """Copy a folder so that its links still lead to the same.

    What lies outside of the folder is put in place of a relative link, which would lead elsewhere
    from the copy, and of every link at or below one of the names. Other links stay links.
    """
    copy_folder(str(source), str(target))
    _replace_links(source.resolve(), target, names, ())


def _replace_links(
    source: Path, target: Path, names: Sequence[str], done: tuple[Path, ...]
) -> None:
    for path in [path for path in _everything(source) if path.is_symlink()]:
        name = path.relative_to(source)
        linked = _outside(path, source)
        if linked is None or linked in done:
            continue
        is_named = any(name.is_relative_to(other) for other in names)
        if path.readlink().is_absolute() and not is_named:
            continue
        copy = target / name
        copy.unlink()
        if linked.is_dir():
            copy_folder(str(linked), str(copy))
            below = ("",) if is_named else ()
            _replace_links(linked, copy, below, (*done, linked))
        else:
            shutil.copy2(linked, copy)


def _outside(link: Path, folder: Path) -> Path | None:
    """Return the file or folder outside of a folder that a link in it leads to."""
    try:
        linked = link.resolve(strict=True)
    except (OSError, RuntimeError):  # to nothing, or round in a circle
        return None
    around = linked == folder or linked in folder.parents
    is_kept = around or linked.is_relative_to(folder)
    return linked if not is_kept and (linked.is_dir() or linked.is_file()) else None


def _tempfile() -> Any:
    import tempfile

    return tempfile


def short_hash(data: bytes) -> str:
    """Hash some bytes."""
    return hashlib.sha256(data).hexdigest()[:_SHORT]


def read_regular(path: Path, most_bytes: int = -1) -> bytes:
    """Read a file that an agent may have put there: no link, and no FIFO that would block us."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(most_bytes)


def read_kept(path: Path) -> bytes:
    """Read a file of an earlier run: an agent may have put a FIFO there, or one without end."""
    if path.lstat().st_size > _MOST_KEPT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return read_regular(path, _MOST_KEPT)


_MOST_KEPT = 1 << 30


def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle of evidence does: rows never do."""
    try:
        return path.is_file() and read_regular(path, 4) == b"PK\3\4"
    except (OSError, ValueError):
        return False


def hash_file(path: Path) -> str:
    """Hash the content of a file; say why if it cannot be read."""
    try:
        return short_hash(path.read_bytes())
    except OSError as error:
        return f"unreadable: {error.strerror}"


_OWNERS = ~0o077
"""Rights of others depend on the umask of whoever made a clone."""


def hash_folder(folder: Path, *, own_mode: bool = False) -> str:
    """Hash a folder: names, contents, modes and links, with what they lead to outside of it.

    With own_mode, also the permissions of the folder itself.
    """
    total = hashlib.sha256()
    if own_mode:
        total.update(f"{folder.stat().st_mode & _OWNERS:o}\0".encode())
    _add_to_hash(total, folder, ())
    return total.hexdigest()[:_SHORT]


def _add_to_hash(total: Any, folder: Path, done: tuple[Path, ...]) -> None:
    for path in sorted(_everything(folder)):
        about = os.lstat(path)
        name = os.fsencode(path.relative_to(folder))
        total.update(b"%b\0%o\0" % (name, about.st_mode & _OWNERS))
        linked = None
        if path.is_symlink():
            total.update(os.fsencode(path.readlink()))
            linked = _outside(path, folder.resolve())
        file = linked or path
        if linked and linked.is_dir():
            # Not of an absolute link: that folder is not copied, and may be very large.
            if not path.readlink().is_absolute() and linked not in done:
                _add_to_hash(total, linked, (*done, linked))
        elif file.is_file() and (linked or not path.is_symlink()):
            with file.open("rb") as open_file:
                total.update(hashlib.file_digest(open_file, "sha256").digest())


def _everything(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(path, name)


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Write to a new file in the same folder, then rename it; what a kill left there goes."""
    # Cut, because a name may have only 255 bytes.
    start = f".{path.name[:100]}."
    new = path.with_name(f"{start}{os.urandom(4).hex()}")
    _remove_abandoned(path.parent, start)
    try:
        with new.open("xb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
        if path.exists():
            new.chmod(path.stat().st_mode & 0o777)
        new.replace(path)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk, for example, does not say whose it is
        raise


def _remove_abandoned(folder: Path, start: str) -> None:
    """Remove what processes that were killed have left of a new file; nobody has it locked."""
    left: list[Path] = []
    with suppress(OSError):
        names = (path for path in folder.iterdir() if path.name.startswith(start))
        left = [path for path in names if _HEX.fullmatch(path.name[len(start) :])]
    for path in left:
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                about = os.fstat(fd)
                # Not one that another process is just making.
                if stat.S_ISREG(about.st_mode) and time.time() - about.st_mtime > _ABANDONED_S:
                    path.unlink()
            finally:
                os.close(fd)


_HEX = re.compile("[0-9a-f]{8}")
_ABANDONED_S = 60.0
