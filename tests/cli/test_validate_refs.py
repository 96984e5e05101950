"""assay validate-refs from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GRADER = """#!/usr/bin/env python3
import json, sys, time
asked = json.load(sys.stdin)
if asked["input"] == "boom":
    sys.exit("blew up")
if asked["input"] == "slow":
    time.sleep(0.4)
ok = (asked.get("hint") or "") in asked["output"]
print(json.dumps({"pass": ok, "score": 1 if ok else 0.25, "reasoning": "has hint" if ok else "no"}))
"""


@pytest.fixture
def grader(tmp_path: Path) -> Path:
    path = tmp_path / "has_hint.sh"
    path.write_text(GRADER)
    path.chmod(0o755)
    return path


def test_rows_carry_both_spellings(assay: Callable[..., Any], prompts: Any, grader: Path):
    path = prompts(
        {"id": "a", "input": "q", "hint": "blue", "reference": "It is blue"},
        {"id": "b", "input": ["q", "r"], "hint": "red", "reference": "It is blue"},
        {"id": "c", "input": "q"},
    )
    done = assay("validate-refs", path, "-g", grader)
    assert done.code == 0
    good, bad = done.rows
    assert (good["id"], good["input"], good["reference"]) == ("a", "q", "It is blue")
    assert good["passes"] is good["pass"] is good["graderResult"]["pass"] is True
    assert good["score"] == good["graderResult"]["score"] == 1
    assert good["reasoning"] == good["graderResult"]["reasoning"] == "has hint"
    assert good["graderResult"]["version"]
    assert bad["passes"] is bad["pass"] is False
    assert bad["input"] == ["q", "r"]
    assert "1 passed, 1 failed, 1 prompt without a reference" in done.stderr
    assert "  ✓ a\n  ✗ b\n" in done.stderr
    assert "- b: no" in done.stderr
    strict = assay("validate-refs", path, "-g", grader, "--strict", "-q")
    assert strict.code == 3
    assert "✓" not in strict.stderr
    assert strict.rows == done.rows


def test_a_broken_grader_is_recorded_and_the_rest_goes_on(
    assay: Callable[..., Any], prompts: Any, grader: Path, tmp_path: Path, read_rows: Any
):
    path = prompts(
        {"id": "a", "input": "boom", "reference": "x"}, {"id": "b", "input": "q", "reference": "x"}
    )
    done = assay("validate-refs", path, "-g", grader, "-o", tmp_path / "v.jsonl")
    assert done.code == 1
    broken, good = read_rows(tmp_path / "v.jsonl")
    assert "blew up" in broken["graderFailure"]
    assert "passes" not in broken
    assert "pass" not in broken
    assert good["passes"] is True
    assert "1 prompt was not graded" in done.stderr


def test_several_at_once_come_out_in_order(assay: Callable[..., Any], prompts: Any, grader: Path):
    rows = [{"id": f"p{i}", "input": "slow" if i == 0 else "q", "reference": "x"} for i in range(6)]
    done = assay("validate-refs", prompts(*rows), "-g", grader, "-j", "4")
    assert [row["id"] for row in done.rows] == [f"p{i}" for i in range(6)]


def test_no_op_names_answers_that_should_fail(
    assay: Callable[..., Any], prompts: Any, grader: Path
):
    path = prompts(
        {"id": "a", "input": "q", "hint": "blue", "reference": "blue"},
        {"id": "b", "input": "q", "reference": "anything passes"},
    )
    done = assay("validate-refs", path, "-g", grader, "--no-op")
    assert done.code == 0
    sound, lenient = done.rows
    assert "wronglyPasses" not in sound
    assert {name: said["pass"] for name, said in sound["noOp"].items()} == {
        "empty": False,
        "unrelated": False,
    }
    assert lenient["wronglyPasses"] == ["empty", "unrelated"]
    assert "b: empty, unrelated" in done.stderr
    assert assay("validate-refs", path, "-g", grader, "--no-op", "--strict").code == 3


def test_all_of_several_graders_must_pass(assay: Callable[..., Any], prompts: Any, grader: Path):
    path = prompts({"id": "a", "input": "q", "hint": "x", "reference": "x"})
    done = assay("validate-refs", path, "-g", grader, "-g", "contains:nowhere")
    (row,) = done.rows
    assert row["passes"] is False
    assert [said["pass"] for said in row["grades"].values()] == [True, False]


def test_nothing_to_validate(assay: Callable[..., Any], prompts: Any, grader: Path, tmp_path: Path):
    done = assay("validate-refs", prompts("q"), "-g", grader, "-o", tmp_path / "v.jsonl")
    assert done.code == 0
    assert "No prompts with reference solutions found" in done.stderr
    assert not (tmp_path / "v.jsonl").exists()


def test_every_prompt_is_checked_before_a_grader_is_asked(
    assay: Callable[..., Any], prompts: Any, grader: Path, tmp_path: Path
):
    path = prompts({"id": "a", "input": "q", "reference": "x"}, {"id": "b"})
    done = assay("validate-refs", path, "-g", grader, "-o", tmp_path / "v.jsonl")
    assert done.code == 1
    assert f"{path}:2: missing field `input`" in done.stderr
    assert not (tmp_path / "v.jsonl").exists()


def test_wrong_use(assay: Callable[..., Any], prompts: Any, tmp_path: Path):
    assert assay("validate-refs").code == 2
    assert assay("validate-refs", prompts("q")).code == 2
    assert assay("validate-refs", prompts("q"), "-g", tmp_path / "none.py").code == 1


def test_an_existing_output_is_replaced_when_all_went_well(
    assay: Callable[..., Any], prompts: Any, grader: Path, tmp_path: Path
):
    (tmp_path / "v.jsonl").write_text("{}\n")
    path = prompts({"id": "a", "input": "x", "reference": "y"})
    words = ("-g", grader, "-o", "v.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(path.read_text() + "no json\n")
    assert assay("validate-refs", bad, *words).code == 1
    assert (tmp_path / "v.jsonl").read_text() == "{}\n"
    assert assay("validate-refs", path, *words).code == 0
    assert json.loads((tmp_path / "v.jsonl").read_text())["id"] == "a"
