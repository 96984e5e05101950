"""Overhead of a trial, against the bare limit and against the reference, measured in one run.

usage: python -m benchmarks.capture [--trials 500] [--rounds 3] [--only sandbox]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import install_reference

AGENT = """#!/bin/sh
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"hi"}]}}'
echo '{"type":"result","result":"hi"}'
"""
SLEEPER = '#!/bin/sh\nsleep SECONDS\necho \'{"type":"result","result":"hi"}\'\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sandbox"], help="what a sandbox adds, nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only:
            print_sandbox(folder, options.trials, options.rounds)
            return
        reference = install_reference()
        schema = write_agent(folder / "agent", AGENT)
        sleeper = write_agent(folder / "sleeper", SLEEPER.replace("SECONDS", "0.2"))
        prompts = write_prompts(folder / "prompts.jsonl", options.trials)
        rows = []
        for jobs, goal in ((1, 0.7), (8, 0.4)):
            bare, ours, theirs = [], [], []
            for _ in range(options.rounds):  # in turn, so that other load hits all alike
                bare.append(timed(xargs(folder / "agent", options.trials, jobs)))
                theirs.append(timed(harness(reference, prompts, schema, folder, jobs)))
                ours.append(timed(assay(prompts, schema, folder, jobs)))
            medians = [statistics.median(times) for times in (bare, ours, theirs)]
            rows.append((f"{options.trials} trials, -j {jobs}", *medians, goal))
        few = write_prompts(folder / "few.jsonl", 500)
        slept = [timed(assay(few, sleeper, folder, 8))]
        report(rows)
        ideal = 500 * 0.2 / 8
        share = statistics.median(slept) / ideal
        print(
            f"| 500 agents of 0.2 s, -j 8 | ideal {ideal:.1f} s | {statistics.median(slept):.2f} s "
            f"| | {share:.3f} of ideal (goal 1.05) | |"
        )
        print_help(reference)
        print_many(folder)
        print_sandbox(folder, options.trials, options.rounds)


def report(rows: list[tuple[str, float, float, float, float]]) -> None:
    """Print both ratios: of the overhead, which is beyond the bare agents, and of all the time."""
    print("| case | bare (xargs) | assay | reference | overhead / reference's | whole time / its |")
    print("|---|---|---|---|---|---|")
    for name, bare, ours, theirs, goal in rows:
        cells = [f"{seconds:.2f} s" for seconds in (bare, ours, theirs)]
        for ratio in ((ours - bare) / (theirs - bare), ours / theirs):
            cells.append(f"{ratio:.2f} (goal {goal}: {'met' if ratio <= goal else 'MISSED'})")
        print(f"| {name} | {' | '.join(cells)} |")


def print_help(reference: list[str]) -> None:
    program = [str(Path(sys.executable).parent / "assay"), "--help"]
    ours = statistics.median(timed(program) for _ in range(9))
    theirs = statistics.median(timed([*reference, "--help"]) for _ in range(9))
    imports = [sys.executable, "-c", "import msgspec, click"]
    bare = statistics.median(timed(imports) for _ in range(9))
    print(
        f"| --help | {bare * 1000:.0f} ms (import msgspec, click) | {ours * 1000:.0f} ms "
        f"| {theirs * 1000:.0f} ms | {ours / theirs:.2f} | |"
    )


def print_many(folder: Path) -> None:
    """200 agents at once that sleep 5 s."""
    schema = write_agent(folder / "long", SLEEPER.replace("SECONDS", "5"))
    prompts = write_prompts(folder / "many.jsonl", 200)
    command = assay(prompts, schema, folder, 200)
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    assert status == 0
    print(
        f"| 200 agents of 5 s, -j 200 | | {seconds:.1f} s, {usage.ru_maxrss / 1024:.0f} MB peak "
        "(goal 300 MB) | | | |"
    )


def print_sandbox(folder: Path, trials: int, rounds: int) -> None:
    """Print what each way of confining an agent adds to a trial, in ms."""
    schema = write_agent(folder / "confined", AGENT)
    prompts = write_prompts(folder / "confined.jsonl", trials)
    template = write_template(folder / "template")
    ways = {
        "--workspace-dir": [],
        "--workspace-template of 100 files": ["--workspace-template", str(template)],
        "--isolate": ["--isolate"],
        "--sandbox": ["--sandbox"],
        "--sandbox=no-network": ["--sandbox=no-network"],
        "--memory 1G --cpus 1": ["--memory", "1G", "--cpus", "1"],
    }
    for jobs in (1, 8):
        plain: list[float] = []
        more: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            plain.append(timed(assay(prompts, schema, folder, jobs)))
            for name, words in ways.items():
                command = assay(prompts, schema, folder, jobs)
                own = ["--workspace-dir", str(Path(command[-1]).parent / "w")]
                more[name].append(timed([*command, *own, *words]))
        base = statistics.median(plain)
        for name, times in more.items():
            added_ms = (statistics.median(times) - base) / trials * 1000
            print(
                f"| {name}, {trials} trials, -j {jobs} | {base:.2f} s without "
                f"| {statistics.median(times):.2f} s | | {added_ms:+.2f} ms a trial | |"
            )


def write_template(folder: Path) -> Path:
    """Write 100 files of 2 kB, as many as a small project has; they are hashed and copied."""
    for n in range(100):
        file = folder / f"package-{n % 10}" / f"module_{n}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {n}\n" * 400)
    return folder


def timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def xargs(agent: Path, n: int, jobs: int) -> list[str]:
    return ["sh", "-c", f"seq {n} | xargs -n 1 -P {jobs} {agent} -p"]


def assay(prompts: Path, schema: Path, folder: Path, jobs: int) -> list[str]:
    """Every run gets a folder of its own, and none is deleted before the end: for half a minute
    ext4 makes new files three times slower where many were just deleted, and only we make any."""
    own = tempfile.mkdtemp(prefix="ours-", dir=folder)
    program = str(Path(sys.executable).parent / "assay")
    return [
        program,
        "capture",
        "-q",
        str(prompts),
        "-s",
        str(schema),
        "-j",
        str(jobs),
        "-o",
        f"{own}/ours.jsonl",
    ]


def harness(
    reference: list[str], prompts: Path, schema: Path, folder: Path, jobs: int
) -> list[str]:
    return [
        *reference,
        "capture",
        str(prompts),
        "-s",
        str(schema),
        "-j",
        str(jobs),
        "-o",
        str(folder / "theirs.jsonl"),
    ]


def write_agent(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    schema = {
        "version": 1,
        "name": path.name,
        "command": [str(path)],
        "sessionMode": "stream",
        "prompt": {"flag": "-p"},
        "output": {"flag": "", "value": ""},
        "outputEvents": [
            {
                "match": {"path": "$.type", "value": "assistant"},
                "emitAs": "message",
                "extract": {"content": "$.message.content[0].text"},
            }
        ],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    file = path.with_suffix(".json")
    file.write_text(json.dumps(schema))
    return file


def write_prompts(path: Path, n: int) -> Path:
    path.write_text("".join(f'{{"id": "p{i}", "input": "hello {i}"}}\n' for i in range(n)))
    return path


if __name__ == "__main__":
    main()
