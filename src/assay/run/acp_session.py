"""One session of a client with an agent: prompts in, updates out, one prompt at a time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET

from assay.errors import SpawnError
from assay.records.capture import Capture, Usage
from assay.records.failure import Cause, Failure
from assay.records.prompt import Prompt
from assay.records.recording import Recording
from assay.records.trajectory import AnyStep
from assay.records.trial import Limits, PluginRef, Surroundings, TrialSpec
from assay.run.acp_updates import TurnUpdates, text_update
from assay.run.acp_wire import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_REQUEST, RpcError
from assay.run.conversation import Conversation, Places
from assay.run.family import Mark
from assay.seams import Adapter

type _Update = dict[str, Any]
type Judge = Callable[[Prompt, Recording], Capture]
"""Reads a recording as the capture command would."""
_STOPS = {Cause.AGENT_REFUSED: "refusal", Cause.AGENT_LIMIT: "max_turn_requests"}


@dataclass(frozen=True)
class Stage:
    """What all sessions of a server share."""

    agent: PluginRef
    adapter: Adapter
    limits: Limits
    judge: Judge
    raw: Path
    """Folder for the raw streams, one below it for each session."""


class Session:
    """Holds one conversation and remembers what was told, to tell it again."""

    def __init__(
        self, session_id: str, name: str, cwd: str, stage: Stage, send: Callable[[_Update], None]
    ) -> None:
        self.id = session_id
        self._stage = stage
        self._send = send
        self._busy = threading.Lock()
        self._told: list[_Update] = []
        self._updates = TurnUpdates(1)
        self._start_ms = round(time.time() * 1000)
        spec = _spec(session_id, name, cwd, stage)
        raw = stage.raw / spec.folder
        raw.mkdir(parents=True)
        mark = Mark(f"{spec.run_token}.{spec.folder}")
        places = Places(str(raw), cwd, None, str(raw / "scratch"))
        self._conversation = Conversation(spec, stage.adapter, places, {}, mark, self._on_step)

    @property
    def agent_session_id(self) -> str | None:
        """The agent's own name of the session."""
        return self._conversation.session_id

    def go_on(self, agent_session_id: str, told: list[_Update]) -> None:
        """Continue a session that the agent has kept, and what was told of it."""
        self._conversation.session_id = agent_session_id
        self._told = list(told)

    def begin(self) -> None:
        """Claim the session for a prompt; call hold next, then end."""
        if not self._busy.acquire(blocking=False):
            raise RpcError(INVALID_REQUEST, "Invalid request: the session has a prompt under way")
        self._conversation.cancelled.clear()

    def end(self) -> None:
        """Free the session for the next prompt."""
        self._busy.release()

    def cancel(self) -> None:
        """Give up the prompt under way; its processes are ended."""
        self._conversation.cancelled.set()

    def close(self) -> None:
        """End what is alive; no prompt is under way any more."""
        self._conversation.close()

    def replay(self) -> list[_Update]:
        """Give all that was said so far, on both sides."""
        return list(self._told)

    def hold(self, text: str) -> dict[str, Any]:
        """Put a prompt to the agent; give the answer to session/prompt."""
        conversation = self._conversation
        if conversation.over:
            message = "the agent's process has ended, and this session with it: open a new one"
            raise _failed(Failure(cause=Cause.AGENT_CRASH, message=message))
        self._updates = TurnUpdates(len(conversation.turns) + 1)
        self._told.append(text_update("user_message_chunk", text))
        try:
            conversation.put(text)
        except SpawnError as error:
            raise _failed(Failure(cause=Cause.SPAWN, message=error.message)) from error
        if conversation.cancelled.is_set():
            return {"stopReason": "cancelled"}
        return self._conclude(self._read())

    def _conclude(self, captured: Capture) -> dict[str, Any]:
        failure = captured.failure or None
        if failure is not None and failure.cause not in _STOPS:
            raise _failed(failure)
        output = self._conversation.answer
        unsaid = self._updates.answer(output)
        if unsaid is not None:
            self._tell(unsaid)
        meta: dict[str, Any] = {"output": output}
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

    def _read(self) -> Capture:
        conversation = self._conversation
        line_bytes = self._stage.limits.line_bytes
        recording = Recording(
            start_ms=self._start_ms,
            end_ms=round(time.time() * 1000),
            turns=tuple(spoken.turn(line_bytes) for spoken in conversation.turns),
            stderr=conversation.stderr.decode("utf-8", "replace").strip(),
        )
        texts = [spoken.text for spoken in conversation.turns]
        return self._stage.judge(Prompt(id=self.id, input=texts), recording)

    def _on_step(self, step: AnyStep) -> None:
        self._tell(self._updates.update(step))

    def _tell(self, update: _Update) -> None:
        self._told.append(update)
        self._send(update)


def _spec(session_id: str, name: str, cwd: str, stage: Stage) -> TrialSpec:
    return TrialSpec(
        prompt=Prompt(id=session_id, input=""),
        agent=stage.agent,
        benchmark=PluginRef(name="prompts"),
        limits=stage.limits,
        surroundings=Surroundings(cwd=cwd),
        folder=name,
        run_token=stage.raw.name,
    )


def _failed(failure: Failure) -> RpcError:
    code = AUTH_REQUIRED if failure.cause is Cause.AUTH else INTERNAL_ERROR
    return RpcError(code, failure.message, {"cause": failure.cause.value})


def _tokens(usage: Usage) -> dict[str, int] | None:
    """Give the tokens as the protocol has them; it wants both sides or nothing."""
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
