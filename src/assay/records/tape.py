"""A tape: what models answered to agents, kept to be answered again.

It is gzip: one member for each exchange, JSON lines inside, so that `zcat` shows all of it. A
member is written whole when its exchange has ended; a kill loses at most the exchange in flight. At
the end stand an index and a member of fixed length that says where it is. Without them, as after a
kill, the tape is read from its start. What many requests have in common, such as tools and earlier
messages, stands on the tape once, as a part that they refer to.
"""

import fcntl
import hashlib
import os
import stat
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from assay.errors import InputError, OutputError

FORMAT = 1
_BLOCK = 256 * 1024
_GZIP = 31
_MAGIC = b"\x1f\x8b"
_LEAST_PART = 160
"""Bytes of JSON; what is shorter is not worth a reference."""
_MOST_SLOW_S = 3600.0
_HELD = 16
"""Members that are held unpacked."""
MOST_UNPACKED = 256 * 1024 * 1024
"""Bytes of an exchange, or of the index: a tape of somebody else may unpack to anything."""
_PART = "$part"
_TRAILER = b'{"indexAt":"%020d"}\n'


class Fault(msgspec.Struct, kw_only=True, frozen=True):
    """Something that goes wrong on purpose between an agent and its model."""

    status: int = 0
    """What the provider answers; 0 if it is none of its answers."""
    cut: bool = False
    """Whether an answer ends before its end."""
    slow_s: float = 0.0
    """How much later the answer begins."""
    share: float = 1.0
    """Of the requests that it happens to."""


def parse_fault(text: str) -> Fault:
    """Read 429:0.1, cut:0.05 or slow:2s; raises InputError."""
    kind, *rest = text.split(":")
    try:
        if kind == "slow":
            length, share = (*rest, "1")[:2]
            fault = Fault(slow_s=float(length.removesuffix("s")), share=float(share))
        elif kind == "cut":
            fault = Fault(cut=True, share=float((*rest, "1")[0]))
        else:
            fault = Fault(status=int(kind), share=float((*rest, "1")[0]))
        does = fault.cut or 0 < fault.slow_s <= _MOST_SLOW_S or 400 <= fault.status < 600
        fits = does and 0 < fault.share <= 1 and len(rest) <= 1 + (kind == "slow")
    except ValueError:
        fits = False
    if not fits:
        msg = f"{text!r} is no fault such as 429:0.1, cut:0.05 or slow:2s"
        raise InputError(msg)
    return fault


class TapeUse(msgspec.Struct, kw_only=True, frozen=True):
    """What a run does with the answers of models: record them, replay them, or spoil some."""

    record: str = ""
    """The tape that they are added to."""
    replay: str = ""
    """The tape that they come from, without any provider."""
    misses: bool = False
    """Whether a request that the tape has no answer to goes to the provider, and onto the tape."""
    pace: float = 0.0
    """How fast answers come: 1 is as they were recorded, 0 at once."""
    faults: tuple[Fault, ...] = ()
    arm: str = ""
    """Of an experiment."""
    role: str = ""
    """judge or user, where it is not the agent that is measured who asks."""
    shown: str = ""
    """The path of the tape as rows name it: relative to the folder of the output."""

    @property
    def written(self) -> str:
        """The tape that exchanges are added to, if there is one."""
        return self.record or (self.replay if self.misses else "")


