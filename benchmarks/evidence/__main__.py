"""What bundles of evidence take, and what happens to changed and forged ones.

445 trials with 5 MB of rows and 50 MB of raw streams are packed and verified by the command; 200
random changes of single bytes and all written forgeries are put to the levels.

usage: python -m benchmarks.evidence [--trials 445] [--changes 200]
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from assay.errors import InputError
from assay.evidence.verify import Verification
from assay.export.signing import new_key
from assay.records.bundle import Bundle
from benchmarks.evidence.forgeries import forged, levels

RELEASE = Path(__file__).parents[2] / "tests/evidence/release-0.1.0.zip"
AGENT = """\
import json, random, sys
prompt = sys.argv[sys.argv.index("-p") + 1]
chance = random.Random(prompt)
print(json.dumps({"type": "system", "session_id": "s", "model": "m-1"}))
for n in range(45):
    text = " ".join(chance.choices(["look", "read", "write", "test", "think", "again"], k=28))
    part = {"type": "thinking", "thinking": f"{n}: {text}"}
    print(json.dumps({"type": "assistant", "message": {"content": [part]}}))
    noise = "%x" % chance.getrandbits(4 * 2350)
    print(json.dumps({"type": "system", "session_id": "s", "noise": noise}))
answer = "yes" if chance.random() < 0.7 else "no"
print(json.dumps({"type": "result", "session_id": "s", "result": answer}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=445)
    parser.add_argument("--changes", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = capture(folder, options.trials)
        print_cost(folder, rows)
        print_changes(folder, options.changes)
        print_forgeries(folder)


def capture(folder: Path, n_trials: int) -> Path:
    """Run the trials."""
    agent = folder / "agent.py"
    agent.write_text(AGENT)
    schema = {
        "version": 1,
        "name": "talker",
        "command": [sys.executable, "-I", "-S", str(agent)],
        "sessionMode": "stream",
        "prompt": {"flag": "-p"},
        "output": {"flag": "--output-format", "value": "stream-json"},
        "outputEvents": [
            {
                "match": {"path": "$.message.content[*]", "value": "thinking"},
                "emitAs": "thought",
                "extract": {"content": "$.thinking"},
            }
        ],
        "ignore": [{"path": "$.type", "value": "system"}],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    (folder / "talker.json").write_text(json.dumps(schema))
    prompts = folder / "prompts.jsonl"
    lines = [{"id": f"p-{n}", "input": f"Question {n}", "hint": "yes"} for n in range(n_trials)]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = folder / "results.jsonl"
    assay(["capture", prompts, "-s", folder / "talker.json", "-g", "contains", "-j", "2", "-q",
           "-o", rows])  # fmt: skip
    return rows


def assay(words: list[object]) -> tuple[str, float, float]:
    """Run a command; return its seconds in words and as a number, and, so far, the largest memory
    of a child in MB."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "assay", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    took_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{took_s:.1f} s, {cpu_s:.1f} s of CPU", took_s, after.ru_maxrss / 1024


def print_cost(folder: Path, rows: Path) -> None:
    raw_mb = sum(p.stat().st_size for p in folder.glob("results.raw/**/*") if p.is_file()) / 1e6
    bundle, key = folder / "evidence.zip", folder / "key.pem"
    new_key(key, None)
    words = ["evidence", "pack", rows, "-s", folder / "talker.json", "-o", bundle, "--sign", key]
    pack_words, pack_s, _ = assay([*words, "-q"])
    verify_words, verify_s, peak_mb = assay(
        ["evidence", "verify", bundle, "--key", key.with_suffix(".pub")]
    )
    n = len(rows.read_bytes().splitlines())
    print(f"| {n} trials, {rows.stat().st_size / 1e6:.1f} MB of rows, {raw_mb:.1f} MB raw | |")
    print("|---|---|")
    print(f"| bundle | {bundle.stat().st_size / 1e6:.1f} MB |")
    print(f"| pack and sign | {pack_words} (goal 10 s: {met(pack_s < 10)}) |")
    print(f"| verify, every level | {verify_words} (goal 60 s: {met(verify_s < 60)}) |")
    print(f"| largest process | {peak_mb:.0f} MB (goal 300 MB: {met(peak_mb < 300)}) |")


def met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def print_changes(folder: Path, n_changes: int) -> None:
    data, chance, n_refused = RELEASE.read_bytes(), random.Random(30), 0
    path, work = folder / "changed.zip", folder / "work"
    for _ in range(n_changes):
        at, other = chance.randrange(len(data)), chance.randrange(1, 256)
        path.write_bytes(data[:at] + bytes([data[at] ^ other]) + data[at + 1 :])
        n_refused += is_refused(path, work)
    print(f"\nchanged bytes: {n_refused} of {n_changes} refused as not intact")


def is_refused(path: Path, work: Path) -> bool:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        with Bundle(path) as bundle:
            verification = Verification(bundle, work)
            found = [verification.intact().state, verification.signed().state]
    except InputError:
        return True
    return found != ["holds", "holds"]


def print_forgeries(folder: Path) -> None:
    other = folder / "other.pem"
    new_key(other, None)
    public = RELEASE.with_suffix(".pub")
    n, wrong = 0, []
    for name, level, path in forged(RELEASE, folder, other):
        found = levels(path, (public,) if level == "signed" else (), only=level)
        n += 1
        wrong += [] if found[level].state in ("differs", "unchecked") else [name]
    print(f"forgeries: {n - len(wrong)} of {n} refused at their level {wrong or ''}")


if __name__ == "__main__":
    main()
