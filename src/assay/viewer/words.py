"""The words of a result file, in an SQLite index (FTS5) in the user's cache folder.

FTS5 comes with Python, is searched on disk, grows with the file and is one file to delete. It holds
only which row has which word (detail=none, no copy of the text): enough to name the few rows in
which a query is then looked for. Big files are indexed by a process of its own:
`python -m assay.viewer.words`, request on stdin.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from assay.compare.columns import ROW
from assay.errors import AssayError, InputError
from assay.records.files import remove_folder
from assay.records.private import private_folder
from assay.records.rows import UNREADABLE
from assay.records.tools import TOOL_KINDS
from assay.run.host import LocalHost
from assay.viewer.index import Index, sample_of
from assay.viewer.query import Term, words

_VERSION = 1
_SMALL = 4 * 1024 * 1024
"""So much is indexed while somebody waits for the answer."""
_AT_ONCE = 2000
_TIME_LIMIT_S = 7200.0
_MAKE = (
    "CREATE VIRTUAL TABLE words USING fts5(text, content='', detail=none, columnsize=0, "
    "tokenize='unicode61 remove_diacritics 0')"
)
_CONTROL = re.compile(rb"\\u[0-9a-fA-F]{4}")
_ESCAPES = tuple(f"\\{sign}".encode() for sign in "\\ntrbf")


class _IndexedPart(msgspec.Struct):
    """What of a file is in the index."""

    version: int = _VERSION
    n_rows: int = 0
    size: int = 0
    sample: str = ""


class WordIndex:
    """Which rows of a file have which words; it is extended in the background."""

    def __init__(self, index: Index) -> None:
        self._index = index
        name = hashlib.sha256(str(index.path.resolve()).encode()).hexdigest()[:24]
        self._path = private_folder("search") / f"{name}.sqlite"
        self._working = threading.Lock()
        if not self._is_of_this_file():
            for ending in ("", "-wal", "-shm"):
                remove_folder(str(self._path.with_name(self._path.name + ending)), missing_ok=True)

    def _is_of_this_file(self) -> bool:
        """Whether what is kept belongs to the rows that are here now, and can be read."""
        try:
            with _opened(self._path) as database:
                if not _has_own_schema(database):
                    return False
                covered = _indexed_part(database)
        except (OSError, sqlite3.DatabaseError):  # a folder, a link or anything else
            return False
        size = self._index.meta.size
        fits = covered.size <= size and covered.version == _VERSION
        return fits and covered.sample == (
            self._index.sampled(covered.size) if covered.n_rows else ""
        )

    def extend(self) -> int:
        """Have new rows indexed: a few at once, many in the background; return how many are."""
        meta = self._index.meta
        with _opened(self._path) as database:
            covered = _indexed_part(database)
        if covered.n_rows >= meta.n_rows or not self._working.acquire(blocking=False):
            return covered.n_rows
        request = _Request(
            str(self._index.path), str(self._index.folder), str(self._path), meta.n_rows, meta.size
        )
        request.sample = meta.sample
        if meta.size - covered.size <= _SMALL:
            try:
                _extend(request)
            finally:
                self._working.release()
            return meta.n_rows
        threading.Thread(target=self._extend_in_child, args=(request,), daemon=True).start()
        return covered.n_rows

    def rows(self, expression: str, after: int) -> Iterator[int]:
        """Yield the rows behind this one that have all words of an FTS5 expression."""
        with _opened(self._path) as database:
            while True:
                found = database.execute(
                    "SELECT rowid FROM words WHERE words MATCH ? AND rowid > ? "
                    "ORDER BY rowid LIMIT ?",
                    (expression, after + 1, _AT_ONCE),
                ).fetchall()
                for (number,) in found:
                    yield number - 1  # SQLite counts from 1
                if len(found) < _AT_ONCE:
                    return
                after = found[-1][0] - 1

    def _extend_in_child(self, request: "_Request") -> None:
        command = (sys.executable, "-m", "assay.viewer.words")
        try:
            with contextlib.suppress(AssayError):
                data = msgspec.json.encode(request)
                LocalHost().run(command, stdin=data, timeout_s=_TIME_LIMIT_S)
        finally:
            self._working.release()


def expression(terms: list[Term]) -> str:
    """Return what FTS5 is asked for: every word that a matching row must have. It may be empty."""
    parts = []
    for term in terms:
        if term.negated:
            continue
        if term.kind:
            parts.append(_any_name(term))
        elif term.field in ("", "tool", "file", "id"):
            quoted = [f'"{word}"' for word in term.words]
            if term.prefix and quoted:
                quoted[-1] += "*"
            parts += quoted
        elif term.field == "exit":
            parts.append('"exitcode"')
            if term.op in (":", "=") and term.text.isdigit():
                parts.append(f'"{term.text}"')
    return " AND ".join(parts)


def _any_name(term: Term) -> str:
    """Ask for the words of any tool of a kind."""
    kind = TOOL_KINDS[term.kind]
    # Names that a pattern describes begin with that of their kind.
    names = {*kind.names, term.text, *([term.kind] if kind.pattern else [])}
    each = (" AND ".join(f'"{word}"' for word in words(name)) for name in sorted(names))
    return f"({' OR '.join(f'({one})' for one in each)})"


class _Request(msgspec.Struct):
    file: str
    columns: str
    database: str
    n_rows: int
    size: int
    sample: str = ""


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database, with an index in it; only its owner can read it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    os.close(fd)
    if not is_file:
        msg = f"{path} is no file"
        raise OSError(msg)
    database = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    try:
        # A writer and readers at once. What a power cut destroys can be made again.
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("PRAGMA cache_size=-8000")
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone():
            _make(database)
        yield database
    finally:
        database.close()


def _make(database: sqlite3.Connection) -> None:
    try:
        database.execute(_MAKE)
        database.execute("CREATE TABLE covered (about BLOB)")
    except sqlite3.OperationalError as error:
        if "already exists" in str(error):
            return  # another process was faster
        msg = f"the words cannot be indexed: {error}"
        hint = "the search needs a Python whose SQLite has FTS5, and some space in ~/.cache"
        raise InputError(msg, hint=hint) from error


def _has_own_schema(database: sqlite3.Connection) -> bool:
    """Whether nobody put a view or a trigger there, or another table of words."""
    found = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    made = {name: sql for _, name, sql in found}
    return made.get("words") == _MAKE and {kind for kind, *_ in found} <= {"table", "index"}


def _indexed_part(database: sqlite3.Connection) -> _IndexedPart:
    try:
        found = database.execute("SELECT about FROM covered").fetchone()
        return msgspec.json.decode(found[0], type=_IndexedPart) if found else _IndexedPart()
    except (sqlite3.OperationalError, msgspec.MsgspecError):
        return _IndexedPart()


def _extend(request: _Request) -> None:
    """Index the rows that are missing, some at a time, each time so that a kill loses none."""
    parent = os.getppid()
    columns = {
        name: np.memmap(Path(request.columns, f"rows.{name}"), ROW[name], "r")
        for name in ("offset", "length")
    }
    with _opened(Path(request.database)) as database, Path(request.file).open("rb") as file:
        done = _indexed_part(database).n_rows
        while done < request.n_rows and os.getppid() == parent:  # the viewer has ended
            end = min(done + _AT_ONCE, request.n_rows)
            texts = []
            for row in range(done, end):
                file.seek(int(columns["offset"][row]))
                texts.append((row + 1, text_of(file.read(int(columns["length"][row])))))
            last = end == request.n_rows
            size = request.size if last else int(columns["offset"][end])
            sample = request.sample if last else sample_of(file, size)
            about = msgspec.json.encode(_IndexedPart(n_rows=end, size=size, sample=sample))
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", texts)
            database.execute("DELETE FROM covered")
            database.execute("INSERT INTO covered VALUES (?)", (about,))
            database.execute("COMMIT")
            done = end


def text_of(line: bytes) -> str:
    r"""Return a row as text to be split into words: `\n` between two words is no letter."""
    if b"\\u" in line:
        with contextlib.suppress(*UNREADABLE):
            line = msgspec.json.encode(msgspec.json.decode(line))
    for escape in _ESCAPES:  # a backslash first: `\\n` is no line feed
        line = line.replace(escape, b" ")
    line = _CONTROL.sub(b" ", line)
    return line.decode("utf-8", "replace")


if __name__ == "__main__":
    os.nice(10)
    _extend(msgspec.json.decode(sys.stdin.buffer.read(), type=_Request))
