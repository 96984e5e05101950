"""Measure the test suite: wall and CPU seconds by folder, and the slowest tests.

Run: python -m benchmarks.suite [PYTEST ARGUMENT ...]
Without arguments the tests of `make test` are run as that runs them. CPU seconds (user and system)
are those of the worker and of all processes below it that have ended or still run; of agents that
were killed as orphans they are missing, so the sum of the folders is a little less than the total.
A busy machine makes wall seconds longer and CPU seconds hardly.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

CORE = ["-m", "not real and not browser and not ray and not container and not install and not recorded"]  # fmt: skip # noqa: E501
AS_MAKE = ["-n", "auto", "--dist", "worksteal", "--reruns", "1", *CORE]
N_SLOWEST = 30
FOLDER = "ASSAY_SUITE_FOLDER"
"""The variable that tells the workers where to write."""
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What one test took."""

    test: str
    wall: float
    cpu: float

    @property
    def file(self) -> str:
        """The file, as seen from tests."""
        return self.test.partition("::")[0].removeprefix("tests/")

    @property
    def folder(self) -> str:
        """The folder below tests, or a file in tests itself."""
        return self.file.partition("/")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write what a test and its fixtures took; pytest loads this file as a plugin."""
    wall, cpu = time.monotonic(), tree_cpu()
    result = yield
    cost = Cost(item.nodeid, time.monotonic() - wall, tree_cpu() - cpu)
    with Path(os.environ[FOLDER], str(os.getpid())).open("a") as file:
        file.write(json.dumps(cost) + "\n")
    return result


def tree_cpu() -> float:
    """Give the CPU seconds of this process, of its ended children, and of all that run below.

    Linux leaves processes out of a list of children when one of them ends while it is read. A
    process that was left out, such as a warm assay with all of its copies, would make the next
    difference negative, so the greatest of three readings counts.
    """
    return max(_read_tree(os.getpid()) for _ in range(3))


def _read_tree(pid: int) -> float:
    """Sum a process and all below it. Without pathlib: it would cost more than many a test."""
    base = f"/proc/{pid}"
    try:
        fields = _read(f"{base}/stat").rpartition(b")")[2].split()
        tasks = os.listdir(f"{base}/task")  # noqa: PTH208
        below = [_read(f"{base}/task/{task}/children") for task in tasks]
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / TICKS
    return own + sum(_read_tree(int(child)) for children in below for child in children.split())


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def main(words: list[str]) -> int:
    """Run the tests and print the tables."""
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.suite", *(words or AS_MAKE)]
        env = {**os.environ, FOLDER: folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # as make does: else every process compiles again
        done = subprocess.run(command, env=env, check=False)
        lines = [line for path in Path(folder).iterdir() for line in path.read_text().splitlines()]
    wall = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    costs = [Cost(*json.loads(line)) for line in lines]
    print(f"\n{len(costs)} tests, {wall:.0f} s wall, {used.ru_utime + used.ru_stime:.0f} s CPU,")
    print(f"load {load:.1f} before and {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores\n")
    print_groups("folder", costs, lambda cost: cost.folder)
    print_groups("file", costs, lambda cost: cost.file)
    print_slowest(costs)
    return done.returncode


def print_groups(title: str, costs: list[Cost], group: Callable[[Cost], str]) -> None:
    """Print what groups of tests took, the costliest first."""
    found: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        found[group(cost)].append(cost)
    sums = [
        (sum(c.cpu for c in own), sum(c.wall for c in own), name) for name, own in found.items()
    ]
    print(f"| {title} | tests | wall s | CPU s |\n|---|---|---|---|")
    for cpu, wall, name in sorted(sums, reverse=True)[:N_SLOWEST]:
        print(f"| {name} | {len(found[name])} | {wall:.1f} | {cpu:.1f} |")
    print()


def print_slowest(costs: list[Cost]) -> None:
    print(f"| the {N_SLOWEST} slowest | wall s | CPU s |\n|---|---|---|")
    for cost in sorted(costs, key=lambda cost: -cost.wall)[:N_SLOWEST]:
        print(f"| `{cost.test.removeprefix('tests/')}` | {cost.wall:.1f} | {cost.cpu:.1f} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
