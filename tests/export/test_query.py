"""assay query: the views say the same as export, whatever the file holds."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.compare.runs import load_run
from assay.export.table import COLUMNS


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


def ends_of_trials():
    """Every way in which a trial may have ended: verdict, failure, answer, broken grader."""
    causes = (None, "agent_timeout", "agent_limit", "provider", "harness")
    for passed, cause, answered, broken in product(
        (None, True, False), causes, (False, True), (None, {}, {"g.py": "ZeroDivisionError"})
    ):
        end = {} if broken is None else {"graderFailures": broken}
        if cause is not None:
            end["failure"] = {"cause": cause, "message": "why", "answered": answered}
        yield passed, end


@pytest.mark.parametrize("form", ["capture", "trials"])
def test_measured_is_what_compare_decides(assay, tmp_path, form):
    """A verdict, or a failure of the agent's own without an answer; nothing else."""
    rows, wanted = [], []
    for number, (passed, end) in enumerate(ends_of_trials()):
        shared = {"id": f"p{number}", "input": "i", "metadata": {}}
        done = {"output": "o", "trajectory": [], **end}
        if form == "capture":
            score = {} if passed is None else {"score": {"pass": passed, "score": float(passed)}}
            rows.append(shared | done | score | {"timing": {"start": 0, "end": 1, "total": 1}})
        else:
            score = {} if passed is None else {"pass": passed, "score": float(passed)}
            entry = {"trialNum": 1, "duration": 1.0} | done | score
            rows.append(shared | {"k": 1, "trials": [entry]})
        failure = end.get("failure", {"cause": "", "answered": False})
        by_agent = failure["cause"].startswith("agent_") and not failure["answered"]
        wanted.append(passed is not None or by_agent)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (~np.isnan(load_run("rows", path, form, "category").passed)).tolist() == wanted
    assert [row["measured"] for row in exported(assay, tmp_path, path)] == wanted
    found = asked(assay, "SELECT measured FROM trials", path)
    assert [row["measured"] for row in found] == wanted


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
    import duckdb

    sql = "SELECT id, trial, pass FROM trials;"
    done = assay("query", sql, results["trials"], "-o", "t.parquet")
    assert done.code == 0, done.stderr
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path / 't.parquet'}'").fetchall() == [(8,)]
    assert assay("query", sql, results["trials"], "-o", "t.parquet").code == 0


@pytest.mark.parametrize("sql", ["SELECT 1 AS n -- one", "SELECT 1 AS n; -- one", "SELECT 1 n;;"])
def test_parquet_has_what_one_statement_returns(assay, results, tmp_path, sql):
    import duckdb

    done = assay("query", sql, results["trials"], "-o", "t.parquet")
    assert done.code == 0, done.stderr
    assert duckdb.sql(f"SELECT * FROM '{tmp_path / 't.parquet'}'").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "  ;",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "COPY (PIVOT (SELECT 1 AS a) ON a USING sum(a)) TO 'stolen.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'stolen.csv'",
        "SELECT 1) TO 'stolen.csv'; --",
        "INSTALL httpfs",
        "SET memory_limit = '100GB'",
        "ATTACH 'stolen.csv'",
        "EXPORT DATABASE 'stolen.csv'",
    ],
)
@pytest.mark.parametrize("output", ["t.parquet", "t.csv"])
def test_only_a_single_query_is_run(assay, results, tmp_path, sql, output):
    done = assay("query", sql, results["trials"], "-o", output)
    assert done.code == (1 if "1)" in sql[:10] else 2), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "stolen.csv").exists()
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize("source", ["read_text('{}')", "read_csv('{}')", "'{}'", "glob('{}')"])
def test_no_other_file_is_read(assay, results, tmp_path, source):
    (tmp_path / "secret.csv").write_text("a\nsecret-word\n")
    sql = f"SELECT * FROM {source.format(tmp_path / 'secret.csv')}"
    done = assay("query", sql, results["trials"], "-f", "csv")
    assert (done.code, done.stdout) == (1, "")
    assert "secret-word" not in done.stderr


LITTLE_MEMORY = """
import sys
from assay.cli.main import main
from assay.export import query
query._MOST_MEMORY = 256 << 20
sys.exit(main())
"""


