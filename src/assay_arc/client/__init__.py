"""A player's connection to a game process; standard library only, like this whole package.

The programs `arc-play` and `arc-mcp` are made of these files: see write_launchers in world.py.
"""

import json
import os
import socket
import time
from typing import Any

SOCKET, TOKEN = "ARC_PLAY_SOCKET", "ARC_PLAY_TOKEN"
SHOWS = "ARC_PLAY_SHOWS"
"""How the game is shown, where that is not in all ways: some of image, grid, diff."""
RETRY_S = 10.0
# Without a socket file the game was closed; one that was killed leaves its file behind.
RETRY_CLOSED_S = 0.5


class GameGone(Exception):
    pass


class GameConnection:
    """One connection, made when it is needed and made again when the game process restarts."""

    def __init__(self, path: str, token: str, retry_s: float = RETRY_S) -> None:
        self._path = path
        self._token = token
        self._retry_s = retry_s
        self._socket: socket.socket | None = None
        self._rest = b""

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer; asking again never does a move twice."""
        # The same id in every attempt: the game does a move with a known id only once.
        line = json.dumps({"id": os.urandom(16).hex(), **request, "token": self._token}) + "\n"
        began = time.monotonic()
        while True:
            try:
                return self._exchange(line.encode())
            except OSError as error:
                self.close()
                is_closed = isinstance(error, FileNotFoundError)
                patience_s = min(RETRY_CLOSED_S, self._retry_s) if is_closed else self._retry_s
                if time.monotonic() - began > patience_s:
                    message = f"the game cannot be reached: {error}"
                    raise GameGone(message) from error
                time.sleep(0.1)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(self._path)
        self._socket.sendall(line)
        while b"\n" not in self._rest:
            data = self._socket.recv(1 << 16)
            if not data:
                message = "the game process closed the connection"
                raise ConnectionError(message)
            self._rest += data
        answer, _, self._rest = self._rest.partition(b"\n")
        reply: dict[str, Any] = json.loads(answer)
        return reply


def shown_ways() -> set[str]:
    """In which ways the game of this process is shown."""
    return set(os.environ.get(SHOWS, "image,grid,diff").split(","))


def connect_from_environment() -> GameConnection:
    """Connect to the game this process was started for."""
    path, token = os.environ.get(SOCKET), os.environ.get(TOKEN)
    if not path or not token:
        message = f"no game here: {SOCKET} and {TOKEN} are not set"
        raise GameGone(message)
    return GameConnection(path, token)
