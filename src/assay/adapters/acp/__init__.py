"""The adapter for any agent that speaks the Agent Client Protocol on stdio."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.acp.draft import Lifecycle, Terminals, is_acknowledgement
from assay.adapters.acp.messages import (
    DRAFT_VERSION,
    FIRST_PROMPT,
    KNOWN_STOPS,
    PROTOCOL_VERSION,
    Handshake,
    Request,
    SessionRequest,
    answer,
    block_text,
    ending_failure,
    error_failure,
    stop_failure,
)
from assay.adapters.files import files_in
from assay.adapters.reading import (
    EventReader,
    StepBuilder,
    add_events,
    cost_at,
    integer_at,
    list_at,
    number_at,
    object_at,
    objects_at,
    parse_line,
    read_turns,
    text_at,
    value_at,
)
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Dialogue, Reading, Watch
from assay.records.capture import AgentInfo, AnyStep, Failure, Message, Thought, Usage
from assay.records.recording import FORGETS, RawLine, Recording


class AcpAdapter(Adapter):
    """One process and one session for all turns of a trial.

    The command is a list, or one text as in `-s "acp:COMMAND ARGS"`, split as a shell would. With
    `,version=2` behind it, the draft of version 2 is offered, and the agent chooses.
    """

    def __init__(  # noqa: PLR0913 - each is an option a user may set
        self,
        command: Sequence[str] = (),
        argument: str = "",
        name: str | None = None,
        model: str | None = None,
        args: Sequence[str] = (),
        mcp_servers: Sequence[dict[str, Any]] = (),
        auth_method: str | None = None,
        timeout_ms: float | None = None,
        version: int = PROTOCOL_VERSION,
    ) -> None:
        argument, version = versioned(argument, version)
        words = [*command, *_split(argument), *args]
        if not words:
            msg = "acp: no command was given for the agent"
            raise InputError(
                msg,
                hint='put it after --, or give it as -s "acp:COMMAND ARGS" (see docs/adapters.md)',
            )
        self._command = tuple(words)
        self._given_name = name
        servers = tuple(mcp_servers)
        self._request = SessionRequest("", servers, auth_method, model or None, version)
        self.name = name or shlex.join(words)
        self.timeout_ms = timeout_ms
        self.pass_env: tuple[str, ...] = ()
        """Variables with the agent's key, which it may read when isolated."""

    def command(self, ask: Ask) -> Command:
        """Start the agent; turns are sent through the dialogue."""
        words = [*self._command[1:]]
        for server in self._request.mcp_servers:
            words += [str(server.get("command", "")), *map(str, server.get("args", ()))]
        return Command(argv=self._command, visible=files_in(words), pass_env=self.pass_env)

    def watch(self) -> Watch:
        return AcpReader(self._request)

    def dialogue(self, cwd: str) -> Dialogue | None:
        return AcpDialogue(replace(self._request, cwd=cwd))

    def read(self, recording: Recording) -> Reading:
        return read_recording(self._request, recording, self._given_name)


def versioned(argument: str, version: int) -> tuple[str, int]:
    """Return what a user gave behind acp: without its `,version=N`, and the version."""
    if found := re.search(r",version=(\w*)$", argument):
        argument = argument[: found.start()]
        version = int(found[1]) if found[1].isdecimal() else 0
    if version not in (PROTOCOL_VERSION, DRAFT_VERSION):
        msg = "acp: version must be 1 or 2, the draft"
        raise InputError(msg, hint='write it behind the command, as in "acp:COMMAND,version=2"')
    return argument, version


