"""assay query: the views say the same as export, whatever the file holds."""

import csv
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from assay.report.table import COLUMNS


@pytest.fixture
def ask(assay, results):
    def run(sql: str, *words: Any, files: tuple[str, ...] = ("captures", "trials")) -> Any:
        done = assay("query", sql, *(results[name] for name in files), "-f", "jsonl", *words)
        assert done.code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_trials_are_the_rows_of_export_table(assay, ask, results, tmp_path):
    files = [results["captures"], results["trials"]]
    assert assay("export", "table", *files, "-o", "t.jsonl").code == 0
    exported = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    asked = ask("SELECT * FROM trials")
    assert [list(row) for row in asked] == [list(COLUMNS)] * len(exported)
    for row in (*exported, *asked):
        row["file"] = Path(row["file"]).stem
        for name in ("metadata", "grades"):
            row[name] = json.loads(row[name])
    assert sorted(asked, key=str) == sorted(exported, key=str)


def exported(assay, tmp_path, *files):
    assert assay("export", "table", *files, "-o", "t.jsonl", "--overwrite").code == 0
    return [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]


def asked(assay, sql, *files):
    done = assay("query", sql, *files, "-f", "jsonl")
    assert done.code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("order", [("captures", "trials"), ("trials", "captures")])
def test_a_file_with_rows_of_both_kinds_is_read_row_by_row(assay, results, tmp_path, order):
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("".join(results[name].read_text() for name in order))
    table = exported(assay, tmp_path, mixed)
    assert len(table) == 15
    fields = ("id", "trial", "output", "pass", "score", "duration_ms", "steps")
    wanted = [{name: row[name] for name in fields} for row in table]
    found = asked(assay, f"SELECT {', '.join(fields)} FROM trials", mixed)
    assert sorted(found, key=str) == sorted(wanted, key=str)


GRADER_FAILED = {"graderFailures": {"g.py": "ZeroDivisionError"}}


