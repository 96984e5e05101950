"""Answer one request as the model: read it, choose, log, send."""

import json
from dataclasses import dataclass
from typing import Any

from assay.testing.model.conversation import Conversation, JsonObject, strings_in
from assay.testing.model.player import Choice, Player, Question
from assay.testing.model.reply import Reply, make_reply
from assay.testing.model.request_log import Request, RequestLog, hide_secrets
from assay.testing.model.routes import Route
from assay.testing.model.script import Fault
from assay.testing.model.sending import Sender, sse_frame
from assay.testing.model.stage import WIRES
from assay.testing.model.wire import Asked, Wire

_SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id")
_UNEXPECTED = 418


@dataclass(frozen=True)
class Incoming:
    """A request that wants the model's answer."""

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
    """Give the request what the script says."""
    provider = incoming.route.provider
    assert provider is not None  # a route of kind "answer" always has one
    wire = WIRES[provider]
    body = _parsed(incoming.text)
    if body is None:
        problem = "the request's body is not a JSON object"
        log.add(_entry(incoming, status=400, served="unknown", problems=(problem,)))
        return sender.send_json(400, wire.error_body(Fault(status=400, message=problem)))
    conversation = wire.read(Asked(body, incoming.route.model, incoming.route.stream))
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
        if fault is not None and (fault.after_events is None or not streams):
            return self._fail(fault)
        if streams:
            broken = fault if fault and fault.status is None else None
            return self.sender.send_events(self._frames(fault), step.chunk_delay_s, broken)
        reply = self._reply()
        whole = self.wire.events(reply) if self.conversation.stream else self.wire.whole(reply)
        return self.sender.send_json(200, whole)

    def _fail(self, fault: Fault) -> None:
        if fault.status is not None:
            body = self.wire.error_body(fault) if fault.body is None else fault.body
            return self.sender.send_json(fault.status, body, fault.headers)
        if fault.after_events is not None:
            return self.sender.send_half(self.wire.whole(self._reply()), fault)
        return self.sender.break_off(fault)

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
