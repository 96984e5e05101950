"""Cases in a configuration of promptfoo: prompts x tests, with variables and assertions."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.cases.assertions import Mapped, kind_of, map_typed, unmapped
from assay.records.cases.rows import INPUTS, CaseSource, Imported, keep
from assay.records.cases.table import with_columns
from assay.records.rows import Place

FORMAT = "promptfoo"
_USED = frozenset(
    ("prompts", "tests", "defaultTest", "assertionTemplates", "scenarios", "description", "$schema")
)
_OTHERS = ("providers", "targets", "scenarios", "defaultTest")
_OF_TEST = frozenset(
    ("vars", "assert", "description", "metadata", "options", "prompts", "threshold", "id")
)
_SHOWN = frozenset(("type", "value", "threshold", "weight", "metric", "provider", "$ref"))
_FILE_URL = "file://"
type Load = Callable[[Path], Any]


def is_config(document: Any) -> bool:
    """Whether a document is a configuration of promptfoo, or a list of its tests."""
    if isinstance(document, list):
        return bool(document) and all(_is_test(one) for one in document)
    if not isinstance(document, dict) or "evals" in document or "skill_name" in document:
        return False
    tests = document.get("tests")
    if isinstance(tests, str):
        return tests.startswith(_FILE_URL) or "prompts" in document
    if isinstance(tests, list) and tests and all(_is_test(one) for one in tests):
        return True
    return "prompts" in document and any(name in document for name in ("tests", *_OTHERS))


def _is_test(one: Any) -> bool:
    return isinstance(one, dict) and not any(name in one for name in INPUTS) and "vars" in one


def config_rows(
    document: Any, name: str, folder: Path, load: Load
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield a prompt for each prompt and each test; load reads a file that is named."""
    config = {"tests": document} if isinstance(document, list) else document
    source = CaseSource(name=name, format=FORMAT, folders=[folder])
    yield from _Config(config, source, load).rows()


class _Template(msgspec.Struct, frozen=True):
    """A prompt before its variables are filled in."""

    text: Any
    """A text, or messages."""
    label: str = ""


