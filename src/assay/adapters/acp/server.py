"""Serve any agent over the Agent Client Protocol: the side that a client talks to."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from assay.adapters.acp.wire import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Call,
    CallId,
    Outbox,
    RpcError,
    TurnUpdates,
    error_line,
    read_call,
    result_line,
    text_update,
    update_line,
)
from assay.errors import SpawnError
from assay.plugin import Adapter, Ask
from assay.records.capture import AnyStep, Cause, Failure, Usage
from assay.records.recording import FORGETS, Recording, Turn
from assay.records.spec import Prompt
from assay.records.trial import Trial

type _Update = dict[str, Any]
type Judge = Callable[[Prompt, Recording], Trial]
"""Reads a recording as the capture command would."""
_STOPS = {Cause.AGENT_REFUSED: "refusal", Cause.AGENT_LIMIT: "max_turn_requests"}


class Conversation(Protocol):
    """Sends turns to an agent; provided by the caller that starts the server."""

    session_id: str | None
    """The agent's own; set it to continue an earlier session."""
    answer: str
    """Of the last turn."""
    turns: list[Turn]
    stderr: bytes
    warnings: tuple[str, ...]
    """What a reader of the turns should know."""
    cancelled: threading.Event
    """Set it to cancel the running turn."""

    @property
    def over(self) -> bool:
        """Whether no more turns can be sent."""
        ...

    def put(self, text: str) -> bool:
        """Send one turn. Raises SpawnError."""
        ...

    def close(self) -> None:
        """End all processes that are still alive."""
        ...


type OpenConversation = Callable[[str, str, Callable[[AnyStep], None]], Conversation]
"""Called with a name for its folder, the working folder, and a callback for each step."""


@dataclass(frozen=True)
class ServerContext:
    """What all sessions of a server share."""

    adapter: Adapter
    open_conversation: OpenConversation
    judge: Judge


class Session:
    """One conversation, with its updates so far for a replay."""

    def __init__(
        self,
        session_id: str,
        name: str,
        cwd: str,
        context: ServerContext,
        send: Callable[[_Update], None],
    ) -> None:
        self.id = session_id
        self._context = context
        self._send = send
        self._busy = threading.Lock()
        self._history: list[_Update] = []
        self._updates = TurnUpdates(1)
        self._start_ms = round(time.time() * 1000)
        self._conversation = context.open_conversation(name, cwd, self._on_step)

    @property
    def agent_session_id(self) -> str | None:
        """The agent's own id of the session."""
        return self._conversation.session_id

    def resume(self, agent_session_id: str, history: list[_Update]) -> None:
        """Continue a session that the agent has kept, with the updates sent so far."""
        self._conversation.session_id = agent_session_id
        self._history = list(history)

    def begin(self) -> None:
        """Claim the session for a prompt; call run_prompt next, then end."""
        if not self._busy.acquire(blocking=False):
            raise RpcError(
                INVALID_REQUEST, "Invalid request: a prompt is already running in this session"
            )
        # A cancel that came after the end of the last prompt does not count for this one.
        self._conversation.cancelled.clear()

    def end(self) -> None:
        """Free the session for the next prompt."""
        self._busy.release()

    def cancel(self) -> None:
        """Cancel the running prompt and end its processes."""
        self._conversation.cancelled.set()

    def close(self) -> None:
        """End the agent; no prompt may be running."""
        self._conversation.close()

    def replay(self) -> list[_Update]:
        """Return the updates so far, including the user's prompts."""
        return list(self._history)

    def run_prompt(self, text: str) -> dict[str, Any]:
        """Send a prompt to the agent; return the result of session/prompt."""
        conversation = self._conversation
        if conversation.over:
            message = "the agent's process has ended, and this session with it: open a new one"
            raise _failed(Failure(cause=Cause.AGENT_CRASH, message=message))
        self._updates = TurnUpdates(len(conversation.turns) + 1)
        self._history.append(text_update("user_message_chunk", text))
        try:
            conversation.put(text)
        except SpawnError as error:
            raise _failed(Failure(cause=Cause.SPAWN, message=error.message)) from error
        if conversation.cancelled.is_set():
            return {"stopReason": "cancelled"}
        return self._conclude(self._read())

    def _conclude(self, captured: Trial) -> dict[str, Any]:
        failure = captured.failure or None
        if failure is not None and failure.cause not in _STOPS:
            raise _failed(failure)
        output = self._conversation.answer
        missing = self._updates.answer(output)
        if missing is not None:
            self._send_update(missing)
        meta: dict[str, Any] = {"output": output}
        if FORGETS in self._conversation.warnings:
            meta["forgetsTurns"] = True
        if captured.session_id is not UNSET:
            meta["agentSessionId"] = captured.session_id
        usage = captured.usage or None
        if usage is not None and usage.cost_usd is not UNSET:
            meta["costUsd"] = usage.cost_usd
        stop = "end_turn" if failure is None else _STOPS[failure.cause]
        tokens = _tokens(usage) if usage is not None else None
        return {
            "stopReason": stop,
            **({"usage": tokens} if tokens else {}),
            "_meta": {"assay": meta},
        }

    def _read(self) -> Trial:
        conversation = self._conversation
        recording = Recording(
            start_ms=self._start_ms,
            end_ms=round(time.time() * 1000),
            turns=tuple(conversation.turns),
            stderr=conversation.stderr.decode("utf-8", "replace").strip(),
        )
        texts = [turn.text for turn in conversation.turns]
        return self._context.judge(Prompt(id=self.id, input=texts), recording)

    def _on_step(self, step: AnyStep) -> None:
        self._send_update(self._updates.update(step))

    def _send_update(self, update: _Update) -> None:
        self._history.append(update)
        self._send(update)


