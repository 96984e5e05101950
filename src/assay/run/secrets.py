"""Keep secrets of the environment out of everything that is written."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache

_SECRET_NAME = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(_|$)", re.IGNORECASE
)
_SHORTEST = 8
"""Shorter values are not masked: they may occur in ordinary text."""


class Secrets:
    """Masks secret values byte for byte, so that offsets in a file stay valid."""

    def __init__(self, env: Mapping[str, str]) -> None:
        values = tuple(
            value
            for name, value in env.items()
            # What starts with a slash is the path of a file, not a secret itself.
            if len(value) >= _SHORTEST and _is_secret(name) and not value.startswith("/")
        )
        self._values = _all_spellings(values)
        self.longest = max(map(len, self._values), default=0)

    def mask(self, data: bytes) -> bytes:
        """Return data with every secret masked; the same object when there is none."""
        for value in self._values:
            if value in data:
                data = data.replace(value, _redaction(len(value)))
        return data

    def mask_text(self, text: str) -> str:
        return self.mask(text.encode("utf-8", "replace")).decode("utf-8", "replace")


@lru_cache(256)
def _all_spellings(values: tuple[str, ...]) -> list[bytes]:
    """Return all spellings of the values. Cached: all trials of a run have the same ones."""
    found: set[bytes] = set()
    for value in values:
        found |= _spellings(value)
    # Longest first: a secret may contain another one.
    return sorted(found, key=len, reverse=True)


@cache
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _spellings(value: str) -> set[bytes]:
    """Return a value as it is, in a JSON string, and in a JSON string inside another one."""
    import json

    plain = value.encode("utf-8", "surrogateescape")
    texts = {plain.decode("utf-8", "replace")}
    for _ in range(2):
        texts |= {json.dumps(text)[1:-1] for text in texts} | {
            json.dumps(text, ensure_ascii=False)[1:-1] for text in texts
        }
    # None with a line break: to mask it would change where lines end.
    return {s for s in (plain, *(text.encode() for text in texts)) if b"\n" not in s}


def _redaction(length: int) -> bytes:
    word = b"[redacted]"
    return word[:length].ljust(length, b"*")
