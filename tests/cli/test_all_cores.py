"""Commands that read large files write the same with one core and with several."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN = """
import contextlib, io, json, os, sys
from pathlib import Path
n_workers, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import datetime
from assay.cli import format as format_command
from assay.cli.group import run_command
from assay.records import ranges
ranges._RANGE = size
ranges._count_workers = lambda found: min(n_workers, len(found))

class Then(datetime.datetime):  # the time is part of a Markdown report
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2026, 1, 1, tzinfo=tz)

format_command.datetime = Then
for name, words in json.loads(sys.argv[4]).items():
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        code = run_command([*words, "-o", str(folder / (name if "." in name else f"{name}.out"))])
    (folder / f"{name}.told").write_text(f"{code}\\n" + told.getvalue().replace(str(folder), ""))
"""


def row(number: int, **more: Any) -> dict[str, Any]:
    passed = number % 3 > 0
    return {
        "id": f"prompt-{number % 90}" if number % 7 == 0 else f"prompt-é{number}",
        "input": ["first", f"turn {number}"] if number % 5 == 0 else f"Do {number}.",
        "output": f"done {number}\n" * (number % 4),
        "hint": "done",
        "trajectory": [{"type": "tool_call", "name": "Read", "status": "completed"}] * (number % 3),
        "metadata": {"category": f"kind {number % 4 if number < 60 else number % 9}"},
        "timing": {"start": 1.0, "end": 1.5 + number / 7, "total": 0.5 + number / 7},
        "toolErrors": number % 11 == 0,
        "agent": {"adapter": "a", "version": str(number // 70)},
        **({} if number < 20 else {"score": {"pass": passed, "score": number / 160}}),
        **({"failure": {"cause": "provider", "message": "m"}} if number % 17 == 0 else {}),
        **more,
    }


def trials(number: int) -> dict[str, Any]:
    entries = [
        {"trialNum": n, "output": f"done {n}", "trajectory": [], "duration": 10.5 * n + number,
         "pass": (number + n) % 3 > 0, "score": 0.1 * n}
        for n in (1, 2, 3)
    ]  # fmt: skip
    return {"id": f"p{number}", "input": "Do.", "k": 3, "trials": entries, "hint": "done"}


LINES = [json.dumps(row(n)) for n in range(150)]
GOOD = "".join(f"{line}\n" for line in LINES)
BAD = LINES.copy()
BAD[97] = '{"id": 7, "input": "x", "output": 7}'
TORN = GOOD + '{"id": "torn", "inp'
FILES = {
    "good": GOOD.encode(),
    "other": "".join(f"{json.dumps(row(n + 3))}\n" for n in range(0, 150, 2)).encode(),
    "mark": b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n\n").encode(),
    "unended": GOOD.rstrip("\n").encode(),
    "long": (json.dumps(row(500, padding="x" * 50_000)) + "\n" + GOOD).encode(),
    "half": GOOD.replace("done 77", "done \\ud800 77").encode(),
    "bad": "\n".join(BAD).encode(),
    "bytes": GOOD.replace("Do 131.", "Do \xff.").encode("latin-1"),
    "torn": TORN.encode(),
    "empty": b"",
    "blank": b"\n \n\n",
    "trials": "".join(f"{json.dumps(trials(n))}\n" for n in range(60)).encode(),
}


SPLIT_ELSEWHERE = ("good-", "mark-", "long-", "torn-", "trials-")
"""Files of which other rows begin a range when ranges have another length."""


def commands(name: str, path: Path) -> dict[str, list[str]]:
    other = path.with_name("trials.jsonl" if name == "trials" else "other.jsonl")
    # It reads as the other comparison does and draws many samples.
    statistical = ["compare", "-s", "statistical", f"a:{path}", f"b:{other}"]
    more = {f"{name}-statistical": statistical} if name in ("good", "trials") else {}
    return more | {
        f"{name}-summarize": ["summarize", str(path)],
        f"{name}-summarize-markdown": ["summarize", "--markdown", str(path)],
        f"{name}-jsonl": ["format", str(path)],
        f"{name}-csv": ["format", "-f", "csv", str(path)],
        f"{name}-markdown": ["format", "-f", "markdown", str(path)],
        f"{name}-sft": ["export", "sft", str(path)],
        f"{name}-kto": ["export", "kto", str(path), str(other), "--json"],
        f"{name}-table.csv": ["export", "table", str(path)],
        f"{name}-grade": ["grade", str(path), "-g", "contains", "-g", "regex:d.ne"],
        f"{name}-grade-threads": ["grade", str(path), "-g", "contains", "-g", "regex:d.ne", "-j2"],
        f"{name}-alike": ["grade", str(path), "-g", "contains:nowhere", "--progress"],
        f"{name}-compare": ["compare", f"a:{path}", f"b:{other}"],
    }


def test_one_core_and_several_write_the_same(tmp_path: Path):
    words: dict[str, list[str]] = {}
    for name, data in FILES.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
        words |= commands(name, tmp_path / f"{name}.jsonl")
    found = []
    by_length = {name: line for name, line in words.items() if name.startswith(SPLIT_ELSEWHERE)}
    for n_workers, size, lines in ((1, 700, words), (2, 700, words), (3, 3_000, by_length)):
        folder = tmp_path / str(n_workers)
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", RUN, str(n_workers), str(size), folder, json.dumps(lines)],
            check=True, timeout=100,
        )  # fmt: skip
        made = rb'"generatedAt": "[^"]*"'
        found.append({path.name: re.sub(made, b"", path.read_bytes()) for path in folder.iterdir()})
    one, several, fewer = found
    assert one.keys() == several.keys()
    assert fewer.keys() == {name for name in one if name.startswith(SPLIT_ELSEWHERE)}
    for name, content in (*several.items(), *fewer.items()):
        assert one[name] == content, name
    for name in FILES:
        for kind in ("out", "told"):
            graded = one.get(f"{name}-grade.{kind}", b"")
            assert graded.replace(b"-grade", b"") == one.get(
                f"{name}-grade-threads.{kind}", b""
            ).replace(b"-grade-threads", b""), name
    assert one["good-csv.out"].count(b"\n") == 151
    assert one["good-alike.told"].count(b"prompt-") == 150
    assert b'141 trials failed the grader "contains"' in one["good-alike.told"]
    assert b"bad.jsonl:98: " in one["bad-csv.told"]
    assert b"torn.jsonl:151: " in one["torn-jsonl.told"]
    assert one["good-table.csv"].count(b"\r\n") == 151
    assert "bad-csv.out" not in one
