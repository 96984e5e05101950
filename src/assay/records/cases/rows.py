"""A case as other formats write it, as a row of a prompt file."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.cases.assertions import Mapped, map_assertion
from assay.records.skills import SHOULD_TRIGGER
from assay.records.spec import Prompt

INPUTS = (
    *("input", "prompt", "query", "question", "instruction", "task", "message", "text"),
    *("user_prompt", "user_message", "user_input", "request"),
)
"""Fields that hold what a user would write; the first that is there counts."""
HINTS = (
    *("hint", "expected_output", "expected", "expected_answer", "expected_result", "answer"),
    *("ideal", "target", "expectedOutput", "expectedAnswer"),
)
ASSERTIONS = (
    *("assertions", "expectations", "asserts", "checks", "criteria", "success_criteria"),
    *("expected_behavior", "expected_behaviors", "expected_behaviour", "rubric", "must"),
    *("deterministic_assertions", "verifications", "expected_outcomes"),
)
_SHOULD = (SHOULD_TRIGGER, "should_trigger", "should_activate", "shouldActivate")
_ABOUT = (
    *("name", "title", "description", "category", "difficulty", "type", "group", "severity"),
    *("priority", "eval_name", "skill", "skill_name", "skills", "notes", "note", "comment", "why"),
    *("intent", "section", "source", "version"),
)
"""Fields that say something about a case, and go into its metadata."""
_PROMPT = frozenset(Prompt.__struct_encode_fields__)
_MOST_BYTES = 4 * 1024 * 1024
"""Of the input files of one case: they travel with every trial, and stand in every row."""


class Imported(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of a case of another format; stands in its rows as `imported`."""

    format: str
    checked: dict[str, str] = {}
    """Assertions that graders check: the assertion, and its graders."""
    unmapped: list[str] = []
    """What nothing here stands for, and why."""


class CaseSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where cases come from."""

    name: str
    format: str
    folders: Sequence[Path]
    """Where the files that cases name are looked for, one after the other."""
    skill: str = ""
    """The skill that all cases are about."""

    def place(self, number: int) -> str:
        return f"{self.name}, case {number}"


def case_row(case: Any, number: int, source: CaseSource) -> dict[str, Any]:
    """Return a case as a row of a prompt file: fields that a prompt has stay as they are."""
    if isinstance(case, str):
        case = {"input": case}
    if not isinstance(case, dict):
        msg = f"{source.place(number)}: expected an object or a text, not {case!r:.60}"
        raise InputError(msg)
    rest = dict(case)
    row: dict[str, Any] = {"id": _id(rest.pop("id", None), number)}
    found = Imported(format=source.format)
    if text := _input(rest):
        row["input"] = text
    metadata = _metadata(rest, source)
    hint = _take(rest, HINTS)
    if hint is not None:
        row["hint"] = hint if isinstance(hint, str) else _as_json(hint)
    _map_assertions(row, rest, found, hint)
    if "files" in rest and not _are_texts(rest["files"]):
        files = _files(rest.pop("files") or [], row, source, found)
        row |= {"files": files} if files else {}
    row |= {name: value for name, value in rest.items() if value not in (None, "")}
    if metadata:
        row["metadata"] = metadata
    if found.checked or found.unmapped or source.skill:
        row["imported"] = msgspec.to_builtins(found)
    return row


def _id(given: Any, number: int) -> Any:
    if given is None or given == "":
        return f"case-{number}"
    return str(given) if isinstance(given, int | float) else given


def _take(rest: dict[str, Any], names: Sequence[str]) -> Any:
    """Take the first of these fields that has a value; the others stay."""
    for name in names:
        if rest.get(name) not in (None, "", []):
            return rest.pop(name)
        rest.pop(name, None)
    return None


def _input(rest: dict[str, Any]) -> Any:
    for name in ("messages", "turns", "conversation"):
        if texts := _turns(rest.get(name)):
            del rest[name]
            return texts[0] if len(texts) == 1 else texts
    return _take(rest, INPUTS)


def _turns(given: Any) -> list[str]:
    """Return what the user says in a conversation."""
    if not isinstance(given, list):
        return []
    texts = [
        one.get("content") if isinstance(one, dict) and one.get("role", "user") == "user" else one
        for one in given
    ]
    return [text for text in texts if isinstance(text, str) and text.strip()]


def _metadata(rest: dict[str, Any], source: CaseSource) -> dict[str, Any]:
    given = rest.pop("metadata", None)
    found: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    if given is not None and not isinstance(given, dict):
        rest["metadata"] = given  # refused as in a prompt
    for name in _ABOUT:
        if rest.get(name) not in (None, ""):
            found.setdefault(name, rest.pop(name))
    should = _take(rest, _SHOULD)
    if should is not None:
        found[SHOULD_TRIGGER] = _truth(should)
    if source.skill:
        found.setdefault("skill", source.skill)
    return found


def _truth(value: Any) -> Any:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def _map_assertions(row: dict[str, Any], rest: dict[str, Any], found: Imported, hint: Any) -> None:
    """Make graders of assertions; of the expected result as a whole, if there are none."""
    given: list[Any] = []
    for name in ASSERTIONS:
        value = rest.get(name)
        if value in (None, "", []):
            continue
        del rest[name]
        given += value if isinstance(value, list) else [value]
    graders = _texts(rest.pop("graders", None))
    statements: list[str] = []
    for one in given:
        mapped = map_assertion(one)
        shown = one if isinstance(one, str) else _as_json(one)
        statements += keep(mapped, shown, graders, found)
    has_own = bool(graders or rest.get("expect") or given)
    if not has_own and isinstance(hint, str) and source_judges(found.format):
        statements.append(f"The result is as expected: {hint}")
    if graders:
        row["graders"] = graders
    if statements:
        expect = rest.pop("expect", None) or {}
        row["expect"] = {**expect, "judge": [*_texts(expect.get("judge")), *statements]}


def source_judges(name: str) -> bool:
    """Whether the expected output of a format is a description, not the answer itself."""
    return name == SKILL_EVALS


SKILL_EVALS = "Agent Skills evals"


def keep(mapped: Mapped, shown: str, graders: list[str], found: Imported) -> Sequence[str]:
    """Note what became of an assertion; return its statements for a judge."""
    if mapped.graders:
        graders += mapped.graders
        found.checked[shown] = ", ".join(mapped.graders)
    if mapped.unmapped:
        found.unmapped.append(mapped.unmapped)
    return mapped.statements


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _are_texts(files: Any) -> bool:
    """Whether files are given as a prompt gives them: texts by path."""
    return isinstance(files, dict)


def _files(
    given: Any, row: Mapping[str, Any], source: CaseSource, found: Imported
) -> dict[str, Any]:
    """Read the input files of a case; each is put where its prompt says that it is."""
    files: dict[str, Any] = {}
    left = _MOST_BYTES
    for one in [given] if isinstance(given, str) else given:
        if isinstance(one, dict) and isinstance(one.get("content"), str):
            files[str(one.get("path") or one.get("name"))] = one["content"]
            continue
        name = str(one.get("path") or one.get("file") or one) if isinstance(one, dict) else one
        path = _find(str(name), source.folders)
        if path is None:
            found.unmapped.append(f"files: {name}: there is no such file")
        elif path.stat().st_size > left:
            found.unmapped.append(f"files: {name}: too large to travel with each trial")
        else:
            data = path.read_bytes()
            left -= len(data)
            files[_place_in(row.get("input"), str(name))] = _content(data)
    return files


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """Return a file below the folders of a source; none that leads out of them."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
        return None
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_file() and path.is_relative_to(folder.resolve()):
            return path
    return None


def _place_in(text: Any, name: str) -> str:
    """Return where the prompt says that a file is, if it names one of that name."""
    base = PurePosixPath(name).name
    said = " ".join(text) if isinstance(text, list) else str(text or "")
    for word in re.findall(rf"[\w./-]*{re.escape(base)}", said):
        path = word.removeprefix("./")
        if not path.startswith("/") and ".." not in path.split("/") and "//" not in path:
            return str(path)
    return base


def _content(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def unknown_fields(row: Mapping[str, Any]) -> list[str]:
    """Return the fields of a row that a prompt does not have."""
    return [name for name in row if name not in _PROMPT]
