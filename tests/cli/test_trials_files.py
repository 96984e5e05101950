"""Files of `assay trials` where files of `assay capture` are accepted: graded again, summed up,
formatted, sampled and reported."""

import csv
import io
import json
from pathlib import Path

import pytest

from assay.records.trial.files import open_trials

ROW = {
    "id": "p",
    "input": "Say yes",
    "hint": "yes",
    "k": 3,
    "trials": [
        {"trialNum": 1, "output": "yes", "trajectory": [], "duration": 10, "mine": {"kept": 1}},
        {"trialNum": 2, "output": "no", "trajectory": [], "duration": 20},
        {
            "trialNum": 3,
            "output": "",
            "trajectory": [],
            "duration": 30,
            "failure": {"cause": "provider", "message": "busy"},
        },
    ],
    "metadata": {"category": "c"},
    "extra": [1, {"deep": True}],
}


@pytest.fixture
def trials(tmp_path) -> Path:
    path = tmp_path / "t.jsonl"
    more = {**ROW, "id": "q", "trials": [{**t, "output": "yes"} for t in ROW["trials"][:2]], "k": 2}
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROW, more)))
    return path


def grade(assay, source, *graders: str, target: str = "") -> list[dict]:
    given = [word for grader in graders for word in ("-g", grader)]
    done = assay("grade", source, *given, *(["-o", target] if target else []))
    assert done.code == 0, done.stderr
    text = Path(source).with_name(target).read_text() if target else done.stdout
    return [json.loads(line) for line in text.splitlines()]


def test_grade_makes_the_pass_numbers_and_keeps_everything_else(assay, trials) -> None:
    first, second = grade(assay, trials, "contains")
    assert (first["passRate"], first["nMeasured"]) == (0.5, 2)
    assert (first["passAtK"], first["passExpK"]) == (0.75, 0.25)
    assert [entry["k"] for entry in first["perK"]] == [1, 2]
    assert [trial.get("pass") for trial in first["trials"]] == [True, False, None]
    assert first["trials"][0]["grades"]["contains"]["pass"] is True
    assert first["trials"][0]["mine"] == {"kept": 1}
    assert (first["extra"], first["metadata"], first["k"]) == (ROW["extra"], ROW["metadata"], 3)
    assert second["passRate"] == 1.0


def test_a_second_grader_keeps_the_grades_of_the_first(assay, trials, tmp_path) -> None:
    grade(assay, trials, "contains", target="one.jsonl")
    grade(assay, tmp_path / "one.jsonl", "regex:.", target="two.jsonl")
    first, _ = grade(assay, tmp_path / "two.jsonl", "exact", "regex:n")
    assert (first["passRate"], first["nMeasured"]) == (0.0, 2)
    graded = first["trials"][1]
    assert sorted(graded["grades"]) == ["exact", "regex"]
    before = [(g["grader"], g["pass"], bool(g["version"])) for g in graded["earlierGrades"]]
    assert before == [("contains", False, True), ("regex", True, True)]
    assert "earlierGrades" not in first["trials"][2]  # which no grader has judged


def test_the_same_grader_again_leaves_nothing_behind(assay, trials, tmp_path) -> None:
    once = grade(assay, trials, "contains", target="one.jsonl")
    again = grade(assay, tmp_path / "one.jsonl", "contains")
    assert again == once
    (tmp_path / "g.py").write_text("def grade(output): return output == 'yes'\n")
    grade(assay, trials, "g.py", target="old.jsonl")
    (tmp_path / "g.py").write_text("def grade(output): return output != 'yes'\n")
    first, _ = grade(assay, tmp_path / "old.jsonl", "g.py")
    (old,) = first["trials"][0]["earlierGrades"]
    assert (old["grader"], old["pass"]) == ("g", True)
    assert old["version"] != first["trials"][0]["grades"]["g"]["version"]


