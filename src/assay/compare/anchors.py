"""Anchors: copies of a baseline, at a release, that later builds of main do not move.

Ten merged losses of two points each pass a gate against a baseline that follows main. Against an
anchor they add up. Anchors of baseline.jsonl are in the folder baseline.anchors, one file each.
"""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.compare.baseline import describe_baseline, timestamp
from assay.errors import InputError, OutputError
from assay.records.journal import Journal
from assay.records.rows import open_rows

LATEST = "latest"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class Anchor(msgspec.Struct, frozen=True):
    """What every row of an anchor says of it."""

    name: str
    date: str
    """When it was set, as 2026-11-16T05:40:00Z."""


class _RowView(msgspec.Struct):
    anchor: Anchor | None = None


_ROWS = msgspec.json.Decoder(_RowView)
_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])


def set_anchor(baseline: Path, name: str, *, replace: bool = False) -> Path:
    """Keep the baseline as it is now under a name; return where."""
    if not _NAME.fullmatch(name) or name == LATEST:
        msg = f"{name!r} is not a name for an anchor"
        raise InputError(msg, hint="use letters, digits, dots and dashes, as in v1.4")
    about = describe_baseline(baseline)
    if about.drift.found:
        msg = f"{baseline} is no anchor: {about.drift_words}"
        raise InputError(msg, hint="keep the builds that are alike with `assay baseline prune`")
    path = _folder(baseline) / f"{name}.jsonl"
    if path.exists() and not replace:
        msg = f"{path}: there is an anchor of this name"
        raise OutputError(msg, hint="use another name, or --replace")
    path.parent.mkdir(exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    with Journal(path, "resume", guarded=False) as journal:
        journal.rewrite(_anchored(baseline, Anchor(name, timestamp(now))))
    return path


def _anchored(baseline: Path, anchor: Anchor) -> Iterator[bytes]:
    with open_rows(baseline) as file:
        for _, line in file.placed_lines():
            yield msgspec.json.encode({**_PIECES.decode(line), "anchor": anchor})


def anchors_of(baseline: Path) -> list[tuple[Anchor, Path]]:
    """Return the anchors of a baseline, the oldest first."""
    found = []
    for path in sorted(_folder(baseline).glob("*.jsonl")):
        with open_rows(path) as file:
            row = next(iter(file.rows(_ROWS)), None)
        if row is not None and row.anchor is not None:
            found.append((row.anchor, path))
    return sorted(found, key=lambda one: one[0].date)


def find_anchor(baseline: Path, name: str) -> Path:
    """Return the file of an anchor: of a name, the newest, or a file."""
    known = anchors_of(baseline)
    if name == LATEST and known:
        return known[-1][1]
    for anchor, path in known:
        if anchor.name == name:
            return path
    if name != LATEST and Path(name).is_file():
        return Path(name)
    names = ", ".join(anchor.name for anchor, _ in known)
    what = "no anchor" if name == LATEST else f"no anchor {name!r}"
    msg = f"{baseline} has {what}{f'; it has {names}' if names else ''}"
    raise InputError(msg, hint="set one with `assay baseline anchor NAME`")


def _folder(baseline: Path) -> Path:
    return baseline.with_name(f"{baseline.stem}.anchors")
