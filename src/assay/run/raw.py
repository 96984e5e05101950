"""The raw streams of a trial: files without a name while the agent runs, kept when it has ended.

An agent runs with our rights and can find out where its stdout is. What has no name cannot be
replaced by a link, a folder or a FIFO. When all processes of the trial have ended, small streams
are appended to a segment (see records/raw_streams.py), large ones get names in a folder; both below
open directory handles, so that no link is followed.

Two forms, because neither serves for both. Measured: 100,000 trials of 400 bytes take 6.6 s of CPU
time and leave one file of 47 MB in segments, and 14.1 s and 300,000 names on 1,175 MB in folders. A
stream of 512 MB gets its name in 1 ms; to copy it into a segment takes 9 s, and the disk twice.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from assay import system
from assay.errors import OutputError
from assay.records.files import (
    nameless_file,
    next_data,
    remove_folder,
    temporary_folder,
    temporary_place,
    write_all,
)
from assay.records.raw_streams import (
    SESSION_FILES,
    SegmentHeader,
    read_header,
    record_name,
    segment_of,
)
from assay.run.process import raise_if_stopping

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_STARTED_NS = time.time_ns()
_OURS = r"\d+\.(in|out|err)|files|game\.jsonl"
_LABELS = ("security.selinux", "security.SMACK64", "security.ima", "security.evm")
"""Attributes that the system gives every file."""
_BLOCK = 1024 * 1024
_PACKED_BYTES = 256 * 1024
"""Most that the streams of a trial may have together to be packed."""
_FULL_BYTES = 256 * 1024 * 1024
"""A segment that has this many is full, and another one is begun."""
_NUMBERED = re.compile(r"segment-(\d{1,8})(?:-[0-9a-f]{8})?")
"""Names from which the next number follows: it has at most as many digits as can be read."""


class RawStreams:
    """The raw streams of one trial."""

    def __init__(self, parent: str | None, run: str | None = None) -> None:
        """Parent is where the streams will be; None when they are not kept.

        With the token of the run, small ones are packed with those of its other trials.
        """
        self._parent = parent
        self._run = run
        self._fds: dict[str, int] = {}
        self._made: dict[str, os.stat_result] = {}
        self._ends: dict[str, int] = {}
        self._lent: list[int] = []
        self._temporary = contextlib.ExitStack()

    def __enter__(self) -> "RawStreams":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __contains__(self, name: str) -> bool:
        return name in self._fds

    def close(self) -> None:
        """Close all files; those that were not kept are gone then."""
        for fd in (*self._fds.values(), *self._lent):
            os.close(fd)
        self._fds, self._lent = {}, []
        self._temporary.close()

    def make(self, name: str) -> int:
        """Return a new file that is open for appending and will be kept under this name."""
        parent = self._parent
        if parent is None:
            fd = nameless_file(temporary_place())
        else:
            fd = _in_folder(parent, partial(nameless_file, "."))
        self._fds[name], self._made[name] = fd, os.fstat(fd)
        return fd

    def make_in_memory(self, name: str) -> int:
        """The same, in memory; drop it if nothing was written to it.

        Most agents write nothing to stderr, and making a file costs more than all else we do
        for it.
        """
        fd = system.open_memory_file("stream")
        if fd is None:
            return self.make(name)
        self._fds[name] = fd
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        return fd

    def write(self, name: str, data: bytes) -> int:
        """Keep these bytes under a name, which may contain folders; return the open file."""
        fd = self.make(name)
        write_all(fd, data)
        return fd

    def lend(self, data: bytes) -> str:
        """Return a path of these bytes for a process to read; they are not kept."""
        fd = nameless_file(temporary_place())
        self._lent.append(fd)
        write_all(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)  # not every system opens it anew under that path
        return f"/dev/fd/{fd}"

    def add(self, name: str, path: Path) -> None:
        """Keep a file of ours that is about to be removed; a link is not followed."""
        self._run = None  # what a world keeps is looked for in a folder
        self._fds[name] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def fd(self, name: str) -> int:
        """Return the open file."""
        return self._fds[name]

    def path(self, name: str) -> str:
        """Return a path under which this process can open the file again."""
        return f"/dev/fd/{self._fds[name]}"

    def drop(self, name: str) -> None:
        """Close a file that holds nothing."""
        os.close(self._fds.pop(name))

    def cut(self, name: str, end: int) -> None:
        """Keep no more than these bytes, whatever size somebody gave the file."""
        if name in self._fds:
            self._ends[name] = end
            about = os.fstat(self._fds[name])
            if about.st_size > end or about.st_blocks * 512 > 2 * about.st_size + _PACKED_BYTES:
                with contextlib.suppress(OSError):  # root can forbid it, even to itself
                    os.ftruncate(self._fds[name], min(about.st_size, end))

    def cut_streams(self) -> list[tuple[str, int, int]]:
        """Return the streams that will be kept: name, open file and where they end."""
        if self._parent is None:
            return []
        return [(name, fd, self._end(name)) for name, fd in self._fds.items() if name in self._ends]

    def _end(self, name: str) -> int:
        n_bytes = os.fstat(self._fds[name]).st_size
        return min(n_bytes, self._ends.get(name, n_bytes))

    def forget(self, name: str) -> None:
        """Close a file that nobody needs any more, unless it is to be kept."""
        if self._parent is None and name in self._fds:
            os.close(self._fds.pop(name))

    @property
    def place(self) -> str:
        """The folder whose disk the streams are on."""
        return self._parent or temporary_place()

    @property
    def has_session_files(self) -> bool:
        """Whether session files of the agent were kept."""
        return any(name.startswith(f"{SESSION_FILES}/") for name in self._fds)

    def keep(self, folder: str) -> tuple[str | None, Path | None, list[str]]:
        """Put all files into a folder of this name, or pack them if they are small.

        Return the name by which they are found, a folder with the agent's session files, if any,
        and warnings: another name is taken when something stands under this one already.
        """
        parent = self._parent
        try:
            if parent is None:
                return None, self._copy_session_files(folder), []
            moved = _restore(parent)
            if (small := self._read_small()) is not None:
                assert self._run is not None
                append = partial(_segment_writer(parent, self._run).append, folder, small)
                name, warnings = _in_folder(parent, append)
                return name, self._copy_session_files(folder), moved + warnings
            name, warnings = _in_folder(parent, partial(self._put_into, folder))
        except OSError as error:
            msg = f"cannot write raw streams to {parent}: {error.strerror}"
            raise OutputError(msg, hint="free some space, or choose another --raw-dir") from error
        session_files = Path(parent, name, SESSION_FILES) if self.has_session_files else None
        return name, session_files, moved + warnings

    def _copy_session_files(self, folder: str) -> Path | None:
        """Return a folder with the agent's session files that lasts as long as this object."""
        if not self.has_session_files:
            return None
        parent = self._temporary.enter_context(temporary_folder("assay-"))
        with _opened(parent) as handle:
            name, _ = self._put_into(folder, handle)
        return Path(parent, name, SESSION_FILES)

    def _read_small(self) -> dict[str, bytes] | None:
        """Return all streams if they are to be packed and small enough."""
        if self._run is None:
            return None
        found, left = {}, _PACKED_BYTES
        for name, fd in self._fds.items():
            n_bytes = self._end(name)
            left -= n_bytes
            if left < 0:
                return None
            found[name] = os.pread(fd, n_bytes, 0)
        return found

    def _put_into(self, folder: str, parent: int) -> tuple[str, list[str]]:
        """Give all files a name in a new folder; return its name and what a reader should know."""
        number, name, warnings = 1, folder, []
        while True:
            try:
                os.mkdir(name, dir_fd=parent)
                break
            except FileExistsError:
                number += 1
                name = f"{folder}.{number}"
        if name != folder and _is_new(folder, parent):
            warnings.append(f"somebody made {folder}, so the raw streams are in {name}")
        with _opened(name, parent) as handle:
            for file, fd in self._fds.items():
                try:
                    _give_name(fd, file, handle, self._end(file), self._made.get(file))
                except OSError as error:
                    # The agent chose the names of its session files; they may be impossible here.
                    if error.errno in _FULL or not file.startswith(f"{SESSION_FILES}/"):
                        raise
                    why = f"could not be kept: {error.strerror}"
                    warnings.append(f"the session file {file!r} {why}")
        return name, warnings