def test_rows_of_capture_keep_earlier_grades_too(assay, prompts, shell_agent, tmp_path) -> None:
    given = prompts({"id": "p", "input": "say yes", "hint": "yes"})
    assay("capture", given, "-s", shell_agent, "-g", "contains", "-o", "c.jsonl")
    (second,) = grade(assay, tmp_path / "c.jsonl", "exact", target="d.jsonl")
    (third,) = grade(assay, tmp_path / "d.jsonl", "regex:nothing")
    assert [g["grader"] for g in second["earlierGrades"]] == ["contains"]
    assert [g["grader"] for g in third["earlierGrades"]] == ["contains", "exact"]
    assert third["score"]["pass"] is False
    assert third["identity"]["graders"].keys() == {"regex"}
    seed = {"id": "p", "input": "i", "output": "o", "score": {"pass": True, "score": 1}}
    (tmp_path / "seed.jsonl").write_text(json.dumps(seed) + "\n")
    (row,) = grade(assay, tmp_path / "seed.jsonl", "regex:x")
    assert row["earlierGrades"] == [{"pass": True, "score": 1.0, "grader": "score"}]


def test_regrade_keeps_earlier_grades(assay, prompts, shell_agent, tmp_path) -> None:
    given = prompts({"id": "p", "input": "say yes", "hint": "yes"})
    for command, more in (("capture", ()), ("trials", ("-k", 2))):
        out = tmp_path / f"{command}.jsonl"
        common = (command, given, "-s", shell_agent, *more, "-o", out)
        assay(*common, "-g", "contains")
        assert assay(*common, "-g", "exact", "--resume", "--regrade").code == 0
        row = json.loads(out.read_text())
        for trial in row.get("trials", [row]):
            assert trial["grades"].keys() == {"exact"}
            assert [g["grader"] for g in trial["earlierGrades"]] == ["contains"]


@pytest.mark.parametrize("command", ["capture", "trials"])
@pytest.mark.parametrize("foreign", [True, False])
def test_resume_never_ignores_a_grader(
    assay, prompts, shell_agent, tmp_path, command, foreign
) -> None:
    """Rows without a grade are graded, also those that do not say what they were made from."""
    given = prompts({"id": "p", "input": "say yes", "hint": "yes"}, {"id": "q", "input": "say no"})
    out = tmp_path / "out.jsonl"
    common = (
        command,
        given,
        "-s",
        shell_agent,
        "-o",
        out,
        *(["-k", 2] if "t" in command[0] else []),
    )
    assay(*common)
    if foreign:
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        for row in rows:
            del row["identity"], row["specHash"]
        out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trusted = ["--keep-unsigned"] if foreign else []
    done = assay(*common, "--resume", "-g", "contains:yes", *trusted)
    assert done.code == 0, done.stderr
    assert "2 rows" in done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    if command == "trials":
        assert [row["passRate"] for row in rows] == [1.0, 0.0]
    else:
        assert [row["score"]["pass"] for row in rows] == [True, False]
    assert assay(*common, "--resume", "-g", "contains:yes").code == 0


def test_resume_of_an_interrupted_prompt_grades_what_has_finished(
    assay, prompts, shell_agent, tmp_path
) -> None:
    given = prompts({"id": "p", "input": "say yes"})
    out = tmp_path / "out.jsonl"
    assay("trials", given, "-s", shell_agent, "-k", 1, "-o", out)
    done = assay(
        "trials", given, "-s", shell_agent, "-k", 2, "-o", out, "--resume", "-g", "regex:y"
    )
    assert done.code == 0, done.stderr
    row = json.loads(out.read_text())
    assert [trial["pass"] for trial in row["trials"]] == [True, True]
    assert row["passRate"] == 1.0


def test_summarize(assay, trials) -> None:
    rows = assay("summarize", trials).rows
    assert [(row["id"], row["trialNum"], row["duration"]) for row in rows] == [
        ("p", 1, 10),
        ("p", 2, 20),
        ("p", 3, 30),
        ("q", 1, 10),
        ("q", 2, 20),
    ]
    assert rows[2]["cause"] == "provider"
    text = assay("summarize", trials, "--markdown").stdout
    assert "## Evaluation Record: p (trial 2)" in text