@pytest.mark.parametrize(
    ("more", "measured"),
    [
        ({}, True),
        ({"graderFailures": {}}, True),
        (GRADER_FAILED, False),
        (GRADER_FAILED | {"pass": True, "score": 1.0}, True),
        (GRADER_FAILED | {"failure": {"cause": "agent_timeout", "message": "60 s"}}, True),
        (
            GRADER_FAILED
            | {"failure": {"cause": "agent_timeout", "message": "1", "answered": True}},
            False,
        ),
        ({"failure": {"cause": "provider", "message": "503"}}, False),
    ],
)
def test_a_trial_whose_grader_failed_is_not_measured(assay, tmp_path, more, measured):
    entry = {"trialNum": 1, "output": "o", "trajectory": [], "duration": 1.0}
    row = {"id": "x", "input": "i", "k": 1, "metadata": {}, "trials": [entry | more]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert [row["measured"] for row in exported(assay, tmp_path, "rows.jsonl")] == [measured]
    assert asked(assay, "SELECT measured FROM trials", "rows.jsonl") == [{"measured": measured}]


@pytest.mark.parametrize("name", ["", "*", "a\\b", '"', "\\", '\\"', "$", "a.b", "[0]", "'"])
def test_a_grader_may_have_any_name(assay, results, tmp_path, name):
    first = json.loads(results["captures"].read_text().splitlines()[0])
    rows = [first | {"grades": {given: {"pass": True, "score": 1.0}}} for given in ("ok", name)]
    (tmp_path / "graded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = asked(assay, "SELECT grader, pass, score FROM grades", "graded.jsonl")
    assert found == [{"grader": given, "pass": True, "score": 1.0} for given in ("ok", name)]


def test_steps_and_tools_have_what_the_trajectory_has(ask):
    steps = ask("SELECT step, type, content, tool FROM steps WHERE id = 'work' ORDER BY step")
    kinds = "thought message tool_call tool_call plan tool_call thought message"
    assert " ".join(row["type"] for row in steps) == kinds
    assert [row["step"] for row in steps] == list(range(1, 9))
    assert steps[1]["content"] == "Let me look."
    command = "SELECT input->>'$.command' AS command, output FROM tools WHERE tool = 'Bash'"
    assert {"command": "ls", "output": "a.txt"} in ask(command)
    found = ask("SELECT input, output FROM tools WHERE tool = 'Read' AND id = 'work'")
    assert found == [{"input": {"path": "a.txt", "limit": 3}, "output": '{"lines":["x"]}'}]


def test_grades_has_a_row_for_each_grader(assay, results, ask, tmp_path):
    odd = 'a "b" $.c'
    graded = {
        "id": "x",
        "input": "i",
        "output": "o",
        "trajectory": [],
        "metadata": {},
        "timing": {"start": 0, "end": 1, "total": 1},
        "grades": {
            "contains": {"pass": True, "score": 1.0, "reasoning": "found", "version": "1"},
            odd: {"pass": False, "score": 0.25},
        },
    }
    (tmp_path / "graded.jsonl").write_text(json.dumps(graded) + "\n")
    sql = "SELECT grader, pass, score, reasoning, version FROM grades ORDER BY grader"
    done = assay("query", sql, "graded.jsonl", "-f", "csv")
    assert done.code == 0, done.stderr
    assert list(csv.reader(done.stdout.splitlines())) == [
        ["grader", "pass", "score", "reasoning", "version"],
        [odd, "false", "0.25", "", ""],
        ["contains", "true", "1.0", "found", "1"],
    ]


def test_parquet_is_read_by_others(assay, results, tmp_path):
    sql = "SELECT id, trial, pass FROM trials;"
    done = assay("query", sql, results["trials"], "-o", "t.parquet")
    assert done.code == 0, done.stderr
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path / 't.parquet'}'").fetchall() == [(8,)]
    again = assay("query", sql, results["trials"], "-o", "t.parquet")
    assert again.code == 1
    assert "--overwrite" in again.stderr


def test_a_table_cuts_long_cells_visibly_and_shows_control_characters(assay, tmp_path):
    row = {
        "id": "x\x1b[31m",
        "input": "a" * 500,
        "output": "one\ntwo",
        "trajectory": [],
        "metadata": {},
        "timing": {"start": 0, "end": 1, "total": 1},
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    done = assay("query", "SELECT id, input, output FROM trials", "rows.jsonl")
    assert done.code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert "\x1b" not in done.stdout
    assert "a" * 59 + "…" in done.stdout
    assert "one\\u000atwo" in done.stdout


def test_any_file_name_and_rows_of_many_megabytes_are_read(assay, tmp_path):
    row = {
        "id": "x",
        "input": "i",
        "output": "o" * (20 << 20),
        "trajectory": [],
        "metadata": {},
        "timing": {"start": 0, "end": 1, "total": 1},
    }
    name = "it's [1]*?.jsonl"
    (tmp_path / name).write_text(json.dumps(row) + "\n")
    done = assay("query", "SELECT len(output) AS n FROM trials", name, "-f", "csv")
    assert done.code == 0, done.stderr
    assert done.stdout.split() == ["n", str(20 << 20)]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("SELECT nope FROM trials", "captures"), 1, "nope"),
        (("SELCT 1", "captures"), 1, "SELCT"),
        (("SELECT 1",), 2, "No files given"),
        (("captures",), 2, "The SQL comes first"),
        (("SELECT 1", "missing.jsonl"), 1, "missing.jsonl"),
        (("SELECT 1", "captures", "-f", "parquet"), 2, "needs -o"),
        (("SELECT 1", "captures", "-o", "captures"), 2, "captures"),
    ],
)
def test_wrong_use_says_what_to_do(assay, results, words, code, says):
    given = [results.get(word, word) for word in words]
    done = assay("query", *given)
    assert (done.code, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line", ['{"id": "x", "input": "i", "outp', '{"id": 3, "input": "i", "output": {"a": [']
)
def test_a_broken_row_is_named_by_its_line(assay, results, tmp_path, line):
    good = results["captures"].read_text()
    (tmp_path / "torn.jsonl").write_text(good + line)
    done = assay("query", "SELECT count(*) FROM trials", "torn.jsonl")
    assert done.code == 1
    assert f"torn.jsonl:{len(good.splitlines()) + 1}: " in done.stderr
    assert done.stdout == ""


def test_without_duckdb_it_says_what_to_install(assay, results, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['duckdb'] = None\n")
    env = {"PYTHONPATH": str(tmp_path)}
    done = assay("query", "SELECT 1", results["captures"], env=env)
    assert done.code == 1
    assert "pip install '.[query]'" in done.stderr
