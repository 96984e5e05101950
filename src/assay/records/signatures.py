"""Which rows and results of a folder Assay wrote: a code of each, made with a key of the user.

Whatever is read again may have been put there by an agent. Without the key, which is in a folder
that `--sandbox` and `--container` do not show, nobody can make a code that holds.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from assay.records.files import read_kept, read_regular, remove_folder
from assay.records.private import write_private

SIGNATURES = "signatures"
_KEY_BYTES = 32
_MOST_OUTPUTS = 1000
"""Of so many outputs the codes are kept, those that were written last."""


def user_key(name: str = "rows.key", *, make: bool = False) -> bytes | None:
    """Return a key of this user; None without one, or where none can be made."""
    path = key_path(name)
    with suppress(OSError):
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            write_private(fresh, secrets.token_bytes(_KEY_BYTES))
            try:
                with suppress(FileExistsError):  # another process was first
                    path.hardlink_to(fresh)
            finally:
                fresh.unlink()
        key = read_regular(path, _KEY_BYTES + 1)
        return key if len(key) == _KEY_BYTES else None
    return None


def key_path(name: str) -> Path:
    """Return where a key is: in the user's folder for state, as the XDG specification says."""
    root = os.environ.get("XDG_STATE_HOME") or ""
    if not Path(root).is_absolute():
        root = str(Path.home() / ".local" / "state")
    return Path(root, "assay", name)


class Signatures:
    """The codes of what was written in one folder. They hold for this folder's beginning only."""

    def __init__(self, path: Path, key: bytes, about: str, known: set[str]) -> None:
        """about is what is said of all that is signed here, such as when it began."""
        self._path, self._key, self.about = path, key, about
        self._known = known

    @classmethod
    def begin(cls, folder: Path, about: str) -> Self | None:
        """Begin to sign what is written in a folder; None where no key can be kept."""
        return cls._begin(folder / SIGNATURES, about)

    @classmethod
    def _begin(cls, path: Path, about: str) -> Self | None:
        if (key := user_key(make=True)) is None:
            return None
        made = cls(path, key, about, set())
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_folder(str(path), missing_ok=True)
        made._append(f"{made._code(b'')} {about}")
        return made

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the signatures of a folder; None if it has none of this user."""
        return cls._read(folder / SIGNATURES)

    @classmethod
    def _read(cls, path: Path) -> Self | None:
        try:
            head, *codes = read_kept(path).decode("utf-8", "replace").split("\n")
        except OSError:
            return None
        code, _, about = head.partition(" ")
        if (key := user_key()) is None:
            return None
        found = cls(path, key, about, set(codes))
        return found if hmac.compare_digest(code, found._code(b"")) else None

    @classmethod
    def of_output(cls, output: Path, *, afresh: bool = False) -> Self | None:
        """Return the signatures of a file, which are beside the key; None if there are none.

        afresh forgets what was signed there before.
        """
        path = _place_of_codes(output)
        if not afresh:
            return cls._read(path) or cls._of_moved(output, path)
        with suppress(OSError):
            _forget_oldest(path.parent)
            return cls._begin(path, "")
        return None

    @classmethod
    def of_rows(cls, file: Path) -> Self | None:
        """Return what says whose the rows of a file are: its folder's, or its own."""
        return cls.read(file.parent) or cls.of_output(file)

    @classmethod
    def _of_moved(cls, output: Path, path: Path) -> Self | None:
        """Take the codes of a file that had another name: those among which its first row is."""
        if (key := user_key()) is None:
            return None
        expected = cls(path, key, "", set())
        head = f"{expected._code(b'')} \n".encode()
        with suppress(OSError), output.open("rb") as file:
            first = expected._code(file.readline().rstrip(b"\r\n")).encode()
            for entry in _entries(path.parent):  # there may be a thousand of them
                with suppress(OSError):
                    codes = read_kept(Path(entry.path))
                    if codes.startswith(head) and codes.find(first, len(head)) > 0:
                        write_private(path, codes)
                        return cls._read(path)
        return None

    def sign(self, data: bytes) -> None:
        """Remember that Assay wrote these bytes; before it does, so that a kill loses none."""
        self.sign_all([data])

    def sign_all(self, rows: Iterable[bytes]) -> None:
        """Remember that Assay wrote these, each for itself."""
        if new := {self._code(data) for data in rows} - self._known:
            with suppress(OSError):  # an agent put something there: nobody uses the rows again
                self._append("\n".join(new))
                self._known |= new

    def forget_all_but(self, lines: Iterable[bytes]) -> None:
        """Forget what is in the file no more; those of a folder are kept, for its other files."""
        if self._path.name != SIGNATURES:
            self._known = {self._code(line) for line in lines} & self._known
            text = "\n".join([f"{self._code(b'')} {self.about}", *self._known, ""])
            with suppress(OSError):
                write_private(self._path, text.encode())

    def holds(self, data: bytes) -> bool:
        """Whether Assay wrote these bytes here."""
        return self._code(data) in self._known

    def _code(self, data: bytes) -> str:
        # The length keeps what is said of all apart from the data.
        head = self.about.encode("utf-8", "surrogateescape")
        text = len(head).to_bytes(8) + head + hashlib.sha256(data).digest()
        return hmac.digest(self._key, text, "sha256").hex()[:32]

    def _append(self, line: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path, flags | os.O_NONBLOCK, 0o666)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)


def signed(data: bytes, about: str) -> bytes:
    """Put a code before data that is kept in a file of the cache."""
    key = user_key(make=True)
    return (_code_of(key, data, about) if key else b"") + b"\n" + data


def checked(data: bytes, about: str) -> bytes | None:
    """Return what signed was given; None if anybody else wrote it."""
    code, _, rest = data.partition(b"\n")
    key = user_key()
    ours = key is not None and hmac.compare_digest(code, _code_of(key, rest, about))
    return rest if ours else None


def _code_of(key: bytes, data: bytes, about: str) -> bytes:
    text = hashlib.sha256(about.encode("utf-8", "surrogateescape")).digest() + data
    return hmac.new(key, text, "sha256").hexdigest().encode()


def forget_output(output: Path) -> None:
    """Remove the codes of a file that is gone."""
    with suppress(OSError):
        _place_of_codes(output).unlink()


def _place_of_codes(output: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(output))).hexdigest()[:32]
    return key_path("outputs") / name


def _forget_oldest(folder: Path) -> None:
    found = _entries(folder)
    if len(found) < _MOST_OUTPUTS + _MOST_OUTPUTS // 5:  # not each time
        return
    kept = []
    for entry in found:
        with suppress(OSError):  # another process has removed it
            kept.append((entry.stat().st_mtime_ns, entry.path))
    for _, path in sorted(kept)[: max(0, len(kept) - _MOST_OUTPUTS)]:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def unsigned(file: Path, signatures: Signatures | None) -> int:
    """Count the lines of a file that Assay did not write there."""
    try:
        *lines, torn = read_kept(file).split(b"\n")
    except FileNotFoundError:
        return 0
    except OSError:  # no regular file, or one without end
        return 1
    # A last line that a kill tore is no row, and is dropped.
    lines += [torn] if torn.rstrip().endswith(b"}") else []
    lines = [line.rstrip(b"\r") for line in lines]
    return sum(bool(line) and not (signatures and signatures.holds(line)) for line in lines)