def _split(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError as error:
        msg = f"acp:{argument}: {error}"
        raise InputError(msg) from error


class AcpDialogue:
    """One session: opened with the first turn, then one prompt for each turn."""

    def __init__(self, request: SessionRequest) -> None:
        self._handshake = Handshake(request)
        self._text = ""
        self._n_turns = 0
        self._tools = True
        self._lifecycle = Lifecycle()
        self.over = False

    def say(self, ask: Ask) -> bytes:
        """Start a turn; the first one opens the session, with the MCP servers of its world."""
        self._text = ask.text
        self._tools = ask.tools
        self._n_turns += 1
        if self._n_turns > 1:
            return self._prompt()
        request = self._handshake.request
        servers = (*request.mcp_servers, *(_server(*item) for item in ask.mcp_servers.items()))
        servers = servers if ask.tools else ()
        self._handshake.request = replace(request, mcp_servers=servers)
        # The prompt itself is sent when the session is open: see _answered.
        return self._handshake.open().line()

    def hear(self, line: bytes) -> bytes:
        """Take a line of the agent; return our answer or our next request."""
        message = parse_line(line)
        if not isinstance(message, dict):
            return b""
        if isinstance(message.get("method"), str):
            if message.get("id") is None:
                self._see(object_at(message, "params", "update"))
                return b""
            return answer(message, allow=self._tools)
        return self._answered(message)

    def _answered(self, message: dict[str, Any]) -> bytes:
        number = message.get("id")
        if not isinstance(number, int) or not ("result" in message or "error" in message):
            return b""
        if number >= FIRST_PROMPT:
            stop = value_at(message, "result", "stopReason")
            self.over = "error" in message or stop_failure(stop) is not None
            self._lifecycle.acknowledged = True
            self._see({})
            return b""
        handshake = self._handshake
        if handshake.ready or self.over:  # a repeated response must not send the prompt twice
            return b""
        following = handshake.take(number, message)
        self.over = handshake.failure is not None
        if handshake.ready:
            return self._prompt()
        return following.line() if following else b""

    def _see(self, update: dict[str, Any]) -> None:
        """Take an update of the session: in version 2 one of them ends the turn."""
        self._lifecycle.see(update)
        ending = self._lifecycle.ending() if self._handshake.version == DRAFT_VERSION else None
        self.over = self.over or ending_failure(ending or {}) is not None

    def _prompt(self) -> bytes:
        self._lifecycle = Lifecycle()
        prompt = [{"type": "text", "text": self._text}]
        params = {"sessionId": self._handshake.session_id, "prompt": prompt}
        return Request(FIRST_PROMPT + self._n_turns - 1, "session/prompt", params).line()


def _server(name: str, server: dict[str, Any]) -> dict[str, Any]:
    """Write an MCP server in the protocol's format."""
    env = [{"name": key, "value": value} for key, value in server.get("env", {}).items()]
    return {
        "name": name,
        "command": server.get("command"),
        "args": list(server.get("args", ())),
        "env": env,
    }


_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedReadTokens": "cache_read_tokens",
    "cachedWriteTokens": "cache_write_tokens",
    "thoughtTokens": "reasoning_tokens",
}


