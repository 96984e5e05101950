"""kill -9, Ctrl-C, TERM and full disks: no finished row is lost, no agent stays behind."""

import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

N = 200


def test_killed_twenty_times_and_resumed_ends_with_one_row_per_prompt(
    start: Callable,
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    alive: Callable,
    eventually: Callable,
    read_rows: Callable,
    tmp_path: Path,
) -> None:
    rng = random.Random(20)
    path, out = prompts(*["sleep 0.15; say done"] * N), tmp_path / "out.jsonl"
    command = ("capture", path, "-s", shell_agent, "-o", out, "-j", 8, "--resume")
    before: list[bytes] = []
    for _ in range(20):
        process = start(*command)
        more = rng.choice([0, 0, 1, 3, 6])
        enough = len(before) + more
        assert eventually(lambda n=enough: n_lines(out) >= n)
        time.sleep(rng.uniform(0, 0.1 if more else 0.3))
        process.kill()
        process.wait()
        lines = out.read_bytes().split(b"\n") if out.exists() else [b""]
        assert lines[: len(before)] == before, "a row that stood there has changed"
        before = lines[:-1]
    assert 0 < len(before) < N, "the kills did not fall into the run"
    assert assay(*command).code == 0
    rows = read_rows(out)
    assert Counter(row["id"] for row in rows) == Counter(f"p{i}" for i in range(N))
    assert all(row["output"] == "done" and "failure" not in row for row in rows)
    assert alive() == []
    again = assay(*command)
    assert (again.code, len(read_rows(out))) == (0, N)


def test_agents_of_a_killed_run_are_ended_on_resume(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    alive: Callable,
    eventually: Callable,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    gate.write_text("!do wait 60")
    shell = ["/bin/sh", "-c", f'exec {" ".join(agent_words(agent))} "$(cat {gate})"']
    schema, path, out = agent(command=shell), prompts(*["x"] * 4), tmp_path / "out.jsonl"
    process = start("capture", path, "-s", schema, "-o", out, "-j", 4)
    assert eventually(lambda: len(alive()) >= 4)
    time.sleep(0.5)  # the shells start a `cat` each before they become the agents
    assert eventually(lambda: len(alive()) >= 4)
    process.kill()
    process.wait()
    assert len(alive()) >= 4, "a kill -9 leaves the agents: that is what resume must clean up"
    gate.write_text("!do say hi")
    done = assay("capture", path, "-s", schema, "-o", out, "-j", 4, "--resume")
    assert alive() == []
    assert done.code == 0, done.stderr


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def agent_words(agent: Callable) -> list[str]:
    import json

    return json.loads(agent().read_text())["command"]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGXCPU],
)
def test_interrupted_keeps_rows_ends_agents_and_can_be_resumed(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    alive: Callable,
    eventually: Callable,
    read_rows: Callable,
    tmp_path: Path,
    number: int,
) -> None:
    out, schema = tmp_path / "out.jsonl", agent()
    path = prompts("quick", "quick too", *["!do deaf ; daemon plain ; wait 1 ; say hi"] * 3)
    process = start("capture", path, "-s", schema, "-o", out, "-j", 8)
    assert eventually(lambda: out.exists() and out.read_bytes().count(b"\n") >= 2)
    assert eventually(lambda: len(alive()) >= 6)
    began = time.monotonic()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert alive() == []
    assert process.returncode == 130
    assert time.monotonic() - began < 5
    assert "--resume" in stderr
    assert "Traceback" not in stderr
    kept = {row["id"] for row in read_rows(out)}
    assert {"p0", "p1"} <= kept
    assert len(kept) < 5
    done = assay("capture", path, "-s", schema, "-o", out, "-j", 8, "--resume")
    assert done.code == 0
    assert sorted(row["id"] for row in read_rows(out)) == [f"p{i}" for i in range(5)]


def test_a_second_ctrl_c_does_not_leave_agents_behind(
    start: Callable, agent: Callable, prompts: Callable, alive: Callable, eventually: Callable
) -> None:
    path = prompts(*["!do deaf ; wait 300"] * 8)
    process = start("capture", path, "-s", agent(), "-j", 8)
    assert eventually(lambda: len(alive()) >= 8)
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        time.sleep(0.03)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert alive() == []


