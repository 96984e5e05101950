"""A proxy on 127.0.0.1 between an agent and its models, which the agent finds by its base URL.

It passes answers on as they come and keeps a copy, or gives those of a tape. It speaks plain HTTP
to the agent, so that no certificates are needed, and TLS to the provider. The base URL has a secret
in its path: agents of other trials may reach the port, but not the provider, the key or the tape.
"""

import contextlib
import re
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, InvalidURL
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from assay.plugin import Adapter, Ask, Command
from assay.records.http import HttpRequest, NoAnswer
from assay.records.spec import TrialSpec
from assay.records.tape import Exchange
from assay.run.gateway import Limits, origin_of
from assay.run.http import open_connection
from assay.run.tapes import TapeLane
from assay.run.wire import Names, Pieces
from assay.run.workspace import our_secrets

_HOST = "127.0.0.1"
_BLOCK = 65_536
_TIMEOUT_S = 900.0
"""Silence of a provider after which its connection is given up; agents have limits of their own."""
_LAST_S = 1.0
"""How long the end of a trial waits for exchanges that the agent did not wait for."""
_GZIP = 31
_MOST_BODY = 32 * 1024 * 1024
"""Bytes of a request, unpacked; providers take no more either."""
_MOST_HELD = 8 * _MOST_BODY
"""Bytes of all requests of a trial that are being answered."""
_MOST_KEPT = 32 * 1024 * 1024
"""Bytes of an answer on a tape; a longer one is passed on only."""
_OWN_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}
    | {"proxy-authorization", "proxy-connection", "accept-encoding", "content-length", "expect"}
)
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
_CREDENTIAL = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
"""Names of headers and of fields of a query."""
_NO_HEADER = re.compile(r"[^\t\x20-\x7e\xa0-\xff]")
_BODILESS = frozenset({204, 304})


class Proxy:
    """The proxy of one trial: a port for each provider that its agent asks."""

    def __init__(self, lane: TapeLane) -> None:
        self._lane, self._limits = lane, Limits()
        self._servers: dict[str, _Server] = {}
        self.replaced: set[str] = set()
        """Where the providers are that the agent does not reach itself any more."""

    def redirect(self, adapter: Adapter, command: Command, ask: Ask) -> Command:
        """Return the agent's command with the proxy in place of its providers."""
        offline = self._lane.replays and not self._lane.asks_provider
        made = adapter.redirect(command, ask, self.through, offline=offline)
        ours = tuple(server.url for server in self._servers.values())
        others = tuple(url for url in made.endpoints if origin_of(url) not in self._servers)
        no_proxy = dict.fromkeys(("NO_PROXY", "no_proxy"), f"{_HOST},localhost")
        return msgspec.structs.replace(
            made, endpoints=(*ours, *others), env={**no_proxy, **made.env}
        )

    def through(self, url: str) -> str:
        """Return the address at which the proxy stands for a URL."""
        origin = origin_of(url)
        if origin not in self._servers and origin not in {s.url for s in self._servers.values()}:
            self._servers[origin] = _Server(self._lane, origin, self._limits)
            self.replaced.add(origin)
        server = self._servers.get(origin)
        return server.url + url[len(origin) :] if server is not None else url

    def seen(self) -> dict[str, Any]:
        """Return what was seen of the traffic; see Traffic.seen."""
        return self._lane.traffic.seen()

    def close(self) -> None:
        """End all connections."""
        self._lane.end()
        for server in self._servers.values():
            server.end()


@contextlib.contextmanager
def through_tape(
    spec: TrialSpec, request: HttpRequest
) -> Iterator[tuple[HttpRequest, TapeLane | None]]:
    """Yield a request that goes by way of the tape of its trial, if that has one.

    Raises NoAnswer if the tape has none.
    """
    if spec.surroundings.tape is None:
        yield request, None
        return
    names = Names(spec.surroundings.cwd, None)
    lane = TapeLane(spec, spec.surroundings.tape, names, _Question())
    proxy = Proxy(lane)
    try:
        yield msgspec.structs.replace(request, url=proxy.through(request.url)), lane
    finally:
        proxy.close()
        if (failure := lane.failure()) is not None:
            raise NoAnswer(failure)


