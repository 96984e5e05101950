"""A bundle of evidence on disk: a zip archive in one form only, its manifest, and a Merkle tree.

Every byte of the archive is accounted for: entries follow each other without gaps, and their
headers say nothing but name, method, size and checksum. So the same input gives the same bytes, and
no byte can be changed unnoticed. The manifest has the digest of each part; the rows and raw streams
of a trial are a leaf of a tree whose root stands in the manifest.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec

from assay.errors import InputError
from assay.records.rows import UNREADABLE, explain
from assay.records.trial import NUMBER

FORMAT = 1
SCHEMA = f"assay-evidence/{FORMAT}"
MANIFEST = "manifest.json"
PLAN, RESULTS, PROMPTS = "plan.json", "results.json", "prompts.jsonl"
"""What was planned, what follows from the rows, and what was asked."""
ORIGINAL = "experiment/prompts"
"""The file of prompts of an experiment, as it was."""
ROWS, RAW = "rows/", "raw/"
ATTESTATION, REVEALED = "attestation/", "revealed/"
"""Of these the manifest says nothing: the first is about the manifest, the second is bound by the
digests that stand in the rows in place of texts."""
OPENINGS = f"{REVEALED}openings.json"
WITHHELD = "withheld:sha256:"
"""A text that was withheld: this, followed by its salted digest."""

MOST_BYTES = (1 << 32) - 1
MOST_RATIO = 200
"""Most that an archive may unpack to: in bytes, and how many times its own size."""
_SMALL_BYTES = 64 * 1024 * 1024
"""Of less than this the ratio is not looked at; also the most that a manifest may have."""
_MOST_ENTRIES = 65_534
_BLOCK = 1024 * 1024
_STORED, _DEFLATED = 0, 8
_LOCAL, _CENTRAL, _END = (struct.Struct(f) for f in ("<4s5H3I2H", "<4s6H3I5H2I", "<4s4H2IH"))
_TIME, _DATE, _VERSION, _MODE = 0, 0x21, 20, 0o100644 << 16
_LINK = 0xA000
_NAME = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


class Damaged(InputError):
    """An archive, or something in it, is not what Assay has written."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the bundle."""

    sha256: str
    bytes: int
    packed: str
    """The SHA-256 of its compressed bytes: other bytes can unpack to the same content."""


class StreamPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A raw stream of a trial."""

    name: str
    digest: str
    """Of its content, salted if it is withheld."""
    part: str = ""
    """Where it is in the archive; empty if it is withheld."""
    packed: str = ""


class Leaf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trial in the Merkle tree."""

    run: str
    id: str
    trial: int
    digest: str
    streams: list[StreamPart] = []


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle does not show."""

    what: list[str]
    """As it was asked for: outputs, inputs, raw, paths, or fields."""
    texts: int
    streams: int
    parts: list[str]
    """Files that were left out, because they repeat what is withheld."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """manifest.json"""

    schema: str
    assay: str
    root: str
    """Of the Merkle tree over the trials."""
    parts: dict[str, Part]
    leaves: list[Leaf]
    withheld: Withheld | None = None

    def encode(self) -> bytes:
        data = msgspec.json.encode(self, order="deterministic")
        return msgspec.json.format(data, indent=1) + b"\n"


class Entry(NamedTuple):
    """A file in the archive."""

    name: str
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int

    def local(self) -> bytes:
        head = _LOCAL.pack(
            b"PK\3\4", _VERSION, 0, self.method, _TIME, _DATE, self.crc, self.packed_size,
            self.size, len(self.name), 0,
        )  # fmt: skip
        return head + self.name.encode()

    def central(self) -> bytes:
        head = _CENTRAL.pack(
            b"PK\1\2", 3 << 8 | _VERSION, _VERSION, 0, self.method, _TIME, _DATE, self.crc,
            self.packed_size, self.size, len(self.name), 0, 0, 0, 0, _MODE, self.offset,
        )  # fmt: skip
        return head + self.name.encode()

    @property
    def end(self) -> int:
        return self.offset + _LOCAL.size + len(self.name) + self.packed_size


def part_name(text: str) -> str:
    """Return a text as a part of a name in the archive, unlike that of any other text."""
    if _NAME.fullmatch(text) and "/" not in text and text not in (".", "..") and len(text) < 100:
        return text
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:40] or "x"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{plain}-{digest}"


class BundleWriter:
    """Writes an archive; what was added stands there in the order in which it came."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries: list[Entry] = []
        self._at = 0

    def add(self, name: str, blocks: Iterable[bytes], *, store: bool = False) -> Part:
        """Add a file and return what the manifest says of it."""
        packer = None if store else zlib.compressobj(6, zlib.DEFLATED, -15)
        crc, size, total, pieces = 0, 0, hashlib.sha256(), list[bytes]()
        for block in blocks:
            crc, size = zlib.crc32(block, crc), size + len(block)
            total.update(block)
            pieces.append(block if packer is None else packer.compress(block))
        if packer is not None:
            pieces.append(packer.flush())
        packed = hashlib.sha256()
        for piece in pieces:
            packed.update(piece)
        method = _STORED if store else _DEFLATED
        entry = Entry(name, method, crc, sum(map(len, pieces)), size, self._at)
        if max(size, entry.end) > MOST_BYTES or len(self._entries) >= _MOST_ENTRIES:
            msg = f"{name}: a bundle may have {_gb(MOST_BYTES)} and {_MOST_ENTRIES} files at most"
            raise InputError(msg, hint="withhold the raw streams with --redact raw, or pack fewer")
        self._file.write(entry.local())
        self._file.writelines(pieces)
        self._entries.append(entry)
        self._at = entry.end
        return Part(sha256=total.hexdigest(), bytes=size, packed=packed.hexdigest())

    def copy(self, bundle: "Bundle", name: str) -> None:
        """Take over a file of another bundle as it is."""
        entry = bundle.entries[name]._replace(offset=self._at)
        self._file.write(entry.local())
        self._file.writelines(bundle.packed_blocks(name))
        self._entries.append(entry)
        self._at = entry.end

    def close(self) -> None:
        """Write the directory of the archive."""
        _refuse_ratio(sum(e.size for e in self._entries), self._at, "the bundle")
        directory = b"".join(entry.central() for entry in self._entries)
        n = len(self._entries)
        self._file.write(directory)
        self._file.write(_END.pack(b"PK\5\6", 0, 0, n, n, len(directory), self._at, 0))


