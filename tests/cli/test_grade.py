"""assay grade as a person or a script uses it."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

ROW = {"id": "a", "input": "i", "output": "the blue sky", "hint": "blue", "trajectory": []}


@pytest.fixture
def rows(tmp_path: Path):
    def write(*changes: Any, name: str = "e.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(ROW | change) + "\n" for change in changes))
        return path

    return write


def test_file_to_file_and_stdin_to_stdout_give_the_same(assay, rows, tmp_path, read_rows) -> None:
    source = rows({"id": "a", "extra": {"keep": True}}, {"id": "b", "output": "grey"})
    done = assay("grade", source, "-g", "contains", "-o", "g.jsonl")
    piped = assay("grade", "-g", "contains", stdin=source.read_text())
    assert (done.code, piped.code) == (0, 0)
    graded = read_rows(tmp_path / "g.jsonl")
    assert graded == piped.rows
    assert [r["score"]["pass"] for r in graded] == [True, False]
    assert graded[0]["extra"] == {"keep": True}
    assert "1 of 2 passed -> g.jsonl" in done.stderr
    assert assay("grade", "-g", "contains", "-q", stdin=source.read_text()).stderr == ""


def test_a_broken_grader_is_counted_and_the_rest_goes_on(assay, rows) -> None:
    source = rows({"id": "a"}, {"id": "b", "hint": None}, {"id": "c"})
    done = assay("grade", source, "-g", "contains", "--progress")
    assert done.code == 1
    assert ["score" in row for row in done.rows] == [True, False, True]
    assert "1 row was not graded" in done.stderr
    assert "The first: b: contains: nothing to compare with" in done.stderr
    assert "✓ a: 1" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["e.jsonl"], 2, "Use -g GRADER."),
        (["e.jsonl", "-g", "nope.py"], 1, "Grader not found"),
        (["e.jsonl", "-g", "nope"], 1, "Grader not found"),
        (["e.jsonl", "-g", "regex:("], 1, "not a regular expression"),
        (["e.jsonl", "-g", "exact:trim=perhaps"], 1, "trim"),
        (["none.jsonl", "-g", "exact"], 1, "none.jsonl: No such file"),
        (
            ["e.jsonl", "-g", "exact", "-o", "e.jsonl", "--overwrite"],
            2,
            "the same file as the input",
        ),
        (["e.jsonl", "-g", "exact", "-j", "0"], 2, "-j"),
        (["e.jsonl", "-g", "exact", "--grader-timeout", "0"], 2, "--grader-timeout"),
        (["e.jsonl", "-g", "exact", "--append"], 2, "--append needs -o"),
        (["e.jsonl", "-g", "command:true", "-o", "there.jsonl"], 1, "already exists"),
        (["-g", "exact"], 1, "no rows"),
    ],
)
def test_what_is_wrong_is_said(assay, rows, tmp_path, words, code, said) -> None:
    source = rows({})
    before = source.read_bytes()
    (tmp_path / "there.jsonl").write_text("{}\n")
    done = assay("grade", *words)
    assert (done.code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert source.read_bytes() == before


def test_an_empty_file_gives_an_empty_output(assay, tmp_path) -> None:
    (tmp_path / "e.jsonl").write_text("\n")
    done = assay("grade", "e.jsonl", "-g", "exact", "-o", "g.jsonl")
    assert done.code == 0
    assert "0 of 0" in done.stderr
    assert (tmp_path / "g.jsonl").read_bytes() == b""


def test_a_bad_line_is_named_and_what_came_before_is_kept(assay, rows, tmp_path, read_rows) -> None:
    source = rows({"id": "a"})
    source.write_text(source.read_text() + "\n{bad\n")
    done = assay("grade", source, "-g", "contains", "-o", "g.jsonl")
    assert done.code == 1
    assert "e.jsonl:3: not a JSON object" in done.stderr
    assert [row["id"] for row in read_rows(tmp_path / "g.jsonl")] == ["a"]


def test_a_thousand_rows_through_a_serving_grader(assay, rows, tmp_path) -> None:
    (tmp_path / "serve.py").write_text(
        "import json, os, sys\nfor line in sys.stdin:\n    row = json.loads(line)\n"
        "    if row['output'] == '500': os._exit(1)\n"
        "    print(json.dumps({'pass': True, 'score': 1, 'reasoning': row['output'],\n"
        "          'outcome': {'pid': os.getpid()}}), flush=True)\n"
    )
    source = rows(*({"id": str(n), "output": str(n)} for n in range(1000)))
    done = assay("grade", source, "-g", "serve:./serve.py", "-j", "3")
    assert done.code == 1
    assert [row["id"] for row in done.rows] == [str(n) for n in range(1000)]
    assert [r["id"] for r in done.rows if "graderFailures" in r] == ["500"]
    assert all(r["score"]["reasoning"] == r["id"] for r in done.rows if r["id"] != "500")
    assert len({r["outcome"]["pid"] for r in done.rows if "outcome" in r}) <= 4


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", ["program", "serve", "python", "regex", "command"])
def test_hanging_graders_end_and_leave_no_process(
    assay, rows, tmp_path, tag, alive, kind, workers
) -> None:
    folder = tmp_path / tag
    folder.mkdir()
    (folder / "hang.py").write_text("import time\nwhile True: time.sleep(600)\n")
    (folder / "py.py").write_text("import time\ndef grade(output): time.sleep(600)\n")
    grader = {
        "program": f"{folder}/hang.py",
        "serve": f"serve:{folder}/hang.py",
        "python": f"{folder}/py.py",
        "regex": f"regex:(a+)+$(?#{tag})",
        "command": f"command:sh=sleep 600 # {tag}",
    }[kind]
    source = rows(*({"id": str(n), "output": "a" * 50 + "!", "cwd": str(folder)} for n in range(3)))
    words = ("grade", source, "-g", grader, "--grader-timeout", "0.5", "-j", workers)
    done = assay(*words, timeout=60)
    assert done.code == 1
    assert "3 grader failures" in done.stderr
    assert [list(row["graderFailures"]) for row in done.rows]
    assert done.seconds < 25
    assert not alive()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_ends_everything_and_resume_goes_on(
    start, assay, rows, tmp_path, tag, alive, eventually, read_rows, workers
) -> None:
    folder = tmp_path / tag
    folder.mkdir()
    (folder / "serve.py").write_text(
        "import json, os, sys, time\nfor line in sys.stdin:\n    row = json.loads(line)\n"
        "    if row['output'] == 'hang' and not os.path.exists('go'):\n"
        "        open('hangs', 'w').close(); time.sleep(600)\n"
        '    print(\'{"pass": true, "score": 1}\', flush=True)\n'
    )
    source = rows(*({"id": str(n), "output": "hang" if n == 4 else "x"} for n in range(8)))
    words = ("grade", source, "-g", f"serve:{folder}/serve.py", "-o", "g.jsonl", "-j", workers)
    process = start(*words)
    output = tmp_path / "g.jsonl"
    assert eventually((tmp_path / "hangs").exists)
    time.sleep(0.5)  # the row before it may be with the other worker
    assert alive()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert not alive()
    assert [row["id"] for row in read_rows(output)] == [str(n) for n in range(4)]
    (tmp_path / "go").touch()
    done = assay(*words, "--resume")
    assert done.code == 0
    assert "4 were already graded" in done.stderr
    assert [row["id"] for row in read_rows(output)] == [str(n) for n in range(8)]
    again = assay(*words, "--resume")
    assert again.code == 0
    assert len(read_rows(output)) == 8


def test_resume_refuses_the_output_of_other_rows(assay, rows, tmp_path) -> None:
    assert assay("grade", rows({"id": "a"}), "-g", "contains", "-o", "g.jsonl").code == 0
    done = assay("grade", rows({"id": "b"}), "-g", "contains", "-o", "g.jsonl", "--resume")
    assert done.code == 1
    assert "g.jsonl:1" in done.stderr


def test_a_full_disk_is_said(assay, rows) -> None:
    done = assay("grade", rows({}), "-g", "contains", "-o", "/dev/full")
    assert done.code == 1
    assert "No space left" in done.stderr


def test_the_output_streams_while_graders_are_slow(start, rows, tmp_path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ndef grade(output):\n    time.sleep(0.4)\n    return True\n"
    )
    process = start("grade", rows(*({"id": str(n)} for n in range(20))), "-g", "slow.py")
    began = time.monotonic()
    assert json.loads(process.stdout.readline())["id"] == "0"
    assert time.monotonic() - began < 6
    process.kill()


def test_prints_of_a_python_grader_stay_out_of_the_rows(assay, rows, tmp_path) -> None:
    (tmp_path / "g.py").write_text(
        "print('loading')\ndef grade(output):\n    print('x')\n    return True\n"
    )
    for workers in (1, 2):
        done = assay("grade", rows({}, {}), "-g", "g.py", "-j", workers)
        assert done.code == 0
        assert len(done.rows) == 2


def test_memory_does_not_grow_with_the_file(assay, tmp_path) -> None:
    (tmp_path / "g.py").write_text("def grade(output, hint): return hint in output\n")
    row = json.dumps(ROW | {"trajectory": [{"type": "thought", "content": "x" * 240}] * 10})
    peaks = []
    for n in (1_000, 30_000):
        (tmp_path / "e.jsonl").write_text((row + "\n") * n)
        for workers in (1, 2) if n == 1_000 else (1,):
            words = ("grade", "e.jsonl", "-g", "g.py", "-o", "g.jsonl", "--overwrite")
            done = assay(*words, "-j", workers, measure=True)
            assert done.code == 0
            peaks.append(done.peak_mb)
    assert max(peaks) < 120
    assert peaks[-1] < peaks[0] + 15


def test_capture_takes_the_same_graders_and_the_timeout(assay, agent, prompts, tmp_path) -> None:
    (tmp_path / "py.py").write_text(
        "import time\ndef grade(output, hint):\n"
        "    if hint == 'hang': time.sleep(600)\n    return hint in output\n"
    )
    cases = prompts(
        {"id": "a", "input": "blue", "hint": "blue"}, {"id": "b", "input": "x", "hint": "hang"}
    )
    words = ["capture", cases, "-s", "demo", "-g", "py.py", "-g", "regex:said"]
    done = assay(*words, "--grader-timeout", "1")
    assert done.code == 1
    by_id = {row["id"]: row for row in done.rows}
    assert by_id["a"]["score"]["pass"] is True
    assert list(by_id["a"]["grades"]) == ["py", "regex"]
    assert by_id["b"]["graderFailures"] == {"py": "Grader gave no answer in 1 s"}
    assert by_id["b"]["grades"]["regex"]["pass"] is True


def test_capture_and_grade_say_the_same(assay, prompts, tmp_path, read_rows) -> None:
    cases = prompts({"id": "a", "input": "What is the capital of Peru?", "hint": "Lima"})
    graders = ["-g", "contains", "-g", "numeric:7", "-g", "tools:max_calls=0"]
    assay("capture", cases, "-s", "demo", "-o", "one.jsonl", *graders)
    assay("capture", cases, "-s", "demo", "-o", "plain.jsonl")
    assay("grade", "plain.jsonl", "-o", "two.jsonl", *graders)
    (one,), (two,) = read_rows(tmp_path / "one.jsonl"), read_rows(tmp_path / "two.jsonl")
    assert (one["score"], one["grades"]) == (two["score"], two["grades"])


def test_stdout_may_close_early(rows, tmp_path) -> None:
    import sys

    source = rows(*({"id": str(n)} for n in range(3000)))
    command = f"{sys.executable} -m assay grade {source} -g contains | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, cwd=tmp_path, timeout=60)
    assert json.loads(done.stdout)["id"] == "0"
    assert b"Traceback" not in done.stderr


def test_a_grader_that_fails_on_every_row_says_so_once(assay, rows, tmp_path) -> None:
    (tmp_path / "throws.py").write_text("def grade(output):\n    raise RuntimeError('kaput')\n")
    done = assay("grade", rows({"id": "a"}, {"id": "b"}), "-g", "throws.py")
    assert done.code == 1
    assert 'The grader "throws" failed on all 2 trials: ' in done.stderr
    assert "failed the grader" not in done.stderr
    assert done.stderr.count("kaput") == 1


@pytest.mark.parametrize("kind", ["javascript", "executable", "python", "serve", "serve:"])
def test_a_kind_of_file_is_no_grader(assay, rows, kind) -> None:
    source = rows({"id": "a"})
    done = assay("grade", source, "-g", kind)
    assert done.code == 1
    assert f"-g {kind} names no grader: it needs a file" in done.stderr
    offered = assay("grade", source, "-g", "nosuch").stderr
    assert "contains" in offered
    assert kind.rstrip(":") not in offered


@pytest.mark.parametrize("more", [[], ["-g", "contains"]])
def test_a_filter_that_leaves_no_row_is_said(assay, tmp_path, more) -> None:
    row = {"id": "a", "input": "q", "output": "Paris", "expect": {"contains": "Paris"}}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    done = assay("grade", "r.jsonl", "--filter", "tags=none", "-o", "graded.jsonl", *more)
    assert done.code == 1, done
    assert "r.jsonl: no rows that match the filter" in done.stderr
    assert not (tmp_path / "graded.jsonl").exists()


MEASURING = """
def grade(*, input, output, hint=None, trajectory=None, metadata=None, cwd=None):
    measured = {"pass": True, "score": 1.0, "reasoning": "first", "outcome": {"measures": {"n": 7}}}
    if output == "grey":
        raise ValueError("no colour")
    return measured
