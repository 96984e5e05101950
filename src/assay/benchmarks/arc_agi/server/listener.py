"""Listens on a private unix socket: JSON lines in, JSON lines out, one request at a time."""

import os
import selectors
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from assay.benchmarks.arc_agi.server.request import MAX_REQUEST_BYTES

MAX_CONNECTIONS = 32
POLL_S = 0.5


class Listener:
    """Serves until told to stop; a player that goes away is only a closed connection."""

    def __init__(self, path: Path, answer: Callable[[bytes], tuple[bytes, bool]]) -> None:
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        self._server = _bind(path)
        self._path = path
        self._selector.register(self._server, selectors.EVENT_READ)

    def serve(self, should_stop: Callable[[], bool]) -> None:
        """Answer requests until should_stop says so; it is asked twice a second and after each."""
        while not should_stop():
            for key, mask in self._selector.select(POLL_S):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    connection: Connection = key.data
                    self._serve_one(connection, mask, should_stop)

    def close(self) -> None:
        """Send what is still owed, then close everything and take the socket away."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection):
                key.data.flush_and_close()
        self._selector.close()
        self._server.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return  # whoever knocked has gone again
        if len(self._selector.get_map()) > MAX_CONNECTIONS or not _is_ours(peer):
            peer.close()
            return
        peer.setblocking(False)
        self._selector.register(peer, selectors.EVENT_READ, Connection(peer))

    def _serve_one(
        self, connection: "Connection", mask: int, should_stop: Callable[[], bool]
    ) -> None:
        try:
            if mask & selectors.EVENT_READ:
                connection.read()
            while not should_stop() and (line := connection.next_line()) is not None:
                reply, keep = self._answer(line)
                connection.owe(reply, keep)
            connection.write()
        except (ConnectionError, TimeoutError):
            connection.gone = True
        if connection.gone:
            self._selector.unregister(connection.peer)
            connection.peer.close()
        else:
            self._selector.modify(connection.peer, connection.wanted(), connection)


class Connection:
    """One player's connection and its half-read and half-written lines."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.gone = False
        self._last = False
        self._incoming = b""
        self._outgoing = b""

    def read(self) -> None:
        """Take what has arrived; an end without a line end is no request."""
        try:
            data = self.peer.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        self._incoming += data
        if not data:
            self._last = True

    def next_line(self) -> bytes | None:
        """Give the next whole line; one that grows too long is given as it is, to be refused."""
        if self.gone or len(self._outgoing) > 16 * MAX_REQUEST_BYTES:
            return None
        line, newline, rest = self._incoming.partition(b"\n")
        if newline:
            self._incoming = rest
            return line
        if len(self._incoming) > MAX_REQUEST_BYTES:
            self._incoming, self._last = b"", True
            return line
        return None

    def owe(self, reply: bytes, keep: bool) -> None:
        """Queue an answer; keep says whether the player may go on."""
        self._outgoing += reply + b"\n"
        if not keep:
            self._incoming, self._last = b"", True

    def write(self) -> None:
        """Send what the other side takes now."""
        if self._outgoing:
            try:
                sent = self.peer.send(self._outgoing)
            except BlockingIOError:
                return
            self._outgoing = self._outgoing[sent:]
        if self._last and not self._outgoing:
            self.gone = True

    def wanted(self) -> int:
        """Say what to wait for."""
        if self._outgoing:
            return selectors.EVENT_READ | selectors.EVENT_WRITE
        return selectors.EVENT_READ

    def flush_and_close(self) -> None:
        """Give the last answers a second to leave."""
        try:
            self.peer.settimeout(1.0)
            self.peer.sendall(self._outgoing)
        except OSError:
            pass
        self.peer.close()


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        server.bind(str(path))
    finally:
        os.umask(before)
    server.listen(MAX_CONNECTIONS)
    server.setblocking(False)
    return server


def _is_ours(peer: socket.socket) -> bool:
    """Check that the other side runs as the same user, where the system can tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())
