"""Follow a file that an agent writes: its lines, each with its time of arrival."""

import fcntl
import os
import sys
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from assay.records.files import next_data
from assay.records.recording import RawLine
from assay.run.process import raise_if_stopping
from assay.run.secrets import HasTime, OutOfTime, Secrets

_CHUNK = 64 * 1024
_ZEROS = bytes(_CHUNK + 64 * 1024)
_HEAD = 1024
"""How much is kept of a line that is too long."""
_OVERLAP = 256
"""How much of the end of one read is read again in the next, at least."""
type Marks = list[tuple[int, int]]
"""Pairs (offset, ms): up to this offset the file had been seen at this time."""


class LineSplitter:
    """Cuts chunks into lines; of a line over the limit only the beginning is kept in memory."""

    def __init__(self, line_bytes: int) -> None:
        self._limit = line_bytes
        self._parts: list[bytes] = []
        self._held = 0
        self._cut = False

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each completed line and whether it was too long."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._hold(chunk[start:end])
            yield self._take()
            start = end + 1
        if start < len(chunk):
            self._hold(chunk[start:])

    def rest(self) -> tuple[bytes, bool] | None:
        """Return the last line if it has no line feed."""
        return self._take() if self._held else None

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._cut:
            return
        self._parts.append(piece)
        if self._held > self._limit:
            self._parts = [b"".join(self._parts)[:_HEAD]]
            self._cut = True

    def _take(self) -> tuple[bytes, bool]:
        line, cut = b"".join(self._parts), self._cut
        self._parts, self._held, self._cut = [], 0, False
        return line, cut


class Tail:
    """Reads what an agent adds to a file, and masks secrets in it. The file stays the caller's.

    All writers append, so that a program which opens /dev/stdout again overwrites no lines. If it
    truncates the file in doing so, reading starts again at the beginning. The agent has a file
    description of its own: what it sets there (O_DIRECT, a lease, mode 0) hinders no read of ours.
    """

    def __init__(
        self, fd: int, line_bytes: int, secrets: Secrets, has_time: HasTime = lambda: True
    ) -> None:
        """When has_time says no, reading ends, and what is not masked yet is not kept."""
        self.fd = fd
        self._has_time = has_time
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)  # Linux ignores pwrite's offset on one with O_APPEND
        self._splitter = LineSplitter(line_bytes)
        self._secrets = secrets
        self._carry = b""
        self._line_start = 0
        """Where the line begins that is not complete yet."""
        self._has_secrets = False
        """Whether a secret may be in the line that is not complete yet."""
        self.offset = 0
        self.is_behind = False
        """Whether there was more to read than one call reads."""
        self.marks: Marks = []
        self._masked_to: int | None = None
        """Where the first bytes are that there was no time to mask."""
        self.end = 0
        """After close: how many bytes may be kept, secrets masked."""

    @property
    def size(self) -> int:
        """How many bytes the file has, read or not; the agent can say so without writing them."""
        return os.fstat(self.fd).st_size

    def is_over(self, limit: int) -> bool:
        """Whether the file has more bytes than this, or takes far more of the disk than it has."""
        about = os.fstat(self.fd)
        # Some file systems reserve up to as much again as a file has.
        return about.st_size > limit or about.st_blocks * 512 > limit + 2 * about.st_size

    def read(self, t_ms: int) -> Iterator[RawLine]:
        """Yield lines completed since the last call.

        At most one chunk is read: an agent may write faster than we read, and the time limits must
        be checked in between.
        """
        chunk = self._added()
        self.is_behind = len(chunk) == _CHUNK
        if not chunk:
            return
        # Before the first line is given away: whoever takes it may fail.
        lines = self._clean(chunk)
        self.offset += len(chunk)
        if self.marks and self.marks[-1][1] == t_ms:
            self.marks[-1] = (self.offset, t_ms)
        else:
            self.marks.append((self.offset, t_ms))
        for line, cut in lines:
            yield RawLine(t_ms, line, cut)

    def close(
        self, t_ms: int, most: int = sys.maxsize, *, to_the_end: bool = True
    ) -> Iterator[RawLine]:
        """Yield what the last read left, a last line without line feed included.

        No more than most bytes are read or kept. If not to the end, nothing more is read, and the
        rest is left to mask_again.
        """
        while to_the_end and self.is_behind and self.offset < most and self._has_time():
            yield from self.read(t_ms)
        last = self._splitter.rest()
        if last is not None:
            last = self._covered(*last, self.offset)
        # Of a line that was not read to its end, a part of a secret could remain.
        self.end = self._line_start if self.is_behind else self.offset
        if self.is_behind and not to_the_end:
            self.end = min(self.size, most)
        if self._masked_to is not None:
            self.end = min(self.end, self._masked_to)
        if last is not None:
            yield RawLine(t_ms, *last)

    def _added(self) -> bytes:
        """Return what is new. If what was read last no longer precedes it, it was truncated."""
        seen = os.pread(self.fd, len(self._carry) + _CHUNK, self.offset - len(self._carry))
        if seen.startswith(self._carry):
            return seen[len(self._carry) :]
        self._splitter.rest()  # drops the unfinished line
        self._carry = b""
        self.offset = self._line_start = 0
        self._masked_to = None
        self.marks.clear()
        return os.pread(self.fd, _CHUNK, 0)

    def _clean(self, chunk: bytes) -> list[tuple[bytes, bool]]:
        """Return the lines that the chunk completes, secrets masked; mask the file itself, too.

        Whole lines are masked, because only those show whether they are JSON.
        """
        seen = self._carry + chunk  # a secret may lie across two reads
        self._has_secrets = self._has_secrets or self._secrets.may_occur_in(seen)
        lines = list(self._splitter.feed(chunk))
        self._carry = seen[-max(_OVERLAP, self._secrets.longest) :]
        if not self._has_secrets:
            if lines:
                self._line_start = self.offset + chunk.rfind(b"\n") + 1
            return lines
        end = -1
        for i, (line, cut) in enumerate(lines):
            end = chunk.find(b"\n", end + 1)
            lines[i] = self._covered(line, cut, self.offset + end)
            self._line_start = self.offset + end + 1
        if lines:
            self._has_secrets = self._secrets.may_occur_in(chunk[end + 1 :])
        if self._carry:  # as it is in the file now
            last = self.offset + len(chunk)
            self._carry = os.pread(self.fd, len(self._carry), last - len(self._carry))
        return lines

    def _covered(self, line: bytes, cut: bool, end: int) -> tuple[bytes, bool]:
        """Mask a line here and in the file, where it ends at this offset."""
        if not self._has_secrets:
            return line, cut
        if cut:  # it may end within a secret: drop its last bytes
            self._mask_bytes(self._line_start, end)
            return self._secrets.mask(line)[: max(0, len(line) - self._secrets.longest)], cut
        try:
            masked = self._secrets.mask_line(line, self._has_time)
        except OutOfTime:
            self._leave_unmasked(self._line_start)
            return b"", True
        if masked != line:
            os.pwrite(self.fd, masked, self._line_start)
        return masked, cut

    def _leave_unmasked(self, first: int) -> None:
        self._masked_to = first if self._masked_to is None else min(first, self._masked_to)

    def _mask_bytes(self, first: int, last: int) -> None:
        """Mask a part of the file that is too long to be held.

        Holes are passed over: an agent makes them as large as it likes.
        """
        overlap = self._secrets.longest
        while overlap and (first := next_data(self.fd, first)) < last:
            if not self._has_time():
                self._leave_unmasked(first)
                return
            block = os.pread(self.fd, min(_CHUNK + overlap, last - first), first)
            masked = self._secrets.mask(block)
            if masked != block:
                os.pwrite(self.fd, masked, first)
            first += _CHUNK


