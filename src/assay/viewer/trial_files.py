"""What a trial left beside its row: raw streams, the log of its game; never outside its folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_RAW = 2 * 1024 * 1024
MOST_LOG = 64 * 1024 * 1024
_MOST_KEPT_FILES = 40
_LOG_HEAD = b'{"type": "header",'


def entry_of(row: dict[str, Any], number: int) -> dict[str, Any] | None:
    """Give the part of a row that one trial is."""
    if "trials" not in row:
        return row
    trials = row["trials"] if isinstance(row["trials"], list) else []
    return next((one for one in trials if one.get("trialNum") == number), None)


def game_log(base: Path, entry: dict[str, Any]) -> Path | None:
    """Find the event log of a game; evidence names it relative to the folder of the results."""
    metadata = entry.get("metadata")
    evidence = metadata.get("evidence") if isinstance(metadata, dict) else None
    name = evidence.get("log") if isinstance(evidence, dict) else None
    raw = _inside(base, entry.get("raw"))
    for folder in (base, raw):  # of a run that names no folder for logs, it is with the streams
        path = _inside(folder, name) if folder is not None else None
        if path is not None and _is_log(path):
            return path
    return None


def _is_log(path: Path) -> bool:
    """Say whether this is an event log; a row must not lead us to any other file of the folder."""
    if path.suffix != ".jsonl" or not path.is_file() or path.stat().st_size > MOST_LOG:
        return False
    with path.open("rb") as file:
        return file.read(len(_LOG_HEAD)).replace(b" ", b"").startswith(b'{"type":"header"')


def raw_files(base: Path, entry: dict[str, Any], most: int = MOST_RAW) -> list[dict[str, Any]]:
    """Read the raw streams of a trial, turn by turn; of long ones the beginning."""
    folder = _inside(base, entry.get("raw"))
    if folder is None or not folder.is_dir():
        return []
    return list(_read(folder, most))


def _read(folder: Path, most: int) -> Iterator[dict[str, Any]]:
    streams = [path for path in folder.iterdir() if path.suffix in (".out", ".err")]
    for path in sorted(streams, key=lambda one: (len(one.name), one.name))[:_MOST_KEPT_FILES]:
        if path.is_symlink() or not path.is_file() or not path.stat().st_size:
            continue
        with path.open("rb") as file:
            text = file.read(most).decode("utf-8", "replace")
        size = path.stat().st_size
        yield {"name": path.name, "size": size, "cut": size > most, "text": text}


def _inside(base: Path, name: Any) -> Path | None:
    if not isinstance(name, str) or not name or "\x00" in name:
        return None
    root = base.resolve()
    try:
        path = (root / name).resolve()
    except OSError:
        return None
    return path if path.is_relative_to(root) and path != root else None