class _Config:
    def __init__(self, config: Mapping[str, Any], source: CaseSource, load: Load) -> None:
        self._config, self._source, self._load = config, source, load
        self._folder = source.folders[0]
        self._general = [
            f"{key}: not used; the agent, its options and its limits are those of Assay"
            for key in config
            if key not in _USED
        ]
        """What is not mapped of the whole file."""

    def rows(self) -> list[tuple[Place, dict[str, Any]]]:
        """Return the prompts; the first also names what is not mapped of the whole file."""
        default = self._default()
        templates = list(self._templates())
        tests = [one for test in self._tests() for one in _expanded(_merged(default, test))]
        rows: list[tuple[Place, dict[str, Any]]] = []
        for number, test in enumerate(tests, 1):
            chosen = _chosen(templates, test.get("prompts"))
            for position, template in enumerate(chosen, 1):
                label = f"test-{number}" + (f"-prompt-{position}" if len(chosen) > 1 else "")
                try:
                    row = self._row(template, test, str(test.get("id") or label))
                    rows.append((f"{self._source.name}, test {number}", row))
                except _NotFilled as error:
                    self._general.append(f"{label} is left out: {error}")
        if not rows:
            why = f": {self._general[-1]}" if self._general else ""
            msg = f"{self._source.name}: no test of it can be run{why}"
            raise InputError(msg)
        if self._general:
            imported = rows[0][1].setdefault("imported", {"format": FORMAT})
            imported["unmapped"] = [*self._general, *imported.get("unmapped", [])]
        return rows

    def _default(self) -> dict[str, Any]:
        found = self._config.get("defaultTest") or {}
        if isinstance(found, str):
            found = self._read(found)
        if not isinstance(found, dict):
            msg = f"{self._source.name}: defaultTest is neither an object nor a file of one"
            raise InputError(msg)
        return found

    def _read(self, reference: str) -> Any:
        """Return the content of a file, which is named from the folder of the configuration."""
        path = self._path(reference)
        if not path.is_file():
            msg = f"{self._source.name}: {reference}: there is no file {path}"
            raise InputError(msg)
        return self._load(path)

    def _path(self, reference: str) -> Path:
        """Return where a file is; raises InputError for one that is not the project's.

        What a file holds becomes a prompt, which is sent to a provider: a configuration of somebody
        else must not choose any file of the user, also not through a link.
        """
        path = self._folder / reference.removeprefix(_FILE_URL)
        root = _project_of(self._folder)
        real = Path(os.path.realpath(path)) if "\0" not in reference else Path()
        if real.is_relative_to(root) and ".git" not in real.relative_to(root).parts:
            return path
        msg = f"{self._source.name}: {reference}: not a file of this project"
        raise InputError(msg, hint=f"copy it to {self._folder}, or below {root}")

    def _tests(self) -> Iterator[dict[str, Any]]:
        given = self._config.get("tests")
        listed = given if isinstance(given, list) else [given] if given is not None else []
        for one in listed:
            yield from self._tests_of(one)
        for scenario in self._config.get("scenarios") or []:
            yield from self._scenario(scenario)
        if not listed and not self._config.get("scenarios"):
            yield {}

    def _tests_of(self, one: Any) -> Iterator[dict[str, Any]]:
        if isinstance(one, str):
            for name in self._matching(one.removeprefix(_FILE_URL)) if "*" in one else [one]:
                yield from self._file_tests(name)
        elif isinstance(one, dict) and "path" in one and "vars" not in one:
            yield from self._file_tests(str(one["path"]))
        elif isinstance(one, dict):
            yield one
        else:
            msg = f"{self._source.name}: a test is an object or a file, not {one!r:.60}"
            raise InputError(msg)

    def _file_tests(self, reference: str) -> Iterator[dict[str, Any]]:
        suffix = Path(reference.partition(":" if "://" not in reference else "\0")[0]).suffix
        if suffix not in (".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv"):
            self._general.append(f"tests {reference}: made by a program, which Assay does not run")
            return
        content = self._read(reference)
        for one in content if isinstance(content, list) else [content]:
            is_table = suffix in (".csv", ".tsv")
            yield _of_cells(one) if is_table else one

    def _scenario(self, scenario: Any) -> Iterator[dict[str, Any]]:
        if isinstance(scenario, str):
            scenario = self._read(scenario)
        for one in scenario if isinstance(scenario, list) else [scenario]:
            for data in one.get("config") or [{}]:
                for test in one.get("tests") or [{}]:
                    for read in self._tests_of(test):
                        yield _merged(data, read)

    def _templates(self) -> Iterator[_Template]:
        given = self._config.get("prompts")
        if given is None:
            name = self._only_variable()
            yield _Template("{{" + name + "}}")
            return
        for one in given if isinstance(given, list) else [given]:
            label = ""
            if isinstance(one, dict):
                label = str(one.get("label") or "")
                one = one.get("raw") or one.get("content") or one.get("id") or ""
            yield from self._template(one, label)

    def _only_variable(self) -> str:
        """Return the variable that is put to the agent where no prompt is given."""
        found = [
            name
            for test in self._config.get("tests") or []
            if isinstance(test, dict)
            for name in test.get("vars") or {}
        ]
        return next((name for name in INPUTS if name in found), found[0] if found else "prompt")

    def _template(self, text: Any, label: str) -> Iterator[_Template]:
        if not isinstance(text, str):
            yield _Template(text, label)
            return
        is_file = text.startswith(_FILE_URL) or (
            re.fullmatch(r"[\w./*-]+\.(txt|md|j2|json|yaml|yml|csv|py|js|mjs|ts|sh)(:\w+)?", text)
        )
        if not is_file and not text.startswith("exec:"):
            yield _Template(text, label or text)
            return
        pattern = text.removeprefix(_FILE_URL)
        for name in self._matching(pattern) if "*" in pattern else [text]:
            yield from self._file_template(name, text, label)

    def _matching(self, pattern: str) -> list[str]:
        """Return the files that a pattern stands for, from the folder of the configuration."""
        if Path(pattern).is_absolute():
            self._path(pattern.partition("*")[0])
        found = self._folder.glob(os.path.relpath(self._folder / pattern, self._folder))
        return sorted(str(path.absolute()) for path in found)

    def _file_template(self, name: str, named: str, label: str) -> Iterator[_Template]:
        if named.startswith("exec:") or Path(name).suffix not in (
            *(".txt", ".md", ".j2", ".json", ".yaml", ".yml", ".csv", ""),
        ):
            self._general.append(f"prompt {named}: made by a program, which Assay does not run")
            return
        path = self._path(name)
        if not path.is_file():
            msg = f"{self._source.name}: {named}: there is no file {path}"
            raise InputError(msg)
        if path.suffix in (".json", ".yaml", ".yml", ".csv"):
            content = self._load(path)
            rows = content if path.suffix == ".csv" else [content]
            for row in rows:
                text = row.get("prompt", row) if isinstance(row, dict) else row
                yield _Template(text, label or path.name)
            return
        for part in re.split(r"(?m)^---\s*$", path.read_text(encoding="utf-8")):
            if part.strip():
                yield _Template(part.strip(), label or path.name)

    def _row(self, template: _Template, test: Mapping[str, Any], id_: str) -> dict[str, Any]:
        found = Imported(format=FORMAT)
        values = {name: self._value(value, found) for name, value in _vars(test).items()}
        options = test.get("options") or {}
        text = _turns(template.text, values, found)
        if isinstance(text, str):
            text = f"{options.get('prefix', '')}{text}{options.get('suffix', '')}"
        row: dict[str, Any] = {"id": id_, "input": text}
        metadata = dict(test.get("metadata") or {})
        if test.get("description"):
            metadata["description"] = test["description"]
        graders, statements = self._assertions(test, values, found)
        for key in ("threshold", "assertScoringFunction"):
            if test.get(key) is not None:
                found.unmapped.append(f"{key} of the test: here every assertion has to hold")
        found.unmapped += [
            f"options.{key}: Assay has nothing like it"
            for key in options
            if key in ("transform", "postprocess", "transformVars", "storeOutputAs")
        ]
        found.unmapped += [
            f"{key} of the test: Assay has nothing like it"
            for key in test
            if key not in _OF_TEST and key not in ("assertScoringFunction", "columns")
        ]
        if graders:
            row["graders"] = graders
        if statements:
            row["expect"] = {"judge": statements}
        row["metadata"] = {**metadata, "vars": values}
        row["imported"] = msgspec.to_builtins(found)
        return with_columns(row, test.get("columns") or {}, FORMAT)

    def _value(self, value: Any, found: Imported) -> Any:
        """Return a variable; the content of a file that it names."""
        if not isinstance(value, str) or not value.startswith(_FILE_URL):
            return value
        path = self._path(value)
        if path.suffix not in (".txt", ".md", ".json", ".yaml", ".yml", ".csv", ".html", ".xml"):
            found.unmapped.append(f"variable {value}: not a text")
            return ""
        if not path.is_file():
            msg = f"{self._source.name}: {value}: there is no file {path}"
            raise InputError(msg)
        return path.read_text(encoding="utf-8")

    def _assertions(
        self, test: Mapping[str, Any], values: Mapping[str, Any], found: Imported
    ) -> tuple[list[str], list[str]]:
        graders: list[str] = []
        statements: list[str] = []
        for one in _flat(test.get("assert") or [], found):
            template = self._resolved(one)
            mapped = self._mapped(template, values)
            shown = msgspec.json.encode(
                {key: value for key, value in template.items() if key in _SHOWN}
            ).decode()
            statements += keep(mapped, shown, graders, found)
        return graders, statements

    def _resolved(self, one: Any) -> dict[str, Any]:
        """Return an assertion; a $ref leads to a template."""
        if not isinstance(one, dict):
            return {"type": "llm-rubric", "value": one}
        name = str(one.get("$ref", "")).rpartition("/")[2]
        templates = self._config.get("assertionTemplates") or {}
        return {**templates[name], **one} if name in templates else one

    def _mapped(self, one: Mapping[str, Any], values: Mapping[str, Any]) -> Mapped:
        kind = kind_of(one.get("type"))
        value = one.get("value")
        for key in ("transform", "contextTransform"):
            if one.get(key):
                return unmapped(f"{kind} with {key}", "the output of an agent is judged as it is")
        if one.get("weight") == 0:
            return unmapped(f"{kind} with weight 0", "a measurement, not a condition")
        if kind in ("llm-rubric", "g-eval") and one.get("threshold") is not None:
            return unmapped(f"{kind} with a threshold", "a judge finds a statement true or not")
        if isinstance(value, str) and value.startswith(_FILE_URL):
            if kind in ("python", "javascript"):
                return self._code(kind, value)
            value = self._content(value, kind)
            if isinstance(value, Mapped):
                return value
        try:
            return map_typed(kind, {**one, "value": _filled(value, values)})
        except _NotFilled as error:
            return unmapped(f"{kind} {value!r:.60}", str(error))

    def _code(self, kind: str, reference: str) -> Mapped:
        name, colon, function = reference.removeprefix(_FILE_URL).partition(":")
        path = self._path(name)
        if kind == "javascript" or (colon and function != "get_assert"):
            why = "only a Python file with get_assert or grade is taken as a grader"
            return unmapped(f"{kind} {reference}", why)
        if not path.is_file():
            return unmapped(f"{kind} {reference}", "there is no such file")
        if not re.search(r"(?m)^(?:async )?def (?:grade|get_assert)\b", path.read_text("utf-8")):
            return unmapped(f"{kind} {reference}", "it defines neither get_assert nor grade")
        return Mapped(graders=(name.removeprefix("./"),))

    def _content(self, reference: str, kind: str) -> Any:
        """Return what a file holds that stands in place of a value."""
        path = self._path(reference)
        if not path.is_file() or path.suffix in (".js", ".mjs", ".ts", ".py", ".rb"):
            return unmapped(f"{kind} {reference}", "not a file of text")
        if path.suffix in (".json", ".yaml", ".yml"):
            return self._load(path)
        return path.read_text(encoding="utf-8").strip()