class AcpReader(EventReader):
    """Reads the lines of one turn, which ends with the response to its prompt.

    Agents may send updates after that; they are read too.
    """

    def __init__(self, request: SessionRequest, turn: int | None = None) -> None:
        super().__init__()
        self.handshake = Handshake(request)
        self._is_draft = request.version == DRAFT_VERSION
        self._lifecycle = Lifecycle()
        self._steps = AcpSteps(turn, by_id=self._is_draft)
        self.usage: dict[str, Any] = {}
        """Of the whole session so far, as reported by the agent."""
        self.requests: Counter[str] = Counter()
        """Of this turn, added from its requests to the model; Qwen Code reports nothing else."""
        self.failure: Failure | None = None
        self._result: str | None = None
        self.forgets = False
        """Whether `assay headless` says that the agent knows nothing of earlier turns."""

    @property
    def steps(self) -> list[AnyStep]:
        return self._steps.steps()

    def output(self) -> str:
        """The result if there is an explicit one, else the agent's messages."""
        return self._result or self._steps.messages()

    def _is_ending(self, event: Any) -> bool:
        update = object_at(event, "params", "update")
        is_state = self._is_draft and update.get("sessionUpdate") == "state_update"
        return isinstance(event, dict) and (is_state or "method" not in event)

    def _read_other(self, value: Any, line: RawLine) -> Sequence[AnyStep]:
        if value is None:
            return super()._read_other(value, line)
        self._unknown("(no object)")
        return ()

    def _read(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        steps = self._read_message(event, t_ms)
        if steps is None:
            self._unknown(_kind(event))
        return steps or ()

    def _read_message(self, message: dict[str, Any], t_ms: int) -> list[AnyStep] | None:
        """Return the steps of a message; None when its type is unknown."""
        method = message.get("method")
        if method == "session/update":
            update = object_at(message, "params", "update")
            is_usage = update.get("sessionUpdate") == "usage_update"
            if is_usage and value_at(update, "cost", "currency") == "USD":
                self._add_usage({"cost_usd": value_at(update, "cost", "amount")})
            for theirs, name in _USAGE.items():
                if (number := integer_at(update, "_meta", "usage", theirs)) is not None:
                    self.requests[name] += number
            if self._is_draft:
                self._lifecycle.see(update)
                if not self._end_of_draft():
                    return None
            return self._steps.take(update, t_ms)
        if method == "session/request_permission":
            call = object_at(message, "params", "toolCall")
            call = call or object_at(message, "params", "subject", "toolCall")  # version 2
            step = self._steps.tool(call, t_ms)
            return [] if step is None else [step]
        if method is not None:
            return None
        return [] if self._answered(message) else None

    def _answered(self, message: dict[str, Any]) -> bool:
        """Take the response to one of our requests; return whether the message is one."""
        number = message.get("id")
        if not isinstance(number, int) or not ("result" in message or "error" in message):
            return False
        if number < FIRST_PROMPT:  # part of the handshake
            self.handshake.take(number, message)
            self.session_id, self.failure = self.handshake.session_id, self.handshake.failure
            self.ended = self.ended or self.failure is not None
            return True
        if self._is_draft and is_acknowledgement(message):
            self._lifecycle.acknowledged = True
            return self._end_of_draft()
        self.ended = True
        if "error" in message:
            self.failure = error_failure("session/prompt", message["error"])
            return True
        return self._stopped(object_at(message, "result"))

    def _end_of_draft(self) -> bool:
        """End the turn if version 2 says so; return whether what it says is known."""
        ending = self._lifecycle.ending()
        if ending is None or self.ended:
            return True
        self.ended = True
        return self._stopped({key: value for key, value in ending.items() if key != "content"})

    def _stopped(self, result: dict[str, Any]) -> bool:
        stop = text_at(result, "stopReason")
        self.failure = ending_failure(result) if self._is_draft else stop_failure(stop)
        usage = object_at(result, "usage")
        self._add_usage({name: usage.get(theirs) for theirs, name in _USAGE.items()})
        # From `assay headless`: the protocol has no fields for these.
        if ours := object_at(result, "_meta", "assay"):
            self._add_usage({"cost_usd": ours.get("costUsd")})
            self._result = text_at(ours, "output")
            self.forgets = ours.get("forgetsTurns") is True
        content = result.get("content")
        if isinstance(content, list):  # the reference harness puts the text into the response
            self._result = "\n".join(map(block_text, content))
        is_missing = result.get("stopReason") is None
        if self._is_draft and (is_missing or stop == "error"):
            return True
        return stop in KNOWN_STOPS or (is_missing and isinstance(content, list))

    def _add_usage(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            is_cost = name == "cost_usd"
            if (number := cost_at(value) if is_cost else number_at(value)) is not None:
                self.usage[name] = number if is_cost else int(number)


def read_recording(request: SessionRequest, recording: Recording, name: str | None) -> Reading:
    """Read all turns of a recording into one reading."""
    readers = read_turns(recording, lambda turn: AcpReader(request, turn))
    # Agents report totals of the session, so a later turn's values replace earlier ones.
    usage: dict[str, Any] = dict(sum((reader.requests for reader in readers), Counter()))
    for reader in readers:
        usage |= reader.usage
    if "cost_usd" in usage:
        usage["cost_source"] = "reported"
    # The handshake is part of the first turn's lines.
    opened = readers[0].handshake if readers else Handshake(request)
    return Reading(
        steps=[step for reader in readers for step in reader.steps],
        outputs=[reader.output() for reader in readers],
        events=add_events(readers),
        usage=Usage(**usage) if usage else None,
        session_id=opened.session_id,
        agent=AgentInfo(
            adapter=name or opened.agent_name or "acp",
            version=opened.agent_version or UNSET,
            model=opened.model or UNSET,
        ),
        failure=readers[-1].failure if readers else None,
        warnings=[*([FORGETS] if any(r.forgets for r in readers) else []), *opened.warnings],
    )


def _kind(message: dict[str, Any]) -> str:
    """Return a name for a message of unknown type."""
    update, result = value_at(message, "params", "update"), object_at(message, "result")
    if message.get("method") == "session/update" and isinstance(update, dict):
        return f"session/update {update.get('sessionUpdate')}"
    if "stopReason" in result:
        return f"stopReason {result['stopReason']}"
    return str(message.get("method") or "(no method)")


_SILENT = frozenset(
    {
        "user_message_chunk",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "plan_removed",
        "usage_update",
        # Of version 2:
        *("state_update", "notice", "user_message", "compaction_update"),
        "compaction_summary_chunk",
    }
)
"""Known updates without a step."""


class AcpSteps:
    """Collects the steps of one turn."""

    def __init__(self, turn: int | None = None, *, by_id: bool = False) -> None:
        self._builder = StepBuilder(turn)
        self._by_id = by_id
        """Whether a text goes on wherever its id comes again, as in version 2."""
        self._texts: dict[tuple[str, str], int] = {}
        """Indexes of the texts with an id."""
        self._open: int | None = None
        """Index of the text that the next chunk may continue."""
        self._parts: dict[int, list[str]] = {}
        """Chunks that are not in their step yet."""
        self._text_id: Any = None
        self._calls: dict[str, dict[str, Any]] = {}
        self._unfinished: set[str] = set()
        """Calls whose output came in chunks."""
        self._terminals = Terminals()

    def take(self, update: dict[str, Any], t_ms: int) -> list[AnyStep] | None:
        """Take an update; return the steps it started or changed, None when its type is unknown.

        A text is returned in the chunks it came in, each with the step id of the whole.
        """
        kind = text_at(update, "sessionUpdate")
        if kind == "agent_message_chunk":
            return [self._text(Message, update, t_ms)]
        if kind == "agent_thought_chunk":
            return [self._text(Thought, update, t_ms)]
        if kind in ("tool_call", "tool_call_update"):
            step = self.tool(update, t_ms)
            return None if step is None else [step]
        if kind in ("agent_message", "agent_thought"):
            return [self._whole_text(Message if kind == "agent_message" else Thought, update, t_ms)]
        if kind == "tool_call_content_chunk":
            return self._chunk(update, t_ms)
        if kind in ("terminal_update", "terminal_output_chunk"):
            return [] if self._terminals.take(update) else None
        if kind in ("plan", "plan_update"):
            plan = update.get("plan", update)
            return [self._builder.plan(list_at(plan, "entries"), t_ms, text_at(plan, "content"))]
        return [] if kind in _SILENT else None

    def tool(self, update: dict[str, Any], t_ms: int) -> AnyStep | None:
        """Start a tool call or merge an update into it; None when it has no id."""
        call_id = text_at(update, "toolCallId")
        if call_id is None:
            return None
        call = self._calls.setdefault(call_id, {})
        # An update holds only the fields that changed.
        call |= {name: value for name, value in update.items() if value is not None}
        status = text_at(call, "status")
        has_output = not update.keys().isdisjoint(("content", "rawOutput"))
        return self._builder.tool(
            t_ms,
            status=status,
            call_id=call_id,
            name=_name(call),
            input=call.get("rawInput"),
            output=_output(call) if has_output else None,  # an earlier one stays
            error=_error(call) if status == "failed" else None,
            exit_code=_exit_code(call.get("rawOutput")),
        )

    def steps(self) -> list[AnyStep]:
        """Return all steps so far, with their complete texts."""
        for index, parts in self._parts.items():
            step = self._builder.steps[index]
            assert isinstance(step, Message | Thought)
            self._set_text(index, step.content + "".join(parts))
        self._parts = {}
        for call_id, call in self._calls.items():
            shown = self._terminals.shown(call_id, call)
            if shown is not None or call_id in self._unfinished:
                shown = shown or call
                code = shown.get("exitCode")
                self._builder.tool(0, call_id=call_id, output=_output(shown), exit_code=code)
        self._unfinished = set()
        return self._builder.steps

    def messages(self) -> str:
        """Return the text of all messages."""
        return "\n".join(step.content for step in self.steps() if isinstance(step, Message))

    def _text(
        self, kind: type[Message] | type[Thought], update: dict[str, Any], t_ms: int
    ) -> AnyStep:
        """Add a chunk to the text it continues.

        Chunks are joined only when the steps are read: joining at each one takes quadratic time.
        """
        piece = block_text(update.get("content"))
        index = self._text_at(kind, update.get("messageId"), t_ms)
        self._parts.setdefault(index, []).append(piece)
        timestamp = self._builder.steps[index].timestamp
        return kind(content=piece, timestamp=timestamp, step_id=f"text-{index}")

    def _text_at(self, kind: type[Message] | type[Thought], text_id: Any, t_ms: int) -> int:
        """Return the index of the text that goes on, or of a new one."""
        steps = self._builder.steps
        key = (kind.__name__, text_id) if self._by_id and isinstance(text_id, str) else None
        if key in self._texts:
            return self._texts[key]
        is_last = self._open is not None and self._open == len(steps) - 1
        if key or not (is_last and isinstance(steps[-1], kind) and text_id == self._text_id):
            (self._builder.message if kind is Message else self._builder.thought)("", t_ms)
            self._open, self._text_id = len(steps) - 1, text_id
        index = len(steps) - 1
        if key:
            self._texts[key] = index
        return index

    def _whole_text(
        self, kind: type[Message] | type[Thought], update: dict[str, Any], t_ms: int
    ) -> AnyStep:
        """Replace a text, if the update has one."""
        index = self._text_at(kind, update.get("messageId"), t_ms)
        if "content" in update:
            self._parts.pop(index, None)
            self._set_text(index, "\n".join(map(block_text, list_at(update, "content"))))
        return msgspec.structs.replace(self._builder.steps[index], step_id=f"text-{index}")

    def _set_text(self, index: int, text: str) -> None:
        steps = self._builder.steps
        steps[index] = msgspec.structs.replace(steps[index], content=text)

    def _chunk(self, update: dict[str, Any], t_ms: int) -> list[AnyStep] | None:
        """Add a part of a call's output; the parts are joined when the steps are read."""
        call_id = text_at(update, "toolCallId")
        if call_id is None:
            return None
        steps: list[AnyStep] = []
        if call_id not in self._calls and (step := self.tool({"toolCallId": call_id}, t_ms)):
            steps.append(step)
        call = self._calls[call_id]
        if not isinstance(call.get("content"), list):
            call["content"] = []
        call["content"].append(update.get("content"))
        self._unfinished.add(call_id)
        return steps


def _name(call: dict[str, Any]) -> str | None:
    """Return the tool's own name if the agent gives it, else the call's title or kind."""
    meta = object_at(call, "_meta")
    own = [call.get("name"), meta.get("toolName")]
    for vendor in meta.values():
        own += [value_at(vendor, "toolName"), value_at(vendor, "toolCall", "toolName")]
    named = (*own, call.get("title"), call.get("kind"))
    return next((name for name in named if isinstance(name, str) and name), None)


def _output(call: dict[str, Any]) -> Any:
    """Return the raw output, else the text of the content; keep diffs and terminals complete."""
    raw, content = call.get("rawOutput"), call.get("content")
    if not isinstance(content, list) or not content:
        return raw
    plain = all(isinstance(item, dict) and item.get("type") == "content" for item in content)
    if raw is not None:
        return raw if plain else {"rawOutput": raw, "content": content}
    return _texts(content) if plain else content


def _error(call: dict[str, Any]) -> str | None:
    content, raw = call.get("content"), call.get("rawOutput")
    text = _texts(content) if isinstance(content, list) else ""
    if not text and raw is not None:
        text = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()
    return text[:2000] or None


def _texts(content: list[Any]) -> str:
    items = [i for i in content if isinstance(i, dict) and i.get("type") == "content"]
    return "\n".join(block_text(item.get("content")) for item in items)


def _exit_code(raw: Any) -> int | None:
    # Copilot CLI: in the last of several parts.
    for place in (object_at({"raw": raw}, "raw"), *reversed(objects_at(raw, "contents"))):
        code = place.get("exitCode", place.get("exit_code"))
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None
