"""The seal of a run: what its files were when Assay wrote them, signed with a key of the user.

Scores and marks are files that anybody can edit. The seal holds the digests of the logs, of the
rows and of the scores derived from them, and the metadata itself. Without the key, which is not in
the store, nobody can write one.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from assay.records import signatures
from assay.records.files import replaced_file
from assay.records.rows import UNREADABLE

SEAL = "seal.json"
_KEY = "arc-seal.key"
SCHEMA = "assay-arc-seal/1"
NO_SEAL = "nothing here says that Assay recorded it"
OTHER_KEY = "it was sealed by another user or on another machine"
BROKEN = f"{SEAL} was changed"


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    meta: dict[str, Any]
    """run-meta.json, marks included."""
    files: dict[str, str]
    """sha256 of each file, by its name in the folder of the run."""
    schema: str = SCHEMA
    benchmark: str = "arc"
    """Who is asked before the rows are shown: see Benchmark.check_output."""
    key_id: str = ""
    mac: str = ""

    def changed(self, folder: Path) -> list[str]:
        """The sealed files that are not as they were; a missing one, too."""
        return [name for name in self.files if not self.holds(folder, name)]

    def holds(self, folder: Path, name: str) -> bool:
        """Whether a file is sealed, and is as it was."""
        return name in self.files and file_sha256(folder / name) == self.files[name]

    def signed(self, key: bytes) -> "Seal":
        unsigned = msgspec.structs.replace(self, key_id=_key_id(key), mac="")
        return msgspec.structs.replace(unsigned, mac=_mac(unsigned, key))


def read_seal(folder: Path) -> Seal | str:
    """The seal of a run, if it is one of this user; otherwise why it proves nothing."""
    try:
        seal = msgspec.json.decode((folder / SEAL).read_bytes(), type=Seal)
    except FileNotFoundError:
        return NO_SEAL
    except (OSError, *UNREADABLE):
        return BROKEN
    key = sealing_key()
    if key is None or seal.key_id != _key_id(key):
        return OTHER_KEY
    is_ours = hmac.compare_digest(seal.signed(key).mac, seal.mac)
    return seal if is_ours and seal.run_id == folder.name else BROKEN


def write_seal(folder: Path, meta: Any, files: Mapping[str, str]) -> None:
    """Seal a run; where no key can be kept there is no seal."""
    key = sealing_key(make=True)
    if key is None:
        return
    facts = msgspec.to_builtins(meta)
    seal = Seal(run_id=facts["run_id"], meta=facts, files=dict(files)).signed(key)
    data = msgspec.json.format(msgspec.json.encode(seal), indent=2) + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    with replaced_file(folder / SEAL) as file:
        file.write(data)


def digests(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The sha256 of those of these files that exist."""
    found = {name: file_sha256(folder / name) for name in names}
    return {name: sha256 for name, sha256 in found.items() if sha256 is not None}


def file_sha256(path: Path) -> str | None:
    """Of a regular file; a link, or nothing, has none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file, suppress(OSError):
        return hashlib.file_digest(file, "sha256").hexdigest()
    return None


def key_path() -> Path:
    """Where the key is."""
    return signatures.key_path(_KEY)


def sealing_key(*, make: bool = False) -> bytes | None:
    """The key of this user; None without one, or where none can be made."""
    return signatures.user_key(_KEY, make=make)


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"assay-arc-seal" + key).hexdigest()[:16]


def _mac(seal: Seal, key: bytes) -> str:
    return hmac.new(key, msgspec.json.encode(seal, order="sorted"), "sha256").hexdigest()
