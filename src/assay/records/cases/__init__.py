"""Prompts in whatever file they stand: JSON Lines, JSON, YAML, CSV, and formats of other tools.

`prompt_lines` recognises the shape by the name and the content of the file, and yields every prompt
as a line of JSON, so that whoever reads prompts reads all of them. A file of JSON Lines is not
looked at any further: its lines are as they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.cases import promptfoo
from assay.records.cases.rows import INPUTS, SKILL_EVALS, CaseSource, case_row
from assay.records.cases.table import table_rows
from assay.records.files import temporary_file
from assay.records.rows import UNREADABLE, Place, RowFile, decode_json, open_rows, read_lines

_LISTS = (
    *("evals", "cases", "test_cases", "testCases", "tests", "tasks", "examples", "items", "data"),
    *("queries", "scenarios", "prompts", "rows"),
)
"""Fields of a document that may hold the list of its cases."""
_TABLES = {".csv": ",", ".tsv": "\t"}
_YAML = (".yaml", ".yml")
_LINES = (".jsonl", ".ndjson")
SHAPES = (
    "a prompt file is JSON Lines, a JSON array, YAML, CSV or TSV with a header, evals.json of a "
    "skill or a promptfoo configuration; see docs/prompts.md"
)


def prompt_lines(path: Path | None) -> Iterator[tuple[Place, bytes]]:
    """Yield the prompts of a file, or of stdin, each as a line of JSON with its place."""
    suffix = path.suffix.lower() if path is not None else ""
    if path is not None and suffix in _TABLES:
        for place, row in table_rows(path, _TABLES[suffix]):
            yield place, msgspec.json.encode(row)
        return
    if path is not None and suffix in _YAML:
        yield from _document_lines(read_yaml(path), path)
        return
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        return
    if not _may_be_document(first[1]):
        yield first
        yield from lines
        return
    kept = [first, *lines]
    document = _whole([line for _, line in kept], path)
    if document is None:
        yield from kept  # whoever decodes the first line says what is wrong with it
    else:
        yield from _document_lines(document, path)


def _may_be_document(line: bytes) -> bool:
    """Whether a file is one JSON document, as far as its first line tells."""
    text = line.strip()
    if text.startswith(b"["):
        return True
    if not text.startswith(b"{"):
        return False
    try:
        row = msgspec.json.decode(text)
    except UNREADABLE:
        return True  # it goes on in the next line, or it is broken
    return not any(name in row for name in INPUTS) and any(
        isinstance(row.get(name), list) for name in _LISTS
    )


def _whole(lines: list[bytes], path: Path | None) -> Any:
    """Return all lines as one document; None if they are not."""
    text = b"".join(lines)
    if lines[0].lstrip().startswith(b"["):
        return decode_json(str(path or "stdin"), text, hint=SHAPES)
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return None


def read_yaml(path: Path) -> Any:
    """Return what a file of YAML holds; needs the package PyYAML."""
    try:
        text = path.read_bytes()
        _check_yaml(text, path)
        return msgspec.yaml.decode(text)
    except ImportError as error:
        msg = f"{path}: reading YAML needs the package PyYAML"
        raise InputError(msg, hint="in a checkout of Assay: pip install '.[yaml]'") from error
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        msg = f"{path}: not YAML: {error}"
        raise InputError(msg) from error


_DEEPEST = 200
_MOST_EXPANDED = 64 * 1024 * 1024
"""Characters of a document with each alias written out, or twice the file if that is more."""


def _check_yaml(text: bytes, path: Path) -> None:
    """Refuse a small file that is a huge document by its aliases, or that nests without end.

    Who builds the document finds out too late: nesting ends the whole process.
    """
    import yaml  # type: ignore[import-untyped]  # as late as in msgspec: few need it, and it may be missing

    most = max(_MOST_EXPANDED, 2 * len(text))
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = [(None, 0)]
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                open_.append((event.anchor, 1))
                if len(open_) > _DEEPEST:
                    break
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, size = open_.pop()
            elif isinstance(event, yaml.ScalarEvent):
                anchor, size = event.anchor, 1 + len(event.value)
            elif isinstance(event, yaml.AliasEvent):
                anchor, size = None, sizes.get(event.anchor, 0)
            else:
                continue
            if anchor is not None:
                sizes[anchor] = size
            open_[-1] = (open_[-1][0], open_[-1][1] + size)
            if open_[-1][1] > most:
                break
        else:
            return
    except yaml.YAMLError as error:
        msg = f"{path}: not YAML: {error}"
        raise InputError(msg) from error
    what = "it is nested too deeply" if len(open_) > _DEEPEST else "its aliases make it too large"
    msg = f"{path}: {what}"
    raise InputError(
        msg, hint=f"at most {_DEEPEST} levels and {most >> 20} MB, aliases written out"
    )


def _document_lines(document: Any, path: Path | None) -> Iterator[tuple[Place, bytes]]:
    for place, row in document_rows(document, path):
        try:
            yield place, msgspec.json.encode(row)
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"{place}: cannot be written as JSON: {error}"
            raise InputError(msg) from error


def document_rows(document: Any, path: Path | None) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the prompts of a document, by the shape that it has."""
    name = str(path or "stdin")
    folder = path.parent if path is not None else Path()
    if promptfoo.is_config(document):
        yield from promptfoo.config_rows(document, name, folder, load_document)
        return
    cases, source = _cases_of(document, name, folder)
    for number, case in enumerate(cases, 1):
        yield source.place(number), case_row(case, number, source)


