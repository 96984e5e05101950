"""Load a script from a file, a mapping or a record; wrong ones say where and why."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.testing.model.script import (
    Call,
    Fault,
    Script,
    Side,
    Step,
    Thread,
    Usage,
    When,
)

ScriptSource = Script | Mapping[str, Any] | str | Path

_STRUCTS = (Script, Step, Call, Fault, Usage, Thread, Side, When)
_KNOWN_FIELDS = sorted({field for struct in _STRUCTS for field in struct.__struct_encode_fields__})


class ScriptError(InputError):
    """The script of a scripted model is wrong; the message says where."""


def load_script(source: ScriptSource) -> Script:
    """Read and check a script."""
    if isinstance(source, Script):
        return source
    if isinstance(source, Mapping):
        return _checked(dict(source), "script")
    path = Path(source)
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"{path}: cannot read the script: {error.strerror or error}"
        raise ScriptError(message) from error
    return _checked(_parsed(raw, path), str(path))


def _parsed(raw: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path}{_line_of(raw, str(error))}: not JSON: {error}"
        raise ScriptError(message) from error


def _line_of(raw: bytes, said: str) -> str:
    found = re.search(r"byte (\d+)", said)
    return f":{raw[: int(found[1])].count(b'\n') + 1}" if found else ""


def _checked(data: Any, where: str) -> Script:
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        message = f"{where}: {error}{_suggestion(str(error))}"
        raise ScriptError(message) from error


def _suggestion(said: str) -> str:
    found = re.search(r"unknown field `(\w+)`", said)
    near = difflib.get_close_matches(found[1], _KNOWN_FIELDS, n=1) if found else []
    return f'; did you mean "{near[0]}"?' if near else ""
