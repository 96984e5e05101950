"""A judge's errors: kept by calibrate, and part of comparisons of what it judged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_ab import AGENT, Project
from tests.report.test_html import blocks

import assay as library
from assay.errors import InputError

N = 40


def write_run(path: Path, rate: float, *, version: str = "1", k: int = 4) -> Path:
    """Write trials of a judge; so many of each prompt's pass, spread evenly."""
    rows, seen = [], 0.0
    for n in range(N):
        trials = []
        for number in range(1, k + 1):
            seen += rate
            passed = int(seen) > int(seen - rate)
            grade = {"pass": passed, "score": float(passed), "version": version}
            trials.append(
                {"trialNum": number, "output": f"{n} {number}", "trajectory": [], "duration": 1}
                | {"pass": passed, "score": float(passed), "grades": {"judge": grade}}
            )
        rows.append({"id": f"p{n}", "input": f"q{n}", "k": k, "metadata": {}, "trials": trials})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labelled(assay: Callable[..., Any], run: Path, sheet: Path) -> None:
    """People pass what the judge passes, but for every fifth row."""
    assert assay("calibrate", run, "--export", sheet, "--sample", "100").code == 0
    verdicts = {}
    for line in run.read_text().splitlines():
        row = json.loads(line)
        verdicts |= {(row["id"], t["trialNum"]): t["pass"] for t in row["trials"]}
    rows = [json.loads(line) for line in sheet.read_text().splitlines()]
    for number, row in enumerate(rows):
        said = verdicts[row["id"], row["trialNum"]]
        row["label"] = said if number % 5 else not said
    sheet.write_text("".join(json.dumps(row) + "\n" for row in rows))


def difference(done: Any) -> tuple[float, float, float]:
    found = json.loads(done.stdout)["pairs"][0]["passRate"]
    return found["difference"], found["interval"]["low"], found["interval"]["high"]


def test_a_kept_calibration_corrects_differences(assay: Callable[..., Any], tmp_path: Path):
    before, after = write_run(tmp_path / "a.jsonl", 0.75), write_run(tmp_path / "b.jsonl", 0.6)
    plain = assay("compare", before, after, "-f", "json")
    assert plain.code == 0, plain.stderr
    assert "its own errors are not in the intervals" in plain.stdout
    sheet, judge = tmp_path / "sheet.jsonl", tmp_path / "kept.json"
    labelled(assay, before, sheet)
    saved = assay("calibrate", before, "--labels", sheet, "--save", judge)
    assert saved.code == 0, saved.stderr
    kept = json.loads(judge.read_text())
    assert kept["graderVersions"] == ["judge:1"]
    gain = kept["errors"]["sensitivity"] + kept["errors"]["specificity"] - 1
    assert 0.4 < gain < 0.8
    done = assay("compare", before, after, "--judge", judge, "-f", "json")
    assert "corrected for the judge's errors by kept.json: sensitivity" in done.stdout
    found, old = difference(done), difference(plain)
    assert abs(found[0] - old[0] / gain) < 1e-9
    assert found[2] - found[1] > (old[2] - old[1]) / gain, "what is not known of the judge"
    in_python = library.compare(before, after, judge=judge)
    assert (in_python.difference, *in_python.interval) == found
    with pytest.raises(InputError, match="No such file"):
        library.compare(before, after, judge=tmp_path / "none.json")
    judge.rename(tmp_path / "judge.json")
    assert difference(assay("compare", before, after, "-f", "json")) == found, "found by version"
    other = write_run(tmp_path / "c.jsonl", 0.6, version="2")
    wrong = assay("compare", before, other, "--judge", tmp_path / "judge.json")
    assert wrong.code == 0, "one of them is the judge's"
    another = write_run(tmp_path / "d.jsonl", 0.6, version="2")
    wrong = assay("compare", other, another, "--judge", tmp_path / "judge.json")
    assert wrong.code == 1
    assert "is of grader version judge:1; these runs have judge:2" in wrong.stderr
    gate = ("--fail-on", "regression", "--margin", "0.35")
    judged = assay("compare", before, after, *gate, "-f", "json")
    (tmp_path / "judge.json").unlink()
    as_graded = assay("compare", before, after, *gate, "-f", "json")
    assert (as_graded.code, judged.code) == (0, 4), "a loss that the judge made small"


