"""Cases in a table: CSV or TSV with a header."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.cases.assertions import Mapped, grader, map_prefixed
from assay.records.cases.rows import INPUTS, CaseSource, Imported, case_row, keep
from assay.records.rows import Place
from assay.records.spec import Prompt

_EXPECTED = re.compile(r"__expected\d*")
_SPECIAL = "__"
_LISTS = {"graders", "tags"}
_DEEPEST = 20
_LONGEST = 16 * 1024 * 1024


def table_rows(
    path: Path, separator: str, *, raw: bool = False
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the rows of a table as prompts; raw: as cells by column."""
    source = CaseSource(name=str(path), format="table", folders=[path.parent])
    for number, (place, cells) in enumerate(_records(path, separator), 1):
        yield place, cells if raw else _prompt(cells, number, source, place)


def _records(path: Path, separator: str) -> Iterator[tuple[Place, dict[str, str]]]:
    csv.field_size_limit(_LONGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(header, path)
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) > len(header):
                    msg = f"{path}:{reader.line_num}: {len(cells)} cells, and {len(header)} columns"
                    raise InputError(msg, hint="put a cell that has a separator in double quotes")
                yield f"{path}:{reader.line_num}", dict(zip(header, cells, strict=False))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        msg = f"{path}: not a table of UTF-8 text: {error}"
        raise InputError(msg) from error


def _check_header(header: list[str], path: Path) -> None:
    counts = Counter(header)
    twice = next((name for name in header if name and counts[name] > 1), None)
    if twice is not None:
        msg = f"{path}:1: the column {twice!r} is there twice"
        raise InputError(msg, hint="give every column a name of its own")


def _prompt(cells: dict[str, str], number: int, source: CaseSource, place: Place) -> dict[str, Any]:
    if not any(name in cells for name in (*INPUTS, "messages", "turns")):
        msg = f"{source.name}:1: no column holds what a user writes; there are: {', '.join(cells)}"
        raise InputError(msg, hint='call one of them "input"')
    given: dict[str, Any] = {}
    special: dict[str, str] = {}
    for name, cell in cells.items():
        if name.startswith(_SPECIAL):
            special[name] = cell
        elif cell.strip():
            _put(given, name, cell, place)
    row = case_row(given, number, source)
    return with_columns(row, special, source.format)


def _put(given: dict[str, Any], name: str, cell: str, place: Place) -> None:
    """Put a cell where its column says: metadata.topic, or a field."""
    *parents, last = name.split(".", _DEEPEST)
    for parent in parents:
        given = given.setdefault(parent, {})
        if not isinstance(given, dict):
            msg = f"{place}: the columns {parent!r} and {name!r} do not fit together"
            raise InputError(msg)
    given[last] = _value(last, cell, place)


def _value(name: str, cell: str, place: Place) -> Any:
    text = cell.strip()
    if name in Prompt.__struct_encode_fields__ and name not in ("input", "hint", "reference", "id"):
        if name == "timeout" or text[:1] in "[{" or text in ("true", "false"):
            try:
                return msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                msg = f"{place}: the column {name!r} is not JSON: {error}"
                raise InputError(msg) from error
        if name in _LISTS:
            return [part.strip() for part in text.split(",")] if name == "tags" else [text]
    return cell


def with_columns(row: dict[str, Any], special: dict[str, str], name: str) -> dict[str, Any]:
    """Return a row with what the columns say that promptfoo has: __expected and the like."""
    found = msgspec.convert(row.get("imported", {"format": name}), Imported)
    graders = list(row.get("graders", ()))
    statements: list[str] = []
    for column, cell in special.items():
        if _EXPECTED.fullmatch(column) and cell.strip():
            statements += keep(expected(cell), cell, graders, found)
        elif cell.strip() and not _put_special(row, column, cell):
            found.unmapped.append(f"{column} {cell!r:.40}: Assay has nothing like it")
    if graders:
        row["graders"] = graders
    if statements:
        expect = row.get("expect") or {}
        row["expect"] = {**expect, "judge": [*expect.get("judge", []), *statements]}
    if found.checked or found.unmapped:
        row["imported"] = msgspec.to_builtins(found)
    return row


def _put_special(row: dict[str, Any], column: str, cell: str) -> bool:
    """Put a cell into a row; return whether there is a place for it."""
    metadata = row.get("metadata") or {}
    if column.startswith("__metadata:"):
        key = column.removeprefix("__metadata:")
        is_list = key.endswith("[]")
        value = [part.strip() for part in re.split(r"(?<!\\),", cell)] if is_list else cell
        row["metadata"] = {**metadata, key.removesuffix("[]"): value}
    elif column == "__description":
        row["metadata"] = {**metadata, "description": cell}
    elif column in ("__prefix", "__suffix") and isinstance(row.get("input"), str):
        text = row["input"]
        row["input"] = f"{cell}{text}" if column == "__prefix" else f"{text}{cell}"
    else:
        return False
    return True


def expected(cell: str) -> Mapped:
    """Return what a cell of __expected becomes; without a type, the answer has to be equal."""
    return map_prefixed(cell) or grader("exact", text=cell.strip())