class Lane(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """The conversation of one attempt at a trial with its models."""

    lane: int
    """Its number on this tape, from 1; of several of the same trial, the last one counts."""
    prompt: str
    trial: int = 1
    attempt: int = 0
    """How often the trial had been tried before."""
    arm: str = ""
    asked: list[str] = []
    """The turns of the prompt, secrets masked."""
    agent: str = ""
    version: str = ""
    role: str = ""
    """judge or user, if it is not the agent that is measured."""
    of: str = ""
    """The trial that it was cut from, on another tape."""
    about: Any = None
    """What is needed to run it again: its prompt, the agent with its options, and its identity."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What a trial finds its lane by."""
        return self.arm, self.prompt, self.trial, self.attempt

    @property
    def words(self) -> str:
        """The lane, for people."""
        arm = f"{self.arm}, " if self.arm else ""
        if self.role:
            again = f" ({self.trial})" if self.trial > 1 else ""
            return f"{arm}question {self.prompt.partition(' ')[2]} to a {self.role}{again}"
        again = f", attempt {self.attempt + 1}" if self.attempt else ""
        return f"{arm}prompt {self.prompt}, trial {self.trial}{again}"


class Tokens(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What a provider says that an exchange used."""

    input: int = 0
    """With what was cached."""
    output: int = 0
    """With thoughts."""
    cache_read: int = 0
    cache_write: int = 0


class Exchange(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """One request of an agent, and what it was answered."""

    lane: int
    number: int
    """Its place in the lane, from 1."""
    method: str
    path: str
    request: Any = None
    """Its body: what differs from run to run has names, and the results of tools only a place."""
    results: list[Any] = []
    """The results of tools in the request, in order."""
    status: int = 0
    """0: there was no answer."""
    headers: dict[str, str] = {}
    answer: list[tuple[int, str]] = []
    """Piece by piece, each with the ms since the request; of a stream, one piece for an event."""
    cut: bool = False
    """Whether the answer ended before its end."""
    model: str = ""
    tokens: Tokens | None = None
    turn: int = 0
    """Of the prompt, from 1."""
    talk: int = 0
    """Which conversation of the lane it belongs to; sub-agents have others than their agent."""
    after: int = 0
    """How many exchanges of the lane had ended when it was asked."""
    cause: int = 0
    """The exchange whose answer began its conversation; 0 is the prompt, or not known."""

    @property
    def took_ms(self) -> int:
        """From the request to the end of its answer."""
        return self.answer[-1][0] if self.answer else 0

    @property
    def key(self) -> str:
        """What equal requests have in common."""
        return _key_of_folded(msgspec.structs.replace(self, request=fold(self.request, {})))


class Spot(NamedTuple):
    """Where an exchange stands, and what is needed to find it."""

    at: int
    lane: int
    number: int
    key: str
    talk: int = 0
    after: int = 0
    cause: int = 0


class _Index(msgspec.Struct, kw_only=True):
    lanes: list[Lane] = []
    spots: list[Spot] = []
    parts: dict[str, int] = {}


class _Line(msgspec.Struct):
    """A line of a tape has one of these."""

    tape: int | None = None
    part: str | None = None
    value: Any = None
    lane: Lane | None = None
    exchange: Exchange | None = None
    index: _Index | None = None


_LINE = msgspec.json.Decoder(_Line)


def fold(body: Any, parts: dict[str, bytes]) -> Any:
    """Return a body whose long parts are references; put these into parts, by their digest."""
    if not isinstance(body, dict) or body.keys() == {_PART}:
        return _folded(body, parts)
    return {
        name: [_folded(one, parts) for one in value]
        if isinstance(value, list)
        else _folded(value, parts)
        for name, value in body.items()
    }


def _folded(value: Any, parts: dict[str, bytes]) -> Any:
    encoded = msgspec.json.encode(value, order="sorted")
    # What an agent asks may look like a reference.
    if len(encoded) < _LEAST_PART and _PART.encode() not in encoded:
        return value
    digest = _digest(encoded)
    parts[digest] = encoded
    return {_PART: digest}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


def _packed(data: bytes, level: int = 6) -> bytes:
    """Return a member without a time in it: the same content is the same file."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return packer.compress(data) + packer.flush()


_DAMAGED_HINT = "the exchanges before it are whole: cut the file at that byte, or record again"
_NO_INDEX = (LookupError, TypeError, ValueError, StopIteration, InputError)
_TRAILER_BYTES = len(_packed(_TRAILER % 0, 0))


def _members(fd: int, path: Path, at: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield where each member begins and ends, and what is in it; a torn one at the end is left.

    Raises InputError for one that is damaged.
    """
    size, n_lines = os.fstat(fd).st_size, 0
    while at < size:
        unpacker, end, found, left = zlib.decompressobj(_GZIP), at, [], MOST_UNPACKED
        try:
            while not unpacker.eof and end < size:
                block = os.pread(fd, _BLOCK, end)
                found.append(unpacker.decompress(block, left))
                left -= len(found[-1])
                if left <= 0:
                    msg = f"{path}: byte {at}: it unpacks to more than {MOST_UNPACKED} bytes"
                    raise InputError(msg, hint="--record TAPE makes no such tape")
                end += len(block) - len(unpacker.unused_data)
        except zlib.error as error:
            msg = f"{path}:{n_lines + 1}: the tape is damaged at byte {at}: {error}"
            raise InputError(msg, hint=_DAMAGED_HINT) from error
        if not unpacker.eof:
            return
        data = b"".join(found)
        n_lines += data.count(b"\n")
        yield at, end, data
        at = end


def _lines(data: bytes, path: Path, n_before: int = 0) -> Iterator[_Line]:
    for number, line in enumerate(data.splitlines(), n_before + 1):
        try:
            yield _LINE.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            msg = f"{path}:{number}: not a line of a tape: {error}"
            raise InputError(msg, hint=_DAMAGED_HINT) from error


class Tape:
    """A tape that is read: its index is held, exchanges are unpacked when they are asked for."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self.path = path
        self.n_torn = 0
        """Bytes of an exchange that was not written to its end."""
        self._lock = threading.RLock()
        self._held: OrderedDict[int, tuple[Exchange | None, dict[str, Any]]] = OrderedDict()
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        try:
            if writable:
                path.parent.mkdir(parents=True, exist_ok=True)
            self.fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            kind = OutputError if writable else InputError
            msg = f"cannot open the tape {path}: {error.strerror}"
            raise kind(msg, hint="--record TAPE makes one") from error
        try:
            if not stat.S_ISREG(os.fstat(self.fd).st_mode):
                raise _no_tape(path)
            if writable:
                _lock(self.fd, path)
            self.end = 0
            """Where the next exchange goes."""
            self._index = self._read_index()
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        # Threads that a trial did not wait for find no file in its place.
        fd, self.fd = self.fd, -1
        os.close(fd)

    @property
    def lanes(self) -> list[Lane]:
        """All lanes, those that count and those that a later one replaces."""
        return self._index.lanes

    @property
    def current(self) -> dict[tuple[str, str, int, int], Lane]:
        """The lanes that count, by their keys."""
        return {lane.key: lane for lane in self._index.lanes}

    def about(self, lane: Lane) -> dict[str, Any]:
        """Return what is needed to run the trial of a lane again."""
        found: dict[str, Any] = self._unfolded(lane.about) or {}
        return found

    def spots(self, lane: int) -> list[Spot]:
        """Return where the exchanges of a lane are, in order."""
        return [spot for spot in self._index.spots if spot.lane == lane]

    def exchange(self, spot: Spot) -> Exchange:
        """Return an exchange with all its parts.

        Raises InputError where the index leads to something else.
        """
        try:
            found = self._member(spot.at)[0]
            if found is None:
                raise KeyError(spot.number)
            return msgspec.structs.replace(
                found,
                request=self._unfolded(found.request),
                results=[self._unfolded(one) for one in found.results],
            )
        except (OSError, OverflowError, RecursionError, *_NO_INDEX) as error:
            if isinstance(error, InputError):
                raise
            msg = f"{self.path}: byte {spot.at}: there is no exchange, as its index says"
            raise InputError(msg, hint="record again") from error

    def exchanges(self, lane: int | None = None) -> Iterator[Exchange]:
        """Yield the exchanges of a lane, or of all, in the order in which they ended."""
        for spot in self._index.spots:
            if lane is None or spot.lane == lane:
                yield self.exchange(spot)

    def _unfolded(self, value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {_PART}:
                digest = value[_PART]
                at = self._index.parts.get(digest)
                if at is None:
                    msg = f"{self.path}: a part is missing: {digest}"
                    raise InputError(msg)
                return self._member(at)[1][digest]
            return {name: self._unfolded(one) for name, one in value.items()}
        return [self._unfolded(one) for one in value] if isinstance(value, list) else value

    def _member(self, at: int) -> tuple[Exchange | None, dict[str, Any]]:
        with self._lock:
            if at not in self._held:
                self._held[at] = self._read_member(at)
                if len(self._held) > _HELD:
                    self._held.popitem(last=False)
            self._held.move_to_end(at)
            return self._held[at]

    def _read_member(self, at: int) -> tuple[Exchange | None, dict[str, Any]]:
        _, _, data = next(_members(self.fd, self.path, at))
        exchange, parts = None, {}
        for line in _lines(data, self.path):
            exchange = line.exchange or exchange
            if line.part is not None:
                parts[line.part] = line.value
        return exchange, parts

    def _read_index(self) -> _Index:
        size = os.fstat(self.fd).st_size
        if not size:
            return _Index()
        found = self._kept_index(size)
        if found is not None:
            return found
        if os.pread(self.fd, len(_MAGIC), 0) != _MAGIC[:size]:
            raise _no_tape(self.path)
        index, self.end, n_lines = _Index(), 0, 0
        for at, end, data in _members(self.fd, self.path):
            lines = list(_lines(data, self.path, n_lines))
            n_lines += len(lines)
            if at == 0 and (not lines or lines[0].tape is None):
                break
            if not any(line.index for line in lines):
                _take(index, at, lines)
                self.end = end
        if not self.end and size > _TRAILER_BYTES:
            raise _no_tape(self.path)
        self.n_torn = size - self.end
        if not self.end:  # killed before it had written anything
            return index
        self._check_format()
        return index

    def _kept_index(self, size: int) -> _Index | None:
        """Return the index that stands at the end of a tape that was closed."""
        last = os.pread(self.fd, _TRAILER_BYTES, max(0, size - _TRAILER_BYTES))
        try:
            at = int(msgspec.json.decode(zlib.decompress(last, _GZIP))["indexAt"])
            _, _, data = next(_members(self.fd, self.path, at))
            index = _LINE.decode(data).index
        except (zlib.error, OSError, OverflowError, *_NO_INDEX):
            return None
        self.end = at
        self._check_format()
        return index

    def check(self) -> None:
        """Read all of it; raises InputError for the line at which it is damaged."""
        n_lines = 0
        for _, _, data in _members(self.fd, self.path):
            n_lines += len(list(_lines(data, self.path, n_lines)))

    def _check_format(self) -> None:
        data = next(_members(self.fd, self.path), (0, 0, b""))[2]
        version = next(_lines(data, self.path, 0), _Line()).tape
        if version != FORMAT:
            msg = f"{self.path}: a tape of format {version}, which this version cannot read"
            raise InputError(msg, hint="use a newer version of Assay")


def _no_tape(path: Path) -> InputError:
    return InputError(f"{path} is no tape", hint="--record TAPE makes one")


def _take(index: _Index, at: int, lines: Iterable[_Line]) -> None:
    for line in lines:
        if line.part is not None:
            index.parts[line.part] = at
        if line.lane is not None:
            index.lanes.append(line.lane)
        if line.exchange is not None:
            index.spots.append(_spot(at, line.exchange))


def _spot(at: int, one: Exchange) -> Spot:
    key = _key_of_folded(one)
    return Spot(at, one.lane, one.number, key, one.talk, one.after, one.cause)


def _key_of_folded(exchange: Exchange) -> str:
    asked = (exchange.method, exchange.path, exchange.request)
    return _digest(msgspec.json.encode(asked, order="sorted"))


class TapeWriter(Tape):
    """A tape that exchanges are added to, by one process at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, writable=True)
        # What was torn goes; an index is written again when the tape is closed.
        os.ftruncate(self.fd, self.end)
        if not self.end:
            self._append(msgspec.json.encode({"tape": FORMAT}) + b"\n")

    def add_lane(self, lane: Lane) -> Lane:
        """Begin a lane; return it with its number."""
        parts: dict[str, bytes] = {}
        about = fold(lane.about, parts)
        with self._lock:
            lane = msgspec.structs.replace(lane, lane=len(self._index.lanes) + 1, about=about)
            self._append_with(parts, _encoded_line("lane", lane))
            self._index.lanes.append(lane)
        return lane

    def add(self, exchange: Exchange) -> int:
        """Write an exchange that has ended; return how many bytes it takes."""
        parts: dict[str, bytes] = {}
        request = fold(exchange.request, parts)
        results = [_folded(one, parts) for one in exchange.results]
        folded = msgspec.structs.replace(exchange, request=request, results=results)
        with self._lock:
            at = self._append_with(parts, _encoded_line("exchange", folded))
            self._index.spots.append(_spot(at, folded))
            return self.end - at

    def _append_with(self, parts: dict[str, bytes], line: bytes) -> int:
        new = parts.keys() - self._index.parts.keys()
        lines = [
            b'{"part":"%b","value":%b}\n' % (name.encode(), data)
            for name, data in parts.items()
            if name in new
        ]
        at = self._append(b"".join(lines) + line)
        self._index.parts |= dict.fromkeys(new, at)
        return at

    def add_from(
        self,
        source: Tape,
        lanes: Mapping[int, Lane],
        change: Callable[[Exchange], Exchange] = lambda one: one,
    ) -> dict[int, int]:
        """Add these lanes of another tape, as they are given; return the numbers they get here."""
        numbers = {}
        for old in sorted(lanes):
            about = source.about(lanes[old])
            given = msgspec.structs.replace(lanes[old], about=about or None)
            numbers[old] = self.add_lane(given).lane
        for one in source.exchanges():
            if one.lane in numbers:
                self.add(change(msgspec.structs.replace(one, lane=numbers[one.lane])))
        return numbers

    def close(self) -> None:
        """Write the index."""
        try:
            at = self.end
            self._append(_encoded_line("index", self._index))
            self._append(_TRAILER % at, 0)
        finally:
            super().close()

    def _append(self, data: bytes, level: int = 6) -> int:
        packed, at = memoryview(_packed(data, level)), self.end
        try:
            while packed:
                n_bytes = os.pwrite(self.fd, packed, self.end)
                self.end += n_bytes
                packed = packed[n_bytes:]
        except OSError as error:
            os.ftruncate(self.fd, at)
            self.end = at
            msg = f"cannot write the tape {self.path}: {error.strerror}"
            raise OutputError(msg) from error
        return at


def copy_lanes(
    source: Tape,
    target: Path,
    lanes: Mapping[int, Lane],
    change: Callable[[Exchange], Exchange] = lambda one: one,
) -> None:
    """Write a tape with these lanes of another, as they are given, in their order.

    The target appears when it is whole; it may be the source.
    """
    part = target.with_name(f".{target.name[:100]}.part")
    part.unlink(missing_ok=True)
    with TapeWriter(part) as writer:
        writer.add_from(source, lanes, change)
    if target.exists():
        part.chmod(target.stat().st_mode & 0o777)
    part.replace(target)


def _encoded_line(name: str, value: Any) -> bytes:
    return msgspec.json.encode({name: value}) + b"\n"


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        msg = f"{path} is being written by another assay process"
        raise OutputError(msg, hint="wait until it ends, or record to another tape") from error
