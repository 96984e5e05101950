"""assay report: HTML, Markdown and JUnit of any runs, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest


def rows(n: int, share: float, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": f"p{i}",
            "input": "q",
            "output": "a",
            "trajectory": [{"type": "message", "content": "m", "timestamp": 1}],
            "metadata": {"category": "x|y" if i % 2 else "@you"},
            "timing": {"start": 0, "end": 9, "total": 9},
            "toolErrors": False,
            "score": {"pass": i < n * share, "score": float(i < n * share)},
        }
        | more
        for i in range(n)
    ]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for path, share in zip(paths, (0.2, 0.9), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(60, share)))
    return paths


def test_html_by_default(assay: Callable[..., Any], files: Any, tmp_path: Path) -> None:
    done = assay("report", *files)
    assert done.code == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "report.html (" in done.stderr
    assert assay("report", *files).code == 0


def test_short_markdown_says_the_verdict_first(assay: Callable[..., Any], files: Any) -> None:
    done = assay("report", *files, "--format", "markdown", "--title", "Nightly <b>@team")
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "### Nightly \\<b\\>@\u200bteam"
    assert lines[2].startswith(
        "✅ **new is better than old: 20 % → 90 % of prompts pass (+70 points, 95 % interval +"
    )
    assert "| old | 20.0 % | 11.7 to 32.1 |" in done.stdout
    assert "| new - old | +70.0 points | +5" in done.stdout
    assert len(done.stdout) < 2500


def test_one_run_has_no_verdict(assay: Callable[..., Any], files: Any) -> None:
    done = assay("report", files[0], "-f", "markdown")
    assert "better" not in done.stdout
    assert "| old | 20.0 %" in done.stdout


def test_junit_by_ending(assay: Callable[..., Any], files: Any, tmp_path: Path) -> None:
    target = tmp_path / "out.xml"
    assert assay("report", *files, "-o", target).code == 0
    root = ElementTree.parse(target).getroot()
    assert [suite.get("failures") for suite in root] == ["48", "6"]


def test_bad_lines_are_named_and_left_out(
    assay: Callable[..., Any], files: Any, tmp_path: Path
) -> None:
    with files[0].open("a") as out:
        out.write('not json\n{"id": "torn", "inp')
    done = assay("report", files[0], "-f", "markdown")
    assert done.code == 0, done.stderr
    assert "1 lines cannot be read: line 61" in done.stderr
    assert "60 of 60 trials" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no rows"), ("{}\n", "neither captures nor trials"), (None, "no such file")],
)
def test_refuses_what_is_no_run(
    assay: Callable[..., Any], tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "x.jsonl"
    if text is not None:
        file.write_text(text)
    done = assay("report", file, "-o", tmp_path / "r.html")
    assert done.code == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r.html").exists()


def test_captures_and_trials_stand_side_by_side(
    assay: Callable[..., Any], files: Any, tmp_path: Path
) -> None:
    trial = {"trialNum": 1, "output": "", "trajectory": [], "duration": 5, "pass": True, "score": 1}
    other = tmp_path / "many.jsonl"
    row = {"id": "p0", "input": "q", "k": 1, "trials": [trial], "metadata": {}}
    other.write_text(json.dumps(row) + "\n")
    done = assay("report", files[0], other, "-f", "markdown")
    assert done.code == 0, done.stderr
    assert done.stdout.count("| run |") == 2


def test_a_result_file_is_never_written_over(assay: Callable[..., Any], files: Any) -> None:
    before = files[0].read_bytes()
    done = assay("report", *files, "-f", "markdown", "-o", files[0], "--overwrite")
    assert done.code == 2
    assert "-o is the same file as the input" in done.stderr
    assert files[0].read_bytes() == before


def test_runs_may_all_be_given_by_option(assay: Callable[..., Any], files: Any) -> None:
    named = [
        word
        for label, path in zip("ab", files, strict=True)
        for word in ("--run", f"{label}:{path}")
    ]
    done = assay("report", *named, "-f", "markdown")
    assert done.code == 0, done.stderr
    assert "**b is better than a" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [([], 2), (["--margin", "nan", "F"], 2), (["--seed", "-1", "F"], 2), (["x" * 300], 1)],
)
def test_what_makes_no_report(
    assay: Callable[..., Any], files: Any, words: list[str], code: int
) -> None:
    done = assay("report", *(files[0] if word == "F" else word for word in words))
    assert done.code == code
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unhealthy_run_is_no_green_tick(assay: Callable[..., Any], files: Any) -> None:
    half = [json.loads(line) for line in files[1].read_text().splitlines()]
    for row in half[::4]:
        del row["score"]
    files[1].write_text("".join(json.dumps(row) + "\n" for row in half))
    done = assay("report", *files, "-f", "markdown")
    assert done.stdout.splitlines()[2].startswith("⚠️ **UNHEALTHY (new: 25% of the planned")