def load_document(path: Path) -> Any:
    """Return the content of a file that another one names."""
    if path.suffix.lower() in _YAML:
        return read_yaml(path)
    if path.suffix.lower() in _TABLES:
        return [row for _, row in table_rows(path, _TABLES[path.suffix.lower()], raw=True)]
    lines = [line for _, line in read_lines(path)]
    if path.suffix.lower() in _LINES:
        return [decode_json(str(path), line) for line in lines]
    return decode_json(str(path), b"".join(lines))


def _cases_of(document: Any, name: str, folder: Path) -> tuple[list[Any], CaseSource]:
    if isinstance(document, list):
        return document, CaseSource(name=name, format="JSON array", folders=[folder])
    if not isinstance(document, dict):
        msg = f"{name}: expected a list of prompts, not {document!r:.60}"
        raise InputError(msg, hint=SHAPES)
    skill = next((document[key] for key in ("skill_name", "skill") if document.get(key)), "")
    found = next((key for key in _LISTS if isinstance(document.get(key), list)), None)
    if found is None and any(key in document for key in INPUTS):
        return [document], CaseSource(name=name, format="JSON", folders=[folder])
    if found is None:
        keys = ", ".join(map(repr, list(document)[:8])) or "none"
        msg = f"{name}: there is no list of cases; its fields are: {keys}"
        raise InputError(msg, hint=SHAPES)
    is_skill = found == "evals" or bool(skill)
    return document[found], CaseSource(
        name=name,
        format=SKILL_EVALS if is_skill else f"JSON with {found}",
        # Paths are meant from the skill's folder, above that of evals.json, or from beside it.
        folders=[*([folder.resolve().parent] if is_skill else []), folder],
        skill=str(skill),
    )


@contextmanager
def open_prompts(path: Path | None, *, hint: str = "") -> Iterator[RowFile]:
    """Open a prompt file of any shape as a file of rows, which may be read several times."""
    suffix = path.suffix.lower() if path is not None else ""
    if path is None or suffix in (".jsonl", ".ndjson"):
        with open_rows(path, hint=hint) as rows:
            yield rows
        return
    with temporary_file() as file:
        for _, line in prompt_lines(path):
            file.write(line.rstrip(b"\n") + b"\n")
        file.flush()
        yield RowFile(str(path), file, hint=hint)
