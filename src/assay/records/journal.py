"""The output file as a journal: one appended line per finished trial, one writer, never torn."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal

import msgspec

from assay.errors import OutputError
from assay.records.capture import Failure, Identity
from assay.records.files import (
    copy_bytes,
    nameless_file,
    replaced_file,
    same_bytes,
    write_all,
)
from assay.records.rows import UNREADABLE, open_rows, read_lines
from assay.records.signatures import Signatures
from assay.records.trial.files import kind_of
from assay.records.trial.views import NO_JSON, JudgedEntry, RowForm

type Mode = Literal["new", "resume", "append", "overwrite", "replace"]
"""What to do with an output that exists; "replace" is for what can be made again."""
type Kind = Literal["capture", "trials", "run"]
"""The command that writes such rows."""
_BLOCK = 64 * 1024
_LONGEST_FIRST = 64 * 1024 * 1024
_LOOK_S = 0.05
"""How often we look whether somebody changed the file; at the end it is compared as a whole."""
RESUMABLE = (
    "use --resume to run only what is missing, --append to add rows, or --overwrite to replace it"
)
"""What to do about an output that exists, for commands that can resume."""


class RowKey(RowForm, msgspec.Struct, rename="camel", gc=False):
    """What identifies a row, what it was made from, and how it ended."""

    id: str
    spec_hash: str | None = None
    identity: Identity | None = None
    k: int | None = None
    failure: Failure | None = None
    retried: list[Failure] = []
    raw: Any = None
    score: Any = None
    cwd: Any = None
    raw_lines: msgspec.Raw = NO_JSON
    trials: msgspec.Raw = NO_JSON
    output: msgspec.Raw = NO_JSON

    @property
    def kind(self) -> Kind:
        """Which command wrote the row."""
        if self.raw_lines:
            return "run"
        return "trials" if self.is_trials else "capture"

    @property
    def attempts(self) -> "list[Attempt]":
        """How each trial of the row ended."""
        if self.is_trials:
            return msgspec.json.decode(self.trials, type=list[Attempt])
        passed = self.score.get("pass") if isinstance(self.score, dict) else None
        return [Attempt(failure=self.failure, pass_=passed, cwd=self.cwd)]


class Attempt(JudgedEntry, gc=False):
    """How one trial ended, and where."""

    cwd: Any = None


class Journal:
    """Appends whole lines. A kill at any moment can tear at most the last of them.

    Somebody may remove, rename, replace or truncate the file while it is written. If it is guarded,
    as where agents run, a second copy without a name makes sure that no row is lost then.
    """

    has_saved: ClassVar = False
    """Whether this process has opened one in a file: what was written is there after it ends."""

    def __init__(
        self,
        path: Path,
        mode: Mode,
        hint: str = RESUMABLE,
        *,
        guarded: bool = True,
        signed: bool | None = None,
    ) -> None:
        """What is guarded is signed as well, unless something else is said."""
        self.path = path
        self._guarded = guarded
        self._signed = guarded if signed is None else signed
        self._signatures: Signatures | None = None
        self._fd = _open(path, mode, hint)
        self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._overwrite = self._regular and mode == "overwrite"
        """Old rows are still there: they go when the first new one comes, or at a good end."""
        self._trouble = ""
        self._next_look_s = 0.0
        self._copy: int | None = None
        self._uncopied: list[bytes] = []
        self._n_uncopied = 0
        self._inode = 0, 0
        self._size = 0
        """How the file looked after our last write."""
        try:
            _lock(self._fd, path)
            self._refuse_replaced()
            if self._regular and not self._overwrite:
                _repair(self._fd)
                self._start_copy()
                self._find_signatures(afresh=self._size == 0)
        except BaseException:
            self._close()
            raise
        Journal.has_saved |= self._regular

    def _refuse_replaced(self) -> None:
        """Refuse a file that another process put in place of this one before we had the lock."""
        here = os.fstat(self._fd)
        try:
            there = os.stat(self.path)  # noqa: PTH116 - as in _recover
        except OSError:
            return  # removed; _recover writes it again
        if self._regular and (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            msg = f"{self.path} was being written by another assay process"
            raise OutputError(msg, hint="try again")

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._overwrite and error is None:
                self._drop_old_rows()
            if self._regular and not self._overwrite:
                self._recover(thoroughly=True)
            with contextlib.suppress(OSError):  # a pipe or a terminal cannot be synced
                os.fsync(self._fd)
            if self._trouble and error is None:
                raise OutputError(self._trouble, hint="no row is lost; leave the output alone")
        finally:
            self._close()

    def append(self, line: bytes) -> None:
        """Write one row; on a full disk, no part of it is left behind."""
        if self._overwrite:
            self._drop_old_rows()
        if self._regular and time.monotonic() >= self._next_look_s:
            self._recover()
            self._next_look_s = time.monotonic() + _LOOK_S
        if self._signatures is not None:
            self._signatures.sign(line)
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
        self._size += len(data)
        if self._copy is not None:
            self._uncopied.append(data)
            self._n_uncopied += len(data)
            if self._n_uncopied > _BLOCK:
                self._complete_copy()

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the file by one with these lines; a kill leaves the old one."""
        # Cut, because a name may have only 255 bytes.
        new = self.path.with_name(f".{self.path.name[:100]}.{os.urandom(4).hex()}")
        fd = os.open(new, _FLAGS | os.O_EXCL, os.fstat(self._fd).st_mode & 0o777)
        try:
            _lock(fd, new)
            for line in lines:
                if self._signatures is not None:
                    self._signatures.sign(line.rstrip(b"\r\n"))
                write_all(fd, line.rstrip(b"\r\n") + b"\n")
            os.fsync(fd)
            new.replace(self.path)
        except BaseException:
            os.close(fd)
            new.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd = fd
        self._start_copy()
        if self._signatures is not None:  # rows that were there before may not come back
            self._signatures.forget_all_but(
                line.rstrip(b"\r\n") for _, line in read_lines(self.path)
            )

    def rows(self) -> Iterator[RowKey]:
        """Yield id and fingerprint of every row that is there."""
        with open_rows(self.path, hint="fix the line, or use --overwrite") as file:
            yield from file.rows(msgspec.json.Decoder(RowKey))

    def unsigned_rows(self) -> int:
        """Count the rows that Assay did not write here as this user."""
        return _count_unsigned(self.path, self._signatures)

    def _find_signatures(self, *, afresh: bool) -> None:
        """Find the signatures of the folder, which is an experiment's, or those of the file."""
        if self._signed and self._regular:
            path = self.path
            found = Signatures.read(path.parent) if afresh else Signatures.of_rows(path)
            self._signatures = found or Signatures.of_output(path, afresh=True)

    def _drop_old_rows(self) -> None:
        os.ftruncate(self._fd, 0)
        self._overwrite = False
        self._start_copy()
        self._find_signatures(afresh=True)

    def _start_copy(self) -> None:
        self._remember()
        self._drop_copy()
        self._uncopied, self._n_uncopied = [], 0
        if not self._guarded:
            return
        try:
            self._copy = nameless_file(str(self.path.parent))
            copy_bytes(self._fd, self._copy)
        except OSError:
            self._drop_copy()

    def _complete_copy(self) -> None:
        """Write the last rows to the copy, too; many at once, because each write takes time."""
        data, self._uncopied, self._n_uncopied = b"".join(self._uncopied), [], 0
        try:
            if self._copy is not None:
                write_all(self._copy, data)
        except OSError:  # the disk is full: the row itself is written, which is what counts
            self._drop_copy()

    def _drop_copy(self) -> None:
        if self._copy is not None:
            os.close(self._copy)
            self._copy = None

    def _recover(self, *, thoroughly: bool = False) -> None:
        """Notice what somebody did to the file; put our rows there again, and theirs aside."""
        try:
            now = os.stat(self.path)  # noqa: PTH116 - a third of the time
        except OSError:  # removed or renamed, perhaps with its folder
            self._note("was removed or renamed")
            self._take_place()
            return
        if (now.st_dev, now.st_ino) != self._inode:
            other = self._aside()
            self._note(f"was replaced, by what is now {other}")
            self.path.rename(other)
            self._take_place()
        # What changes no size is found at the end, when all is compared.
        elif thoroughly or now.st_size != self._size:
            self._restore(now.st_size)

    def _restore(self, size: int) -> None:
        self._complete_copy()
        if self._copy is None or same_bytes(self._fd, self._copy):
            self._remember()
            return
        kept = ""
        if size:
            other = self._aside()
            kept = f", to what is now {other}"
            with other.open("xb") as file:
                copy_bytes(self._fd, file.fileno())
        self._note(f"was {'changed' if size else 'truncated'}{kept}")
        os.ftruncate(self._fd, 0)
        copy_bytes(self._copy, self._fd)
        self._remember()

    def _note(self, what: str) -> None:
        self._trouble = f"{self.path} {what} while it was being written"

    def _remember(self) -> None:
        now = os.fstat(self._fd)
        self._inode = now.st_dev, now.st_ino
        self._size = now.st_size

    def _take_place(self) -> None:
        """Write all rows to the path again, and continue there."""
        self._complete_copy()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, _FLAGS | os.O_EXCL, 0o666)
            _lock(fd, self.path)
            copy_bytes(self._source(), fd)
        except OSError as error:
            msg = f"{self._trouble}: {error.strerror}"
            raise OutputError(msg, hint="choose an -o that nobody changes") from error
        os.close(self._fd)
        self._fd = fd
        self._start_copy()

    def _aside(self) -> Path:
        """Return an unused name for what somebody else made of the file."""
        path, number = self.path, 1
        while (name := path.with_name(f"{path.stem}.changed-{number}{path.suffix}")).exists():
            number += 1
        return name

    def _source(self) -> int:
        return self._fd if self._copy is None else self._copy

    def _close(self) -> None:
        self._drop_copy()
        os.close(self._fd)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


