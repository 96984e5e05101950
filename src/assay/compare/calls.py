"""Tool calls of any agent in one form: what was done to what, and how it went."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import dropwhile
from typing import Any

import msgspec

from assay.records.capture import AnyStep, ToolCall
from assay.records.text import visible_line
from assay.records.tools import kind_of_tool, paths_in

_COMMANDS = ("command", "cmd", "script", "code")
_SEARCHED = ("pattern", "query", "url", "prompt", "glob", "description")
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
_NOT_OVER = ("pending", "in_progress", "cancelled", "canceled")
# A path of a workspace differs from trial to trial; what matters of it is its end.
_LONG_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:/[\w.@+~-]+){2,}/([\w.@+~-]+)")
_IDS = re.compile(
    r"\b(?:0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{20,}|(?=[0-9a-f]*\d)[0-9a-f]{12,})\b", re.I
)
_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")
_TIMES = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|sec|seconds|minutes)\b|\b\d\d:\d\d:\d\d\S*")
_ERROR_LINE = re.compile(
    r"^(?:E\s+)?[\w.]*(?:Error|Exception|Failure|Interrupt)\b.*|"
    r".*\b(?:error|fatal|panic|denied|not found|no such|cannot|failed|unable)\b.*",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"^(?:E\s+)?[\w.]*(?:Error|Exception)\b.*")
_MOST_SHOWN = 160
_MOST_COMMAND = 8000
_MOST_MATCHED = 20_000
"""Patterns are never put to longer texts: an agent could make them take hours."""
_INTERPRETER = re.compile(r"python[\d.]*|node|bash|sh|ruby|perl|deno|bun")
_WRAPPERS = frozenset({"sudo", "env", "time", "exec", "timeout", "uv", "poetry"})
"""Programs that start the one that matters."""


class Call:
    """One tool call of a trajectory."""

    def __init__(self, number: int, step: ToolCall, home: Any = None) -> None:
        self.number = number
        """Of the step, from 1."""
        self.step = step
        self._home = f"{home}/" if isinstance(home, str) and len(home) > 1 else ""
        """The agent's folder, which differs from trial to trial."""
        self.kind = kind_of_tool(step.name)

    @cached_property
    def command(self) -> str:
        """The command line of a shell; empty for other tools."""
        if self.kind != "shell":
            return ""
        given = self.step.input
        if isinstance(given, dict):
            given = next((given[name] for name in _COMMANDS if given.get(name)), "")
        if isinstance(given, list):  # bash -lc COMMAND
            given = (
                given[-1]
                if len(given) == 3 and str(given[1]).startswith("-")
                else " ".join(map(str, given))
            )
        return given[:_MOST_COMMAND].strip() if isinstance(given, str) else ""

    @cached_property
    def patched(self) -> dict[str, str]:
        """Files that a patch touches, each with add, update or delete."""
        given = self.step.input
        if isinstance(given, dict) and isinstance(given.get("changes"), list):
            changes = [one for one in given["changes"] if isinstance(one, dict)]
            return {str(one.get("path", "")): str(one.get("kind", "update")) for one in changes}
        text = given if isinstance(given, str) else "\n".join(_texts(given))
        return {found[2].strip(): found[1].lower() for found in _PATCHED.finditer(text)}

    @cached_property
    def paths(self) -> list[str]:
        """Files that the call names outside of a command line."""
        return list(self.patched) or list(paths_in(self.step.input))

    @cached_property
    def output(self) -> str:
        """What came back."""
        return "\n".join(_texts(self.step.output))

    @property
    def is_over(self) -> bool:
        """Whether it came to an end."""
        return self.step.status not in _NOT_OVER

    @property
    def failed(self) -> bool:
        """Whether it failed; one that was cut short did not."""
        code = self.step.exit_code
        told = self.step.status in ("failed", "error") or bool(self.step.error)
        return self.is_over and (told or (isinstance(code, int) and code != 0))

    @property
    def worked(self) -> bool:
        return self.is_over and not self.failed

    @cached_property
    def error(self) -> str:
        """The line that says most about why it failed; empty if it did not."""
        if not self.failed:
            return ""
        said = self.step.error or ""
        texts = [self.output, said] if said.startswith("exit code") else [said, self.output]
        return next((line for line in map(error_line, texts) if line), said)

    @cached_property
    def target(self) -> str:
        """What it was about: the command line, the file, or what was searched."""
        return self._target.replace(self._home, "") if self._home else self._target

    @property
    def _target(self) -> str:
        if self.kind == "shell":
            return self.command
        if self.paths:
            return ", ".join(self.paths)
        given = self.step.input
        if isinstance(given, dict):
            found = next(
                (given[name] for name in _SEARCHED if isinstance(given.get(name), str)), ""
            )
            return found or (msgspec.json.encode(given).decode() if given else "")
        return given if isinstance(given, str) else ""

    @cached_property
    def same_as(self) -> tuple[str, str]:
        """Equal for two calls that ask for the same."""
        return self.step.name, str(self.step.input)

    @cached_property
    def result(self) -> str:
        """What came back, without how long it took."""
        return _TIMES.sub("", self.output) if len(self.output) <= _MOST_MATCHED else self.output

    @cached_property
    def exact_key(self) -> str:
        """What the call does, whichever agent makes it: equal for the same call of all trials."""
        return f"{self._verb} {_LONG_PATH.sub(r'\1', self.target[:2000])}".strip()

    @cached_property
    def fine_key(self) -> str:
        """The same without numbers."""
        return f"{self._verb} {without_numbers(self.target)}".strip()

    @cached_property
    def coarse_key(self) -> str:
        """The same by its program alone, with its first word that is no option: `pip install`."""
        if self.kind == "shell":
            words = program_words(self.command)
            return f"shell {' '.join(words)}" if words else "shell"
        return self._verb

    @property
    def _verb(self) -> str:
        if self.kind in ("edit", "write"):
            return "edit"
        return self.step.name if self.kind in ("other", "mcp") else self.kind

    @property
    def shown(self) -> str:
        """The call on one line."""
        return cut(f"{self.step.name} {self.target}".strip())


