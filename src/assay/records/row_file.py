"""Read a file of rows of any size, block by block; only the fields a record names are decoded."""

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from assay.errors import InputError

_BLOCK = 256 * 1024
_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


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
        self._file.seek(0)
        n_before = 0
        while block := self._file.read(_BLOCK):
            block += self._file.readline()
            n_lines = block.count(b"\n") + (not block.endswith(b"\n"))
            yield self._decode_block(block.removeprefix(_BOM), n_lines, n_before, decoder)
            n_before += n_lines

    def rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
        """Give all rows from the start."""
        for block in self.blocks(decoder):
            yield from block

    def placed_rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[int, T]]:
        """Give all rows with the offset at which row_at finds each again."""
        self._file.seek(0)
        offset = 0
        for number, line in enumerate(self._file, 1):
            if line.strip(_BOM + b" \t\r\n"):
                yield offset, self._decode_line(line, number, decoder)
            offset += len(line)

    def row_at[T](self, offset: int, decoder: msgspec.json.Decoder[T]) -> T:
        """Read one row again, with other fields this time."""
        self._file.seek(offset)
        line = self._file.readline()
        return self._decode_line(line, self._line_number(offset), decoder)

    def _line_number(self, offset: int) -> int:
        self._file.seek(0)
        n_lines = 0
        while left := offset - self._file.tell():
            n_lines += self._file.read(min(_BLOCK, left)).count(b"\n")
        return n_lines + 1

    def _decode_block[T](
        self, block: bytes, n_lines: int, n_before: int, decoder: msgspec.json.Decoder[T]
    ) -> list[T]:
        try:
            rows = decoder.decode_lines(block)
        except _UNREADABLE:
            rows = []
        if len(rows) == n_lines:
            return rows
        # Blank lines, an object over several lines, or a bad one: look at each by itself.
        return [
            self._decode_line(line, number, decoder)
            for number, line in enumerate(block.split(b"\n"), n_before + 1)
            if line.strip()
        ]

    def _decode_line[T](self, line: bytes, number: int, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(line.removeprefix(_BOM) if number == 1 else line)
        except _UNREADABLE as error:
            mended = _without_lone_surrogates(line)
            if mended is not None:
                return self._decode_line(mended, number, decoder)
            msg = f"{self.name}:{number}: {_explain(error)}"
            raise InputError(msg) from error


@contextmanager
def open_rows(path: Path | None) -> Iterator[RowFile]:
    """Open a file; stdin when there is no path. What cannot be read twice is copied first."""
    if path is None:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy, _BLOCK)
            yield RowFile("stdin", copy)
        return
    with _open(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield RowFile(str(path), file)
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy, _BLOCK)
            yield RowFile(str(path), copy)


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
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return mended if mended.strip() != line.strip() else None


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return text.replace("Object missing required field", "missing field")
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start} of a text"
    return f"not a JSON object: {text}"
