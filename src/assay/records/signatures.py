"""Which rows and results of a folder Assay wrote: a code of each, made with a key of the user.

Whatever is read again may have been put there by an agent. Without the key, which is in a folder
that `--sandbox` and `--container` do not show, nobody can make a code that holds.
"""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Self

from assay.records.files import read_kept, read_regular, remove_folder
from assay.records.private import write_private

SIGNATURES = "signatures"
_KEY_BYTES = 32


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
        if (key := user_key(make=True)) is None:
            return None
        made = cls(folder / SIGNATURES, key, about, set())
        folder.mkdir(parents=True, exist_ok=True)
        remove_folder(str(made._path), missing_ok=True)
        made._append(f"{made._code(b'')} {about}")
        return made

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the signatures of a folder; None if it has none of this user."""
        try:
            head, *codes = read_kept(folder / SIGNATURES).decode("utf-8", "replace").split("\n")
        except OSError:
            return None
        code, _, about = head.partition(" ")
        if (key := user_key()) is None:
            return None
        found = cls(folder / SIGNATURES, key, about, set(codes))
        return found if hmac.compare_digest(code, found._code(b"")) else None

    def sign(self, data: bytes) -> None:
        """Remember that Assay wrote these bytes; before it does, so that a kill loses none."""
        code = self._code(data)
        if code not in self._known:
            with suppress(OSError):  # an agent put something there: nobody uses the row again
                self._append(code)
                self._known.add(code)

    def holds(self, data: bytes) -> bool:
        """Whether Assay wrote these bytes here."""
        return self._code(data) in self._known

    def _code(self, data: bytes) -> str:
        # The length keeps what is said of all apart from the data.
        head = self.about.encode("utf-8", "surrogateescape")
        text = len(head).to_bytes(8) + head + hashlib.sha256(data).digest()
        return hmac.new(self._key, text, "sha256").hexdigest()[:32]

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


def unsigned(file: Path, signatures: Signatures | None) -> int:
    """Count the lines of a file that Assay did not write there."""
    try:
        lines = read_kept(file).splitlines()
    except FileNotFoundError:
        return 0
    except OSError:  # no regular file, or one without end
        return 1
    return sum(bool(line) and not (signatures and signatures.holds(line)) for line in lines)
