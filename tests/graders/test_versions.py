"""What a grade's version says: which code and which options gave the verdict.

A built-in's version is written by hand beside its code. EXAMPLES stands here to remind people: a
changed verdict fails this file. Then raise `code_version` of that grader, and write the new version
and the new verdict down here.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.graders.javascript import JavaScriptFile
from assay.graders.judge import Judge
from assay.graders.program import ExecutableGrader
from assay.graders.python_file import PythonFile
from assay.graders.workspace import Command
from assay.pipeline.stages import AskingHost
from assay.plugin import Answer, Trial
from assay.records.capture import Grade
from assay.records.spec import PluginRef

VERSIONS = {
    "exact": "1",
    "contains": "1",
    "regex": "1",
    "numeric": "1",
    "json-schema": "1",
    "command": "1",
    "git": "2",
    "tools": "1",
    "skill": "1",
    "file": "1",
    "trigger": "1",
    "judge": "2",
    "limits": "1",
}
QUESTION_SHA256 = "8a3474d5759a1f3c59e803baf106953654c45289c94804a52eb4ae0edd0679f6"
USER_FILES = {"executable", "python", "serve", "javascript"}
"""Graders that users write; their versions are hashes of the files."""

CALLS = [
    {"type": "thought", "content": "hm"},
    {"type": "tool_call", "name": "Read", "status": "completed", "input": {"path": "a.py"}},
    {"type": "tool_call", "name": "Bash", "status": "failed", "input": {"command": "pytest -q"}},
    {"type": "tool_call", "name": "mcp__x", "status": "completed", "exitCode": 1, "input": "text"},
]
SKILLS = [
    {"type": "tool_call", "name": "Skill", "status": "completed", "input": {"skill": "relnotes"}},
    {"type": "tool_call", "name": "Read", "input": {"file_path": "/s/decoy/SKILL.md"}},
]
USED = {
    "usage": {"inputTokens": 10, "outputTokens": 20, "costUsd": 0.5},
    "timing": {"total": 2000},
}
SCHEMA = '{"schema": {"type": "object", "required": ["n"]}}'
JUDGE = "agent=demo,rubric=Is it right?"

EXAMPLES: list[tuple[str, str, dict[str, Any], bool, float]] = [
    ("exact", " Paris\n", {"hint": "Paris"}, True, 1),
    ("exact", "paris", {"hint": "Paris"}, False, 0),
    ("exact", "r", {"reference": "r"}, True, 1),
    ("exact", "r", {"hint": "h", "reference": "r"}, False, 0),
    ("exact:against=reference", "r", {"hint": "h", "reference": "r"}, True, 1),
    ("exact:trim=false", "Paris ", {"hint": "Paris"}, False, 0),
    ("exact:ignore_case=true", "STRASSE", {"hint": "straße"}, True, 1),
    ("contains", "It is Paris.", {"hint": "Paris"}, True, 1),
    ("contains:Paris", "It is paris.", {"hint": "It"}, False, 0),
    ("contains:text=a,text=b,text=c,text=d", "abc", {}, False, 0.75),
    ("contains:text=STRASSE,ignore_case=true", "straße", {}, True, 1),
    (r"regex:^\d+$", "42", {}, True, 1),
    (r"regex:^\d+$", "42 apples", {}, False, 0),
    ("regex:b", "a\nb", {}, True, 1),
    ("regex:pattern=HELLO,ignore_case=true", "hello", {}, True, 1),
    ("regex:pattern=secret,negate=true", "the secret", {}, False, 0),
    ("numeric:42", "41, no: 42.", {}, True, 1),
    ("numeric:42", "42, or 43", {}, False, 0),
    ("numeric:7", "no number", {}, False, 0),
    ("numeric:1.2", "version 1.2.3", {}, False, 0),
    ("numeric:-7", "−7", {}, True, 1),
    ("numeric", "1,234.50", {"hint": "it is 1234.5"}, True, 1),
    ("numeric:tolerance=0.01", "3.15", {"hint": "3.14"}, True, 1),
    ("numeric:tolerance=0.01", "3.151", {"hint": "3.14"}, False, 0),
    ("numeric:relative=0.1", "-110", {"hint": "-100"}, True, 1),
    ("numeric:expected=7,pattern=total: (.*)", "total: 7\nrows: 3", {}, True, 1),
    (f"json-schema:{SCHEMA}", '{"n": 1}', {}, True, 1),
    (f"json-schema:{SCHEMA}", "[]", {}, False, 0),
    (f"json-schema:{SCHEMA}", 'So:\n```json\n{"n": 2}\n```\nDone.', {}, True, 1),
    (f"json-schema:{SCHEMA}", '{"n": 1} and more', {}, False, 0),
    ("skill:relnotes", "", {"trajectory": SKILLS}, True, 1),
    ("skill:used=relnotes,not_used=dec*", "", {"trajectory": SKILLS}, False, 0.5),
    ("skill:used=other", "", {"trajectory": SKILLS}, False, 0),
    ("skill:not_used=relnotes", "", {}, True, 1),
    ("file:a.txt", "", {}, True, 1),
    ("file:exists=a.txt,exists=b.txt", "", {}, False, 0.5),
    ('file:{"contains": {"a.txt": "no such text"}}', "", {}, False, 0),
    ("command:test -f a.txt", "", {}, True, 1),
    ("command:test -f b.txt", "", {}, False, 0),
    ("command:sh=exit 3,exit_code=3", "", {}, True, 1),
    ("command:sh=sleep 60,limit_s=0.2", "", {}, False, 0),
    ("git", "", {}, True, 1),
    ("git:changed=new.txt,unchanged=kept.txt", "", {}, True, 1),
    ("git:changed=kept.txt", "", {}, False, 0),
    ("git:unchanged=*.txt", "", {}, False, 0),
    ("git:max_files=2,max_lines=2", "", {}, True, 1),
    ("git:max_files=1", "", {}, False, 0),
    ("git:max_lines=1", "", {}, False, 0),
    ("git:test=test -f a.txt", "", {}, True, 1),
    ("git:test=test -f b.txt", "", {}, False, 0),
    ("tools:used=Read,used=Write", "", {}, False, 0.5),
    ("tools:used=mcp__*,not_used=Write", "", {}, True, 1),
    ("tools:in_order=Read,in_order=mcp__x", "", {}, True, 1),
    ("tools:in_order=Bash,in_order=Read", "", {}, False, 0),
    (r'tools:match=Bash:"command":"pytest\b', "", {}, True, 1),
    ("tools:max_calls=2", "", {}, False, 0),
    ("tools:no_failed=true", "", {}, False, 0),
    ("tools:no_failed=true,max_calls=3", "", {}, False, 0.5),
    ("trigger:news", "", {"metadata": {"shouldTrigger": True}}, False, 0),
    ("trigger:news", "", {"metadata": {"shouldTrigger": False}}, True, 1),
    ("trigger:skill=news,marker=[N]", "[N]", {"metadata": {"shouldTrigger": False}}, False, 0),
    ("trigger:skill=news,marker=[N]", "[N]", {"metadata": {"shouldTrigger": True}}, True, 1),
    ("limits:cost_usd=0.5,seconds=2,tokens=30", "", {"row": USED}, True, 1),
    ("limits:cost_usd=0.4,seconds=2", "", {"row": USED}, False, 0.5),
    (f"judge:{JUDGE}", '{"pass": true, "score": 0.7, "reasoning": "x"}', {}, True, 0.7),
    (f"judge:{JUDGE}", '```json\n{"pass": false, "score": 1, "reasoning": "x"}\n```', {}, False, 1),
    (f"judge:{JUDGE},threshold=1", '{"pass": true, "score": 0.7, "reasoning": ""}', {}, False, 0.7),
]  # fmt: skip


class EchoHost(AskingHost):
    """This machine, with a model that repeats the evidence: an example can say what it answers."""

    def answer(self, agent: PluginRef, text: str, **_options: Any) -> Answer:
        found = re.search(r"BEGIN output \w+\n(.*)\nEND output", text, re.DOTALL)
        assert found is not None
        code = re.findall(r'"code": "(\w+)", "pass"', text)[-1]
        return Answer(text=found[1].replace("{", f'{{"code": "{code}", ', 1))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which an agent added a line to a.txt and created new.txt."""
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("a.txt", "kept.txt"):
        (folder / name).write_text("one\n")
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
    (folder / "a.txt").write_text("one\nmore\n")
    (folder / "new.txt").write_text("x\n")
    return folder


