"""What masking secrets costs a trial: no secrets, one and thirty; no trial holds any of them.

usage: python -m benchmarks.redaction [--trials 500] [--rounds 7]
"""

import argparse
import os
import random
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.capture import AGENT, write_agent, write_prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    # The same variables under other names: a larger environment alone makes each process slower.
    cases = {"no secret": environment(0), "1 secret": environment(1), "30 secrets": environment(30)}
    times: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = write_agent(folder / "agent", AGENT)
        prompts = write_prompts(folder / "prompts.jsonl", options.trials)
        words = ["capture", str(prompts), "-s", str(schema), "-o", str(folder / "out.jsonl")]
        for _ in range(options.rounds):  # in turn, so that other load hits all alike
            for case, env in cases.items():
                times[case].append(cpu_s([*words, "--overwrite", "-q", "-j", "2"], env))
    least = {case: min(found) for case, found in times.items()}
    print(f"| {options.trials} trials, -j 2 | CPU time | per trial | more |")
    print("|---|---|---|---|")
    for case, found in least.items():
        more = found / least["no secret"] - 1
        per_trial = found / options.trials * 1e6
        print(f"| {case} | {found:.3f} s | {per_trial:.0f} µs | {more:+.1%} |")


def environment(n_secrets: int) -> dict[str, str]:
    chance = random.Random(1)
    signs = string.ascii_letters + string.digits + "/+"
    values = ["sk-" + "".join(chance.choices(signs, k=40)) for _ in range(30)]
    names = [f"V{i}_{'KEY' if i < n_secrets else 'SET'}" for i in range(30)]
    return dict(zip(names, values, strict=True))


def cpu_s(words: list[str], env: dict[str, str]) -> float:
    """Run assay; return the CPU time of its own code, without that of the agents."""
    code = (
        "import resource, sys; from assay.cli.group import run_command; "
        "assert run_command(sys.argv[1:]) == 0; "
        "sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_utime))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


if __name__ == "__main__":
    main()
