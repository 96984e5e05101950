"""Verdicts of models by URL that are kept: the same content is not judged, or paid for, twice.

Each is signed with a key of the user, because an agent may write to the user's cache folder.
"""

import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import UNSET

from assay.records.capture import Grade
from assay.records.files import read_regular
from assay.records.private import cache_root, private_folder, write_private
from assay.records.signatures import user_key

FOLDER = "verdicts"
"""Below the user's cache folder; `assay clean` removes what is in it."""
_MOST_BYTES = 1024 * 1024
_asking_anew = threading.Event()


@contextmanager
def asking_anew() -> Iterator[None]:
    """Use no kept verdict and keep none: what a tape is to have must be asked."""
    _asking_anew.set()
    try:
        yield
    finally:
        _asking_anew.clear()


_DIGITS = 64


def kept_verdict(content: bytes) -> Grade | None:
    """Return the verdict on this content, which cost nothing now; None if none is kept."""
    key = user_key()
    if key is None or _asking_anew.is_set():
        return None
    try:
        data = read_regular(_place(content), _MOST_BYTES)
        if not hmac.compare_digest(data[:_DIGITS], _signature(key, content, data[_DIGITS:])):
            return None
        grade = msgspec.json.decode(data[_DIGITS:], type=Grade)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    if not grade.usage:
        return grade
    paid = msgspec.structs.replace(grade.usage, cost_source="replayed")
    return msgspec.structs.replace(grade, usage=paid if paid.cost_usd is not UNSET else UNSET)


def keep_verdict(content: bytes, grade: Grade) -> None:
    """Keep a verdict; where nothing can be kept, the model is asked again the next time."""
    if _asking_anew.is_set() or (key := user_key(make=True)) is None:
        return
    data = msgspec.json.encode(grade)
    with suppress(OSError):
        private_folder(FOLDER)
        write_private(_place(content), _signature(key, content, data) + data)


def _place(content: bytes) -> Path:
    return cache_root() / FOLDER / hashlib.sha256(content).hexdigest()


def _signature(key: bytes, content: bytes, data: bytes) -> bytes:
    about = b"verdict\0" + hashlib.sha256(content).digest()
    return hmac.new(key, about + data, hashlib.sha256).hexdigest().encode()