def built(text: str) -> Any:
    return plugins.grader(plugins.grader_ref(text))


@pytest.mark.parametrize(("grader", "output", "fields", "passes", "score"), EXAMPLES)
def test_a_changed_verdict_needs_a_raised_version(
    workspace, grader, output, fields, passes, score
) -> None:
    given = {"trajectory": CALLS, **fields}
    trial = Trial(input="?", output=output, cwd=str(workspace), **given)
    grade: Grade = built(grader).grade(trial, EchoHost())
    advice = f"raise code_version of {grader.partition(':')[0]}, then update VERSIONS and EXAMPLES"
    assert (grade.pass_, grade.score) == (passes, score), advice


def test_a_changed_question_of_the_judge_needs_a_raised_version() -> None:
    trial = Trial(input=["a", "b"], output="o" * 50_000, hint="h", trajectory=CALLS)
    question = Judge(rubric="R", agent="demo", steps=True).question(trial, "0")
    found = hashlib.sha256(question.encode()).hexdigest()
    assert found == QUESTION_SHA256, "raise code_version of judge, then update this file"


def test_every_built_in_is_pinned_with_its_version() -> None:
    targets = plugins.BUILT_IN["assay.graders"]
    ours = {name for name, target in targets.items() if target.startswith("assay.graders.")}
    assert set(VERSIONS) == ours - USER_FILES
    for name, version in VERSIONS.items():
        shown = [row for row in EXAMPLES if row[0].partition(":")[0] == name]
        assert {row[3] for row in shown} == {True, False}, f"{name} needs both verdicts"
        assert {built(row[0]).code_version for row in shown} == {version}


