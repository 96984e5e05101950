"""Read the lines of `claude -p --output-format stream-json`, one turn at a time."""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from assay.adapters.reading import (
    EventReader,
    StepBuilder,
    epoch_ms,
    join_texts,
    number_at,
    objects_at,
    text_at,
    value_at,
)
from assay.records.capture import AnyStep, Message, ToolCall
from assay.records.recording import RawLine

_INTERRUPTED = "[Request interrupted by user"


class ClaudeTurn(EventReader):
    """Reads the lines of one turn, also after its result: another one may follow."""

    ending = frozenset({"result"})

    def __init__(self, turn: int | None = None) -> None:
        super().__init__()
        self._steps = StepBuilder(turn)
        self._tasks = TaskList()
        self._asked_ms: dict[str, float | None] = {}
        """When each call was made, by the agent's own clock."""
        self._plain_lines: list[str] = []
        """Lines that are not JSON: the answer itself if the user chose another output format."""
        self.init: dict[str, Any] | None = None
        self.results: list[dict[str, Any]] = []
        self.message_ids: dict[str, None] = {}
        """Of the model's answers, as an ordered set."""
        self.model: str | None = None
        self.api_error: dict[str, Any] | None = None
        """The last line that reports an error of the provider."""
        self.retry: dict[str, Any] | None = None
        """The last api_retry, until an answer or a result follows it."""
        self.retry_ms: float | None = None
        """The pause that it announced, if the provider had refused."""
        self.retries = 0
        self.denied: set[str] = set()
        self.refused = False
        self.interrupted = False

    @property
    def steps(self) -> list[AnyStep]:
        return self._steps.steps

    def output(self) -> str:
        """The result, else the agent's messages without those of its sub-agents."""
        result = self.results[-1].get("result") if self.results else None
        if isinstance(result, str) and result:
            return result
        messages = [s.content for s in self.steps if isinstance(s, Message) and not s.parent]
        return "\n".join(messages or self._plain_lines)

    def _read_other(self, value: Any, line: RawLine) -> Sequence[AnyStep]:
        if isinstance(value, list):  # --output-format json --verbose: all events in one array
            self.events.total += len(value) - 1  # feed() has counted the line as one event
            events = [event if isinstance(event, dict) else {} for event in value]
            return [step for event in events for step in self._count(event, line.t_ms)]
        self._plain_lines.append(line.text.decode("utf-8", "replace"))
        return super()._read_other(value, line)

    def _read(self, event: dict[str, Any], t_ms: int) -> list[AnyStep]:
        kind = text_at(event, "type")
        self.session_id = text_at(event, "session_id") or self.session_id
        if kind == "system":
            self._system(event)
        elif kind == "result":
            self.results.append(event)
            self.ended = True
            self.retry = None
            # The result repeats what permission_denied events have reported: hence a set.
            denials = objects_at(event, "permission_denials")
            self.denied |= {str(denial.get("tool_use_id")) for denial in denials}
        elif kind in ("assistant", "user"):
            return self._message(event, t_ms)
        elif kind not in SILENT_TYPES:
            self._unknown("(no type)" if kind is None else kind)
        return []

    def _system(self, event: dict[str, Any]) -> None:
        subtype = text_at(event, "subtype")
        if subtype == "init":
            self.init = event
        elif subtype == "api_retry":
            self.retry, self.retry_ms = event, refusal_ms(event)
            self.retries += 1
        elif subtype == "permission_denied":
            self.denied.add(str(event.get("tool_use_id")))
        elif subtype == "model_refusal_no_fallback":
            self.refused = True
        elif subtype not in SILENT_SYSTEM:
            self._unknown(f"system/{subtype}")

    def _message(self, event: dict[str, Any], t_ms: int) -> list[AnyStep]:
        if event["type"] == "assistant":
            self.retry = None
            if event.get("is_api_error_message") or isinstance(event.get("error"), str):
                self.api_error = event
            model, message_id = text_at(event, "message", "model"), text_at(event, "message", "id")
            if model is not None and model != "<synthetic>":  # an error text of the CLI itself
                self.model = self.model or model
                if message_id is not None:
                    self.message_ids[message_id] = None
        text = text_at(event, "message", "content")
        blocks = objects_at(event, "message", "content")
        if text is not None:
            blocks = [{"type": "text", "text": text}]
        return [step for block in blocks for step in self._block(block, event, t_ms)]

    def _block(self, block: dict[str, Any], event: dict[str, Any], t_ms: int) -> list[AnyStep]:
        kind = text_at(block, "type")
        parent = text_at(event, "parent_tool_use_id") or None
        if kind in CALLS:
            call_id = str(block.get("id"))
            self._asked_ms[call_id] = epoch_ms(event.get("timestamp"))
            return [
                self._steps.tool(
                    t_ms,
                    name=str(block.get("name") or "unknown"),
                    call_id=call_id,
                    input=block.get("input"),
                    parent=parent,
                )
            ]
        if kind is not None and kind.endswith("tool_result"):
            return self._ended(block, event, t_ms, parent)
        if kind in ("text", "thinking"):
            return self._text(block, event, t_ms, parent)
        if kind not in SILENT_BLOCKS:
            self._unknown(f"{event['type']}:{kind}")
        return []

    def _text(
        self, block: dict[str, Any], event: dict[str, Any], t_ms: int, parent: str | None
    ) -> list[AnyStep]:
        kind = block["type"]
        text = text_at(block, kind) or ""
        if event["type"] == "user":  # input to the model: a nudge, a replay, a sub-agent's task
            self.interrupted = self.interrupted or text.startswith(_INTERRUPTED)
            return []
        if not text:
            return []
        add = self._steps.thought if kind == "thinking" else self._steps.message
        return [add(text, t_ms, parent)]

    def _ended(
        self, block: dict[str, Any], event: dict[str, Any], t_ms: int, parent: str | None
    ) -> list[AnyStep]:
        call_id = str(block.get("tool_use_id"))
        output = text_of(block.get("content"))
        failed = block.get("is_error") is True
        structured = event.get("tool_use_result")
        asked, now = self._asked_ms.get(call_id), epoch_ms(event.get("timestamp"))
        step = self._steps.tool(
            t_ms,
            status="failed" if failed else "completed",
            call_id=call_id,
            output=output,
            error=str(output)[:2000] if failed else None,
            duration=max(0.0, now - asked) if asked is not None and now is not None else None,
            parent=parent,
        )
        assert isinstance(step, ToolCall)
        # Only the step knows the tool's name: a result has just the id of its call.
        exit_code = exit_code_of(step.name, output, structured, failed=failed)
        if exit_code is not None:
            step = self._steps.tool(t_ms, call_id=call_id, exit_code=exit_code)
            assert isinstance(step, ToolCall)
        entries = None if failed else self._tasks.take(step, structured)
        return [step] if entries is None else [step, self._steps.plan(entries, t_ms, None, parent)]


CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""Blocks that start a tool call."""
SILENT_BLOCKS = frozenset(
    {"redacted_thinking", "image", "document", "container_upload", "fallback", "search_result"}
    | {"tool_reference", "resource", "resource_link", "audio"}
)
SILENT_TYPES = frozenset(
    """
    attachment auth_status control_cancel_request control_request control_response
    conversation_reset keep_alive prompt_suggestion rate_limit_event refusal_continuation
    response_length session_notice stream_event stream_mode streamlined_text
    streamlined_tool_use_summary tombstone tool_progress tool_use_summary
    """.split()  # noqa: SIM905 - one name a line would be a page
)
SILENT_SYSTEM = frozenset(
    """
    agents_killed api_error away_summary background_tasks_changed bridge_state bridge_status
    checkpoint_done cloud_session_delta cloud_session_status code_change_published
    commands_changed compact_boundary control_request_progress dev_intent elicitation_complete
    feedback_draft_queued file_attachments_missing file_snapshot files_persisted hook_progress
    hook_response hook_started informational inherited_asks_settled instruction_size_warning
    local_command local_command_output memory_recall memory_saved microcompact_boundary
    mirror_error model_consent_fallback model_fallback model_refusal_fallback notification
    peer_message_hold per_turn_effort_changed permission_check_status permission_retry placed
    plugin_install post_turn_summary rewind_stand_in scheduled_task_fire session_metadata
    session_state_changed session_title_changed session_writes_lost start_folder status
    stop_hook_summary task_notification task_progress task_started task_summary task_updated
    thinking thinking_tokens tool_host_result turn_began_before_init turn_duration
    turn_handoff_available turn_preempted turn_starting ui_focus ui_invalidate ui_log ui_notify
    ui_notify_cancel ui_panes ui_placed ui_scroll ui_status ui_toast upgrade_relay_marker
    vcs_state_changed voice_call_talk worker_shutting_down
    """.split()  # noqa: SIM905 - one name a line would be a page
)
"""All subtypes that version 2.1.325 can write, except those that are read."""


class TaskList:
    """The plan, updated by the calls of one turn."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Any]] = {}
        self._n_entries = 0

    def take(self, call: ToolCall, structured: Any) -> list[Any] | None:
        """Return the whole plan after a call that changed it, None after any other."""
        given = call.input if isinstance(call.input, dict) else {}
        if call.name == "TodoWrite":
            todos = given.get("todos")
            return todos if isinstance(todos, list) else None
        if call.name == "TaskCreate":
            number = str(value_at(structured, "task", "id") or len(self._tasks) + 1)
            task = {"id": number, "content": given.get("subject"), "status": "pending"}
            self._tasks[number] = task
            return self._entries()
        if call.name == "TaskUpdate":
            return self._update(given)
        return None

    def _update(self, given: dict[str, Any]) -> list[Any] | None:
        number = str(given.get("taskId"))
        status, subject = given.get("status", UNSET), given.get("subject", UNSET)
        if status is UNSET and subject is UNSET:
            return None
        if status == "deleted":
            self._tasks.pop(number, None)
            return self._entries()
        # After a resume the task may come from an earlier turn.
        task = self._tasks.setdefault(number, {"id": number, "content": None, "status": "pending"})
        if status is not UNSET:
            task["status"] = status
        if subject is not UNSET:
            task["content"] = subject
        return self._entries()

    def _entries(self) -> list[Any] | None:
        self._n_entries += len(self._tasks)
        if self._n_entries > _MOST_ENTRIES:
            return None
        return [dict(task) for task in self._tasks.values()]


