"""Read the lines of `codex exec --json`, one turn at a time, live or from a recording."""

from collections.abc import Sequence
from typing import Any

from assay.adapters.codex_items import TEXTS, Item, item_step, plan_entries
from assay.adapters.events import is_readable, parse_line
from assay.records.capture import Events
from assay.records.recording import RawLine
from assay.records.trajectory import AnyStep

_RETRY = "Reconnecting"
_KNOWN_ITEMS = frozenset(
    {*TEXTS, "todo_list", "error", "command_execution", "file_change", "mcp_tool_call"}
    | {"collab_tool_call", "web_search"}
)


class CodexTurn:
    """Takes the lines of one turn.

    Codex has no limit of model turns: with max_turns the turn counts as ended when the model
    begins one more than that, and whoever watches ends the process.
    """

    def __init__(self, turn: int | None = None, max_turns: int | None = None) -> None:
        self._turn = turn
        self._max_turns = max_turns
        self._rested = True
        """No tool is at work: what begins now comes from a new answer of the model."""
        self._open: set[str] = set()
        self.session_id: str | None = None
        self.ended = False
        self.over_limit = False
        self.items: list[Item] = []
        self.events = Events()
        self.usage: dict[str, Any] | None = None
        """Of the whole thread so far, as turn.completed tells it."""
        self.error: str | None = None
        """What turn.failed says."""
        self.notice: str | None = None
        """The last thing said about the provider, while nothing has followed it."""
        self.retries = 0
        self.model_turns = 0
        self.warnings: list[str] = []

    @property
    def steps(self) -> list[AnyStep]:
        """The steps so far."""
        return [item_step(item) for item in self.items]

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Take the next line; give the steps it began or changed."""
        if not is_readable(line, self.events):
            return ()
        event = parse_line(line.text)
        if not isinstance(event, dict):
            self.events.unparsed += 1
            return ()
        known, changed = self._read(event, line.t_ms)
        if known:
            self.events.mapped += 1
        else:
            item = event.get("item")
            of = f".{item.get('type')}" if isinstance(item, dict) else ""
            name = f"{event.get('type', 'no type')}{of}"
            self.events.unknown[name] = self.events.unknown.get(name, 0) + 1
        return changed

    def output(self) -> str:
        """The last message of the turn."""
        said = [item.value.get("text") for item in self.items if item.type == "agent_message"]
        return str(said[-1] or "") if said else ""

    def _read(self, event: dict[str, Any], t_ms: int) -> tuple[bool, Sequence[AnyStep]]:
        kind = event.get("type")
        if kind in ("item.started", "item.updated", "item.completed"):
            item = event.get("item")
            if not isinstance(item, dict) or str(item.get("type")) not in _KNOWN_ITEMS:
                return False, ()
            return True, self._take(item, t_ms, ended=kind == "item.completed")
        if kind == "thread.started":
            thread = event.get("thread_id")
            self.session_id = thread if isinstance(thread, str) else self.session_id
        elif kind == "turn.started":
            self.ended = False
        elif kind == "turn.completed":
            usage = event.get("usage")
            self.usage = usage if isinstance(usage, dict) else None
            self.ended, self.notice = True, None
        elif kind == "turn.failed":
            self.error = _message(event.get("error")) or "failed"
            self.ended = True
        elif kind == "error":
            self.notice = _message(event)
            self.retries += (self.notice or "").startswith(_RETRY)
        else:
            return False, ()
        return True, ()

    def _take(self, value: dict[str, Any], t_ms: int, *, ended: bool) -> Sequence[AnyStep]:
        kind, name = str(value["type"]), str(value.get("id"))
        if kind == "error":
            self.warnings.append(_message(value) or "")
            return ()
        self.notice = None
        self._count(kind, name, ended=ended)
        item = self._find(kind, name)
        if kind == "todo_list":
            if item is not None and plan_entries(item.value) == plan_entries(value):
                return ()
            item = None  # each state of the list is a plan of its own
        if item is None:
            item = Item(type=kind, id=name, value=value, begun_ms=t_ms, turn=self._turn)
            self.items.append(item)
        item.value = {**item.value, **value}
        item.ended_ms = t_ms if ended else item.ended_ms
        return [item_step(item)]

    def _find(self, kind: str, name: str) -> Item | None:
        for item in reversed(self.items):
            if item.id == name and item.type == kind:
                return item
        return None

    def _count(self, kind: str, name: str, *, ended: bool) -> None:
        """Count the model's answers: one begins when something new comes while no tool works."""
        if kind == "todo_list":
            return
        is_new = self._find(kind, name) is None
        if is_new and self._rested and not self._open:
            self.model_turns += 1
            self._rested = False
            if self._max_turns is not None and self.model_turns > self._max_turns:
                self.over_limit = self.ended = True
        if kind in TEXTS:
            return
        if ended:
            self._open.discard(name)
            self._rested = not self._open
        else:
            self._open.add(name)


def _message(value: Any) -> str | None:
    message = value.get("message") if isinstance(value, dict) else None
    return message if isinstance(message, str) else None
