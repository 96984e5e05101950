"""Bad input gets a message that names file, line and field and what to do; nothing runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

PROMPTS = [
    ("not json", ["not a JSON object"]),
    ("[1]", ["object"]),
    ('{"id": "b", "input": "x"', ["not a JSON object"]),
    ('{"input": "x"}', ["id", "missing", "unique"]),
    ('{"id": "b"}', ["input", "missing"]),
    ('{"id": "", "input": "x"}', ['"id" is empty', "unique id"]),
    ('{"id": 7, "input": "x"}', ["id", "text", "number"]),
    ('{"id": "b", "input": 7}', ["input"]),
    ('{"id": "b", "input": ["x", 7]}', ["input"]),
    ('{"id": "b", "input": []}', ["input", "at least one turn"]),
    ('{"id": "b", "input": "x", "timeout": "1"}', ["timeout"]),
    ('{"id": "b", "input": "x", "timeout": 0}', ["timeout", "more than 0"]),
    ('{"id": "b", "input": "x", "metadata": 1}', ["metadata"]),
    ('{"id": "b", "input": "x", "hint": 1}', ["hint"]),
    ('{"id": "a", "input": "x"}', ['"a" was used before', "prompts.jsonl:1", "of its own"]),
    ('{"id": "b", "input": "\\ud800"}', []),
    ('{"id": "b", "input": "x", "metadata": {"x": ' + "[" * 100_000, ["nested"]),
]


@pytest.mark.parametrize(("line", "words"), PROMPTS, ids=[line[:30] for line, _ in PROMPTS])
def test_a_bad_prompt(
    assay: Callable, agent: Callable, tmp_path: Path, line: str, words: list[str]
) -> None:
    (tmp_path / "prompts.jsonl").write_text(
        '{"id": "a", "input": "!do put ran x"}\n\n' + line + "\n"
    )
    done = assay("capture", "prompts.jsonl", "-s", agent(), "-o", "out.jsonl")
    assert done.code == 1
    assert "prompts.jsonl:3" in done.stderr, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1000
    advice = (";", "must be")
    is_advised = len(done.stderr.strip().splitlines()) >= 2
    assert is_advised or any(word in done.stderr for word in advice), "no advice"
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("content", ["", "\n\n", "  \n"])
def test_an_empty_prompt_file(
    assay: Callable, agent: Callable, tmp_path: Path, content: str
) -> None:
    (tmp_path / "prompts.jsonl").write_text(content)
    done = assay("capture", "prompts.jsonl", "-s", agent(), "-o", "out.jsonl")
    assert done.code == 1
    assert not (tmp_path / "out.jsonl").exists()
    assert "prompts.jsonl: no prompts" in done.stderr
    assert '{"id": "a", "input"' in done.stderr
    assert assay("capture", "--stdin", "-s", agent(), stdin=content).code == 1


def test_a_missing_prompt_file(assay: Callable, agent: Callable) -> None:
    done = assay("capture", "nowhere.jsonl", "-s", agent())
    assert done.code == 1
    assert "nowhere.jsonl: No such file" in done.stderr
    assert "check the path" in done.stderr


def test_bom_and_crlf_are_no_problem(assay: Callable, agent: Callable, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_bytes(
        b'\xef\xbb\xbf{"id": "a", "input": "x"}\r\n\r\n{"id": "b", "input": "y"}'
    )
    done = assay("capture", "prompts.jsonl", "-s", agent())
    assert [row["id"] for row in done.rows] == ["a", "b"]


SCHEMAS: list[tuple[dict, list[str]]] = [
    ({"autoAprove": []}, ["autoAprove"]),
    ({"prompt": {"flg": "-p"}}, ["flg", "prompt"]),
    ({"version": 2}, ["version"]),
    ({"command": []}, ["command"]),
    ({"command": "agent"}, ["command"]),
    ({"sessionMode": "both"}, ["sessionMode"]),
    ({"timeout": 0}, ["timeout"]),
    ({"prompt": {"flag": "-p", "stdin": True}}, ["prompt.flag", "prompt.stdin"]),
    (
        {"result": {"matchPath": "$.[", "matchValue": "x", "contentPath": "$.x"}},
        ["result.matchPath", "$.[", "$.name"],
    ),
    (
        {"result": {"matchPath": "$.a", "matchValue": "x", "contentPath": "x.y"}},
        ["result.contentPath", "x.y"],
    ),
    (
        {"outputEvents": [{"match": {"path": "$..", "value": "x"}, "emitAs": "message"}]},
        ["outputEvents[0].match", "$.."],
    ),
    (
        {"outputEvents": [{"match": {"path": "$.a", "value": "x"}, "emitAs": "msg"}]},
        ["outputEvents", "emitAs"],
    ),
]


@pytest.mark.parametrize(("change", "words"), SCHEMAS, ids=[str(c)[:40] for c, _ in SCHEMAS])
def test_a_bad_schema(
    assay: Callable, agent: Callable, prompts: Callable, change: dict, words: list[str]
) -> None:
    path = agent(**change)
    done = assay("capture", prompts("x"), "-s", path, "--strict")
    assert done.code == 1
    assert path.name in done.stderr
    for word in words:
        assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) >= 2, "no advice"
    assert "Traceback" not in done.stderr


def test_a_schema_that_is_no_json_or_not_there(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("{")
    bad = assay("capture", prompts("x"), "-s", "bad.json")
    assert bad.code == 1
    assert "bad.json: not JSON" in bad.stderr
    missing = assay("capture", prompts("x"), "-s", "nowhere.json")
    assert missing.code == 1
    assert "nowhere.json" in missing.stderr
    assert "-s" in missing.stderr
    unknown = assay("capture", prompts("x"), "-s", "nobody")
    assert unknown.code == 1
    assert "'nobody'" in unknown.stderr
    assert "There are: acp, auggie, claude" in unknown.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ("-t", "abc"),
        ("-t", "0"),
        ("-t", "nan"),
        ("-j", "0"),
        ("-j", "2x"),
        ("--retries", "-1"),
        ("--limit", "0"),
        ("--max-cost", "-1"),
        ("--stall", "0"),
        ("--workspace-template", "nowhere"),
        ("--no-such-flag",),
    ],
)
def test_a_bad_flag(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done = assay("capture", prompts("!do put ran x"), "-s", agent(), *flags)
    assert done.code == 2
    assert flags[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()


def test_an_unknown_command_gets_a_suggestion(assay: Callable) -> None:
    done = assay("captrue")
    assert done.code == 2
    assert "captrue" in done.stderr
    assert "'capture'" in done.stderr


def test_a_program_that_cannot_be_started_is_a_row_with_its_cause(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF not a program")
    program.chmod(0o755)
    done = assay("capture", prompts("x"), "-s", agent(command=[str(program)]))
    assert done.code == 1
    (row,) = done.rows
    assert row["failure"]["cause"] == "spawn"
    assert str(program) in row["failure"]["message"]
    assert row["errors"] == [row["failure"]["message"]]
    assert row["output"] == ""
    assert "agent did not start in 1" in done.stderr


def test_no_agent_is_a_usage_error(assay: Callable, prompts: Callable) -> None:
    done = assay("capture", prompts("x"))
    assert done.code == 2
    assert "-s" in done.stderr


def test_debug_shows_the_traceback(assay: Callable, agent: Callable) -> None:
    done = assay("capture", "nowhere.jsonl", "-s", agent(), "--debug")
    assert done.code == 1
    assert "Traceback" in done.stderr


def test_a_prompt_file_that_is_not_utf_8_is_named_by_file_and_line(assay, agent, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"id": "a", "input": "ok"}\n{"id": "b", "input": "\xff"}\n')
    done = assay("capture", path, "-s", agent())
    assert done.code == 1
    assert "bad.jsonl:2: not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr
