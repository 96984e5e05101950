"""assay.compare gives what `assay compare` gives, as an object."""

import json
import os
import re

import pytest

import assay as library
from assay.errors import InputError, UsageError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three files of trials with known passes, and two of captures."""
    folder = tmp_path_factory.mktemp("runs")
    rates = {"steady": 5, "flaky": 3, "worse": 0}
    for name, n_passed in rates.items():
        rows = [trials_row(f"p{n}", n_passed) for n in range(30)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, n_passed in {"one": 30, "two": 12}.items():
        rows = [capture_row(f"p{n}", n < n_passed) for n in range(30)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def trials_row(id_, n_passed, k=5):
    trials = [
        {
            "trialNum": n,
            "output": "x",
            "trajectory": [],
            "duration": 100,
            "pass": n <= n_passed,
            "score": float(n <= n_passed),
        }
        for n in range(1, k + 1)
    ]
    return {"id": id_, "input": id_, "k": k, "trials": trials, "metadata": {}}


def capture_row(id_, passed):
    return {
        "id": id_,
        "input": id_,
        "output": "x",
        "trajectory": [],
        "metadata": {},
        "timing": {"start": 0, "end": 100, "total": 100},
        "toolErrors": False,
        "score": {"pass": passed, "score": float(passed)},
    }


def by_command(assay, *arguments):
    done = assay("compare", *arguments, "--format", "json")
    return json.loads(done.stdout), done


@pytest.mark.parametrize(
    ("files", "options", "arguments"),
    [
        (["steady", "flaky"], {}, []),
        (["flaky", "steady"], {"margin": 0.05}, ["--margin", "0.05"]),
        (["steady", "steady"], {"margin": 0.3}, ["--margin", "0.3"]),
        (["steady", "flaky", "worse"], {"seed": 7}, ["--seed", "7"]),
        (["one", "two"], {"strategy": "statistical"}, ["--strategy", "statistical"]),
        (["one", "two"], {"fail_on": "regression"}, ["--fail-on", "regression"]),
        (["steady", "worse"], {"fail_on": "not-better"}, ["--fail-on", "not-better"]),
        (
            ["steady", "flaky"],
            {"fail_on": "regression", "sequential": True},
            ["--fail-on", "regression", "--sequential"],
        ),
    ],
)
def test_the_report_is_that_of_the_command(assay, runs, files, options, arguments):
    paths = [f"{n}:{runs / f'{name}.jsonl'}" for n, name in enumerate(files)]
    reported, done = by_command(assay, *paths, *arguments)
    verdict = library.compare(*paths, **options)
    data = json.loads(json.dumps(verdict.data))
    del data["meta"]["generatedAt"], reported["meta"]["generatedAt"]
    for section, value in data.items():
        if section == "headToHead":  # of captures, the command adds a row for each prompt there
            reported[section].pop("prompts", None)
        assert reported[section] == value, section
    first = reported["verdict"][0]
    assert verdict.decision == first["code"]
    assert verdict.sentence == first["words"]
    pair = reported["pairs"][0]["passRate"]
    assert verdict.difference == pair["difference"]
    assert verdict.interval == (pair["interval"]["low"], pair["interval"]["high"])
    if "fail_on" in options:
        codes = {"pass": 0, "fail": 3, "cannot-judge": 4, "go-on": 4}
        assert codes[verdict.gate] == done.code


def test_files_have_the_same_labels_as_in_the_command(assay, runs):
    paths = [str(runs / "steady.jsonl"), str(runs / "flaky.jsonl")]
    reported, _ = by_command(assay, *paths)
    verdict = library.compare(*paths)
    assert (verdict.pairs[0].run_a, verdict.pairs[0].run_b) == ("steady", "flaky")
    assert verdict.sentence == reported["verdict"][0]["words"]
    assert str(verdict) == verdict.sentence
    assert repr(verdict) == f"<Verdict worse: {verdict.sentence}>"


def test_a_path_may_be_an_object(runs):
    assert library.compare(runs / "flaky.jsonl", runs / "steady.jsonl").decision == "better"


def test_of_three_runs_every_two_are_compared(runs):
    verdict = library.compare(*(runs / f"{name}.jsonl" for name in ("flaky", "worse", "steady")))
    found = {(pair.run_a, pair.run_b): pair.decision for pair in verdict.pairs}
    assert found == {
        ("flaky", "worse"): "worse",
        ("flaky", "steady"): "better",
        ("worse", "steady"): "better",
    }
    assert verdict.decision == "worse"


def test_the_worst_outcome_of_a_gate_counts(runs):
    files = (runs / f"{name}.jsonl" for name in ("flaky", "worse", "steady"))
    verdict = library.compare(*files, fail_on="regression")
    assert [pair.gate for pair in verdict.pairs] == ["fail", "pass", None]
    assert verdict.gate == "fail"
    assert verdict.pairs[0].reason


def test_a_notebook_shows_tables(runs):
    page = library.compare(runs / "steady.jsonl", runs / "flaky.jsonl")._repr_html_()
    assert "<b>flaky is worse than steady" in page
    assert page.count("<table>") >= 3
    assert re.search(r"<td>flaky - steady</td><td>pass rate, points</td><td>-40.0 ", page)


def test_names_of_runs_are_escaped_in_a_notebook(runs):
    path = runs / "steady.jsonl"
    page = library.compare(f"<script>a:{path}", f"b:{runs / 'flaky.jsonl'}")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;a" in page


def test_markdown_is_that_of_the_command(assay, runs):
    paths = [f"a:{runs / 'steady.jsonl'}", f"b:{runs / 'flaky.jsonl'}"]
    done = assay("compare", *paths, "--format", "markdown")
    assert library.compare(*paths).markdown() == done.stdout


def test_an_unhealthy_measurement_has_no_verdict(runs, tmp_path):
    rows = [capture_row(f"p{n}", True) for n in range(30)]
    for row in rows:
        del row["score"]
        row["failure"] = {"cause": "provider", "message": "429"}
    (tmp_path / "sick.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = library.compare(runs / "one.jsonl", tmp_path / "sick.jsonl", fail_on="regression")
    assert (verdict.decision, verdict.gate) == ("unhealthy", "cannot-judge")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": 2}, "margin is 2"),
        ({"margin": -0.1}, "margin is -0.1"),
        ({"fail_on": "anything"}, "fail_on is 'anything'"),
        ({"strategy": "luck"}, "strategy is 'luck'"),
        ({"sequential": True}, 'sequential needs fail_on="regression"'),
    ],
)
def test_arguments_that_do_not_fit_are_refused(runs, options, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        library.compare(runs / "one.jsonl", runs / "two.jsonl", **options)


def test_one_run_is_not_enough(runs):
    with pytest.raises(UsageError, match="at least two runs"):
        library.compare(runs / "one.jsonl")


def test_a_missing_file_is_named(runs, tmp_path):
    with pytest.raises(InputError, match=r"absent\.jsonl"):
        library.compare(runs / "one.jsonl", tmp_path / "absent.jsonl")


def test_strict_refuses_runs_that_differ(runs, tmp_path):
    rows = [capture_row(f"q{n}", True) for n in range(30)]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="the runs differ") as caught:
        library.compare(runs / "one.jsonl", tmp_path / "other.jsonl", strict=True)
    assert "leave out strict" in caught.value.hint


def test_two_runs_of_one_label_are_refused(runs):
    with pytest.raises(UsageError, match="two runs are labelled 'a'"):
        library.compare(f"a:{runs / 'one.jsonl'}", f"a:{runs / 'two.jsonl'}")


def test_the_program_is_left_as_it_was(runs):
    before = dict(os.environ)
    library.compare(runs / "one.jsonl", runs / "two.jsonl")
    assert dict(os.environ) == before


def test_trials_and_runs_are_compared_as_files_are(tmp_path):
    prompts = [f"say {n}" for n in range(8)]
    run = library.run(prompts, agent=str.upper, graders=["contains:SAY"], k=2)
    other = library.run(prompts, agent=str.lower, graders=["contains:SAY"], k=2)
    other.to(tmp_path / "other.jsonl")
    verdict = library.compare(run, other)
    assert verdict.decision == "worse"
    again = library.compare(run.collect(), tmp_path / "other.jsonl")
    assert (again.decision, again.interval) == (verdict.decision, verdict.interval)


def test_trials_are_called_by_their_file(runs):
    old, new = (library.read(runs / name) for name in ("steady.jsonl", "worse.jsonl"))
    (pair,) = library.compare(old, new).pairs
    assert (pair.run_a, pair.run_b) == ("steady", "worse")
    (pair,) = library.compare(old, library.grade(old, [lambda output: True])).pairs
    assert (pair.run_a, pair.run_b) == ("1/steady", "2/steady")
    run = library.run(["a"], agent=str.upper, graders=[lambda output: True])
    (pair,) = library.compare(run, run.collect()).pairs
    assert (pair.run_a, pair.run_b) == ("run-1", "run-2")


def test_some_trials_of_a_run_can_be_compared(tmp_path):
    prompts = [{"id": str(n), "input": str(n), "hint": "1"} for n in range(6)]
    before, after = (
        library.run(prompts, agent=agent, graders=["exact"], k=2).collect()
        for agent in (lambda text: "1", lambda text: "0" if int(text) < 3 else "1")
    )
    assert library.compare(before, after).difference == -0.5
    some = [[trial for trial in run if int(trial.id) < 3] for run in (before, after)]
    assert library.compare(*some).difference == -1
    with pytest.raises(UsageError, match="run 2 is of type list"):
        library.compare(before, [])


def test_a_run_is_called_by_its_file(tmp_path):
    graders = [lambda output: output == "A"]
    old = library.run(["a"], agent=str.upper, graders=graders).to(tmp_path / "old.jsonl")
    new = library.run(["a"], agent=str.lower, graders=graders).to(tmp_path / "new.jsonl")
    (pair,) = library.compare(old, new.collect()).pairs
    assert (pair.run_a, pair.run_b) == ("old", "new")
