"""assay.read and assay.grade: trials of files, frames, and new grades."""

import json
import pickle
import sys
import time
from copy import copy, deepcopy

import pytest

import assay as library
from assay.errors import InputError, OutputError, PluginError, UsageError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    prompts = [{"id": f"p{n}", "input": f"say {n}", "hint": str(n)} for n in range(3)]
    library.run(prompts, agent=str.upper, graders=["contains"]).to(folder / "c.jsonl").collect()
    library.run(prompts, agent=str.upper, graders=["contains"], k=2).to(
        folder / "t.jsonl"
    ).collect()
    return folder


def test_trials_can_be_read_again_and_again(files):
    trials = library.read(files / "t.jsonl")
    assert len(list(trials)) == len(list(trials)) == 6
    assert repr(trials) == f"<Trials of {files / 't.jsonl'}>"


@pytest.mark.parametrize("k", [None, 2])
def test_fields_of_prompts_that_assay_does_not_know_reach_rows_graders_and_programs(tmp_path, k):
    prompts = [{"id": "a", "input": "x", "team": "red"}, {"id": "b", "input": "y", "team": "blue"}]
    graders = [lambda trial: trial.row["team"] == "red"]
    expected = [("red", True), ("blue", False)] * (k or 1)

    def seen(trials):
        return [(trial.extra["team"], trial.passed) for trial in sorted(trials, key=by_number)]

    def by_number(trial):
        return (trial.number, trial.id)

    run = library.run(prompts, agent=str.upper, graders=graders, k=k).to(tmp_path / "run.jsonl")
    assert seen(run) == seen(run) == expected
    again = library.grade(tmp_path / "run.jsonl", graders)
    assert seen(again) == seen(library.grade(list(again), graders)) == expected
    assert seen(library.grade(list(again), graders).to(tmp_path / "kept.jsonl")) == expected
    last = list(library.read(tmp_path / "kept.jsonl"))[-1]
    for same in (last, copy(last), deepcopy(last), pickle.loads(pickle.dumps(last))):
        assert same == last
        assert same.to_row()["team"] == "blue"


def test_a_trial_is_shown_in_one_line(files):
    graded, long = next(iter(library.read(files / "c.jsonl"))), "word " * 50
    assert repr(graded) == "<Trial 1 of p0: passed, 'SAY 0'>"
    other, crashed = library.run([long, "x"], agent=lambda text: text if text == long else 1 / 0)
    assert repr(other).startswith("<Trial 1 of 1: not graded, 'word word ")
    assert len(repr(other)) < 110
    assert repr(crashed) == "<Trial 1 of 2: failed (agent_crash), ''>"


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_frame_has_a_row_for_each_trial(files, kind):
    pytest.importorskip(kind)
    frame = library.read(files / "t.jsonl").frame(kind)
    assert type(frame).__module__.startswith(kind)
    assert list(frame["id"]) == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert list(frame["trial"]) == [1, 2] * 3
    assert list(frame["pass"]) == [True] * 6


def test_the_frame_is_that_of_export_table(assay, files):
    done = assay("export", "table", files / "t.jsonl", "-o", files / "table.jsonl")
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in (files / "table.jsonl").read_text().splitlines()]
    frame = library.read(files / "t.jsonl").frame()
    assert list(frame.columns) == [*rows[0], "grader_failures"]
    assert list(frame["output"]) == [row["output"] for row in rows]


def test_without_a_library_for_frames_the_error_says_what_to_do(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(PluginError, match="needs pandas or polars") as caught:
        library.read(files / "t.jsonl").frame()
    assert caught.value.hint == "pip install pandas"
    with pytest.raises(PluginError, match="no data frame of 'excel'"):
        library.read(files / "t.jsonl").frame("excel")


def test_a_notebook_shows_the_first_trials(files):
    page = library.read(files / "c.jsonl")._repr_html_()
    assert page.count("<tr>") == 4
    assert "<td>SAY 0</td>" in page


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "absent.jsonl"), ("", "no rows"), ("{}\n", "neither a capture"), ("x\n", ":1")],
)
def test_what_is_no_result_is_refused(tmp_path, content, words):
    path = tmp_path / "absent.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words):
        library.read(path)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        library.read(tmp_path)


