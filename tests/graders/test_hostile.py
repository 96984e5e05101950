"""Python graders that misbehave: every row comes out, and no process is left."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

N_ROWS = 200
BAD = "120"
"""The row at which a grader does its mischief: in the middle of a batch."""


@pytest.fixture(params=[1, 2], ids=["j1", "j2"])
def grade(request, assay, tmp_path, tag, alive):
    """Grade rows by a function's body; gives the outcome. Nothing may be left alive."""

    def run(body: str, *more: str, timeout_s: float = 20.0, n_rows: int = N_ROWS):
        folder = tmp_path / tag
        folder.mkdir()
        (folder / "bad.py").write_text(
            "import os, signal, subprocess, sys, time\n"
            f"def grade(input, output):\n    if output == {BAD!r}:\n        {body}\n"
            "    return {'pass': True, 'score': 1, 'reasoning': output}\n"
        )
        lines = (json.dumps({"id": str(n), "input": "?", "output": str(n)}) for n in range(n_rows))
        (tmp_path / "rows.jsonl").write_text("\n".join(lines))
        words = ["rows.jsonl", "-g", f"{folder}/bad.py", "-j", request.param, *more]
        done = assay("grade", *words, "--grader-timeout", timeout_s, timeout=60)
        assert not alive()
        return done

    return run


def failures(done) -> dict[str, str]:
    """Check that every row came out in its order with its own grade; give those without one."""
    assert [row["id"] for row in done.rows] == [str(n) for n in range(N_ROWS)]
    failed = {row["id"]: row["graderFailures"]["bad"] for row in done.rows if "score" not in row}
    graded = [row for row in done.rows if "score" in row]
    assert all(row["score"]["reasoning"] == row["output"] for row in graded)
    assert done.code == (1 if failed else 0)
    return failed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os._exit(0)", "Grader exited with code 0 and gave no answer"),
        ("os._exit(3)", "Grader exited with code 3 and gave no answer"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Grader exited with code 139 and gave no answer"),
        ("sys.exit(3)", "Grader called exit(3)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: "),
        ("grade(input, output)", "RecursionError: maximum recursion depth exceeded"),
        ("x = bytearray(1 << 60)", "MemoryError: "),
    ],
)
def test_one_row_fails_and_the_others_are_graded(grade, body, said) -> None:
    failed = failures(grade(body))
    assert list(failed) == [BAD]
    assert failed[BAD].startswith(said)


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n            try: time.sleep(600)\n            except BaseException: pass",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); sum(range(10**12))",
        "import re; re.match(r'(a+)+$', 'a' * 40 + '!')",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "subprocess.run(['setsid', 'sleep', '600'])",
    ],
    ids=["swallows", "in C", "regex", "stopped", "child"],
)
def test_one_row_that_hangs_fails_and_the_others_are_graded(grade, body) -> None:
    done = grade(body, timeout_s=0.5)
    assert failures(done) == {BAD: "Grader gave no answer in 0.5 s"}
    assert done.seconds < 20


@pytest.mark.parametrize(
    "body",
    [
        "print('noise'); os.write(1, b'noise'); subprocess.run(['echo', 'noise'])",
        "assert sys.stdin.read() == '' and os.read(0, 9) == b''",
        "os.chdir('/')",
        "sys.stdout.close()",
        "os.environ.clear()",
        "os.kill(os.getppid(), 0)",
        "os.closerange(3, 200)",
    ],
    ids=["prints", "stdin", "chdir", "stdout", "environ", "parent", "files"],
)
def test_what_harms_only_itself_is_graded(grade, body) -> None:
    assert failures(grade(body)) == {}


@pytest.mark.parametrize("mischief", ["os._exit(3)", "time.sleep(600)", "os.closerange(3, 200)"])
def test_answers_given_before_the_mischief_are_kept(grade, tmp_path, mischief) -> None:
    """Answers are written in groups; those of a group that was not written are not lost."""
    counted = f"""pass
    with open({str(tmp_path / "asked")!r}, "a") as asked:
        asked.write(output + " ")
    if output == {BAD!r}: {mischief}"""
    grade(counted, timeout_s=0.5)
    before = [n for n in (tmp_path / "asked").read_text().split() if int(n) <= int(BAD)]
    assert sorted(before, key=int) == [str(n) for n in range(int(BAD) + 1)]


