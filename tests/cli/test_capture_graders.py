"""Graders that are programs: right, wrong, broken and slow ones."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = """
import json, sys
asked = json.load(sys.stdin)
with open("asked.json", "w") as file:
    json.dump(asked, file)
right = asked["output"] == asked.get("hint")
print(json.dumps({"pass": right, "score": 0.25, "reasoning": "r", "outcome": {"k": 1}}))
"""


@pytest.fixture
def grader(tmp_path: Path) -> Callable[[str], Path]:
    def write(code: str) -> Path:
        path = tmp_path / "grader.py"
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)
        return path

    return write


def test_a_grader_is_asked_as_in_the_seed(
    assay: Callable, agent: Callable, prompts: Callable, grader: Callable, tmp_path: Path
) -> None:
    path = prompts({"id": "a", "input": "hi", "hint": "hi", "metadata": {"c": 1}})
    done = assay("capture", path, "-s", agent(), "-g", grader(GOOD))
    assert done.code == 0, done.stderr
    (row,) = done.rows
    score = row["score"]
    assert (score["pass"], score["score"], score["reasoning"]) == (True, 0.25, "r")
    assert row["outcome"] == {"k": 1}
    assert len(score["version"]) == 12
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert list(asked) == ["input", "output", "hint", "trajectory", "metadata", "cwd"]
    assert (asked["input"], asked["output"], asked["cwd"]) == ("hi", "hi", str(tmp_path))
    assert asked["metadata"]["c"] == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; print('why', file=sys.stderr); sys.exit(3)", "exited with code 3: why"),
        ("raise RuntimeError('oops')", "oops"),
        ("import os; os.kill(os.getpid(), 9)", "137"),
        ("print('no json')", "not valid JSON: no json"),
        ("pass", "no output"),
        ("print('{\"pass\": true}')", "score"),
        ('print(\'{"pass": true, "score": 7}\')', "score"),
        ('print(\'{"pass": true, "score": -0.1}\')', "score"),
        ('print(\'{"pass": "yes", "score": 1}\')', "pass"),
        ('print(\'{"pass": true, "score": NaN}\')', "JSON"),
        ("print('[' * 100000)", "JSON"),
    ],
)
def test_a_broken_grader_costs_the_grade_and_nothing_else(
    assay: Callable, agent: Callable, prompts: Callable, grader: Callable, code: str, said: str
) -> None:
    done = assay("capture", prompts("a", "b"), "-s", agent(), "-g", grader(code))
    assert done.code == 1
    assert "2 trials were not graded" in done.stderr
    assert [row["output"] for row in done.rows] == ["a", "b"]
    for row in done.rows:
        assert "score" not in row
        assert len(row["trajectory"]) == 1
        assert said in row["graderFailures"]["grader"]
        assert said in row["errors"][0]


def test_a_grader_that_hangs_is_ended_with_its_children(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    grader: Callable,
    tag: str,
    alive: Callable,
) -> None:
    child = f"[{sys.executable!r}, '-c', 'import time; time.sleep(300)', {tag!r}]"
    code = f"import subprocess, time\nsubprocess.Popen({child})\ntime.sleep(300)"
    done = assay("capture", prompts("a"), "-s", agent(), "-g", grader(code), "--grader-timeout", 1)
    assert alive() == []
    assert done.code == 1
    assert done.seconds < 15
    (row,) = done.rows
    assert row["output"] == "a"
    assert "no answer in 1 s" in row["graderFailures"]["grader"]


@pytest.mark.parametrize(
    ("text", "cause", "graded"),
    [
        ("!do wait 60", "agent_timeout", True),
        ("!do noresult ; exit 3", "agent_crash", True),
        ("a\0b", "spawn", False),
    ],
)
def test_a_grader_is_not_asked_about_a_trial_that_gave_no_answer(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    grader: Callable,
    tmp_path: Path,
    text: str,
    cause: str,
    graded: bool,
) -> None:
    """What counts against the agent fails without being asked; what does not is not measured."""
    done = assay("capture", prompts(text), "-s", agent(), "-g", grader(GOOD), "-t", 500)
    assert done.code == (0 if graded else 1), done.stderr
    assert not (tmp_path / "asked.json").exists()
    (row,) = done.rows
    assert row["failure"]["cause"] == cause
    assert ("score" in row) is graded
    if graded:
        assert (row["score"]["pass"], row["score"]["score"]) == (False, 0)


def test_a_python_grader_need_not_be_executable(
    assay: Callable, agent: Callable, prompts: Callable, grader: Callable
) -> None:
    path = grader(GOOD)
    path.chmod(0o644)
    assert "score" in assay("capture", prompts("a"), "-s", agent(), "-g", path).rows[0]


def test_two_graders_are_put_together(
    assay: Callable, agent: Callable, prompts: Callable, grader: Callable, tmp_path: Path
) -> None:
    other = tmp_path / "other.sh"
    other.write_text("""#!/bin/sh\necho '{"pass": true, "score": 0.75}'""")
    other.chmod(0o755)
    args = ("capture", prompts("a"), "-s", agent(), "-g", grader(GOOD), "-g", other)
    (row,) = assay(*args).rows
    assert (row["score"]["pass"], row["score"]["score"]) == (False, 0.5)
    assert set(row["grades"]) == {"grader", "other"}


