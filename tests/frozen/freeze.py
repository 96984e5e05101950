"""Record what the command line does, and check that it still does the same.

    python tests/frozen/freeze.py record [NAME...]     run the cases and store what they did
    python tests/frozen/freeze.py check [NAME...]      run them again and show every difference

A NAME is a case, a group, or a pattern such as "arc-*". The cases stand in cases.toml, their input
files in inputs/, what they did in expected/GROUP/CASE.txt. Only the program is run, never imported,
so the cases hold whatever its modules are called. Everything is stored as it is; a long line is
continued behind "|+", so that a difference shows the part that differs. To compare two programs:

    freeze.py record --expected /tmp/old --assay OLD/assay "compare-*"
    freeze.py record --expected /tmp/new --assay NEW/assay "compare-*"
    diff -r /tmp/old /tmp/new
"""

import argparse
import base64
import difflib
import fnmatch
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = (
    "sh", "cat", "cp", "echo", "env", "false", "git", "grep", "head", "ls", "mkdir", "mv", "printf",
    "rm", "sed", "sleep", "sort", "tail", "test", "touch", "tr", "true", "uname", "wc",
)  # fmt: skip
"""All that a case finds on its PATH besides assay and python: no agent of this machine."""
LONG_LINE = 300
"""How long a line may be before it is broken."""
INPUT_TIME_S = 1_790_000_000
"""When the input files were last changed: reports show it."""
STEP_TIMEOUT_S = 180


@dataclass(frozen=True, kw_only=True)
class Case:
    """Command lines that run one after the other in a folder of their own."""

    name: str
    group: str
    run: list[str]
    mask: list[str] = field(default_factory=list)
    """Names of MASKS, for values that differ from run to run."""
    sort: bool = False
    """Sort the rows of results.jsonl: several trials ran at once."""
    stdout: bool = True
    """False where stdout is wording: only whether it is empty counts."""
    stderr: bool = False
    """True where stderr is data."""
    ignore: list[str] = field(default_factory=list)
    """Patterns of files that are not recorded."""


def main() -> int:
    """Record or check the chosen cases; 0 if all agree."""
    args = _arguments()
    cases = chosen(load_cases(), args.names)
    if not cases:
        print("no such case", file=sys.stderr)
        return 2
    work = partial(_work, args=args)
    with ThreadPoolExecutor(args.jobs) as pool:
        differences = [text for text in pool.map(work, cases) if text]
    print("\n".join(differences), end="")
    verb = "recorded" if args.action == "record" else "checked"
    print(f"{len(cases)} cases {verb}, {len(differences)} differ")
    return 1 if differences else 0


def _arguments() -> argparse.Namespace:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("action", choices=["record", "check"])
    parser.add_argument("names", nargs="*", help="cases, groups or patterns; default: all")
    parser.add_argument("--assay", type=Path, default=_default_assay(), help="program to run")
    parser.add_argument(
        "--expected", type=Path, default=HERE / "expected", help="folder of results"
    )
    parser.add_argument("-j", "--jobs", type=int, default=2, help="cases at once; default 2")
    parser.add_argument("--times", action="store_true", help="print how long each case took")
    return parser.parse_intermixed_args()


def _default_assay() -> Path:
    here = ROOT / ".venv/bin/assay"
    return here if here.exists() else Path(sys.executable).parent / "assay"


def load_cases() -> list[Case]:
    """Read cases.toml: a table for each group, in it a list of cases."""
    groups = tomllib.loads((HERE / "cases.toml").read_text())
    return [Case(group=group, **case) for group, cases in groups.items() for case in cases]


def chosen(cases: list[Case], names: list[str]) -> list[Case]:
    """Give the cases that any of the names means; all of them without names."""
    if not names:
        return cases
    return [
        case
        for case in cases
        if any(name == case.group or fnmatch.fnmatchcase(case.name, name) for name in names)
    ]


