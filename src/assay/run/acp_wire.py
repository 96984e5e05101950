"""JSON-RPC 2.0 as the Agent Client Protocol uses it: one message per line."""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from assay.errors import AssayError

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
AUTH_REQUIRED, NOT_FOUND = -32000, -32002
_QUEUED = 10_000
_CLOSE_S = 2.0
_WAIT_S = 0.1


type CallId = int | str | None


class RpcError(AssayError):
    """The answer to a request that cannot be met."""

    def __init__(
        self, code: int, message: str, data: dict[str, Any] | None = None, call_id: CallId = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.call_id = call_id


class Call(NamedTuple):
    """A request, or a notification when nobody waits for an answer."""

    method: str
    params: Any
    id: CallId
    wants_answer: bool

    def read[T](self, kind: type[T]) -> T:
        """Check the parameters."""
        try:
            return msgspec.convert(self.params, kind)
        except msgspec.ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"Invalid params: {error}") from error


def read_call(line: bytes) -> Call | None:
    """Read one line; None is an answer to something that we never ask."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {error}") from error
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "Invalid request: not an object")
    if "method" not in message and ("result" in message or "error" in message):
        return None
    method, number = message.get("method"), message.get("id")
    if isinstance(number, bool) or not isinstance(number, int | str | None):
        raise RpcError(INVALID_REQUEST, "Invalid request: id is neither a number nor a string")
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
        msg = 'Invalid request: needs "jsonrpc": "2.0" and a method'
        raise RpcError(INVALID_REQUEST, msg, call_id=number)
    return Call(method, message.get("params", {}), number, "id" in message)


def result_line(number: CallId, result: Any) -> bytes:
    """Write the answer to a request."""
    return _line({"id": number, "result": result})


def error_line(number: CallId, error: RpcError) -> bytes:
    """Write that a request cannot be met, and why."""
    said: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        said["data"] = error.data
    return _line({"id": number, "error": said})


def update_line(session_id: str, update: dict[str, Any]) -> bytes:
    """Write a notification of what the agent did."""
    params = {"sessionId": session_id, "update": update}
    return _line({"method": "session/update", "params": params})


class Outbox:
    """Sends lines in order from a thread of its own: a client that does not read blocks no one.

    Bounded: whoever sends waits for room, but not once the end has begun or the client is gone.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._queue: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def send(self, line: bytes) -> None:
        """Queue a line."""
        while not self._ending.is_set():
            try:
                self._queue.put(line, timeout=_WAIT_S)
            except queue.Full:
                continue
            return
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(line)

    def begin_end(self) -> None:
        """Wait for the client no longer."""
        self._ending.set()

    def close(self) -> None:
        """Send what is queued, if the client takes it soon."""
        self._ending.set()
        try:
            self._queue.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        gone = False
        while (line := self._queue.get()) is not None:
            if gone:
                continue
            try:
                self._write(line)
            except OSError:  # the client is gone; the end of our stdin will say so too
                gone = True


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
