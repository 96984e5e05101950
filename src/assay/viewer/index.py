"""An index of one result file: its columns on disk, extended as the file grows."""

import contextlib
import copy
import fcntl
import hashlib
import hmac
import os
import tempfile
from collections.abc import Iterator
from itertools import compress, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay import plugins
from assay.compare.columns import (
    ROW,
    TRIAL,
    Block,
    ColumnReader,
    Columns,
    RunFacts,
)
from assay.compare.runs import Run, failed_ungraded, impossible_rows, make_run
from assay.records.files import remove_folder
from assay.records.private import cache_root, private_folder, write_private
from assay.records.rows import UNREADABLE, line_blocks
from assay.records.signatures import user_key
from assay.records.trial.files import Kind, kind_of

_BLOCK = 1024 * 1024
_CACHE = "index"
_VERSION = 9  # of the layout on disk; an index of another version is made again
_SAMPLE = 4096
_HEAD = 160
_MOST_BAD = 20
_INPUT = msgspec.json.Decoder(str | list[str])
_TEXT = msgspec.json.Decoder(tuple[str, str])
_NOTHING = msgspec.json.Decoder(msgspec.UnsetType)
"""Accepts no line; for a file of which no row has been recognised yet."""


class IndexMeta(msgspec.Struct, rename="camel"):
    """What the index is an index of, and how much of it."""

    version: int = _VERSION
    by: str = "category"
    size: int = 0
    """Bytes of the file that have been read."""
    sample: str = ""
    """Fingerprint of what was read: another file under the same name is read from its start."""
    n_lines: int = 0
    """Lines that have been read, blank ones too."""
    n_rows: int = 0
    n_trials: int = 0
    text_size: int = 0
    n_bad: int = 0
    bad: list[int] = []
    """Numbers of the first lines that could not be read."""
    facts: RunFacts = msgspec.field(default_factory=RunFacts)
    code: str = ""
    """Shows that we made the index, and that its files are as we left them."""