@contextlib.contextmanager
def replaced_rows(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Yield what takes rows for a new file, which takes the place of an old one at a good end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(fd, path)
            with replaced_file(path.resolve()) as file:
                yield lambda line: write_all(file.fileno(), line + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise OutputError(msg, hint="the file is as it was; check the free space") from error


def measured_kind(path: Path) -> Kind | None:
    """Which command measured the trials in a file; None if it holds anything else."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LONGEST_FIRST)
        key = msgspec.json.decode(line, type=RowKey)
        if key.raw_lines:
            return "run"
        return kind_of(line)
    except (OSError, *UNREADABLE):
        return None


def changed_rows(path: Path) -> int:
    """Count the rows of a file that are not as this user's Assay wrote them in this place; none if
    it never wrote the file."""
    signatures = Signatures.of_output(path)
    return _count_unsigned(path, signatures) if signatures else 0


def _count_unsigned(path: Path, signatures: Signatures | None) -> int:
    lines = (line.rstrip(b"\r\n") for _, line in read_lines(path))
    return sum(not (signatures and signatures.holds(line)) for line in lines)


def raw_folder(output: Path) -> Path:
    """Where the raw streams of an output are kept, unless somebody chose another folder."""
    return output.with_suffix(".raw")


def _lock(fd: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        msg = f"{path} is being written by another assay process"
        raise OutputError(msg, hint="wait until it ends, or choose another -o") from error


def _open(path: Path, mode: Mode, hint: str) -> int:
    if mode == "new" and path.is_file() and path.stat().st_size > 0:
        msg = f"{path} already exists"
        raise OutputError(msg, hint=hint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, _FLAGS, 0o666)
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


def without_results(root: Path, names: Iterable[str]) -> list[str]:
    """Leave out the files of a folder that Assay wrote: results.jsonl and results.raw/, also while
    they are being written."""
    names = list(names)
    results = {
        _output_name(name)
        for name in names
        if name.endswith((".jsonl", ".jsonl.partial", ".jsonl.live")) and _is_result(root / name)
    }
    folders = tuple(f"{name.removesuffix('.jsonl')}.raw/" for name in results)
    return [
        name for name in names if _output_name(name) not in results and not name.startswith(folders)
    ]


def _output_name(name: str) -> str:
    """The output that a file belongs to which is there while it is written."""
    return name.removesuffix(".partial").removesuffix(".live")


class _ResultView(msgspec.Struct, rename="camel"):
    id: str
    spec_hash: str


def _is_result(path: Path) -> bool:
    """Whether the first row is one of ours; an output may still be empty."""
    path = path.with_name(path.name.removesuffix(".live"))
    try:
        with path.open("rb") as file:
            first = file.readline()
            if first:
                msgspec.json.decode(first, type=_ResultView)
    except (OSError, *UNREADABLE):
        return False
    return True