def calls_of(steps: Sequence[AnyStep], home: Any = None) -> list[Call]:
    """Return the tool calls of a trajectory in a folder; lists of plans are not work."""
    made = [Call(n, step, home) for n, step in enumerate(steps, 1) if isinstance(step, ToolCall)]
    return [call for call in made if call.kind != "plan"]


@lru_cache(4096)
def program_words(command: str) -> tuple[str, ...]:
    """Return the program of a command line and its first word that is no option or file."""
    for part in commands_in(command):
        words = [word for word in part.split() if not re.fullmatch(r"\w+=\S*", word)]
        while words and words[0] in _WRAPPERS:
            words = list(dropwhile(re.compile(r"-.*|\d+\w?|run").fullmatch, words[1:]))
        if words and words[0] not in ("cd", "set", "export", "source", "."):
            name = words[0].rpartition("/")[2]
            if name.startswith("python") and words[1:2] == ["-m"]:
                return tuple(words[2 : 4 if words[3:4] and words[3].isalpha() else 3])
            sub = next((word for word in words[1:] if not word.startswith("-")), "")
            if _INTERPRETER.fullmatch(name):  # the script says what is run
                return (name, sub.rpartition("/")[2]) if "." in sub else (name,)
            return (name, sub) if re.fullmatch(r"[a-z][a-z-]{1,14}", sub) else (name,)
    return ()


@lru_cache(4096)
def commands_in(command: str) -> tuple[str, ...]:
    """Split a command line at && || ; and new lines; quotes are not looked at."""
    return tuple(part.strip() for part in re.split(r"&&|\|\||;|\n", command) if part.strip())


def error_line(text: str) -> str:
    """Return the line of an output that says what went wrong: an exception, or else an error."""
    lines = [line.strip() for line in ends_of(text).splitlines() if line.strip()]
    for pattern, order in ((_EXCEPTION, reversed(lines)), (_ERROR_LINE, iter(lines))):
        found = next((line for line in order if pattern.match(line)), None)
        if found is not None:
            return found.removeprefix("E ").strip()
    return lines[-1] if lines else ""


@lru_cache(4096)
def without_numbers(text: str) -> str:
    """Return a text as it is the same in other trials: no numbers, ids, folders and long blanks."""
    text = _LONG_PATH.sub(r"\1", text[:2000])
    return " ".join(_NUMBERS.sub("N", _IDS.sub("N", text)).split())


def ends_of(text: str, most: int = _MOST_MATCHED) -> str:
    """Return a text, of a long one its beginning and its end: what patterns are put to."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n{text[-half:]}"


def cut(text: str, most: int = _MOST_SHOWN) -> str:
    """Return a text on one line, cut in its middle if it is long."""
    line = visible_line(" ".join(text[: 50 * most].split()))
    half = (most - 3) // 2
    return line if len(line) <= most else f"{line[:half]} … {line[-half:]}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int | float):
        yield str(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
