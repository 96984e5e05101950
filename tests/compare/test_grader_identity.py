"""compare --strict: which changes of a grader make two runs differ, and which do not."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay as package

ROW = {"input": "?", "hint": "1", "trajectory": [], "timing": {"start": 0, "end": 1, "total": 1}}
ROWS = [{"id": f"p{i}", "output": f"{i}", **ROW} for i in range(3)]
SCHEMA = '{"schema": {"type": "integer"}}'
BUILT_INS = [
    *("exact", "contains:1", "regex:1", "numeric", "tools:max_calls=9", "git", "command:true"),
    f"json-schema:{SCHEMA}",
]
"""A judge would need a model."""

PYTHON = "def grade(output):\n    return output == '1'  # {}\n"
PROGRAM = """#!/bin/sh
while read -r row; do echo '{"pass": true, "score": 1}'; done  # {}
"""


@pytest.fixture
def grade(assay: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """Grade ROWS in a workspace that `git` and `command` can look at; give the graded file."""
    rows = [{**row, "cwd": str(tmp_path)} for row in ROWS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(name: str, *graders: str, **env: str) -> Path:
        flags = [word for grader in graders for word in ("-g", grader)]
        done = assay("grade", "rows.jsonl", *flags, "-o", name, env=env)
        assert done.code == 0, done.stderr
        return tmp_path / name

    return write


def test_reworded_code_of_the_built_ins_makes_no_runs_differ(assay, grade, tmp_path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    folder = tmp_path / "other" / "assay"
    shutil.copytree(Path(package.__file__).parent, folder)
    for path in folder.rglob("*.py"):
        path.write_text(f"{path.read_text()}\n# A comment more.\n")
    before = grade("before.jsonl", *BUILT_INS)
    after = grade("after.jsonl", *BUILT_INS, PYTHONPATH=str(folder.parent))
    done = assay("compare", before, after, "--strict")
    assert done.code == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [("own.py", PYTHON), ("own.sh", PROGRAM), ("serve:own.sh", PROGRAM)],
    ids=["python", "executable", "serve"],
)
def test_a_changed_grader_of_the_user_is_seen_and_a_moved_one_is_not(
    assay, grade, tmp_path, name, text
) -> None:
    start, _, file = name.rpartition(":")

    def graded(folder: str, remark: str) -> Path:
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / file
        path.write_text(text.replace("{}", remark))
        path.chmod(0o644 if file.endswith(".py") else 0o755)
        return grade(f"{folder}.jsonl", f"{start}:{path}" if start else str(path))

    one, moved, changed = graded("one", "a"), graded("moved", "a"), graded("changed", "b")
    assert assay("compare", one, moved, "--strict").code == 0
    done = assay("compare", one, changed, "--strict")
    assert (done.code, done.stdout) == (1, "")
    assert "grader own differs" in done.stderr


def test_other_options_of_a_built_in_are_seen(assay, grade) -> None:
    one, other = grade("one.jsonl", "contains:1"), grade("other.jsonl", "contains:2")
    done = assay("compare", one, other, "--strict")
    assert (done.code, done.stdout) == (1, "")
    assert "grader contains differs: one: 1-" in done.stderr
