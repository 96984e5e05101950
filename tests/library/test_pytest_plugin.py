"""The pytest plugin: an evaluation as a test, with its gate, its report and its budget."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy  # noqa: F401 - pytester forgets what its tests import, and numpy is loaded only once
import pytest

pytest_plugins = ["pytester"]
HEAD = """
import pytest
PROMPTS = [{"id": f"p{n}", "input": f"say {n}"} for n in range(12)]
def agent(text): return text.upper()
def right(trial): return True
def wrong(trial): return {"pass": False, "score": 0.0, "reasoning": "not what was asked"}
def broken(trial): raise ValueError("boom")
def half(trial): return int(trial.input[4:]) % 3 > 0
"""


@pytest.fixture
def evaluate(pytester):
    def run(arguments, *options, body="..."):
        marker = f"@pytest.mark.assay({arguments})"
        pytester.makepyfile(f"{HEAD}\n{marker}\ndef test_it(assay):\n    {body}\n")
        return pytester.runpytest("-p", "no:cacheprovider", "--strict-markers", *options)

    return run


def test_a_rate_that_is_shown_passes(evaluate):
    call = "PROMPTS, agent, graders=[right], k=2, jobs=4, min_pass_rate=0.7"
    done = evaluate(
        call, body="assert len(assay.trials) == 24; assert assay.evaluation.outcome == 'pass'"
    )
    done.assert_outcomes(passed=1)


def test_a_rate_that_is_shown_to_be_too_low_fails_with_reasons_and_a_report(evaluate):
    done = evaluate("PROMPTS, agent, graders=[wrong], min_pass_rate=0.7")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "pass rate 0.00 (0.00 to 0.*, 12 prompts): below min_pass_rate 0.7",
            "Failed prompts:",
            "*p0 (0 of 1 passed): not what was asked",
            "*and 2 more",
            "Report: *report.html",
        ]
    )
    report = re.search(r"Report: (.*)", done.stdout.str())[1]
    assert Path(report).read_text().startswith("<!doctype html>")


def test_what_is_not_decided_is_an_outcome_of_its_own(evaluate):
    done = evaluate("PROMPTS, agent, graders=[half], min_pass_rate=0.7")
    assert done.ret == 1
    done.stdout.fnmatch_lines(
        ["*= UNDECIDED =*", "undecided, whether at least 0.7: pass rate 0.67 *"]
    )
    assert "1 undecided" in done.stdout.str()
    assert "failed" not in done.stdout.str().splitlines()[-1]


@pytest.mark.parametrize("where", ["marker", "option"])
def test_what_is_not_decided_may_be_skipped(evaluate, where):
    more, options = (
        (", undecided='skip'", []) if where == "marker" else ("", ["--assay-undecided=skip"])
    )
    done = evaluate(f"PROMPTS, agent, graders=[half], min_pass_rate=0.7{more}", *options)
    done.assert_outcomes(skipped=1)


def test_a_grader_that_fails_is_the_reason(evaluate):
    done = evaluate("PROMPTS, agent, graders=[broken], min_pass_rate=0.5", "-W", "error")
    assert done.ret == 1
    done.stdout.fnmatch_lines(
        [
            "undecided: 12 of 12 trials were not graded because a grader failed *: broken: *",
            "*p0 (0 of 1 passed): not graded: broken: *boom*",
        ]
    )


def test_the_short_summary_has_undecided_tests(evaluate):
    done = evaluate("PROMPTS, agent, graders=[half], min_pass_rate=0.7", "-ra")
    done.stdout.fnmatch_lines(["UNDECIDED *::test_it - undecided, whether at least 0.7: *"])


def test_skips_and_warnings_are_those_of_the_test(evaluate):
    call = "PROMPTS, agent, graders=[right], min_pass_rate=0.5, filters=['zzz'], undecided='skip'"
    done = evaluate(call, "-ra", "-W", "default")
    done.stdout.fnmatch_lines(["*no prompts that match the filter 'zzz'*"])
    assert "pytest_plugin.py:" not in done.stdout.str().replace("test_pytest_plugin.py", "")


def test_too_few_prompts_are_refused_before_they_are_run(evaluate):
    done = evaluate("PROMPTS[:3], agent, graders=[right], min_pass_rate=0.9")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["3 prompts can show a pass rate of 0.26 at most, not 0.9, *"])
    assert "During handling" not in done.stdout.str()


def test_an_evaluation_against_an_earlier_run(evaluate, pytester):
    first = "PROMPTS, agent, graders=[right], k=2, jobs=4, min_pass_rate=0.5"
    evaluate(first, "--assay-output", "out").assert_outcomes(passed=1)
    (path,) = pytester.path.glob("out/*/trials.jsonl")
    path.rename(pytester.path / "main.jsonl")
    same = "PROMPTS, agent, graders=[half], k=2, jobs=4, against='main.jsonl', margin=0.3"
    done = evaluate(same.replace("half", "right"))
    done.assert_outcomes(passed=1)
    done = evaluate(same.replace("half", "wrong").replace("def wrong", "def right"))
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*trials against main: *"])


def test_an_error_of_assay_is_shown_with_its_hint(evaluate):
    done = evaluate("PROMPTS, 'nobody', min_pass_rate=0.5")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["there is no agent called 'nobody'", "  There are: *"])
    assert "Traceback" not in done.stdout.str()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("PROMPTS, agent", "an evaluation needs min_pass_rate or against"),
        ("PROMPTS, agent, min_pass_rate=80", "min_pass_rate is 80; *"),
        ("PROMPTS, min_pass_rate=0.5", "@pytest.mark.assay needs an agent"),
        ("PROMPTS, agent, min_pass_rate=0.5", "no grader judges the prompt 'p0'"),
        ("PROMPTS, agent, min_pass_rat=0.5", "*did you mean min_pass_rate?"),
        ("PROMPTS, agent, min_pass_rate=0.5, undecided='pass'", "undecided is 'pass'; *"),
        ("PROMPTS, agent, graders=[right], against='absent.jsonl'", "absent.jsonl: No such file*"),
        ("PROMPTS, agent, graders=[right], against='a', margin='x'", "margin is 'x'; *"),
    ],
)
def test_a_marker_that_asks_for_nothing_is_refused(evaluate, call, words):
    done = evaluate(call)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([words])


def test_the_session_has_one_budget(pytester):
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.assay(PROMPTS, "demo", graders=[right], min_pass_rate=0.5)
def test_first(): ...

@pytest.mark.assay(PROMPTS, "demo", graders=[right], min_pass_rate=0.5)
def test_second(): ...

def test_fixture(assay):
    with pytest.warns(match="stopped at max_cost 0"):
        assert list(assay.run(PROMPTS, agent="demo")) == []
"""
    )
    done = pytester.runpytest("-p", "no:cacheprovider", "--assay-max-cost", "0")
    assert "2 undecided" in done.stdout.str()
    done.stdout.fnmatch_lines(["undecided: --assay-max-cost 0 is spent"])
    done = pytester.runpytest("-p", "no:cacheprovider", "--assay-max-cost", "100")
    assert "2 passed" in done.stdout.str()


