"""Built-in `json-schema`: the answer is JSON of the right shape."""

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from assay.errors import InputError, PluginError
from assay.graders.fingerprint import fingerprint
from assay.graders.guard import PythonCode
from assay.records.grade import Grade
from assay.seams import Trial

_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n`]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass
class JsonSchema(PythonCode):
    """The answer is JSON, or has JSON in its last fenced block. schema is a file, or the schema."""

    name: ClassVar[str] = "json-schema"
    schema: str | dict[str, Any] = ""

    def __post_init__(self) -> None:
        if self.schema == "":
            msg = "json-schema: no schema is given"
            raise InputError(msg, hint="for example: -g json-schema:answer.schema.json")
        if isinstance(self.schema, str):
            self.schema = _read(Path(self.schema))
        _ = self._validator

    @cached_property
    def version(self) -> str:
        """Fingerprint of the schema and of the library that reads it."""
        from importlib.metadata import version

        return fingerprint(Path(__file__).read_bytes(), self.schema, version("jsonschema"))

    def judge(self, trial: Trial) -> Grade:
        """Validate; the first problems stand in the reasoning."""
        try:
            value = find_json(trial.output)
        except ValueError as error:
            return Grade(pass_=False, score=0.0, reasoning=str(error))
        try:
            problems = [
                f"{error.json_path}: {error.message[:200]}"
                for error in self._validator.iter_errors(value)
            ]
        except RecursionError:
            problems = ["nested too deeply"]
        said = "; ".join(problems[:3]) or "valid"
        return Grade(pass_=not problems, score=float(not problems), reasoning=said)

    @cached_property
    def _validator(self) -> Any:
        try:
            library: Any = import_module("jsonschema")
            registry = import_module("referencing").Registry()  # an empty one fetches nothing
        except ImportError as error:
            msg = "the grader json-schema needs the package jsonschema"
            raise PluginError(msg, hint="pip install 'assay[grade]'") from error
        kind = library.validators.validator_for(self.schema)
        try:
            kind.check_schema(self.schema)
        except library.SchemaError as error:
            msg = f"not a JSON Schema: {error.json_path}: {error.message}"
            raise InputError(msg) from error
        return kind(self.schema, registry=registry)


def find_json(text: str) -> Any:
    """Read a text as JSON, or else its last fenced block."""
    stripped = text.strip()
    blocks = [found[2] for found in _FENCE.finditer(text)]
    for candidate in [stripped, *blocks[-1:]]:
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    msg = "the last fenced block is not JSON" if blocks else "the answer is not JSON"
    raise ValueError(msg)


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        msg = f"schema not found: {path}: {error.strerror}"
        raise InputError(msg) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{path}: not JSON: {error}"
        raise InputError(msg) from error
