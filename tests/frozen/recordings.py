"""Write the recordings of one agent as rows of `assay run`, for `assay extract` to read.

python recordings.py AGENT: the streams in tests/recordings.tar.xz with their exit codes and stderr,
each turn alone and all turns of a conversation together, and the scenarios of
tests/recordings/AGENT-VERSION with the session files of the agent.
"""

import base64
import json
import re
import signal
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


def main(agent: str) -> int:
    """Print all rows."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(TESTS / "recordings.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        rows = [*_stream_rows(Path(folder, "recordings", agent)), *_scenario_rows(agent)]
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")
    return 0


def _stream_rows(folder: Path) -> list[dict[str, Any]]:
    index = _index(folder)
    paths = sorted(folder.glob("*.jsonl"))
    rows = [_row(f"stream/{path.stem}", [path], index, folder) for path in paths]
    names = sorted({path.stem[:-2] for path in paths if re.search(r"\.\d$", path.stem)})
    for name in names:
        turns = sorted(folder.glob(f"{name}.[0-9].jsonl"))
        rows.append(_row(f"conversation/{name}", turns, index, folder))
    return rows


def _index(folder: Path) -> dict[str, list[str]]:
    path = folder / "INDEX.tsv"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split("\t")[0]: line.split("\t") for line in lines}


def _row(name: str, paths: list[Path], index: dict[str, list[str]], folder: Path) -> dict[str, Any]:
    ends, lines = [], []
    for path in paths:
        own = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        lines += own
        ends.append(_end(path, index) | {"lines": len(own)})
    row = _raw(name, lines, ends, _stderr(paths[-1]))
    sessions = _sessions(folder, name.partition("/")[2])
    if sessions:
        times = [t for path in sessions for t in _times(path.read_text())]
        start, end = round(min(times)) - 100, round(max(times)) + 100
        row["timing"] = {"start": start, "end": end, "total": end - start}
        row["files"] = {path.name: _packed(path.read_bytes()) for path in sessions}
    return row


def _sessions(folder: Path, name: str) -> list[Path]:
    found = [*folder.glob(f"sessions/{name}.jsonl"), *folder.glob(f"sessions/{name}.rollout-*")]
    return sorted(found)


def _times(text: str) -> list[float]:
    found = re.findall(r'"timestamp":"([^"]+)"', text)
    return [datetime.fromisoformat(moment).timestamp() * 1000 for moment in found]


def _end(path: Path, index: dict[str, list[str]]) -> dict[str, Any]:
    note = path.with_suffix(".rc")
    row = index.get(path.stem, [])
    code = int(note.read_text()) if note.exists() else int(row[1])
    end: dict[str, Any] = {"endMs": 1000, "exitCode": code}
    if code < 0:
        end |= {"exitCode": 128 - code, "signal": signal.Signals(-code).name}
    if not note.exists() and row[4]:
        end["timedOut"] = True
    return end


def _stderr(path: Path) -> str:
    places = (path.with_suffix(".stderr"), path.with_suffix(".stderr.txt"))
    found = next((place for place in places if place.exists()), None)
    return found.read_text(errors="replace").strip()[-4096:] if found else ""


def _scenario_rows(agent: str) -> list[dict[str, Any]]:
    notes = sorted((TESTS / "recordings").glob(f"{agent}-[0-9]*/*/end.json"))
    return [_scenario(note.parent, json.loads(note.read_text())) for note in notes]


def _scenario(folder: Path, note: dict[str, Any]) -> dict[str, Any]:
    ends, lines = [], []
    for path in sorted(folder.glob("*.out")):
        own = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        lines += own
        ends.append({"endMs": 1000, "exitCode": 0, "lines": len(own)})
    ends[-1] |= {key: value for key, value in note["end"].items() if value is not None}
    row = _raw(f"scenario/{folder.name}", lines, ends, note["stderr"])
    start, end = note["startMs"], note["endMs"]
    row["timing"] = {"start": start, "end": end, "total": end - start}
    if files := _kept(folder):
        row["files"] = files
    return row


def _kept(folder: Path) -> dict[str, str]:
    """Pack the session files of a scenario; OpenCode's database is kept as SQL."""
    kept = ".local/share/opencode"
    files = {}
    if (folder / "opencode.sql").exists():
        with tempfile.TemporaryDirectory() as scratch:
            database = Path(scratch) / "opencode.db"
            with closing(sqlite3.connect(database)) as connection:
                connection.executescript((folder / "opencode.sql").read_text())
            files[f"{kept}/opencode.db"] = _packed(database.read_bytes())
    if (folder / "opencode.log").exists():
        files[f"{kept}/log/opencode.log"] = _packed((folder / "opencode.log").read_bytes())
    if (folder / "files").is_dir():
        found = sorted(path for path in (folder / "files").rglob("*") if path.is_file())
        base = folder / "files"
        files |= {str(path.relative_to(base)): _packed(path.read_bytes()) for path in found}
    return files


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _raw(name: str, lines: list[str], ends: list[dict[str, Any]], stderr: str) -> dict[str, Any]:
    return {
        "id": name,
        "input": "do the task" if len(ends) == 1 else ["do the task"] * len(ends),
        "rawLines": lines,
        "timing": {"start": 0, "end": 1000, "total": 1000},
        "rawTimes": list(range(len(lines))),
        "turns": ends,
        "stderr": stderr,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