def test_ctrl_c_reaches_a_hanging_grader_too(
    start: Callable,
    agent: Callable,
    prompts: Callable,
    tag: str,
    alive: Callable,
    eventually: Callable,
    tmp_path: Path,
) -> None:
    grader = tmp_path / "grader.sh"
    grader.write_text(f"#!/bin/sh\n{sys.executable} -c 'import time; time.sleep(300)' {tag}\n")
    grader.chmod(0o755)
    process = start("capture", prompts("a"), "-s", agent(), "-g", grader)
    assert eventually(lambda: any("time.sleep" in _args(pid) for pid in alive()))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130
    assert alive() == []


def test_a_full_device_is_said_and_ends_the_agents(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable
) -> None:
    path = prompts("quick", *["!do deaf ; wait 300"] * 7)
    done = assay("capture", path, "-s", agent(), "-o", "/dev/full", "-j", 8)
    assert alive() == []
    assert done.code == 1
    assert "/dev/full" in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.seconds < 20


@pytest.mark.parametrize("command", ["capture", "run"])
def test_a_full_stdout_is_said_without_a_traceback(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable, command: str
) -> None:
    path = prompts("quick", *["!do wait 300"] * 3)
    with Path("/dev/full").open("wb") as full:
        done = assay(command, path, "-s", agent(), "-j", 4, stdout=full)
    assert alive() == []
    assert done.code == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_ends_the_run_and_the_agents(
    agent: Callable, prompts: Callable, alive: Callable, tmp_path: Path
) -> None:
    path = prompts(*["x" * 3000] * 30, *["!do wait 300"] * 3)
    line = f"{sys.executable} -m assay capture {path} -s {agent()} -j 4 | head -c 100"
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert alive() == []
    assert b"Traceback" not in done.stderr


@pytest.fixture
def small_disk(disk: Callable[[str], Path]) -> Path:
    return disk("2m")


def test_a_disk_that_gets_full_keeps_every_row_it_took(
    small_disk: Path,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    alive: Callable,
    read_rows: Callable,
    tmp_path: Path,
) -> None:
    out = small_disk / "out.jsonl"
    path = prompts(*["!do big 0 ; say " + "x" * 60_000] * 80, "!do wait 300")
    command = ("capture", path, "-s", agent(), "-o", out, "-j", 8, "--raw-dir", tmp_path / "raw")
    done = assay(*command)
    assert alive() == []
    assert done.code == 1
    assert "No space left on device" in done.stderr
    assert str(out) in done.stderr
    assert "--resume" in done.stderr
    rows = read_rows(out)
    assert 5 < len(rows) < 80
    assert len({row["id"] for row in rows}) == len(rows)
    assert all("failure" not in row and len(row["trajectory"]) == 2 for row in rows)
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert assay(*command, "--resume", "--filter", "p?", "--filter", "p?").code == 0
    assert read_rows(out)[: len(rows)] == rows


def test_a_full_disk_under_the_raw_streams_blames_no_agent(
    small_disk: Path, assay: Callable, agent: Callable, prompts: Callable, alive: Callable
) -> None:
    """Raw streams, not rows, fill the disk: what the agents could not write is not their fault."""
    path = prompts(*["!do big 0 ; say " + "x" * 60_000] * 80)
    done = assay("capture", path, "-s", agent(), "-j", 4, "--raw-dir", small_disk / "raw")
    assert alive() == []
    assert done.code == 1
    assert "Traceback" not in done.stderr
    assert "no space left" in done.stderr.lower()
    assert all("failure" not in row for row in done.rows)


def _args(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a child subreaper")
@pytest.mark.parametrize("command", ["capture", "run"])
def test_what_hides_from_every_mark_ends_with_the_run(
    assay: Callable, agent: Callable, prompts: Callable, eventually: Callable, command: str
) -> None:
    seconds = f"600.{uuid.uuid4().int % 10**9}"
    hide = f"setsid env -i bash -c 'ulimit -q 12345; (setsid sleep {seconds} &)'"
    schema = agent(command=["/bin/bash", "-c", f'{hide}; echo \'{{"type":"result"}}\''])
    done = assay(command, prompts("a", "b"), "-s", schema)
    assert len(done.rows) == 2
    # Killed is not yet gone on a busy machine; by itself it would end after ten minutes.
    assert eventually(lambda: subprocess.run(["pgrep", "-f", seconds], check=False).returncode == 1)
