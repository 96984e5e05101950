"""Nothing of a trial is alive when the trial is over, whatever its processes tried."""

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import system
from assay.plugin import Host
from assay.records.spec import Limits
from assay.run.family import Mark, end_leftovers
from assay.run.host import LocalHost
from assay.run.trial import recorded


def is_there(pid: str) -> bool:
    """Whether a process is, which we have to reap where the system hands us orphans."""
    try:
        state = Path("/proc", pid.strip(), "stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z" or system.is_linux()


@pytest.mark.parametrize("how", ["plain", "clearenv"])
def test_escaped_daemons_are_gone_after_a_timeout_at_j8(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable, how: str
) -> None:
    """Two forks, setsid, closed files, another folder, deaf to TERM; also without environment."""
    path = prompts(*[f"!do daemon {how} ; deaf ; wait 300"] * 8)
    done = assay("capture", path, "-s", agent(), "-j", 8, "-t", 1500)
    assert alive() == []
    assert done.code == 0
    assert [row["failure"]["cause"] for row in done.rows] == ["agent_timeout"] * 8
    assert all(row["timing"]["total"] < 1500 + 5000 for row in done.rows)


def test_the_daemon_of_the_test_is_alive_when_nobody_ends_it(
    schema: dict[str, Any], alive: Callable, eventually: Callable
) -> None:
    """The test above means something: left alone, the same program does leave processes."""
    for how in ("plain", "clearenv"):
        subprocess.run([*schema["command"], f"!do daemon {how}"], check=True, capture_output=True)
    assert eventually(lambda: len(alive()) == 2)


def test_children_of_an_agent_that_ended_well_are_ended_too(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable
) -> None:
    path = prompts(*["!do child ; say hi", "!do daemon plain ; say hi", "!do stopped ; say hi"] * 3)
    done = assay("capture", path, "-s", agent(), "-j", 8)
    assert alive() == []
    assert all("failure" not in row for row in done.rows)
    assert [row["metadata"]["exitCode"] for row in done.rows] == [0] * 9


def test_children_of_an_earlier_turn_are_ended_when_the_next_cannot_start(
    assay: Callable, prompts: Callable, agent: Callable, tmp_path: Path
) -> None:
    """A turn that ends well keeps its children for the next one; the trial still ends them."""
    program = tmp_path / "once"
    program.write_text("#!/bin/sh\nrm $0; sleep 300 & echo $! > pid\n")
    program.chmod(0o755)
    schema = agent(command=[str(program)], terminal={"required": False})
    done = assay("capture", prompts({"id": "a", "input": ["one", "two"]}), "-s", schema)
    assert done.rows[0]["failure"]["cause"] == "agent_crash"
    assert not is_there((tmp_path / "pid").read_text())


_FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the call is x86's")
@pytest.mark.parametrize("how", ["echo $$ > pid; exec {}", "{} & echo $! > pid; sleep 0.5"])
def test_an_agent_whose_first_thread_has_ended_is_ended(
    assay: Callable, prompts: Callable, agent: Callable, tmp_path: Path, how: str
) -> None:
    """It looks like a zombie and is alive; as the agent itself, and as an orphan of it."""
    (tmp_path / "half.py").write_text(_FIRST_THREAD_ENDS)
    script = how.format(f"{sys.executable} -I -S half.py")
    shell = agent(command=["/bin/sh", "-c", script], terminal={"required": False})
    done = assay("capture", prompts("x"), "-s", shell, "-t", 1500, timeout=20)
    assert len(done.rows) == 1
    assert not is_there((tmp_path / "pid").read_text())


def test_a_quick_escape_before_we_look_is_found(
    assay: Callable, prompts: Callable, agent: Callable, tag: str, tmp_path: Path
) -> None:
    """The agent forks and is gone within a millisecond; its child has neither group nor mark."""
    pids = tmp_path / "pids"
    script = f"echo {tag}; setsid env -i sh -c 'echo $$ >> {pids}; exec sleep 300' & exit 0"
    shell = agent(command=["/bin/sh", "-c", script], terminal={"required": False})
    done = assay("capture", prompts(*["x"] * 100), "-s", shell, "-j", 8)
    assert len(done.rows) == 100
    left = [pid for pid in pids.read_text().split() if is_there(pid)]
    assert left == []


def test_exit_codes_are_not_lost_among_many_short_processes(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    shell = agent(command=["/bin/sh", "-c", "exit 3"])
    done = assay("capture", prompts(*["x"] * 300), "-s", shell, "-j", 16)
    assert [row["metadata"]["exitCode"] for row in done.rows] == [3] * 300


def test_an_agent_that_only_sigkill_ends(spec: Callable, alive: Callable) -> None:
    limits = Limits(turn_s=0.5, term_s=0.3)
    with recorded(spec("!do deaf ; wait 300", limits)) as recording:
        end = recording.turns[0].end
    assert alive() == []
    assert (end.timed_out, end.signal) == (True, "SIGKILL")
    assert 500 <= end.end_ms < 3000


def test_other_children_of_this_process_are_left_alone(spec: Callable) -> None:
    """Assay as a library: its host's own processes are neither ended nor buried."""
    ended = subprocess.Popen([sys.executable, "-I", "-S", "-c", "raise SystemExit(7)"])
    living = subprocess.Popen(["sleep", "60"])
    try:
        with recorded(spec("!do child ; wait 0.3")):
            pass
        assert ended.wait(10) == 7
        assert living.poll() is None
    finally:
        living.kill()
        living.wait()


def test_leftovers_of_a_run_are_found_by_its_token_and_no_others() -> None:
    mine, other = (
        subprocess.Popen(["sleep", "60"], env={"ASSAY_TRIAL": f"{token}.prompt-a"})
        for token in ("f" * 16, "e" * 16)
    )
    try:
        assert end_leftovers("f" * 16) == 1
        mine.wait(10)
        assert other.poll() is None
        assert end_leftovers("f" * 16) == 0
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_marks_of_a_run_differ() -> None:
    marks = [Mark("a") for _ in range(100)]
    assert len({mark.number for mark in marks}) == 100


def test_the_host_gives_streams_and_exit_code() -> None:
    host: Host = LocalHost()
    done = host.run(["/bin/sh", "-c", "cat; echo e >&2; exit 4"], stdin=b"\x00\xffhello")
    assert (done.exit_code, done.stdout, done.stderr) == (4, b"\x00\xffhello", b"e\n")


def test_the_host_ends_what_hangs_with_all_its_kin(schema: dict[str, Any], alive: Callable) -> None:
    done = LocalHost().run([*schema["command"], "!do daemon plain ; wait 300"], timeout_s=0.5)
    assert alive() == []
    assert done.timed_out
    assert json.loads(done.stdout)["type"] == "system"
