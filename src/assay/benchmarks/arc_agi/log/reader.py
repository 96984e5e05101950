"""Reads a log back: a torn last line is tolerated, any other fault is said with its line."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.log.records import SCHEMA, End, Event, Header, Record, Resumed
from assay.benchmarks.arc_agi.problems import LogProblem

MAX_LINE_BYTES = 32 * 1024 * 1024


class GameLog(msgspec.Struct, frozen=True, kw_only=True):
    """A whole log in memory; torn says that its last line was cut off and left out."""

    header: Header
    records: tuple[Event | Resumed | End, ...] = ()
    torn: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """Only the commands."""
        return tuple(record for record in self.records if isinstance(record, Event))


def read_log(path: Path) -> GameLog:
    """Read a log file; raise LogProblem with the line when it is not one."""
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


def has_header(path: Path) -> bool:
    """Say whether a log was begun; a file killed inside its first line counts as not begun."""
    try:
        with path.open("rb") as file:
            return file.readline(MAX_LINE_BYTES).endswith(b"\n")
    except FileNotFoundError:
        return False


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Give each line with its number; a last line without its end as None."""
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