class Bundle:
    """A bundle that somebody made: nothing in it is believed, and nothing is unpacked by itself."""

    def __init__(self, path: Path, *, is_evidence: bool = True) -> None:
        """An archive of the same form that is no bundle of evidence has no manifest."""
        self.path = path
        self.irregular: list[str] = []
        """Where the archive is not as Assay writes it, although it can be read."""
        self._file = path.open("rb")
        try:
            self.entries = self._directory()
            if is_evidence:
                self.manifest = self._manifest()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, name: str, most: int = MOST_BYTES) -> bytes:
        """Return a file of the archive."""
        if name not in self.entries:
            msg = f"{self.path}: {name} is missing"
            raise Damaged(msg)
        if self.entries[name].size > most:
            msg = f"{self.path}: {name} has more than {_gb(most)}"
            raise Damaged(msg)
        return b"".join(self.blocks(name))

    def json(self, name: str, kind: Any = Any, most: int = _SMALL_BYTES) -> Any:
        """Decode a file of the archive; a path in it is a place for the error."""
        try:
            return msgspec.json.decode(self.read(name, most), type=kind)
        except UNREADABLE as error:
            msg = f"{self.path}: {name}: {explain(error, kind)}"
            raise Damaged(msg) from error

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield a file of the archive in pieces, never more than its entry says."""
        entry = self.entries[name]
        crc, size = 0, 0
        for block in self._unpacked(entry):
            size += len(block)
            if size > entry.size:
                break
            crc = zlib.crc32(block, crc)
            yield block
        if (crc, size) != (entry.crc, entry.size):
            msg = f"{self.path}: {name}: its checksum or its size is wrong"
            raise Damaged(msg)

    def packed_blocks(self, name: str) -> Iterator[bytes]:
        """Yield a file of the archive as it is stored."""
        entry = self.entries[name]
        at, left = self._data_at[name], entry.packed_size
        while left:
            self._file.seek(at)
            block = self._file.read(min(_BLOCK, left))
            if not block:
                msg = f"{self.path}: {name}: the archive ends too early"
                raise Damaged(msg)
            at, left = at + len(block), left - len(block)
            yield block

    def _unpacked(self, entry: Entry) -> Iterator[bytes]:
        if entry.method == _STORED:
            yield from self.packed_blocks(entry.name)
            return
        unpacker = zlib.decompressobj(-15)
        try:
            for packed in self.packed_blocks(entry.name):
                block = unpacker.decompress(packed, _BLOCK)
                yield block
                while unpacker.unconsumed_tail:
                    yield unpacker.decompress(unpacker.unconsumed_tail, _BLOCK)
            yield unpacker.flush()
        except zlib.error as error:
            msg = f"{self.path}: {entry.name}: it cannot be unpacked: {error}"
            raise Damaged(msg) from error
        if unpacker.unused_data or not unpacker.eof:
            msg = f"{self.path}: {entry.name}: it is not compressed as it should be"
            raise Damaged(msg)

    def _directory(self) -> dict[str, Entry]:
        size = self._file.seek(0, 2)
        self._file.seek(max(0, size - _END.size))
        tail = self._file.read()
        if len(tail) < _END.size or not tail.startswith(b"PK\5\6"):
            msg = f"{self.path}: no bundle of evidence, or not all of it"
            raise Damaged(msg, hint="`assay evidence pack` writes one")
        _, disk, first, n_here, n, length, at, comment = _END.unpack(tail)
        if 0xFFFF in (n_here, n) or 0xFFFFFFFF in (length, at):
            msg = f"{self.path}: it unpacks to more than {_gb(MOST_BYTES)}"
            raise Damaged(msg)
        if disk or first or comment or n_here != n or at + length + _END.size != size:
            msg = f"{self.path}: the directory of the archive is not where it should be"
            raise Damaged(msg, hint="something stands before, after or between its files")
        if length > _SMALL_BYTES:
            msg = f"{self.path}: the directory of the archive is too long"
            raise Damaged(msg)
        self._file.seek(at)
        entries, seen = self._entries(self._file.read(length), n), dict[str, Entry]()
        total = 0
        for entry in entries:
            total += entry.size
            if entry.name in seen:
                msg = f"{self.path}: {entry.name} is in it twice"
                raise Damaged(msg)
            seen[entry.name] = entry
        _refuse_ratio(total, size, str(self.path))
        self._find_data(entries, at)
        return seen

    def _entries(self, directory: bytes, n: int) -> list[Entry]:
        entries, at = list[Entry](), 0
        for _ in range(n):
            if at + _CENTRAL.size > len(directory):
                break
            fields = _CENTRAL.unpack_from(directory, at)
            n_name, n_more = fields[10], fields[11] + fields[12]
            start = at + _CENTRAL.size
            name = directory[start : start + n_name].decode("utf-8", "backslashreplace")
            entry = Entry(name, fields[4], fields[7], fields[8], fields[9], fields[16])
            self._refuse(entry, flags=fields[3], mode=fields[15] >> 16)
            end = start + n_name + n_more
            if entry.central() != directory[at:end]:
                self.irregular.append(f"{name}: its entry in the directory says more than it may")
            entries.append(entry)
            at = end
        if len(entries) != n or at != len(directory):
            msg = f"{self.path}: the directory of the archive is damaged"
            raise Damaged(msg)
        return entries

    def _refuse(self, entry: Entry, *, flags: int, mode: int) -> None:
        why = ""
        if not _NAME.fullmatch(entry.name) or {".", ".."} & {*entry.name.split("/")}:
            why = "a name that leads out of the bundle, or cannot be one of it"
        elif mode & 0xF000 == _LINK:
            why = "a link"
        elif flags & 1:
            why = "encrypted"
        elif entry.method not in (_STORED, _DEFLATED):
            why = f"compressed by a method ({entry.method}) that bundles do not use"
        elif 0xFFFFFFFF in (entry.size, entry.packed_size, entry.offset):
            why = f"larger than {_gb(MOST_BYTES)}"
        if why:
            msg = f"{self.path}: {entry.name[:200]!r}: {why}"
            raise Damaged(msg)

    def _find_data(self, entries: Sequence[Entry], end: int) -> None:
        """Note where the content of each entry begins; between them there must be nothing."""
        self._data_at: dict[str, int] = {}
        expected = 0
        for entry in entries:
            if entry.offset != expected:
                msg = f"{self.path}: {entry.name}: it overlaps another file, or there is a gap"
                raise Damaged(msg)
            self._file.seek(entry.offset)
            head = self._file.read(_LOCAL.size)
            if len(head) < _LOCAL.size or not head.startswith(b"PK\3\4"):
                msg = f"{self.path}: {entry.name}: its header is damaged"
                raise Damaged(msg)
            *_, n_name, n_extra = _LOCAL.unpack(head)
            begin = entry.offset + _LOCAL.size + n_name + n_extra
            if head + self._file.read(n_name + n_extra) != entry.local():
                self.irregular.append(f"{entry.name}: its header is not that of its directory")
            self._data_at[entry.name] = begin
            expected = begin + entry.packed_size
        if expected != end:
            msg = f"{self.path}: something stands between its files and their directory"
            raise Damaged(msg)

    def _manifest(self) -> Manifest:
        about = self.json(MANIFEST, dict[str, Any])
        _, _, number = str(about.get("schema", "")).rpartition("assay-evidence/")
        if number.isdecimal() and int(number) > FORMAT:
            msg = f"{self.path}: made by a later version of Assay ({about.get('assay')})"
            hint = f"this one reads bundles up to format {FORMAT}, and this is of format {number}"
            raise InputError(msg, hint=f"{hint}: install a newer one")
        if about.get("schema") != SCHEMA:
            msg = f"{self.path}: {MANIFEST} is not that of a bundle of evidence"
            raise Damaged(msg)
        found: Manifest = self.json(MANIFEST, Manifest)
        own = [name for name in found.parts if name == MANIFEST or is_unlisted(name)]
        if own:
            msg = f"{self.path}: {MANIFEST} lists {own[0]}, of which it can say nothing"
            raise Damaged(msg)
        return found


def is_unlisted(name: str) -> bool:
    """Whether the manifest does not say what is in a file."""
    return name == MANIFEST or name.startswith((ATTESTATION, REVEALED))


def _refuse_ratio(total: int, size: int, name: str) -> None:
    if total > MOST_BYTES or (total > _SMALL_BYTES and total > MOST_RATIO * size):
        how = f"{total // max(size, 1)} times its size"
        msg = f"{name}: it unpacks to {_gb(total)}, {how}"
        most = f"{_gb(MOST_BYTES)} and {MOST_RATIO} times its size"
        raise Damaged(msg, hint=f"a bundle unpacks to {most} at most")


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


# The tree over the trials: that of RFC 6962, so that a tool of others can check it.


def leaf_digest(run: str, trial: "TrialBytes", streams: Iterable[tuple[str, str]]) -> str:
    """Return the leaf of a trial: its row, and the names and digests of its raw streams."""
    content = [run, trial.id, trial.number, trial.sha256, [list(one) for one in streams]]
    return hashlib.sha256(b"\0" + msgspec.json.encode(content)).hexdigest()


def tree_root(leaves: Sequence[str]) -> str:
    """Return the root of the Merkle tree over these leaves."""
    return _root([bytes.fromhex(leaf) for leaf in leaves]).hex()


def _root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _root(leaves[:half]) + _root(leaves[half:])).digest()


class TrialBytes(NamedTuple):
    """What stands on disk about one trial."""

    id: str
    number: int
    sha256: str


class _RowPieces(msgspec.Struct):
    id: str
    output: msgspec.Raw = msgspec.Raw()
    trials: list[msgspec.Raw] | None = None


class _Number(msgspec.Struct):
    number: int = msgspec.field(name=NUMBER, default=1)


_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ROW, _NUMBER = msgspec.json.Decoder(_RowPieces), msgspec.json.Decoder(_Number)


def trials_of_line(line: bytes) -> list[TrialBytes]:
    """Return the trials of a row: of a row of trials each, with what is said of all of them."""
    line = line.strip()
    row = _ROW.decode(line)
    if row.trials is None or row.output:
        return [TrialBytes(row.id, 1, hashlib.sha256(line).hexdigest())]
    shared = {name: value for name, value in _PIECES.decode(line).items() if name != "trials"}
    common = hashlib.sha256(msgspec.json.encode(shared) + b"\n")
    found = []
    for entry in row.trials:
        own = common.copy()
        own.update(bytes(entry))
        found.append(TrialBytes(row.id, _NUMBER.decode(entry).number, own.hexdigest()))
    return found


# Texts that are withheld.


def salted(salt: bytes, content: bytes) -> str:
    """Return the digest of a text that is withheld; without the salt nobody can guess the text."""
    return hashlib.sha256(len(salt).to_bytes(2) + salt + content).hexdigest()


def digest_in(text: Any) -> str | None:
    """Return the digest that stands in place of a text; None for a text."""
    if isinstance(text, str) and text.startswith(WITHHELD):
        return text.removeprefix(WITHHELD)
    return None


def replace_texts(value: Any, replace: Callable[[str, str], str], path: str = "") -> Any:
    """Return a JSON value with each text replaced; replace gets the text and where it stands."""
    if isinstance(value, str):
        return replace(value, path)
    if isinstance(value, dict):
        return {k: replace_texts(v, replace, f"{path}.{k}".lstrip(".")) for k, v in value.items()}
    if isinstance(value, list):
        return [replace_texts(one, replace, path) for one in value]
    return value
