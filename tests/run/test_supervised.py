"""A process that never outlives its caller, however that ends."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay.run import family
from assay.run.supervised import ProcessFailed, ProcessKilled, call_supervised

MODULE = """
import os, random, signal
from assay.run.host import LocalHost

def double(argument, token):
    print("nothing of this is the result")
    return 2 * argument

def who_am_i(argument, token):
    return os.getpid(), os.getppid(), random.random(), os.environ.get("ONLY_ONCE")

def fail(argument, token):
    raise ValueError(argument)

def be_killed(argument, token):
    os.system(f"setsid sleep {argument} &")
    os.kill(os.getpid(), signal.SIGKILL)

def run_for_long(argument, token):
    os.system(f"env -i setsid sleep {argument} &")
    LocalHost().run(["sleep", argument], timeout_s=600)
"""
CALLER = """
import os, sys
from assay.run.supervised import call_supervised
call_supervised("work_of_tests:run_for_long", sys.argv[1], "tok.1", dict(os.environ))
"""


@pytest.fixture(autouse=True)
def adopting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process adopt orphans again, which other tests need."""
    yield
    monkeypatch.setattr(family, "_adopting", False)
    family.adopt_orphans()
    monkeypatch.setattr(family, "_adopting", True)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "work_of_tests.py").write_text(MODULE)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.fixture
def seconds() -> Iterator[str]:
    """How long a process sleeps, by which it is known; none outlives the test."""
    found = f"6{random.randrange(10**8)}"
    yield found
    for process in sleepers(found):
        process.kill()


def sleepers(seconds: str) -> list[psutil.Process]:
    every = psutil.process_iter(["cmdline"])
    return [process for process in every if process.info["cmdline"] == ["sleep", seconds]]


def test_the_result_comes_back(env: dict[str, str]) -> None:
    assert call_supervised("work_of_tests:double", 21, "tok.1", env) == 42
    assert call_supervised("work_of_tests:double", b"x" * 300_000, "tok.1", env) == b"x" * 600_000


def test_much_is_passed_in_little_time(env: dict[str, str]) -> None:
    started_s = time.monotonic()
    given = b"x" * (50 << 20)
    assert call_supervised("work_of_tests:double", given, "tok.1", env) == 2 * given
    assert time.monotonic() - started_s < 10


def test_each_call_has_a_process_of_its_own(env: dict[str, str]) -> None:
    once = {"ONLY_ONCE": "yes"}
    first = call_supervised("work_of_tests:who_am_i", 0, "tok.1", env, variables=once)
    with pytest.raises(ProcessFailed):
        call_supervised("work_of_tests:no_such", 0, "tok.2", env)
    second, third = (call_supervised("work_of_tests:who_am_i", 0, f"tok.{n}", env) for n in (3, 4))
    assert len({first[0], second[0], third[0]}) == 3
    assert second[1] == third[1]  # forked by one that had loaded everything
    assert second[2] != third[2]
    assert (first[3], second[3]) == ("yes", None)


def test_calls_may_be_made_at_once(env: dict[str, str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        calls = [
            pool.submit(call_supervised, "work_of_tests:double", n, f"tok.{n}", env)
            for n in range(9)
        ]
    assert [call.result() for call in calls] == [2 * n for n in range(9)]


def test_an_error_is_told_by_its_last_line(env: dict[str, str]) -> None:
    with pytest.raises(ProcessFailed, match=r"ended too early: ValueError: no such thing$"):
        call_supervised("work_of_tests:fail", "no such thing", "tok.1", env)


def test_what_a_killed_process_leaves_is_ended(
    env: dict[str, str], seconds: str, eventually: Callable[..., bool]
) -> None:
    with pytest.raises(ProcessKilled, match="SIGKILL"):
        call_supervised("work_of_tests:be_killed", seconds, "tok.1", env)
    assert eventually(lambda: not sleepers(seconds), 5)


@pytest.mark.parametrize("with_children", [True, False])
def test_nothing_outlives_the_caller(
    env: dict[str, str], seconds: str, eventually: Callable[..., bool], with_children: bool
) -> None:
    command: list[Any] = [sys.executable, "-c", CALLER, seconds]
    with subprocess.Popen(command, env=env) as caller:
        assert eventually(lambda: len(sleepers(seconds)) == 2, 30)
        # Ray kills the children of a worker that it ends, and nothing below them.
        for child in psutil.Process(caller.pid).children() if with_children else ():
            child.kill()
        caller.kill()
    assert eventually(lambda: not sleepers(seconds), 20)
