"""Measure the commands that read result files against the reference, both on the same files.

Run: python -m benchmarks.results [--rows N ...] [--prompts N] [--repeats N] [--only WORD] [--keep]
     [--million]
Wall and CPU time (user + system of the whole process tree) are the least of the repeats, since
other work may share the machine. Memory is the largest sum, over the process tree, of the
proportional set sizes (Linux), looked at every 10 ms in a run of its own. Of wall time the goals
are those for two cores and an idle machine. Prints Markdown tables and ends with 1 when a goal is
missed. --million measures 1,000,000 rows too, without the reference. The reference is installed
with npm into a cache of its own.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import PACKAGES, install_reference

MEASURE = """
import json, os, sys, time

def tree(pid):
    yield pid
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in open(f"/proc/{pid}/task/{task}/children").read().split():
                yield from tree(int(child))
    except OSError:
        pass

def memory(pid):
    total = 0
    for each in tree(pid):
        try:
            lines = open(f"/proc/{each}/smaps_rollup").read().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            pass
    return total / 1024

peak, began_s = 0.0, time.monotonic()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
while sys.argv[1] == "memory" and not os.waitid(os.P_PID, pid, ended):
    peak = max(peak, memory(pid))
    time.sleep(0.01)
_, status, used = os.wait4(pid, 0)
wall_s = time.monotonic() - began_s
told = [wall_s, used.ru_utime + used.ru_stime, peak, os.waitstatus_to_exitcode(status)]
print(json.dumps(told), file=sys.stderr)
"""
"""A small process in between: a child's peak memory begins at that of its parent."""
BARE = """
import sys
import msgspec

class Row(msgspec.Struct, gc=False):
    id: str
    output: str

decode = msgspec.json.Decoder(Row).decode
with open(sys.argv[1], "rb", buffering=262144) as file:
    for line in file:
        decode(line)
"""
"""The least that a program in Python can do with every row."""
MOST_OF_BARE = 1.5
MILLION = 1_000_000
MOST_MB = 300
LARGE = 100_000
GRADER_PY = """
def grade(output, hint):
    found = (hint or "").lower() in output.lower()
    return {"pass": found, "score": 1.0 if found else 0.0}
"""
GRADER_TS = """
export const grade = async ({ output, hint }) => {
  const found = output.toLowerCase().includes((hint ?? '').toLowerCase())
  return { pass: found, score: found ? 1 : 0 }
}
"""


@dataclass(frozen=True)
class Case:
    """One command on both sides, and what is asked of ours."""

    name: str
    n_rows: int
    words: tuple[str, ...]
    reference_words: tuple[str, ...]
    times_faster: float
    """In wall time."""
    share_of_memory: float | None = None
    most_mb: float = MOST_MB
    reads_once: bool = False
    """Whether it is compared with a bare loop over the rows."""


