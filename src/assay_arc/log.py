"""The event log of one game: the only truth about what was played."""

import base64
import fcntl
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from assay_arc import LogProblem

SCHEMA = "assay-arc-log/1"

Outcome = Literal["executed", "rejected", "shown", "failed"]
EndReason = Literal["player_quit", "timeout", "crash", "game_killed"]
"""Given by the one who closed the game; game_killed: somebody else had ended its process."""
StopReason = Literal["win", "game_over", "step_limit", "reset_limit"] | EndReason


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much a player may do; null means no limit."""

    max_steps: int | None = None
    max_resets: int | None = None


class DisplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """In which ways a player sees the game; each can be taken away to see what it is worth."""

    image: bool = True
    grid: bool = True
    """The whole picture as rows of digits."""
    diff: bool = True
    """What an action changed."""

    @property
    def names(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name)]


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The engine's answer to one action; frames are its pixels, packed (see pack_frames)."""

    state: str
    levels_completed: int
    win_levels: int
    full_reset: bool = False
    available_actions: tuple[int, ...] = ()
    n_frames: int = 0
    frame_sha256: str = ""
    frames: str = ""


class Counters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals after this command: steps and resets of all plays, actions as scored of this play."""

    steps: int = 0
    resets: int = 0
    rejected: int = 0
    play: int = 0
    play_actions: int = 0
    play_resets: int = 0


class _LogRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """A line of the log."""


class Header(_LogRecord, frozen=True, kw_only=True, tag="header"):
    """The first line: which game exactly, under which rules, in which engine."""

    schema: str = SCHEMA
    game_id: str
    title: str = ""
    source_sha256: str
    baselines: tuple[int, ...] | None = None
    level_count: int
    toolkit_version: str
    engine_version: str
    seed: int = 0
    seed_used: bool = False
    limits: Limits = Limits()
    started_at: str


class Event(_LogRecord, frozen=True, kw_only=True, tag="event", omit_defaults=True):
    """One command as received, and its outcome.

    executed: the engine did it; failed: the engine broke on it; rejected: the engine never saw
    it; shown: the player only looked. The engine's own first reset is an executed RESET, seq 0.
    """

    seq: int
    at: str
    received: Any = None
    outcome: Outcome
    action: str | None = None
    x: int | None = None
    y: int | None = None
    message: str | None = None
    limit: Literal["steps", "resets"] | None = None
    answer: Answer | None = None
    counters: Counters = Counters()


class Resumed(_LogRecord, frozen=True, kw_only=True, tag="resumed"):
    """The game process was started again and replayed everything above this line."""

    seq: int
    at: str
    replayed_actions: int


class End(_LogRecord, frozen=True, kw_only=True, tag="end"):
    """The game was closed on purpose, with the reason given by the one who closed it."""

    seq: int
    at: str
    reason: EndReason
    message: str = ""


Record = Header | Event | Resumed | End


SIDE = 64
FRAME_BYTES = SIDE * SIDE
MAX_PACKED_FRAMES = 2000


def pack_frames(frames: Sequence[bytes]) -> str:
    """Compress frames to text for a JSON line."""
    return base64.b64encode(zlib.compress(b"".join(frames), 1)).decode("ascii")


def unpack_frames(text: str) -> list[bytes]:
    """Read what pack_frames wrote, at most MAX_PACKED_FRAMES of them."""
    # A log may be a stranger's, and a few kilobytes can decompress to gigabytes.
    bound = MAX_PACKED_FRAMES * FRAME_BYTES
    data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), bound)
    return [data[i : i + FRAME_BYTES] for i in range(0, len(data), FRAME_BYTES)]


def frames_digest(frames: Sequence[bytes]) -> str:
    """Return the sha256 of all frames together."""
    return hashlib.sha256(b"".join(frames)).hexdigest()


MAX_LINE_BYTES = 32 * 1024 * 1024


class GameLog(msgspec.Struct, frozen=True, kw_only=True):
    """A whole log in memory; torn if its last line was cut off, and left out."""

    header: Header
    records: tuple[Event | Resumed | End, ...] = ()
    torn: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(record for record in self.records if isinstance(record, Event))


def read_log(path: Path) -> GameLog:
    """Read a log file; raise LogProblem with the line number if it is not one."""
    lines = list(_whole_lines(path))
    torn = bool(lines) and lines[-1][1] is None
    records = [_decode(path, number, line) for number, line in lines if line is not None]
    if not records or not isinstance(records[0], Header):
        message = f"{path}:1: not an ARC event log: the first line must be a header"
        raise LogProblem(message)
    header, rest = records[0], records[1:]
    if header.schema != SCHEMA:
        message = f"{path}:1: schema {header.schema!r} is not known here (expected {SCHEMA!r})"
        raise LogProblem(message)
    return GameLog(header=header, records=tuple(_in_order(path, rest)), torn=torn)


def read_time(text: str) -> datetime:
    """Read a time; one without an offset is in UTC."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def has_header(path: Path) -> bool:
    """Whether a log was begun; a header cut off by a kill does not count."""
    try:
        with path.open("rb") as file:
            return file.readline(MAX_LINE_BYTES).endswith(b"\n")
    except FileNotFoundError:
        return False


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number; a last line without a newline as None."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                message = f"{path}:{number}: longer than {MAX_LINE_BYTES} bytes; not an ARC log"
                raise LogProblem(message)
            yield number, line if line.endswith(b"\n") else None


