"""Too few files, a full disk, no processes, no program: the run ends, and --resume completes it."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

N = 30
SAYS_A_LOT = "!do big 0 ; say " + "x" * 60_000


@pytest.fixture
def limited(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run assay with a limit of open files: (soft, hard)."""

    def run(files: tuple[int, int], *args: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "assay", *map(str, args)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files),
        )

    return run


@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_more_workers_than_files_are_refused_with_the_number_that_fits(
    limited: Callable, agent: Callable, prompts: Callable, tmp_path: Path, command: str
) -> None:
    path, out = prompts(*["hi"] * N), tmp_path / "out.jsonl"
    done = limited((64, 64), command, path, "-s", agent(), "-j", 25, "-o", out)
    assert done.returncode == 1
    assert "-j 25 needs" in done.stderr
    assert "use -j 2" in done.stderr
    assert not out.exists()
    done = limited((64, 64), command, path, "-s", agent(), "-j", 2, "--limit", 4, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "failure" not in out.read_text()


def test_a_soft_limit_is_raised_as_far_as_the_workers_need(
    limited: Callable, agent: Callable, prompts: Callable, tmp_path: Path, read_rows: Callable
) -> None:
    path, out, schema = prompts(*["!do wait 1 ; say hi"] * N), tmp_path / "out.jsonl", agent()
    done = limited((64, 1024), "capture", path, "-s", schema, "-j", N, "-o", out)
    assert done.returncode == 0, done.stderr
    assert all("failure" not in row for row in read_rows(out))
    before = out.read_bytes()
    done = limited((64, 64), "capture", path, "-s", schema, "-j", N, "-o", out, "--overwrite")
    assert done.returncode == 1
    assert out.read_bytes() == before, "an output was emptied for a run that could not begin"


def test_workers_that_grade_are_refused_too(limited: Callable, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id":"a","input":"?","output":"!"}\n' * N)
    (tmp_path / "g.py").write_text("def grade(output): return True\n")
    done = limited((64, 64), "grade", "rows.jsonl", "-g", "g.py", "-j", 25)
    assert (done.returncode, done.stdout) == (1, "")
    assert "use -j 2" in done.stderr


@pytest.fixture
def small_disk(disk: Callable[[str], Path]) -> Path:
    return disk("1m")


@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_a_full_raw_disk_ends_the_run_and_resume_completes_it(
    small_disk: Path,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    alive: Callable,
    read_rows: Callable,
    tmp_path: Path,
    command: str,
) -> None:
    out, k = tmp_path / "out.jsonl", ["-k", "1"] if command == "trials" else []
    words = [command, prompts(*[SAYS_A_LOT] * N), "-s", agent(), "-j", 3, "-o", out, *k]
    words += ["--raw-dir", small_disk / "raw"]
    done = assay(*words)
    assert alive() == []
    assert done.code == 1
    assert "no space left" in done.stderr.lower()
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    rows = read_rows(out) if out.exists() else []
    assert len(rows) < N
    assert failures(rows) == {}
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    again = assay(*words, "--resume")
    assert again.code == 0, again.stderr
    rows = read_rows(out)
    assert Counter(row["id"] for row in rows) == Counter(f"p{i}" for i in range(N))
    assert failures(rows) == {}


def test_a_full_disk_for_workspaces_ends_the_run(
    small_disk: Path, assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "data").write_bytes(b"x" * 300_000)
    path = prompts(*["hi"] * N)
    words = ["--workspace-dir", small_disk / "ws", "--workspace-template", template]
    done = assay("capture", path, "-s", agent(), "-o", tmp_path / "out.jsonl", *words)
    assert done.code == 1
    assert "no space left" in done.stderr.lower()
    assert "harness" not in (tmp_path / "out.jsonl").read_text()


def failures(rows: list[dict[str, Any]]) -> Counter[str]:
    """Count the causes of trials that failed."""
    trials = [trial for row in rows for trial in row.get("trials", [row])]
    return Counter(trial["failure"]["cause"] for trial in trials if "failure" in trial)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_process_that_cannot_be_forked_ends_the_run(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, number: int
) -> None:
    """The system's own call fails from the third agent on, as it does without memory."""
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, os, _posixsubprocess\n"
        "fork_exec, n = _posixsubprocess.fork_exec, itertools.count()\n"
        "def scarce(*args):\n"
        "    is_agent = any('scripted' in str(word) for word in args[0])\n"
        f"    if is_agent and next(n) > 1: raise OSError({number}, os.strerror({number}))\n"
        "    return fork_exec(*args)\n"
        "_posixsubprocess.fork_exec = scarce\n"
    )
    path, out = prompts(*["hi"] * 6), tmp_path / "out.jsonl"
    words = ("capture", path, "-s", agent(), "-o", out)
    done = assay(*words, env={"PYTHONPATH": str(tmp_path)})
    assert done.code == 1
    assert "not enough memory" in done.stderr
    assert "--resume" in done.stderr
    assert [json.loads(line).get("failure") for line in out.read_text().splitlines()] == [None] * 2
    assert assay(*words, "--resume").code == 0
    assert len(out.read_text().splitlines()) == 6


@pytest.mark.parametrize("command", ["capture", "trials", "run", "acp", "simple"])
@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "./not-executable"])
def test_a_missing_program_ends_the_run_before_the_first_trial(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, command: str, program: str
) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    path, out = prompts("hi", "ho"), tmp_path / "out.jsonl"
    out.write_text("")
    words: list[Any] = [command, path, "-s", agent(command=[program])]
    if command == "acp":
        words = ["capture", path]
    if command == "simple":
        words = ["run", path, "--simple", f"{program} {{}}"]
    words += ["-o", out, "--overwrite", *(["--", program] if command == "acp" else [])]
    done = assay(*words)
    assert done.code == 1
    assert program in done.stderr
    assert "nothing was run" in done.stderr
    assert out.read_text() == ""