def test_what_does_not_fit_in_memory_is_kept_on_disk(results):
    sql = (
        "SELECT max(t) AS n FROM (SELECT repeat(i::VARCHAR, 40) AS t FROM range(1200000) r(i) "
        "ORDER BY hash(i)) WHERE t <> '' HAVING count(*) > 0"
    )
    words = [sys.executable, "-c", LITTLE_MEMORY, "query", sql, str(results["trials"]), "-f", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_times_with_a_zone_are_text(assay, results):
    sql = "SELECT TIMESTAMPTZ '2026-01-02 03:04:05+00' AT TIME ZONE 'UTC' AS plain, now() AS zoned"
    found = asked(assay, f"{sql}, [now()] AS many, 7 AS n", results["trials"])
    assert found[0]["plain"].startswith("2026-01-02")
    assert found[0]["zoned"].startswith("2")
    assert found[0]["n"] == 7


def test_equal_names_of_columns_are_numbered_in_jsonl(assay, results):
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a"
    assert asked(assay, sql, results["trials"]) == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]


ENDLESS = "SELECT count(*) FROM trials a, range(9000000) b, range(9000000) c WHERE hash(b, c) = 1"
DEAF = "SELECT levenshtein(repeat('a', 300000 + trial), repeat('b', 300000)) FROM trials"
"""A single step that takes long, in which DuckDB does not look for an interrupt."""


@pytest.mark.parametrize("sql", [ENDLESS, DEAF])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_query(results, tmp_path, sql, number):
    place = tmp_path / "temporary"
    place.mkdir()
    words = [sys.executable, "-m", "assay", "query", sql, str(results["trials"])]
    env = os.environ | {"TMPDIR": str(place)}
    query = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env)
    while not list(place.glob("assay-query-*/scratch")):
        assert query.poll() is None, query.communicate()
        time.sleep(0.05)
    time.sleep(1)
    start = time.monotonic()
    query.send_signal(number)
    try:
        _, said = query.communicate(timeout=30)
    finally:
        query.kill()
    assert query.returncode == 130, said
    assert "Traceback" not in said
    assert time.monotonic() - start < 10
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("words", [("query", ENDLESS), ("export", "table", "-o", "t.csv")])
def test_what_kill_9_leaves_is_removed_by_the_next_query(results, tmp_path, alive, tag, words):
    """No process stays, and no copy of the rows."""
    place = tmp_path / "temporary"
    place.mkdir()
    source = tmp_path / f"{tag}.jsonl"
    source.write_bytes(results["trials"].read_bytes() * 20_000)
    env = os.environ | {"TMPDIR": str(place)}
    argv = [sys.executable, "-m", "assay", *words, str(source)]
    process = subprocess.Popen(argv, cwd=tmp_path, env=env)
    while not (list(place.glob("assay-*")) or list(tmp_path.glob(".t.csv.*"))):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while alive():
        assert time.monotonic() < until
        time.sleep(0.1)
    again = [sys.executable, "-m", "assay", "query", "SELECT 1 AS x", str(results["trials"])]
    assert subprocess.run(again, env=env, capture_output=True).returncode == 0
    assert list(place.iterdir()) == []
    assert not (tmp_path / "t.csv").exists()


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
        (("captures", "SELECT 1"), 2, "The SQL comes first"),
        (("gone.jsonl", "SELECT 1"), 2, "The SQL comes first"),
        (("SELECT 1", "captures", "-f", "csv", "-o", "t.parquet"), 2, "contradict"),
        (("SELECT 1", "captures", "-f", "table", "-o", "t.JSON"), 2, "contradict"),
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


def test_a_byte_order_mark_is_skipped(assay, results, tmp_path):
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + results["trials"].read_bytes())
    assert asked(assay, "SELECT count(*) AS n FROM trials", "marked.jsonl") == [{"n": 8}]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"usage": {"inputTokens": 2**63}}, "9223372036854775808"),
        ({"output": "a\ud800"}, "surrogate"),
        ({"output": "a\ud800", "usage": {"inputTokens": 2**63}}, "surrogate"),
    ],
)
@pytest.mark.parametrize("n_before", [1, 6])
def test_a_row_that_only_duckdb_refuses_is_named_by_its_line(
    assay, results, tmp_path, more, says, n_before
):
    lines = results["captures"].read_text().splitlines()
    bad = json.dumps(json.loads(lines[0]) | more)
    text = "\n".join([*lines[:n_before], "", "", bad, *lines])
    (tmp_path / "odd.jsonl").write_text(text + "\n")
    sql = "SELECT max(output), max(input_tokens) FROM trials"
    done = assay("query", sql, "odd.jsonl")
    assert (done.code, done.stdout) == (1, "")
    assert f"odd.jsonl:{n_before + 3}: " in done.stderr
    assert says in done.stderr
    assert "auto_detect" not in done.stderr
    assert "the tables are" not in done.stderr


