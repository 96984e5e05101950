"""Answer one request as the model: choose the thread, the step and the fault before it."""

import hashlib
import json
import re
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event as Flag
from typing import IO, Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from assay.testing.model.anthropic import WIRE as ANTHROPIC
from assay.testing.model.chat import WIRE as CHAT
from assay.testing.model.exchange import (
    Conversation,
    Event,
    JsonObject,
    ModelRequest,
    Reply,
    Wire,
    make_reply,
    minimal_value,
    strings_in,
)
from assay.testing.model.gemini import WIRE as GEMINI
from assay.testing.model.responses import WIRE as RESPONSES
from assay.testing.model.script import Fault, Play, Provider, Script, Side, Step, Thread, When

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_SECRET_QUERY = re.compile(r"([?&](?:key|access_token|api[-_]key)=)[^&]*", re.IGNORECASE)
_HIDDEN = "<hidden>"


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request as the server saw it, and how it was answered."""

    method: str
    path: str
    served: str
    """step, fault, side, exhausted, unexpected; count_tokens, models, probe, websocket, unknown."""
    status: int = 0
    """The status of the answer; 0 when there is none (hang, drop)."""
    number: int = 0
    at_s: float = 0
    lane: str = ""
    provider: str = ""
    model: str = ""
    stream: bool = False
    thread: str = ""
    step: int | None = None
    attempt: int = 0
    turns: int = 0
    problems: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    last_user: str = ""
    last_tool_result: str = ""
    headers: dict[str, str] = {}
    body: Any = None


class RequestLog:
    """All requests in the order in which they arrived."""

    def __init__(
        self, path: Path | None, clock: Callable[[], float], *, with_bodies: bool = False
    ) -> None:
        self._clock = clock
        self._start_s = clock()
        self._with_bodies = with_bodies
        self._requests: list[Request] = []
        self._changed = threading.Condition()
        self._file: IO[bytes] | None = path.open("ab") if path else None

    def add(self, request: Request) -> None:
        with self._changed:
            at_s = round(self._clock() - self._start_s, 4)
            number = len(self._requests) + 1
            request = msgspec.structs.replace(request, number=number, at_s=at_s)
            self._requests.append(request)
            if self._file is not None:
                kept = request if self._with_bodies else msgspec.structs.replace(request, body=None)
                self._file.write(msgspec.json.encode(kept) + b"\n")
                self._file.flush()
            self._changed.notify_all()

    def all(self) -> list[Request]:
        with self._changed:
            return list(self._requests)

    def wait_for(self, n_requests: int, timeout_s: float) -> bool:
        """Wait until there are this many requests; False when time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._requests) >= n_requests, timeout_s)

    def close(self) -> None:
        """Close the file; the requests in memory stay."""
        with self._changed:
            if self._file is not None:
                self._file.close()
            self._file = None


