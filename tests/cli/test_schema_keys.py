"""Keys of a schema file that Assay does not know: ignored with a warning, refused by --strict."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import assay as library
from assay.library.worker import AssayWarning
from assay.records.adapter_schema import AdapterSchema
from assay.records.catalogue import json_schema

REMARKS = {
    **{"$schema": "https://example.org/s.json", "$comment": "c", "_comment": ["ours"]},
    **{"description": "words", "x-vendor": {"any": 1}, "_note": 3, "comment": "why"},
}
MISSPELT = [
    (("timout",), 5, "timeout"),
    (("outputEvents", 0, "emitas"), "message", "outputEvents[0].emitAs"),
    (("outputEvents", 1, "match", "vaule"), "x", "outputEvents[1].match.value"),
    (("outputEvents", 1, "extract", "contents"), "$.x", "outputEvents[1].extract.content"),
    (("result", "contentpath"), "$.x", "result.contentPath"),
    (("prompt", "stdinformat"), "json", "prompt.stdinFormat"),
    (("output", "vlaue"), "x", "output.value"),
    (("resume", "sessionId"), "$.id", "resume.sessionIdPath"),
    (("ignore", 0, "pth"), "$.x", "ignore[0].path"),
]


def _with(schema: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    schema = json.loads(json.dumps(schema))
    node: Any = schema
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return schema


def _everywhere(node: Any) -> Any:
    if isinstance(node, list):
        return [_everywhere(item) for item in node]
    if isinstance(node, dict):
        return {**{key: _everywhere(value) for key, value in node.items()}, **REMARKS}
    return node


def test_remarks_are_taken_everywhere_without_a_word(
    assay: Callable, prompts: Callable, agent: Callable, schema: dict[str, Any]
) -> None:
    path = agent(**_everywhere(schema))
    for strict in ((), ("--strict",)):
        done = assay("capture", prompts("hi"), "-s", path, *strict)
        assert (done.code, len(done.rows)) == (0, 1), done.stderr
        assert "unknown" not in done.stderr
        assert "failure" not in done.rows[0]
    exported = json_schema("AdapterSchema", AdapterSchema)
    jsonschema.validate(json.loads(path.read_text()), exported)
    with pytest.raises(jsonschema.ValidationError, match="timout"):
        jsonschema.validate({**schema, "timout": 5}, exported)


@pytest.mark.parametrize(("place", "value", "near"), MISSPELT, ids=lambda one: str(one)[:30])
def test_a_misspelt_key_is_named_once_with_the_nearest(
    assay: Callable,
    prompts: Callable,
    agent: Callable,
    schema: dict[str, Any],
    place: tuple[Any, ...],
    value: Any,
    near: str,
) -> None:
    path = agent(**_with(schema, place, value))
    file = prompts("one", "two")
    done = assay("capture", file, "-s", path, "-j", "2", "--quiet")
    assert (done.code, len(done.rows)) == (0, 2), done.stderr
    assert done.stderr.count(f'did you mean "{near}"?') == 1
    assert f"Warning: {path.name}: unknown field" in done.stderr
    refused = assay("capture", file, "-s", path, "--strict")
    assert (refused.code, refused.rows) == (1, [])
    assert f'did you mean "{near}"?' in refused.stderr
    assert "--strict" in refused.stderr


def test_a_key_that_resembles_none_is_named_with_all(
    assay: Callable, prompts: Callable, agent: Callable, schema: dict[str, Any]
) -> None:
    path = agent(prompt={**schema["prompt"], "colour\x1b[31m": "red"})
    done = assay("run", prompts("hi"), "-s", path)
    assert done.code == 0
    assert "the fields are: flag, stdin, stdinFormat" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_misspelt_key_in_place_of_a_required_one_is_an_error_that_names_it(
    assay: Callable, prompts: Callable, agent: Callable, schema: dict[str, Any]
) -> None:
    result = {"matchPath": "$.type", "matchvalue": "result", "contentPath": "$.result"}
    done = assay("capture", prompts("hi"), "-s", agent(result=result))
    assert done.code == 1
    assert "missing required field `matchValue`" in done.stderr
    assert 'unknown field "result.matchvalue"; did you mean "result.matchValue"?' in done.stderr


def test_other_commands_warn_and_are_strict_too(
    assay: Callable, prompts: Callable, agent: Callable, tmp_path: Path
) -> None:
    path, file = agent(timout=5), prompts("hi")
    assay("run", file, "-s", path, "-o", tmp_path / "raw.jsonl")
    lines = (
        ["trials", file, "-s", path, "-k", "1", "-o", "-"],
        ["extract", tmp_path / "raw.jsonl", "-s", path],
        ["headless", "-s", path],
        ["doctor", path],
        ["ab", file, "-s", path, "--with", f"agent={path}", "-g", "contains", "-k", "1"],
    )
    for line in lines:
        done = assay(*line, cwd=tmp_path, stdin=b"")
        assert done.stderr.count('did you mean "timeout"?') == 1, (line, done.stderr)
        refused = assay(*line, "--strict", cwd=tmp_path, stdin=b"")
        assert refused.code == 1, line
        assert "--strict" in refused.stderr


def test_a_python_program_is_warned(prompts: Callable, agent: Callable, tmp_path: Path) -> None:
    path = agent(timout=5)
    with pytest.warns(AssayWarning, match='did you mean "timeout"'):
        trials = library.run(prompts("hi"), agent=path).collect()
    assert len(trials) == 1
