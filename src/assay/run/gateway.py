"""The way out of a sandbox without network: to the addresses that are allowed, and to no other.

Inside, a small program opens listening sockets on 127.0.0.1, hands them to us over a Unix socket
and becomes the agent. We accept the agent's connections here, outside, and pass them on. An
address on this machine has the same port inside, so the agent needs no proxy for it; all others
are reached through a proxy that the usual variables name.

An agent may flood us. It gets a limited number of connections, bytes and questions for an address
in all, and so many a second: it waits, and nobody else does.
"""

import contextlib
import errno
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

_PROXY_PORTS = range(3128, 3200)
_LOCAL = ("127.0.0.1", "localhost", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_CONNECT_S = 30.0
_START_S = 60.0
_HEAD_BYTES = 65_536
_BLOCK = 65_536
_MOST_SOCKETS = 64
_MOST_OPEN = 64
"""Connections at once; more wait until one of them ends."""
_MOST_CONNECTIONS = 50_000
_MOST_BYTES = 16 * 1024**3
"""In all, for one process of an agent; after that it gets no more."""
_CONNECTIONS_PER_S = 100
_BYTES_PER_S = 64 * 1024**2
_KNOWN_S = 30.0
"""How long we remember where a host is, or that it is nowhere."""
_MOST_STATUSES = 20
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_REQUEST = re.compile(rb"^([A-Z]+) (\S+) (HTTP/1\.[01])\r\n")

HELPER = """\
import sys, os
from _socket import *
path, ports = sys.argv[1], sys.argv[2].split(",")
found = []
for port in ports:
    for family, host in ((AF_INET, "127.0.0.1"), (AF_INET6, "::1")):
        try:
            one = socket(family, SOCK_STREAM)
            one.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            one.bind((host, int(port)))
            one.listen(128)
            found.append(one)
        except OSError:
            if family == AF_INET:
                raise
way = socket(AF_UNIX, SOCK_STREAM)
way.connect(path)
fds = b"".join(one.fileno().to_bytes(4, sys.byteorder) for one in found)
way.sendmsg([b"x"], [(SOL_SOCKET, SCM_RIGHTS, fds)])
way.recv(1)
for one in (*found, way):
    one.close()
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"cannot start {sys.argv[3]}: {error.strerror}")
"""
"""Runs inside, with the socket's path, the ports and the agent's command as arguments."""


class Traffic:
    """What one process of an agent asked for and was answered, as far as it can be seen from here.

    What is encrypted cannot be read: such a connection is opaque.
    """

    def __init__(self, *, proxied: bool) -> None:
        """proxied: the agent reaches some of its addresses only through a proxy."""
        self._proxied = proxied
        self._lock = threading.Lock()
        self._answers: dict[str, int] = {}
        self._last = ""
        self._counts = dict.fromkeys(("connections", "opaque", "failed", "dropped", "refused"), 0)

    def count(self, what: str) -> None:
        """Count a connection: one that was opened, opaque, or failed; one whose server ended it
        without an answer; or one to an address that is not allowed."""
        with self._lock:
            self._counts[what] += 1
            self._last = "failed" if what == "failed" else self._last

    def answer(self, block: bytes) -> bool:
        """Take the first bytes of what a server answered; return whether more is to come."""
        status = _STATUS.match(block)
        if status is None:
            self.count("opaque")
            return False
        name = status[1].decode()
        with self._lock:
            if name in self._answers or len(self._answers) < _MOST_STATUSES:
                self._answers[name] = self._answers.get(name, 0) + 1
            self._last = name
        return name.startswith("1")

    def seen(self) -> dict[str, Any]:
        """Return what was seen: numbers of connections, answers by status, and the last one."""
        with self._lock:
            counts = {**self._counts, "proxied": self._proxied}
            return {**counts, "answers": dict(self._answers), "last": self._last}


_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)\b")


class Meter:
    """Lets so much pass in a second, and so much in all."""

    def __init__(self, per_s: int, most: int) -> None:
        self._per_s, self._left = per_s, most
        self._lock = threading.Lock()
        self._until_s = 0.0

    def take(self, n: int) -> bool:
        """Wait for the turn of n more; return False when nothing is left."""
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= n
            now_s = time.monotonic()
            # A second's worth may come at once.
            self._until_s = max(self._until_s, now_s - 1.0) + n / self._per_s
            wait_s = self._until_s - now_s
        if wait_s > 0:
            time.sleep(wait_s)
        return True