@pytest.mark.parametrize("style", ["csv", "jsonl", "table"])
def test_a_long_row_after_many_short_ones_begins_again(assay, results, tmp_path, style):
    short = json.loads(results["captures"].read_text().splitlines()[0])
    rows = "".join(json.dumps(short | {"id": str(n)}) + "\n" for n in range(9000))
    long = json.dumps(short | {"id": "last", "output": "o" * (20 << 20)})
    (tmp_path / "rows.jsonl").write_text(rows + long + "\n")
    done = assay("query", "SELECT id, len(output) FROM trials", "rows.jsonl", "-f", style)
    assert done.code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 9001 + {"csv": 1, "jsonl": 0, "table": 2}[style]


def test_json_is_written_as_lines(assay, results, tmp_path):
    assert assay("query", "SELECT 1 AS n", results["trials"], "-o", "t.json").code == 0
    assert json.loads((tmp_path / "t.json").read_text()) == {"n": 1}


def test_only_the_documented_tables_are_there(assay, results):
    found = asked(assay, "SHOW TABLES", results["trials"])
    assert sorted(row["name"] for row in found) == ["grades", "steps", "tools", "trials"]


def test_without_duckdb_it_says_what_to_install(assay, results, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['duckdb'] = None\n")
    env = {"PYTHONPATH": str(tmp_path)}
    done = assay("query", "SELECT 1", results["captures"], env=env)
    assert done.code == 1
    assert "pip install '.[query]'" in done.stderr


@pytest.mark.cold
def test_the_end_of_a_query_is_quiet(assay, results):
    assert assay("query", "SELECT count(*) FROM trials", results["captures"]).stderr == ""


@pytest.mark.parametrize("kib", [900_000, 400_000, 250_000])
@pytest.mark.parametrize("command", ["query", "export"])
def test_too_little_memory_is_one_error_and_leaves_nothing(results, tmp_path, kib, command):
    """DuckDB aborts, or crashes, in some of these; which ones is up to the machine."""
    place = tmp_path / "temporary"
    place.mkdir()
    words = ["query", "SELECT * FROM trials ORDER BY output", str(results["trials"]), "-f", "csv"]
    if command == "export":
        words = ["export", "table", str(results["trials"]), "-o", str(tmp_path / "x.parquet")]
    env = os.environ | {"TMPDIR": str(place)}
    line = f'ulimit -v {kib} && exec "$0" -m assay "$@"'
    query = ["/bin/sh", "-c", line, sys.executable, *words]
    done = subprocess.run(query, capture_output=True, text=True, env=env, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert bool(done.stdout) is (done.returncode == 0 and command == "query")
    assert list(place.iterdir()) == []
    if done.returncode:
        assert done.stderr.startswith("Error: "), done.stderr
        assert "memory" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_crash_of_duckdb_is_one_error(assay, results, tmp_path):
    crash = "import os\ndef connect(**config):\n    os.write(2, b'it broke')\n    os.abort()\n"
    (tmp_path / "duckdb.py").write_text(crash)
    env = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = assay("query", "SELECT 1", results["captures"], "-o", "out.csv", env=env)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: DuckDB ended without an answer: it broke\n")
    assert not list(tmp_path.glob("assay-query-*"))
    assert not list(tmp_path.glob("*out.csv*"))


def test_free_memory_is_what_the_narrowest_limit_leaves():
    code = "from assay.records.memory import free_memory; print(free_memory())"
    line = f'ulimit -v 2000000 && exec "$0" -c "{code}"'
    done = subprocess.run(["/bin/sh", "-c", line, sys.executable], capture_output=True, check=True)
    assert 0 < int(done.stdout) < 2_000_000 * 1024