"""


def as_trials(row: dict[str, Any]) -> dict[str, Any]:
    """The same as a row of `assay trials` with one trial."""
    entry = {"trialNum": 1, "output": row["output"], "trajectory": [], "duration": 5}
    shared = {name: row[name] for name in ("id", "input", "hint")}
    return {**shared, "k": 1, "trials": [entry], "metadata": {}}


def as_capture(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "metadata": {}, "timing": {"start": 0, "end": 5, "total": 5}}


@pytest.mark.parametrize("form", [as_capture, as_trials])
@pytest.mark.parametrize("jobs", [(), ("-j", "2")], ids=["one", "two"])
def test_nothing_of_a_replaced_grader_is_left(assay, tmp_path, read_rows, form, jobs) -> None:
    """A second grading gives what a first one by the same graders would have given."""
    both = [ROW, ROW | {"id": "b", "output": "grey"}]
    fresh = tmp_path / "fresh.jsonl"
    fresh.write_text("".join(json.dumps(form(row)) + "\n" for row in both))
    (tmp_path / "measuring.py").write_text(MEASURING)
    assert assay("grade", fresh, "-g", "measuring.py", "-o", "first.jsonl").code == 1
    first = (tmp_path / "first.jsonl").read_text()
    assert '"outcome":{"measures":{"n":7}}' in first
    assert "no colour" in first
    assert assay("grade", "first.jsonl", "-g", "contains", *jobs, "-o", "again.jsonl").code == 0
    assert assay("grade", fresh, "-g", "contains", "-o", "once.jsonl").code == 0
    again, once = read_rows(tmp_path / "again.jsonl"), read_rows(tmp_path / "once.jsonl")
    for row in (trial for one in again for trial in (one, *one.get("trials", ()))):
        row.pop("earlierGrades", None)
    assert again == once
    compared = assay("compare", "again.jsonl", "once.jsonl", "-f", "json")
    assert "measures" not in json.loads(compared.stdout)


def test_a_broken_second_grader_leaves_no_outcome(assay, tmp_path) -> None:
    fresh = tmp_path / "fresh.jsonl"
    fresh.write_text(json.dumps(as_capture(ROW | {"hint": None})) + "\n")
    (tmp_path / "measuring.py").write_text(MEASURING)
    first = assay("grade", fresh, "-g", "measuring.py").stdout
    (row,) = assay("grade", "-g", "contains", stdin=first).rows
    assert "graderFailures" in row
    assert not {"outcome", "score"} & row.keys()


def test_an_outcome_that_no_grader_wrote_is_kept(assay, rows) -> None:
    """As an unknown field is: the row was never graded."""
    (row,) = assay("grade", rows({"outcome": {"mine": 1}}), "-g", "contains").rows
    assert row["outcome"] == {"mine": 1}
