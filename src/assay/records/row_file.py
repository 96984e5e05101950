"""Read a file of rows of any size, block by block; only the fields a record names are decoded."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from assay.errors import InputError
from assay.records.jsonl import explain

_BLOCK = 64 * 1024
"""Small enough that a block and its rows stay in the processor's cache."""
_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Object(msgspec.Struct, gc=False):
    """Any row; its fields are looked at by nobody."""


_OBJECT = msgspec.json.Decoder(_Object)


class Spot(NamedTuple):
    """Where a row stands in its file."""

    line: int
    """Counted from 1, blank lines too."""
    offset: int


class RowFile:
    """One JSON object per line, blank lines left out. May be read as often as needed."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._file = file

    @property
    def empty(self) -> bool:
        """Whether there is nothing but blanks."""
        self._file.seek(0)
        return not any(line.strip() for line in self._file)

    def blocks[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[list[T]]:
        """Give all rows from the start, many at a time; memory holds one block."""
        file = self._file
        file.seek(0)
        start = 0
        while block := file.read(_BLOCK):
            block += file.readline()
            try:
                yield decoder.decode_lines(block)
            except _UNREADABLE:
                yield self._decode_each(block, start, decoder)
                file.seek(start + len(block))
            start += len(block)

    def rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
        """Give all rows from the start."""
        for block in self.blocks(decoder):
            yield from block

    def texts(self) -> Iterator[bytes]:
        """Give all rows from the start as they are written, many at a time; each ends its line."""
        file = self._file
        file.seek(0)
        start = 0
        while block := file.read(_BLOCK):
            block += file.readline()
            try:
                n_rows = len(_OBJECT.decode_lines(block))
                _check_text(block)
            except _UNREADABLE:
                yield self._text_of_each(block, start)
                file.seek(start + len(block))
            else:
                tidy = n_rows == block.count(b"\n") and b"\r" not in block
                yield block if tidy else _tidied(block)
            start += len(block)

    def placed_rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[Spot, T]]:
        """Give all rows with the spot at which row_at finds each again."""
        self._file.seek(0)
        offset = number = 0
        while line := self._file.readline():
            number += 1
            if line.strip(_BOM + b" \t\r\n"):
                yield Spot(number, offset), self._decode_line(line, number, decoder)
            offset += len(line)

    def row_at[T](self, spot: Spot, decoder: msgspec.json.Decoder[T]) -> T:
        """Read one row again, with other fields this time."""
        return self._decode_line(self.line_at(spot), spot.line, decoder)

    def line_at(self, spot: Spot) -> bytes:
        """Give one line as it stands in the file."""
        self._file.seek(spot.offset)
        return self._file.readline()

    def place(self, spot: Spot) -> str:
        """Name a row by file and line."""
        return f"{self.name}:{spot.line}"

    def _line_number(self, offset: int) -> int:
        self._file.seek(0)
        n_lines = 0
        while left := offset - self._file.tell():
            n_lines += self._file.read(min(_BLOCK, left)).count(b"\n")
        return n_lines + 1

    def _decode_each[T](
        self, block: bytes, start: int, decoder: msgspec.json.Decoder[T]
    ) -> list[T]:
        """Look at every line by itself, to name the bad one or to mend it."""
        first = self._line_number(start)
        return [
            self._decode_line(line, number, decoder)
            for number, line in enumerate(block.split(b"\n"), first)
            if line.strip(_BOM + b" \t\r")
        ]

    def _text_of_each(self, block: bytes, start: int) -> bytes:
        first = self._line_number(start)
        for number, line in enumerate(block.split(b"\n"), first):
            if not line.strip(_BOM + b" \t\r"):
                continue
            self._decode_line(line, number, _OBJECT)
            try:
                _check_text(line)
            except UnicodeDecodeError as error:
                msg = f"{self.name}:{number}: {explain(error)}"
                raise InputError(msg) from error
        return _tidied(block.removeprefix(_BOM) if first == 1 else block)

    def _decode_line[T](self, line: bytes, number: int, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(line.removeprefix(_BOM) if number == 1 else line)
        except _UNREADABLE as error:
            mended = _without_lone_surrogates(line)
            if mended is not None:
                return self._decode_line(mended, number, decoder)
            msg = f"{self.name}:{number}: {explain(error)}"
            raise InputError(msg) from error


def _check_text(text: bytes) -> None:
    """Refuse bytes that are no UTF-8; what is only skipped is not looked at so closely."""
    if not text.isascii():
        str(text, "utf-8")


def _tidied(block: bytes) -> bytes:
    lines = map(bytes.strip, block.split(b"\n"))
    return b"".join([line + b"\n" for line in lines if line])


@contextmanager
def open_rows(path: Path | None) -> Iterator[RowFile]:
    """Open a file; stdin when there is no path. What cannot be read twice is copied first."""
    if path is None:
        with _copied(sys.stdin.buffer) as copy:
            yield RowFile("stdin", copy)
        return
    with _open(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield RowFile(str(path), file)
            return
        with _copied(file) as copy:
            yield RowFile(str(path), copy)


@contextmanager
def _copied(source: BinaryIO) -> Iterator[BinaryIO]:
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(source, copy, _BLOCK)
        yield copy


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


def _without_lone_surrogates(line: bytes) -> bytes | None:
    """Mend a row written by a program that cut a character in two; None if that is not it."""
    if b"\\ud" not in line.lower():
        return None
    import json

    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return mended if mended.strip() != line.strip() else None