class _Question:
    """A conversation of one request."""

    turns = ()

    def __init__(self) -> None:
        self.secrets = our_secrets()
        self.cancelled = threading.Event()


class _RefusedError(Exception):
    """A request that is not passed on, with the status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _Server:
    """Listens in place of one provider; each connection has a thread."""

    def __init__(self, lane: TapeLane, upstream: str, limits: Limits) -> None:
        self.lane, self.upstream, self.limits = lane, upstream, limits
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._n_busy = self._n_held = 0
        self._listening = socket.create_server((_HOST, 0), backlog=128)
        self.path = f"/{secrets.token_hex(16)}"
        """Before all paths: who does not know it is not answered."""
        self.url = f"http://{_HOST}:{self._listening.getsockname()[1]}{self.path}"
        threading.Thread(target=self._serve, name="proxy", daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client = self.limits.accept(self._listening, self.lane.ended.is_set)
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()
        self._listening.close()

    def _answer(self, client: socket.socket) -> None:
        try:
            with self.holding(client):
                _Handler(client, _HOST, self)  # type: ignore[arg-type]  # of a server it reads nothing
        finally:
            self.limits.slots.release()
            client.close()

    @contextlib.contextmanager
    def holding(self, one: socket.socket) -> Iterator[None]:
        """Let a connection be ended when the trial is over."""
        with self._changed:
            self._open.add(one)
        try:
            yield
        finally:
            with self._changed:
                self._open.discard(one)

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Let the end of the trial wait for what is still written."""
        with self._changed:
            self._n_busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_busy -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def room(self, n_bytes: int) -> Iterator[None]:
        """Have room for so much of a request while it is answered."""
        with self._changed:
            if n_bytes > _MOST_BODY or self._n_held + n_bytes > _MOST_HELD:
                raise _RefusedError(413, f"a request may have {_MOST_BODY} bytes")
            self._n_held += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self._n_held -= n_bytes

    def end(self) -> None:
        """End all connections; exchanges that are nearly over may end before."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._n_busy, _LAST_S)
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._n_busy, _LAST_S)


class _Handler(BaseHTTPRequestHandler):
    """One connection of an agent, with the connection to its provider."""

    protocol_version = "HTTP/1.1"
    server_version = "assay"
    sys_version = ""
    disable_nagle_algorithm = True
    server: _Server  # type: ignore[assignment]  # of which the base class wants nothing
    _upstream: HTTPConnection | None = None
    _prefix = ""
    """Before the path of a request: a proxy of the environment wants the whole address."""
    _login: Mapping[str, str] = {}

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()
        if self._upstream is not None:
            self._upstream.close()

    def handle_one_request(self) -> None:
        # As in the base class, for every method there is.
        self.raw_requestline = self.rfile.readline(_BLOCK + 1)
        if not self.raw_requestline:
            self.close_connection = True
        elif len(self.raw_requestline) > _BLOCK:
            self.send_error(414)
        elif self.parse_request() and self._is_for_us():
            try:
                with self.server.exchanging(), contextlib.ExitStack() as stack:
                    self._exchange(stack)
            except _RefusedError as error:
                self.close_connection = True
                self._send_plain(error.status, error.message)

    def _is_for_us(self) -> bool:
        """Take the secret off the path of a request; refuse one that does not begin with it, and
        count it nowhere."""
        secret, path = self.server.path, self.path
        given, rest = path[: len(secret)], path[len(secret) :]
        known = secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
        if known and rest[:1] in ("", "/", "?"):
            self.path = rest if rest.startswith("/") else f"/{rest}"
            return True
        self.close_connection = True
        self._begin(404, {}, 0)
        return False

    def _exchange(self, stack: contextlib.ExitStack) -> None:
        """Answer a request; the stack holds the room that its body takes."""
        lane = self.server.lane
        began_s, body = time.monotonic(), self._read_body(stack)
        lane.traffic.count("connections")
        if "websocket" in self.headers.get("upgrade", "").lower():
            self._send_plain(426, "this proxy speaks no websocket")
            return
        number, n_before = lane.arrived()
        faults = lane.faults(number)
        lane.ended.wait(sum(fault.slow_s for fault in faults))
        if status := next((fault.status for fault in faults if fault.status), 0):
            self._send_plain(status, "a fault on purpose (--fault)")
            return
        cut = any(fault.cut for fault in faults)
        plain = self._decoded(body, stack)
        found = lane.find(self.command, self.path, plain, self._credentials())
        if found is not None:
            lane.count(found)
            try:
                self._play(found, cut=cut)
            finally:
                lane.played(found)
        elif lane.asks_provider:
            self._pass_on(body, plain, began_s, n_before, cut=cut)
        else:
            self._send_plain(404, "the tape has no answer to this request")

    def _read_body(self, stack: contextlib.ExitStack) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self._read(self.headers.get("content-length") or "0", 10, stack)
        parts: list[bytes] = []
        n_bytes = 0
        while part := self._read(self.rfile.readline(_BLOCK).split(b";")[0], 16, stack):
            parts.append(part)
            n_bytes += len(part)
            if n_bytes > _MOST_BODY:
                raise _RefusedError(413, f"a request may have {_MOST_BODY} bytes")
            self.rfile.readline(_BLOCK)
        while self.rfile.readline(_BLOCK).strip():
            pass
        return b"".join(parts)

    def _read(self, size: str | bytes, base: int, stack: contextlib.ExitStack) -> bytes:
        """Read as many bytes as the agent says that there are; an agent can say anything."""
        try:
            n_bytes = int(size, base)
        except ValueError:
            n_bytes = -1
        if n_bytes < 0:
            raise _RefusedError(400, "the length of the request is no number")
        stack.enter_context(self.server.room(n_bytes))
        if not self.server.limits.bytes.take(n_bytes):
            raise _RefusedError(413, "the agent has sent too much")
        return self.rfile.read(n_bytes)

    def _decoded(self, body: bytes, stack: contextlib.ExitStack) -> bytes:
        if self.headers.get("content-encoding", "") != "gzip":
            return body
        stack.enter_context(self.server.room(_MOST_BODY))
        unpacker = zlib.decompressobj(_GZIP)
        try:
            plain = unpacker.decompress(body, _MOST_BODY)
        except zlib.error:
            return body
        if unpacker.unconsumed_tail:
            raise _RefusedError(413, f"a request may have {_MOST_BODY} bytes, unpacked")
        return plain

    def _send_plain(self, status: int, message: str) -> None:
        self.server.lane.traffic.answer(b"HTTP/1.1 %d " % status)
        error = {"type": "proxy", "message": message}
        body = msgspec.json.encode({"type": "error", "error": error})
        self._begin(status, {"content-type": "application/json"}, len(body))
        self._write(body if self.command != "HEAD" else b"")

    def _begin(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        """Send the head of an answer; without a length it comes in chunks."""
        self._chunked = length is None and status not in _BODILESS and self.command != "HEAD"
        self.send_response_only(status)
        for name, value in headers.items():
            # Those of a tape may be anything; a provider's are as they came.
            self.send_header(name, _NO_HEADER.sub("?", value))
        if self._chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _write(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def _end(self) -> None:
        if self._chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _drop(self) -> None:
        """End the connection in the middle of an answer."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _play(self, found: Exchange, *, cut: bool) -> None:
        """Give the answer of a tape, at its pace."""
        if not found.status:
            self.server.lane.traffic.count("failed")
            self._drop()
            return
        self.server.lane.traffic.answer(b"HTTP/1.1 %d " % found.status)
        began_s, pace = time.monotonic(), self.server.lane.use.pace
        headers = {n: v for n, v in found.headers.items() if n in _KEPT_HEADERS}
        self._begin(found.status, headers, None)
        pieces = found.answer[: len(found.answer) // 2] if cut else found.answer
        waiting = b""
        for ms, text in pieces:
            data = text.encode("utf-8", "surrogatepass")
            wait_s = began_s + ms / 1000 * pace - time.monotonic() if pace else 0.0
            if wait_s > 0:
                self._write(waiting)
                waiting = b""
                self.server.lane.ended.wait(min(wait_s, _TIMEOUT_S))
            waiting += data
        self._write(waiting if self.command != "HEAD" else b"")
        if cut or found.cut:
            self._drop()
        else:
            self._end()

    def _pass_on(
        self, body: bytes, plain: bytes, began_s: float, n_before: int, *, cut: bool
    ) -> None:
        """Ask the provider; pass its answer on as it comes, and keep it."""
        exchange = Exchange(lane=0, number=0, method=self.command, path=self.path, after=n_before)
        try:
            response = self._ask(body)
        except (OSError, HTTPException):
            self.server.lane.record(exchange, plain, [], self._credentials())
            self._drop()
            return
        self.server.lane.traffic.answer(b"HTTP/1.1 %d " % response.status)
        headers = {name.lower(): value for name, value in response.getheaders()}
        pieces = Pieces(headers.get("content-type", ""))
        passed = {n: v for n, v in headers.items() if n not in _OWN_HEADERS}
        length = headers.get("content-length", "")
        self._begin(response.status, passed, int(length) if length.isdecimal() else None)
        with self.server.holding(self._socket()):
            whole = self._copy(response, pieces, began_s, cut=cut)
        exchange = msgspec.structs.replace(
            exchange,
            status=response.status,
            headers={n: v for n, v in headers.items() if n in _KEPT_HEADERS},
            cut=not whole,
        )
        kept = pieces.close(_ms_since(began_s))
        self.server.lane.record(exchange, plain, kept, self._credentials())
        if response.will_close:
            self._forget()

    def _copy(self, response: HTTPResponse, pieces: Pieces, began_s: float, *, cut: bool) -> bool:
        """Copy an answer; return whether it came to its end. What the agent does not want any more
        is read all the same, for the tape."""
        gone = False
        try:
            while block := response.read1(_BLOCK):
                is_kept = pieces.n_bytes <= _MOST_KEPT
                if is_kept:
                    pieces.add(_ms_since(began_s), block)
                try:
                    if not gone:
                        self._write(block[: len(block) // 2] if cut else block)
                except OSError:
                    gone = True
                if cut:
                    self._drop()
                    gone = True
                if (gone and not is_kept) or not self.server.limits.bytes.take(len(block)):
                    msg = "nobody wants the rest"
                    raise OSError(msg)
            if not gone:
                self._end()
            self.close_connection |= gone
        except (OSError, HTTPException):
            self._forget()
            self._drop()
            return False
        return True

    def _credentials(self) -> list[str]:
        """Return what the request proves its right with: on a tape it is covered everywhere."""
        found = [v for n, v in self.headers.items() if _CREDENTIAL.search(n)]
        query = parse_qsl(urlsplit(self.path).query, errors="replace")
        return [*found, *(value for name, value in query if _CREDENTIAL.search(name))]

    def _ask(self, body: bytes) -> HTTPResponse:
        """Raises _RefusedError for what is no request, and OSError or HTTPException where the
        provider cannot be reached, or does not answer."""
        headers = {n: v for n, v in self.headers.items() if n.lower() not in _OWN_HEADERS}
        headers |= {"Accept-Encoding": "identity"}
        if body or self.command in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(body))
        for again in (True, False):
            kept = self._upstream
            # Only this is a failure that no request brings about.
            connection = self._upstream = kept or self._connected()
            try:
                target = f"{self._prefix}{self.path}"
                connection.request(self.command, target, body or None, {**headers, **self._login})
                return connection.getresponse()
            except (InvalidURL, ValueError) as error:
                self._forget()
                raise _RefusedError(400, "this is no request of HTTP") from error
            except (OSError, HTTPException):
                self._forget()
                if kept is None or not again:  # only a connection that had been used may be stale
                    self.server.lane.traffic.count("dropped")
                    raise
        raise AssertionError

    def _connected(self) -> HTTPConnection:
        """Connect with the provider, by the proxy of the environment if there is one."""
        origin = self.server.upstream
        made, target, self._login = open_connection(urlsplit(origin), _TIMEOUT_S)
        self._prefix = origin if target.startswith("http") else ""
        try:
            made.connect()
        except OSError:
            self.server.lane.traffic.count("failed")
            raise
        assert made.sock is not None
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _socket(self) -> socket.socket:
        """Return that of the provider; one that closes after its answer has none any more."""
        kept = self._upstream.sock if self._upstream is not None else None
        return kept or self.connection

    def _forget(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)
