"""assay compare from the outside: labels, forms, gates, strategies, and files of other tools."""

import json
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assay.cli.group import run_command
from assay.stats.sequential import turn_of


def capture(id_: str, score: float | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": id_,
        "input": f"ask {id_}",
        "output": "o",
        "trajectory": [{"type": "message", "content": "o", "timestamp": 1}],
        "timing": {"start": 0, "end": 100, "total": 100},
        "toolErrors": False,
    }
    if score is not None:
        row["score"] = {"pass": score >= 0.5, "score": score}
    return row | more


def trials(id_: str, passes: list[bool | None], **more: Any) -> dict[str, Any]:
    entries = []
    for number, passed in enumerate(passes, 1):
        entry = {"trialNum": number, "output": "o", "trajectory": [], "duration": 100}
        entries.append(entry if passed is None else entry | {"pass": passed, "score": int(passed)})
    row = {"id": id_, "input": f"ask {id_}", "k": len(passes), "trials": entries, "metadata": {}}
    return row | more


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def assay(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Done]]:
    """Run assay inside this process, in the test's folder: comparing starts nothing."""
    monkeypatch.chdir(tmp_path)
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in signals]

    def run(*args: Any) -> Done:
        capfd.readouterr()
        code = run_command([str(arg) for arg in args])
        return Done(code, *capfd.readouterr())

    yield run
    for number, handler in zip(signals, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run of n captures of which so many pass; the rest, from the end, do not."""

    def make(name: str, n: int, n_passed: int, **more: Any) -> Path:
        rows = [capture(f"p{i}", float(i < n_passed), **more) for i in range(n)]
        return write(tmp_path / name, rows)

    return make


@pytest.fixture
def report(assay: Callable) -> Callable[..., dict[str, Any]]:
    def compare(*args: Any) -> dict[str, Any]:
        done = assay("compare", *args)
        assert done.code == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return compare


# Labels


def test_same_names_in_different_folders(report: Callable, run: Callable):
    a, b = run("x/results.jsonl", 3, 1), run("y/results.jsonl", 3, 2)
    told = report(a, b)
    assert told["meta"]["runs"] == ["x/results", "y/results"]
    assert told["quality"]["x/results"]["passCount"] == 1
    assert told["quality"]["y/results"]["passCount"] == 2


def test_names_that_differ_in_their_ending_alone(report: Callable, run: Callable):
    told = report(run("r.one", 3, 1), run("r.two", 3, 2))
    assert told["meta"]["runs"] == ["r.one", "r.two"]


@pytest.mark.parametrize(
    ("first", "second", "labels"),
    [
        ("base:{a}", "new:{b}", ["base", "new"]),
        ("x:{a}", "y:{b}", ["x", "y"]),
        ("10:{a}", "9:{b}", ["10", "9"]),
        ("{a}", "{b}", ["a", "b"]),
        ("b:{a}", "{b}", ["b", "DIR/b"]),
        ("openai/gpt-5:{a}", "openai/gpt-5:mini:{b}", ["openai/gpt-5", "openai/gpt-5:mini"]),
    ],
)
def test_labels(
    report: Callable, run: Callable, tmp_path: Path, first: str, second: str, labels: list[str]
):
    paths = {"a": run("a.jsonl", 3, 1), "b": run("b.jsonl", 3, 2)}
    told = report(first.format(**paths), second.format(**paths))
    assert told["meta"]["runs"] == [label.replace("DIR", tmp_path.name) for label in labels]
    assert told["quality"][told["meta"]["runs"][1]]["passCount"] == 2


def test_runs_given_by_option_come_after_the_others(report: Callable, run: Callable):
    a, b, c = run("a.jsonl", 3, 1), run("b.jsonl", 3, 2), run("c.jsonl", 3, 3)
    told = report("--run", f"z:{c}", a, "--run", f"y:{b}")
    assert told["meta"]["runs"] == ["a", "z", "y"]


def test_files_without_extension(report: Callable, run: Callable):
    assert report(run("one", 3, 1), run("two", 3, 2))["meta"]["runs"] == ["one", "two"]


def test_the_same_file_twice_is_a_tie(report: Callable, run: Callable):
    path = run("a.jsonl", 30, 20)
    told = report(path, path)
    assert len(set(told["meta"]["runs"])) == 2
    (pair,) = told["headToHead"]["pairwise"]
    assert (pair["aWins"], pair["bWins"], pair["ties"]) == (0, 0, 30)
    assert told["verdict"][0]["code"] in ("same", "not-enough-data")


def test_a_path_with_a_colon_is_a_path(report: Callable, run: Callable):
    told = report(run("x/a:1.jsonl", 3, 1), f"b:{run('x/b:2.jsonl', 3, 2)}")
    assert told["meta"]["runs"] == ["a:1", "b"]


def test_one_label_for_two_runs_is_refused(assay: Callable, run: Callable):
    a, b = run("a.jsonl", 3, 1), run("b.jsonl", 3, 2)
    done = assay("compare", f"x:{a}", f"x:{b}")
    assert done.code == 2
    assert "'x'" in done.stderr


def test_one_run_is_no_comparison(assay: Callable, run: Callable):
    done = assay("compare", run("a.jsonl", 3, 1))
    assert done.code == 2
    assert "at least two" in done.stderr


# Forms


def test_json_is_the_form_for_programs(assay: Callable, run: Callable):
    done = assay("compare", run("a.jsonl", 9, 3), run("b.jsonl", 9, 5))
    told = json.loads(done.stdout)
    assert list(told)[:2] == ["verdict", "health"], "health and verdict stand above every number"
    assert len(told["headToHead"]["prompts"]) == 9
    assert done.stdout.endswith("}\n")
    assert "\n  " in done.stdout


def test_markdown_by_option_and_by_ending(assay: Callable, run: Callable, tmp_path: Path):
    a, b = run("a.jsonl", 9, 3), run("b.jsonl", 9, 5)
    said = assay("compare", a, b, "--format", "markdown")
    assert said.stdout.startswith("# Comparison\n\n**It is not decided whether b is better than")
    for name in ("new/report.md", "report.markdown"):
        assert assay("compare", a, b, "-o", tmp_path / name).stdout == ""
        assert (tmp_path / name).read_text() == said.stdout
    assay("compare", a, b, "-o", tmp_path / "report.txt")
    assert json.loads((tmp_path / "report.txt").read_text())["meta"]["runs"] == ["a", "b"]


def test_a_table_can_be_written_to_a_file(assay: Callable, run: Callable, tmp_path: Path):
    a, b = run("a.jsonl", 9, 3), run("b.jsonl", 9, 5)
    done = assay("compare", a, b, "-f", "table", "-o", tmp_path / "t.txt")
    assert (done.code, done.stdout) == (0, "")
    text = (tmp_path / "t.txt").read_text()
    assert "pass rate" in text
    assert "\x1b[" not in text


@pytest.fixture
def wide_terminal(on_terminal: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Run a command that succeeds with a wide terminal in colours as stdout; give what it shows."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(*words: Any) -> str:
        env = {"TERM": "xterm-256color", "COLUMNS": "200"}
        code, shown = on_terminal(*words, env=env, stderr=subprocess.PIPE)
        assert code == 0
        return shown

    return run


def test_on_a_terminal_a_coloured_table_is_shown(run: Callable, wide_terminal: Callable):
    a, b = run("a.jsonl", 60, 10), run("b.jsonl", 60, 50)
    shown = wide_terminal("compare", a, b)
    assert "b is better than a" in shown
    assert "pass rate" in shown
    assert "\x1b[1;32m" in shown, "better is green"
    assert shown.index("60 of 60 trials run") < shown.index("b is better"), "health comes first"
    assert not shown.lstrip().startswith("{")


def test_an_input_is_never_overwritten(assay: Callable, run: Callable):
    a, b = run("a.jsonl", 9, 3), run("b.jsonl", 9, 5)
    before = b.read_bytes()
    done = assay("compare", a, b, "-o", b)
    assert done.code == 2
    assert b.read_bytes() == before


def test_hostile_names_are_only_text(assay: Callable, wide_terminal: Callable, tmp_path: Path):
    evil = "<img src=x>|# *b* [l](http://x)\n\x1b[31m"
    rows = [capture(evil, 1.0, metadata={"category": evil}), capture("q", 1.0)]
    a = write(tmp_path / "a.jsonl", rows)
    b = write(tmp_path / "b.jsonl", [rows[0] | {"score": {"pass": False, "score": 0}}, rows[1]])
    label = "x|y<script>*_`#\x1b[2J"
    done = assay("compare", a, "--run", f"{label}:{b}", "-f", "markdown")
    assert done.code == 0, done.stderr
    text = done.stdout
    assert "\x1b" not in text
    for sign in ("<img", "<script", "|y", "*b*", "[l]", "`#"):
        assert sign not in text.replace("\\" + sign[0], "."), sign
    widths: dict[str, int] = {}
    for block in text.split("\n\n"):
        table = [line for line in block.splitlines() if line.startswith("| ")]
        widths |= {line: line.replace("\\|", "").count("|") for line in table}
        assert len({widths[line] for line in table}) <= 1, f"a name broke the table: {table}"
    assert widths
    shown = wide_terminal("compare", a, f"{label}:{b}")
    assert "\x1b[2J" not in shown
    assert "\x1b[31m" not in shown
    told = json.loads(assay("compare", a, f"{label}:{b}").stdout)
    assert told["meta"]["runs"] == ["a", label]
    assert told["pairs"][0]["regressed"] == [evil]


# What may be compared


def test_captures_and_trials_are_not_mixed(assay: Callable, run: Callable, tmp_path: Path):
    other = write(tmp_path / "t.jsonl", [trials("p0", [True])])
    done = assay("compare", run("a.jsonl", 3, 1), other)
    assert done.code == 1
    assert "a: capture, t: trials" in done.stderr


def test_the_input_format_can_be_said(assay: Callable, run: Callable):
    a, b = run("a.jsonl", 3, 1), run("b.jsonl", 3, 2)
    assert assay("compare", a, b, "--input-format", "capture").code == 0
    done = assay("compare", a, b, "--input-format", "trials")
    assert done.code == 1
    assert "a.jsonl:1: " in done.stderr
    assert "trials" in done.stderr


def test_what_is_unlike_is_told_and_can_be_refused(assay: Callable, run: Callable, tmp_path: Path):
    a = run("a.jsonl", 4, 2, agent={"adapter": "codex", "version": "1.0"})
    rows = [
        capture(
            f"p{i}",
            1.0,
            agent={"adapter": "codex", "version": "1.1"},
            grades={"g": {"version": "v2"}},
        )
        for i in range(3)
    ]
    b = write(tmp_path / "b.jsonl", rows)
    loose = assay("compare", a, b)
    assert loose.code == 0
    notes = json.loads(loose.stdout)["notes"]
    assert any("1 of 4 prompts are not in every run" in note for note in notes)
    assert any("versions of codex differ: a: 1.0; b: 1.1" in note for note in notes)
    assert all(f"note: {note}" in loose.stderr for note in notes)
    strict = assay("compare", a, b, "--strict")
    assert (strict.code, strict.stdout) == (1, "")
    assert "the runs differ: " in strict.stderr
    assert assay("compare", a, a, "--strict").code == 0


def test_an_empty_variable_is_no_weight_at_all(
    assay: Callable, run: Callable, monkeypatch: pytest.MonkeyPatch
):
    a, b = run("a.jsonl", 3, 1), run("b.jsonl", 3, 2)
    monkeypatch.setenv("COMPARE_LATENCY", "")
    done = assay("compare", a, b, "--strict")
    assert (done.code, done.stderr) == (0, "")


def test_a_run_without_rows_is_compared_when_its_kind_is_said(report: Callable, run: Callable):
    told = report(run("a.jsonl", 3, 1), run("b.jsonl", 0, 0), "--input-format", "capture")
    assert told["notes"] == ["3 of 3 prompts are not in every run and are left out of the pairs"]
    assert told["reliability"]["b"]["completionRate"] == 1
    assert told["verdict"][0]["code"] == "not-enough-data"


def test_another_k_is_told(assay: Callable, tmp_path: Path):
    a = write(tmp_path / "a.jsonl", [trials("p", [True, False])])
    b = write(tmp_path / "b.jsonl", [trials("p", [True, False, True])])
    done = assay("compare", a, b)
    assert done.code == 0
    assert "trials per prompt differ: a: 2; b: 3" in done.stderr
    assert json.loads(done.stdout)["meta"]["trialsPerPrompt"] is None


def test_rows_of_the_pipeline_are_accepted(report: Callable, tmp_path: Path):
    """What `extract | grade` of the reference writes has no sessionCreation and no metadata."""
    for name in ("a", "b"):
        row = capture("p", 1.0)
        assert "metadata" not in row
        assert "sessionCreation" not in row["timing"]
        write(tmp_path / f"{name}.jsonl", [row])
    told = report(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert told["quality"]["a"]["passRate"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": {"pass": True, "score": 7}}, "a score must lie in 0..1, got 7"),
        ({"score": {"pass": True, "score": -0.5}}, "a score must lie in 0..1, got -0.5"),
        ({"timing": {"total": -5}}, "a duration cannot be negative, got -5"),
        ({"timing": {"total": 1e300}}, "a duration of 1e+300 is not a measurement"),
        ({"timing": {"total": 1, "firstResponse": 1e300}}, "a first response of 1e+300"),
        ({"usage": {"costUsd": 1e300}}, "a cost of 1e+300 is not a measurement"),
        ({"usage": {"inputTokens": 1e308, "outputTokens": 1e308}}, "a number of tokens of inf"),
        ({"permissionDenials": 10**30}, "a.jsonl:1"),
        ({"permissionDenials": -1}, "a.jsonl:1"),
        ({"score": {"pass": "yes", "score": 1}}, "a.jsonl:1"),
        ({"score": {"pass": True}}, "a.jsonl:1: missing field `score`"),
        ({"score": {"score": 1}}, "a.jsonl:1: missing field `pass`"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    assay: Callable, run: Callable, tmp_path: Path, change: dict[str, Any], said: str
):
    a = write(tmp_path / "a.jsonl", [capture("p0", 1.0) | change])
    done = assay("compare", a, run("b.jsonl", 1, 1))
    assert done.code == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"passAtK": 3}, "passAtK must lie in 0..1, got 3"),
        ({"passExpK": -1}, "passExpK must lie in 0..1, got -1"),
        ({"k": 1e300}, "k must lie in 0..1e+09, got 1e+15"),
        ({"k": 2**63}, "k must lie in 0..1e+09"),
    ],
)
def test_numbers_of_trials_that_mean_nothing_are_refused(
    assay: Callable, tmp_path: Path, change: dict[str, Any], said: str
):
    rows = [trials("p0", [True, False]), trials("p1", [True, True])]
    b = write(tmp_path / "b.jsonl", rows)
    done = assay("compare", write(tmp_path / "a.jsonl", [rows[0] | change, rows[1]]), b)
    assert (done.code, done.stdout) == (1, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_many_denials_cost_no_memory(report: Callable, run: Callable):
    told = report(run("a.jsonl", 3, 1, permissionDenials=10**9), run("b.jsonl", 3, 2))
    assert told["health"]["a"]["permissionDenials"] == 3 * 10**9


def test_a_row_that_came_again_is_healthy_again(report: Callable, run: Callable, tmp_path: Path):
    """A provider was down; the row appended later is the one that counts, also for health."""
    down = capture("p0", None, failure={"cause": "provider", "message": "m"}, permissionDenials=2)
    again = [capture(f"p{i}", 1.0) for i in range(3)]
    told = report(write(tmp_path / "a.jsonl", [down, *again]), run("b.jsonl", 3, 3))
    health = told["health"]["a"]
    assert (health["planned"], health["run"], health["graded"]) == (3, 3, 3)
    assert health["notMeasured"] == {}
    assert health["permissionDenials"] == 0
    assert "1 rows repeat an earlier id" in told["notes"][0]


def test_a_missing_file_and_an_empty_one(assay: Callable, run: Callable, tmp_path: Path):
    a, empty = run("a.jsonl", 3, 1), write(tmp_path / "empty.jsonl", [])
    for path, said in ((tmp_path / "none.jsonl", "No such file"), (empty, "no rows")):
        done = assay("compare", a, path)
        assert done.code == 1
        assert said in done.stderr
        assert path.name in done.stderr


@pytest.mark.parametrize("margin", ["nan", "-0.1", "1", "2"])
def test_a_margin_is_a_share(assay: Callable, run: Callable, margin: str):
    path = run("a.jsonl", 3, 1)
    done = assay("compare", path, path, "--margin", margin)
    assert done.code == 2
    assert "--margin" in done.stderr


# Gates


@pytest.mark.parametrize(
    ("gate", "n", "passed_a", "passed_b", "code"),
    [
        ("regression", 60, 20, 50, 0),
        ("regression", 1000, 700, 700, 0),
        ("regression", 60, 50, 20, 3),
        ("regression", 30, 20, 19, 4),
        ("regression", 5, 5, 0, 4),
        ("not-better", 60, 20, 50, 0),
        ("not-better", 60, 50, 20, 3),
        ("not-better", 1000, 700, 700, 3),
        ("not-better", 30, 19, 20, 4),
        ("not-better", 5, 0, 5, 4),
    ],
)
def test_gates(
    assay: Callable, run: Callable, gate: str, n: int, passed_a: int, passed_b: int, code: int
):
    a, b = run("a.jsonl", n, passed_a), run("b.jsonl", n, passed_b)
    done = assay("compare", a, b, "--fail-on", gate, "-f", "markdown")
    assert done.code == code, done.stderr
    word = {0: "pass", 3: "fail", 4: "cannot be judged"}[code]
    assert f"{gate}, b against a: {word}" in done.stderr
    assert done.stdout.startswith("# Comparison"), "the report is written whatever the gate says"


def test_the_margin_moves_the_gate(assay: Callable, run: Callable):
    a, b = run("a.jsonl", 200, 150), run("b.jsonl", 200, 142)
    codes = [
        assay("compare", a, b, "--fail-on", "regression", "--margin", m, "-f", "markdown").code
        for m in ("0", "0.02", "0.2")
    ]
    assert codes == [3, 4, 0]


def test_an_unhealthy_measurement_cannot_be_judged(assay: Callable, run: Callable, tmp_path: Path):
    a = run("a.jsonl", 100, 20)
    rows = [capture(f"p{i}", 1.0) for i in range(80)]
    rows += [
        capture(f"p{i}", None, failure={"cause": "provider", "message": "m"})
        for i in range(80, 100)
    ]
    b = write(tmp_path / "b.jsonl", rows)
    done = assay("compare", a, b, "--fail-on", "regression", "-f", "markdown")
    assert done.code == 4
    assert "the measurement of b is unhealthy" in done.stderr
    assert "UNHEALTHY: 20% of the planned trials are not measured" in done.stdout
    assert done.stdout.index("UNHEALTHY") < done.stdout.index("| run |")
    assert "20 not measured (provider error)" in done.stdout


def test_the_worst_of_several_runs_decides(assay: Callable, run: Callable):
    a, good, bad = run("a.jsonl", 60, 40), run("good.jsonl", 60, 58), run("bad.jsonl", 60, 5)
    args = ("--fail-on", "regression", "-f", "markdown")
    assert assay("compare", a, good, bad, *args).code == 3
    assert assay("compare", bad, good, a, *args).code == 0


def test_runs_without_grades_are_not_judged(assay: Callable, tmp_path: Path):
    path = write(tmp_path / "a.jsonl", [capture(f"p{i}", None) for i in range(20)])
    done = assay("compare", path, path, "--fail-on", "regression")
    assert done.code == 4
    told = json.loads(done.stdout)
    assert told["verdict"][0]["code"] == "not-enough-data"
    assert all(quality["passRate"] is None for quality in told["quality"].values())


# Chance


@pytest.mark.parametrize("form", ["json", "markdown", "table"])
@pytest.mark.parametrize(
    ("redirection", "why"),
    [("> /dev/full", "No space left on device"), (">&-", "it is closed")],
)
def test_a_stdout_that_takes_nothing(run: Callable, form: str, redirection: str, why: str):
    words = [sys.executable, "-m", "assay", "compare", run("a.jsonl", 3, 1), run("b.jsonl", 3, 2)]
    line = shlex.join([*map(str, words), "-f", form]) + f" {redirection}"
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: cannot write to stdout: {why}\n")
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


def test_runs_may_come_through_pipes(run: Callable, tmp_path: Path):
    a, b = run("a.jsonl", 30, 10), run("b.jsonl", 30, 20)
    (tmp_path / "rank.py").write_text(
        "def grade(runs):\n"
        "    return {'rankings': [{'run': r, 'rank': 1, 'score': 0.5} for r in runs]}\n"
    )
    assay = f"{sys.executable} -m assay compare one:<(cat {a}) two:<(cat {b})"
    line = f"{assay} -s custom -g {tmp_path / 'rank.py'}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [told["quality"][run]["passCount"] for run in ("one", "two")] == [10, 20]


def test_a_name_too_long_for_a_file(assay: Callable, run: Callable):
    done = assay("compare", "x" * 300, run("a.jsonl", 3, 1), "-o", "out.json")
    assert done.code == 1
    assert "File name too long" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_same_input_gives_the_same_bytes(assay: Callable, tmp_path: Path):
    def make(name: str, shift: int) -> Path:
        rows = [
            capture(f"p{i}", (i * 7919 % 97 + shift) / 110, timing={"total": 50 + i * shift % 83})
            for i in range(60)
        ]
        return write(tmp_path / name, rows)

    args = ("compare", make("a.jsonl", 3), make("b.jsonl", 11), make("c.jsonl", 5))

    def without_time(text: str) -> str:
        return re.sub(r'"generatedAt": "[^"]+"', "", text)

    first = assay(*args, "--seed", 1).stdout
    assert without_time(first) == without_time(assay(*args, "--seed", 1).stdout)
    assert json.loads(first)["meta"]["seed"] == 1
    other = json.loads(assay(*args, "--seed", 2).stdout)
    assert other["pairs"][0]["amounts"] != json.loads(first)["pairs"][0]["amounts"]
    assert other["pairs"][0]["passRate"] == json.loads(first)["pairs"][0]["passRate"]


# A strategy of one's own

RANK = """
    order = sorted(runs, key=lambda label: len(runs[label]["output"]), reverse=True)
    return {"rankings": [
        {"run": label, "rank": rank, "score": float(len(runs[label]["output"]))}
        for rank, label in enumerate(order, 1)
    ]}
"""


@pytest.fixture
def longer(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs; the second says more on one prompt, less on the other, passes nothing."""
    a = [capture("p", 1.0, output="12"), capture("q", 1.0, output="123")]
    b = [capture("p", 0.0, output="1234"), capture("q", 0.0, output="1")]
    return write(tmp_path / "a.jsonl", a), write(tmp_path / "b.jsonl", b)


@pytest.mark.parametrize(
    "head",
    [
        "def grade(id, input, runs):",
        "async def grade(*, runs, hint):",
        "def compare(runs, more=1):",
        "def grade(question):\n    runs = question['runs']; print('not into the report')",
        "def grade(**all):\n    runs = all['runs']",
    ],
)
def test_a_python_file_ranks(
    report: Callable, longer: tuple[Path, Path], tmp_path: Path, head: str
):
    (tmp_path / "mine.py").write_text(head + RANK)
    told = report(*longer, "-s", "custom", "-g", "mine.py")
    prompts = {row["id"]: row for row in told["headToHead"]["prompts"]}
    assert {id_: row["winner"] for id_, row in prompts.items()} == {"p": "b", "q": "a"}
    assert prompts["p"]["scores"] == {"a": 2, "b": 4}
    (pair,) = told["headToHead"]["pairwise"]
    assert (pair["aWins"], pair["bWins"]) == (1, 1)
    assert told["meta"]["strategy"] == "custom"


def test_a_strategy_sees_rows_behind_a_byte_order_mark(
    report: Callable, longer: tuple[Path, Path], tmp_path: Path
):
    for path in longer:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    grader = tmp_path / "rank.py"
    grader.write_text(
        "def grade(runs):\n"
        "    return {'rankings': [{'run': r, 'rank': 1, 'score': 0.5} for r in runs]}\n"
    )
    told = report(*longer, "--strategy", "custom", "-g", grader)
    assert told["headToHead"]["prompts"][0]["scores"] == dict.fromkeys(told["meta"]["runs"], 0.5)


@pytest.mark.parametrize("name", ["rank", "rank.py"])
def test_a_program_ranks(report: Callable, longer: tuple[Path, Path], tmp_path: Path, name: str):
    """Also one that is written in Python and only speaks of a function."""
    program = tmp_path / name
    program.write_text(
        f"#!{sys.executable}\n# There is no def grade(): it is a program.\nimport json, sys\n"
        "if __name__ == '__main__':\n    runs = json.load(sys.stdin)['runs']"
        f"{RANK.replace('    return', '    out =')}\n    print(json.dumps(out))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    told = report(*longer, "-s", "custom", "-g", program)
    assert [row["winner"] for row in told["headToHead"]["prompts"]] == ["b", "a"]


def test_trials_can_be_ranked_too(report: Callable, tmp_path: Path):
    a = write(tmp_path / "a.jsonl", [trials("p", [True, True], passRate=1.0)])
    b = write(tmp_path / "b.jsonl", [trials("p", [False, True], passRate=0.5)])
    (tmp_path / "mine.py").write_text(
        "def grade(runs):\n"
        "    assert set(runs['a']) == {'passRate', 'k', 'trials'}\n"
        "    return {'rankings': [{'run': r, 'rank': 1 + (r == 'a'), 'score': 1 - x['passRate']}\n"
        "        for r, x in runs.items()]}\n"
    )
    told = report(a, b, "-s", "custom", "-g", "mine.py")
    (pair,) = told["headToHead"]["overall"]
    assert (pair["aWins"], pair["bWins"]) == (0, 1)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def grade(runs):\n    return 1/0", "failed on 'p': ZeroDivisionError"),
        ("def grade(runs):\n    return {'rankings': 3}", "is not a ranking"),
        ("def grade(runs):\n    return None", "is not a ranking"),
        ("def grade(runs):\n    raise SystemExit(7)", "SystemExit: 7"),
        ("def grade(a, b, c):\n    return a['x']", "TypeError"),
        ("def grade(runs:\n", "SyntaxError"),
        ("import no_such_module\ndef grade(runs): pass", "ModuleNotFoundError"),
        ("def grade(runs): return {'rankings': [{'run':'z','rank':1,'score':1}]}", "'z'"),
        ("def grade(runs): return {'rankings': [{'run':'a','rank':0,'score':1}]}", "below 1"),
        (
            "def grade(runs): return {'rankings': [{'run':'a','rank':1,'score':float('nan')}]}",
            "is not a number",
        ),
        ("import sys; sys.exit(3)", "exited with 3 on 'p'"),
        ("print('no json')", "is not JSON"),
    ],
)
def test_a_broken_strategy_is_told_clearly(
    assay: Callable, longer: tuple[Path, Path], tmp_path: Path, code: str, said: str
):
    (tmp_path / "mine.py").write_text(code)
    done = assay("compare", *longer, "-s", "custom", "-g", "mine.py")
    assert done.code == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_strategy_needs_its_file(assay: Callable, longer: tuple[Path, Path]):
    assert assay("compare", *longer, "-s", "custom").code == 2
    done = assay("compare", *longer, "-s", "custom", "-g", "none.py")
    assert done.code == 1
    assert "Grader not found" in done.stderr


