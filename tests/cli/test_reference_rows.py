"""Rows of agent-eval-harness and ours: our schemas take both, its schemas take `--as reference`."""

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.test_golden import members

from assay.cli.schemas import all_kinds
from assay.records.catalogue import json_schema

CAPTURE = "id input output hint trajectory metadata timing toolErrors errors score outcome"
TRIALS = "id input hint k passRate passAtK passExpK trials metadata"
ENTRY = "trialNum output trajectory duration pass score reasoning outcome"
STEP = "type name status content entries input output duration timestamp stepId"
PROMPTS = [
    {"id": "a", "input": "What is 2 + 40?", "hint": "42", "reference": "42", "mine": [1]},
    {"id": "b", "input": ["Remember 7", "What is 1 + 2?"], "hint": "3", "reference": "9"},
    {"id": "c", "input": "Write a short note into notes.txt", "metadata": {"category": "x"}},
]


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    found = {name: json_schema(name, kind) for name, kind in all_kinds().items()}
    return json.loads(json.dumps(found))


def problems(schema: dict[str, Any], row: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema).iter_errors(row)]


def kind_of(row: dict[str, Any]) -> str | None:
    for mark, name in {
        "trials": "TrialResult",
        "trajectory": "CaptureResult",
        "graderResult": "ValidationResult",
        "toolCalls": "SummaryResult",
    }.items():
        if mark in row:
            return name
    return None


def recorded_rows() -> list[dict[str, Any]]:
    """Every row that the reference wrote in its recorded cases."""
    found = []
    for name, data in members().items():
        if "/expected/" in name and not name.endswith((".csv", ".md")):
            for line in data.decode(errors="replace").splitlines():
                with suppress(json.JSONDecodeError):  # other text, and one row with a cut path
                    found.append(json.loads(line))
    return [row for row in found if isinstance(row, dict)]


def test_our_schemas_take_the_rows_of_the_reference(ours: dict[str, Any]) -> None:
    rows = [(kind, row) for row in recorded_rows() if (kind := kind_of(row))]
    assert {kind for kind, _ in rows} >= {"TrialResult", "CaptureResult", "SummaryResult"}
    assert len(rows) > 30
    for kind, row in rows:
        assert problems(ours[kind], row) == []


@pytest.fixture
def files(assay: Callable, prompts: Callable, tmp_path: Path) -> dict[str, Path]:
    """Rows of every kind, by the name of their schema."""
    prompt_file = prompts(*PROMPTS)
    broken = tmp_path / "broken.py"
    broken.write_text("def grade(output, **more):\n    raise ValueError('broken')\n")
    demo = ("-s", "demo", "--isolate", "-q")
    for name, line in {
        "graded": ("capture", prompt_file, *demo, "-g", "contains"),
        "broken": ("capture", prompt_file, *demo, "-g", broken, "--limit", "1"),
        "failed": ("capture", prompt_file, "--simple", "false {}", "-q", "--limit", "1"),
        "trials": ("trials", prompt_file, *demo, "-k", "1", "-g", "contains"),
        "raw": ("run", prompt_file, *demo, "--limit", "2"),
        "extracted": ("extract", "raw.jsonl", "-s", "demo", "-q"),
        "summary": ("summarize", "graded.jsonl"),
        "validated": ("validate-refs", prompt_file, "-g", "contains"),
    }.items():
        assay(*line, "-o", f"{name}.jsonl", cwd=tmp_path)
    return {path.stem: path for path in tmp_path.glob("*.jsonl") if path != prompt_file}


def as_reference(assay: Callable, path: Path) -> list[dict[str, Any]]:
    done = assay("format", path, "--as", "reference")
    assert done.code == 0, done.stderr
    return done.rows


def test_rows_as_reference_have_its_fields_and_the_same_values(
    assay: Callable, files: dict[str, Path], ours: dict[str, Any]
) -> None:
    for name in ("graded", "broken", "failed", "extracted"):
        before = [json.loads(line) for line in files[name].read_text().splitlines()]
        for old, new in zip(before, as_reference(assay, files[name]), strict=True):
            assert new.keys() <= set(CAPTURE.split())
            for key in ("id", "input", "output", "metadata", "toolErrors"):
                assert new[key] == old[key]
            assert new["timing"].items() <= {"sessionCreation": 0, **old["timing"]}.items()
            assert len(new["trajectory"]) == len(old["trajectory"])
            assert all(step.keys() <= set(STEP.split()) for step in new["trajectory"])
            assert problems(ours["CaptureResult"], new) == []
            assert ("score" in new) == ("score" in old)
            assert bool(new.get("errors")) == (name != "extracted" and "score" not in old)
    for row in as_reference(assay, files["trials"]):
        assert row.keys() <= set(TRIALS.split())
        assert all(entry.keys() <= set(ENTRY.split()) for entry in row["trials"])
        assert problems(ours["TrialResult"], row) == []
    for row in as_reference(assay, files["summary"]):
        assert row.keys() == set(["id", "input", "output", "toolCalls", "duration"])
    for row in as_reference(assay, files["validated"]):
        assert row.keys() == set(["id", "reference", "passes", "graderResult"])
    # And back: what was converted is compared as before.
    for form in ("assay", "reference"):
        assay("format", files["graded"], "--as", form, "-o", f"{form}.jsonl")
    assert assay("compare", "assay.jsonl", "reference.jsonl").code == 0


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "a", "rawLines": []}, "no such row"),
        ({"id": "a", "input": "x", "trajectory": []}, '"start" is missing'),
        ({"id": "a", "trials": [{"trialNum": 1, "output": ""}]}, '"duration" is missing'),
        ({"id": "a", "trajectory": [1]}, "of another type"),
        ({"id": "a", "trials": 7}, "of another type"),
        ({"id": "a", "reference": "x"}, '"passes" is missing'),
    ],
)
def test_a_row_without_what_the_reference_requires_is_named(
    assay: Callable, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    done = assay("format", "rows.jsonl", "--as", "reference")
    assert done.code == 1
    assert "rows.jsonl:1: " in done.stderr
    assert words in done.stderr
    assert assay("format", "rows.jsonl", "--as", "reference", "-f", "csv").code == 2


def test_the_reference_itself_takes_them(
    assay: Callable, files: dict[str, Path], reference: list[str], tmp_path: Path
) -> None:
    """Its schemas, and its commands."""
    schemas = json.loads(_run([*reference, "schemas", "--json"], tmp_path))
    for name, path in files.items():
        if name == "raw":
            continue
        rows = as_reference(assay, path)
        assert rows
        for row in rows:
            assert problems(schemas[kind_of(row)], row) == [], (name, row)
        (tmp_path / f"{name}.ref.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    _run([*reference, "summarize", "failed.ref.jsonl"], tmp_path)
    for both in (("graded", "extracted"), ("trials", "trials")):
        runs = [f"--run=run{n}:{name}.ref.jsonl" for n, name in enumerate(both)]
        report = json.loads(_run([*reference, "compare", *runs], tmp_path))
        assert report["meta"]["promptCount"] == len(PROMPTS)


def _run(argv: list[str], cwd: Path) -> str:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=120, check=False, stdin=-3
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