def test_a_calibration_that_says_nothing_is_refused(assay: Callable[..., Any], tmp_path: Path):
    run = write_run(tmp_path / "a.jsonl", 0.75)
    assert assay("calibrate", run, "--save", tmp_path / "judge.json").code == 2
    (tmp_path / "bad.json").write_text("{}")
    other = write_run(tmp_path / "b.jsonl", 0.6)
    done = assay("compare", run, other, "--judge", tmp_path / "bad.json")
    assert done.code == 1
    assert "is no calibration" in done.stderr


def test_any_other_file_of_the_name_is_left_alone(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    row = {"id": "a", "input": "x", "output": "y", "trajectory": [], "metadata": {}, "timing": {}}
    row |= {"timing": {"start": 0, "end": 1, "total": 1}, "score": {"pass": True, "score": 1.0}}
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    (tmp_path / "judge.json").write_text('{"name": "an adapter"}')
    assert assay("compare", "a.jsonl", "b.jsonl").code == 0


@pytest.mark.parametrize("until", ["k", "decided"])
def test_an_experiment_is_corrected_for_the_errors_of_its_judge(
    assay: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    """The skill makes every other answer right; the judge is known to see 0.7 of a difference."""
    project = Project(tmp_path)
    project.write_prompts(20)
    env = project.env | {"LIKE_FAILS": " ".join(f"{n}?" for n in range(0, 20, 2))}
    words = ("ab", "prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-k", "2")
    words = (*words, "-g", "contains", "--until", until, "--effect", "0.3", "-j", "1")
    plain = assay(*words, env=env)
    assert plain.code == 0, plain.stderr
    before = project.verdict()
    assert before["judge"] == {"errors": None, "words": ""}
    version = project.rows("control")[0]["trials"][0]["grades"]["contains"]["version"]
    errors = {"sensitivity": 0.9, "specificity": 0.8, "variance": 0.001, "df": 49}
    kept = {"graderVersions": [f"contains:{version}"], "nLabels": 100, "nPrompts": 50}
    judge = project.write("kept.json", json.dumps(kept | {"errors": errors}))
    done = assay(*words, "--judge", judge, env=env)
    assert done.code == 0, done.stderr
    after, told = project.verdict(), " ".join(done.stdout.split())
    corrected = "corrected for the judge's errors by kept.json: sensitivity 0.90, specificity 0.80"
    short = (project.run / "verdict.md").read_text()
    page = blocks((project.run / "report.html").read_text())["index"].decode()
    assert [corrected in text for text in (told, short, page)] == [True] * 3
    assert after["judge"]["errors"] == errors
    seen = [one["pairs"][0]["passRate"] for one in (before, after)]
    if until == "k":  # an early end comes later if less is sure
        assert seen[1]["difference"] == pytest.approx(seen[0]["difference"] / 0.7)
    decided = after["decisions"].get("relnotes", seen[1])["difference"]
    size = f"{100 * decided:+.0f} points"
    assert f" pass; corrected for the judge's errors: {size}, " in told
    if until == "k":
        monkeypatch.chdir(project.folder)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        verdict = library.ab(
            "prompts.jsonl",
            agent=AGENT,
            treatment={"skill": "skills/relnotes"},
            graders=["contains"],
            k=2,
            output="by-python",
            judge=judge,
        )
        assert verdict.data["judge"]["errors"] == errors
        assert verdict.difference == pytest.approx(seen[1]["difference"])
    other = project.write(
        "other.json", json.dumps(kept | {"errors": errors, "graderVersions": ["x:1"]})
    )
    wrong = assay(*words, "--judge", other, env=env)
    assert wrong.code == 1
    assert "other.json is of grader version x:1; these runs have contains" in wrong.stderr
