"""The raw streams of a trial: files without a name while the agent runs, kept when it has ended.

An agent runs with our rights and can find out where its stdout is. What has no name cannot be
replaced by a link, a folder or a FIFO. When all processes of the trial have ended, small streams
are appended to a segment (see segment.py), large ones get names in a folder; both below open
directory handles, so that no link is followed.
"""

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from assay.errors import OutputError
from assay.records.files import (
    copy_bytes,
    nameless_file,
    remove_folder,
    temporary_folder,
    temporary_place,
    write_all,
)
from assay.records.raw_streams import SESSION_FILES, segment_of
from assay.run.segment import SegmentWriter, remove_segments

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_STARTED_NS = time.time_ns()
_OURS = r"\d+\.(in|out|err)|files|game\.jsonl"
_PACKED_BYTES = 256 * 1024
"""Most that the streams of a trial may have together to be packed."""


class RawStreams:
    """The raw streams of one trial."""

    def __init__(self, parent: str | None, run: str | None = None) -> None:
        """Parent is where the streams will be; None when they are not kept.

        With the token of the run, small ones are packed with those of its other trials.
        """
        self._parent = parent
        self._run = run
        self._fds: dict[str, int] = {}
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
            fd = _below(parent, partial(nameless_file, "."))
        self._fds[name] = fd
        return fd

    def make_in_memory(self, name: str) -> int:
        """The same, in memory; drop it if nothing was written to it.

        Most agents write nothing to stderr, and making a file costs more than all else we do
        for it.
        """
        if not hasattr(os, "memfd_create"):
            return self.make(name)
        fd = self._fds[name] = os.memfd_create("stream")
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
        return f"/dev/fd/{fd}"

    def add(self, name: str, path: Path) -> None:
        """Keep a file of ours that is about to be removed; a link is not followed."""
        self._run = None  # what a world keeps is looked for in a folder
        self._fds[name] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def path(self, name: str) -> str:
        """Return a path under which this process can open the file again."""
        return f"/dev/fd/{self._fds[name]}"

    def drop(self, name: str) -> None:
        """Close a file that holds nothing."""
        os.close(self._fds.pop(name))

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
                return None, self._lent_session_files(folder), []
            moved = _put_home(parent)
            if (small := self._small()) is not None:
                name, warnings = _below(parent, partial(self._pack, folder, small))
                return name, self._lent_session_files(folder), moved + warnings
            name, warnings = _below(parent, partial(self._put_into, folder))
        except OSError as error:
            msg = f"cannot write raw streams to {parent}: {error.strerror}"
            raise OutputError(msg, hint="free some space, or choose another --raw-dir") from error
        session_files = Path(parent, name, SESSION_FILES) if self.has_session_files else None
        return name, session_files, moved + warnings

    def _lent_session_files(self, folder: str) -> Path | None:
        """Return a folder with the agent's session files that lasts as long as this object."""
        if not self.has_session_files:
            return None
        parent = self._temporary.enter_context(temporary_folder("assay-"))
        with _opened(parent) as handle:
            name, _ = self._put_into(folder, handle)
        return Path(parent, name, SESSION_FILES)

    def _small(self) -> dict[str, bytes] | None:
        """Return all streams if they are to be packed and small enough."""
        if self._run is None:
            return None
        found, left = {}, _PACKED_BYTES
        for name, fd in self._fds.items():
            n_bytes = os.fstat(fd).st_size
            left -= n_bytes
            if left < 0:
                return None
            found[name] = os.pread(fd, n_bytes, 0)
        return found

    def _pack(self, trial: str, streams: dict[str, bytes], parent: int) -> tuple[str, list[str]]:
        assert self._run is not None
        return _writer(self._parent or "", self._run).append(trial, streams, parent)

    def _put_into(self, folder: str, parent: int) -> tuple[str, list[str]]:
        name = _new_folder(folder, parent)
        warnings = []
        if name != folder and _is_new(folder, parent):
            warnings.append(f"somebody made {folder}, so the raw streams are in {name}")
        with _opened(name, parent) as handle:
            return name, [*warnings, *self._give_names(handle)]

    def _give_names(self, folder: int) -> Iterator[str]:
        """Put all files into an open folder; yield what a reader should know."""
        for name, fd in self._fds.items():
            try:
                _give_name(fd, name, folder)
            except OSError as error:
                # The agent chose the names of its session files; they may be impossible here.
                if error.errno in _FULL or not name.startswith(f"{SESSION_FILES}/"):
                    raise
                yield f"the session file {name!r} could not be kept: {error.strerror}"


def make_raw_dir(path: str) -> None:
    """Make the folder that will hold the folders of all trials."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make {path} for the raw streams: {error.strerror}"
        raise OutputError(msg, hint="free some space, or choose another --raw-dir") from error


_handles: dict[str, int] = {}
_writers: dict[tuple[str, str], SegmentWriter] = {}
_handles_lock = threading.Lock()


def _writer(parent: str, run: str) -> SegmentWriter:
    found = _writers.get((parent, run))
    if found is None:
        with _handles_lock:
            found = _writers.setdefault((parent, run), SegmentWriter(run))
    return found


def _below[T](parent: str, do: Callable[[int], T]) -> T:
    """Do something below the folder with all trials: one that has moved is still found."""
    handle = _handle(parent)
    try:
        return do(handle)
    except OSError:
        # In a folder that somebody removed, nothing can be made: which error it is differs.
        if os.fstat(handle).st_nlink:
            raise
        _put_home(parent)
        return do(_handle(parent))


def _put_home(parent: str) -> list[str]:
    """Make sure that the open folder has its name; return warnings.

    What somebody put there in its place is moved aside, whatever it is.
    """
    if _is_at(parent, _handle(parent)):
        return []
    with _handles_lock:
        handle = _handles[parent]
        if not _is_at(parent, handle):  # as another thread may have put right
            _move_aside(parent)
            with contextlib.suppress(OSError):  # it is gone, or where we may not write
                os.rename(os.readlink(f"/proc/self/fd/{handle}"), parent)  # noqa: PTH104, PTH115
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


def _move_aside(path: str) -> None:
    if os.path.lexists(path):
        number = 1
        while os.path.lexists(aside := f"{path}.changed-{number}"):
            number += 1
        os.rename(path, aside)  # noqa: PTH104 - a link itself


def _handle(parent: str) -> int:
    fd = _handles.get(parent)
    if fd is None:
        with _handles_lock:
            fd = _handles.get(parent)  # another thread may have opened it meanwhile
            if fd is None:
                make_raw_dir(parent)
                fd = _handles[parent] = os.open(parent, _FOLDER)
    return fd


def _new_folder(name: str, parent: int) -> str:
    """Make a folder that was not there before; return its name."""
    number, unused = 1, name
    while True:
        try:
            os.mkdir(unused, dir_fd=parent)
        except FileExistsError:
            number += 1
            unused = f"{name}.{number}"
        else:
            return unused


def _is_new(name: str, parent: int) -> bool:
    """Whether something was made during this run; an earlier run has left the rest."""
    try:
        return os.lstat(name, dir_fd=parent).st_ctime_ns > _STARTED_NS
    except OSError:
        return False


def remove_kept(raw_dir: str, names: Iterable[str]) -> None:
    """Remove what rows name: segments, and folders unless they hold anything that is not ours."""
    names = list(names)
    remove_segments(raw_dir, filter(None, map(segment_of, names)))
    for name in names:
        folder = Path(raw_dir, name)
        if "/" not in name and not folder.is_symlink() and folder.is_dir():
            entries = os.listdir(folder)  # noqa: PTH208
            if entries and all(re.fullmatch(_OURS, entry) for entry in entries):
                remove_folder(str(folder))


@contextlib.contextmanager
def _opened(name: str, below: int | None = None) -> Iterator[int]:
    fd = os.open(name, _FOLDER, dir_fd=below)
    try:
        yield fd
    finally:
        os.close(fd)


def _give_name(fd: int, name: str, folder: int) -> None:
    """Make an open file visible below an open folder; fails if anything has the name."""
    first, slash, rest = name.partition("/")
    if slash:
        with contextlib.suppress(FileExistsError):
            os.mkdir(first, dir_fd=folder)
        with _opened(first, folder) as inner:
            _give_name(fd, rest, inner)
        return
    try:
        # Only a file that never had a name can be given one.
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        _copy(fd, name, folder)


def _copy(fd: int, name: str, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        copy_bytes(fd, target)
    finally:
        os.close(target)
