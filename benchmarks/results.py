"""Measure the commands that read result files against the reference, both on the same files.

Run: python -m benchmarks.results [--rows N ...] [--prompts N] [--repeats N] [--only WORD] [--keep]
CPU is user + system of the whole process tree, the least of the repeats, since other work may share
the machine; memory is the largest peak of one process in that tree. Prints a Markdown table and
ends with 1 when a goal is missed. The reference is installed with npm into a cache of its own.
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
import json, os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
told = [used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)]
print(json.dumps(told), file=sys.stderr)
"""
"""A small process in between: a child's peak memory begins at that of its parent."""
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
    share_of_memory: float | None = None
    most_mb: float | None = None


@dataclass(frozen=True)
class Used:
    """What one command used up."""

    cpu_s: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, LARGE])
    parser.add_argument("--prompts", type=int, default=10_000, help="of the trials, 5 each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="only cases with this word in their name")
    parser.add_argument("--keep", type=Path, help="folder for the files, to be used again")
    options = parser.parse_args()
    reference = install_reference()
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases = [c for c in make_cases(folder, options) if options.only in c.name]
        print(describe_machine())
        print(describe_bare_limit(folder, options.repeats), end="\n\n")
        print("| case | CPU s | reference | ratio | peak MB | reference | share | goal | |")
        print("|---|---|---|---|---|---|---|---|---|")
        missed = 0
        for case in cases:
            ours, theirs = measure(case, reference, folder, options.repeats)
            text, passed = row(case, ours, theirs)
            print(text, flush=True)
            missed += not passed
    print(f"\n{missed} of {len(cases)} goals missed")
    raise SystemExit(1 if missed else 0)


def make_cases(folder: Path, options: argparse.Namespace) -> Iterator[Case]:
    python, module = folder / "grader.py", folder / "grader.ts"
    python.write_text(GRADER_PY)
    module.write_text(GRADER_TS)
    for n in options.rows:
        runs = [write_captures(folder, n, seed) for seed in (1, 2)]
        share = 0.1 if n >= LARGE else None
        for strategy, faster in (("weighted", 4), ("statistical", 8)):
            words = ("compare", *runs, "-s", strategy)
            yield Case(f"compare {strategy}", n, words, words, faster, share)
        yield Case("summarize", n, ("summarize", runs[0]), ("summarize", runs[0]), 3, most_mb=120)
        for style in ("jsonl", "csv", "markdown"):
            words = ("format", "-f", style, runs[0])
            yield Case(f"format {style}", n, words, words, 3, most_mb=120)
        ours = ("grade", runs[0], "-g", str(python), "-q")
        yield Case("grade", n, ours, ("grade", runs[0], "-g", str(module)), 3, most_mb=120)
    if options.prompts:
        runs = [write_trials(folder, options.prompts, seed) for seed in (1, 2)]
        for strategy, faster in (("weighted", 4), ("statistical", 8)):
            words = ("compare", *runs, "-s", strategy)
            yield Case(f"compare trials x 5 {strategy}", options.prompts, words, words, faster)


def measure(case: Case, reference: list[str], folder: Path, n_repeats: int) -> tuple[Used, Used]:
    """Run both in turn, so that a busy moment of the machine meets both."""
    ours: list[Used] = []
    theirs: list[Used] = []
    for _ in range(n_repeats):
        ours.append(run([sys.executable, "-m", "assay", *case.words], folder / "ours.out"))
        theirs.append(run([*reference, *case.reference_words], folder / "theirs.out"))
    return least(ours), least(theirs)


def run(words: list[str], output: Path) -> Used:
    output.unlink(missing_ok=True)
    command = [sys.executable, "-I", "-S", "-c", MEASURE, *words, "-o", str(output)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    cpu_s, peak_mb, code = json.loads(done.stderr.splitlines()[-1])
    if code != 0:
        msg = f"{' '.join(words)} ended with {code}:\n{done.stderr}"
        raise SystemExit(msg)
    return Used(cpu_s, peak_mb)


def least(measured: list[Used]) -> Used:
    return Used(min(u.cpu_s for u in measured), min(u.peak_mb for u in measured))


def row(case: Case, ours: Used, theirs: Used) -> tuple[str, bool]:
    ratio, share = theirs.cpu_s / ours.cpu_s, ours.peak_mb / theirs.peak_mb
    goal = f"CPU 1/{case.times_faster:g}"
    passed = ratio >= case.times_faster
    if case.share_of_memory is not None:
        goal += f", memory 1/{1 / case.share_of_memory:g}"
        passed &= share <= case.share_of_memory
    if case.most_mb is not None:
        goal += f", under {case.most_mb:g} MB"
        passed &= ours.peak_mb < case.most_mb
    cells = [
        f"{case.name}, {case.n_rows:,}",
        f"{ours.cpu_s:.2f}", f"{theirs.cpu_s:.2f}", f"{ratio:.1f}x",
        f"{ours.peak_mb:.0f}", f"{theirs.peak_mb:.0f}", f"{share:.3f}",
        goal, "pass" if passed else "MISSED",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |", passed


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
        used = least([run(words, folder / "none") for _ in range(3 * n_repeats)])
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