def _decode(path: Path, number: int, line: bytes) -> Record:
    try:
        record: Record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path}:{number}: not a log record: {error}"
        raise LogProblem(message) from error
    return record


def _in_order(path: Path, records: list[Record]) -> Iterator[Event | Resumed | End]:
    for expected, record in enumerate(records):
        number = expected + 2
        if isinstance(record, Header):
            message = f"{path}:{number}: a second header; two logs were joined"
            raise LogProblem(message)
        if record.seq != expected:
            found = f"record {record.seq} where {expected} must be"
            message = f"{path}:{number}: {found}; a line is missing or moved"
            raise LogProblem(message)
        yield record


_DECODER = msgspec.json.Decoder(Record)


# How every log begins.
HEAD = b'{"type":"header",'


class LogWriter:
    """Open a log for appending; a torn last line, left by a kill, is cut off first.

    A copy is another open file, with the same content, that gets each record first.
    """

    def __init__(self, path: Path, copy_fd: int | None = None) -> None:
        self._copy_fd = copy_fd
        # O_NOFOLLOW: never write through a link that somebody put in the log's place.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        is_new = not path.exists()
        self._path = path
        self._fd = os.open(path, flags, 0o600)
        self._encode = msgspec.json.Encoder().encode
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            message = f"{self._path}: another game process is writing this log; wait until it ends"
            raise LogProblem(message) from None
        self._repair()
        if is_new:  # the name of a new file is on disk only when its folder is synced
            sync_folder(path.parent)

    def append(self, record: Record) -> None:
        """Write one record and wait until the disk has it."""
        fds = [fd for fd in (self._copy_fd, self._fd) if fd is not None]
        sizes = [os.fstat(fd).st_size for fd in fds]
        line = self._encode(record) + b"\n"
        try:
            for fd in fds:
                if os.write(fd, line) != len(line):
                    message = f"{self._path}: the disk took only a part of a record; is it full?"
                    raise OSError(message)
            _sync_data(self._fd)
        except OSError:
            for fd, size in zip(fds, sizes, strict=True):
                os.ftruncate(fd, size)  # no half record on a full disk
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repair(self) -> None:
        """Cut the file after its last whole line; a file that is no log is left as it is."""
        # An empty file, and one cut off in its first line, hold a prefix of HEAD.
        head = os.pread(self._fd, len(HEAD), 0)
        if not HEAD.startswith(head):
            os.close(self._fd)
            message = f"{self._path}: exists and is not an ARC event log; choose another path"
            raise LogProblem(message)
        end = os.fstat(self._fd).st_size
        # Look for the last newline backwards, a block at a time: a log may be large.
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


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
