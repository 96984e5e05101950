"""A request to a model's URL and its answer, as data: an adapter makes it, run/http.py sends it."""

import msgspec

from assay.records.capture import Failure


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A POST of JSON. It names the variable of the key and never holds the key itself."""

    url: str
    body: bytes
    headers: dict[str, str] = {}
    key_variable: str = ""
    """The variable whose value is sent as the key; empty sends none."""
    key_header: str = "authorization"
    key_prefix: str = ""
    """Stands before the key in its header, as Bearer does."""


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered, whatever its status."""

    status: int
    headers: dict[str, str]
    """By lower-case names."""
    body: bytes


class NoAnswer(Exception):
    """No whole answer came; failure says why, in words for a person."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
