"""assay fixtures: a test file from recorded trials that passes at once and fails for a reason."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.export.fixtures import grader_words
from assay.records.spec import PluginRef

GRADER = """
def grade(input, output, hint=None, trajectory=None, metadata=None, **more):
    used = any(step["type"] == "tool_call" for step in trajectory)
    ok = (hint or "") in output
    return {"pass": ok, "score": 1.0 if ok else 0.25, "reasoning": f"{metadata} {used}"}
"""
PROMPTS = [
    {"id": "sum", "input": "What is 2 + 40?", "hint": "42", "mine": {"kept": True}},
    {"id": "note", "input": "Write a short note into notes.txt", "hint": "notes.txt"},
    {"id": "talk", "input": ["Remember the number 42", "What number was it?"], "hint": "nine"},
    {"id": "crash", "input": "Please crash", "hint": "x"},
]


@pytest.fixture(scope="module")
def recorded(made_once: Any, warm_assays: Any) -> Path:
    """A folder with captures and trials of the demo agent."""

    def record(folder: Path) -> None:
        (folder / "evals").mkdir()
        (folder / "evals" / "grader.py").write_text(GRADER)
        (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
        common = ["p.jsonl", "-s", "demo", "-g", "evals/grader.py", "-j", "2"]
        for words in (["capture", "-o", "r.jsonl"], ["trials", "-k", "2", "-o", "t.jsonl"]):
            done = warm_assays.run([*words, *common], folder, os.environ, b"", 120)
            assert done.returncode == 0, done.stderr

    return made_once("fixtures-recorded", record)


@pytest.fixture
def made(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return tmp_path


def pytest_in(folder: Path, target: str = ".") -> "subprocess.CompletedProcess[str]":
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", target]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_test_passes_and_notices_a_changed_grader(assay, made):
    done = assay("fixtures", "r.jsonl", "-g", "evals/grader.py", "-o", "tests/regress")
    assert done.code == 0, done.stderr
    assert "3 trials -> tests/regress/test_regress.py" in done.stderr
    assert "1 not finished (agent crashed)" in done.stderr
    good = pytest_in(made, "tests")
    assert good.returncode == 0, good.stdout
    assert "3 passed" in good.stdout
    (made / "evals" / "grader.py").write_text(GRADER.replace("0.25", "0.5"))
    changed = pytest_in(made, "tests")
    assert changed.returncode == 1
    assert "test_verdict[talk]" in changed.stdout
    assert "1 failed, 2 passed" in changed.stdout


def test_a_changed_prompt_is_noticed(assay, made):
    assay("fixtures", "r.jsonl", "-g", "evals/grader.py", "-o", "fx")
    path = made / "fx" / "prompts.jsonl"
    path.write_text(path.read_text().replace("2 + 40", "2 + 41"))
    done = pytest_in(made, "fx")
    assert done.returncode == 1
    assert "sum was changed since" in done.stdout


def test_trials_are_numbered_and_chosen_by_id_and_verdict(assay, made):
    words = ["fixtures", "t.jsonl", "r.jsonl", "-g", "evals/grader.py", "-o", "fx"]
    assert assay(*words, "--id", "s*", "--id", "talk").code == 0
    ids = [row["id"] for row in rows(made / "fx" / "trials.jsonl")]
    assert ids == ["sum#1", "sum#2", "talk#1", "talk#2", "sum#3", "talk#3"]
    assert assay(*words, "--only", "failed", "--overwrite").code == 0
    kept = rows(made / "fx" / "trials.jsonl")
    assert {row["id"].partition("#")[0] for row in kept} == {"talk"}
    assert pytest_in(made, "fx").returncode == 0


def test_the_data_is_complete_and_only_that_of_the_prompt(assay, made):
    assay("fixtures", "r.jsonl", "-g", "evals/grader.py", "-o", "fx", "--id", "sum")
    [prompt] = rows(made / "fx" / "prompts.jsonl")
    assert prompt == PROMPTS[0]
    [trial] = rows(made / "fx" / "trials.jsonl")
    assert trial["score"] == {"pass": True, "score": 1.0}
    assert str(made) not in (made / "fx" / "trials.jsonl").read_text()
    assert str(made) not in (made / "fx" / "test_fx.py").read_text()


def test_the_folder_can_be_moved_with_the_grader(assay, made, tmp_path_factory):
    assay("fixtures", "r.jsonl", "-g", "evals/grader.py", "-o", "tests/fx")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "clone"
    made.rename(elsewhere)
    done = pytest_in(elsewhere, "tests")
    assert done.returncode == 0, done.stdout


def test_verdicts_that_these_graders_do_not_give_are_refused(assay, made):
    done = assay("fixtures", "r.jsonl", "-g", "exact", "-o", "fx")
    assert done.code == 1
    assert "judge 2 of 3 trials differently" in done.stderr
    assert "note: 1 recorded, 0 now" in done.stderr
    assert "assay grade FILE -g GRADER" in done.stderr
    assert not (made / "fx").exists()


def test_files_that_exist_are_replaced_only_when_asked(assay, made):
    words = ["fixtures", "r.jsonl", "-g", "evals/grader.py", "-o", "fx"]
    assert assay(*words).code == 0
    before = (made / "fx" / "trials.jsonl").read_text()
    again = assay(*words, "--id", "sum")
    assert again.code == 1
    assert "already exists" in again.stderr
    assert (made / "fx" / "trials.jsonl").read_text() == before
    assert assay(*words, "--id", "sum", "--overwrite").code == 0


def test_secrets_are_masked(assay, made):
    text = (made / "r.jsonl").read_text()
    (made / "r.jsonl").write_text(text.replace('"output":"42', '"output":"42 hunter2-secret-9!'))
    words = ["fixtures", "r.jsonl", "-g", "contains:42", "-o", "fx", "--id", "sum"]
    assert assay(*words, env={"DEPLOY_TOKEN": "hunter2-secret-9!"}).code == 0
    for name in ("trials.jsonl", "prompts.jsonl"):
        assert "hunter2" not in (made / "fx" / name).read_text()
    assert pytest_in(made, "fx").returncode == 0


def test_stdin(assay, made):
    words = ["fixtures", "-", "-g", "evals/grader.py", "-o", "fx"]
    done = assay(*words, stdin=(made / "r.jsonl").read_text())
    assert done.code == 0, done.stderr


def test_wrong_use(assay, made):
    assert assay("fixtures", "r.jsonl", "-g", "contains").code == 2
    assert assay("fixtures", "-g", "contains", "-o", "fx").code == 2
    assert assay("fixtures", "r.jsonl", "-o", "fx").code == 2
    assert assay("fixtures", "r.jsonl", "-g", "contains", "-o", "p.jsonl").code == 2
    none = assay("fixtures", "r.jsonl", "-g", "contains", "-o", "fx", "--id", "nosuch")
    assert none.code == 1
    assert "4 another prompt than --id names" in none.stderr
    assert "--id names no prompt of these files" in none.stderr
    for grader in ("git", "command:true"):
        folder = assay("fixtures", "r.jsonl", "-g", grader, "-o", "fx")
        assert folder.code == 1
        assert "these graders cannot judge 3 of 3 trials" in folder.stderr
        assert "looks at the agent's folder, which a fixture does not have" in folder.stderr
    assay("capture", "p.jsonl", "-s", "demo", "-o", "ungraded.jsonl")
    ungraded = assay("fixtures", "ungraded.jsonl", "-g", "contains", "-o", "fx")
    assert ungraded.code == 1
    assert "4 not graded" in ungraded.stderr
    assert "assay grade FILE" in ungraded.stderr
    (made / "torn.jsonl").write_text((made / "r.jsonl").read_text()[:-30])
    torn = assay("fixtures", "torn.jsonl", "-g", "contains", "-o", "fx")
    assert torn.code == 1
    assert "torn.jsonl:4: " in torn.stderr
    (made / "empty.jsonl").write_text("")
    empty = assay("fixtures", "empty.jsonl", "-g", "contains", "-o", "fx")
    assert (empty.code, (made / "fx").exists()) == (1, False)
    assert "no trials" in empty.stderr


@pytest.mark.parametrize(
    ("text", "name", "given"),
    [
        ("./grader.py", "python", ("", "../evals/grader")),
        ("./grader.ts", "javascript", ("", "../evals/grader")),
        ("./grader.sh", "executable", ("", "../evals/grader")),
        ("serve:./grader.py", "serve", ("serve:", "../evals/grader")),
        ("file:path=out.txt", "file", ("file:path=out.txt", "")),
        ("contains", "contains", ("contains", "")),
    ],
)
def test_a_file_that_grades_is_named_as_the_test_sees_it(tmp_path, text, name, given):
    ref = PluginRef(name=name, options={"path": str(tmp_path / "evals" / "grader")})
    ref = PluginRef(name=name) if name == "contains" else ref
    assert grader_words(text, ref, tmp_path / "fx") == given