def test_a_budget_below_zero_is_refused(pytester):
    done = pytester.runpytest("--assay-max-cost", "-1")
    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_the_fixture_has_the_functions_of_the_library(pytester):
    pytester.makepyfile(
        HEAD
        + """
def test_it(assay, tmp_path):
    for name in ("a", "b"):
        assay.run(PROMPTS, agent=agent, graders=[right]).to(tmp_path / f"{name}.jsonl").collect()
    assert len(list(assay.read(tmp_path / "a.jsonl"))) == 12
    assert not any(t.passed for t in assay.grade(tmp_path / "a.jsonl", [wrong]))
    assert assay.compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", margin=0.5).decision == "same"

def test_no_marker(assay):
    assay.trials
"""
    )
    done = pytester.runpytest("-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["only a test with @pytest.mark.assay(...) has an evaluation"])


def test_the_plugin_is_loaded_quickly(tmp_path):
    program = (
        "import sys, time; import pytest; before = {*sys.modules}; began = time.perf_counter();"
        "import assay.pytest_plugin; print(time.perf_counter() - began);"
        "print(*sorted({*sys.modules} - before))"
    )
    # As installed, with compiled modules.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    times = []
    for _ in range(6):
        argv = [sys.executable, "-c", program]
        done = subprocess.run(argv, capture_output=True, text=True, env=env)
        seconds, modules = done.stdout.splitlines()
        times.append(float(seconds))
        assert modules == "assay assay.pytest_plugin"
    assert min(times) < 0.01
