"""The examples of docs/graders.md run as they stand there."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from assay import plugins

DOCS = (Path(__file__).parents[2] / "docs" / "graders.md").read_text()
ROWS = [
    {"id": "a", "input": "i", "output": "It is Paris.", "hint": "paris"},
    {"id": "b", "input": "i", "output": "word " * 60, "hint": "paris"},
]


def example(name: str) -> str:
    (found,) = re.findall(rf"```\w+\n((?:#![^\n]*\n)?# {re.escape(name)}.*?)```", DOCS, re.DOTALL)
    return found


def module_example(page: str, name: str) -> str:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    (found,) = re.findall(rf"```typescript\n(// {re.escape(name)}.*?)```", text, re.DOTALL)
    return found


def test_the_typescript_examples_work(assay, tmp_path, bun) -> None:
    env = {"PATH": f"{bun}:{os.environ['PATH']}"}
    (tmp_path / "grader.ts").write_text(module_example("graders.md", "grader.ts"))
    (tmp_path / "shortest.ts").write_text(module_example("compare.md", "shortest.ts"))
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    done = assay("grade", "r.jsonl", "-g", "./grader.ts", env=env)
    assert [row["score"]["pass"] for row in done.rows] == [True, False], done.stderr
    more = {"trajectory": [], "metadata": {}, "timing": {"start": 0, "end": 1, "total": 1}}
    for name, output in (("long", "a long answer"), ("short", "ok")):
        row = {"id": "a", "input": "i", "output": output, **more}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    files = ("compare", "long.jsonl", "short.jsonl", "--strategy", "custom")
    done = assay(*files, "-g", "./shortest.ts", env=env)
    assert done.code == 0, done.stderr
    (pair,) = json.loads(done.stdout)["headToHead"]["pairwise"]
    assert (pair["aWins"], pair["bWins"]) == (0, 1)


@pytest.mark.parametrize(
    ("name", "grader"),
    [("grader.py", "grader.py"), ("grader.sh", "./grader.sh"), ("serve.py", "serve:./serve.py")],
)
def test_the_graders_of_the_page_work(assay, tmp_path, name, grader) -> None:
    if name == "grader.sh" and not shutil.which("jq"):
        pytest.skip("jq is not here")
    path = tmp_path / name
    path.write_text(example(name))
    path.chmod(0o755 if name.endswith(".sh") else 0o644)
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    done = assay("grade", "r.jsonl", "-g", grader)
    assert done.code == 0, done.stderr
    assert [row["score"]["pass"] for row in done.rows] == [True, False]


def test_the_options_of_the_page_are_accepted(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("answer.schema.json").write_text('{"type": "object"}')
    Path("rubric.md").write_text("Is it kind?")
    lines = [line for line in DOCS.splitlines() if line.startswith("assay grade r.jsonl")]
    assert len(lines) == 8
    for line in lines:
        words = shlex.split(line, comments=True)
        grader = words[words.index("-g") + 1].replace("agent=claude.json", "agent=demo")
        assert plugins.grader_ref(grader).name in line


def test_the_page_names_every_built_in_and_option() -> None:
    import dataclasses

    from assay.plugins import BUILT_IN, _load

    ours = {n for n, where in BUILT_IN["assay.graders"].items() if "assay.graders." in where}
    for name in ours - {"executable", "python", "serve", "javascript"}:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", DOCS, re.MULTILINE)
        for field in dataclasses.fields(_load("assay.graders", name)):
            assert field.name in row or field.name == "timeout_s", (name, field.name)