def test_format(assay, trials, tmp_path) -> None:
    assert assay("format", trials).stdout == trials.read_text()
    grade(assay, trials, "contains", target="g.jsonl")
    table = list(csv.DictReader(io.StringIO(assay("format", "g.jsonl", "-f", "csv").stdout)))
    shown = [(row["id"], row["trial"], row["output"], row["pass"]) for row in table]
    assert shown[:3] == [("p", "1", "yes", "true"), ("p", "2", "no", "false"), ("p", "3", "", "")]
    page = assay("format", "g.jsonl", "-f", "markdown").stdout
    assert "Total: 5 trials" in page
    assert "- **Pass rate**: 3/4 (75.0%)" in page
    assert "### p (trial 2)" in page
    piped = assay("format", "-f", "csv", stdin=(tmp_path / "g.jsonl").read_text())
    assert len(piped.stdout.splitlines()) == 6


def test_calibrate_samples_labels_and_grades_again(assay, trials, tmp_path) -> None:
    grade(assay, trials, "contains", target="g.jsonl")
    page = assay("calibrate", "g.jsonl", "-g", "regex:.")
    assert "## Sample 1: p (trial 2)" in page.stdout
    assert "**Re-scored:** PASS (1)" in page.stdout
    assert assay("calibrate", "g.jsonl", "--export", "sheet.jsonl").code == 0
    sheet = [json.loads(line) for line in (tmp_path / "sheet.jsonl").read_text().splitlines()]
    assert {(row["id"], row["trialNum"]) for row in sheet} == {
        ("p", 1),
        ("p", 2),
        ("q", 1),
        ("q", 2),
    }
    for row in sheet:
        row["label"] = "pass"
    (tmp_path / "sheet.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sheet))
    report = json.loads(assay("calibrate", "g.jsonl", "--labels", "sheet.jsonl", "--json").stdout)
    assert report["compared"] == 4
    assert [each["id"] for each in report["disagreements"]] == ["p (trial 2)"]


def test_calibrate_says_that_rows_are_ungraded(assay, trials, prompts, shell_agent) -> None:
    done = assay("calibrate", trials)
    assert (done.code, done.stdout) == (1, "")
    assert "none of the 4 trials is graded" in done.stderr
    assert "assay grade" in done.stderr
    assay("capture", prompts("R", "R"), "-s", shell_agent, "-o", "c.jsonl")
    done = assay("calibrate", "c.jsonl")
    assert done.code == 1
    assert "none of the 2 rows is graded" in done.stderr
    assay("capture", prompts("R", "R"), "-s", shell_agent, "-g", "contains:ok", "-o", "d.jsonl")
    done = assay("calibrate", "d.jsonl")
    assert done.code == 0
    assert "No failures found" in done.stderr


def test_report_in_every_format(assay, trials, tmp_path) -> None:
    grade(assay, trials, "contains", target="g.jsonl")
    for name in ("r.html", "r.md", "r.xml"):
        assert assay("report", "g.jsonl", "-o", name).code == 0
    # A case for each prompt, whatever the number of its trials.
    assert 'name="p"' in (tmp_path / "r.xml").read_text()


def test_a_trials_file_is_not_held_in_memory(assay, tmp_path) -> None:
    text = "x" * 100_000
    trial = {"output": text, "trajectory": [], "duration": 1}
    row = {**ROW, "trials": [{**trial, "trialNum": n} for n in range(1, 6)]}
    line = json.dumps(row)
    peaks = []
    for n_rows in (10, 120):  # 5 and 60 MB
        (tmp_path / "big.jsonl").write_text(f"{line}\n" * n_rows)
        done = [
            assay("grade", "big.jsonl", "-g", "regex:x", "-o", f"g{n_rows}.jsonl", measure=True),
            assay("summarize", "big.jsonl", "-o", f"s{n_rows}.jsonl", measure=True),
            assay("format", "big.jsonl", "-f", "csv", "-o", f"f{n_rows}.csv", measure=True),
            assay("calibrate", f"g{n_rows}.jsonl", "-o", f"c{n_rows}.md", measure=True),
        ]
        assert [each.code for each in done] == [0, 0, 0, 0], done
        peaks.append([each.peak_mb for each in done])
    assert all(large < small + 40 for small, large in zip(*peaks, strict=True)), peaks


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "trials": [{"trialNum": 1}]}, "missing field `output`"),
        ({**ROW, "trials": []}, "`trials` is empty"),
        ({**ROW, "trials": 7}, "must be a list"),
    ],
)
def test_a_trial_that_cannot_be_read_is_named(assay, tmp_path, row, said) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps(row) + "\n")
    done = assay("grade", "t.jsonl", "-g", "contains")
    assert done.code == 1
    assert "t.jsonl:2: " in done.stderr
    assert said in done.stderr
    assert len(done.rows) == 1