def make_raw_dir(path: str) -> None:
    """Make the folder that will hold the folders of all trials."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make {path} for the raw streams: {error.strerror}"
        raise OutputError(msg, hint="free some space, or choose another --raw-dir") from error


class SegmentWriter:
    """Appends the records of finished trials to a segment of this process; threads may share it.

    A row is written after its record, so a kill loses no record that a row names. No process
    appends to a segment of another one, which may end in half a record.
    """

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
        sizes = {name: len(data) for name, data in streams.items()}
        header = msgspec.json.encode(SegmentHeader(self._run, trial, sizes))
        record = b"".join((header, b"\n", *streams.values(), b"\n"))
        with self._lock:
            warnings = []
            if self._fd >= 0 and self._is_touched(folder):
                warnings = [f"somebody removed or changed {self._name} with earlier raw streams"]
            if self._fd < 0 or self._size >= _FULL_BYTES or warnings:
                self._open_another(folder)
            try:
                write_all(self._fd, record)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                raise
            offset, self._size = self._size, self._size + len(record)
            return record_name(self._name, offset), warnings

    def _is_touched(self, folder: int) -> bool:
        try:
            about = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return (about.st_dev, about.st_ino, about.st_size) != (*self._inode, self._size)

    def close(self) -> None:
        """Close the segment; the next record begins another one."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_another(self, folder: int) -> None:
        self.close()
        # Agents may have put anything under these names.
        found = filter(None, map(_NUMBERED.fullmatch, os.listdir(folder)))
        number = 1 + max((int(each[1]) for each in found), default=0)
        # Rows may still name a segment that was lost: none gets its name again.
        self._name = f"segment-{number}-{os.urandom(4).hex()}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(self._name, flags, 0o666, dir_fd=folder)
        about = os.fstat(self._fd)
        self._size, self._inode = 0, (about.st_dev, about.st_ino)


