"""The game process's side of its private Unix socket: JSON lines in, JSON lines out."""

import hmac
import os
import selectors
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec

from assay.system.calls import peer_user
from assay_arc import ServeProblem
from assay_arc.catalog import OnlineGame
from assay_arc.log import DisplayOptions, Limits

MAX_CONNECTIONS = 32
POLL_S = 0.5


class Listener:
    """Serves all players in one thread; a player that goes away is just a closed connection."""

    def __init__(self, path: Path, answer: Callable[[bytes], tuple[dict[str, Any], bool]]) -> None:
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # By umask, not chmod: the socket must be private from the moment it exists.
        before = os.umask(0o177)
        try:
            server.bind(str(path))
        finally:
            os.umask(before)
        server.listen(MAX_CONNECTIONS)
        server.setblocking(False)
        self._server = server
        self._path = path
        self._selector.register(self._server, selectors.EVENT_READ)

    def serve(self, should_stop: Callable[[], bool]) -> None:
        """Answer requests until should_stop, which is asked twice a second and after each one."""
        while not should_stop():
            for key, mask in self._selector.select(POLL_S):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    connection: PlayerConnection = key.data
                    self._serve_one(connection, mask, should_stop)

    def close(self) -> None:
        """Send the remaining answers, then close everything and remove the socket."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, PlayerConnection):
                key.data.flush_and_close()
        self._selector.close()
        self._server.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return  # the client is gone already
        if len(self._selector.get_map()) > MAX_CONNECTIONS or not _is_same_user(peer):
            peer.close()
            return
        peer.setblocking(False)
        self._selector.register(peer, selectors.EVENT_READ, PlayerConnection(peer))

    def _serve_one(
        self, connection: "PlayerConnection", mask: int, should_stop: Callable[[], bool]
    ) -> None:
        try:
            if mask & selectors.EVENT_READ:
                connection.read()
            while not should_stop() and (line := connection.next_line()) is not None:
                reply, keep = self._answer(line)
                connection.queue(msgspec.json.encode(reply), keep=keep)
            connection.write()
        except (ConnectionError, TimeoutError):
            connection.gone = True
        if connection.gone:
            self._selector.unregister(connection.peer)
            connection.peer.close()
        else:
            self._selector.modify(connection.peer, connection.events(), connection)


class PlayerConnection:
    """One player's connection and its half-read and half-written lines."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.gone = False
        self._closing = False
        self._incoming = b""
        self._outgoing = b""

    def read(self) -> None:
        """Take what has arrived; bytes after the last newline are no request."""
        try:
            data = self.peer.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        self._incoming += data
        if not data:
            self._closing = True

    def next_line(self) -> bytes | None:
        """Return the next whole line; one that grows too long unfinished, to be refused."""
        # A player that does not read its answers gets no more of them.
        if self.gone or len(self._outgoing) > 16 * MAX_REQUEST_BYTES:
            return None
        line, newline, rest = self._incoming.partition(b"\n")
        if newline:
            self._incoming = rest
            return line
        if len(self._incoming) > MAX_REQUEST_BYTES:
            self._incoming, self._closing = b"", True
            return line
        return None

    def queue(self, reply: bytes, *, keep: bool) -> None:
        """Queue an answer; without keep it is the last one."""
        self._outgoing += reply + b"\n"
        if not keep:
            self._incoming, self._closing = b"", True

    def write(self) -> None:
        if self._outgoing:
            try:
                sent = self.peer.send(self._outgoing)
            except BlockingIOError:
                return
            self._outgoing = self._outgoing[sent:]
        if self._closing and not self._outgoing:
            self.gone = True

    def events(self) -> int:
        """What the selector is to wait for."""
        if self._outgoing:
            return selectors.EVENT_READ | selectors.EVENT_WRITE
        return selectors.EVENT_READ

    def flush_and_close(self) -> None:
        """Send the last answers, but wait no longer than a second."""
        try:
            self.peer.settimeout(1.0)
            self.peer.sendall(self._outgoing)
        except OSError:
            pass
        self.peer.close()


def _is_same_user(peer: socket.socket) -> bool:
    """Whether the other side runs as the same user; True where the system cannot tell."""
    return peer_user(peer) in (None, os.getuid())


