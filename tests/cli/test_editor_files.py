"""What init writes for editors: schemas that check its files, tasks of VS Code."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from assay.cli.editor_files import SCHEMAS, schema_text

ROOT = Path(__file__).parents[2]


def checker(path: Path) -> Any:
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schemas_are_those_of_this_version(name: str) -> None:
    assert (ROOT / "schemas" / f"{name}.json").read_text() == schema_text(name)


def test_what_init_writes_is_checked_by_what_it_writes(assay: Callable, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.")
    assert assay("init").code == 0
    folder = tmp_path / "evals"
    text = (folder / "experiment.toml").read_text()
    first = text.splitlines()[0]
    assert first.startswith("#:schema ./")
    experiment = tomllib.loads(text)
    of_experiment = checker(folder / first.removeprefix("#:schema ./"))
    assert list(of_experiment.iter_errors(experiment)) == []
    assert of_experiment.is_valid({**experiment, "trials": 3}) is False
    arm = {"arms": {**experiment["arms"], "control": {"modell": "x"}}}
    assert of_experiment.is_valid(experiment | arm) is False
    of_prompts = checker(folder / "schemas" / "prompt.json")
    for line in (folder / "prompts.jsonl").read_text().splitlines():
        assert list(of_prompts.iter_errors(json.loads(line))) == []
    assert of_prompts.is_valid({"id": "a"}) is False


def test_tasks_and_settings_of_vscode(assay: Callable, tmp_path: Path) -> None:
    assert assay("init", "my-evals", "--vscode").code == 0
    tasks = json.loads((tmp_path / ".vscode" / "tasks.json").read_text())
    lines = [[task["command"], *task["args"]] for task in tasks["tasks"]]
    assert ["assay", "ab", "my-evals/experiment.toml"] in lines
    settings = json.loads((tmp_path / ".vscode" / "settings.json").read_text())
    for entry in settings["json.schemas"]:
        assert (tmp_path / entry["url"]).is_file()
    own = '{"editor.tabSize": 3}'
    (tmp_path / ".vscode" / "settings.json").write_text(own)
    done = assay("init", "others", "--vscode")
    assert done.code == 0
    assert "settings.json exists and was left as it is" in done.stderr
    assert (tmp_path / ".vscode" / "settings.json").read_text() == own


@pytest.mark.parametrize(
    "form", ["javascript:alert(1)", "javascript://x{path}", "https://x{path}", "vscode://file", "x"]
)
def test_a_link_that_is_no_editor_is_refused(assay: Callable, tmp_path: Path, form: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "input": "What is 2 + 40?"}\n')
    assert assay("capture", "p.jsonl", "-s", "demo", "-o", "r.jsonl", "-q").code == 0
    done = assay("report", "r.jsonl", "-o", "r.html", env={"ASSAY_EDITOR_URL": form})
    assert (done.code, "ASSAY_EDITOR_URL is no link to an editor" in done.stderr) == (1, True)
    assert assay("report", "r.jsonl", "-o", "r.html", env={"ASSAY_EDITOR_URL": ""}).code == 0
    assert 'name="assay-editor" content=""' in (tmp_path / "r.html").read_text()