def test_a_program_on_the_path_that_the_agent_gets_is_found(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, schema: dict[str, Any]
) -> None:
    words = schema["command"]
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "my-agent"
    program.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    done = assay("capture", prompts("hi"), "-s", agent(command=["my-agent"]), env={"PATH": path})
    assert done.code == 0, done.stderr


def test_a_program_in_the_template_of_the_workspaces_is_not_looked_for_elsewhere(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, schema: dict[str, Any]
) -> None:
    (tmp_path / "template").mkdir()
    program = tmp_path / "template" / "my-agent"
    program.write_text(f'#!/bin/sh\nexec {" ".join(schema["command"])} "$@"\n')
    program.chmod(0o755)
    words = ["-s", agent(command=["./my-agent"]), "--workspace-template", "template"]
    done = assay("capture", prompts("hi"), *words, "-o", "out.jsonl")
    assert done.code == 0, done.stderr


@pytest.mark.parametrize("command", ["capture", "trials"])
def test_a_run_that_measured_nothing_keeps_its_rows_and_exits_1(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, command: str
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF not a program")
    broken.chmod(0o755)
    out, k = tmp_path / "out.jsonl", ["-k", 2] if command == "trials" else []
    done = assay(command, prompts("a", "b"), "-s", agent(command=[str(broken)]), "-o", out, *k)
    assert done.code == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("Nothing was measured")]
    assert len(lines) == 1
    assert "agent did not start" in lines[0]
    assert "Exec format error" in lines[0]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert failures(rows) == {"spawn": 2 * (2 if k else 1)}


def test_one_measured_trial_is_enough_for_0(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    done = assay("capture", prompts("!do exit 7", "a\0b"), "-s", agent())
    assert [row["failure"]["cause"] for row in done.rows] == ["agent_crash", "spawn"]
    assert done.code == 0


def test_a_current_folder_that_was_removed_is_said(
    agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    words = [sys.executable, "-m", "assay", "capture", str(prompts("hi")), "-s", str(agent())]
    line = f'rmdir "{folder}"; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", *words], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the current folder has been removed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cold
def test_an_agent_that_sets_the_clock_of_the_machine_loses_no_trial(
    assay: Callable, prompts: Callable, read_rows: Callable, faketime: str, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    env = {"LD_PRELOAD": faketime, "FAKETIME_TIMESTAMP_FILE": str(clock)}
    env |= {"FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    shell = f'unset LD_PRELOAD; echo "$PROMPT" > {clock}; sleep 0.2; echo "$PROMPT"'
    shell += '; [ "$PROMPT" != "-20y" ] || exec sleep 60'
    jumps = ("+20y", "-1y", "-20y", "+1y")
    path = prompts(*({"id": each, "input": each, "hint": "y"} for each in jumps))
    words = ("-g", "contains", "-o", "out.jsonl", "-t", 5000, "--rate", "20")
    done = assay("capture", path, "--shell", shell, *words, "--limit", 3, env=env)
    assert done.code == 0, done.stderr
    again = assay("capture", path, "--shell", shell, *words, "--resume", env=env)
    assert again.code == 0, again.stderr
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["id"] for row in rows if row["output"] == row["id"]] == [*jumps]
    causes = [row.get("failure", {}).get("cause") for row in rows]
    assert causes == [None, None, "agent_timeout", None]
    spent = [row["timing"]["end"] - row["timing"]["start"] for row in rows]
    assert min(spent) >= 200
    assert max(spent) < 20_000