_handles: dict[str, int] = {}
_writers: dict[tuple[str, str], SegmentWriter] = {}
_handles_lock = threading.Lock()


def _segment_writer(parent: str, run: str) -> SegmentWriter:
    with _handles_lock:
        return _writers.setdefault((parent, run), SegmentWriter(run))


def _in_folder[T](parent: str, do: Callable[[int], T]) -> T:
    """Do something below the folder with all trials: one that has moved is still found."""
    handle = _handle(parent)
    try:
        return do(handle)
    except OSError:
        # In a folder that somebody removed, nothing can be made: which error it is differs.
        if os.fstat(handle).st_nlink:
            raise
        _restore(parent)
        return do(_handle(parent))


def _restore(parent: str) -> list[str]:
    """Make sure that the open folder has its name; return warnings.

    What somebody put there in its place is moved aside, whatever it is.
    """
    if _is_at(parent, _handle(parent)):
        return []
    with _handles_lock:
        handle = _handles[parent]
        if not _is_at(parent, handle):  # as another thread may have put right
            if os.path.lexists(parent):
                number = 1
                while os.path.lexists(aside := f"{parent}.changed-{number}"):
                    number += 1
                os.rename(parent, aside)  # noqa: PTH104 - a link itself
            if (moved_to := system.path_of(handle)) is not None:
                with contextlib.suppress(OSError):  # it is gone, or where we may not write
                    os.rename(moved_to, parent)  # noqa: PTH104
            if not _is_at(parent, handle):
                make_raw_dir(parent)  # the old handle stays open: other threads may be using it
                _handles[parent] = os.open(parent, _FOLDER)
    return [f"somebody moved, removed or replaced {Path(parent).name}, which has the raw streams"]


