"""assay calibrate from the outside: samples, sheets, labels."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.stats.agreement import measure_agreement


def row(number: int, *, passed: bool, version: str = "v1") -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "input": "q",
        "output": f"answer {number}",
        "trajectory": [{"type": "message", "content": f"step {i}"} for i in range(7)],
        "metadata": {"category": "ab"[number % 2]},
        "timing": {"start": 0, "end": 1, "total": 1},
        "score": {
            "pass": passed,
            "score": float(passed),
            "reasoning": "SECRET",
            "version": version,
        },
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    rows = [row(i, passed=i % 10 < 7) for i in range(100)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def fill_in(sheet: Path, wrong: set[str], **changes: Any) -> None:
    """Label as the grader did, but for some ids."""
    rows = [json.loads(line) for line in sheet.read_text().splitlines()]
    for line in rows:
        right = int(line["id"][1:]) % 10 < 7
        line["label"] = "pass" if right != (line["id"] in wrong) else "fail"
        line.update(changes)
    sheet.write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_failures_are_sampled_reproducibly(assay: Callable[..., Any], results: Path):
    first = assay("calibrate", results, "--json", "-s", "4")
    assert first.code == 0
    assert "4 of 30 failures, seed 0" in first.stderr
    report = json.loads(first.stdout)
    assert (report["seed"], report["failures"]) == (0, 30)
    assert len(report["samples"]) == 4
    for sample in report["samples"]:
        assert sample["originalScore"]["pass"] is False
        steps = [step["content"] for step in sample["trajectorySnippet"]]
        assert steps == ["step 0", "step 1", "step 3", "step 5", "step 6"]
    assert assay("calibrate", results, "--json", "-s", "4").stdout == first.stdout
    assert assay("calibrate", results, "--json", "-s", "4", "--seed", "1").stdout != first.stdout


def test_a_second_grader_gives_its_opinion(assay: Callable[..., Any], results: Path):
    done = assay("calibrate", results, "-g", "contains:answer", "-j", "2")
    assert done.code == 0
    assert done.stdout.count("**Original Score:** FAIL (0)") == 10
    assert done.stdout.count("**Re-scored:** PASS (1)") == 10


def test_a_broken_second_grader_is_told(assay: Callable[..., Any], results: Path, tmp_path: Path):
    grader = tmp_path / "bad.py"
    grader.write_text("def grade(**_):\n    raise ValueError('boom')\n")
    done = assay("calibrate", results, "-g", grader, "-s", "2")
    assert done.code == 1
    assert done.stdout.count("not graded: bad: ValueError: boom") == 2
    assert "2 samples were not graded again" in done.stderr


def test_no_failures_is_no_report(assay: Callable[..., Any], tmp_path: Path):
    path = tmp_path / "good.jsonl"
    path.write_text(json.dumps(row(1, passed=True)) + "\n")
    done = assay("calibrate", path, "-o", tmp_path / "c.md")
    assert done.code == 0
    assert "No failures found in results" in done.stderr
    assert not (tmp_path / "c.md").exists()


def test_a_sheet_without_rows_is_refused(assay: Callable[..., Any], results: Path, tmp_path: Path):
    sheet = tmp_path / "sheet.jsonl"
    done = assay("calibrate", results, "--export", sheet, "--sample", "0")
    assert done.code == 2
    assert not sheet.exists()


def test_export_label_compare(assay: Callable[..., Any], results: Path, tmp_path: Path):
    sheet = tmp_path / "sheet.jsonl"
    done = assay("calibrate", results, "--export", sheet, "--sample", "60")
    assert (done.code, done.stdout) == (0, "")
    assert "60 of 100 graded rows in 4 strata" in done.stderr
    assert "SECRET" not in sheet.read_text()
    ids = [json.loads(line)["id"] for line in sheet.read_text().splitlines()]
    wrong = {ids[0], ids[1], ids[2]}
    fill_in(sheet, wrong)
    done = assay("calibrate", results, "--labels", sheet, "--json")
    assert done.code == 0
    report = json.loads(done.stdout)
    said = [int(name[1:]) % 10 < 7 for name in ids]
    people = [passed != (name in wrong) for name, passed in zip(ids, said, strict=True)]
    oracle = measure_agreement(people, said)
    assert report["compared"] == 60
    assert report["agreement"]["value"] == pytest.approx(57 / 60)
    assert report["kappa"]["value"] == pytest.approx(oracle.kappa)
    assert (
        report["kappa"]["interval"][0] < report["kappa"]["value"] < report["kappa"]["interval"][1]
    )
    sensitivity, specificity = report["sensitivity"]["value"], report["specificity"]["value"]
    corrected = (0.7 + specificity - 1) / (sensitivity + specificity - 1)
    assert report["observedPassRate"]["value"] == pytest.approx(0.7)
    assert report["correctedPassRate"]["value"] == pytest.approx(corrected)
    assert {each["id"] for each in report["disagreements"]} == wrong
    for each in report["disagreements"]:
        assert each["label"] is not each["grader"]
        assert each["reasoning"] == "SECRET"
    assert "stale" not in report
    assert report["warnings"] == []
    shown = assay("calibrate", results, "--labels", sheet).stdout
    assert "| Agreement | 0.950 |" in shown
    assert f"**{ids[0]}**" in shown


def test_labels_are_not_replaced_by_their_report(assay: Callable[..., Any], results: Path):
    sheet = results.with_name("sheet.jsonl")
    assert assay("calibrate", results, "--export", sheet).code == 0
    fill_in(sheet, set())
    before = sheet.read_text()
    done = assay("calibrate", results, "--labels", sheet, "-o", sheet, "--overwrite")
    assert done.code == 2
    assert "the same file as the input" in done.stderr
    assert sheet.read_text() == before


def test_a_grader_that_fails_on_every_label_says_how(assay: Callable[..., Any], results: Path):
    sheet = results.with_name("sheet.jsonl")
    assert assay("calibrate", results, "--export", sheet).code == 0
    fill_in(sheet, set())
    done = assay("calibrate", results, "--labels", sheet, "-g", "exact")
    assert done.code == 1
    assert "on which the grader failed" in done.stderr
    assert "nothing to compare with" in done.stderr


def test_a_row_without_trials_is_refused(assay: Callable[..., Any], tmp_path: Path):
    path = tmp_path / "trials.jsonl"
    path.write_text('{"id": "a", "input": "q", "k": 1, "trials": [], "metadata": {}}\n')
    for words in ([], ["--export", tmp_path / "sheet.jsonl"]):
        done = assay("calibrate", path, *words)
        assert done.code == 1
        assert "trials.jsonl:1: `trials` is empty" in done.stderr


def test_a_filled_sheet_is_not_overwritten(
    assay: Callable[..., Any], results: Path, tmp_path: Path
):
    sheet = tmp_path / "sheet.jsonl"
    assert assay("calibrate", results, "--export", sheet).code == 0
    fill_in(sheet, set())
    before = sheet.read_text()
    assert assay("calibrate", results, "--export", sheet).code == 1
    assert sheet.read_text() == before


def test_labels_for_another_grader_version_are_stale(
    assay: Callable[..., Any], results: Path, tmp_path: Path
):
    sheet = tmp_path / "sheet.jsonl"
    assay("calibrate", results, "--export", sheet)
    fill_in(sheet, set(), graderVersion="v0")
    done = assay("calibrate", results, "--labels", sheet, "--json")
    assert json.loads(done.stdout)["stale"] == {
        "labels": 50,
        "labelVersions": ["v0"],
        "graderVersions": ["v1"],
    }
    assert "stale: 50 labels" in done.stderr


def test_another_grader_is_compared_on_the_labelled_rows(
    assay: Callable[..., Any], results: Path, tmp_path: Path
):
    sheet = tmp_path / "sheet.jsonl"
    assay("calibrate", results, "--export", sheet, "-s", "40")
    fill_in(sheet, set())
    done = assay("calibrate", results, "--labels", sheet, "-g", "contains:answer", "--json")
    report = json.loads(done.stdout)
    assert report["sensitivity"]["value"] == 1
    assert report["specificity"]["value"] == 0
    assert report["observedPassRate"]["value"] is report["correctedPassRate"]["value"] is None
    assert report["stale"]["labels"] == 40
    assert any("whole file" in text for text in report["warnings"])


def test_few_and_unfair_labels_are_called_that(
    assay: Callable[..., Any], results: Path, tmp_path: Path
):
    labels = tmp_path / "labels.jsonl"
    failing = [f"p{i}" for i in range(100) if i % 10 >= 7]
    labels.write_text("".join(json.dumps({"id": i, "label": "fail"}) + "\n" for i in failing[:8]))
    done = assay("calibrate", results, "--labels", labels, "--json")
    assert done.code == 0
    report = json.loads(done.stdout)
    assert report["kappa"]["value"] is None
    assert report["correctedPassRate"]["value"] is None
    told = " | ".join(report["warnings"])
    for words in (
        "few labels: 8",
        "very uncertain",
        "kappa cannot be computed",
        "not a fair sample",
    ):
        assert words in told
    assert "8 labels do not name" in told


def test_nothing_to_compare_is_an_error(assay: Callable[..., Any], results: Path, tmp_path: Path):
    sheet = tmp_path / "sheet.jsonl"
    assay("calibrate", results, "--export", sheet)
    done = assay("calibrate", results, "--labels", sheet)
    assert (done.code, done.stdout) == (1, "")
    assert "50 not labelled yet" in done.stderr


def test_wrong_use(assay: Callable[..., Any], results: Path, tmp_path: Path):
    assert assay("calibrate").code == 1  # stdin holds no rows
    assert assay("calibrate", results, "--labels", "a", "--export", "b").code == 2
    assert assay("calibrate", results, "-s", "-1").code == 2
    assert assay("calibrate", results, "--labels", tmp_path / "none").code == 1
    ungraded = tmp_path / "u.jsonl"
    ungraded.write_text('{"id":"a","input":"q","output":"o"}\n')
    assert assay("calibrate", ungraded, "--export", tmp_path / "s.jsonl").code == 1


COUNTED = """#!/bin/sh
echo asked >> {log}
{then}
"""


def grader_that(tmp_path: Path, then: str) -> tuple[Path, Path]:
    """A program that notes each time it is asked; its file, and that of its notes."""
    log, program = tmp_path / "asked.txt", tmp_path / "judge.sh"
    program.write_text(COUNTED.format(log=log, then=then))
    program.chmod(0o755)
    return program, log


@pytest.mark.parametrize("words", [[], ["--labels", "sheet.jsonl"]])
def test_what_a_judge_was_paid_for_is_kept_and_nothing_is_asked(
    assay: Callable[..., Any], results: Path, tmp_path: Path, words: list[str]
):
    judge, log = grader_that(tmp_path, 'echo \'{"pass":true,"score":1}\'')
    assert assay("calibrate", results, "--export", "sheet.jsonl").code == 0
    fill_in(tmp_path / "sheet.jsonl", set())
    keep = tmp_path / "keep.md"
    keep.write_text("paid for")
    done = assay("calibrate", results, "-g", judge, *words, "-o", keep)
    assert (done.code, keep.read_text()) == (1, "paid for")
    assert "already exists" in done.stderr
    assert not log.exists()
    assert assay("calibrate", results, "-g", judge, *words, "-o", keep, "--overwrite").code == 0
    assert log.exists()
    # Without a grader it can be made again.
    assert assay("calibrate", results, *words, "-o", keep).code == 0
    # What people have filled in is not.
    labelled = (tmp_path / "sheet.jsonl").read_text()
    assert assay("calibrate", results, "--export", "sheet.jsonl").code == 1
    assert (tmp_path / "sheet.jsonl").read_text() == labelled


def test_the_first_failure_of_a_grader_is_said(
    assay: Callable[..., Any], results: Path, tmp_path: Path
):
    judge, _ = grader_that(tmp_path, "echo 'the service answered 503' >&2; exit 1")
    done = assay("calibrate", results, "-g", judge)
    assert done.code == 1
    assert "The first: p" in done.stderr
    assert "the service answered 503" in done.stderr


def test_a_grader_is_never_written_over(assay: Callable[..., Any], results: Path, tmp_path: Path):
    judge, _ = grader_that(tmp_path, "exit 1")
    text = judge.read_text()
    assert assay("calibrate", results, "-g", judge, "-o", judge, "--overwrite").code == 2
    assert judge.read_text() == text


def test_an_output_that_is_there_is_refused_before_graders_are_asked(assay, tmp_path):
    (tmp_path / "r.jsonl").write_text(json.dumps(row(1, passed=False)) + "\n")
    (tmp_path / "keep.md").write_text("keep")
    grader = tmp_path / "grader.py"
    grader.write_text("def grade(output):\n    open('asked', 'w').close()\n    return True\n")
    done = assay("calibrate", "r.jsonl", "-g", grader, "-o", "keep.md")
    assert done.code == 1
    assert "keep.md already exists" in done.stderr
    assert not (tmp_path / "asked").exists()