def _project_of(folder: Path) -> Path:
    """Return the repository that a folder is in, or the folder itself."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _of_cells(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the test that a row of a table stands for."""
    special = {name: cell for name, cell in cells.items() if name.startswith("__")}
    values = {name: cell for name, cell in cells.items() if name not in special}
    return {"vars": values, "columns": special}


def _vars(test: Mapping[str, Any]) -> dict[str, Any]:
    found = test.get("vars")
    return dict(found) if isinstance(found, dict) else {}


def _merged(default: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test with what all tests have."""
    merged = {**default, **test}
    for key in ("vars", "metadata", "options"):
        both = {**(default.get(key) or {}), **(test.get(key) or {})}
        if both:
            merged[key] = both
    merged["assert"] = [*(default.get("assert") or []), *(test.get("assert") or [])]
    return merged


_MOST_COMBINATIONS = 100_000


def _expanded(test: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a test for each combination of the values that its variables list."""
    values = _vars(test)
    if (test.get("options") or {}).get("disableVarExpansion"):
        yield test
        return
    names = [name for name, value in values.items() if isinstance(value, list) and value]
    if (n := prod(len(values[name]) for name in names)) > _MOST_COMBINATIONS:
        msg = f"the lists in the variables of a test have {n:,} combinations"
        hint = (
            f"at most {_MOST_COMBINATIONS:,}; options.disableVarExpansion leaves them as they are"
        )
        raise InputError(msg, hint=hint)
    for chosen in product(*(values[name] for name in names)):
        yield {**test, "vars": {**values, **dict(zip(names, chosen, strict=True))}}


def _chosen(templates: Sequence[_Template], labels: Any) -> list[_Template]:
    """Return the prompts that a test is for."""
    if not labels:
        return [*templates]
    wanted = labels if isinstance(labels, list) else [labels]
    return [
        one
        for one in templates
        if any(
            one.label == label or one.label.startswith(f"{str(label).removesuffix('*')}:")
            for label in wanted
        )
    ]


def _flat(given: Any, found: Imported) -> Iterator[Any]:
    """Yield single assertions; a set of which some have to hold is not mapped."""
    for one in given if isinstance(given, list) else [given]:
        if not isinstance(one, dict) or one.get("type") != "assert-set":
            yield one
        elif one.get("threshold") not in (None, 1, 1.0):
            found.unmapped.append("assert-set with a threshold: here every assertion has to hold")
        else:
            yield from _flat(one.get("assert") or [], found)


def _turns(text: Any, values: Mapping[str, Any], found: Imported) -> Any:
    """Return what is put to the agent: a text, or the turns of the user in a list of messages."""
    if isinstance(text, str) and text.lstrip().startswith("["):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            text = msgspec.json.decode(text)
    if not isinstance(text, list):
        return str(_filled(text, values))
    said = [_said(one) for one in text]
    system = [_filled(words, values) for role, words in said if role == "system"]
    turns = [_filled(words, values) for role, words in said if role == "user"]
    if any(role not in ("system", "user") for role, _ in said):
        found.unmapped.append("messages of the assistant: the agent writes them itself")
    if system and turns:
        turns[0] = "\n\n".join([*system, turns[0]])
    return turns[0] if len(turns) == 1 else turns


def _said(message: Any) -> tuple[str, Any]:
    if not isinstance(message, dict):
        return "user", message
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(
            str(part["text"]) for part in content if isinstance(part, dict) and "text" in part
        )
    return str(message.get("role", "user")), content


class _NotFilled(Exception):
    """A template has more than variables."""


_VARIABLE = re.compile(r"\{\{(.{0,1000}?)\}\}", re.DOTALL)
_MOST_FILLED = 4 * 1024 * 1024
"""Characters that the variables of a text become: each may name others that name others."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[['\"]?\w+['\"]?\])*")
_FILTERS: Mapping[str, Callable[[Any], str]] = {
    "trim": lambda value: _as_text(value).strip(),
    "upper": lambda value: _as_text(value).upper(),
    "lower": lambda value: _as_text(value).lower(),
    "dump": lambda value: msgspec.json.encode(value).decode(),
    "tojson": lambda value: msgspec.json.encode(value).decode(),
    "safe": lambda value: _as_text(value),
    "string": lambda value: _as_text(value),
}


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Fill variables into all texts of a value, some of which have variables themselves."""
    if isinstance(value, list):
        return [_filled(one, values) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, values) for key, one in value.items()}
    if not isinstance(value, str) or "{" not in value:
        return value
    text, n_left = value, _MOST_FILLED

    def fill(found: re.Match[str]) -> str:
        nonlocal n_left
        filled = _variable(found[1].removeprefix("-").removesuffix("-").strip(), values)
        n_left -= len(filled)
        if n_left < 0:
            msg = f"its variables are more than {_MOST_FILLED} characters"
            raise _NotFilled(msg)
        return filled

    for _ in range(3):  # a variable may name another one
        if "{%" in text:
            msg = "a template with {% … %} is not filled in"
            raise _NotFilled(msg)
        filled = _VARIABLE.sub(fill, text)
        if filled == text:
            break
        text = filled
    return text


def _variable(expression: str, values: Mapping[str, Any]) -> str:
    name, *filters = (part.strip() for part in expression.split("|"))
    if not _NAME.fullmatch(name) or any(one not in _FILTERS for one in filters):
        msg = f"{{{{{expression}}}}} is more than a variable"
        raise _NotFilled(msg)
    value: Any = values
    for part in re.findall(r"\w+", name):
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                value = msgspec.json.decode(value)
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            msg = f"there is no variable {name}"
            raise _NotFilled(msg)
    for one in filters:
        value = _FILTERS[one](value)
    return _as_text(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