@dataclass(frozen=True)
class Used:
    """What one command used up."""

    wall_s: float
    cpu_s: float
    peak_mb: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, LARGE])
    parser.add_argument("--prompts", type=int, default=20_000, help="of the trials, 5 each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="only cases with this word in their name")
    parser.add_argument("--keep", type=Path, help="folder for the files, to be used again")
    parser.add_argument("--million", action="store_true", help="also 1,000,000 rows")
    options = parser.parse_args()
    reference = install_reference()
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases = [c for c in make_cases(folder, options) if options.only in c.name]
        print(describe_machine())
        print(describe_bare_limit(folder, options.repeats), end="\n\n")
        missed = compare_with_reference(cases, reference, folder, options.repeats)
        if options.million:
            missed += measure_growth(folder, options.only)
    print(f"\n{missed} goals missed")
    raise SystemExit(1 if missed else 0)


def compare_with_reference(
    cases: list[Case], reference: list[str], folder: Path, n_repeats: int
) -> int:
    """Print a row for each case; return how many goals are missed."""
    print("| case | wall s | reference | ratio | goal | CPU s | reference | MB | reference | "
          "of a bare loop | |")  # fmt: skip
    print("|---" * 11 + "|")
    missed = 0
    for case in cases:
        ours, theirs, bare = measure(case, reference, folder, n_repeats)
        text, passed = row(case, ours, theirs, bare)
        print(text, flush=True)
        missed += not passed
    return missed


def make_cases(folder: Path, options: argparse.Namespace) -> Iterator[Case]:
    python, module = folder / "grader.py", folder / "grader.ts"
    python.write_text(GRADER_PY)
    module.write_text(GRADER_TS)
    for n in options.rows:
        runs = [write_captures(folder, n, seed) for seed in (1, 2)]
        share = 0.1 if n >= LARGE else None
        for strategy, faster in (("weighted", 8), ("statistical", 16)):
            words = ("compare", *runs, "-s", strategy)
            yield Case(f"compare {strategy}", n, words, words, faster, share)
        same = ("summarize", runs[0])
        yield Case("summarize", n, same, same, 4, reads_once=True)
        for style in ("jsonl", "csv", "markdown"):
            words = ("format", "-f", style, runs[0])
            yield Case(f"format {style}", n, words, words, 4, reads_once=True)
        ours = ("grade", runs[0], "-g", str(python), "-q")
        yield Case("grade", n, ours, ("grade", runs[0], "-g", str(module)), 3)
    if options.prompts:
        runs = [write_trials(folder, options.prompts, seed) for seed in (1, 2)]
        for strategy in ("weighted", "statistical"):
            words = ("compare", *runs, "-s", strategy)
            yield Case(f"compare trials x 5 {strategy}", options.prompts, words, words, 5)


def measure(
    case: Case, reference: list[str], folder: Path, n_repeats: int
) -> tuple[Used, Used, Used | None]:
    """Run both in turn, so that a busy moment of the machine meets both."""
    assay = [sys.executable, "-m", "assay", *case.words]
    other = [*reference, *case.reference_words]
    bare = [sys.executable, "-c", BARE, case.words[-1]]
    ours, theirs, bares = list[Used](), list[Used](), list[Used]()
    for _ in range(n_repeats):
        ours.append(run(assay, folder / "ours.out"))
        theirs.append(run(other, folder / "theirs.out"))
        if case.reads_once:
            bares.append(run(bare, None))
    peaks = [run(words, folder / "peak.out", "memory").peak_mb for words in (assay, other)]
    return least(ours, peaks[0]), least(theirs, peaks[1]), least(bares) if bares else None


def run(words: list[str], output: Path | None, what: str = "time") -> Used:
    if output is not None:
        output.unlink(missing_ok=True)
        words = [*words, "-o", str(output)]
    command = [sys.executable, "-I", "-S", "-c", MEASURE, what, *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    wall_s, cpu_s, peak_mb, code = json.loads(done.stderr.splitlines()[-1])
    if code != 0:
        msg = f"{' '.join(words)} ended with {code}:\n{done.stderr}"
        raise SystemExit(msg)
    return Used(wall_s, cpu_s, peak_mb)


def least(measured: list[Used], peak_mb: float = 0.0) -> Used:
    return Used(min(u.wall_s for u in measured), min(u.cpu_s for u in measured), peak_mb)


def row(case: Case, ours: Used, theirs: Used, bare: Used | None) -> tuple[str, bool]:
    ratio = theirs.wall_s / ours.wall_s
    timed = case.n_rows >= LARGE or "trials" in case.name  # fewer rows: mostly the start of Python
    goal = f"{case.times_faster:g}x, under {case.most_mb:g} MB" if timed else ""
    passed = ours.peak_mb < case.most_mb and (ratio >= case.times_faster or not timed)
    if case.share_of_memory is not None:
        goal += f", memory 1/{1 / case.share_of_memory:g}"
        passed &= ours.peak_mb <= case.share_of_memory * theirs.peak_mb
    of_bare = ""
    if bare is not None:
        share = ours.wall_s / bare.wall_s
        of_bare = f"{share:.2f} (goal {MOST_OF_BARE})"
        passed &= share <= MOST_OF_BARE or not timed
    cells = [
        f"{case.name}, {case.n_rows:,}",
        f"{ours.wall_s:.2f}", f"{theirs.wall_s:.2f}", f"{ratio:.1f}x", goal,
        f"{ours.cpu_s:.2f}", f"{theirs.cpu_s:.2f}", f"{ours.peak_mb:.0f}", f"{theirs.peak_mb:.0f}",
        of_bare, "pass" if passed else "MISSED",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |", passed


FEW = 10
"""So few rows that a command takes the time of its start."""
MOST_GROWTH = 1.2
"""Of the time of one row from 10,000 rows to 1,000,000, beyond the time to start."""
QUERIES = {
    "query, trials by agent": "SELECT adapter, count(*) FROM trials GROUP BY ALL",
    "query, pass rate by category": "SELECT category, avg(pass::INT) FROM trials GROUP BY ALL",
    "query, failed calls by tool": "SELECT tool, count(*), avg((status = 'failed')::INT) "
    "FROM tools GROUP BY ALL",
}


def measure_growth(folder: Path, only: str) -> int:
    """Print time and memory for each command from 10,000 to 1,000,000 rows."""
    print("\n| command | µs of CPU a row, 10k | 100k | 1M | wall s, 1M | MB, 1M | |")
    print("|---" * 7 + "|")
    sizes, missed = (FEW, 10_000, LARGE, MILLION), 0
    files = {n: write_files(folder, n) for n in sizes}
    for name, words in growing_commands():
        if only not in name:
            continue
        few, *used = [grown(folder, words, files[n]) for n in sizes]
        each = [(u.cpu_s - few.cpu_s) / n * 1e6 for n, u in zip(sizes[1:], used, strict=True)]
        good = used[-1].peak_mb < MOST_MB and each[2] <= MOST_GROWTH * max(each[:2])
        missed += not good
        cells = [*(f"{value:.1f}" for value in each), f"{used[-1].wall_s:.1f}"]
        cells += [f"{used[-1].peak_mb:.0f} (goal {MOST_MB})", "pass" if good else "MISSED"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return missed


def growing_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield name and words of each command; capitals stand for files of write_files."""
    yield "summarize", ["summarize", "FILE"]
    for style in ("jsonl", "csv", "markdown"):
        yield f"format {style}", ["format", "-f", style, "FILE"]
    for strategy in ("weighted", "statistical"):
        yield f"compare {strategy}", ["compare", "-s", strategy, "FILE", "OTHER"]
    yield "compare trials x 5", ["compare", "-s", "weighted", "TRIALS", "OTHER_TRIALS"]
    yield "summarize trials x 5", ["summarize", "TRIALS"]
    yield "grade", ["grade", "FILE", "-g", "contains", "-q"]
    yield "export sft", ["export", "sft", "FILE", "-q"]
    for name, sql in QUERIES.items():
        yield name, ["query", sql, "FILE"]
    yield "query, Parquet", ["query", "SELECT id, pass, score FROM trials", "FILE", "-f", "parquet"]


def write_files(folder: Path, n_rows: int) -> dict[str, str]:
    return {
        "FILE": write_captures(folder, n_rows, 1),
        "OTHER": write_captures(folder, n_rows, 2),
        "TRIALS": write_trials(folder, n_rows // 5, 1),
        "OTHER_TRIALS": write_trials(folder, n_rows // 5, 2),
    }


def grown(folder: Path, words: list[str], files: dict[str, str]) -> Used:
    assay = [sys.executable, "-m", "assay", *(files.get(word, word) for word in words)]
    timed = run(assay, folder / "grown.out")
    return least([timed], run(assay, folder / "grown.out", "memory").peak_mb)


def describe_machine() -> str:
    load = os.getloadavg()[0]
    versions = ", ".join(f"{name} {version}" for name, version in PACKAGES.items())
    python = platform.python_version()
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {python}, {versions}"


def describe_bare_limit(folder: Path, n_repeats: int) -> str:
    """Say what Python takes before a line of ours is run."""
    told = []
    for names in ("msgspec, click", "msgspec, click, numpy"):
        words = [sys.executable, "-c", f"import {names}"]
        used = least([run(words, None) for _ in range(3 * n_repeats)])
        told.append(f"import {names}: {used.cpu_s:.3f} s")
    return "bare limit: " + "; ".join(told)


def write_captures(folder: Path, n: int, seed: int) -> str:
    """Write a run of captures of about 2.5 KB each."""
    path = folder / f"captures-{n}-{seed}.jsonl"
    if path.exists():
        return str(path)
    chance = random.Random(seed)
    with path.open("w") as file:
        for number in range(n):
            file.write(json.dumps(capture(number, chance), separators=(",", ":")) + "\n")
    return str(path)


def capture(number: int, chance: random.Random) -> dict[str, object]:
    passed = chance.random() < 0.7
    start, total = 1_790_000_000_000 + number, chance.randint(800, 9000)
    return {
        "id": f"prompt-{number:06d}",
        "input": f"Change the function number {number} so that its tests pass. " * 3,
        "output": f"I changed it; answer {number if passed else 'unknown'}. " * 4,
        "hint": f"answer {number}",
        "trajectory": [step(i, chance) for i in range(10)],
        "metadata": {
            "category": chance.choice(["bug", "feature", "docs"]),
            "agent": "bench",
            "trajectoryRichness": "full",
            "turnCount": 1,
            "exitCode": 0,
            "timedOut": False,
        },
        "timing": {
            "start": start,
            "end": start + total,
            "firstResponse": total // 4,
            "sessionCreation": 3,
            "total": total,
        },
        "toolErrors": chance.random() < 0.05,
        "score": {
            "pass": passed,
            "score": round(chance.uniform(0.5, 1.0) if passed else chance.uniform(0.0, 0.5), 3),
            "reasoning": "has the answer" if passed else "lacks the answer",
        },
    }


def step(number: int, chance: random.Random) -> dict[str, object]:
    text = f"step {number}: " + "look at the code and think about it " * chance.randint(2, 4)
    if number % 2:
        return {"type": "message", "content": text, "timestamp": 100 * number}
    return {
        "type": "tool_call",
        "name": "Read",
        "status": "completed",
        "input": {"path": f"src/module_{number}.py", "note": text[:60]},
        "timestamp": 100 * number,
        "duration": chance.randint(1, 90),
    }


def write_trials(folder: Path, n: int, seed: int) -> str:
    """Write a run of n prompts with five short trials each."""
    path = folder / f"trials-{n}-{seed}.jsonl"
    if path.exists():
        return str(path)
    chance = random.Random(seed)
    with path.open("w") as file:
        for number in range(n):
            file.write(json.dumps(trials(number, chance), separators=(",", ":")) + "\n")
    return str(path)


def trials(number: int, chance: random.Random) -> dict[str, object]:
    difficulty = chance.random()
    passes = [chance.random() < difficulty for _ in range(5)]
    rate = sum(passes) / 5
    return {
        "id": f"prompt-{number:06d}",
        "input": f"Change the function number {number} so that its tests pass.",
        "k": 5,
        "trials": [
            {
                "trialNum": i + 1,
                "output": f"I changed it; answer {number}. ",
                "trajectory": [step(1, chance), step(2, chance)],
                "duration": chance.randint(800, 9000),
                "pass": passed,
                "score": 1.0 if passed else 0.0,
                "reasoning": "has the answer" if passed else "lacks the answer",
            }
            for i, passed in enumerate(passes)
        ],
        "metadata": {"category": chance.choice(["bug", "feature", "docs"]), "agent": "bench"},
        "passRate": rate,
        "passAtK": 1 - (1 - rate) ** 5,
        "passExpK": rate**5,
    }


if __name__ == "__main__":
    main()
