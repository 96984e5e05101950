"""What people said stands beside what the grader said: column, filter, agreement, disagreements."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.viewer.index import Index
from assay.viewer.labels import label_file, read_run_labels

ROWS = "return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].innerText)"


def capture(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "input": "q",
        "output": f"answer {number}",
        "trajectory": [],
        "metadata": {"category": "c"},
        "timing": {"start": 0, "end": 9, "total": 9},
        "toolErrors": False,
        "score": {"pass": number % 2 == 0, "score": float(number % 2 == 0)},
    } | more


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Twelve captures; people agree on p0 to p3, not on p4 and p5, and are not sure of p6."""
    results = tmp_path / "run.jsonl"
    results.write_text("".join(json.dumps(capture(n)) + "\n" for n in range(12)))
    labels = ["pass", "fail", "pass", "fail", "fail", True, "ambiguous", None]
    rows = [
        {"id": f"p{n}", "output": f"answer {n}", "label": word} for n, word in enumerate(labels)
    ]
    rows += [{"id": "p8", "output": "another answer", "label": "fail"}, {"id": "gone", "label": 1}]
    label_file(results).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return results


def test_a_label_counts_for_its_output_only(labelled: Path) -> None:
    index = Index(labelled, keep=False)
    index.refresh()
    found = read_run_labels(index, label_file(labelled))
    assert found.words == {
        "p0": {1: "pass"},
        "p1": {1: "fail"},
        "p2": {1: "pass"},
        "p3": {1: "fail"},
        "p4": {1: "fail"},
        "p5": {1: "pass"},
        "p6": {1: "ambiguous"},
    }
    assert found.disagreements == [("p4", 1, "fail", "pass"), ("p5", 1, "pass", "fail")]
    assert found.agreement is not None
    assert (found.agreement.n, found.agreement.agreement.count) == (6, 4)
    index.close()


def test_a_broken_sheet_hides_no_run(labelled: Path) -> None:
    label_file(labelled).write_text("{")
    index = Index(labelled, keep=False)
    index.refresh()
    assert read_run_labels(index, label_file(labelled)).shown is None
    index.close()


def test_report_and_viewer_show_labels_and_lead_to_the_disagreements(
    browser: Any,
    view: Callable[..., str],
    make_report: Callable[..., Path],
    labelled: Path,
    tmp_path: Path,
) -> None:
    report = make_report(tmp_path / "report.html", labelled)
    for page in (f"file://{report}", view(labelled)):
        browser.draw(page)
        browser.see(".labels", "7 labels, the grader agrees in 67 %")
        browser.click(".labels summary", "2 disagreements")
        browser.click(".labels a", "all in the table")
        browser.see("[role=status]", "2 prompts")
        assert browser.n_clicks == 2
        assert browser.run(ROWS) == ["p4\nq", "p5\nq"]
        browser.see("td a.mark", "✗ ≠")
        browser.choose("select[aria-label=Label]", "ambiguous")
        browser.see("[role=status]", "1 prompt")
        browser.choose("select[aria-label=Label]", "labelled")
        browser.see("[role=status]", "7 prompts")


def test_a_label_that_is_set_in_the_viewer_appears_in_the_table(
    browser: Any, view: Callable[..., str], tmp_path: Path
) -> None:
    results = tmp_path / "run.jsonl"
    results.write_text("".join(json.dumps(capture(n)) + "\n" for n in range(12)))
    browser.draw(view(results))
    browser.click("nav a", "Label")
    browser.see("h2", "Answered")
    browser.press("p")
    browser.see("[role=status]", "1 labelled")
    browser.open(browser.run("return location.href.split('#')[0]") + "#/prompts?label=labelled")
    browser.run("location.reload()")
    browser.see("[role=status]", "1 prompt")
