"""A run of very many trials, and very many agents at once: time per trial and memory, over time.

usage: python -m benchmarks.scale [--trials 100000] [--jobs 8] [--sleepers 500]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.capture import SLEEPER, assay, write_agent, write_prompts

_LOOK_S = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--sleepers", type=int, default=500, help="agents that sleep 5 s at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print_many_trials(folder, options.trials, options.jobs)
        if options.sleepers:
            print_sleepers(folder, options.sleepers)


def print_many_trials(folder: Path, n: int, jobs: int) -> None:
    """Print time per trial and memory in each tenth of a run of `true`."""
    prompts = write_prompts(folder / "prompts.jsonl", n)
    output = folder / "many.jsonl"
    program = str(Path(sys.executable).parent / "assay")
    words = [program, "capture", "-q", str(prompts), "--simple", "true {}", "-j", str(jobs)]
    command = [*words, "-o", str(output)]
    started_s, cpu_before = time.perf_counter(), os.times().children_user
    seen = list(_watched(command, output))
    seconds = time.perf_counter() - started_s
    print(f"{n} trials, -j {jobs}: {seconds:.0f} s, {seconds / n * 1000:.2f} ms a trial", end=", ")
    print(f"{os.times().children_user - cpu_before:.0f} s of CPU in user mode")
    print("| part of the run | ms a trial | ms of CPU a trial | MB |")
    print("|---|---|---|---|")
    for tenth in range(10):
        first, last = (_at(seen, n * part // 10) for part in (tenth, tenth + 1))
        n_done = max(1, last[1] - first[1])
        wall_ms, cpu_ms = ((last[i] - first[i]) / n_done * 1000 for i in (0, 2))
        part = f"{tenth * 10} to {tenth * 10 + 10} %"
        print(f"| {part} | {wall_ms:.2f} | {cpu_ms:.2f} | {last[3]:.0f} |")
    raw = list((folder / "many.raw").iterdir())
    size = sum(path.stat().st_size for path in raw)
    print(f"raw streams: {len(raw)} files, {size / 1e6:.1f} MB; rows: {_n_rows(output)}")


type _Look = tuple[float, int, float, float]
"""Seconds since the start, rows so far, CPU seconds of assay itself, its memory in MB."""


def _watched(command: list[str], output: Path) -> Iterator[_Look]:
    started_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    n_rows, offset = 0, 0
    while process.poll() is None:
        if output.exists():
            with output.open("rb") as file:
                file.seek(offset)
                added = file.read()
            n_rows, offset = n_rows + added.count(b"\n"), offset + len(added)
        try:
            yield time.perf_counter() - started_s, n_rows, *_usage(process.pid)
        except OSError:  # it ended just now
            break
        time.sleep(_LOOK_S)
    if process.wait():
        sys.exit(f"assay ended with exit code {process.returncode}")


def _usage(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return cpu_s, resident * os.sysconf("SC_PAGE_SIZE") / 2**20


def _at(seen: list[_Look], n_rows: int) -> _Look:
    return next((look for look in seen if look[1] >= n_rows), seen[-1])


def _n_rows(output: Path) -> int:
    with output.open("rb") as file:
        return sum(1 for _ in file)


def print_sleepers(folder: Path, n: int) -> None:
    """Print time and memory of n agents at once that sleep 5 s."""
    schema = write_agent(folder / "sleeper", SLEEPER.replace("SECONDS", "5"))
    prompts = write_prompts(folder / "sleepers.jsonl", n)
    started_s = time.perf_counter()
    process = subprocess.Popen(assay(prompts, schema, folder, n), stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started_s
    if status:
        sys.exit("assay failed")
    print(f"{n} agents of 5 s, -j {n}: {seconds:.1f} s, {usage.ru_maxrss / 1024:.0f} MB peak")


if __name__ == "__main__":
    main()
