"""A trial as detectors look at it, and how they quote it."""

import re
from collections.abc import Sequence
from functools import cached_property

from assay.compare.calls import (
    Call,
    calls_of,
    commands_in,
    cut,
    ends_of,
    program_words,
    without_numbers,
)
from assay.records.capture import Message
from assay.records.explanation import Detector, Finding
from assay.records.trial.views import ExplainedRow

_MOST_WORDS = 8000


class Case:
    """A trial as detectors look at it."""

    def __init__(self, row: ExplainedRow) -> None:
        self.row = row
        self.calls = calls_of(row.trajectory, row.cwd)

    @cached_property
    def prompt(self) -> str:
        asked = self.row.input
        return asked if isinstance(asked, str) else "\n".join(asked)

    @cached_property
    def asked(self) -> str:
        """As much of the prompt as patterns are put to."""
        return ends_of(self.prompt, _MOST_WORDS)

    @cached_property
    def cause(self) -> str:
        return self.row.failure.cause if self.row.failure else ""

    @cached_property
    def ending(self) -> str:
        """What was said of the end of the trial, if it did not end well."""
        return ends_of(self.row.failure.message, _MOST_WORDS) if self.row.failure else ""

    @property
    def ended_itself(self) -> bool:
        return self.row.is_finished

    @cached_property
    def final_message(self) -> str:
        said = [step.content for step in self.row.trajectory if isinstance(step, Message)]
        return ends_of(self.row.output or (said[-1] if said else ""), _MOST_WORDS)

    @cached_property
    def edits(self) -> list[Call]:
        """Calls that changed files."""
        return [call for call in self.calls if call.worked and changes_files(call)]


def first_failed(case_calls: Sequence[Call]) -> Call | None:
    """Return the first call that failed."""
    return next((call for call in case_calls if call.failed), None)


def finding(detector: Detector, calls: Sequence[Call], *, error: str = "") -> Finding:
    """Quote calls; the first of them is what the finding is about."""
    first = calls[0]
    return Finding(
        detector=detector,
        steps=tuple(call.number for call in calls),
        quotes=tuple(quoted(call) for call in calls),
        call=cut(first.coarse_key),
        error=cut(without_numbers(error or first.error)),
    )


def quoted(call: Call) -> str:
    """Return a call with the end of it on one line."""
    if call.failed:
        return f"{call.shown} → {cut(call.error)}"
    return f"{call.shown} → {cut(call.output, 80)}" if call.output else call.shown


def at_end(detector: Detector, case: Case, text: str) -> Finding:
    """Quote how the trial ended, with its last step if there is one."""
    steps = case.row.trajectory
    return Finding(
        detector=detector,
        steps=(len(steps),) if steps else (),
        quotes=(cut(text),),
        error=cut(without_numbers(text)),
    )


# What files a call changes.

_WRITES = re.compile(
    r"(?<![<>&\d=-])>>?(?!&)\s*(?!/dev/)\S|\bsed\s+(?:-\w+\s+)*-i|\bperl\s+-\w*i|\btee\b|\bpatch\b|"
    r"\b(?:mv|cp|rm|touch|truncate|install|chmod|ln|mkdir)\s|\bgit\s+(?:apply|checkout|restore|"
    r"reset|stash|revert|"
    r"merge|rebase|am)\b|\b(?:pip3?|npm|yarn|pnpm|cargo|apt|apt-get|uv|go)\s+(?:install|add|i|"
    r"get|remove|ci)\b"
)
WRITTEN = re.compile(
    r"(?:>>?\s*|\btee\s+(?:-a\s+)?|\b(?:rm|mv|truncate)\s+(?:-\w+\s+)*|"
    r"\bsed\s+(?:-\w+\s+)*-i\S*\s.*?\s|"
    r"\bcp\s+\S+\s+|\bperl\s+-\w*i\w*\s.*?\s)[\"']?([\w./-]+)"
)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def changes_files(call: Call) -> bool:
    """Whether a call changes files, as far as its name or command line tells."""
    if call.kind in ("edit", "write"):
        return True
    return call.kind == "shell" and bool(_WRITES.search(QUOTED.sub("''", call.command)))


def only_writes(call: Call) -> bool:
    """Whether a command line changes files and looks at nothing afterwards."""
    parts = commands_in(
        re.sub(r"<<-?\s*['\"]?(\w+)['\"]?.*?^\1$", "", call.command, flags=re.S | re.M)
    )
    return bool(parts) and bool(_WRITES.search(QUOTED.sub("''", parts[-1])))


_LOOKS = frozenset(
    [
        "ls",
        "cat",
        "head",
        "tail",
        "less",
        "more",
        "grep",
        "rg",
        "ag",
        "find",
        "fd",
        "tree",
        "wc",
        "pwd",
        "which",
        "whereis",
        "file",
        "stat",
        "du",
        "df",
        "echo",
        "printf",
        "date",
        "whoami",
        "id",
        "env",
        "printenv",
        "ps",
        "top",
        "uname",
        "sort",
        "uniq",
        "cut",
        "awk",
        "nl",
        "od",
        "xxd",
        "hexdump",
        "strings",
        "diff",
        "cmp",
        "jq",
        "sleep",
        "true",
        "test",
        "type",
        "curl",
        "wget",
        "ping",
        "kubectl",
        "docker",
        "podman",
        "systemctl",
        "journalctl",
        "pytest",
        "unittest",
        "jest",
        "vitest",
        "tox",
        "mypy",
        "ruff",
        "eslint",
        "tsc",
    ]
)
"""Programs that are started to see something."""
_GIT_LOOKS = frozenset({"status", "log", "diff", "show", "branch", "blame", "grep", "ls-files"})


def may_change(call: Call) -> bool:
    """Whether a call may have changed something, so that the next result may be another."""
    if changes_files(call):
        return True
    if call.kind != "shell":
        return call.kind in ("mcp", "agent", "other")
    words = program_words(call.command)
    if words[:1] == ("git",):
        return not _GIT_LOOKS.intersection(words[1:])
    return not words or words[0] not in _LOOKS
