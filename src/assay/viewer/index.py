"""An index of one result file: where every trial stands and what tables say about it."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.compare.runs import Kind
from assay.errors import InputError
from assay.records.rows import BOM

_HEAD = 160
_MOST_NAME = 200
_NO_CATEGORY = "(uncategorized)"


class Entry(NamedTuple):
    """One trial; None is not known or not measured."""

    number: int
    passed: bool | None
    score: float | None
    ms: float | None
    usd: float | None
    tokens: float | None
    n_steps: int
    cause: str
    tools: list[tuple[str, bool]]
    """Name of each tool call, and whether it failed."""


class Line(NamedTuple):
    """One line: the prompt and its trials."""

    id: str
    head: str
    category: str
    entries: list[Entry]
    is_trials: bool


class _Step(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    name: str = "unknown"
    status: str = ""


class _Cause(msgspec.Struct, gc=False):
    cause: str = ""


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None


class _Grade(msgspec.Struct, gc=False):
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None


class _Timing(msgspec.Struct, gc=False):
    start: float | None = None
    end: float | None = None
    total: float | None = None


class _Trial(msgspec.Struct, gc=False, rename="camel"):
    trial_num: int
    trajectory: list[_Step] = []
    duration: float | None = None
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    usage: _Usage | None = None
    failure: _Cause | None = None


class _Row(msgspec.Struct, gc=False):
    id: str
    input: str | list[str] = ""
    metadata: dict[str, Any] | None = None
    trajectory: list[_Step] | None = None
    timing: _Timing | None = None
    score: _Grade | None = None
    usage: _Usage | None = None
    failure: _Cause | None = None
    trials: list[_Trial] | None = None


_DECODER = msgspec.json.Decoder(_Row)
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


def read_line(line: bytes, category_key: str) -> Line:
    """Read one line; raises one of UNREADABLE when it is no row of ours."""
    row = _DECODER.decode(line)
    if row.trials is not None:
        entries = [_trial(trial) for trial in row.trials]
    elif row.trajectory is not None and row.timing is not None:
        entries = [_capture(row)]
    else:
        msg = "neither a capture (trajectory, timing) nor trials (trials)"
        raise ValueError(msg)
    text = row.input if isinstance(row.input, str) else " → ".join(row.input)
    category = (row.metadata or {}).get(category_key)
    return Line(
        id=row.id,
        head=" ".join(text[:_HEAD].split()),
        category=_NO_CATEGORY if category is None else str(category)[:_MOST_NAME],
        entries=entries,
        is_trials=row.trials is not None,
    )


def id_hash(prompt_id: str) -> int:
    """Name an id by eight bytes: what a table of a million rows can be joined by."""
    return int.from_bytes(hashlib.blake2b(prompt_id.encode(), digest_size=8).digest(), "little")


def _capture(row: _Row) -> Entry:
    grade, timing = row.score or _Grade(), row.timing or _Timing()
    length = timing.total
    if length is None and timing.start is not None and timing.end is not None:
        length = timing.end - timing.start
    return _entry(1, grade, length, row.usage, row.failure, row.trajectory or [])


def _trial(trial: _Trial) -> Entry:
    grade = _Grade(trial.pass_, trial.score)
    steps = trial.trajectory
    return _entry(trial.trial_num, grade, trial.duration, trial.usage, trial.failure, steps)


def _entry(
    number: int,
    grade: _Grade,
    ms: float | None,
    usage: _Usage | None,
    failure: _Cause | None,
    steps: list[_Step],
) -> Entry:
    used = usage or _Usage()
    return Entry(
        number=number,
        passed=grade.pass_,
        score=grade.score,
        ms=ms,
        usd=used.cost_usd,
        tokens=_sum(used.input_tokens, used.output_tokens),
        n_steps=len(steps),
        cause=failure.cause[:_MOST_NAME] if failure else "",
        tools=list(_tools(steps)),
    )


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def _tools(steps: list[_Step]) -> Iterator[tuple[str, bool]]:
    return (
        (step.name[:_MOST_NAME], step.status == "failed")
        for step in steps
        if step.type == "tool_call"
    )


_BLOCK = 4 * 1024 * 1024
_VERSION = 2
_SAMPLE = 4096
_MOST_NAMES = 60_000
_MOST_BAD = 20
RECORD = np.dtype(
    [
        ("id", "<u8"),
        ("offset", "<u8"),
        ("text", "<u8"),
        ("length", "<u4"),
        ("score", "<f4"),
        ("ms", "<f4"),
        ("usd", "<f4"),
        ("tokens", "<f4"),
        ("steps", "<u4"),
        ("number", "<u2"),
        ("category", "<u2"),
        ("cause", "u1"),
        ("passed", "i1"),
    ]
)
"""passed: 1, 0, or -1 for not measured; text: where id and input stand in the texts."""
type Records = NDArray[np.void]


class Meta(msgspec.Struct, rename="camel"):
    """What the index is an index of, and what does not fit into records of a fixed size."""

    version: int = _VERSION
    by: str = "category"
    size: int = 0
    """Bytes of the file that have been read."""
    sample: str = ""
    """Fingerprint of what was read: another file under the same name is read anew."""
    n: int = 0
    n_lines: int = 0
    text_size: int = 0
    is_trials: bool = False
    n_bad: int = 0
    bad: list[int] = []
    """Numbers of the first lines that could not be read."""
    categories: list[str] = []
    causes: list[str] = msgspec.field(default_factory=lambda: [""])
    tools: dict[str, list[int]] = {}
    """Calls and failed calls of each tool."""


class Index:
    """The trials of one file. Call refresh to see what was added since."""

    def __init__(self, path: Path, by: str = "category", *, keep: bool = True) -> None:
        self.path = path
        self._by = by
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock_fd = -1
        self.folder = self._claim(keep=keep)
        self.meta = self._load()
        self._records: Records | None = None

    def refresh(self) -> bool:
        """Read what was added; say whether anything changed."""
        size = self.path.stat().st_size
        if size == self.meta.size:
            return False
        if size < self.meta.size or self._sampled(self.meta.size) != self.meta.sample:
            self.meta = Meta(by=self._by)
        before = (self.meta.n, self.meta.n_bad)
        _Extender(self.path, self.folder, self.meta).run()
        self.meta.sample = self._sampled(self.meta.size)
        self._save()
        self._records = None
        return before != (self.meta.n, self.meta.n_bad)

    @property
    def kind(self) -> Kind:
        """Say whether rows hold one trial or several."""
        return "trials" if self.meta.is_trials else "capture"

    @property
    def records(self) -> Records:
        """Give all trials, in the order of the file; mapped from disk."""
        if self._records is None:
            if not self.meta.n:
                return np.zeros(0, RECORD)
            self._records = np.memmap(self.folder / "rows", RECORD, mode="r", shape=(self.meta.n,))
        return self._records

    def text(self, number: int) -> tuple[str, str]:
        """Give id and beginning of the input of a trial."""
        with (self.folder / "texts").open("rb") as file:
            file.seek(int(self.records["text"][number]))
            prompt_id, head = msgspec.json.decode(file.readline(), type=tuple[str, str])
        return prompt_id, head

    def line(self, number: int) -> bytes:
        """Give the line of a trial as it stands in the file."""
        record = self.records[number]
        with self.path.open("rb") as file:
            file.seek(int(record["offset"]))
            return file.read(int(record["length"]))

    def text_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Give all texts in whole lines, with the offset of each block; for searching."""
        if not self.meta.text_size:
            return
        with (self.folder / "texts").open("rb") as file:
            offset = 0
            while offset < self.meta.text_size and (block := file.read(_BLOCK)):
                block += file.readline()
                yield offset, block
                offset += len(block)

    def close(self) -> None:
        """Let go of the files."""
        self._records = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
        if self._temporary is not None:
            self._temporary.cleanup()

    def _claim(self, *, keep: bool) -> Path:
        """Find a folder that is ours alone: beside the file, in the cache, else a new one."""
        if keep:
            for folder in (_beside(self.path), _cached(self.path)):
                with contextlib.suppress(OSError):
                    folder.mkdir(parents=True, exist_ok=True)
                    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    try:
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        os.close(fd)
                        break  # another viewer has it open
                    self._lock_fd = fd
                    return folder
        self._temporary = tempfile.TemporaryDirectory(prefix="assay-index-")
        return Path(self._temporary.name)

    def _load(self) -> Meta:
        try:
            meta = msgspec.json.decode((self.folder / "meta.json").read_bytes(), type=Meta)
            sizes = [(self.folder / name).stat().st_size for name in ("rows", "texts")]
            whole = sizes[0] >= meta.n * RECORD.itemsize and sizes[1] >= meta.text_size
            known = meta.version == _VERSION and meta.by == self._by and whole
            if known and self._sampled(meta.size) == meta.sample:
                return meta
        except (OSError, msgspec.MsgspecError):
            pass
        return Meta(by=self._by)

    def _save(self) -> None:
        target = self.folder / "meta.json"
        fresh = target.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self.meta))
        fresh.replace(target)

    def _sampled(self, size: int) -> str:
        """Fingerprint the beginning and the end of what has been read."""
        digest = hashlib.blake2b(digest_size=12)
        with self.path.open("rb") as file:
            digest.update(file.read(min(_SAMPLE, size)))
            file.seek(max(0, size - _SAMPLE))
            digest.update(file.read(min(_SAMPLE, size)))
        return digest.hexdigest()


