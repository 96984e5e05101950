"""JSON-RPC 2.0 as the Agent Client Protocol uses it, and steps as session updates."""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from assay.errors import AssayError
from assay.records.capture import AnyStep, Message, Plan, Thought, ToolCall

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
AUTH_REQUIRED, NOT_FOUND = -32000, -32002
_MAX_QUEUED = 10_000
_CLOSE_S = 2.0
_WAIT_S = 0.1


type CallId = int | str | None


class RpcError(AssayError):
    """An error response to a request."""

    def __init__(
        self, code: int, message: str, data: dict[str, Any] | None = None, call_id: CallId = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.call_id = call_id


class Call(NamedTuple):
    """A request, or a notification if it has no id and thus gets no response."""

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
    """Read one line; None for a response, since this side sends no requests."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {error}") from error
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "Invalid request: not an object")
    if "method" not in message and ("result" in message or "error" in message):
        return None
    method, number = message.get("method"), message.get("id")
    # bool is a subclass of int.
    if isinstance(number, bool) or not isinstance(number, int | str | None):
        raise RpcError(INVALID_REQUEST, "Invalid request: id is neither a number nor a string")
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
        msg = 'Invalid request: needs "jsonrpc": "2.0" and a method'
        raise RpcError(INVALID_REQUEST, msg, call_id=number)
    return Call(method, message.get("params", {}), number, "id" in message)


def result_line(number: CallId, result: Any) -> bytes:
    return _line({"id": number, "result": result})


def error_line(number: CallId, error: RpcError) -> bytes:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return _line({"id": number, "error": body})


def update_line(session_id: str, update: dict[str, Any]) -> bytes:
    params = {"sessionId": session_id, "update": update}
    return _line({"method": "session/update", "params": params})


class Outbox:
    """Sends lines in order from its own thread, so that a client that does not read blocks no one.

    The queue is bounded: a sender waits for room, but not while closing or once the client is gone.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._queue: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def send(self, line: bytes) -> None:
        """Queue a line."""
        while not self._ending.is_set():
            try:
                # A short timeout, to notice when the outbox is closing.
                self._queue.put(line, timeout=_WAIT_S)
            except queue.Full:
                continue
            return
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(line)

    def stop_waiting(self) -> None:
        """Let senders no longer wait for room in the queue."""
        self._ending.set()

    def close(self) -> None:
        """Send what is queued, if the client reads it soon."""
        self._ending.set()
        try:
            self._queue.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        gone = False
        while (line := self._queue.get()) is not None:
            if gone:  # keep emptying the queue, or senders would wait forever
                continue
            try:
                self._write(line)
            except OSError:  # the client is gone; the server ends when it sees the end of stdin
                gone = True


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"


_STATUSES = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "success": "completed",
    "done": "completed",
    "failed": "failed",
    "error": "failed",
    "cancelled": "failed",
    "canceled": "failed",
    "rejected": "failed",
}
_PLAN_STATUSES = ("pending", "in_progress", "completed")
_KINDS = (
    ("execute", ("bash", "shell", "exec", "command", "terminal")),
    ("edit", ("edit", "write", "patch", "replace", "create")),
    ("read", ("read", "cat", "view", "open")),
    ("search", ("grep", "glob", "search", "find", "ls", "list")),
    ("fetch", ("fetch", "web", "http", "curl")),
    ("think", ("think", "todo", "plan")),
)


class TurnUpdates:
    """Turns the steps of one turn into updates; remembers which tool calls were announced."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._n_texts = 0
        self._announced: set[str] = set()
        self._open: dict[str, list[str]] = {}
        """Calls without an id, by their name, oldest first."""
        self._messages: list[str] = []
        """The agent's messages in this turn."""

    def update(self, step: AnyStep) -> dict[str, Any]:
        """Return the update for a step that started or changed."""
        if isinstance(step, ToolCall):
            return self._call(step)
        if isinstance(step, Plan):
            listed: list[Any] = step.entries or ([step.content] if step.content else [])
            return {"sessionUpdate": "plan", "entries": [_entry(entry) for entry in listed]}
        if isinstance(step, Message):
            self._messages.append(step.content)
        kind = "agent_message_chunk" if isinstance(step, Message) else "agent_thought_chunk"
        return {**text_update(kind, step.content), "messageId": self._text_id(step)}

    def answer(self, output: str) -> dict[str, Any] | None:
        """Return an update for the answer, unless the messages contain it already."""
        # Messages may be whole texts or chunks of one.
        sent = ("\n".join(self._messages), "".join(self._messages))
        if not output.strip() or any(output.strip() in text for text in sent):
            return None
        return self.update(Message(content=output))

    def _text_id(self, step: Message | Thought) -> str:
        """Return an id for a text; a client joins chunks with the same id."""
        if step.step_id is not UNSET:
            return f"{self._turn}-{step.step_id}"
        self._n_texts += 1
        return f"{self._turn}-{self._n_texts}"

    def _call(self, step: ToolCall) -> dict[str, Any]:
        status = _STATUSES.get(step.status, "in_progress")
        call_id = self._call_id(step, ended=status in ("completed", "failed"))
        update: dict[str, Any] = {"toolCallId": call_id, "title": step.name, "status": status}
        if step.input is not UNSET:
            update["rawInput"] = step.input
        if step.output is not UNSET:
            update["rawOutput"] = step.output
        text = _text(step.error if step.error is not UNSET else step.output)
        if text:
            content = {"type": "content", "content": {"type": "text", "text": text}}
            update["content"] = [content]
        if call_id in self._announced:
            return {"sessionUpdate": "tool_call_update", **update}
        self._announced.add(call_id)
        return {"sessionUpdate": "tool_call", "kind": _kind(step.name), **update}

    def _call_id(self, step: ToolCall, *, ended: bool) -> str:
        """Return the call's id; without one, an end belongs to the oldest open call of its name."""
        if step.call_id is not UNSET:
            return step.call_id
        waiting = self._open.setdefault(step.name, [])
        if ended and waiting:
            return waiting.pop(0)
        call_id = f"call-{self._turn}-{len(self._announced) + 1}"
        if not ended:
            waiting.append(call_id)
        return call_id


def text_update(kind: str, text: str) -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def _entry(entry: Any) -> dict[str, str]:
    fields = entry if isinstance(entry, dict) else {"content": entry}
    content = fields.get("content", fields.get("step", fields.get("text")))
    status = _STATUSES.get(str(fields.get("status")), "pending")
    priority = fields.get("priority")
    return {
        "content": _text(content if content is not None else entry),
        "priority": priority if priority in ("high", "medium", "low") else "medium",
        "status": status if status in _PLAN_STATUSES else "completed",
    }


def _text(value: Any) -> str:
    if value is None or value is UNSET:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _kind(name: str) -> str:
    """Guess the kind of a tool from its name; clients choose an icon by it."""
    lower = name.lower()
    return next((kind for kind, words in _KINDS if any(w in lower for w in words)), "other")