def _failed(failure: Failure) -> RpcError:
    code = AUTH_REQUIRED if failure.cause is Cause.AUTH else INTERNAL_ERROR
    return RpcError(code, failure.message, {"cause": failure.cause.value})


def _tokens(usage: Usage) -> dict[str, int] | None:
    """Return the tokens in the protocol's format, which requires both input and output."""
    if usage.input_tokens is UNSET or usage.output_tokens is UNSET:
        return None
    known = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cachedReadTokens": usage.cache_read_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
        "thoughtTokens": usage.reasoning_tokens,
    }
    counts = {name: n for name, n in known.items() if n is not UNSET}
    return {**counts, "totalTokens": sum(counts.values())}


_VERSION = 1
_OURS = "sess_"


class _Initialize(msgspec.Struct, rename="camel"):
    protocol_version: int | str


class _NewSession(msgspec.Struct, rename="camel"):
    cwd: str


class _LoadSession(msgspec.Struct, rename="camel"):
    cwd: str
    session_id: str


class _Prompt(msgspec.Struct, rename="camel"):
    session_id: str
    prompt: list[dict[str, Any]]


class _Cancel(msgspec.Struct, rename="camel"):
    session_id: str


class AcpServer:
    """Takes a client's lines one by one. Prompts run in threads, so sessions run in parallel."""

    def __init__(
        self, context: ServerContext, outbox: Outbox, version: str, log: Callable[[str], None]
    ) -> None:
        self._context = context
        self._outbox = outbox
        self._version = version
        self._log = log
        self._sessions: dict[str, Session] = {}
        self._threads: list[threading.Thread] = []
        self._can_resume = _can_resume(context)
        self._methods: dict[str, Callable[[Call], Any]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/cancel": self._cancel,
        }

    def take(self, line: bytes) -> None:
        """Handle one line; a prompt continues in a thread."""
        if not line.strip():
            return
        try:
            call = read_call(line)
        except RpcError as error:
            self._outbox.send(self._explain(error.call_id, error))
            return
        if call is None:
            return
        self._log(f"<- {call.method} {call.id if call.wants_answer else ''}")
        try:
            if call.method == "session/prompt":
                self._start_prompt(call)
                return
            line = result_line(call.id, self._find(call.method)(call))
        except Exception as error:  # noqa: BLE001 - a client's line never takes the server down
            line = self._explain(call.id, error)
        if call.wants_answer:
            self._outbox.send(line)

    def close(self) -> None:
        """End all agents; running prompts are answered as cancelled."""
        # First, as a prompt's thread may be waiting for a client that no longer reads.
        self._outbox.stop_waiting()
        for session in self._sessions.values():
            session.cancel()
        for thread in self._threads:
            thread.join()
        for session in self._sessions.values():
            session.close()

    def _find(self, method: str) -> Callable[[Call], Any]:
        if method not in self._methods or (method == "session/load" and not self._can_resume):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        return self._methods[method]

    def _initialize(self, call: Call) -> dict[str, Any]:
        call.read(_Initialize)
        return {
            "protocolVersion": _VERSION,
            "agentCapabilities": {
                "loadSession": self._can_resume,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
            },
            "authMethods": [],
            "agentInfo": {
                "name": self._context.adapter.name,
                "title": self._context.adapter.name,
                "version": self._version,
            },
        }

    def _new(self, call: Call) -> dict[str, Any]:
        params = call.read(_NewSession)
        return {"sessionId": self._open(f"{_OURS}{uuid.uuid4()}", params.cwd).id}

    def _load(self, call: Call) -> dict[str, Any]:
        """Replay a session of this server, or resume one that the agent has stored."""
        params = call.read(_LoadSession)
        session = self._sessions.get(params.session_id)
        if session is None:
            known = [s for s in self._sessions.values() if s.agent_session_id == params.session_id]
            # Ids that we made up mean nothing to the agent.
            if not known and params.session_id.startswith(_OURS):
                raise _unknown(params.session_id)
            session = self._open(params.session_id, params.cwd)
            session.resume(params.session_id, known[-1].replay() if known else [])
        for update in session.replay():
            self._outbox.send(update_line(session.id, update))
        return {}

    def _cancel(self, call: Call) -> None:
        self._session(call.read(_Cancel).session_id).cancel()

    def _start_prompt(self, call: Call) -> None:
        params = call.read(_Prompt)
        session = self._session(params.session_id)
        text = prompt_text(params.prompt)
        session.begin()
        # begin() runs before the thread starts, so a cancel on the next line cannot be lost.
        thread = threading.Thread(target=self._prompt, args=(call, session, text), daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _prompt(self, call: Call, session: Session, text: str) -> None:
        """Run one prompt to its end; the client always gets a response."""
        try:
            line = result_line(call.id, session.run_prompt(text))
        except Exception as error:  # noqa: BLE001 - a prompt never takes the server down with it
            line = self._explain(call.id, error)
        session.end()  # before the response: the client may send the next prompt at once
        if call.wants_answer:
            self._outbox.send(line)

    def _open(self, session_id: str, cwd: str) -> Session:
        if not Path(cwd).is_absolute() or not Path(cwd).is_dir():
            msg = f"Invalid params: cwd must be an absolute path of a folder: {cwd}"
            raise RpcError(INVALID_PARAMS, msg)

        def send(update: dict[str, Any]) -> None:
            self._outbox.send(update_line(session_id, update))

        name = f"session-{len(self._sessions) + 1}"
        session = self._sessions[session_id] = Session(session_id, name, cwd, self._context, send)
        return session

    def _session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise _unknown(session_id)
        return self._sessions[session_id]

    def _explain(self, call_id: CallId, error: Exception) -> bytes:
        """Return the response to a request that failed."""
        if not isinstance(error, RpcError):
            message = f"{type(error).__name__}: {error}"
            error = RpcError(INTERNAL_ERROR, message, {"cause": Cause.HARNESS.value})
        self._log(f"-> error {error.code}: {error.message}")
        return error_line(call_id, error)


def prompt_text(blocks: list[dict[str, Any]]) -> str:
    """Join the blocks of a prompt with line ends; links and resources become text."""
    if not blocks:
        raise RpcError(INVALID_PARAMS, "Invalid params: the prompt is empty")
    return "\n".join(_block_text(block) for block in blocks)


def _block_text(block: dict[str, Any]) -> str:
    kind = block.get("type")
    resource = block.get("resource")
    if kind == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    if kind == "resource_link" and isinstance(block.get("uri"), str):
        return f"[{block.get('name') or block['uri']}]({block['uri']})"
    if kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return f'<context uri="{resource.get("uri", "")}">\n{resource["text"]}\n</context>'
    msg = f"Invalid params: this agent does not support prompt blocks of type {kind!r}"
    raise RpcError(INVALID_PARAMS, msg)


def _can_resume(context: ServerContext) -> bool:
    """Whether the adapter can resume: a session id changes its command."""
    command = context.adapter.command
    return command(Ask(text="", cwd="/")) != command(Ask(text="", cwd="/", session_id="known"))


def _unknown(session_id: str) -> RpcError:
    return RpcError(NOT_FOUND, f"Unknown session: {session_id}", {"sessionId": session_id})