def _work(case: Case, args: argparse.Namespace) -> str:
    """Run one case; give the difference to what is stored, or nothing."""
    began = time.monotonic()
    text = observe(case, args.assay.absolute())
    if args.times:
        print(f"{time.monotonic() - began:6.1f} s  {case.name}", file=sys.stderr)
    path = args.expected / case.group / f"{case.name}.txt"
    if args.action == "record":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return ""
    if not path.exists():
        return f"{case.name}: nothing is recorded in {path}\n"
    old = path.read_text().splitlines(keepends=True)
    lines = difflib.unified_diff(
        old, text.splitlines(keepends=True), f"{case.name} (recorded)", f"{case.name} (now)", n=2
    )
    return "".join(lines)


def observe(case: Case, assay: Path) -> str:
    """Run a case in a new folder and write down all that it did."""
    base = Path(tempfile.mkdtemp(prefix="frozen-")).resolve()
    try:
        folder = base / "w"
        shutil.copytree(HERE / "inputs", folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path in folder.rglob("*"):
            os.utime(path, (INPUT_TIME_S, INPUT_TIME_S))
        env = _environment(base, assay)
        parts = [_step(case, line, folder, env) for line in case.run]
        parts += _files(case, folder)
        names = _record_names(folder)
        parts = [(title, _RECORD.sub(partial(_named, names), text)) for title, text in parts]
        masked = Masker(case, base, assay).mask(parts)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return "".join(_written(title, text, case) for title, text in masked)


def _environment(base: Path, assay: Path) -> dict[str, str]:
    """Make a small environment: nothing of this user and nothing of this machine's agents."""
    bin_dir = base / "bin"
    for name in ("bin", "home", "tmp"):
        (base / name).mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (bin_dir / tool).symlink_to(found)
    python = assay.parent / "python"
    programs = {"assay": assay, "python": python, "python3": python}
    for name, program in programs.items():
        wrapper = bin_dir / name
        wrapper.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        wrapper.chmod(0o755)
    return {
        "PATH": str(bin_dir),
        "HOME": str(base / "home"),
        "TMPDIR": str(base / "tmp"),
        "LANG": "C.UTF-8",
        "COLUMNS": "160",
        "TERM": "dumb",
        "FROZEN": str(HERE),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


type Part = tuple[str, str]
"""A title, and the text below it."""


def _step(case: Case, line: str, folder: Path, env: dict[str, str]) -> Part:
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    out, err = (text.decode("utf-8", "backslashreplace") for text in (done.stdout, done.stderr))
    said = f"exit {done.returncode}, stdout {_size(out)}, stderr {_size(err)}"
    body = (out if case.stdout else "") + (f"--- stderr\n{err}" if case.stderr else "")
    return f"$ {line.strip()}\n{said}", body


def _size(text: str) -> str:
    return "not empty" if text else "empty"


def _files(case: Case, folder: Path) -> list[Part]:
    """Give the files that are new or changed."""
    found: list[Part] = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        ignored = any(fnmatch.fnmatchcase(name, pattern) for pattern in case.ignore)
        if path.is_dir() or ignored or "__pycache__" in name or "/.git/" in f"/{name}":
            continue
        data = path.read_bytes()
        before = HERE / "inputs" / name
        if before.exists() and before.read_bytes() == data:
            continue
        if data.startswith(b'{"type":"assay-raw",'):
            found += _streams(data, path.relative_to(folder).parent)
            continue
        text = data.decode("utf-8", "backslashreplace")
        found.append((f"file {name}", _page_data(text) if name.endswith(".html") else text))
    return found


_RECORD = re.compile(r"[\w.-]+/segment-[\w-]+@\d+")


def _named(names: dict[str, str], found: re.Match[str]) -> str:
    return names.get(found[0], found[0])


def _streams(segment: bytes, folder: Path) -> list[Part]:
    """Give the raw streams of a segment as if each trial had a folder: their order may differ."""
    found: list[Part] = []
    for offset, trial in _records(segment).items():
        line, _, rest = segment[offset:].partition(b"\n")
        for name, size in json.loads(line)["files"].items():
            data, rest = rest[:size], rest[size:]
            text = data.decode("utf-8", "backslashreplace")
            found.append((f"file {folder / trial / name}", text))
    return found


def _records(segment: bytes) -> dict[int, str]:
    """Give the offset of each record with the name of its trial; a repeated one gets a number."""
    found: dict[int, str] = {}
    offset = 0
    while offset < len(segment):
        line = segment[offset:].partition(b"\n")[0]
        header = json.loads(line)
        name, number = header["trial"], 1
        while (unused := name if number == 1 else f"{name}.{number}") in found.values():
            number += 1
        found[offset] = unused
        offset += len(line) + 1 + sum(header["files"].values()) + 1
    return found


def _record_names(folder: Path) -> dict[str, str]:
    """Give how rows name each record, and the folder that the trial would have."""
    return {
        f"{path.parent.name}/{path.name}@{offset}": f"{path.parent.name}/{trial}"
        for path in folder.rglob("segment-*")
        for offset, trial in _records(path.read_bytes()).items()
    }


def _page_data(page: str) -> str:
    """Reduce a page to its title and data, or to its text; scripts and styles may change."""
    blocks = re.findall(r'<script type="application/gzip" id="([^"]+)">([^<]*)', page)
    data = [f"{name}: {gzip.decompress(base64.b64decode(code)).decode()}" for name, code in blocks]
    rest = re.sub(r"(?s)<(script|style)\b[^>]*>.*?</\1>", r"<\1>", page)
    rest = re.sub(r"'sha256-[^']*'", "<hash>", rest)
    return "\n".join([rest, *data]) if not data else "\n".join([_title(rest), *data])


def _title(page: str) -> str:
    found = re.search(r"(?s)<title>(.*?)</title>", page)
    return found[1] if found else "no title"


NUMBER = r"-?\d[\d.]*(?:e[+-]?\d+)?"
TIME_KEYS = (
    "start|end|timestamp|duration|firstResponse|sessionCreation|startMs|endMs|t|ms|"
    "duration_seconds|duration_s|durationS|seconds"
)


def _grader_version(found: re.Match[str]) -> str:
    return found[0] if found["agent"] else f'"version":{found["space"]}"<grader>"'


MASKS: dict[str, list[tuple[str, str | Callable[[re.Match[str]], str]]]] = {
    "times": [
        (rf'"({TIME_KEYS})":( ?){NUMBER}', r'"\1":\2<time>'),
        (r'("timing":\{[^}]*?"total":)\d+', r"\1<time>"),
        (r'"(spawnedMs|startMs)": ?(?:\d+|<time>),', ""),
        (r"(\bat|Duration\*\*:|Duration</b>:) [\d.]+ (m?s|min)\b", r"\1 <time>"),
        (r'"rawTimes":\[[^\]]*\]', '"rawTimes":[<times>]'),
        # The columns "Seconds" and "Steps" of the effort that a level of a game took: steps belong
        # to the level that was played when they arrived.
        (r"( trial \d+ \|(?: +\d+ \|){2}) +[\d.]+ \| +\d+ \|", r"\1 <time> | <steps> |"),
        (
            r"( trial \d+</td>(?:<td[^>]*>\d+</td>){2}<td[^>]*>)[\d.]+(</td><td[^>]*>)\d+<",
            r"\1<time>\2<steps><",
        ),
        (r'("seconds": <time>,\s+"steps": )\d+', r"\1<steps>"),
    ],
    "dates": [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?", "<date>"),
        (r"\b20\d\d-\d\d-\d\d\b", "<day>"),
        (r"-20\d{6}-\d{6}\b", "-<date>"),
    ],
    "graders": [
        # The version of an agent stands behind its adapter; every other one is a grader's.
        (r'(?P<agent>"adapter": ?"[^"]*", ?)?"version":(?P<space> ?)"[^"]*"', _grader_version),
    ],
    "hex": [(r'"(id|token)":( ?)"[0-9a-f]{32}"', r'"\1":\2"<hex>"')],
    "descriptions": [(r'"description":( ?)"(?:[^"\\]|\\.)*"', r'"description":\1"<text>"')],
    "logs": [(r'"(\w*sha256|logSha256|\w{4}-v\d)":( ?)"[0-9a-f]{64}"', r'"\1":\2"<sha256>"')],
    "library": [
        (r'"key":"[0-9a-f]{10}"', '"key":"<key>"'),
        (rf'"changed":{NUMBER}', '"changed":<time>'),
        # Made in the background, soon after a folder was opened.
        (r'"summary":(?:null|\{(?:[^{}]|\{[^{}]*\})*\})', '"summary":<summary>'),
    ],
    "port": [
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (rf'"now":{NUMBER}', '"now":<time>'),  # of the viewer's clock
    ],
    "python": [(r"\b3\.\d+\.\d+\b", "<python>")],
}
IDENTITY = [
    # It covers the programs of this machine and the paths in schemas.
    (r'"specHash":( ?)"[0-9a-f]{16}(-[0-9a-f]{8})?"', r'"specHash":\1"<spec>"'),
    (r'"(program|agent|mcp|template|setup)":( ?)"[0-9a-f]{12}"', r'"\1":\2"<hash>"'),
    (r'"([^"]+(?:\.(?:py|sh|js)|bin/assay))":( ?)"[0-9a-f]{12}"', r'"\1":\2"<hash>"'),
    (r'("packages":\{"assay":)"[0-9.]+"', r'\1"<version>"'),
    (r'("covers":1,)"assay":"[0-9.]+",', r"\1"),
    (r"(workspaces/(?:template-)?)[0-9a-f]{16}\b", r"\1<run>"),
    (r"(?m)^[0-9a-f]{16}$", "<run>"),  # the note that a workspace is ours
    (r"(\.assay/\.run-)[0-9a-f]{16}\b", r"\1<run>"),
]
UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")


class Masker:
    """Replaces what differs from run to run or from machine to machine."""

    def __init__(self, case: Case, base: Path, assay: Path) -> None:
        self._rules = [(re.compile(p), by) for name in case.mask for p, by in MASKS[name]]
        venv = assay.parent.parent
        places = {base / "w": "<dir>", base: "<base>", venv: "<venv>", HERE: "<frozen>"}
        self._places = [(str(place), name) for place, name in places.items()]
        self._places += [(str(source), "<src>") for source in _sources(assay)]
        self._ids: dict[str, str] = {}
        self._version = _version(assay)

    def mask(self, parts: list[Part]) -> list[Part]:
        """Mask titles and texts; ids get numbers in the order in which the steps show them.

        An id that only files show has no number: the order of files depends on such ids.
        """
        for title, text in parts:
            for found in UUID.findall(f"{title}\n{text}"):
                name = f"<id-{len(self._ids) + 1}>" if title.startswith("$") else "<id>"
                self._ids.setdefault(found, name)
        steps = [part for part in parts if part[0].startswith("$")]
        files = [part for part in parts if not part[0].startswith("$")]
        done = [(self._masked(title), self._masked(text)) for title, text in files]
        return [(title, self._masked(text)) for title, text in steps] + sorted(done)

    def _masked(self, text: str) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        text = re.sub(r"<base>/tmp/[\w.-]+", "<base>/tmp/<name>", text)
        for pattern, by in IDENTITY:
            text = re.sub(pattern, by, text)
        text = text.replace(f"assay {self._version}", "assay <version>")
        text = text.replace(f'"version":"{self._version}"', '"version":"<version>"')
        for found, name in self._ids.items():
            text = text.replace(found, name)
            text = re.sub(rf"\b{found[:8]}\b", f"{name[:-1]}-short>", text)
        for pattern, by in self._rules:
            text = pattern.sub(by, text)
        return text


@cache
def _version(assay: Path) -> str:
    done = subprocess.run([assay, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def _sources(assay: Path) -> list[Path]:
    """Give the folder of the program's packages, wherever it is installed."""
    return [assay.parents[2] / "src", *assay.parent.parent.glob("lib/python*/site-packages")]


def _written(title: str, text: str, case: Case) -> str:
    lines = text.splitlines()
    if case.sort and title.endswith("results.jsonl"):
        lines.sort()
    ended = "" if not text or text.endswith("\n") else "(no line feed at the end)\n"
    return f"{title}\n" + "".join(f"| {_broken(line)}\n" for line in lines) + ended


def _broken(line: str) -> str:
    """Break a long line of JSON before its keys and items."""
    return re.sub(r'(?<=,)(?=["{\[])', "\n|+ ", line) if len(line) > LONG_LINE else line


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