class Index:
    """The rows and trials of one file. Call refresh to see what was added since."""

    def __init__(self, path: Path, by: str = "category", *, keep: bool = True) -> None:
        plugins.check_output(path)
        self.path = path
        self._by = by
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock_fd = -1
        self.folder = self._claim(keep=keep)
        self.meta = self._load()
        self._judged: Block | None = None

    def refresh(self) -> bool:
        """Read what was added; return whether anything changed."""
        size = self.path.stat().st_size
        if size == self.meta.size:
            return False
        before = self.meta
        if size < before.size or self.sampled(before.size) != before.sample:
            before = IndexMeta(by=self._by)
        # On a copy: other threads use the old state until the files are complete.
        meta = copy.deepcopy(before)
        _extend(self.path, self.folder, meta)
        meta.sample = self.sampled(meta.size)
        self._save(meta)
        self.meta, self._judged = meta, None
        return (before.n_trials, before.n_bad) != (meta.n_trials, meta.n_bad)

    @property
    def kind(self) -> Kind:
        """Whether rows hold one trial or several."""
        return self.meta.facts.kind or "capture"

    @property
    def columns(self) -> Block:
        """All rows and their trials, in the order of the file, with verdicts as they are compared.

        They are mapped from disk.
        """
        # Both are read once: another thread may refresh meanwhile.
        judged, meta = self._judged, self.meta
        if judged is None or len(judged.rows["id"]) != meta.n_rows:
            judged = self._stored(meta)
            failed = failed_ungraded(judged.trials, meta.facts.causes)
            for name in ("passed", "score") if failed.any() else ():
                values = judged.trials[name]
                if not np.isnan(values).all():  # of a grader that only passes or fails
                    judged.trials[name] = np.where(failed, 0.0, values)
            self._judged = judged
        return judged

    def _stored(self, meta: IndexMeta) -> Block:
        return Block(
            {name: self._map(f"rows.{name}", ROW[name], meta.n_rows) for name in ROW},
            {name: self._map(f"trials.{name}", TRIAL[name], meta.n_trials) for name in TRIAL},
        )

    def run(self, label: str) -> Run:
        """Return the same columns as a run to be compared."""
        meta = self.meta
        facts, columns = meta.facts, self._stored(meta)
        texts = (text for _, block in self.text_blocks() for text in _TEXT.decode_lines(block))
        # The file may have grown since the columns were taken.
        ids = [prompt_id for prompt_id, _ in islice(texts, len(columns.rows["id"]))]
        return make_run(label, self.path, facts, ids, columns)

    def text(self, row: int) -> tuple[str, str]:
        """Return id and beginning of the input of a row."""
        with (self.folder / "texts").open("rb") as file:
            file.seek(int(self.columns.rows["text"][row]))
            return _TEXT.decode(file.readline())

    def line(self, row: int) -> bytes:
        """Return a row as it stands in the file."""
        rows = self.columns.rows
        with self.path.open("rb") as file:
            file.seek(int(rows["offset"][row]))
            return file.read(int(rows["length"][row]))

    def text_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield all texts in whole lines, with the offset of each block; for searching."""
        if self.meta.text_size:
            with (self.folder / "texts").open("rb") as file:
                yield from line_blocks(file, size=_BLOCK)

    def close(self) -> None:
        """Release the lock, the mapped columns and a temporary folder."""
        self._judged = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
        if self._temporary is not None:
            self._temporary.cleanup()

    def _map(self, name: str, dtype: str, n: int) -> NDArray[Any]:
        if not n:
            return np.zeros(0, dtype)
        return np.memmap(self.folder / name, dtype, mode="r", shape=(n,))

    def _claim(self, *, keep: bool) -> Path:
        """Lock a folder for this index: in the user's cache, else a temporary one.

        Never beside the file: whoever gave us the results could have put an index there.
        """
        with contextlib.suppress(OSError):  # cannot be written
            if keep and (folder := _cached(self.path)):
                private_folder(_CACHE)
                folder.mkdir(exist_ok=True, mode=0o700)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(folder / "lock", flags, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:  # another viewer has it open
                    os.close(fd)
                    raise
                self._lock_fd = fd
                return folder
        self._temporary = tempfile.TemporaryDirectory(prefix="assay-index-")
        return Path(self._temporary.name)

    def _load(self) -> IndexMeta:
        try:
            meta = msgspec.json.decode((self.folder / "meta.json").read_bytes(), type=IndexMeta)
            whole = all(
                (self.folder / name).stat().st_size >= size for name, size in _sizes(meta).items()
            )
            known = meta.version == _VERSION and meta.by == self._by and whole
            ours = meta.code and hmac.compare_digest(meta.code, self._code(meta))
            if known and ours and self.sampled(meta.size) == meta.sample:
                return meta
        except (OSError, msgspec.MsgspecError):
            pass
        self._remove_files()
        return IndexMeta(by=self._by)

    def _code(self, meta: IndexMeta) -> str:
        """Return a code that only we can make, of the index and its files as they are now.

        Whoever changes one of these changes its time, too, which cannot be set. Without a key
        there is none, and the index is made again next time.
        """
        if (key := user_key(make=True)) is None:
            return ""
        files = [(self.folder / name).lstat() for name in _sizes(meta)]
        stamps = [(one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in files]
        about = msgspec.structs.replace(meta, code="")
        text = msgspec.json.encode((str(self.path.resolve()), about, stamps), order="sorted")
        return hmac.new(key, text, "sha256").hexdigest()

    def _remove_files(self) -> None:
        """Remove what may be anything, links and FIFOs included."""
        for path in self.folder.iterdir():
            if path.name != "lock":
                if path.is_dir() and not path.is_symlink():
                    remove_folder(str(path))
                else:
                    path.unlink()

    def _save(self, meta: IndexMeta) -> None:
        # Written last, and replaced at once: it says how many bytes of each column count, so that a
        # kill leaves the index as it was.
        meta.code = self._code(meta)
        write_private(self.folder / "meta.json", msgspec.json.encode(meta))

    def sampled(self, size: int) -> str:
        """Fingerprint the beginning and the end of what has been read."""
        with self.path.open("rb") as file:
            return sample_of(file, size)


def sample_of(file: BinaryIO, size: int) -> str:
    """Fingerprint the beginning and the end of the first bytes of a file."""
    digest = hashlib.blake2b(digest_size=12)
    file.seek(0)
    digest.update(file.read(min(_SAMPLE, size)))
    file.seek(max(0, size - _SAMPLE))
    digest.update(file.read(min(_SAMPLE, size)))
    return digest.hexdigest()


def indexed_size(path: Path) -> int:
    """Return how many bytes of a file a kept index covers; 0 if there is none."""
    try:
        data = (_cached(path) / "meta.json").read_bytes()
        return msgspec.json.decode(data, type=IndexMeta).size
    except (OSError, msgspec.MsgspecError):
        return 0


def id_hash(prompt_id: str) -> int:
    """Return an eight-byte fingerprint of an id, by which tables of a million rows are joined."""
    return int.from_bytes(hashlib.blake2b(prompt_id.encode(), digest_size=8).digest(), "little")


def _extend(path: Path, folder: Path, meta: IndexMeta) -> None:
    """Read the rest of a file into its index."""
    reader: ColumnReader | None = None
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(path.open("rb"))
        files = {
            name: stack.enter_context(_appended(folder / name, size))
            for name, size in _sizes(meta).items()
        }
        for offset, block in line_blocks(source, meta.size, _BLOCK):
            block = _finished_lines(block)
            kind = meta.facts.kind or _first_kind(block)
            if reader is None and kind is not None:
                reader = ColumnReader(kind, meta.by, meta.facts, with_steps=True)
            found, columns = _read_block(block, reader)
            _note_bad(meta, found.bad)  # before n_lines, from which it counts
            meta.n_lines += block.count(b"\n")
            meta.size = offset + len(block)
            if columns is None:
                continue
            encoded = [
                msgspec.json.encode((row.id, head)) + b"\n"
                for row, head in zip(found.rows, found.heads, strict=True)
            ]
            _place(columns.rows, found, offset, meta.text_size, encoded)
            for kind_of_column, named in (("rows", columns.rows), ("trials", columns.trials)):
                for name, column in named.items():
                    files[f"{kind_of_column}.{name}"].write(column.tobytes())
            meta.text_size += files["texts"].write(b"".join(encoded))
            meta.n_rows += len(columns.rows["id"])
            meta.n_trials += len(columns.trials["passed"])


def _sizes(meta: IndexMeta) -> dict[str, int]:
    """Name the files of an index, one for each column, and how many bytes of each count."""
    rows = {f"rows.{name}": meta.n_rows * np.dtype(ROW[name]).itemsize for name in ROW}
    trials = {f"trials.{name}": meta.n_trials * np.dtype(TRIAL[name]).itemsize for name in TRIAL}
    return rows | trials | {"texts": meta.text_size}


class _BlockRows(NamedTuple):
    """The rows of a block of lines, each with its place in the block."""

    rows: list[Any]
    heads: list[str]
    starts: list[int]
    lengths: list[int]
    lines: list[int]
    """The number of each in the block."""
    bad: list[int]
    """The same of lines that cannot be read."""

    def without(self, left_out: NDArray[np.bool_]) -> "_BlockRows":
        """Count some rows among the bad lines."""
        keep = (~left_out).tolist()
        rows, heads, starts, lengths, lines = (list(compress(each, keep)) for each in self[:5])
        bad = sorted([*self.bad, *compress(self.lines, left_out.tolist())])
        return _BlockRows(rows, heads, starts, lengths, lines, bad)


def _read_block(block: bytes, reader: ColumnReader | None) -> tuple[_BlockRows, Block | None]:
    """Read some lines; what compare would refuse is left out here, and the rest is shown."""
    found = _decode_lines(block, reader)
    if reader is None or not found.rows:
        return found, None
    columns = reader.read(found.rows)
    impossible = impossible_rows(columns)
    if not impossible.any():
        return found, columns
    found = found.without(impossible)
    return found, reader.read(found.rows) if found.rows else None


def _decode_lines(block: bytes, reader: ColumnReader | None) -> _BlockRows:
    found = _BlockRows([], [], [], [], [], [])
    start = 0
    for number, line in enumerate(block.split(b"\n")):
        if line and not line.isspace():
            try:
                row = (reader.decoder if reader else _NOTHING).decode(line)
                found.heads.append(_head(row))  # raises too, before the row is counted
            except UNREADABLE:
                found.bad.append(number)
            else:
                found.rows.append(row)
                found.starts.append(start)
                found.lengths.append(len(line))
                found.lines.append(number)
        start += len(line) + 1
    return found


def _head(row: Any) -> str:
    """Return the beginning of the input, on one line."""
    text = _INPUT.decode(row.input)
    return " ".join((text if isinstance(text, str) else " → ".join(text))[:_HEAD].split())


def _place(
    rows: Columns, found: _BlockRows, offset: int, text_offset: int, texts: list[bytes]
) -> None:
    """Fill in where each row stands in its file, and where its text is kept."""
    rows["offset"][:] = np.add(found.starts, offset)
    rows["length"][:] = found.lengths
    rows["text"][:] = np.cumsum([text_offset, *map(len, texts[:-1])])
    rows["id"][:] = [id_hash(row.id) for row in found.rows]


def _note_bad(meta: IndexMeta, bad: list[int]) -> None:
    meta.n_bad += len(bad)
    room = max(0, _MOST_BAD - len(meta.bad))
    meta.bad = [*meta.bad, *(meta.n_lines + number + 1 for number in bad[:room])]


def _finished_lines(block: bytes) -> bytes:
    """Leave out a last line that is still being written: one that is not whole JSON."""
    if block.endswith(b"\n"):
        return block
    whole, line_feed, rest = block.rpartition(b"\n")
    with contextlib.suppress(*UNREADABLE):
        if isinstance(msgspec.json.decode(rest), dict):
            return block
    return whole + line_feed


def _first_kind(block: bytes) -> Kind | None:
    for line in block.split(b"\n"):
        with contextlib.suppress(*UNREADABLE):
            kind = kind_of(line)
            if kind is not None:
                return kind
    return None


@contextlib.contextmanager
def _appended(path: Path, size: int) -> Iterator[BinaryIO]:
    """Open a file to append after its first bytes; a kill may have left more, which is cut off."""
    with path.open("ab") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        yield file


def _cached(path: Path) -> Path:
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return cache_root() / _CACHE / name
