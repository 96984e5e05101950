"""Read and write rows: one JSON object per line, unknown fields kept, errors with file and line."""

import io
import os
import re
import stat
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from assay.errors import InputError
from assay.records.files import copy_part, copy_stream, temporary_file
from assay.records.ranges import Range, map_ranges

if TYPE_CHECKING:
    from assay.records.problems import Problem

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for a line that is not a row."""
_GZIP = b"\x1f\x8b"
"""How a compressed file begins."""
BOM = b"\xef\xbb\xbf"
"""What some editors put before the first row."""
_BUFFER = 256 * 1024
"""Rows are longer than the usual buffer: with this one they are read in half the time."""
_BLOCK = 64 * 1024
"""Small enough that a block and its rows stay in the processor's cache."""
_OPEN, _CLOSE = b"{}"
_ROW = msgspec.json.Decoder(dict[str, Any])
type Place = str
"""Where a row stands: file:line."""


def line_blocks(
    file: BinaryIO, start: int = 0, size: int = _BLOCK, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, many at a time, each block with its offset in the file.

    A byte order mark is skipped. Only the last block can end without a line feed; reading stops
    there even if the file has grown since, because more of that line may still be written. An end
    is where a line begins that is not read any more.
    """
    file.seek(start)
    if start == 0:
        start = len(BOM) if file.read(len(BOM)) == BOM else 0
        file.seek(start)
    while block := file.read(size if end is None else max(0, min(size, end - start))):
        if not block.endswith(b"\n"):
            block += file.readline()
        yield start, block
        if not block.endswith(b"\n"):
            return
        start += len(block)


def read_lines(path: Path | None) -> Iterator[tuple[Place, bytes]]:
    """Yield the non-blank lines of a file, or of stdin, as soon as each has arrived."""
    if path is None:
        for number, line in _lines(sys.stdin.buffer):
            yield f"stdin:{number}", line
        return
    name = str(path)  # once: to format a path for each row takes longer than to read it
    with _open(path, _BUFFER) as file:
        for number, line in _lines(file):
            yield f"{name}:{number}", line


class Spot(NamedTuple):
    """Where a row stands in its file."""

    line: int
    """Counted from 1, blank lines too."""
    offset: int


def _lines(file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of each line that is not blank."""
    for number, line in enumerate(file, 1):
        text = line.removeprefix(BOM) if number == 1 else line
        if text and not text.isspace():
            yield number, text


def decode_line[T](
    decoder: msgspec.json.Decoder[T], place: Place, line: bytes, *, hint: str = ""
) -> T:
    """Decode one row; the error names file, line and field."""
    try:
        return decoder.decode(line)
    except UNREADABLE as error:
        refuse_other_bytes(place, line)
        raise _refusal(place, error, decoder.type, hint) from error


def refuse_other_bytes(place: Place, line: bytes) -> None:
    """Raise an error for what is no text and no line: decoders complain of a consequence."""
    if line.startswith(_GZIP):
        name = place.rpartition(":")[0]
        file = "" if name == "stdin" else f" {name}"
        msg = f"{place}: compressed with gzip"
        raise InputError(msg, hint=f"decompress it first: zcat{file} | assay … -")
    try:
        _check_utf8(line)
    except UnicodeDecodeError as error:
        msg = f"{place}: not UTF-8: {error.reason} at byte {error.start} of the line"
        raise InputError(msg) from error
    _refuse_document(place, line)


def _refuse_document(place: Place, line: bytes) -> None:
    """Raise an error for the first line of JSON that is written over several lines."""
    begin = line.strip()
    is_open = bool(begin) and begin[:1] in b"{[" and begin[-1:] in b"{[,:"
    if place.endswith(":1") and is_open and b"}" not in begin:
        msg = f"{place}: this looks like one JSON document over several lines, not JSON Lines"
        name = place.rpartition(":")[0]
        what = "'.[]'" if begin.startswith(b"[") else "."
        raise InputError(msg, hint=f"write one object per line: jq -c {what} {name} > lines.jsonl")


def decode_row[T](
    place: Place, line: bytes, kind: type[T], *, hint: str = ""
) -> tuple[T, dict[str, Any]]:
    """Check one line against a record; return it with the fields the record does not know."""
    row = decode_line(_ROW, place, line, hint=hint)
    try:
        record = msgspec.convert(row, kind)
    except UNREADABLE as error:
        refused = _refusal(place, error, kind, hint)
        if "missing field `input`" in refused.message and (name := _input_in(row)):
            refused = InputError(refused.message, hint=f'rename "{name}" to "input": {hint}')
        raise refused from error
    known = _field_names(kind)
    return record, {name: value for name, value in row.items() if name not in known}


def extra_fields(line: bytes, kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a row that a record does not know."""
    known = _field_names(kind)
    try:
        row = _FIELDS.decode(line)
        return {n: msgspec.json.decode(value) for n, value in row.items() if n not in known}
    except UNREADABLE:  # whoever decodes the row says what is wrong
        return {}


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_INPUTS = ("prompt", "query", "question", "instruction", "text", "task", "message")


def _input_in(row: dict[str, Any]) -> str:
    """Return the field that other programs have in the place of "input", if there is one."""
    return next((name for name in _INPUTS if isinstance(row.get(name), str)), "")


def decode_json(name: str, data: bytes, kind: Any = Any, *, hint: str = "") -> Any:
    """Decode a whole file of JSON that a person wrote; name says where it stands."""
    try:
        return msgspec.json.decode(data.removeprefix(BOM), type=kind)
    except UNREADABLE as error:
        msg = f"{name}: not JSON: {error}"
        raise InputError(msg, hint=hint) from error


def encode_row(record: Any, extra: dict[str, Any]) -> bytes:
    """Encode a record as one line, followed by the fields it did not know."""
    line = msgspec.json.encode(record)
    own = _field_names(type(record))
    more = {name: value for name, value in extra.items() if name not in own}
    # Two JSON objects are spliced into one, without decoding ours.
    return line[:-1] + b"," + msgspec.json.encode(more)[1:] if more else line


def _refusal(place: Place, error: Exception, kind: Any, hint: str) -> InputError:
    """Return the error for a row; a hint that shows a row helps only with the fields it shows."""
    if isinstance(error, msgspec.ValidationError):
        problem = _problem_in(error, kind)
        shows = "missing" in problem.words or not problem.field or f'"{problem.field}"' in hint
        return InputError(f"{place}: {problem}", hint=hint if shows else "")
    return InputError(f"{place}: {explain(error)}", hint=hint)


def explain(error: Exception, kind: Any = None) -> str:
    """Describe what is wrong with a row that did not decode as a record of some kind."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start} of a string"
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return str(_problem_in(error, kind))
    return f"not a JSON object: {text}"


def _problem_in(error: msgspec.ValidationError, kind: Any) -> "Problem":
    from assay.records.problems import problem_in  # late: only for an error

    return problem_in(error, kind)


def _field_names(kind: type[Any]) -> frozenset[str]:
    names = _FIELD_NAMES.get(kind)
    if names is None:
        fields = msgspec.structs.fields(kind)
        names = _FIELD_NAMES[kind] = frozenset(field.encode_name for field in fields)
    return names


_FIELD_NAMES: dict[type[Any], frozenset[str]] = {}


class _Object(msgspec.Struct, gc=False):
    """Any JSON object; decoding into it checks the syntax and keeps nothing."""


_OBJECT = msgspec.json.Decoder(_Object)


class RowFile:
    """One JSON object per line, blank lines left out. May be read as often as needed."""

    has_trials = False
    """Whether these are the trials of a file of `assay trials`, each with its number."""

    def __init__(
        self, name: str, file: BinaryIO, *, hint: str = "", skip_unreadable: bool = False
    ) -> None:
        self.name = name
        self._file = file
        self._hint = hint
        self._skip_unreadable = skip_unreadable
        self._range = Range(0, None)
        """Where its lines are; a part of a file has only some."""
        self._counted = (0, 1)
        """An offset and the number of the line there, so that lines are counted only once."""
        self._lines_before: Sequence[int] = ()
        """For a copy of another file: from which line of that one each line was made."""

    def map[T](self, work: "Callable[[RowFile], T]") -> Iterator[T]:
        """Yield what work returns for each part of the file, in order; see records/ranges.py."""
        part = RowFile(
            self.name, self._file, hint=self._hint, skip_unreadable=self._skip_unreadable
        )
        part.has_trials, part._lines_before = self.has_trials, self._lines_before

        def work_on(file: BinaryIO, lines: Range) -> T:
            part._file, part._range = file, lines
            return work(part)

        return map_ranges(self._file, work_on)

    @property
    def empty(self) -> bool:
        """Whether there is nothing but blanks."""
        self._file.seek(0)
        return not any(_lines(self._file))

    def blocks[T](self, decoder: msgspec.json.Decoder[T], size: int = _BLOCK) -> Iterator[list[T]]:
        """Yield all rows from the start, many at a time; memory holds one block.

        A file that begins with one row per line is trusted to go on like that: looking at every
        line feed would take longer than most of what is done with the rows.
        """
        first = self._range.start == 0
        for start, block in self._blocks(size):
            try:
                rows = decoder.decode_lines(block)
                trusted = not first and block.endswith(b"\n")
                if not trusted and not _one_row_per_line(block, len(rows)):
                    rows = self._decode_each(block, start, decoder)
            except UNREADABLE:
                rows = self._decode_each(block, start, decoder)
            first = False
            yield rows

    def _blocks(self, size: int = _BLOCK) -> Iterator[tuple[int, bytes]]:
        start, end = self._range
        return line_blocks(self._file, start, size, end)

    def rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
        """Yield all rows from the start."""
        for block in self.blocks(decoder):
            yield from block

    def write_texts(self, out: BinaryIO) -> None:
        """Write all rows as they stand in the file, each on its line."""
        for pieces in self.map(lambda part: list(part._pieces())):
            for piece in pieces:
                if isinstance(piece, bytes):
                    out.write(piece)
                else:
                    copy_part(self._file, out, *piece)

    def _pieces(self) -> Iterator[bytes | tuple[int, int]]:
        """Yield where the rows stand in the file, or what to write in place of untidy lines."""
        start = end = -1
        for at, block in self._blocks():
            text = self._checked(at, block)
            if text is block:
                start, end = (start if at == end else at), at + len(block)
                continue
            if end > start:
                yield start, end
            start = end = -1
            yield text
        if end > start:
            yield start, end

    def _checked(self, start: int, block: bytes) -> bytes:
        """Return a block with each row on its line: the block itself if it has them like that."""
        try:
            n_rows = len(_OBJECT.decode_lines(block))
            _check_utf8(block)
        except UNREADABLE:
            n_rows = -1  # never the number of lines, so each is looked at below
        if _is_tidy(block, n_rows):
            return block
        lines = _stripped_lines(block)
        if not _are_objects(lines, n_rows):
            self._check_each(block, start)
        return b"\n".join([*lines, b""])

    def placed_rows[T](self, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[Spot, T]]:
        """Yield all rows, each with the spot at which row_at finds it again."""
        for spot, line in self._placed_lines():
            try:
                row = self._decode(line, spot.line, decoder)
            except InputError:
                if not self._skip_unreadable:
                    raise
                continue
            yield spot, row

    def _placed_lines(self) -> Iterator[tuple[Spot, bytes]]:
        number = self._line_number(self._range.start)
        for offset, block in self._blocks():
            for line in io.BytesIO(block):  # faster than the lines of a file, which come in pieces
                if not line.isspace():
                    yield Spot(number, offset), line
                number += 1
                offset += len(line)
            self._counted = (offset, number)

    def placed_lines(self) -> Iterator[tuple[Place, bytes]]:
        """Yield all lines as they stand in the file, each with its place."""
        for spot, line in self._placed_lines():
            yield self.place(spot), line

    def rewritten(self, out: BinaryIO, rewrite: Callable[[Place, bytes], list[bytes]]) -> "RowFile":
        """Write the lines that take the place of each line; rows of the result have our places."""
        came_from = array("Q")
        for lines, numbers in self.map(lambda part: part._rewritten_lines(rewrite)):
            out.write(lines)
            came_from += numbers
        made = RowFile(self.name, out, hint=self._hint, skip_unreadable=self._skip_unreadable)
        made._lines_before = came_from
        return made

    def _rewritten_lines(
        self, rewrite: Callable[[Place, bytes], list[bytes]]
    ) -> "tuple[bytes, array[int]]":
        """Return the lines, and the number of the line that each comes from."""
        made, came_from = list[bytes](), array("Q")
        for spot, line in self._placed_lines():
            try:
                lines = rewrite(self.place(spot), line)
            except InputError:
                if not self._skip_unreadable:
                    raise
                continue
            made += lines
            came_from.extend([spot.line] * len(lines))
        return b"".join(made), came_from

    def row_at[T](self, spot: Spot, decoder: msgspec.json.Decoder[T]) -> T:
        """Read one row again, with other fields this time."""
        return self._decode(self.line_at(spot), spot.line, decoder)

    def line_at(self, spot: Spot) -> bytes:
        """Return one line as it stands in the file."""
        self._file.seek(spot.offset)
        return self._file.readline()

    def place(self, spot: Spot) -> Place:
        """Name a row by file and line."""
        return self._place(spot.line)

    def _place(self, number: int) -> Place:
        return f"{self.name}:{self._lines_before[number - 1] if self._lines_before else number}"

    def _line_number(self, offset: int) -> int:
        """Count the lines up to an offset, from where they were counted last."""
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
        """Decode line by line, to name the unreadable one, to repair it or to leave it out."""
        rows = []
        for number, line in enumerate(block.split(b"\n"), self._line_number(start)):
            try:
                if line and not line.isspace():
                    rows.append(self._decode(line, number, decoder))
            except InputError:
                if not self._skip_unreadable:
                    raise
        return rows

    def _check_each(self, block: bytes, start: int) -> None:
        for number, line in enumerate(block.split(b"\n"), self._line_number(start)):
            if not line or line.isspace():
                continue
            self._decode(line, number, _OBJECT)
            try:
                _check_utf8(line)
            except UnicodeDecodeError as error:
                msg = f"{self._place(number)}: {explain(error)}"
                raise InputError(msg, hint=self._hint) from error

    def _decode[T](self, line: bytes, number: int, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decode_line(decoder, self._place(number), line, hint=self._hint)
        except InputError:
            repaired = without_lone_surrogates(line)
            if repaired is None:
                raise
        # Ends after one more call: a repaired line has no lone surrogate left.
        return self._decode(repaired, number, decoder)


def _check_utf8(text: bytes) -> None:
    """Refuse bytes that are not UTF-8; the decoder does not look at strings it skips."""
    if not text.isascii():
        str(text, "utf-8")


def _one_row_per_line(block: bytes, n_rows: int) -> bool:
    """Whether each line is a whole row; decode_lines accepts any white space between rows."""
    return _is_tidy(block, n_rows) or _are_objects(_stripped_lines(block), n_rows)


def _is_tidy(block: bytes, n_rows: int) -> bool:
    r"""Whether there are as many lines as rows, each from { to } without blanks around it.

    That is enough to know that no row spans lines: inside JSON, no `}\n{` can occur.
    """
    n_lines, at, last = 0, block.find(b"\n"), len(block) - 1
    while at >= 0:
        if block[at - 1] != _CLOSE or (at < last and block[at + 1] != _OPEN):
            return False
        n_lines += 1
        at = block.find(b"\n", at + 1)
    return n_lines == n_rows and block[0] == _OPEN and block.endswith(b"\n")


def _stripped_lines(block: bytes) -> list[bytes]:
    return [line for line in map(bytes.strip, block.split(b"\n")) if line]


def _are_objects(lines: list[bytes], n_rows: int) -> bool:
    return len(lines) == n_rows and all(line[0] == _OPEN and line[-1] == _CLOSE for line in lines)


@contextmanager
def open_rows(
    path: Path | None, *, hint: str = "", skip_unreadable: bool = False
) -> Iterator[RowFile]:
    """Open a file, or stdin; what cannot be read twice is copied first."""
    name = "stdin" if path is None else str(path)
    with _seekable(path) as file:
        yield RowFile(name, file, hint=hint, skip_unreadable=skip_unreadable)


@contextmanager
def _seekable(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        with _copy(sys.stdin.buffer) as copy:
            yield copy
        return
    with _open(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield file
            return
        with _copy(file) as copy:
            yield copy


@contextmanager
def _copy(source: BinaryIO) -> Iterator[BinaryIO]:
    with temporary_file() as copy:
        copy_stream(source, copy)
        yield copy


def _open(path: Path, buffering: int = -1) -> BinaryIO:
    try:
        return path.open("rb", buffering=buffering)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


_ESCAPES = (
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: one character
    rb"|\\[^u]|\\u(?![dD][89a-fA-F]))"  # any other escape
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"  # half a pair
)


def without_lone_surrogates(line: bytes) -> bytes | None:
    """Repair a row whose writer cut a character in two; None if that is not what is wrong."""
    # Group 1 is an escape to keep; where it is empty, the match is half a pair.
    repaired = re.sub(_ESCAPES, lambda found: found[1] or b"\\ufffd", line)
    return None if repaired == line else repaired
