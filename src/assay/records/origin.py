"""What a file or folder of results is, and which version of Assay wrote it."""

import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.experiment import RESOLVED, VERDICT
from assay.records.files import read_regular
from assay.records.rows import UNREADABLE, decode_json, read_lines
from assay.records.text import counted_noun

_GZIP = b"\x1f\x8b"
_META = "run-meta.json"
_NO_VERSION = "an Assay that did not write its version down"
_DEVELOPMENT = (
    "an Assay of 15 November 2026 or before",
    "an Assay of 16 to 18 November 2026",
    "an Assay of 18 or 19 November 2026",
)
"""Rows without an identity, with one that covers little, with one that has no version."""


class Origin(msgspec.Struct, kw_only=True):
    """What doctor says of a file."""

    kind: str
    n_rows: int = 0
    written_by: list[str] = []
    """Those that wrote its rows, the most frequent first."""

    @property
    def words(self) -> str:
        rows = f", {counted_noun(self.n_rows, 'row')}" if self.n_rows else ""
        return f"{self.kind}{rows}, written by {' and '.join(self.written_by) or 'nobody knows'}"


class _Row(msgspec.Struct, rename="camel"):
    """What tells rows apart."""

    input: Any = None
    trials: list[dict[str, Any]] | None = None
    trajectory: Any = None
    raw_lines: Any = None
    events: Any = None
    spec_hash: str = ""
    identity: dict[str, Any] | None = None


_ROWS = msgspec.json.Decoder(_Row)


def origin_of(path: Path) -> Origin:
    """Say what a file or folder is and who wrote it; refuse what Assay does not write."""
    if path.is_dir():
        return _of_folder(path)
    begin = read_regular(path, len(_GZIP))
    if begin == _GZIP:
        return Origin(kind="a tape", written_by=[_NO_VERSION])
    if zipfile.is_zipfile(path):
        return _of_bundle(path)
    return _of_rows(path)


def _of_folder(folder: Path) -> Origin:
    """The folder of a run of `assay ab` or `assay arc run`."""
    for name, kind in ((VERDICT, "an experiment"), (RESOLVED, "an experiment"), (_META, "a run")):
        if (folder / name).is_file():
            rows = [_of_rows(file) for file in sorted(folder.glob("*.jsonl"))]
            writers = Counter(one for row in rows for one in row.written_by)
            kind = "a run of ARC-AGI-3 games" if name == _META else kind
            n_rows = sum(row.n_rows for row in rows)
            return Origin(kind=kind, n_rows=n_rows, written_by=_most_first(writers))
    msg = f"{folder}: neither an experiment nor a run of games"
    raise InputError(msg, hint=f"name a folder with {VERDICT} or {_META}, or a file of results")


def _of_bundle(path: Path) -> Origin:
    with zipfile.ZipFile(path) as archive:
        if "manifest.json" not in archive.namelist():
            msg = f"{path}: a zip file without manifest.json"
            raise InputError(msg, hint="name a bundle of `assay evidence pack`")
        with archive.open("manifest.json") as file:
            manifest = decode_json(f"{path}: manifest.json", file.read(_MOST_BYTES))
    version = manifest.get("assay") if isinstance(manifest, dict) else None
    return Origin(kind="a bundle of evidence", written_by=[_named(version)])


_MOST_BYTES = 64_000_000


def _of_rows(path: Path) -> Origin:
    kinds, writers, n_rows = Counter[str](), Counter[str](), 0
    for place, line in read_lines(path):
        try:
            row = _ROWS.decode(line)
        except UNREADABLE as error:
            msg = f"{place}: not a row that Assay writes"
            raise InputError(msg, hint="name a file of results, a tape or a bundle") from error
        n_rows += 1
        kinds[_kind(row)] += 1
        writers[_writer(row)] += 1
    if not kinds:
        msg = f"{path}: no rows"
        raise InputError(msg)
    return Origin(
        kind=" and ".join(_most_first(kinds)), n_rows=n_rows, written_by=_most_first(writers)
    )


def _kind(row: _Row) -> str:
    if row.trials is not None:
        is_pooled = any("build" in entry for entry in row.trials)
        return "a pooled baseline" if is_pooled else "results of trials"
    if row.trajectory is not None:
        return "captures"
    if row.raw_lines is not None:
        return "raw output of a run"
    return "prompts" if row.input is not None else "rows of another kind"


def _writer(row: _Row) -> str:
    """Return who wrote a row, as far as it says so."""
    kind = _kind(row)
    if kind in ("prompts", "rows of another kind"):
        return "no command of Assay"
    identity = row.identity
    if identity is None:
        known = bool(row.spec_hash) or row.events is not None or kind == "a pooled baseline"
        return _DEVELOPMENT[0] if known else "another program, such as agent-eval-harness"
    if version := identity.get("assay"):
        return _named(version)
    return _DEVELOPMENT[2 if identity.get("covers") else 1]


def _named(version: object) -> str:
    return f"Assay {version}" if isinstance(version, str) else _NO_VERSION


def _most_first(counts: Counter[str]) -> list[str]:
    return [text for text, _ in counts.most_common()]