# Our own commands


def test_captures_and_trials_of_our_own_are_compared(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, report: Callable
):
    path = prompts("!do result right", "!do result wrong", "!do exit 3")
    for command, more in (("capture", ()), ("trials", ("-k", 2))):
        for name, word in (("a", "right"), ("b", "r")):
            out = tmp_path / f"{command}-{name}.jsonl"
            args = ("-s", agent(), "-g", f"contains:{word}", "-o", out, "-j", 3)
            assert assay(command, path, *args, *more).code == 0
        told = report(f"a:{tmp_path}/{command}-a.jsonl", f"b:{tmp_path}/{command}-b.jsonl")
        rate = told["pairs"][0]["passRate"]
        assert (rate["wins"], rate["ties"], rate["losses"]) == (1, 2, 0)
        assert (rate["meanA"], rate["meanB"]) == pytest.approx((1 / 3, 2 / 3))
        assert told["pairs"][0]["improved"] == ["p1"]
        n_trials = 2 if more else 1
        assert told["health"]["a"]["agentFailures"] == {"agent_crash": n_trials}
        assert told["pairs"][0]["amounts"].keys() >= {"latencyMs", "costUsd", "tokens"}
        assert any("grader contains differs" in note for note in told["notes"])


def test_compare_loads_only_what_it_needs(run: Callable, tmp_path: Path):
    code = (
        "import sys\n"
        "from assay.cli.group import run_command\n"
        "run_command(['compare', *sys.argv[1:], '-o', 'report.json'])\n"
        "heavy = ('asyncio', 'rich', 'psutil', 'assay.pipeline.stages')\n"
        "print([m for m in sys.modules if m in heavy])"
    )
    words = [sys.executable, "-c", code, run("a.jsonl", 3, 1), run("b.jsonl", 3, 2)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (tmp_path / "report.json").exists()
    assert done.stdout == "[]\n"


def first_in_turn(path: Path, n: int, n_passed: int) -> Path:
    """Keep the prompts that trials --until decided starts first; so many of them pass."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = sorted(rows, key=lambda row: turn_of(row["id"]))[:n]
    for row in kept[n_passed:]:
        row["score"] = {"pass": False, "score": 0.0}
    return write(path, kept)


SEQUENTIAL = ("--fail-on", "regression", "--sequential", "--margin", "0.1")


@pytest.mark.parametrize(
    ("n", "n_passed", "outcome", "code"),
    [(40, 40, "go-on", 4), (80, 80, "pass", 0), (40, 10, "fail", 3)],
)
def test_a_growing_run_can_be_judged_after_every_batch(
    assay: Callable, run: Callable, n: int, n_passed: int, outcome: str, code: int
):
    a, b = run("a.jsonl", 200, 200), first_in_turn(run("b.jsonl", 200, 200), n, n_passed)
    done = assay("compare", a, b, *SEQUENTIAL)
    assert done.code == code, done.stderr
    told = json.loads(done.stdout)
    (gate,) = told["gate"]
    assert gate["outcome"] == outcome
    used = gate["sequential"]
    assert used["nTrials"] == used["nUnits"] == n
    assert used["interval"]["low"] < used["interval"]["high"]
    # Prompts that are still to come make a run neither unhealthy nor unlike the other.
    assert told["health"]["b"]["healthy"]
    assert told["notes"] == [
        "intervals and p-values of the tables hold for one look; the gate holds at every look"
    ]
    (verdict,) = told["verdict"]
    assert verdict["code"] == {"pass": "same", "fail": "worse"}.get(outcome, "not-enough-data")
    assert re.search(r"interval [-+]\d+ to [-+]\d+ at every look\)", verdict["words"])
    assert told["pairs"][0]["verdict"]["words"] == verdict["words"]
    said = outcome.replace("-", " ")
    assert f"b against a: {said} ({gate['words']}); {used['words']}" in done.stderr
    shown = assay("compare", a, b, *SEQUENTIAL, "-f", "markdown").stdout
    assert f"b against a: {said} " in shown
    # Without the option, what is absent was not measured: the run cannot be judged.
    fixed = assay("compare", a, b, *(word for word in SEQUENTIAL if word != "--sequential"))
    assert fixed.code == 4


def test_what_was_not_measured_withholds_a_sequential_pass(assay: Callable, run: Callable):
    a, b = run("a.jsonl", 200, 200), first_in_turn(run("b.jsonl", 200, 200), 100, 100)
    assert assay("compare", a, b, *SEQUENTIAL).code == 0
    rows = [json.loads(line) for line in b.read_text().splitlines()]
    for row in rows[:9]:
        del row["score"]
    done = assay("compare", a, write(b, rows), *SEQUENTIAL)
    assert done.code == 4
    told = "if all that was not measured had failed: the difference would be -9.0 points"
    assert told in done.stderr


def test_prompts_in_the_order_of_the_file_pass_only_when_all_have_run(
    assay: Callable, run: Callable
):
    """Forty prompts would fail: they are the last of the file, and have not run yet."""
    a, b = run("a.jsonl", 100, 100), run("b.jsonl", 60, 60)
    done = assay("compare", a, b, *SEQUENTIAL)
    assert done.code == 4
    assert "40 prompts of a that b lacks count as lost until they have run" in done.stderr
    assert assay("compare", a, run("b.jsonl", 100, 100), *SEQUENTIAL).code == 0
    assert assay("compare", a, run("b.jsonl", 60, 20), *SEQUENTIAL).code == 3


@pytest.mark.parametrize(
    "options",
    [("--sequential",), ("--sequential", "--fail-on", "not-better"), (*SEQUENTIAL[:-1], "0")],
)
def test_the_sequential_rule_is_for_regressions(
    assay: Callable, run: Callable, options: tuple[str, ...]
):
    done = assay("compare", run("a.jsonl", 9, 9), run("b.jsonl", 9, 9), *options)
    assert done.code == 2
    assert "--fail-on regression" in done.stderr


@pytest.mark.parametrize("gate", [SEQUENTIAL, ("--fail-on", "regression", "--margin", "0.1")])
def test_a_gate_compares_like_with_like(assay: Callable, run: Callable, gate: tuple[str, ...]):
    a, b = run("a.jsonl", 100, 100), run("b.jsonl", 100, 100)
    assert assay("compare", a, b, *gate).code == 0
    rows = [json.loads(line) for line in b.read_text().splitlines()]
    other = [row | {"input": "trivial"} for row in rows]
    done = assay("compare", a, write(b, other), *gate)
    assert done.code == 4
    assert "a gate compares like with like, but a and b have different inputs" in done.stderr
    for path, version in ((a, "1"), (b, "2")):
        graded = [row | {"grades": {"g": row["score"] | {"version": version}}} for row in rows]
        write(path, graded)
    done = assay("compare", a, b, *gate)
    assert done.code == 4
    assert "like with like, but grader g differs: a: 1; b: 2" in done.stderr


@pytest.mark.parametrize(("n_passed_a", "code"), [(50, "better"), (100, "same"), (95, "not-worse")])
def test_a_pass_does_not_call_a_gain_the_same(
    assay: Callable, run: Callable, n_passed_a: int, code: str
):
    a, b = run("a.jsonl", 100, n_passed_a), run("b.jsonl", 100, 100)
    done = assay("compare", a, b, *SEQUENTIAL)
    assert done.code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["verdict"][0]["code"] == told["pairs"][0]["verdict"]["code"] == code
