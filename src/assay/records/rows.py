"""Read and write rows: one JSON object per line, unknown fields kept, errors with file and line."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from assay.errors import InputError

_BUFFER = 256 * 1024
"""Rows are longer than the usual buffer: with this one they are read in half the time."""
_ROW = msgspec.json.Decoder(dict[str, Any])
BOM = b"\xef\xbb\xbf"
"""What some editors put before the first row."""
type Place = str
"""Where a row stands: file:line."""


def read_lines(path: Path | None) -> Iterator[tuple[Place, bytes]]:
    """Give the non-blank lines of a file, or of stdin, one at a time."""
    if path is None:
        yield from _file_lines("stdin", sys.stdin.buffer)
        return
    try:
        with path.open("rb", buffering=_BUFFER) as file:
            yield from _file_lines(str(path), file)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


def decode_row[T](
    place: Place, line: bytes, kind: type[T], *, hint: str = ""
) -> tuple[T, dict[str, Any]]:
    """Check one line against a record; give it with the fields the record does not know."""
    try:
        row = _ROW.decode(line)
        record = msgspec.convert(row, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{place}: {explain(error)}"
        raise InputError(msg, hint=hint) from error
    known = _field_names(kind)
    return record, {name: value for name, value in row.items() if name not in known}


def encode_row(record: Any, extra: dict[str, Any]) -> bytes:
    """Write a record as one line, with the fields it did not know behind its own."""
    line = msgspec.json.encode(record)
    own = _field_names(type(record))
    more = {name: value for name, value in extra.items() if name not in own}
    return line[:-1] + b"," + msgspec.json.encode(more)[1:] if more else line


def _file_lines(name: str, file: Iterable[bytes] | BinaryIO) -> Iterator[tuple[Place, bytes]]:
    for number, line in enumerate(file, 1):
        text = line.removeprefix(BOM) if number == 1 else line
        if text and not text.isspace():
            yield f"{name}:{number}", text


def explain(error: Exception) -> str:
    """Say in words what is wrong with a row that did not decode."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start} of a string"
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return text.replace("Object missing required field", "missing field")
    return f"not a JSON object: {text}"


def _field_names(kind: type[Any]) -> frozenset[str]:
    names = _FIELD_NAMES.get(kind)
    if names is None:
        fields = msgspec.structs.fields(kind)
        names = _FIELD_NAMES[kind] = frozenset(field.encode_name for field in fields)
    return names


_FIELD_NAMES: dict[type[Any], frozenset[str]] = {}


_BLOCK = 64 * 1024
"""Small enough that a block and its rows stay in the processor's cache."""
_OPEN, _CLOSE = b"{}"
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
        self._counted = (0, 1)

    @property
    def empty(self) -> bool:
        """Whether there is nothing but blanks."""
        self._file.seek(0)
        return not any(line.strip(BOM + b" \t\r\n") for line in self._file)

    def blocks[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[list[T]]:
        """Give all rows from the start, many at a time; memory holds one block.

        A file that begins with one row to a line is believed to go on so: looking at every line
        feed would take longer than most of what is done with the rows.
        """
        for start, block in self._line_blocks():
            try:
                rows = decoder.decode_lines(block)
            except _UNREADABLE:
                rows = self._decode_each(block, start, decoder)
            else:
                if start == 0 and not _one_to_a_line(block, len(rows)):
                    rows = self._decode_each(block, start, decoder)
            yield rows

    def rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
        """Give all rows from the start."""
        for block in self.blocks(decoder):
            yield from block

    def texts(self) -> Iterator[bytes]:
        """Give all rows from the start as they are written, many at a time; each ends its line."""
        for start, block in self._line_blocks():
            try:
                n_rows = len(_OBJECT.decode_lines(block))
                _check_text(block)
            except _UNREADABLE:
                n_rows = 0
            if _tidy(block, n_rows):
                yield block
                continue
            lines = _block_lines(block)
            if not _one_each(lines, n_rows):
                self._check_each(block, start)
                lines = _block_lines(block.removeprefix(BOM) if start == 0 else block)
            yield b"\n".join([*lines, b""])

    def placed_rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[Spot, T]]:
        """Give all rows with the spot at which row_at finds each again."""
        self._file.seek(0)
        offset = number = 0
        while line := self._file.readline():
            number += 1
            if line.strip(BOM + b" \t\r\n"):
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

    def _line_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Give whole lines from the start, many at a time, and where they begin."""
        start = 0
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            block += self._file.readline()
            yield start, block
            start += len(block)

    def _line_number(self, offset: int) -> int:
        """Count lines up to there, onwards from where they were counted last."""
        at, number = self._counted if self._counted[0] <= offset else (0, 1)
        here = self._file.tell()
        self._file.seek(at)
        while some := self._file.read(min(_BLOCK, offset - at)):
            at += len(some)
            number += some.count(b"\n")
        self._counted = (at, number)
        self._file.seek(here)
        return number

    def _decode_each[T](
        self, block: bytes, start: int, decoder: msgspec.json.Decoder[T]
    ) -> list[T]:
        """Look at every line by itself, to name the bad one or to mend it."""
        first = self._line_number(start)
        return [
            self._decode_line(line, number, decoder)
            for number, line in enumerate(block.split(b"\n"), first)
            if line.strip(BOM + b" \t\r")
        ]

    def _check_each(self, block: bytes, start: int) -> None:
        first = self._line_number(start)
        for number, line in enumerate(block.split(b"\n"), first):
            if not line.strip(BOM + b" \t\r"):
                continue
            self._decode_line(line, number, _OBJECT)
            try:
                _check_text(line)
            except UnicodeDecodeError as error:
                msg = f"{self.name}:{number}: {explain(error)}"
                raise InputError(msg) from error

    def _decode_line[T](self, line: bytes, number: int, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(line.removeprefix(BOM) if number == 1 else line)
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


def _tidy(block: bytes, n_rows: int) -> bool:
    """Say whether these are so many lines, and each of them is one whole row.

    A decoder of lines takes other JSON too. But no row has a line feed between } and {.
    """
    n_lines, at, last = 0, block.find(b"\n"), len(block) - 1
    while at >= 0:
        if block[at - 1] != _CLOSE or (at < last and block[at + 1] != _OPEN):
            return False
        n_lines += 1
        at = block.find(b"\n", at + 1)
    return n_lines == n_rows and block[0] == _OPEN and block.endswith(b"\n")


def _one_to_a_line(block: bytes, n_rows: int) -> bool:
    return _tidy(block, n_rows) or _one_each(_block_lines(block), n_rows)


def _block_lines(block: bytes) -> list[bytes]:
    return [line for line in map(bytes.strip, block.split(b"\n")) if line]


def _one_each(lines: list[bytes], n_rows: int) -> bool:
    """Say the same of lines without the blanks round them."""
    return len(lines) == n_rows and all(line[0] == _OPEN and line[-1] == _CLOSE for line in lines)


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
