"""Which skills an agent used, read from the steps of its trajectory.

Claude Code, Gemini CLI and OpenCode have a tool that loads a skill; Codex, and each of the others
when it likes, opens the skill's SKILL.md. A skill that the agent was only offered, or whose file it
only listed, searched or wrote, was not used.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assay.records.capture import Message, ToolCall

SHOULD_TRIGGER = "shouldTrigger"
"""In the metadata of a prompt: whether a skill is to be used for it."""
_FILE = "SKILL.md"
_LOADERS = {"skill": ("skill", "name", "command"), "activate_skill": ("name", "skill")}
"""Tools that load a skill, in lower case, and where their input names it."""
_NO_READER = re.compile(
    r"write|edit|patch|replace|create|delete|remove|move|rename|glob|grep|search|find|list|^ls$",
    re.IGNORECASE,
)
"""Tools that name a file without reading it; of a search the agent sees single lines."""
_READERS = {"cat", "head", "tail", "sed", "awk", "less", "more", "nl", "bat", "batcat", "tac"}
_SHELLS = {"sh", "bash", "zsh", "dash", "ksh"}
_KEYWORDS = {"do", "then", "else", "time", "sudo", "command", "builtin", "!"}
"""Words that stand before a command."""
_SCRIPTS = {"cmd", "command", "script", "code"}
"""Where the input of a tool has shell commands."""
_INTERPRETER = re.compile(r"python|node|bun|deno|ruby|perl")
_PATH = re.compile(r"(?<![\w.~/-])[\w.~/-]+/SKILL\.md")
_HEAD = re.compile(r"^[^\n]{0,12}---[ \t]*\n[^\n]{0,12}\bname:[ \t]*[\"']?([\w.:-]+)", re.MULTILINE)
"""The first lines of a SKILL.md, which may have line numbers before them."""
_FAILED = ("failed", "error")
_MOST_CHARS = 64 * 1024
"""Of a command; agents may write very long ones."""


class SkillUse(NamedTuple):
    """A skill that was used, and the step that shows it."""

    skill: str
    """The name that the tool was called with, without a plugin before it; or the name of the
    folder that the SKILL.md is in."""
    step: int
    """Index in the trajectory."""


def skills_used(steps: Iterable[ToolCall | Mapping[str, Any] | Any]) -> list[SkillUse]:
    """Return each skill that the steps show to be used, once, in the order of first use.

    A step is a record or, as in a row on disk, a plain dict. Steps of sub-agents count.
    """
    found: dict[str, SkillUse] = {}
    for number, step in enumerate(steps):
        for skill in skills_in(step):
            found.setdefault(skill, SkillUse(skill, number))
    return list(found.values())


def skills_in(step: ToolCall | Mapping[str, Any] | Any, *, asked: bool = False) -> list[str]:
    """Return the skills that one step uses; only a tool call uses any.

    asked: also one that a tool was asked to load and could not.
    """
    if isinstance(step, ToolCall):
        step = {name: getattr(step, name) for name in ("name", "status", "input", "output")}
    elif not isinstance(step, Mapping) or step.get("type") != "tool_call":
        return []
    name, given = str(step.get("name", "")), step.get("input")
    failed = step.get("status") in _FAILED
    if keys := _LOADERS.get(name.lower()):
        return [] if failed and not asked else _loaded(given, keys)
    if _NO_READER.search(name):
        return []
    skills = [_folder(path) for path in _read_files(given)]
    if skills and (failed or "" in skills):
        # Which of several files were read, only the output can tell.
        skills = [*([] if failed else skills), *_shown_in(step.get("output"))]
    return [skill for skill in dict.fromkeys(skills) if skill]


def _loaded(given: Any, keys: Sequence[str]) -> list[str]:
    values = [given] if isinstance(given, str) else []
    if isinstance(given, Mapping):
        values = [given[key] for key in keys if isinstance(given.get(key), str)]
    # A plugin's skill is called plugin:skill, and one typed by a user /skill.
    names = (value.strip().lstrip("/").rpartition(":")[2] for value in values[:1])
    return [name for name in names if name]


def _read_files(given: Any, key: str = "", folder: str = "") -> Iterator[str]:
    """Yield the SKILL.md files in the input of a tool that reads files or runs programs."""
    if isinstance(given, Mapping):
        folder = next((str(given[k]) for k in ("workdir", "cwd", "dir_path") if given.get(k)), "")
        for name, value in given.items():
            yield from _read_files(value, str(name), folder)
    elif isinstance(given, list):
        if key in _SCRIPTS and all(isinstance(word, str) for word in given):
            yield from _read_by_words(given, folder)
            return
        for value in given:
            yield from _read_files(value, key, folder)
    elif isinstance(given, str) and _FILE in given[:_MOST_CHARS]:
        if key in _SCRIPTS or not key:
            yield from _read_by_shell(given[:_MOST_CHARS], folder)
        elif PurePosixPath(given).name == _FILE:
            yield f"{folder}/{given}" if given == _FILE else given


def _read_by_shell(script: str, folder: str) -> Iterator[str]:
    """Yield the SKILL.md files that the commands of a script read."""
    try:
        lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|()<>\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words = list(lexer)
    except ValueError:
        words = script.split()
    for command in _simple_commands(words):
        if command[0] == "cd" and len(command) > 1:
            folder = str(PurePosixPath(folder, command[1]))
        else:
            yield from _read_by_words(command, folder)


def _simple_commands(words: Iterable[str]) -> Iterator[list[str]]:
    """Split words at the operators of a shell; the files that > writes to are left out."""
    command: list[str] = []
    is_target = False
    for word in [*words, "\n"]:
        if set(word) <= set(";&|()\n") or (word and set(word) <= set("<>&|")):
            is_target = ">" in word
            if not set(word) & set("<>") and command:
                yield command
                command = []
        elif is_target:
            is_target = False
        else:
            command.append(word)


def _read_by_words(words: Sequence[str], folder: str) -> Iterator[str]:
    # Not NAME=VALUE, which may stand before a program.
    rest = [word for word in words if "=" not in word.partition("/")[0]]
    while rest and rest[0] in _KEYWORDS:
        rest.pop(0)
    if not rest:
        return
    program = PurePosixPath(rest[0]).name
    if program in _SHELLS and len(rest) > 2 and rest[1].startswith("-") and "c" in rest[1]:
        yield from _read_by_shell(rest[2], folder)
    elif program in _READERS:
        in_place = program == "sed" and any(word.startswith("-i") for word in rest[1:])
        paths = [word for word in rest[1:] if PurePosixPath(word).name == _FILE]
        yield from [] if in_place else [str(PurePosixPath(folder, path)) for path in paths]
    elif _INTERPRETER.match(program):
        yield from (found[0] for word in rest[1:] for found in _PATH.finditer(word))


def _folder(path: str) -> str:
    """Return the name of the folder that a SKILL.md is in; empty if that cannot be known."""
    name = PurePosixPath(path).parent.name
    return "" if set(name) & set("*?[]{}$") or name == ".." else name


def _shown_in(output: Any) -> list[str]:
    """Return the names of the skills whose head stands in the output of a tool."""
    return [found[1] for found in _HEAD.finditer(output)] if isinstance(output, str) else []


def fires(step: ToolCall | Mapping[str, Any] | Any, skill: str, marker: str = "") -> bool:
    """Whether a step shows that the agent chose a skill: it asked for it or opened its SKILL.md.

    marker is a text that only the skill's file has: an agent that says it, or whose tool prints
    it, has read that file by whatever means.
    """
    if skill in skills_in(step, asked=True):
        return True
    return bool(marker) and any(marker in text for text in _texts(step))


def _texts(step: Any) -> Iterator[str]:
    """Yield what the agent says in a step, or what a tool printed."""
    if isinstance(step, Message):
        yield step.content
    elif isinstance(step, ToolCall):
        yield _as_text(step.output)
    elif isinstance(step, Mapping) and step.get("type") in ("message", "tool_call"):
        yield _as_text(step.get("content" if step["type"] == "message" else "output"))


def loaded_from(step: Mapping[str, Any], skill: str) -> str | None:
    """Return the folder that a step of a row on disk loads a skill from, as far as it names one."""
    if skill not in skills_in(step, asked=True):
        return None
    shown = [_as_text(step.get("input")), _as_text(step.get("output"))[:_MOST_CHARS]]
    place = re.compile(rf"([~$/.\w][^\s\"'`<>]*/)?{re.escape(skill)}/(?:SKILL\.md|(?=\s))")
    found = (match[1] for text in shown for match in place.finditer(text) if match[1])
    return next((f"{folder}{skill}" for folder in found), None)


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(map(_as_text, value.values()))
    if isinstance(value, list):
        return "\n".join(map(_as_text, value))
    return value if isinstance(value, str) else ""
