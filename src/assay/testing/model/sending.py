"""Put an answer on the wire: whole, streamed, hanging or dropped."""

import json
import select
import socket
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from threading import Event as Flag
from typing import Any

from assay.testing.model.script import Fault
from assay.testing.model.wire import Event

_POLL_S = 0.1


class Sender:
    """Writes to one connection; the server's closing ends every wait."""

    def __init__(self, handler: BaseHTTPRequestHandler, closing: Flag) -> None:
        self._handler = handler
        self._closing = closing

    def send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        """Answer in one piece."""
        data = self._start_json(status, value, headers or {})
        if self._handler.command != "HEAD":
            self._handler.wfile.write(data)

    def send_half(self, value: Any, fault: Fault) -> None:
        """Begin an answer in one piece and break it in the middle."""
        data = self._start_json(200, value, {})
        self._handler.wfile.write(data[: len(data) // 2])
        self.break_off(fault)

    def send_events(
        self, frames: Iterable[bytes], pause_s: float = 0, broken: Fault | None = None
    ) -> None:
        """Stream events, each in its own chunk; a broken stream never gets its end."""
        self._start(200, {"content-type": "text/event-stream; charset=utf-8"}, chunked=True)
        for frame in frames:
            self.wait(pause_s)
            self._chunk(frame)
        if broken is not None:
            return self.break_off(broken)
        return self._chunk(b"")

    def break_off(self, fault: Fault) -> None:
        """Hang if the fault says so, then cut the connection."""
        if fault.hang:
            self._hang(fault.for_s)
        self._handler.close_connection = True
        cut_off(self._handler.connection)

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than the server lives."""
        if seconds:
            self._closing.wait(seconds)

    def _start_json(self, status: int, value: Any, headers: dict[str, str]) -> bytes:
        data = json.dumps(value).encode()
        kind = {"content-type": "application/json", "content-length": str(len(data))}
        self._start(status, {**kind, **headers})
        return data

    def _start(self, status: int, headers: dict[str, str], *, chunked: bool = False) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        if chunked:
            self._handler.send_header("cache-control", "no-cache")
            self._handler.send_header("transfer-encoding", "chunked")
        self._handler.end_headers()

    def _chunk(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _hang(self, for_s: float | None) -> None:
        end_s = None if for_s is None else time.monotonic() + for_s
        while not self._closing.is_set() and not self._client_left():
            if end_s is not None and time.monotonic() >= end_s:
                return
            self._closing.wait(_POLL_S)

    def _client_left(self) -> bool:
        try:
            readable, _, _ = select.select([self._handler.connection], [], [], 0)
            return bool(readable) and not self._handler.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True


def sse_frame(event: Event, *, named: bool) -> bytes:
    """Write one server-sent event."""
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    head = f"event: {event['type']}\n" if named and "type" in event else ""
    return f"{head}data: {json.dumps(event)}\n\n".encode()


def cut_off(connection: socket.socket) -> None:
    """End a connection that may have ended already."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