def indexed_size(path: Path) -> int:
    """Say how much of a file stands in an index that was kept; 0 if there is none."""
    for folder in (_beside(path), _cached(path)):
        try:
            return msgspec.json.decode((folder / "meta.json").read_bytes(), type=Meta).size
        except (OSError, msgspec.MsgspecError):
            continue
    return 0


class _Extender:
    """Reads the rest of a file into the index."""

    def __init__(self, path: Path, folder: Path, meta: Meta) -> None:
        self._path, self._folder, self._meta = path, folder, meta
        self._categories = {name: n for n, name in enumerate(meta.categories)}
        self._causes = {name: n for n, name in enumerate(meta.causes)}
        self._rows: list[tuple[Any, ...]] = []
        self._texts: list[bytes] = []

    def run(self) -> None:
        meta = self._meta
        with (
            self._path.open("rb", buffering=0) as source,
            _at(self._folder / "rows", meta.n * RECORD.itemsize) as rows,
            _at(self._folder / "texts", meta.text_size) as texts,
        ):
            for block in _line_blocks(source, meta.size):
                for line in block:
                    self._take(line)
                rows.write(np.array(self._rows, RECORD).tobytes())
                texts.write(b"".join(self._texts))
                self._rows.clear()
                self._texts.clear()
        meta.categories, meta.causes = list(self._categories), list(self._causes)

    def _take(self, line: bytes) -> None:
        meta, offset = self._meta, self._meta.size
        meta.size += len(line)
        meta.n_lines += 1
        text = line.strip(BOM + b" \t\r\n")
        if not text:
            return
        try:
            self._add(read_line(text, meta.by), offset, len(line))
        except UNREADABLE:
            meta.n_bad += 1
            if len(meta.bad) < _MOST_BAD:
                meta.bad = [*meta.bad, meta.n_lines]

    def _add(self, line: Line, offset: int, length: int) -> None:
        meta = self._meta
        meta.is_trials = line.is_trials
        prompt, text = id_hash(line.id), meta.text_size
        told = msgspec.json.encode((line.id, line.head)) + b"\n"
        self._texts.append(told)
        meta.text_size += len(told)
        category = _number(self._categories, line.category)
        for entry in line.entries:
            cause = min(_number(self._causes, entry.cause), 255)
            passed = -1 if entry.passed is None else int(entry.passed)
            amounts = (entry.score, entry.ms, entry.usd, entry.tokens)
            numbers = [np.nan if value is None else value for value in amounts]
            number = min(entry.number, 65_535)
            where = (prompt, offset, text, length)
            self._rows.append((*where, *numbers, entry.n_steps, number, category, cause, passed))
            meta.n += 1
            for name, failed in entry.tools:
                calls = meta.tools.get(name)
                if calls is None:
                    if len(meta.tools) >= _MOST_NAMES:
                        continue
                    calls = meta.tools[name] = [0, 0]
                calls[0] += 1
                calls[1] += failed


