"""A model that plays a script over HTTP on the loopback interface, in threads."""

import signal
import socket
import socketserver
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from assay.testing.model.answering import (
    Incoming,
    Request,
    RequestLog,
    Route,
    Sender,
    ServerContext,
    answer,
    cut_off,
    find_route,
    hide_query,
    hide_secrets,
)
from assay.testing.model.script import ScriptSource, load_script

_HOST = "127.0.0.1"
_GZIP = 31
_MOST_BYTES = 256 * 1024 * 1024
"""Most that a compressed request may hold: agents write it."""


class ScriptedModel:
    """Plays a script for any number of agents: `with ScriptedModel(script) as model: model.url`."""

    def __init__(
        self,
        script: ScriptSource,
        *,
        port: int = 0,
        log: str | Path | None = None,
        log_bodies: bool = False,
    ) -> None:
        self._script = load_script(script)
        self._port = port
        self._log_path = Path(log) if log else None
        self._log_bodies = log_bodies
        self._server: _Server | None = None
        self._log: RequestLog | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; returns at once."""
        self._log = RequestLog(self._log_path, time.monotonic, with_bodies=self._log_bodies)
        try:
            self._server = _Server(self._port, ServerContext(self._script, self._log))
        except OSError:
            self._log.close()
            raise
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="scripted-model", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop listening and close all connections, also those that hang."""
        if self._server is not None and self._log is not None:
            self._server.end()
            self._log.close()
            self._server = None

    @property
    def url(self) -> str:
        """The base URL, without `/v1`."""
        if self._server is None:
            message = "the scripted model is not running; use it in a with statement"
            raise RuntimeError(message)
        return f"http://{_HOST}:{self._server.server_port}"

    def url_for(self, name: str, run: str = "") -> str:
        """Return the base URL of one named script; each run has its own counters."""
        return f"{self.url}/s/{quote(f'{name}@{run}' if run else name)}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in order of arrival; also available after stop()."""
        return self._log.all() if self._log else []

    def wait_for(self, n_requests: int, timeout_s: float = 10) -> bool:
        """Wait until there are this many requests; False when time is up."""
        return self._log.wait_for(n_requests, timeout_s) if self._log else False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, context: ServerContext) -> None:
        self.context = context
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((_HOST, port), type("_Handler", (Handler,), {"context": context}))

    def server_bind(self) -> None:
        """Bind without the reverse DNS lookup of HTTPServer, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Agents drop connections when they are killed or give up; that is no error here.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        self.context.closing.set()  # first: handlers may be waiting in a scripted hang
        self.shutdown()
        with self._lock:
            open_now = list(self._connections)
        for connection in open_now:
            cut_off(connection)
        self.server_close()


def serve(
    script_path: str | Path,
    port: int = 0,
    log: str | Path | None = None,
    port_file: str | Path | None = None,
    *,
    log_bodies: bool = False,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets the URL once it listens.

    Call it from the main thread, the only one that can install signal handlers.
    """
    script = load_script(script_path)
    with (
        _stop_signals() as stop,
        ScriptedModel(script, port=port, log=log, log_bodies=log_bodies) as model,
    ):
        if port_file is not None:
            _write_whole(Path(port_file), model.url.rsplit(":", 1)[1])
        if on_ready is not None:
            on_ready(model.url)
        while not stop.wait(0.2):  # a signal that comes just before a wait does not end it
            pass


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        yield stop
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _write_whole(path: Path, text: str) -> None:
    """Write atomically: a reader sees nothing or all of it."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    beside.replace(path)


class Handler(BaseHTTPRequestHandler):
    """One connection; HTTP/1.1 keeps it open for many requests."""

    protocol_version = "HTTP/1.1"
    server_version = "scripted-model"
    sys_version = ""
    disable_nagle_algorithm = True
    context: ServerContext
    """Set on a subclass that each server makes for itself."""

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing; every request is in the request log."""

    def _handle(self) -> None:
        try:
            self._respond()
        except ConnectionError:
            self.close_connection = True

    def _respond(self) -> None:
        upgrade = "websocket" in self.headers.get("upgrade", "").lower()
        route = find_route(self.command, self.path, upgrade=upgrade)
        data = self._read_bytes()
        if self.headers.get("content-encoding", "") == "gzip":
            data = zlib.decompressobj(wbits=_GZIP).decompress(data, _MOST_BYTES)
        text = data.decode("utf-8", "replace")
        sender = Sender(self, self.context.closing)
        player = self.context.player(route.lane)
        if player is None:
            names = ", ".join(self.context.names)
            message = f"no script {route.lane!r}; the script has: {names}"
            self._note(route, 404, message)
            return sender.send_json(404, {"error": {"message": message}})
        if route.kind != "answer":
            status, value = _plain_answer(route, text, player.play.models)
            self._note(route, status)
            return sender.send_json(status, value)
        incoming = Incoming(
            self.command, hide_query(self.path), dict(self.headers.items()), route, text
        )
        return answer(incoming, player, self.context.log, sender)

    def _read_bytes(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        # Chunked encoding, which http.server does not decode.
        data = b""
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _note(self, route: Route, status: int, *problems: str) -> None:
        self.context.log.add(
            Request(
                method=self.command,
                path=hide_query(self.path),
                served=route.kind if not problems else "unknown",
                status=status,
                lane=route.lane,
                problems=problems,
                headers=hide_secrets(self.headers.items()),
            )
        )


def _plain_answer(route: Route, text: str, models: Sequence[str]) -> tuple[int, Any]:
    # Values hold the fields of all providers at once; clients ignore those they do not know.
    if route.kind == "probe":
        return 200, {}
    if route.kind == "websocket":
        return 426, {"error": {"message": "the scripted model speaks no websocket"}}
    if route.kind == "count_tokens":
        n_tokens = max(1, len(text) // 4)
        return 200, {"input_tokens": n_tokens, "totalTokens": n_tokens}
    if route.kind == "models":
        data = [{"id": name, "object": "model", "type": "model", "created": 0} for name in models]
        listed = [{"name": f"models/{name}", "displayName": name} for name in models]
        return 200, {"object": "list", "has_more": False, "data": data, "models": listed}
    return 404, {"error": {"message": "the scripted model has no such path", "code": 404}}