def hide_secrets(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers by lower-case name, without the values that may be keys."""
    return {
        name.lower(): _HIDDEN if _SECRET_HEADER.search(name) else value for name, value in headers
    }


def hide_query(url: str) -> str:
    """Return the URL without the key that some clients put into its query."""
    return _SECRET_QUERY.sub(rf"\1{_HIDDEN}", url)


Served = Literal["step", "fault", "side", "exhausted", "unexpected"]

NO_TOOLS = "the request offered no tools, but the script calls some"
_EXHAUSTED = Step(text="The script has no further step.")


@dataclass(frozen=True)
class Question:
    """A request: the conversation, and what else the choice of an answer needs."""

    conversation: Conversation
    haystack: str
    """All texts of the request, decoded, and its raw body."""
    session: str = ""
    """The agent's own session id, where it sends one."""


@dataclass(frozen=True)
class Choice:
    """The answer to a request, and why it was chosen."""

    served: Served
    step: Step
    thread: str
    number: int = 0
    attempt: int = 0
    label: str = "side"
    fault: Fault | None = None
    problems: tuple[str, ...] = ()


class Player:
    """Plays one script at one base URL; requests may come from several threads at once."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self._lock = threading.Lock()
        self._answered: Counter[str] = Counter()
        self._attempts: Counter[tuple[str, int, int]] = Counter()
        self._known: dict[str, list[str]] = {}
        self._has_offered = False

    def choose(self, question: Question) -> Choice:
        """Choose the answer and count it."""
        self._has_offered |= bool(question.conversation.tools)
        side = _side_answer(self.play, question)
        if side is not None:
            if self._lacks_tools(question):
                return Choice("unexpected", side, "side", problems=(NO_TOOLS,))
            return Choice("side", side, "side")
        thread, steps = _thread_of(self.play, question)
        with self._lock:
            return self._step(question, thread, steps)

    def _lacks_tools(self, question: Question) -> bool:
        """Whether this is the agent's real question, in a way that we find no tools in it.

        Others ask for a title and the like first; Codex, which alone has this format, does not.
        """
        if self._has_offered or question.conversation.provider != "responses":
            return False
        is_plain = question.conversation.answer_schema is None and self.play.aux is None
        return is_plain and any(step.calls for step in self.play.steps)

    def _step(self, question: Question, thread: str, steps: list[Step]) -> Choice:
        # By history, retries and resumed sessions get the right step: it follows from the number of
        # answers in the request, not from how many requests there were.
        counted = self.play.select == "counter"
        number = self._answered[thread] if counted else question.conversation.turns
        ordinal = 1 if counted else self._ordinal(thread, question)
        label = f"{thread}{ordinal if ordinal > 1 else ''}_{number:02d}"
        if number >= len(steps):
            rest = self.play.exhausted or _EXHAUSTED
            return Choice("exhausted", rest, thread, number, label=label)
        step = steps[number]
        missing = [
            f"the request lacks {text!r}" for text in step.expect if text not in question.haystack
        ]
        present = [
            f"the request holds {text!r}" for text in step.refuse if text in question.haystack
        ]
        problems = (*missing, *present)
        if problems:
            return Choice("unexpected", step, thread, number, label=label, problems=problems)
        attempt = self._attempts[thread, ordinal, number]
        self._attempts[thread, ordinal, number] += 1
        fault = _fault_at(step, attempt)
        if fault is None:  # an agent retries after a fault: the step is still to come
            self._answered[thread] += 1
        served: Served = "fault" if fault else "step"
        return Choice(served, step, thread, number, attempt, label, fault)

    def _ordinal(self, thread: str, question: Question) -> int:
        """Number the conversations of a thread, so that each has its own attempts and ids."""
        identity = f"{question.session}\n{question.conversation.first_user}"
        key = hashlib.sha256(identity.encode(errors="replace")).hexdigest()
        known = self._known.setdefault(thread, [])
        if key not in known:
            known.append(key)
        return known.index(key) + 1


def _side_answer(play: Play, question: Question) -> Step | None:
    named = _first_match(play.side, question)
    if named is not None:
        return play.side[named].answer
    if question.conversation.tools or play.toolless == "step":
        return None
    return play.aux or _default_aux(question.conversation)


def _default_aux(conversation: Conversation) -> Step:
    if conversation.answer_schema is not None:
        answer = minimal_value(conversation.answer_schema)
        return Step(text=msgspec.json.encode(answer).decode())
    return Step(text="side answer: the request offered no tools")


def _thread_of(play: Play, question: Question) -> tuple[str, list[Step]]:
    index = _first_match(play.threads, question)
    if index is None:
        return "main", play.steps
    return play.threads[index].name or f"thread{index}", play.threads[index].steps


def _first_match(rules: Sequence[Side | Thread], question: Question) -> int | None:
    conditions = [rule.when for rule in rules]
    return next((at for at, when in enumerate(conditions) if _holds(when, question)), None)


def _holds(when: When, question: Question) -> bool:
    conversation = question.conversation
    wanted = (
        (when.first_user_contains, conversation.first_user),
        (when.last_user_contains, conversation.last_user),
        (when.system_contains, conversation.system),
        (when.model_contains, conversation.model),
        (when.body_contains, question.haystack),
    )
    if when.provider not in (None, conversation.provider):
        return False
    return all(needle is None or needle in text for needle, text in wanted)


def _fault_at(step: Step, attempt: int) -> Fault | None:
    for fault in step.faults:
        if fault.times == "always" or attempt < fault.times:
            return fault
        attempt -= fault.times
    return None


Kind = Literal["answer", "count_tokens", "models", "websocket", "probe", "unknown"]

_LANE = re.compile(r"^/s/([^/]+)(/.*)?$")
_ANSWERS: tuple[tuple[re.Pattern[str], Provider], ...] = (
    (re.compile(r"(^|/)messages$"), "anthropic"),
    (re.compile(r"(^|/)responses$"), "responses"),
    (re.compile(r"(^|/)chat/completions$"), "chat"),
    (re.compile(r"/models/[^/:]+:(generateContent|streamGenerateContent)$"), "gemini"),
)
_COUNTS = re.compile(r"/messages/count_tokens$|/responses/input_tokens$|:countTokens$")
_GEMINI = re.compile(r"/models/([^/:]+):(\w+)$")
_MODELS = re.compile(r"(^|/)models(/[^/:]+)?$")


@dataclass(frozen=True)
class Route:
    """What a request asks for, according to its method and URL."""

    kind: Kind
    lane: str = ""
    """The `NAME` or `NAME@RUN` of a `/s/…` prefix; empty for none."""
    provider: Provider | None = None
    model: str | None = None
    stream: bool | None = None
    as_sse: bool = True


def find_route(method: str, url: str, *, upgrade: bool = False) -> Route:
    parts = urlsplit(url)
    found = _LANE.match(parts.path)
    lane, path = (unquote(found[1]), found[2] or "/") if found else ("", parts.path)
    if upgrade:  # Codex tries a WebSocket first, and falls back to HTTP when refused
        return Route("websocket", lane)
    if method in ("GET", "HEAD"):
        probe = method == "HEAD" or not path.strip("/") or path.endswith("/hello")
        kind: Kind = "probe" if probe else "models" if _MODELS.search(path) else "unknown"
        return Route(kind, lane)
    if _COUNTS.search(path):
        return Route("count_tokens", lane)
    for pattern, provider in _ANSWERS:
        if method == "POST" and pattern.search(path):
            gemini = _GEMINI.search(path)
            if gemini is None:
                return Route("answer", lane, provider)
            streams = gemini[2] == "streamGenerateContent"
            as_sse = parse_qs(parts.query).get("alt") == ["sse"]
            return Route("answer", lane, provider, unquote(gemini[1]), streams, as_sse)
    return Route("unknown", lane)


_POLL_S = 0.1


class Sender:
    """Writes to one connection; when the server closes, every wait ends."""

    def __init__(self, handler: BaseHTTPRequestHandler, closing: Flag) -> None:
        self._handler = handler
        self._closing = closing

    def send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        """Send a complete JSON response."""
        data = self._start_json(status, value, headers or {})
        if self._handler.command != "HEAD":
            self._handler.wfile.write(data)

    def send_half(self, value: Any, fault: Fault) -> None:
        """Send the first half of a JSON response, then break off."""
        data = self._start_json(200, value, {})
        self._handler.wfile.write(data[: len(data) // 2])
        self.break_off(fault)

    def send_events(
        self, frames: Iterable[bytes], pause_s: float = 0, broken: Fault | None = None
    ) -> None:
        """Stream events, each in its own HTTP chunk; a broken stream gets no last chunk."""
        self._start(200, {"content-type": "text/event-stream; charset=utf-8"}, chunked=True)
        for frame in frames:
            self.wait(pause_s)
            self._chunk(frame)
        if broken is not None:
            return self.break_off(broken)
        return self._chunk(b"")

    def break_off(self, fault: Fault) -> None:
        """Hang if the fault demands it, then close the connection."""
        if fault.hang:
            self._hang(fault.for_s)
        self._handler.close_connection = True
        cut_off(self._handler.connection)

    def wait(self, seconds: float) -> None:
        """Wait, but only until the server closes."""
        if seconds:
            self._closing.wait(seconds)

    def _start_json(self, status: int, value: Any, headers: dict[str, str]) -> bytes:
        data = json.dumps(value).encode()
        kind = {"content-type": "application/json", "content-length": str(len(data))}
        self._start(status, {**kind, **headers})
        return data

    def _start(self, status: int, headers: dict[str, str], *, chunked: bool = False) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        if chunked:
            self._handler.send_header("cache-control", "no-cache")
            self._handler.send_header("transfer-encoding", "chunked")
        self._handler.end_headers()

    def _chunk(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _hang(self, for_s: float | None) -> None:
        # Polling: both the server's closing and the client's disconnect end the wait.
        end_s = None if for_s is None else time.monotonic() + for_s
        while not self._closing.is_set() and not self._client_left():
            if end_s is not None and time.monotonic() >= end_s:
                return
            self._closing.wait(_POLL_S)

    def _client_left(self) -> bool:
        try:
            # A closed connection is readable and has no data; MSG_PEEK leaves a pipelined request.
            readable, _, _ = select.select([self._handler.connection], [], [], 0)
            return bool(readable) and not self._handler.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True


def sse_frame(event: Event, *, named: bool) -> bytes:
    """Encode one server-sent event."""
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    head = f"event: {event['type']}\n" if named and "type" in event else ""
    return f"{head}data: {json.dumps(event)}\n\n".encode()


def cut_off(connection: socket.socket) -> None:
    """Shut down a connection, which may be closed already."""
    try:
        # Unlike close(), shutdown() wakes a thread that is blocked in a read.
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


_SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id")
_UNEXPECTED = 418


@dataclass(frozen=True)
class Incoming:
    """A request for an answer of the model."""

    method: str
    path: str
    headers: dict[str, str]
    route: Route
    text: str

    @property
    def session(self) -> str:
        """The agent's session id, where it sends one."""
        by_name = {name.lower(): value for name, value in self.headers.items()}
        return next((by_name[name] for name in _SESSION_HEADERS if name in by_name), "")


def answer(incoming: Incoming, player: Player, log: RequestLog, sender: Sender) -> None:
    """Answer the request as the script says."""
    provider = incoming.route.provider
    assert provider is not None  # a route of kind "answer" always has one
    wire = WIRES[provider]
    body = _parsed(incoming.text)
    if body is None:
        problem = "the request's body is not a JSON object"
        log.add(_entry(incoming, status=400, served="unknown", problems=(problem,)))
        return sender.send_json(400, wire.error_body(Fault(status=400, message=problem)))
    conversation = wire.read(ModelRequest(body, incoming.route.model, incoming.route.stream))
    # Decoded strings as well as the raw text: JSON escapes quotes and line ends.
    haystack = "\n".join([*strings_in(body), incoming.text])
    choice = player.choose(Question(conversation, haystack, incoming.session))
    log.add(_entry(incoming, **_facts(conversation, choice), body=body))
    return _Answer(wire, conversation, choice, sender).send(as_sse=incoming.route.as_sse)


@dataclass(frozen=True)
class _Answer:
    wire: Wire
    conversation: Conversation
    choice: Choice
    sender: Sender

    def send(self, *, as_sse: bool) -> None:
        fault, step = self.choice.fault, self.choice.step
        if self.choice.problems:
            message = "scripted model: " + "; ".join(self.choice.problems)
            refusal = Fault(status=_UNEXPECTED, message=message)
            return self.sender.send_json(_UNEXPECTED, self.wire.error_body(refusal))
        self.sender.wait(step.delay_s)
        streams = self.conversation.stream and as_sse
        # A response that is not streamed has no events to break after: it fails as a whole.
        if fault is not None and (fault.after_events is None or not streams):
            if fault.status is not None:
                body = self.wire.error_body(fault) if fault.body is None else fault.body
                return self.sender.send_json(fault.status, body, fault.headers)
            if fault.after_events is not None:
                return self.sender.send_half(self.wire.whole(self._reply()), fault)
            return self.sender.break_off(fault)
        if streams:
            broken = fault if fault and fault.status is None else None
            return self.sender.send_events(self._frames(fault), step.chunk_delay_s, broken)
        reply = self._reply()
        # Only Gemini streams without SSE: its events come as one JSON array.
        whole = self.wire.events(reply) if self.conversation.stream else self.wire.whole(reply)
        return self.sender.send_json(200, whole)

    def _reply(self) -> Reply:
        return make_reply(self.choice.step, self.conversation, self.choice.label)

    def _frames(self, fault: Fault | None) -> list[bytes]:
        frames = self._all_frames()
        if fault is None:
            return frames
        frames = frames[: fault.after_events]
        if fault.status is not None:
            error = self.wire.error_event(fault)
            frames.append(sse_frame(error, named=self.wire.named_events))
        return frames

    def _all_frames(self) -> list[bytes]:
        named = self.wire.named_events
        raw = self.choice.step.raw_sse
        if raw is None:
            return [sse_frame(event, named=named) for event in self.wire.events(self._reply())]
        return [
            passage.encode() if isinstance(passage, str) else sse_frame(passage, named=named)
            for passage in raw
        ]


def _parsed(text: str) -> JsonObject | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _facts(conversation: Conversation, choice: Choice) -> dict[str, Any]:
    return {
        "served": choice.served,
        "status": _status(conversation, choice),
        "model": conversation.model,
        "stream": conversation.stream,
        "thread": choice.thread,
        "step": None if choice.served == "side" else choice.number,
        "attempt": choice.attempt,
        "turns": conversation.turns,
        "problems": choice.problems,
        "tools": tuple(tool.name for tool in conversation.tools),
        "last_user": conversation.last_prompt,
        "last_tool_result": conversation.last_tool_result,
    }


def _status(conversation: Conversation, choice: Choice) -> int:
    fault = choice.fault
    if choice.problems:
        return _UNEXPECTED
    if fault is None or (conversation.stream and fault.after_events is not None):
        return 200
    return fault.status or 0


def _entry(incoming: Incoming, **facts: Any) -> Request:
    return Request(
        method=incoming.method,
        path=incoming.path,
        lane=incoming.route.lane,
        provider=incoming.route.provider or "",
        headers=hide_secrets(incoming.headers.items()),
        **facts,
    )


WIRES: dict[Provider, Wire] = {wire.provider: wire for wire in (ANTHROPIC, RESPONSES, CHAT, GEMINI)}


class ServerContext:
    """What all requests to one server share."""

    def __init__(self, script: Script, log: RequestLog) -> None:
        self.log = log
        self.closing = threading.Event()
        self._script = script
        self._players: dict[str, Player] = {}
        self._lock = threading.Lock()

    def player(self, lane: str) -> Player | None:
        """Return the player of a URL prefix, None if it names no script; each has own counters."""
        play = self._play(lane)
        if play is None:
            return None
        with self._lock:
            return self._players.setdefault(lane, Player(play))

    @property
    def names(self) -> list[str]:
        """The valid names in `/s/NAME`; if there are none, any name is valid."""
        return sorted(self._script.scripts)

    def _play(self, lane: str) -> Play | None:
        if not lane or not self._script.scripts:
            return self._script
        return self._script.scripts.get(lane.split("@", 1)[0])
