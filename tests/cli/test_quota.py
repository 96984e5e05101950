"""--memory and --cpus: kept by all processes of a trial together, and recorded in its row."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import AssayError
from assay.records.spec import Limits
from assay.run import quota
from assay.run.host import LocalHost

pytestmark = pytest.mark.cold

GREEDY = "exec python3 -c 'x = bytearray(300 << 20); print(len(x))'"
TOOL = 'python3 -c \'x = bytearray(300 << 20)\'; echo \'{"type":"result","result":"went on"}\''
BUSY = "for i in 1 2; do timeout 1 sh -c 'while :; do :; done' & done; wait; times"


@pytest.fixture
def groups() -> None:
    if quota._group_bases(("memory", "cpu")) is None:
        pytest.skip("no control groups can be made here; run as root, or where they are delegated")


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("sandbox", [(), ("--sandbox", "--workspace-dir", "w")])
def test_an_agent_that_takes_too_much_memory_reached_a_limit(
    assay: Callable, agent: Callable, prompts: Callable, sandbox: tuple[str, ...]
) -> None:
    schema = agent(command=["/bin/sh", "-c", GREEDY])
    done = assay("capture", prompts("x"), "-s", schema, "--memory", "100M", *sandbox)
    row = done.rows[0]
    assert row["failure"]["cause"] == "agent_limit", row
    assert "memory" in row["failure"]["message"]
    limits = row["metadata"]["limits"]
    assert (limits["memoryBytes"], limits["by"][:6]) == (100 << 20, "cgroup")
    enough = assay("capture", prompts("x"), "-s", schema, "--memory", "1G", *sandbox).rows[0]
    assert enough["metadata"]["exitCode"] == 0


@pytest.mark.usefixtures("groups")
def test_a_tool_that_takes_too_much_is_the_agents_own_affair(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    schema = agent(command=["/bin/sh", "-c", TOOL])
    row = assay("capture", prompts("x"), "-s", schema, "--memory", "100M").rows[0]
    assert row["output"] == "went on"
    assert "failure" not in row


@pytest.mark.usefixtures("groups")
def test_run_and_extract_say_the_same(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    schema, raw = agent(command=["/bin/sh", "-c", GREEDY]), tmp_path / "raw.jsonl"
    assay("run", prompts("x"), "-s", schema, "--memory", "100M", "-o", raw)
    row = assay("extract", raw, "-s", schema).rows[0]
    assert row["failure"]["cause"] == "agent_limit", row
    assert row["metadata"]["limits"]["memoryBytes"] == 100 << 20


@pytest.mark.usefixtures("groups")
def test_cpus_are_shared_by_all_processes_of_a_trial(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    script = f"{BUSY} | tail -1 >&2"
    schema = agent(command=["/bin/bash", "-c", script])
    row = assay("capture", prompts("x"), "-s", schema, "--cpus", "0.4").rows[0]
    user, system = (_seconds(word) for word in row["stderr"].split())
    assert user + system < 0.8, "two busy processes for one second, at most 0.4 of a CPU"
    assert row["metadata"]["limits"]["cpus"] == 0.4


@pytest.mark.usefixtures("groups")
def test_no_group_is_left(assay: Callable, agent: Callable, prompts: Callable) -> None:
    bases = quota._group_bases(("memory", "cpu")) or ()
    hide = "setsid env -i bash -c 'ulimit -q 12345; (setsid sleep 61.5 &)'"
    schema = agent(command=["/bin/bash", "-c", hide])
    assay("capture", prompts("a", "b"), "-s", schema, "--memory", "100M", "--cpus", "1", "-j", 2)
    left = [path for base in bases for path in Path(base).glob("assay-*")]
    assert [path for path in left if not Path("/proc", path.name.split("-")[1]).exists()] == []


def test_without_groups_each_process_has_its_limits() -> None:
    made = quota._ProcessLimit(Limits(memory_bytes=100 << 20, cpus=1.0))
    done = LocalHost().run(made.wrap(["python3", "-c", "x = bytearray(300 << 20)"]))
    assert b"MemoryError" in done.stderr
    code = "import os; print(len(os.sched_getaffinity(0)))"
    assert LocalHost().run(made.wrap(["python3", "-c", code])).stdout == b"1\n"
    with pytest.raises(AssayError, match="control group"):
        quota._ProcessLimit(Limits(cpus=0.5))


def test_systemd_is_told_the_limits(tmp_path: Path) -> None:
    program = tmp_path / "systemd-run"
    script = 'while [ "$1" != -- ]; do echo "$1" >&2; shift; done; shift; exec "$@"'
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    words = quota._Scope(Limits(memory_bytes=1 << 30, cpus=1.5)).wrap(["echo", "ran"])
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = LocalHost().run(words, env=env)
    assert done.stdout == b"ran\n"
    asked = done.stderr.decode().split()
    assert "MemoryMax=1073741824" in asked
    assert "CPUQuota=150%" in asked


def test_sizes_are_read_and_nonsense_is_refused(assay: Callable, prompts: Callable) -> None:
    for text in ("1x", "-1G", "1000", "nan", "0"):
        done = assay("capture", prompts("x"), "-s", "demo", f"--memory={text}")
        assert (done.code, "is not a size" in done.stderr) == (2, True), text


def _seconds(text: str) -> float:
    minutes, _, seconds = text.rstrip("s").partition("m")
    return int(minutes) * 60 + float(seconds)
