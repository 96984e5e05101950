"""A model that plays a script, on loopback, in threads of this process."""

import socket
import socketserver
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from assay.testing.model.handler import Handler
from assay.testing.model.loading import ScriptSource, load_script
from assay.testing.model.request_log import Request, RequestLog
from assay.testing.model.sending import cut_off
from assay.testing.model.stage import Stage

_HOST = "127.0.0.1"


class ScriptedModel:
    """Plays a script to any number of agents: `with ScriptedModel(script) as model: model.url`."""

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; returns at once."""
        self._log = RequestLog(self._log_path, time.monotonic, with_bodies=self._log_bodies)
        try:
            self._server = _Server(self._port, Stage(self._script, self._log))
        except OSError:
            self._log.close()
            raise
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="scripted-model", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop listening and end every connection, also those that hang."""
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
        """Give the base URL of one named script, with counters of its own for each run."""
        return f"{self.url}/s/{quote(f'{name}@{run}' if run else name)}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order in which they came; also after the end."""
        return self._log.all() if self._log else []

    def wait_for(self, n_requests: int, timeout_s: float = 10) -> bool:
        """Wait until so many requests have come; False when time is up."""
        return self._log.wait_for(n_requests, timeout_s) if self._log else False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, stage: Stage) -> None:
        self.stage = stage
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((_HOST, port), type("_Handler", (Handler,), {"stage": stage}))

    def server_bind(self) -> None:
        """Bind without asking a name server who we are."""
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
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        self.stage.closing.set()
        self.shutdown()
        with self._lock:
            open_now = list(self._connections)
        for connection in open_now:
            cut_off(connection)
        self.server_close()
