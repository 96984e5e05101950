"""What a bundle withholds: texts, leaf by leaf, and raw streams, each replaced by a salted digest.

What is withheld must not stand anywhere else either: a text that repeats it is withheld with it,
and so is a raw stream. The owner keeps the texts and their salts in a file beside the bundle.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import UsageError
from assay.records.bundle import WITHHELD, digest_in, replace_texts, salted
from assay.records.raw_streams import KeptStream
from assay.records.signatures import user_key
from assay.records.trial import NUMBER

KINDS = ("outputs", "inputs", "raw", "paths")
_KEY = "evidence-salts.key"
_SALT_BYTES = 16
_SHORTEST = 8
"""A shorter text stands in others by chance."""
_OUTPUTS = (
    *("output", "stderr", "reasoning", "errors", "graderFailures", "warnings", "outcome"),
    *("trajectory", "changes", "earlierGrades", "failure.message", "retried.message"),
    *("score.reasoning", "score.outcome", "simulatedUser", "metadata.evidence"),
)
_INPUTS = ("input", "hint", "reference", "expect", "files", "trajectory.input", "metadata.vars")
_PATHS = ("cwd", "workspaceDir", "metadata.workspaceDir", "metadata.reusedFrom")
_KEPT = (
    *("id", NUMBER, "specHash", "identity", "agent", "raw", "build", "events"),
    *("trajectory.type", "trajectory.name", "trajectory.status", "trajectory.callId"),
    *("failure.cause", "retried.cause", "grades.version", "score.version", "usage", "turnUsage"),
)
"""What says which trial it is, and how it was measured: without it nothing could be checked."""
_REFUSED = (
    *("k", "trials", "pass", "score", "grades", "passRate", "timing", "duration"),
    "toolErrors",
)


class Redactor:
    """Withholds what was asked for, and remembers it for its owner."""

    def __init__(self, what: Sequence[str], roots: Sequence[str] = ()) -> None:
        """roots are folders of this machine: with `paths`, texts that name them are withheld."""
        self.what = list(dict.fromkeys(what))
        self.fields = [name for name in self.what if name not in KINDS]
        for name in self.fields:
            if name.split(".")[0] in _REFUSED or any(_is_below(name, kept) for kept in _KEPT):
                msg = f"--redact {name}: without this field nothing in a bundle could be checked"
                raise UsageError(msg)
        self._roots = [root for root in roots if len(root) > 1] if "paths" in what else []
        self._key = user_key(_KEY, make=True) or os.urandom(_SALT_BYTES)
        self.texts: dict[str, tuple[str, str]] = {}
        """By their digests, the salt and the text."""
        self.streams: dict[str, str] = {}
        """By their digests, the salts of raw streams."""
        self.kept: dict[str, KeptStream] = {}
        """By their digests, the streams themselves."""
        self.n_streams = 0

    def __bool__(self) -> bool:
        return bool(self.what)

    @property
    def shows_texts(self) -> bool:
        """Whether all texts are shown, and at most raw streams are not."""
        return not [name for name in self.what if name != "raw"]

    def row(self, line: bytes, run: str) -> tuple[bytes, list[str]]:
        """Return a row without what is withheld, and the texts that it had."""
        if self.shows_texts:
            return line, []
        row, hidden = msgspec.json.decode(line), set[str]()
        self._collect(row, hidden)
        long = sorted((text for text in hidden if len(text) >= _SHORTEST), key=len)

        def replace(text: str, path: str) -> str:
            name = path.removeprefix("trials.")
            is_own = any(_is_below(name, kept) for kept in _KEPT)
            repeats = not is_own and any(part in text for part in long)
            is_hidden = self._is_named(name) or repeats or self._names_root(text)
            # A text that looks like a digest would be taken for one.
            if not text or not (is_hidden or digest_in(text) is not None):
                return text
            shared = path == name and name.split(".")[0] in ("input", "hint", "metadata")
            return self._withhold(text, name if shared else f"{run} {row.get('id')} {path}")

        return msgspec.json.encode(replace_texts(row, replace)), long

    def document(self, value: Any, hidden: Iterable[str]) -> Any:
        """Return a file of JSON without the texts that rows withhold; keys are looked at, too."""
        long = [text for text in hidden if len(text) >= _SHORTEST]

        def hides(text: str) -> bool:
            return any(part in text for part in long) or self._names_root(text)

        def visit(one: Any) -> Any:
            if isinstance(one, str):
                return self._withhold(one, "") if hides(one) else one
            if isinstance(one, dict):
                return {visit(key): visit(inner) for key, inner in one.items()}
            return [visit(inner) for inner in one] if isinstance(one, list) else one

        return visit(value)

    def stream(self, stream: KeptStream, hidden: Sequence[str]) -> str | None:
        """Return the salted digest of a raw stream; None if it may be shown."""
        if not self or not (self._hides_all_streams or self._repeats(stream.blocks(), hidden)):
            return None
        plain = hashlib.sha256()
        for block in stream.blocks():
            plain.update(block)
        salt = self._salt(b"stream " + plain.digest()).hex()
        digest = salted_stream(salt, stream.blocks())
        self.n_streams += 1
        self.streams[digest], self.kept[digest] = salt, stream
        return digest

    @property
    def _hides_all_streams(self) -> bool:
        return bool({"raw", "outputs", "inputs"} & {*self.what})

    def _repeats(self, blocks: Iterable[bytes], hidden: Sequence[str]) -> bool:
        wanted = [*hidden, *self._roots]
        found = [text.encode("utf-8", "replace") for text in wanted]
        found += [msgspec.json.encode(text)[1:-1] for text in wanted]
        before = b""
        for block in blocks:
            whole = before + block
            if any(text in whole for text in found):
                return True
            before = whole[-max(map(len, found), default=0) :]
        return False

    def _collect(self, value: Any, hidden: set[str]) -> None:
        def note(text: str, path: str) -> str:
            if text and self._is_named(path.removeprefix("trials.")):
                hidden.add(text)
            return text

        replace_texts(value, note)

    def _is_named(self, path: str) -> bool:
        if any(_is_below(path, field) for field in self.fields):
            return True
        if any(_is_below(path, kept) for kept in _KEPT):
            return False
        if path.startswith("grades.") and path.endswith(".reasoning"):
            return "outputs" in self.what
        return any(
            kind in self.what and any(_is_below(path, one) for one in names)
            for kind, names in (("outputs", _OUTPUTS), ("inputs", _INPUTS), ("paths", _PATHS))
        )

    def _names_root(self, text: str) -> bool:
        return any(root in text for root in self._roots)

    def _withhold(self, text: str, where: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        salt = self._salt(where.encode("utf-8", "surrogatepass") + b"\0" + data)
        digest = salted(salt, data)
        self.texts[digest] = salt.hex(), text
        return f"{WITHHELD}{digest}"

    def _salt(self, about: bytes) -> bytes:
        """The same for the same text in the same place, so that a bundle is the same when it is
        packed again; without the key of this user nobody can compute it."""
        return hmac.digest(self._key, about, "sha256")[:_SALT_BYTES]


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


class Openings(msgspec.Struct):
    """Texts that were withheld and are shown again, with their salts."""

    texts: dict[str, tuple[str, str]] = {}
    streams: dict[str, str] = {}

    def false_ones(self) -> Iterator[str]:
        """Yield digests that are not those of their texts."""
        for digest, (salt, text) in self.texts.items():
            if salted(_bytes(salt), text.encode("utf-8", "surrogatepass")) != digest:
                yield digest

    def restored(self, value: Any) -> Any:
        """Return a JSON value with the texts that are shown again."""

        def replace(text: str, _path: str) -> str:
            digest = digest_in(text)
            return self.texts[digest][1] if digest in self.texts else text

        return replace_texts(value, replace)


def digests_in(value: Any) -> set[str]:
    """Return the digests that stand in place of texts."""
    found: set[str] = set()

    def note(text: str, _path: str) -> str:
        digest = digest_in(text)
        if digest is not None:
            found.add(digest)
        return text

    replace_texts(value, note)
    return found


def salted_stream(salt: str, blocks: Iterable[bytes]) -> str:
    """Return the salted digest of a raw stream."""
    start = _bytes(salt)
    total = hashlib.sha256(len(start).to_bytes(2) + start)
    for block in blocks:
        total.update(block)
    return total.hexdigest()


def _bytes(salt: str) -> bytes:
    try:
        return bytes.fromhex(salt)
    except ValueError:
        return b""


def openings_path(bundle: Path) -> Path:
    """Return where the owner keeps what a bundle withholds."""
    return bundle.with_name(f"{bundle.name}.private")
