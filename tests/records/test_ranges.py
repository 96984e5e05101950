"""Ranges of a file: every line once and in order, by one process or several."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.records import ranges
from assay.records.files import temporary_file
from assay.records.ranges import Range, map_ranges
from assay.records.rows import line_blocks

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=30)


def read(file: Any, lines: Range) -> bytes:
    return b"".join(block for _, block in line_blocks(file, lines.start, 16, lines.end))


@given(LINES, st.integers(1, 50), st.booleans())
def test_every_line_is_in_one_range(lines: list[bytes], size: int, ends: bool):
    data = b"\n".join(lines) + b"\n" * ends
    with pytest.MonkeyPatch.context() as patch, temporary_file() as file:
        file.write(data)  # still in the buffer: mapping must write it first
        patch.setattr(ranges, "_RANGE", size)
        parts = list(filter(None, map_ranges(file, read)))
    assert b"".join(parts) == data.removeprefix(b"\xef\xbb\xbf")
    assert all(part.endswith(b"\n") for part in parts[:-1])


def test_a_file_in_memory_is_one_range():
    assert list(map_ranges(io.BytesIO(b"a\nb\n"), read)) == [b"a\nb\n"]


SCRIPT = """
import os, sys, time
from pathlib import Path
from assay.errors import AssayError
from assay.records import ranges
from assay.records.files import temporary_file
ranges._RANGE = 100
ranges._count_workers = lambda _: 3
path = Path(sys.argv[1])

def lines_of(file, lines):
    file.seek(lines.start)
    text = file.read(-1 if lines.end is None else lines.end - lines.start)
    WORK
    return os.getpid(), text

with path.open("rb") as file:
    pids = set()
    try:
        for pid, text in ranges.map_ranges(file, lines_of):
            pids.add(pid)
            print(text.decode(), end="", flush=True)
    except AssayError as error:
        print("error:", error, flush=True)
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        print("processes:", len(pids - {os.getpid()}))
"""


def script(work: str) -> str:
    return textwrap.dedent(SCRIPT).replace("WORK", work)


def run(tmp_path: Path, work: str) -> list[str]:
    path = tmp_path / "lines"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    done = subprocess.run(
        [sys.executable, "-c", script(work), path],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_several_processes_answer_in_order_and_none_is_left(tmp_path: Path):
    told = run(tmp_path, "time.sleep(0.01 * (lines.start % 3))")
    assert told == [*(f"line {n}" for n in range(100)), "processes: 3"]


def test_an_error_comes_after_all_that_stands_before_it(tmp_path: Path):
    told = run(tmp_path, "if b'line 50' in text: raise AssayError('no 50', hint='x')")
    assert told[-2:] == ["error: no 50", "processes: 3"]
    assert told[-3] in {f"line {n}" for n in range(30, 50)}
    assert told[:-2] == [f"line {n}" for n in range(len(told) - 2)]


def test_a_worker_that_is_killed_is_told(tmp_path: Path):
    told = run(tmp_path, "if b'line 50' in text: os.kill(os.getpid(), 9)")
    assert told[-2:] == ["error: a process that reads the file was killed", "processes: 3"]


def test_a_worker_that_is_killed_while_it_answers_is_told(tmp_path: Path):
    # pickle asks for the second half when most of the first is in the pipe.
    half = "type('Half', (), {'__reduce__': lambda _: os.kill(os.getpid(), 9)})()"
    told = run(tmp_path, f"if b'line 50' in text: return 0, [text * 100_000, {half}]")
    assert told[-2:] == ["error: a process that reads the file was killed", "processes: 3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: int):
    path = tmp_path / "lines"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    work = "time.sleep(0.3)"
    with subprocess.Popen(
        [sys.executable, "-c", script(work), path],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        assert len(group_of(process.pid)) == 4
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        process.wait(timeout=20)
    until = time.monotonic() + 20
    while group_of(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert group_of(process.pid) == []


def group_of(leader: int) -> list[int]:
    """Return the live processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found


def test_a_line_longer_than_many_ranges_is_looked_for_once(tmp_path: Path):
    path = tmp_path / "lines"
    row = json.dumps({"id": "a", "pad": "x" * 3_000_000})
    path.write_text(f"{row}\n{row}\n")
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_RANGE", 1000)
        reads = []
        real = os.pread
        patch.setattr(os, "pread", lambda *given: reads.append(given) or real(*given))
        parts = [part for part in map_ranges(file, read) if part]
    assert parts == [f"{row}\n".encode()] * 2
    assert len(reads) < 3 * 2 * 3_000_000 / 16_384
