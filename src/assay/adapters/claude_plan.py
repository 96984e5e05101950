"""The plan of Claude Code: one list written at once, or tasks made and changed one by one."""

from typing import Any

from msgspec import UNSET

from assay.records.trajectory import ToolCall


class TaskList:
    """Follows the plan over the calls of one turn."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Any]] = {}

    def take(self, call: ToolCall, structured: Any) -> list[Any] | None:
        """Give the whole plan after a call that changed it, None after any other."""
        given = call.input if isinstance(call.input, dict) else {}
        details = structured if isinstance(structured, dict) else {}
        if call.name == "TodoWrite":
            todos = given.get("todos")
            return todos if isinstance(todos, list) else None
        if call.name == "TaskCreate":
            return self._create(given, details)
        if call.name == "TaskUpdate":
            return self._update(given)
        return None

    def _create(self, given: dict[str, Any], details: dict[str, Any]) -> list[Any]:
        task = details.get("task")
        known = task.get("id") if isinstance(task, dict) else None
        number = str(known or len(self._tasks) + 1)
        self._tasks[number] = {"id": number, "content": given.get("subject"), "status": "pending"}
        return self._entries()

    def _update(self, given: dict[str, Any]) -> list[Any] | None:
        number = str(given.get("taskId"))
        status, subject = given.get("status", UNSET), given.get("subject", UNSET)
        if status is UNSET and subject is UNSET:
            return None
        if status == "deleted":
            self._tasks.pop(number, None)
            return self._entries()
        task = self._tasks.setdefault(number, {"id": number, "content": None, "status": "pending"})
        if status is not UNSET:
            task["status"] = status
        if subject is not UNSET:
            task["content"] = subject
        return self._entries()

    def _entries(self) -> list[Any]:
        return [dict(task) for task in self._tasks.values()]
