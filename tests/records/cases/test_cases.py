"""Prompts of other formats: what each becomes, and what is named because it becomes nothing."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.records.cases.published import write

from assay.benchmarks import PromptFile
from assay.errors import InputError
from assay.pipeline.row_settings import own_graders
from assay.plugins import grader_ref
from assay.records.cases import prompt_lines
from assay.records.cases.assertions import map_assertion, map_sentence

CHECKED = [
    ("A file named notes.md exists", 'file:{"exists":["notes.md"]}'),
    ("The file `docs/a.md` has been created.", 'file:{"exists":["docs/a.md"]}'),
    ("It writes a file called out/report.json", 'file:{"exists":["out/report.json"]}'),
    ('notes.md contains the heading "Changed"', 'file:{"contains":{"notes.md":"Changed"}}'),
    ("`npm test` passes", 'command:{"run":"npm test"}'),
    ("All tests pass with `pytest -q`", 'command:{"run":"pytest -q"}'),
    ("Running `make | tail` exits with code 0", 'command:{"sh":"make | tail"}'),
    ('The answer contains "Paris" and "Rome"', 'contains:{"text":["Paris","Rome"]}'),
    ("The reply mentions 'paris'", 'contains:{"text":["paris"],"ignore_case":true}'),
    ("The response does not mention `foo`", 'regex:{"pattern":"foo","negate":true}'),
    ("The answer matches /^[0-9]+$/", 'regex:{"pattern":"^[0-9]+$"}'),
    ("contains: Paris", 'contains:{"text":["Paris"]}'),
]
JUDGED = [
    "The report includes at least 3 recommendations",
    "The output includes the name 'John Smith'",
    "No file named notes.md is created",
    "notes.md does not contain 'secret'",
    "The answer mentions 'a' but not 'b'",
    "Does not run `rm -rf build`",
    "A file named notes.md exists and is short",
    "Both axes are labeled",
    "note: the tone is calm",
    "图表的标题提到收入",
]


@pytest.mark.parametrize(("text", "grader"), CHECKED)
def test_a_sentence_that_says_exactly_one_thing_is_checked(text: str, grader: str) -> None:
    assert map_sentence(text).graders == (grader,)
    grader_ref(grader, 1.0)


@pytest.mark.parametrize("text", JUDGED)
def test_any_other_sentence_is_left_to_a_judge(text: str) -> None:
    mapped = map_sentence(text)
    assert (mapped.graders, mapped.statements) == ((), (text,))


def test_objects_and_what_nobody_can_check() -> None:
    assert map_assertion({"type": "contains", "value": "x"}).graders == ('contains:{"text":["x"]}',)
    found = map_assertion({"text": "Mentions --dry-run", "type": "string_match"})
    assert found.statements == ("Mentions --dry-run",)
    assert map_assertion({"cmd": ["a", "b"], "expect_exit": 2}).graders == (
        'command:{"run":["a","b"],"exit_code":2}',
    )
    for given in ({"type": "rouge-n", "value": "x"}, {"severity": 3}, 7, ""):
        assert map_assertion(given).unmapped


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in prompt_lines(path)]


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def test_evals_of_a_skill_with_their_files(tmp_path: Path) -> None:
    (tmp_path / "evals" / "files").mkdir(parents=True)
    (tmp_path / "evals" / "files" / "a.csv").write_text("x\n")
    (tmp_path / "evals" / "files" / "b.bin").write_bytes(b"\xff\x00")
    case = {
        "id": 7,
        "prompt": "Sum data/a.csv",
        "expected_output": "A sum",
        "files": ["evals/files/a.csv", "evals/files/b.bin", "../../etc/passwd"],
        "should_trigger": False,
        "priority": "high",
    }
    path = written(tmp_path / "evals" / "evals.json", {"skill_name": "s", "evals": [case]})
    (row,) = rows(path)
    assert row["id"] == "7"
    assert row["files"] == {"data/a.csv": "x\n", "b.bin": {"base64": "/wA="}}
    assert row["metadata"] == {"priority": "high", "shouldTrigger": False, "skill": "s"}
    assert row["hint"] == "A sum"
    assert row["expect"] == {"judge": ["The result is as expected: A sum"]}
    assert row["imported"]["unmapped"] == ["files: ../../etc/passwd: there is no such file"]
    ((prompt, _),) = PromptFile(path=str(path)).prompts()
    assert dict(prompt.file_bytes())["b.bin"] == b"\xff\x00"


def test_promptfoo_expands_variables_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("One {{x}}\n---\nTwo {{x | upper}}\n")
    (tmp_path / "t.csv").write_text("x,__expected,__threshold\nq,contains: Q,0.5\n")
    config = {
        "prompts": ["file://p.txt"],
        "providers": ["openai:gpt"],
        "defaultTest": {"assert": [{"$ref": "#/assertionTemplates/short"}]},
        "assertionTemplates": {"short": {"type": "latency", "threshold": 100}},
        "tests": [
            {"vars": {"x": ["a", "b"]}, "assert": [{"type": "equals", "value": "{{x}}"}]},
            {"vars": {"x": "c"}, "assert": [{"type": "similar", "value": "{{x}}"}]},
            {"vars": {"y": "no x"}},
            "file://t.csv",
        ],
    }
    found = rows(written(tmp_path / "promptfooconfig.json", config))
    assert [row["input"] for row in found] == [
        *("One a", "Two A", "One b", "Two B", "One c", "Two C", "One q", "Two Q")
    ]
    short = 'limits:{"seconds":0.1}'
    assert found[0]["graders"] == [short, 'exact:{"text":"a"}']
    assert found[6]["graders"] == [short, 'contains:{"text":["Q"]}']
    unmapped = [what for row in found for what in row["imported"].get("unmapped", [])]
    for what in ("providers: not used", "there is no variable x", "similar", "__threshold '0.5'"):
        assert any(what in one for one in unmapped), what


def test_promptfoo_variables_that_name_each_other_fill_no_memory(tmp_path: Path) -> None:
    many = {"b": "{{c}} " * 5000, "c": "{{d}}" * 5000, "d": "d" * 5000}
    tests = [{"vars": many}, {"vars": {"b": "short"}}]
    config = {"prompts": ["Say {{ b }}", "{{" * 5000], "tests": tests}
    began_s = time.process_time()
    found = rows(written(tmp_path / "promptfooconfig.json", config))
    assert "Say short" in [row["input"] for row in found]
    assert max(len(row["input"]) for row in found) < 1_000_000
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '[{"id": "a", "input": "x", "hint": "h"}]'),
        ("a.json", '[\n {"id": "a", "question": "x", "answer": "h"}\n]'),
        ("a.json", '{"cases": [{"id": "a", "query": "x", "ideal": "h"}]}'),
        ("a.yaml", "- id: a\n  input: x\n  hint: h\n"),
        ("a.csv", "id,input,hint\na,x,h\n"),
        ("a.tsv", "\ufeffid\tprompt\texpected\na\tx\th\n"),
        ("a.jsonl", '\n{"id": "a", "input": "x", "hint": "h"}\n'),
    ],
)
def test_the_same_prompt_in_every_shape(tmp_path: Path, name: str, text: str) -> None:
    assert rows(written(tmp_path / name, text)) == [{"id": "a", "input": "x", "hint": "h"}]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"a": 1,\n "b": [2]}', "there is no list of cases; its fields are: 'a', 'b'"),
        ("a.json", "[1]", "a.json, case 1: expected an object or a text, not 1"),
        ("a.csv", "a,b\n1,2\n", "no column holds what a user writes; there are: a, b"),
        ("a.csv", "input,b\n1,2,3\n", "a.csv:2: 3 cells, and 2 columns"),
        ("a.csv", "input,input\n1,2\n", "the column 'input' is there twice"),
        ("a.yaml", "a: [\n", "a.yaml: not YAML"),
        ("a.json", '{"prompts": ["{% if x %}"], "tests": [{"vars": {"x": 1}}]}', "{% … %}"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(InputError) as found:
        rows(written(tmp_path / name, text))
    assert words in str(found.value)


def test_yaml_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match="needs the package PyYAML"):
        rows(written(tmp_path / "a.yaml", "- a"))


def test_at_least_95_percent_of_197_published_cases_map(tmp_path: Path) -> None:
    """A case maps if it has a prompt, and every assertion of it a grader or a judge."""
    judge = grader_ref("judge:agent=demo", 1.0)
    found = [row for path in write(tmp_path) for row in PromptFile(path=str(path)).prompts()]
    assert len(found) == 197
    left = {}
    for prompt, extra in found:
        own_graders(prompt, tmp_path, 1.0, judge=judge)  # each can be built
        unmapped = [
            what
            for what in extra.get("imported", {}).get("unmapped", [])
            if not what.startswith("providers:")
        ]
        is_judged = prompt.graders or prompt.statements or "shouldTrigger" in prompt.metadata
        if unmapped or not is_judged:
            left[prompt.id] = unmapped or ["nothing says what is expected"]
    share = 1 - len(left) / len(found)
    print(f"{share:.1%} of {len(found)} cases map; not: {msgspec.json.encode(left).decode()}")
    assert share >= 0.95, left


def _levels(first: str, next_: str, n: int = 9) -> str:
    return first + "".join(next_.format(n=i, m=",".join([f"*a{i - 1}"] * 10)) for i in range(1, n))


BOMBS = {
    "aliases": _levels("a0: &a0 [x]\n", "a{n}: &a{n} [{m}]\n") + "tests: [{id: q, input: *a8}]\n",
    "merged maps": _levels("a0: &a0 {k: v}\n", "a{n}: &a{n} {{<<: [{m}]}}\n") + "tests: [*a8]\n",
    "a long text": "a: &a " + "x" * 100_000 + "\ntests: [" + "*a, " * 9999 + "*a]\n",
    "nesting that ends the process": "[" * 1_000_000 + "]" * 1_000_000,
    "a number": "tests: [{id: q, input: hi, metadata: {n: " + "9" * 6000 + "}}]\n",
    "itself": "tests: &t [{id: q, input: hi, metadata: *t}]\n",
    "code": "tests: [!!python/object/apply:os.system [false]]\n",
    "combinations": "prompts: ['{{a}}']\ntests: [{vars: {a: b"
    + "".join(f", v{n}: [1,2,3,4,5,6,7,8,9,0]" for n in range(12))
    + "}}]\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_is_a_huge_document_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "b.yaml").write_text(BOMBS[name])
    began_s = time.process_time()
    with pytest.raises(InputError):
        list(prompt_lines(tmp_path / "b.yaml"))
    assert time.process_time() - began_s < 10


@pytest.mark.parametrize(
    "named",
    [
        *("file:///etc/passwd", "file://../secret.txt", "file://link.txt", "../secret.txt"),
        *("file://../*.txt", "file://*.txt", "/etc/pass*", "file://a/../../secret.txt"),
        *("file://.git/config.txt", "file://sub/secret.txt"),
    ],
)
@pytest.mark.parametrize("where", ["prompt", "variable", "tests", "assertion"])
def test_a_configuration_reads_no_files_but_those_of_its_project(
    tmp_path: Path, named: str, where: str
) -> None:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    for path in (tmp_path / "secret.txt", folder / ".git" / "config.txt"):
        path.write_text("THE SECRET")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "sub").symlink_to(tmp_path)
    assertion = {"type": "equals", "value": named if where == "assertion" else "x"}
    test = {"vars": {"v": named if where == "variable" else "x"}, "assert": [assertion]}
    config = {
        "prompts": [named if where == "prompt" else "Say {{v}}"],
        "tests": named if where == "tests" else [test],
    }
    (folder / "p.json").write_text(json.dumps(config))
    try:
        found = str(list(prompt_lines(folder / "p.json")))
    except InputError as error:
        found = str(error)
    assert "THE SECRET" not in found
    assert "root:" not in found


def test_a_configuration_reads_what_is_elsewhere_in_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "evals").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "a.txt").write_text("Say {{v}}.")
    config = {"prompts": ["file://../shared/*.txt"], "tests": [{"vars": {"v": "hi"}}]}
    (tmp_path / "evals" / "p.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "evals" / "p.json", Path("evals/p.json")):
        ((_, line),) = prompt_lines(path)
        assert json.loads(line)["input"] == "Say hi."


def test_a_table_with_very_many_columns_is_read_at_once(tmp_path: Path) -> None:
    names = ",".join(f"c{n}" for n in range(100_000))
    (tmp_path / "a.csv").write_text(f"id,input,{names},{'a.' * 50_000}b\nq,hi\n")
    began_s = time.process_time()
    assert len(list(prompt_lines(tmp_path / "a.csv"))) == 1
    assert time.process_time() - began_s < 5
