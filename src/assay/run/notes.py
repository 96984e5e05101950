"""Notes of the folders that Assay made for trials: which run made each, and how its trial ended.

A note is a file in `.assay` beside the workspaces: the token of the run, and once the trial is over
how it ended and the name of its raw streams, by which a row finds a workspace that has been moved.
While a run goes on it holds a lock there, so that no other run takes its workspaces away.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from assay.records.files import read_regular, remove_folder
from assay.records.once import made_once

NOTES = ".assay"
_LOCK, _START, _SWEPT = ".run-", ".start-", ".swept"
_PASSED, _RAW, _ADDED = "passed", "raw ", "added "
_MOST_BYTES = 1024 * 1024
_UNLOCKED_S = 86_400
"""For so long a run without a lock may still go on."""
_TOKEN = re.compile("[0-9a-f]{16}")


class Note(NamedTuple):
    """What is known of a folder that Assay made."""

    folder: Path
    token: str
    """Of the run that made it."""
    passed: bool
    """Whether its trial is over and passed; what is not known to have passed may be of use."""
    raw: str
    """Where the raw streams of its trial are, by the end of the path; empty if it has none."""
    made_s: float
    added: tuple[tuple[str, str], ...] = ()
    """Files that an experiment put there, by path and digest."""

    @property
    def is_live(self) -> bool:
        """Whether the run that made it still goes on, in this process or another one."""
        path = _lock_path(self.folder.parent, self.token)
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # there is none: made by a version that had no locks, or adopted
            return time.time() - self.made_s < _UNLOCKED_S
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        finally:
            os.close(fd)
        return False

    def remove(self) -> None:
        """Remove the folder, and then the note."""
        remove_folder(str(self.folder), missing_ok=True)
        remove_folder(str(start_folder(self.folder)), missing_ok=True)
        if not os.path.lexists(self.folder):
            _path(self.folder).unlink(missing_ok=True)

    def remove_lock(self) -> None:
        """Remove the lock of a run that has nothing else in the same place."""
        _lock_path(self.folder.parent, self.token).unlink(missing_ok=True)

    def move_aside(self) -> Path:
        """Give the folder the first free name with a number; return it."""
        for number in count(2):
            other = self.folder.with_name(f"{self.folder.name}.{number}")
            if not os.path.lexists(other) and not os.path.lexists(_path(other)):
                self.folder.rename(other)
                _path(self.folder).rename(_path(other))
                return other
        raise AssertionError


def start_folder(folder: Path) -> Path:
    """Return where a copy is of what agents read in a folder, as it was before the agent began."""
    return folder.parent / NOTES / f"{_START}{folder.name}"


def read_note(folder: Path) -> Note | None:
    """Return what is known of a folder; None for one that Assay did not make."""
    path = _path(folder)
    try:
        if path.parent.is_symlink():  # an agent may have put it there
            return None
        lines = read_regular(path, _MOST_BYTES).decode("utf-8", "replace").split("\n")
        made_s = path.lstat().st_mtime
    except OSError:
        return None
    raw = next((line.removeprefix(_RAW) for line in lines[1:] if line.startswith(_RAW)), "")
    pairs = (line.removeprefix(_ADDED).partition(" ") for line in lines if line.startswith(_ADDED))
    added = tuple((name, digest) for digest, _, name in pairs)
    return Note(folder, lines[0], _PASSED in lines[1:], raw, made_s, added)


def write_note(folder: Path, token: str, added: Iterable[tuple[str, str]] = ()) -> None:
    """Note that a run makes a folder, before it does: one that is left half made is then ours."""
    note = _path(folder)
    # Private: an agent may leave programs there that run with our rights (setuid).
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.parent.mkdir(exist_ok=True)
    _Lock(str(folder.parent), token.partition(".")[0])
    note.unlink(missing_ok=True)  # an agent may have put a FIFO there, or a link
    with note.open("x") as file:
        file.write("\n".join([token, *_added_lines(added)]))


def _added_lines(added: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"{_ADDED}{digest} {name}" for name, digest in added if "\n" not in name)


def note_end(folder: Path, token: str, *, passed: bool, raw: str | None) -> None:
    """Note how the trial of a folder ended, and whose it is; the time of the note stays."""
    note = read_note(folder)
    lines = [token, *([_PASSED] if passed else []), *([_RAW + _key(raw)] if raw else [])]
    lines += _added_lines(note.added if note else ())
    with contextlib.suppress(OSError):
        fd = os.open(_path(folder), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "w") as file:
            about = os.fstat(fd)
            os.ftruncate(fd, 0)
            file.write("\n".join(lines))
            file.flush()
            os.utime(fd, ns=(about.st_atime_ns, about.st_mtime_ns))


def notes_in(parent: Path) -> Iterator[Note]:
    """Yield the notes of all folders that Assay made in one, and that are there or half made."""
    with contextlib.suppress(OSError):
        if parent.is_symlink() or (parent / NOTES).is_symlink():
            return
        for path in sorted((parent / NOTES).iterdir()):
            note = None if path.name.startswith(".") else read_note(parent / path.name)
            if note is not None:
                yield note


def remove_passed(root: Path, own: Collection[str]) -> None:
    """Remove the workspaces of trials that passed, of all runs in a place but these."""
    for parent in run_folders(root):
        if parent.name in own or _is_cleaned(parent):
            continue
        for note in notes_in(parent):
            if note.passed and note.token not in own and not note.is_live:
                note.remove()
        if not remove_empty(parent):
            _note_cleaned(parent)


def _is_cleaned(parent: Path) -> bool:
    """Whether nothing has come or gone since a folder was looked through: there may be many."""
    try:
        notes = parent / NOTES
        return (notes / _SWEPT).lstat().st_mtime_ns == notes.lstat().st_mtime_ns
    except OSError:
        return False


def _note_cleaned(parent: Path) -> None:
    """Note that only what did not pass is left of a run that is over."""
    notes = parent / NOTES
    with contextlib.suppress(OSError):
        locks = _locks(parent)
        if notes.is_symlink() or not locks or _are_live(parent, locks):
            return
        (notes / _SWEPT).touch()
        made_ns = notes.lstat().st_mtime_ns
        os.utime(notes / _SWEPT, ns=(made_ns, made_ns), follow_symlinks=False)


def run_folders(root: Path) -> list[Path]:
    """Return the folders in which runs have their workspaces."""
    try:
        return sorted(path for path in root.iterdir() if _TOKEN.fullmatch(path.name))
    except OSError:
        return []


def remove_empty(parent: Path) -> bool:
    """Remove what is left of a folder for workspaces when no run goes on that has some there."""
    with contextlib.suppress(OSError):
        locks = _locks(parent)
        if any(notes_in(parent)) or _are_live(parent, locks):
            return False
        for one in (*locks, parent / NOTES / _SWEPT):
            one.unlink(missing_ok=True)
        (parent / NOTES).rmdir()
        parent.rmdir()
        return True
    return False


def _locks(parent: Path) -> list[Path]:
    return [one for one in (parent / NOTES).iterdir() if one.name.startswith(_LOCK)]


def _are_live(parent: Path, locks: list[Path]) -> bool:
    names = (one.name.removeprefix(_LOCK) for one in locks)
    return any(Note(parent / "any", name, False, "", 0).is_live for name in names)


def folder_of_row(folder: str, raw: str | None) -> str | None:
    """Return where the workspace that a row names is now; None if it is gone.

    A later run may have taken its name, and moved it aside or removed it.
    """
    path, own = Path(folder), _key(raw or "")
    note = read_note(path)
    if own and (note is None or note.raw not in ("", own)):
        moved = (one for one in notes_in(path.parent) if one.raw == own)
        found = next((one for one in moved if one.folder.name.startswith(f"{path.name}.")), None)
        if found is not None or note is not None:
            return str(found.folder) if found and found.folder.is_dir() else None
    return folder if path.is_dir() else None


@made_once
class _Lock:
    """Held until this process ends, or forgets it."""

    def __init__(self, parent: str, token: str) -> None:
        path = _lock_path(Path(parent), token)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - contextlib may be gone when the interpreter ends
            os.close(self._fd)
        except (OSError, AttributeError):
            pass


def _key(raw: str) -> str:
    """Return the part of a path that stays the same wherever the rows and the streams are moved."""
    return "/".join(raw.split("/")[-2:]).replace("\n", " ")


def _lock_path(parent: Path, token: str) -> Path:
    return parent / NOTES / f"{_LOCK}{token.partition('.')[0]}"


def _path(folder: Path) -> Path:
    return folder.parent / NOTES / folder.name