def _number(names: dict[str, int], name: str) -> int:
    number = names.get(name)
    if number is None:
        if len(names) >= _MOST_NAMES:
            return 0
        number = names[name] = len(names)
    return number


def _line_blocks(source: Any, start: int) -> Iterator[list[bytes]]:
    """Give the lines from start on; a last line without its end only if it is whole JSON."""
    source.seek(start)
    held = b""
    while block := source.read(_BLOCK):
        whole, newline, held = (held + block).rpartition(b"\n")
        if newline:
            yield [line + b"\n" for line in whole.split(b"\n")]
    if held and _is_whole(held):
        yield [held]


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


@contextlib.contextmanager
def _at(path: Path, size: int) -> Iterator[Any]:
    """Open a file for writing behind its first bytes; what stood there is cut off."""
    with path.open("ab") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        yield file


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.assay-index")


def _cached(path: Path) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return Path(root, "assay", "index", name)


def read_whole[T](index: Index, use: Callable[[Path], T]) -> T:
    """Let use read the file; if a line stops it, a copy of the rows that can be read."""
    try:
        return use(index.path)
    except InputError:
        with tempfile.TemporaryDirectory(prefix="assay-rows-") as folder:
            copy = Path(folder, index.path.name)
            _copy_rows(index, copy)
            return use(copy)


def _copy_rows(index: Index, target: Path) -> None:
    offsets, first = np.unique(index.records["offset"], return_index=True)
    lengths = index.records["length"][first]
    with index.path.open("rb") as source, target.open("wb") as copy:
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
            source.seek(offset)
            copy.write(source.read(length).rstrip(b"\r\n") + b"\n")