@pytest.mark.parametrize("name", ["c.jsonl", "t.jsonl"])
def test_a_function_grades_again(files, name):
    before = (files / name).read_bytes()
    graded = list(library.grade(files / name, [lambda trial: trial.output.endswith("1")]))
    assert {trial.id for trial in graded if trial.passed} == {"p1"}
    assert all(set(trial.grades) == {"lambda"} for trial in graded)
    assert (files / name).read_bytes() == before


def test_grade_is_that_of_the_command(assay, files):
    done = assay("grade", files / "t.jsonl", "-g", "exact")
    by_command = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [json.loads(line) for _, line in library.grade(files / "t.jsonl", ["exact"]).lines]
    assert ours == by_command


def test_a_run_can_be_graded_and_what_was_graded_can_be_graded(files):
    run = library.run(["x"], agent=str.upper)
    once = library.grade(run, [lambda trial: trial.output == "X"])
    (twice,) = library.grade(once, ["exact:x"], jobs=2)
    assert [trial.passed for trial in once] == [True]
    assert set(twice.grades) == {"exact"}


def test_a_grader_that_hangs_is_ended(files):
    began = time.monotonic()
    with pytest.warns(library.AssayWarning, match="3 of 3 trials were not graded") as said:
        (trial, *_) = library.grade(
            files / "c.jsonl", [lambda t: time.sleep(60)], grader_timeout_s=0.3
        )
    assert [warning.filename for warning in said] == [__file__]
    assert trial.grader_failures
    assert trial.passed is None
    assert time.monotonic() - began < 20


def test_graders_are_a_list_with_at_least_one(files):
    with pytest.raises(UsageError, match="graders is a list"):
        library.grade(files / "c.jsonl", "contains")
    with pytest.raises(UsageError, match="there is no grader"):
        library.grade(files / "c.jsonl", [])
    with pytest.raises(UsageError, match="rows is of type int"):
        library.grade(3, ["contains"])


def test_trials_have_a_length_and_can_be_indexed(files):
    trials = library.read(files / "t.jsonl")
    assert len(trials) == 6
    assert (trials[0].id, trials[-1].number) == ("p0", 2)
    assert [trial.id for trial in trials[1:3]] == ["p0", "p1"]


@pytest.mark.parametrize("name", ["c.jsonl", "t.jsonl"])
def test_trials_can_be_written_to_a_file(files, tmp_path, name):
    trials = library.read(files / name)
    again = trials.to(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (files / name).read_bytes()
    with pytest.raises(OutputError, match="exists already"):
        trials.to(tmp_path / "again.jsonl")
    assert len(again.to(tmp_path / "again.jsonl", overwrite=True)) == len(trials)


def test_trials_of_one_prompt_are_written_to_one_row(tmp_path):
    run = library.run(["x", "y"], agent=str.upper, graders=["exact:X"], k=3)
    written = run.collect().to(tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["k"], len(row["trials"]), row["passRate"]) for row in rows] == [
        (3, 3, 1),
        (3, 3, 0),
    ]
    assert [trial.number for trial in written] == [1, 2, 3] * 2


@pytest.mark.parametrize("name", ["c.jsonl", "t.jsonl"])
def test_some_trials_can_be_graded(files, name):
    some = [trial for trial in library.read(files / name) if trial.id != "p1"]
    graded = library.grade(some, ["exact:SAY 0"])
    assert [(t.id, t.number, t.passed) for t in graded] == [
        (trial.id, trial.number, trial.id == "p0") for trial in some
    ]


def test_trials_that_a_command_wrote_are_complete(assay, tmp_path):
    grader = tmp_path / "g.py"
    grader.write_text("def grade(output):\n    raise ValueError('boom')\n")
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"id": "a", "input": "What is 1 + 2?"}\n')
    assay("capture", prompts, "-s", "demo", "-g", grader, "-o", tmp_path / "cli.jsonl")
    (trial,) = library.read(tmp_path / "cli.jsonl")
    (row,) = map(json.loads, (tmp_path / "cli.jsonl").read_text().splitlines())
    assert trial.to_row() == row
    assert "boom" in next(iter(trial.grader_failures.values()))
    assert (trial.raw, trial.cwd, trial.spec_hash) == (row["raw"], row["cwd"], row["specHash"])
    assert trial.timing.start == row["timing"]["start"]
    assert trial.failure is trial.hint is trial.usage.reasoning_tokens is None
