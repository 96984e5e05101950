"""Read what an agent wrote in the Agent Client Protocol, turn by turn, live or from a recording."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from assay.adapters.acp_failure import KNOWN_STOPS, error_failure, stop_failure
from assay.adapters.acp_handshake import Handshake, Wish
from assay.adapters.acp_messages import FIRST_PROMPT, block_text
from assay.adapters.acp_steps import AcpSteps
from assay.adapters.events import is_readable, parse_line
from assay.records.capture import AgentInfo, Events, Usage
from assay.records.failure import Failure
from assay.records.recording import RawLine, Recording
from assay.records.trajectory import AnyStep
from assay.seams import Reading

_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedReadTokens": "cache_read_tokens",
    "cachedWriteTokens": "cache_write_tokens",
    "thoughtTokens": "reasoning_tokens",
}


class AcpReader:
    """Takes the lines of one turn. The answer to the prompt ends it; late lines still count."""

    def __init__(self, wish: Wish, turn: int | None = None) -> None:
        self.handshake = Handshake(wish)
        self._steps = AcpSteps(turn)
        self.session_id: str | None = None
        self.ended = False
        self.events = Events()
        self.usage: dict[str, Any] = {}
        """Of the whole session so far, as far as the agent said."""
        self.failure: Failure | None = None
        self._result: str | None = None

    @property
    def steps(self) -> list[AnyStep]:
        """The steps so far."""
        return self._steps.steps()

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; text is given in the pieces it came in."""
        if not is_readable(line, self.events):
            return ()
        message = parse_line(line.text)
        if message is None:
            self.events.unparsed += 1
            return ()
        steps = self._read(message, line.t_ms) if isinstance(message, dict) else None
        if steps is None:
            kind = _kind(message)
            self.events.unknown[kind] = self.events.unknown.get(kind, 0) + 1
            return ()
        self.events.mapped += 1
        return steps

    def output(self) -> str:
        """The answer in so many words, or else what the agent said."""
        return self._result or self._steps.said()

    def _read(self, message: dict[str, Any], t_ms: int) -> list[AnyStep] | None:
        """Give the steps of a message; None when it is of no known kind."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        method = message.get("method")
        if method == "session/update":
            return self._update(params.get("update"), t_ms)
        if method == "session/request_permission":
            call = params.get("toolCall")
            step = self._steps.tool(call, t_ms) if isinstance(call, dict) else None
            return [] if step is None else [step]
        if method is not None:
            return None
        return [] if self._answered(message) else None

    def _update(self, update: Any, t_ms: int) -> list[AnyStep] | None:
        if not isinstance(update, dict):
            return None
        if update.get("sessionUpdate") == "usage_update":
            cost = update.get("cost")
            if isinstance(cost, dict) and cost.get("currency") == "USD":
                self._count({"cost_usd": cost.get("amount")})
        return self._steps.take(update, t_ms)

    def _answered(self, message: dict[str, Any]) -> bool:
        """Take the answer to one of our requests; says whether it is one."""
        number = message.get("id")
        if not isinstance(number, int) or not ("result" in message or "error" in message):
            return False
        if number < FIRST_PROMPT:
            self.handshake.take(number, message)
            self.session_id, self.failure = self.handshake.session_id, self.handshake.failure
            self.ended = self.ended or self.failure is not None
            return True
        self.ended = True
        if "error" in message:
            self.failure = error_failure("session/prompt", message["error"])
            return True
        result = message.get("result")
        return self._stopped(result if isinstance(result, dict) else {})

    def _stopped(self, result: dict[str, Any]) -> bool:
        stop = result.get("stopReason")
        self.failure = stop_failure(stop)
        usage = result.get("usage")
        if isinstance(usage, dict):
            self._count({name: usage.get(theirs) for theirs, name in _USAGE.items()})
        meta = result.get("_meta")
        ours = meta.get("assay") if isinstance(meta, dict) else None
        if isinstance(
            ours, dict
        ):  # our own headless command says more than the protocol has room for
            self._count({"cost_usd": ours.get("costUsd")})
            self._result = ours["output"] if isinstance(ours.get("output"), str) else None
        content = result.get("content")
        if isinstance(content, list):  # the reference harness answers with the text itself
            self._result = "\n".join(map(block_text, content))
        return stop in KNOWN_STOPS or (stop is None and isinstance(content, list))

    def _count(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.usage[name] = value


def read_turns(wish: Wish, recording: Recording, name: str | None) -> Reading:
    """Read all turns of a recording and put them together."""
    several = len(recording.turns) > 1
    readers = []
    for number, turn in enumerate(recording.turns, 1):
        reader = AcpReader(wish, number if several else None)
        for line in turn.lines():
            reader.feed(line)
        readers.append(reader)
    events = Events(terminal=bool(readers) and readers[-1].ended)
    usage: dict[str, Any] = {}
    for reader in readers:
        _add(events, reader.events)
        usage |= reader.usage
    if "cost_usd" in usage:
        usage["cost_source"] = "reported"
    met = readers[0].handshake if readers else Handshake(wish)
    return Reading(
        steps=[step for reader in readers for step in reader.steps],
        outputs=[reader.output() for reader in readers],
        events=events,
        usage=Usage(**usage) if usage else None,
        session_id=met.session_id,
        agent=AgentInfo(
            adapter=name or met.agent_name or "acp",
            version=met.agent_version or UNSET,
            model=met.model or UNSET,
        ),
        failure=readers[-1].failure if readers else None,
    )


def _add(total: Events, more: Events) -> None:
    for name in ("total", "mapped", "unparsed", "oversized"):
        setattr(total, name, getattr(total, name) + getattr(more, name))
    for kind, n in more.unknown.items():
        total.unknown[kind] = total.unknown.get(kind, 0) + n


def _kind(message: Any) -> str:
    """Name a message that is of no known kind."""
    if not isinstance(message, dict):
        return "(no object)"
    params = message.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    if message.get("method") == "session/update" and isinstance(update, dict):
        return f"session/update {update.get('sessionUpdate')}"
    result = message.get("result")
    if isinstance(result, dict) and "stopReason" in result:
        return f"stopReason {result['stopReason']}"
    return str(message.get("method") or "(no method)")
