"""Times the report of 1,000 trials, and the viewer on a file of a million rows.

    python -m benchmarks.view [ROWS] [FOLDER]       1,000,000 rows, about 2.5 GB, in /tmp by default

The big file is made once and kept in FOLDER, out of git. Prints one JSON object.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from scripts import sample_runs
from tests.viewer.browser import MissingBrowser, chromium

ASSAY = [sys.executable, "-m", "assay"]


def main() -> None:
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.gettempdir(), "assay-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    told = {"report of 1,000 trials": _report(folder), **_viewer(folder, n_rows)}
    print(json.dumps(told, indent=2))


def _report(folder: Path) -> dict[str, Any]:
    files = [folder / "a.jsonl", folder / "b.jsonl"]
    for n, file in enumerate(files):
        sample_runs.write(file, sample_runs.rows(500, seed=n, rate=0.5 + n / 5, agent=file.stem))
    page = folder / "report.html"
    began_s = time.monotonic()
    subprocess.run([*ASSAY, "report", *files, "-o", page, "--overwrite", "-q"], check=True)
    seconds = time.monotonic() - began_s
    return {
        "seconds": round(seconds, 2),
        "browser": _paint(f"file://{page}"),
        "input MB": round(sum(f.stat().st_size for f in files) / 1e6, 2),
        "page MB": round(page.stat().st_size / 1e6, 2),
    }


def _viewer(folder: Path, n_rows: int) -> dict[str, Any]:
    big = folder / f"rows-{n_rows}.jsonl"
    if not big.exists():
        _make(big, n_rows)
    told: dict[str, Any] = {"rows": n_rows, "GB": round(big.stat().st_size / 1e9, 2)}
    shutil.rmtree(big.with_name(f"{big.name}.assay-index"), ignore_errors=True)
    for name in ("first open (indexing)", "open again"):
        told[name] = _open(big, n_rows, fresh=name == "open again")
    return told


def _open(big: Path, n_rows: int, *, fresh: bool) -> dict[str, Any]:
    began_s = time.monotonic()
    process = subprocess.Popen([*ASSAY, "view", str(big)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        listening_s = time.monotonic() - began_s
        _ask(address, "")
        _ask(address, "api/overview")
        shown_s = time.monotonic() - began_s
        first = _timed(address, "api/prompts?limit=100")
        trials = [
            _timed(address, f"api/row?run={big.stem}&id=prompt-{n * 977 % n_rows}")
            for n in range(200)
        ]
        told = {
            "listening s": round(listening_s, 2),
            "overview shown s": round(shown_s, 2),
            "first table ms": round(first, 1),
            "trial ms, median": round(sorted(trials)[100], 2),
            "trial ms, slowest of 200": round(max(trials), 2),
            "memory MB after trials": _memory(process.pid, "VmRSS"),
        }
        if fresh:
            told["browser"] = _paint(address)
        told["search ms"] = round(_timed(address, "api/prompts?q=prompt-77777"), 1)
        told |= _search(address, n_rows)
        told["sort by time ms"] = round(_timed(address, "api/prompts?sort=time&down=1"), 1)
        told["memory MB at the end"] = _memory(process.pid, "VmRSS")
        told["memory MB at most"] = _memory(process.pid, "VmHWM")
    finally:
        process.terminate()
        process.wait()
    return told


QUERIES = ("77777", "tool:Bash pytest", "failed:true cost>0.1", '"total cannot be"', "exit>100")


def _search(address: str, n_rows: int) -> dict[str, Any]:
    """Wait until all words are indexed, then time some queries."""
    began_s = time.monotonic()
    while json.loads(_ask(address, "api/search?q="))["indexed"] < n_rows:
        time.sleep(0.5)
    told: dict[str, Any] = {"words indexed after s": round(time.monotonic() - began_s, 1)}
    for query in QUERIES:
        path = f"api/search?q={urllib.parse.quote(query)}"
        told[f"search {query}, ms"] = round(_timed(address, path), 1)
    return told


def _paint(address: str) -> dict[str, float] | str:
    """Open an address in a real browser: when something, and when everything, was painted."""
    try:
        with chromium() as browser:
            browser.draw(address)
            first = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            drawn = "return performance.getEntriesByName('drawn')[0]?.startTime"
            return {
                "first paint ms": round(browser.wait(first)),
                "page drawn ms": round(browser.wait(drawn)),
            }
    except MissingBrowser as error:
        return str(error)


def _timed(address: str, path: str) -> float:
    began_s = time.monotonic()
    _ask(address, path)
    return (time.monotonic() - began_s) * 1000


def _ask(address: str, path: str) -> bytes:
    with urllib.request.urlopen(address + path) as answer:
        return answer.read()


def _memory(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def _make(path: Path, n_rows: int) -> None:
    """Write rows of about 2.5 kB from a few hundred different ones."""
    rows = list(sample_runs.rows(400, seed=5, rate=0.6, agent="big"))
    for row in rows:  # some 2.5 kB each
        row["trajectory"] = row["trajectory"][:8]
    bodies = [json.dumps(row) for row in rows]
    padding = "x" * max(0, 2480 - sum(map(len, bodies)) // len(bodies))
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8", buffering=1 << 20) as file:
        for n in range(n_rows):
            body = bodies[n % len(bodies)]
            rest = body[body.index(",") :]
            file.write(f'{{"id": "prompt-{n}"{rest[:-1]}, "padding": "{padding}"}}\n')
    os.replace(fresh, path)  # noqa: PTH105


if __name__ == "__main__":
    main()
