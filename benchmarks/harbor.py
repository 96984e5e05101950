"""What a task in Harbor's format takes besides its own scripts.

usage: python -m benchmarks.harbor [--tasks 20] [--rounds 5] [--container IMAGE]
The agent is `oracle`, which runs the task's solution. The scripts alone are run one after the other
by a shell, without a sandbox. Rounds alternate; the time of a task is what each more of them adds
to a run, so that starting Assay does not count. IMAGE needs sh, cat and the folder /app.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 60.0\n'
DOCKERFILE = "FROM ubuntu:24.04\nWORKDIR /app\n"
SOLUTION = "#!/bin/sh\necho hello > hello.txt\n"
TEST = """#!/bin/sh
read -r word < hello.txt
if [ "$word" = hello ]; then echo 1; else echo 0; fi > "${REWARD:-/logs/verifier/reward.txt}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--container", metavar="IMAGE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_tasks(Path(name), options.tasks)
        places = {"--sandbox": ["--sandbox"]}
        if options.container:
            places["--container"] = ["--container", options.container]
        print_added(Path(name), options.tasks, options.rounds, places)


def write_tasks(folder: Path, n: int) -> None:
    """Write task folders that are alike, so that one image would do for all."""
    texts = {
        "task.toml": CONFIG,
        "instruction.md": "Write hello to /app/hello.txt",
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": TEST,
        "solution/solve.sh": SOLUTION,
    }
    for number in range(n + 1):
        for name, text in texts.items():
            path = folder / "tasks" / f"t{number:03}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def print_added(folder: Path, n: int, rounds: int, places: dict[str, list[str]]) -> None:
    """Print, for each place, what a task takes and what of it is not its scripts'."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ("scripts", *places)}
    for _ in range(rounds):
        found["scripts"].append(_scripts(folder, n))
        for name, where in places.items():
            found[name].append(_assay(folder, n, where))
    print(
        f"load {' '.join(f'{load:.0f}' for load in os.getloadavg())}, {n} tasks, {rounds} rounds\n"
    )
    print("| where | ms a task | CPU ms | added ms | added CPU ms |")
    print("|---|---|---|---|---|")
    bare = [statistics.median(column) for column in zip(*found["scripts"], strict=True)]
    for name, times in found.items():
        each = [statistics.median(column) for column in zip(*times, strict=True)]
        added = ["-", "-"]
        if name != "scripts":
            added = [f"{ours - theirs:.0f}" for ours, theirs in zip(each, bare, strict=True)]
        print(f"| {name} | {each[0]:.0f} | {each[1]:.0f} | {' | '.join(added)} |")


def _scripts(folder: Path, n: int) -> tuple[float, float]:
    """Return wall and CPU milliseconds that the scripts of a task take alone."""
    work = Path(tempfile.mkdtemp(dir=folder))
    task = folder / "tasks/t000"
    line = f"sh {task}/solution/solve.sh; sh {task}/tests/test.sh\n"
    env = {**os.environ, "REWARD": "reward.txt"}
    wall_s, cpu_s = _timed(["sh", "-c", line * n], cwd=work, env=env)
    return wall_s * 1000 / n, cpu_s * 1000 / n


def _assay(folder: Path, n: int, where: list[str]) -> tuple[float, float]:
    """Return what each of n more tasks adds to a run of one."""
    program = str(Path(sys.executable).parent / "assay")
    out = tempfile.mkdtemp(dir=folder)
    words = [program, "capture", "-q", "--benchmark", f"harbor:{folder}/tasks", "-s", "oracle"]
    words += [*where, "--workspace-dir", f"{out}/w"]
    one, all_ = (
        _timed([*words, "--limit", str(limit), "-o", f"{out}/{limit}.jsonl"])
        for limit in (1, n + 1)
    )
    return (all_[0] - one[0]) * 1000 / n, (all_[1] - one[1]) * 1000 / n


def _timed(words: list[str], **more: object) -> tuple[float, float]:
    started_s = time.perf_counter()
    process = subprocess.Popen(words, **more)  # type: ignore[call-overload]
    _, process.returncode, usage = os.wait4(process.pid, 0)
    if process.returncode:
        sys.exit(f"{words[0]} failed")
    return time.perf_counter() - started_s, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