def mask_again(fd: int, end: int, line_bytes: int, secrets: Secrets, has_time: HasTime) -> int:
    """Mask what was not read, and what an agent wrote over lines that had been read.

    Return how much may be kept. For a stream that is finished, whose processes have ended.
    """
    first = 0 if secrets.longest else end
    while (first := next_data(fd, first)) < end:
        if not has_time():
            return first
        block = os.pread(fd, min(_CHUNK + secrets.longest, end - first), first)
        # Zeros that were reserved look like data on some file systems.
        if not block or (block != _ZEROS[: len(block)] and secrets.may_occur_in(block)):
            break
        first += _CHUNK
    if first >= end:
        return end
    tail = Tail(fd, line_bytes, secrets, has_time)
    for _ in chain(tail.read(0), tail.close(0, end + 1)):  # one more, to see that it ends there
        pass
    return min(end, tail.end)


def recorded_lines(
    fd: int, marks: Marks, line_bytes: int, *, first: int = 0, last: int = sys.maxsize
) -> Iterator[RawLine]:
    """Read a finished file again: the same lines with the same times as Tail gave."""
    splitter = LineSplitter(line_bytes)
    offset = first
    while chunk := os.pread(fd, max(0, min(_CHUNK, last - offset)), offset):
        raise_if_stopping()
        scan = 0
        for line, cut in splitter.feed(chunk):
            scan = chunk.find(b"\n", scan) + 1  # a line arrives with its line feed
            yield RawLine(_arrival(marks, offset + scan), line, cut)
        offset += len(chunk)
    rest = splitter.rest()
    if rest is not None:
        yield RawLine(_arrival(marks, offset), *rest)


def _arrival(marks: Marks, offset: int) -> int:
    """Return the time at which the file had been seen up to offset."""
    index = bisect_left(marks, (offset, 0))
    return marks[min(index, len(marks) - 1)][1] if marks else 0