_MOST_ENTRIES = 200_000
"""Of all plans of a turn: each change of one task repeats the others."""
_EXIT_CODE = re.compile(r"Exit code (\d{1,10})\b")


def text_of(content: Any) -> Any:
    """Return the text of a result, or the whole content if it holds more than text."""
    if not isinstance(content, list):
        return "" if content is None else content
    text = join_texts(content)
    return content if text is None or any(b.get("type") != "text" for b in content) else text


def exit_code_of(name: str, output: Any, structured: Any, *, failed: bool) -> int | None:
    """Return the exit code of a shell command, if it can be known.

    A failure has it in its text. A success means 0, unless the CLI treats another code as success
    (grep without a match) or the command is still running.
    """
    if name != "Bash":
        return None
    if failed:
        match = _EXIT_CODE.match(output) if isinstance(output, str) else None
        return int(match.group(1)) if match else None
    if not isinstance(structured, dict) or "stdout" not in structured:
        return None
    other = ("interrupted", "backgroundTaskId", "returnCodeInterpretation")
    return None if any(structured.get(key) for key in other) else 0


def refusal_ms(retry: dict[str, Any]) -> float | None:
    """Return the pause of an api_retry after too many requests; it is at least what was asked."""
    return number_at(retry, "retry_delay_ms") if retry.get("error_status") in (429, 529) else None