VARIABLE = "ASSAY_ARC_GAME"
MAX_SOCKET_PATH = 100  # the system's limit is 108 bytes on Linux and 104 on macOS


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    game: Path
    """The folder that holds metadata.json."""
    log: Path
    socket: Path
    token: str
    """The player's; every request carries it."""
    owner_token: str
    """The world's; only it can close the game with a reason."""
    seed: int = 0
    limits: Limits = Limits()
    stay_when_orphaned: bool = False
    copy_fd: int | None = None
    """A file that the game process has open besides the log, and writes the same to."""
    shows: DisplayOptions = DisplayOptions()
    online: OnlineGame | None = None
    """Play it on the official server; the folder of the game is not used then."""


def read_config(environ: Mapping[str, str], stdin: IO[str]) -> ServeConfig:
    """Read the settings from the variable ASSAY_ARC_GAME, or else the first line of stdin."""
    text = environ.get(VARIABLE) or stdin.readline()
    try:
        config = msgspec.json.decode(text, type=ServeConfig, dec_hook=lambda kind, text: kind(text))
    except msgspec.DecodeError as error:
        message = f"the game process needs its settings as JSON in {VARIABLE} or on stdin: {error}"
        raise ServeProblem(message) from error
    _check(config)
    return config


def write_config(config: ServeConfig) -> str:
    return msgspec.json.encode(config, enc_hook=str).decode()


def open_socket_folder(socket: Path) -> None:
    """Make the folder of the socket, and check that it is private, in case it existed."""
    folder = socket.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = f"{folder}: the folder of the game's socket must be private to us (mode 0700)"
        raise ServeProblem(message)


def _check(config: ServeConfig) -> None:
    if not all(path.is_absolute() for path in (config.game, config.log, config.socket)):
        message = "a game process needs absolute paths for its game, log and socket"
        raise ServeProblem(message)
    if len(os.fsencode(config.socket)) > MAX_SOCKET_PATH:
        message = f"{config.socket}: longer than {MAX_SOCKET_PATH} bytes; choose a shorter folder"
        raise ServeProblem(message)
    if len(config.token) < 16 or len(config.owner_token) < 16:
        message = "the tokens of a game process need at least 16 characters each"
        raise ServeProblem(message)
    if config.token == config.owner_token:
        message = "the player's token and the owner's token must differ"
        raise ServeProblem(message)


MAX_REQUEST_BYTES = 64 * 1024
MAX_KEPT_TEXT = 2000
INT64 = 2**63

Operation = Literal["look", "act", "click", "reset", "status", "tools", "quit", "close"]
"""tools: the MCP server says that it was asked for its tools."""
Coordinate = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Short = Annotated[str, msgspec.Meta(max_length=200)]


class PlayerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a player may ask; only the owner may `close`."""

    op: Operation
    token: str = ""
    id: Short | None = None
    """Chosen by the player; no id is done twice, so a request may be sent again."""
    action: Short | None = None
    x: Coordinate | None = None
    y: Coordinate | None = None
    full: bool = False
    frames: bool = False
    image: bool = False
    grid: bool = False
    reason: Literal["player_quit", "timeout", "crash"] = "player_quit"
    message: str = ""


class BadRequest(Exception):
    """A line that is not a request, with what is wrong and what was received."""

    def __init__(self, message: str, received: Any, token: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.received = received
        self.token = token


def parse_request(line: bytes) -> tuple[PlayerRequest, Any]:
    """Read one line; return the request and what the log keeps of it, without the token."""
    try:
        received = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = "not valid JSON: send one JSON object per line"
        raise BadRequest(message, _as_text(line, "")) from None
    token = received.get("token") if isinstance(received, dict) else None
    token = token if isinstance(token, str) else ""
    if _is_plain(received):
        kept: Any = {key: value for key, value in received.items() if key != "token"}
    else:
        kept = _as_text(line, token)
    try:
        return msgspec.convert(received, PlayerRequest), kept
    except msgspec.ValidationError as error:
        message = f"not a request: {error}"
        raise BadRequest(message, kept, token) from None


def same_token(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def _is_plain(received: Any) -> bool:
    """Whether this can be logged as it is: a flat object of short values."""
    return isinstance(received, dict) and all(
        value is None
        or isinstance(value, bool | float)
        or (isinstance(value, int) and -INT64 <= value < INT64)
        or (isinstance(value, str) and len(value) <= MAX_KEPT_TEXT)
        for value in received.values()
    )


def _as_text(line: bytes, token: str) -> str:
    text = line.decode("utf-8", "replace")
    return (text.replace(token, "***") if token else text)[:MAX_KEPT_TEXT]
