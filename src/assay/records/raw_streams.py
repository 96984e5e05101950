"""The raw streams of a trial as they are kept: the one way to read them.

Streams of small trials are packed in segments: in a segment, one record follows the other. A record
is a header (a line of JSON), the streams that it names, and a line feed. Large streams are files in
a folder of the trial's own; so were all of them in earlier versions.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from assay.records.rows import UNREADABLE

SESSION_FILES = "files"
"""The folder among the raw streams with the agent's own session files."""
_RECORD = re.compile(r"(segment-\d{1,9}(?:-[0-9a-f]{8})?)@(\d{1,15})")
_WRITTEN = re.compile(rf"\d+\.(in|out|err)|game\.jsonl|{SESSION_FILES}/.+", re.DOTALL)
"""What streams are called: a row of others must not have us print any other file."""
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
_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_LONGEST = 120
_OF_PROMPT = "prompt-"


def folder_names(ids: Iterable[str]) -> dict[str, str]:
    """Return a unique folder name for each prompt id; ids that would collide get a hash."""
    names = {prompt_id: _possible_names(prompt_id) for prompt_id in ids}
    counts: dict[str, int] = {}
    for plain, _ in names.values():
        counts[plain] = counts.get(plain, 0) + 1
    return {
        prompt_id: plain
        if counts[plain] == 1 and len(plain.encode()) <= _LONGEST + len(_OF_PROMPT)
        else hashed
        for prompt_id, (plain, hashed) in names.items()
    }


def _possible_names(prompt_id: str) -> tuple[str, str]:
    """Return the name of a prompt's folder without a hash, and with it."""
    name = _UNSAFE.sub("_", prompt_id)
    # Names are limited in bytes; "ignore" drops a character that was cut in two.
    cut = name.encode()[: _LONGEST - 11].decode(errors="ignore")
    digest = hashlib.sha256(prompt_id.encode()).hexdigest()[:10]
    return f"{_OF_PROMPT}{name}", f"{_OF_PROMPT}{cut}-{digest}"


class Attempt(NamedTuple):
    """Whose streams they are, as a row says."""

    prompt_id: str
    trial: int = 1
    """Which trial of the prompt, from 1."""
    n_before: int = 0
    """How many attempts at the trial there were before."""

    def may_be(self, name: str) -> bool:
        """Whether a record with this name can be its own. Benchmarks may name trials otherwise."""
        if not name.startswith(_OF_PROMPT):
            return True
        again = f".retry-{self.n_before}" if self.n_before else ""
        return any(
            name in (f"{prompt}{again}", f"{prompt}-trial-{self.trial}{again}")
            for prompt in _possible_names(self.prompt_id)
        )


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


def named_streams(base: Path, name: Any, attempt: Attempt) -> list[KeptStream]:
    """Return the streams that a row of anybody names, if they are below the folder of its file."""
    place = place_inside(base, name)
    found = kept_streams(place, attempt) if place else []
    return [one for one in found if _WRITTEN.fullmatch(one.name)]


def place_inside(base: Path, name: Any) -> Path | None:
    """Return the path that a row names; None if it leads out of the folder, by links too."""
    if not isinstance(name, str) or not name or "\x00" in name:
        return None
    root = base.resolve()
    try:
        path = (root / name).resolve()
    except (OSError, RuntimeError):  # links that lead to themselves
        return None
    return path if path.is_relative_to(root) and path != root else None


def kept_streams(place: Path, attempt: Attempt | None = None) -> list[KeptStream]:
    """Return the raw streams of a trial, turn by turn, then its session files.

    place is what the row names in `raw`, below the folder of the row's file. No streams are found
    where they were removed or damaged, or are those of another attempt than the one given.
    """
    try:
        if _RECORD.fullmatch(place.name):
            found = _packed(place, attempt)
        else:
            found = list(_in_folder(place))
    except OSError:
        return []
    # By length, then name: turn 10 comes after turn 2.
    return sorted(found, key=lambda s: (s.is_session_file, len(s.name.partition("/")[0]), s.name))


def record_name(segment: str, offset: int) -> str:
    """Return how a row names a record."""
    return f"{segment}@{offset}"


def is_there(place: Path) -> bool:
    """Whether there is a folder or segment where streams should be."""
    return place.with_name(segment_of(place.name) or place.name).exists()


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


def _packed(place: Path, attempt: Attempt | None) -> list[KeptStream]:
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
    if attempt is not None and not attempt.may_be(header.trial):
        return []
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