def test_a_copy_of_the_process_gives_no_second_answer(grade) -> None:
    assert failures(grade("os.fork()")) == {}


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['setsid', 'sleep', '{n}'])",
        "subprocess.Popen(['sh', '-c', 'env -i setsid sleep {n} & exit'])",
        "subprocess.Popen(['setsid', 'sleep', '{n}']); os._exit(0)",
    ],
)
def test_processes_a_grader_starts_end_with_it(grade, start) -> None:
    number = 600_000_000 + os.getpid()
    grade(start.format(n=number))
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert f"sleep {number}" not in listed


def test_what_the_grader_prints_is_on_stderr(grade) -> None:
    done = grade("print('a word of the grader')")
    assert done.stderr.count("a word of the grader") == 1
    assert "a word" not in done.stdout


def test_an_exit_function_of_the_grader_runs_and_ours_do_not(grade, tmp_path) -> None:
    mark = tmp_path / "ended"
    body = f"import atexit, pathlib; atexit.register(pathlib.Path({str(mark)!r}).touch)"
    assert failures(grade(body)) == {}
    assert mark.exists()


def test_large_questions_and_answers_come_whole(assay, tmp_path) -> None:
    (tmp_path / "g.py").write_text(
        "def grade(output): return {'pass': True, 'score': 1, 'reasoning': output}\n"
    )
    sizes = [0, 1, 100, 300_000, 5, 70_000, 65_536, 1_000_000] * 2
    rows = [{"id": str(n), "input": "?", "output": "é" * n} for n in sizes]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for workers in (1, 2):
        done = assay("grade", "rows.jsonl", "-g", "g.py", "-j", workers)
        assert done.code == 0
        assert [row["score"]["reasoning"] for row in done.rows] == [row["output"] for row in rows]


def test_a_killed_assay_takes_its_graders_along(start, tmp_path, tag, alive, eventually) -> None:
    folder = tmp_path / tag
    folder.mkdir()
    (folder / "g.py").write_text(
        "import time, pathlib\ndef grade(output):\n"
        f"    pathlib.Path({str(tmp_path / 'began')!r}).touch()\n    time.sleep(600)\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "input": "?", "output": "x"}\n')
    process = start("grade", "rows.jsonl", "-g", f"{folder}/g.py")
    assert eventually((tmp_path / "began").exists)
    process.kill()
    process.wait(20)
    assert eventually(lambda: not alive())


def test_live_rows_are_not_held_back(tmp_path) -> None:
    (tmp_path / "g.py").write_text("def grade(output): return True\n")
    words = [sys.executable, "-m", "assay", "grade", "-g", "g.py"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for burst in (1, 10, 3):
            for n in range(burst):
                line = json.dumps({"id": f"{burst}-{n}", "input": "?", "output": "x"})
                process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            got = [json.loads(process.stdout.readline())["id"] for _ in range(burst)]
            assert got == [f"{burst}-{n}" for n in range(burst)]
        process.stdin.close()
        assert process.wait(20) == 0


def test_slow_rows_are_shared_among_the_workers(assay, tmp_path) -> None:
    (tmp_path / "g.py").write_text("import time\ndef grade(output): time.sleep(0.2); return True\n")
    rows = (json.dumps({"id": str(n), "input": "?", "output": "x"}) for n in range(24))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    done = assay("grade", "rows.jsonl", "-g", "g.py", "-j", 8)
    assert done.code == 0
    assert done.seconds < 24 * 0.2


def test_a_row_that_cannot_be_read_comes_behind_those_before_it(assay, tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text("def grade(output): return True\n")
    row = json.dumps({"id": "a", "input": "?", "output": "x"})
    (tmp_path / "rows.jsonl").write_text("\n".join([*[row] * 10, "{", row]))
    for workers in (1, 2):
        began_s = time.monotonic()
        done = assay("grade", "rows.jsonl", "-g", "g.py", "-j", workers)
        assert (done.code, len(done.rows)) == (1, 10)
        assert "rows.jsonl:11" in done.stderr
        assert time.monotonic() - began_s < 30


def test_the_alarm_of_a_built_in_holds_in_a_batch(assay, tmp_path) -> None:
    lines = [
        json.dumps({"id": str(n), "input": "?", "output": "a" * 50 + "!" * (n == 70)})
        for n in range(N_ROWS)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    for workers in (1, 2):
        words = ("rows.jsonl", "-g", "regex:(a+)+$", "--grader-timeout", 0.5, "-j", workers)
        done = assay("grade", *words)
        assert [row["id"] for row in done.rows if "score" not in row] == ["70"]
        assert done.seconds < 20
