"""The page on the scripted model names every field, and its schema agrees with what is loaded."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model.script import (
    Call,
    Fault,
    Script,
    ScriptError,
    Side,
    Step,
    Thread,
    Usage,
    When,
    load_script,
)

PAGE = (Path(__file__).parents[2] / "docs" / "mock-model.md").read_text()
FIELDS = [
    (struct.__name__, field)
    for struct in (Script, Step, Call, Fault, Usage, Thread, Side, When)
    for field in struct.__struct_encode_fields__
]
EXAMPLE = re.search(r"```json file=script.json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("struct", "field"), FIELDS)
def test_the_page_names_every_field(struct: str, field: str) -> None:
    assert re.search(rf"`{field}`", PAGE), f"{struct}.{field}"


@pytest.fixture(scope="module")
def schema() -> Any:
    command = [sys.executable, "-m", "assay", "schemas", "ModelScript"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


GOOD = [
    {"steps": [{"text": "Four."}]},
    {"steps": [{"calls": [{"tool": "shell", "command": "ls"}], "faults": [{"status": 429}]}]},
    {"scripts": {"a": {"steps": [{"text": ["a", "b"], "usage": {"input": 1}}]}}},
    {
        "steps": [{"calls": [{"name": "Task", "byProvider": {"chat": {"name": "task"}}}]}],
        "threads": [{"when": {"firstUserContains": "x"}, "steps": []}],
        "side": [{"when": {"provider": "gemini"}, "answer": {"text": "t"}}],
    },
    {"steps": [{"faults": [{"status": 500, "body": {"error": 1}, "times": "always"}]}]},
]
BAD = [
    {"steps": [{"txt": "Four."}]},
    {"steps": [{"text": 4}]},
    {"steps": [{"calls": [{"tool": "teleport"}]}]},
    {"steps": [{"faults": [{"status": 42}]}]},
    {"steps": [{"usage": {"input": -1}}]},
    {"select": "random", "steps": [{}]},
]


@pytest.mark.parametrize("script", GOOD, ids=range(len(GOOD)))
def test_the_schema_accepts_what_is_loaded(script: Any, schema: Any) -> None:
    import jsonschema

    load_script(script)
    jsonschema.validate(script, schema)


@pytest.mark.parametrize("script", BAD, ids=range(len(BAD)))
def test_the_schema_refuses_what_is_refused(script: Any, schema: Any) -> None:
    import jsonschema

    with pytest.raises(ScriptError):
        load_script(script)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(script, schema)


def test_the_example_of_the_page_is_a_script(schema: Any) -> None:
    import jsonschema

    assert EXAMPLE is not None
    jsonschema.validate(json.loads(EXAMPLE[1]), schema)
    assert load_script(json.loads(EXAMPLE[1])).toolless == "step"