def test_half_a_character_in_an_output_is_repaired(assay, tmp_path) -> None:
    text = json.dumps({**ROW, "trials": ROW["trials"][:1]}).replace('"yes"', '"\\ud83d yes"')
    (tmp_path / "t.jsonl").write_text(text + "\n")
    assert assay("summarize", "t.jsonl").rows[0]["output"] == "\ufffd yes"
    assert assay("format", "t.jsonl", "-f", "csv").code == 0
    done = assay("grade", "t.jsonl", "-g", "contains")  # as for a row of capture
    assert (done.code, done.stdout) == (1, "")
    assert "t.jsonl:1: not a JSON object" in done.stderr


def test_the_trials_of_either_kind_of_file_look_alike(
    assay, prompts, shell_agent, tmp_path
) -> None:
    """What `assay export` and others read: one row per trial, as capture writes it."""
    given = prompts({"id": "p", "input": "say yes", "hint": "yes", "mine": 1})
    assay("capture", given, "-s", shell_agent, "-g", "contains", "-o", "c.jsonl")
    assay("trials", given, "-s", shell_agent, "-g", "contains", "-k", 2, "-o", "t.jsonl")
    import msgspec

    decoder = msgspec.json.Decoder(dict)
    with open_trials(tmp_path / "c.jsonl") as rows:
        (captured,) = rows.rows(decoder)
        assert not rows.has_trials
    with open_trials(tmp_path / "t.jsonl") as rows:
        split = list(rows.rows(decoder))
        assert rows.has_trials
    assert [row.pop("trialNum") for row in split] == [1, 2]
    for row in split:
        assert row["score"]["pass"] is captured["score"]["pass"]
        assert captured.keys() - row.keys() == set()
        assert row["mine"] == 1


BROKEN = ['{"id":', '{"id": "x", "output": 3}', '{"id": "x", "trials": [{"output": 3}]}']
READERS = [("summarize",), ("format", "-f", "csv"), ("format", "-f", "markdown")]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("command", READERS)
def test_an_error_names_the_line_and_not_the_trial(assay, trials, command, broken) -> None:
    name, *options = command
    lines = trials.read_text().splitlines()
    trials.write_text("\n".join([*lines, "", *lines, broken, *lines, ""]))
    done = assay(name, trials, *options)
    assert done.code == 1
    assert f"{trials}:6: " in done.stderr


@pytest.mark.parametrize("broken", BROKEN[:2])
@pytest.mark.parametrize("command", READERS[:2])
def test_also_in_a_large_file(assay, trials, command, broken) -> None:
    name, *options = command
    long = {**ROW, "metadata": {"text": "x" * 100_000}}  # repeated in each of three trials
    text = json.dumps(long) + "\n"
    trials.write_text(text * 70 + broken + "\n" + text * 10)
    done = assay(name, trials, *options)
    assert done.code == 1
    assert f"{trials}:71: " in done.stderr