def test_a_missing_grader_is_refused_before_any_agent_runs(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    done = assay("capture", prompts("!do put ran x"), "-s", agent(), "-g", "./nowhere.py")
    assert done.code == 1
    assert str(tmp_path / "nowhere.py") in done.stderr
    assert not (tmp_path / "ran").exists()


def test_one_failure_of_a_grader_says_its_cause_at_once(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    grader = tmp_path / "grader.sh"
    grader.write_text(
        "#!/bin/sh\nif grep -q second; then echo 'the service answered 503' >&2; exit 1; fi\n"
        'echo \'{"pass":true,"score":1}\'\n'
    )
    grader.chmod(0o755)
    words = ("-s", "demo", "-g", "./grader.sh", "-o", "out.jsonl")
    done = assay("capture", prompts("first", "second", "third"), *words)
    assert done.code == 1
    said, *_, end = [line for line in done.stderr.splitlines() if "503" in line]
    assert said.startswith("A grader failed on p")
    assert "grader failed (see graderFailures in the rows). The first: p" in end


LANGUAGES = {
    "sh": """#!/bin/sh
read line
case "$line" in *'"output":"done"'*) pass=true score=1 ;; *) pass=false score=0 ;; esac
echo "{\\"pass\\": $pass, \\"score\\": $score}"
""",
    "awk": """#!/usr/bin/awk -f
/"output":"done"/ { n = 1 }
END { printf "{\\"pass\\": %s, \\"score\\": %d}", n ? "true" : "false", n }
""",
    "perl": """#!/usr/bin/env perl
my $n = join("", <STDIN>) =~ /"output":"done"/ ? 1 : 0;
printf '{"pass": %s, "score": %d}', $n ? "true" : "false", $n;
""",
}


def test_graders_are_programs_in_any_language(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    graders: list[object] = []
    for name, code in LANGUAGES.items():
        path = tmp_path / f"grader-{name}"
        path.write_text(code)
        path.chmod(0o755)
        graders += ["-g", path]
    done = assay(
        "capture", prompts("!do say done", "!do say other ; result no"), "-s", agent(), *graders
    )
    assert done.code == 0, done.stderr
    for row in done.rows:
        passes = row["output"] == "done"
        for name in LANGUAGES:
            grade = row["grades"][f"grader-{name}"]
            assert (grade["pass"], grade["score"]) == (passes, passes)
    assert {row["output"] == "done" for row in done.rows} == {True, False}


def test_a_grader_sees_the_same_fields_of_the_user_while_trials_run_and_later(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "team.py").write_text('def grade(trial):\n    return trial.row["team"] == "red"\n')
    path = prompts({"id": "a", "input": "hi", "team": "red"}, {"id": "b", "input": "hi", "team": 1})
    for command in ("capture", "trials"):
        own = [] if command == "capture" else ["-k", "1"]
        at_once = assay(command, path, "-s", agent(), "-g", "team.py", *own)
        assay(command, path, "-s", agent(), *own, "-o", f"{command}.jsonl")
        later = assay("grade", f"{command}.jsonl", "-g", "team.py")
        for done in (at_once, later):
            entries = [row["trials"][0] if own else row["score"] for row in done.rows]
            assert [entry["pass"] for entry in entries] == [True, False]
