"""Remember every request, in memory and on request in a file, with secrets hidden."""

import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_SECRET_QUERY = re.compile(r"([?&](?:key|access_token|api[-_]key)=)[^&]*", re.IGNORECASE)
_HIDDEN = "<hidden>"


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request as the server saw it, and what it got."""

    method: str
    path: str
    served: str
    """step, fault, side, exhausted, unexpected; count_tokens, models, probe, websocket, unknown."""
    status: int = 0
    """The status of the answer; 0 when there is none (hang, drop)."""
    number: int = 0
    at_s: float = 0
    lane: str = ""
    provider: str = ""
    model: str = ""
    stream: bool = False
    thread: str = ""
    step: int | None = None
    attempt: int = 0
    turns: int = 0
    problems: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    last_user: str = ""
    last_tool_result: str = ""
    headers: dict[str, str] = {}
    body: Any = None


class RequestLog:
    """All requests in the order in which they came."""

    def __init__(
        self, path: Path | None, clock: Callable[[], float], *, with_bodies: bool = False
    ) -> None:
        self._clock = clock
        self._start_s = clock()
        self._with_bodies = with_bodies
        self._requests: list[Request] = []
        self._changed = threading.Condition()
        self._file: IO[bytes] | None = path.open("ab") if path else None

    def add(self, request: Request) -> None:
        """Remember a request."""
        with self._changed:
            at_s = round(self._clock() - self._start_s, 4)
            number = len(self._requests) + 1
            request = msgspec.structs.replace(request, number=number, at_s=at_s)
            self._requests.append(request)
            if self._file is not None:
                kept = request if self._with_bodies else msgspec.structs.replace(request, body=None)
                self._file.write(msgspec.json.encode(kept) + b"\n")
                self._file.flush()
            self._changed.notify_all()

    def all(self) -> list[Request]:
        """Give the requests so far."""
        with self._changed:
            return list(self._requests)

    def wait_for(self, n_requests: int, timeout_s: float) -> bool:
        """Wait until so many requests have come; False when time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._requests) >= n_requests, timeout_s)

    def close(self) -> None:
        """Close the file; what is in memory stays."""
        with self._changed:
            if self._file is not None:
                self._file.close()
            self._file = None


def hide_secrets(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give the headers by lower-case name, those that may hold a key without their value."""
    return {
        name.lower(): _HIDDEN if _SECRET_HEADER.search(name) else value for name, value in headers
    }


def hide_query(url: str) -> str:
    """Give the URL without the key that some clients put into it."""
    return _SECRET_QUERY.sub(rf"\1{_HIDDEN}", url)