@pytest.mark.parametrize("name", ["exact", "contains", "numeric", "git"])
def test_the_version_without_options_is_the_written_one(name) -> None:
    assert built(name).version == VERSIONS[name]


def test_options_are_part_of_the_version_when_they_can_change_a_verdict() -> None:
    def version(text: str, timeout_s: float = 1) -> str:
        return plugins.grader(plugins.grader_ref(text, timeout_s)).version

    assert re.fullmatch(r"1-[0-9a-f]{8}", version("contains:a"))
    assert version("contains:a") == version("contains:a", timeout_s=99)
    assert version("contains:a") == version("contains:text=a,ignore_case=false")
    assert version("contains:a") != version("contains:b")
    assert version("contains:a") != version("contains:text=a,ignore_case=true")
    assert version("command:true") != version("command:run=true,limit_s=5")


def test_files_given_to_a_built_in_count_by_their_content(tmp_path) -> None:
    for folder, text in (("one", "A"), ("copy", "A"), ("other", "B")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rubric.md").write_text(text)
        (tmp_path / folder / "schema.json").write_text(f'{{"title": "{text}"}}')

    def versions(folder: str) -> tuple[str, str]:
        here = tmp_path / folder
        judge = built(f"judge:agent=demo,rubric={here / 'rubric.md'}").version
        return judge, built(f"json-schema:{here / 'schema.json'}").version

    assert versions("one") == versions("copy")
    for one, other in zip(versions("one"), versions("other"), strict=True):
        assert one != other


@pytest.mark.parametrize(
    "options", ["rubric=B", "rubric=A,threshold=0.5", "rubric=A,model=m", "rubric=A,steps=true"]
)
def test_options_of_the_judge_are_part_of_its_version(options) -> None:
    assert (
        built(f"judge:agent=demo,{options}").version != built("judge:agent=demo,rubric=A").version
    )


@pytest.mark.parametrize("kind", ["python", "executable", "javascript"])
def test_modules_that_a_grader_imports_are_part_of_its_version(tmp_path: Path, kind: str) -> None:
    names = {"python": "grader.py", "executable": "program.py", "javascript": "grader.mjs"}
    texts = {
        "grader.py": "from helpers.words import fits\n\ndef grade(output): return fits(output)\n",
        "program.py": "#!/usr/bin/env python3\nimport helpers.words\n",
        "grader.mjs": "import { fits } from './helpers/words.mjs'\nexport const grade = fits\n",
    }
    main = tmp_path / names[kind]
    main.write_text(texts[main.name])
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("")
    module = tmp_path / "helpers" / ("words.mjs" if kind == "javascript" else "words.py")
    module.write_text(
        "from . import deep\n" if module.suffix == ".py" else "export const fits = 1\n"
    )
    (tmp_path / "helpers" / "deep.py").write_text("A = 1\n")
    (tmp_path / "unrelated.py").write_text("A = 1\n")

    made = {"python": PythonFile, "executable": ExecutableGrader, "javascript": JavaScriptFile}[
        kind
    ]

    def version() -> str:
        return made(path=str(main)).version

    before = version()
    (tmp_path / "unrelated.py").write_text("A = 2\n")
    assert version() == before
    changed = module if kind == "javascript" else tmp_path / "helpers" / "deep.py"
    changed.write_text("export const fits = 2\n" if kind == "javascript" else "A = 2\n")
    assert version() != before


@pytest.mark.parametrize("name", ["grader.py", "grader.sh", "grader.mjs"])
def test_data_that_a_grader_names_is_part_of_its_version(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(
        "// # reads 'words.json'; see results.jsonl and other-words.json\n"
    )
    kinds = {".py": PythonFile, ".sh": ExecutableGrader, ".mjs": JavaScriptFile}

    def version() -> str:
        return kinds[Path(name).suffix](path=str(tmp_path / name)).version

    (tmp_path / "words.json").write_text("1")
    before = version()
    (tmp_path / "results.jsonl").write_text("1")
    (tmp_path / "word.json").write_text("1")
    assert version() == before
    (tmp_path / "words.json").write_text("2")
    assert version() != before


@pytest.mark.parametrize(
    "code",
    ["open('seen.txt', 'a').write(x)", "A = 'seen.txt'\nopen(A, mode='w')", "x >> seen.txt"],
)
def test_a_file_that_a_grader_writes_is_not_part_of_its_version(tmp_path: Path, code: str) -> None:
    grader = tmp_path / "grader.py"
    grader.write_text(f"{code}\nWORDS = open('words.txt').read()\n")
    (tmp_path / "words.txt").write_text("1")

    def version() -> str:
        return PythonFile(path=str(grader)).version

    before = version()
    (tmp_path / "seen.txt").write_text("x")
    assert version() == before
    (tmp_path / "words.txt").write_text("2")
    assert version() != before


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("grader.py", "import os\nW = os.environ['WANT']\nK = os.environ['WANT_KEY']\n"),
        ("grader.sh", '#!/bin/sh\n[ "$WANT" = "${WANT_KEY}" ]\n'),
        ("grader.mjs", "const want = process.env.WANT, key = process.env.WANT_KEY\n"),
    ],
)
def test_variables_that_a_grader_reads_are_part_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    (tmp_path / name).write_text(code)
    kinds = {".py": PythonFile, ".sh": ExecutableGrader, ".mjs": JavaScriptFile}

    def version(**values: str) -> str:
        for key, value in values.items():
            monkeypatch.setenv(key, value)
        return kinds[Path(name).suffix](path=str(tmp_path / name)).version

    before = version(WANT="plum", WANT_KEY="one", UNREAD="one")
    assert version(WANT_KEY="two", UNREAD="two") == before  # secrets never count
    assert version(WANT="pear") != before


def test_a_folder_that_a_grader_names_is_part_of_its_version(tmp_path: Path) -> None:
    grader = tmp_path / "grader.py"
    grader.write_text("WORDS = [p.read_text() for p in (HERE / 'words').iterdir()]\n")
    (tmp_path / "words" / "deep").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "words" / "deep" / "a").write_text("1")
    before = PythonFile(path=str(grader)).version
    (tmp_path / "other" / "b").write_text("1")
    assert PythonFile(path=str(grader)).version == before
    (tmp_path / "words" / "deep" / "a").write_text("2")
    assert PythonFile(path=str(grader)).version != before


def test_a_program_on_the_path_is_part_of_the_version_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "check-it"
    versions = []
    for text in ("#!/bin/sh\ntrue\n", "#!/usr/bin/env sh\ntrue\n", "#!/bin/sh\nfalse\n"):
        program.write_text(text)
        program.chmod(0o755)
        versions.append(Command(run="check-it").version)
    assert versions[0] == versions[1] != versions[2]
