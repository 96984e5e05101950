"""Speak HTTP: read a request, ask the stage what it gets, send that."""

import gzip
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from assay.testing.model.answering import Incoming, answer
from assay.testing.model.request_log import Request, hide_query, hide_secrets
from assay.testing.model.routes import Route, find_route
from assay.testing.model.sending import Sender
from assay.testing.model.stage import Stage


class Handler(BaseHTTPRequestHandler):
    """One connection; HTTP/1.1 keeps it open for many requests."""

    protocol_version = "HTTP/1.1"
    server_version = "scripted-model"
    sys_version = ""
    disable_nagle_algorithm = True
    stage: Stage
    """Set by the server on a subclass of its own."""

    def do_HEAD(self) -> None:
        """Answer a probe."""
        self._handle()

    def do_GET(self) -> None:
        """Answer a probe or list the models."""
        self._handle()

    def do_POST(self) -> None:
        """Answer as the model."""
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent; the request log has it all."""

    def _handle(self) -> None:
        try:
            self._respond()
        except ConnectionError:
            self.close_connection = True

    def _respond(self) -> None:
        upgrade = "websocket" in self.headers.get("upgrade", "").lower()
        route = find_route(self.command, self.path, upgrade=upgrade)
        text = self._read_body()
        sender = Sender(self, self.stage.closing)
        player = self.stage.player(route.lane)
        if player is None:
            names = ", ".join(self.stage.names)
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
        return answer(incoming, player, self.stage.log, sender)

    def _read_body(self) -> str:
        data = self._read_bytes()
        if self.headers.get("content-encoding", "") == "gzip":
            data = gzip.decompress(data)
        return data.decode("utf-8", "replace")

    def _read_bytes(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _note(self, route: Route, status: int, *problems: str) -> None:
        self.stage.log.add(
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
    if route.kind == "probe":
        return 200, {}
    if route.kind == "websocket":
        return 426, {"error": {"message": "the scripted model speaks no websocket"}}
    if route.kind == "count_tokens":
        n_tokens = max(1, len(text) // 4)
        return 200, {"input_tokens": n_tokens, "totalTokens": n_tokens}
    if route.kind == "models":
        return 200, _model_list(models)
    return 404, {"error": {"message": "the scripted model has no such path", "code": 404}}


def _model_list(models: Sequence[str]) -> dict[str, Any]:
    data = [{"id": name, "object": "model", "type": "model", "created": 0} for name in models]
    listed = [{"name": f"models/{name}", "displayName": name} for name in models]
    return {"object": "list", "has_more": False, "data": data, "models": listed}
