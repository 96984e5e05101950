"""Prompts that differ in nothing but their ids are one prompt, whoever counts."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay import compare


def rows(path: Path, passed: list[bool], questions: list[str], grader: str = "") -> Path:
    """With a grader, each prompt has metadata of its own."""
    entry = {"trialNum": 1, "output": "", "trajectory": [], "duration": 1}
    made = [
        {"id": f"p{i}", "input": question, "k": 1, "metadata": {"line": i} if grader else {}}
        | ({"identity": {"adapter": "simple"}} if grader else {})
        | {"trials": [entry | {"pass": one, "score": float(one)} | grades(grader, passes=one)]}
        for i, (one, question) in enumerate(zip(passed, questions, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def grades(grader: str, *, passes: bool) -> dict[str, Any]:
    name, _, version = grader.partition(":")
    grade = {"pass": passes, "score": float(passes), "version": version}
    return {"grades": {name: grade}} if grader else {}


@pytest.mark.parametrize(("grader", "are_copies"), [("contains:1", True), ("mine:0f3a", False)])
def test_metadata_that_no_grader_reads_makes_no_other_prompts(
    tmp_path: Path, grader: str, are_copies: bool
) -> None:
    questions = [f"Question {i % 4}?" for i in range(48)]
    before = rows(tmp_path / "a.jsonl", [i % 4 == 0 for i in range(48)], questions, grader)
    after = rows(tmp_path / "b.jsonl", [i % 4 != 3 for i in range(48)], questions, grader)
    assert compare(before, after).decision == ("not-enough-data" if are_copies else "better")


@pytest.mark.parametrize("n_questions", [4, 48])
def test_twelve_copies_of_four_prompts_are_four(tmp_path: Path, n_questions: int) -> None:
    questions = [f"Question {i % n_questions}?" for i in range(48)]
    before = rows(tmp_path / "a.jsonl", [i % 4 == 0 for i in range(48)], questions)
    after = rows(tmp_path / "b.jsonl", [i % 4 != 3 for i in range(48)], questions)
    found = compare(before, after)
    assert found.decision == ("better" if n_questions == 48 else "not-enough-data")
    said = "44 of 48 prompts are copies of others under another id"
    assert any(said in note for note in found.notes) == (n_questions == 4)
    assert ("48 prompts in 4 clusters leave it open" in found.sentence) == (n_questions == 4)


def test_rows_that_do_not_say_what_was_asked_are_no_copies(tmp_path: Path) -> None:
    before = rows(tmp_path / "a.jsonl", [False] * 20, [""] * 20)
    after = rows(tmp_path / "b.jsonl", [True] * 20, [""] * 20)
    assert compare(before, after).decision == "better"
