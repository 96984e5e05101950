"""The raw streams of a trial as they are kept: the one way to read them.

Streams of small trials are packed in segments: in a segment, one record follows the other. A record
is a header (a line of JSON), the streams that it names, and a line feed. Large streams are files in
a folder of the trial's own; so were all of them in earlier versions.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from assay.records.rows import UNREADABLE

SESSION_FILES = "files"
"""The folder among the raw streams with the agent's own session files."""
_RECORD = re.compile(r"(segment-\d{1,9})@(\d{1,15})")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Nothing follows a link, and nothing waits for the other end of a FIFO."""
_BLOCK = 1024 * 1024
_FIRST_READ = 1024
_LONGEST_HEADER = 16 * 1024 * 1024


class SegmentHeader(msgspec.Struct, frozen=True, tag_field="type", tag="assay-raw"):
    """Describes a record of a segment."""

    run: str
    """Token of the run that wrote the segment: other runs do not add to it."""
    trial: str
    """What its folder would be called."""
    files: dict[str, int]
    """The size of each stream, in the order in which they follow."""


HEADER_START = b'{"type":"assay-raw",'


class KeptStream(NamedTuple):
    """One stream: a part of a file, or all of it."""

    name: str
    """1.out, 1.err and 1.in for the first process; files/… for the agent's session files."""
    path: str
    offset: int
    size: int

    @property
    def is_session_file(self) -> bool:
        return self.name.startswith(f"{SESSION_FILES}/")

    def read(self, most: int | None = None) -> bytes:
        """Return the stream, or its beginning."""
        return b"".join(self.blocks(most))

    def blocks(self, most: int | None = None) -> Iterator[bytes]:
        """Yield the stream, or its beginning, in pieces."""
        done, end = 0, self.size if most is None else min(self.size, most)
        fd = os.open(self.path, _READ)
        try:
            while done < end and (
                block := os.pread(fd, min(_BLOCK, end - done), self.offset + done)
            ):
                yield block
                done += len(block)
        finally:
            os.close(fd)


def kept_streams(place: Path) -> list[KeptStream]:
    """Return the raw streams of a trial, turn by turn, then its session files.

    place is what the row names in `raw`, below the folder of the row's file. No streams are found
    where they were removed or damaged.
    """
    try:
        found = _packed(place) if _RECORD.fullmatch(place.name) else list(_in_folder(place))
    except OSError:
        return []
    # By length, then name: turn 10 comes after turn 2.
    return sorted(found, key=lambda s: (s.is_session_file, len(s.name.partition("/")[0]), s.name))


def record_name(segment: str, offset: int) -> str:
    """Return how a row names a record."""
    return f"{segment}@{offset}"


def segment_of(name: str) -> str | None:
    """Return the segment of a record that a row names; None for a folder."""
    found = _RECORD.fullmatch(name)
    return found[1] if found else None


def read_header(fd: int, offset: int) -> tuple[SegmentHeader, int] | None:
    """Return the header of a record and where its streams begin; None if it is not complete.

    Raises ValueError for anything else than a header.
    """
    size, line = _FIRST_READ, b""
    while b"\n" not in line:
        before, line = line, os.pread(fd, size, offset)
        if not line.startswith(HEADER_START[: len(line)]) or size > _LONGEST_HEADER:
            msg = f"no header at {offset}"
            raise ValueError(msg)
        if line == before or len(line) < len(HEADER_START):
            return None
        size *= 8
    line = line[: line.index(b"\n")]
    try:
        return msgspec.json.decode(line, type=SegmentHeader), offset + len(line) + 1
    except UNREADABLE as error:
        msg = f"no header at {offset}: {error}"
        raise ValueError(msg) from error


def _packed(place: Path) -> list[KeptStream]:
    record = _RECORD.fullmatch(place.name)
    assert record is not None
    path = str(place.with_name(record[1]))
    fd = os.open(path, _READ)
    try:
        about = os.fstat(fd)
        found = read_header(fd, int(record[2])) if stat.S_ISREG(about.st_mode) else None
    except ValueError:
        return []
    finally:
        os.close(fd)
    if found is None:
        return []
    header, offset = found
    streams = []
    for name, size in header.files.items():
        streams.append(KeptStream(name, path, offset, size))
        offset += size
        if size < 0 or offset > about.st_size:
            return []
    return streams


def _in_folder(folder: Path) -> Iterator[KeptStream]:
    """Yield the files of a folder; a link is none, because it could lead anywhere."""
    for root, _, names in os.walk(folder):
        below = os.path.relpath(root, folder)
        for name in names:
            path = f"{root}/{name}"
            about = os.lstat(path)
            if stat.S_ISREG(about.st_mode):
                yield KeptStream(
                    name if below == "." else f"{below}/{name}", path, 0, about.st_size
                )