class Limits:
    """What an agent may take of a server that we run for it, on all its ports together."""

    def __init__(self) -> None:
        self.connections = Meter(_CONNECTIONS_PER_S, _MOST_CONNECTIONS)
        self.bytes = Meter(_BYTES_PER_S, _MOST_BYTES)
        self.slots = threading.Semaphore(_MOST_OPEN)

    def accept(self, listening: socket.socket, is_closed: Callable[[], bool]) -> socket.socket:
        """Wait for the next connection; whoever serves it releases its slot in the end.

        Raises OSError when the socket is closed, or when there have been too many.
        """
        if not self.connections.take(1):
            msg = "the agent has opened too many connections"
            raise OSError(msg)
        self.slots.acquire()
        while True:
            try:
                return listening.accept()[0]
            except OSError as error:
                # An agent that loses its model for want of our files would have an excuse.
                if error.errno not in _SHORT_OF or is_closed():
                    self.slots.release()
                    raise
                time.sleep(0.1)


class Gateway:
    """Connects one sandboxed process to the allowed addresses, until it is closed."""

    def __init__(self, path: str, addresses: Iterable[str]) -> None:
        """Listen on a Unix socket at path; addresses are URLs."""
        self.path = path
        allowed = {place for url in addresses if (place := _place(url))}
        self._allowed = {place for place in allowed if place[0] not in _LOCAL}
        self._ports = {port for host, port in allowed if host in _LOCAL}
        self._proxy = next(port for port in _PROXY_PORTS if port not in self._ports)
        self.traffic = Traffic(proxied=bool(self._allowed))
        self._limits = Limits()
        self._found: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        """When and where a host was found; nowhere if the list is empty."""
        self._finding = threading.Lock()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        way = self._keep(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        way.bind(path)
        way.listen(1)
        way.settimeout(_START_S)
        threading.Thread(target=self._take_sockets, args=(way,), daemon=True).start()

    @property
    def arguments(self) -> tuple[str, str]:
        """The arguments of HELPER before the agent's command."""
        return self.path, ",".join(map(str, sorted({*self._ports, self._proxy})))

    @property
    def env(self) -> dict[str, str]:
        """Variables that lead to the proxy; none where all addresses are on this machine."""
        if not self._allowed:
            return {}
        proxy = f"http://127.0.0.1:{self._proxy}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        no_proxy = dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(_LOCAL))
        return dict.fromkeys(names, proxy) | no_proxy | {"NODE_USE_ENV_PROXY": "1"}

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._closed = True
            left, self._open = self._open, set()
        for one in left:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            one.close()

    def _take_sockets(self, way: socket.socket) -> None:
        """Take the sockets of the one process that is expected, then serve them."""
        try:
            peer = self._keep(way.accept()[0])
            peer.settimeout(_START_S)
            _, fds, _, _ = socket.recv_fds(peer, 1, _MOST_SOCKETS)
            listening = [self._keep(socket.socket(fileno=fd)) for fd in fds]
            peer.sendall(b"x")
            for one in (peer, way):
                self._drop(one)
            for one in listening:
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()
        except OSError:  # closed, or the process ended before it came so far
            self._drop(way)

    def _serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            port = listening.getsockname()[1]
            while True:
                client = self._keep(self._limits.accept(listening, lambda: self._closed))
                threading.Thread(target=self._pass_on, args=(client, port), daemon=True).start()
        self._drop(listening)

    def _pass_on(self, client: socket.socket, port: int) -> None:
        """Serve one connection of the agent."""
        server = None
        self.traffic.count("connections")
        try:
            if port in self._ports:
                server = self._connect("127.0.0.1", port)
            elif port == self._proxy:
                server = self._answer(client)
            if server is not None:
                self._copy_both_ways(client, server, asked=port == self._proxy)
        except (OSError, ValueError):  # closed meanwhile, which a selector calls a wrong value
            pass
        finally:
            self._limits.slots.release()
            self._drop(client)
            if server is not None:
                self._drop(server)

    def _answer(self, client: socket.socket) -> socket.socket | None:
        """Read what the agent asks the proxy for; return the connection to it if it is allowed."""
        client.settimeout(_CONNECT_S)
        head, rest = _read_head(client)
        request = _REQUEST.match(head)
        if request is None:
            client.sendall(_refusal("400 Bad Request"))
            return None
        method, target, version = request.groups()
        url = target.decode("latin-1")
        tunnel = method == b"CONNECT"
        place = _place(f"https://{url}" if tunnel else url)
        if place is None or place not in self._allowed:
            self.traffic.count("refused")
            client.sendall(_refusal("403 Forbidden by --sandbox=no-network"))
            return None
        try:
            server = self._connect(*place)
        except OSError:
            client.sendall(_refusal("502 Bad Gateway"))
            return None
        if tunnel:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            server.sendall(rest)
        else:
            split = urlsplit(url)
            path = (split.path or "/") + (f"?{split.query}" if split.query else "")
            first = b"%s %s %s\r\n" % (method, path.encode("latin-1"), version)
            server.sendall(first + head[request.end() :] + rest)
        client.settimeout(None)
        return server

    def _connect(self, host: str, port: int) -> socket.socket:
        try:
            server = self._keep(_connected(self._find(host, port)))
        except OSError:
            self.traffic.count("failed")
            raise
        server.settimeout(None)
        return server

    def _find(self, host: str, port: int) -> list[Any]:
        """Return the addresses of a host, which are looked up now and then."""
        with self._finding:
            found_s, places = self._found.get((host, port), (0.0, []))
            if not found_s or time.monotonic() - found_s > _KNOWN_S:
                try:
                    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                except OSError:
                    places = []
                self._found[host, port] = time.monotonic(), places
        if not places:
            msg = f"{host} is not known"
            raise OSError(msg)
        return places

    def _copy_both_ways(self, client: socket.socket, server: socket.socket, *, asked: bool) -> None:
        """Copy until both sides have ended, and look at how each answer begins."""
        is_open = True

        def take(source: socket.socket, block: bytes) -> None:
            nonlocal is_open, asked
            if source is client:
                is_open, asked = is_open and bool(block), asked or bool(block)
            elif asked:
                asked = bool(block) and self.traffic.answer(block)
                if not block and is_open:
                    self.traffic.count("dropped")
            if not self._limits.bytes.take(len(block)):
                msg = "the agent has passed on too much"
                raise OSError(msg)

        _copy(client, server, take)

    def _keep(self, one: socket.socket) -> socket.socket:
        with self._lock:
            if self._closed:
                one.close()
                msg = "the gateway is closed"
                raise OSError(msg)
            self._open.add(one)
        return one

    def _drop(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        one.close()


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}"


def _place(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL."""
    try:
        split = urlsplit(url)
        port = split.port or _DEFAULT_PORTS.get(split.scheme)
    except ValueError:
        return None
    if split.scheme not in _DEFAULT_PORTS or not split.hostname or not port:
        return None
    return split.hostname, port


def _refusal(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read up to the empty line that ends the head of a request; return what follows it too."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _HEAD_BYTES:
        block = client.recv(_BLOCK)
        if not block:
            break
        data += block
    head, end, rest = data.partition(b"\r\n\r\n")
    return head + end, rest


def _connected(places: list[Any]) -> socket.socket:
    """Connect to the first address that answers."""
    error = OSError("no address")
    for family, kind, protocol, _, address in places:
        one = socket.socket(family, kind, protocol)
        one.settimeout(_CONNECT_S)
        try:
            one.connect(address)
        except OSError as found:
            one.close()
            error = found
        else:
            return one
    raise error


def _copy(
    one: socket.socket, other: socket.socket, take: Callable[[socket.socket, bytes], None]
) -> None:
    """Copy until both sides have ended; take is called with each block, empty for an end."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while selector.get_map():
            for key, _ in selector.select():
                source, target = key.fileobj, key.data
                assert isinstance(source, socket.socket)
                block = source.recv(_BLOCK)
                take(source, block)
                if block:
                    target.sendall(block)
                else:
                    selector.unregister(source)
                    with contextlib.suppress(OSError):
                        target.shutdown(socket.SHUT_WR)