def _is_at(path: str, handle: int) -> bool:
    try:
        about, wanted = os.lstat(path), os.fstat(handle)
    except OSError:
        return False
    return (about.st_dev, about.st_ino) == (wanted.st_dev, wanted.st_ino)


def _handle(parent: str) -> int:
    fd = _handles.get(parent)
    if fd is None:
        with _handles_lock:
            fd = _handles.get(parent)  # another thread may have opened it meanwhile
            if fd is None:
                make_raw_dir(parent)
                fd = _handles[parent] = os.open(parent, _FOLDER)
    return fd


def _is_new(name: str, parent: int) -> bool:
    """Whether something was made during this run; an earlier run has left the rest."""
    try:
        return os.lstat(name, dir_fd=parent).st_ctime_ns > _STARTED_NS
    except OSError:
        return False


def remove_kept(raw_dir: str, names: Iterable[str]) -> None:
    """Remove what rows name: segments and folders, unless they hold anything that is not ours."""
    for name in {segment_of(name) or name for name in names}:
        path = Path(raw_dir, name)
        if name in ("", ".", "..") or "/" in name or path.is_symlink():
            continue
        if path.is_dir():
            entries = os.listdir(path)  # noqa: PTH208
            if entries and all(re.fullmatch(_OURS, entry) for entry in entries):
                remove_folder(str(path))
        elif _is_segment(path):
            path.unlink()
    with _handles_lock:  # an earlier run of this process may have written them
        for key in [key for key in _writers if key[0] == raw_dir]:
            _writers.pop(key).close()


def _is_segment(path: Path) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
        try:
            return stat.S_ISREG(os.fstat(fd).st_mode) and read_header(fd, 0) is not None
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _opened(name: str, below: int | None = None) -> Iterator[int]:
    fd = os.open(name, _FOLDER, dir_fd=below)
    try:
        yield fd
    finally:
        os.close(fd)


def _give_name(fd: int, name: str, folder: int, n_bytes: int, made: os.stat_result | None) -> None:
    """Make an open file visible below an open folder; fails if anything has the name.

    made says how a file without a name was made; None if it must be copied.
    """
    first, slash, rest = name.partition("/")
    if slash:
        with contextlib.suppress(FileExistsError):
            os.mkdir(first, dir_fd=folder)
        with _opened(first, folder) as inner:
            _give_name(fd, rest, inner, n_bytes, made)
        return
    if made is not None and n_bytes == os.fstat(fd).st_size and _is_ours_alone(fd, made):
        linked = system.link_nameless(fd, name, folder)  # only one that never had a name can be
        if linked:
            return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        _copy(fd, target, n_bytes)
    finally:
        os.close(target)


def _is_ours_alone(fd: int, made: os.stat_result) -> bool:
    """Undo what an agent set on its stream: owner, mode, attributes, access lists.

    Return whether that succeeded, and nobody has the file open who could set it again.
    """
    try:
        os.fchown(fd, made.st_uid, made.st_gid)
        system.clear_attributes(fd)
        os.fchmod(fd, stat.S_IMODE(made.st_mode))
    except OSError:
        return False
    return system.is_ours_alone(fd)


def _copy(source: int, target: int, n_bytes: int) -> None:
    """Copy the beginning of a file; its holes stay holes."""
    done = 0
    while (done := next_data(source, done)) < n_bytes:
        raise_if_stopping()
        block = os.pread(source, min(_BLOCK, n_bytes - done), done)
        if not block:  # somebody has cut it meanwhile
            break
        os.lseek(target, done, os.SEEK_SET)
        write_all(target, block)
        done += len(block)
    os.ftruncate(target, n_bytes)
