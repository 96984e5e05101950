"""Verify a bundle in a process of its own, without network: see verify.py for what is verified."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError, PluginError
from assay.evidence.inside import BUNDLE, GRADE, KEYS, REFUSED, REPORT, REST, Refused
from assay.evidence.verify import GRADED, LEVELS, Level, Report
from assay.records.files import copy_stream, read_regular, temporary_folder
from assay.records.rows import UNREADABLE
from assay.run.sealed import run_sealed

TIMEOUT_S = 3600.0
_MOST_BYTES = 64 * 1024 * 1024
_NO_LEVEL = Level.of(GRADED, "it could not be checked", (), ["its process wrote no result"])


def verify_bundle(path: Path, keys: Sequence[Path] = (), timeout_s: float = TIMEOUT_S) -> Report:
    """Verify a bundle; keys are public ones, one of which must have signed it if any is given."""
    if not path.is_file():
        msg = f"{path}: {'is a folder' if path.is_dir() else 'no such file'}"
        raise InputError(msg, hint="give a bundle that `assay evidence pack` has written")
    public = [_key(key) for key in keys]
    report = _verified(path, public, REST, timeout_s)
    if report.digest:  # else it could not even be opened
        # What runs code of the bundle is believed at this one level only.
        graded = _verified(path, (), GRADE, timeout_s).levels
        report.levels += [one for one in graded if one.name == GRADED][:1] or [_NO_LEVEL]
        report.levels.sort(key=lambda level: LEVELS.index(level.name))
    report.bundle = str(path)
    return report


def _key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg) from error


def _read(path: Path, kind: Any) -> Any:
    """Read what a process wrote in which code of others may have run."""
    try:
        return msgspec.json.decode(read_regular(path, _MOST_BYTES), type=kind)
    except (OSError, *UNREADABLE) as error:
        msg = f"{path.name} of the process that verifies cannot be read: {error}"
        raise PluginError(msg) from error


def _verified(path: Path, keys: Sequence[bytes], what: str, timeout_s: float) -> Report:
    with temporary_folder("assay-verify-") as place:
        folder = Path(place)
        (folder / KEYS).mkdir()
        for number, key in enumerate(keys):
            (folder / KEYS / str(number)).write_bytes(key)
        with path.open("rb") as source, (folder / BUNDLE).open("wb") as copy:
            copy_stream(source, copy)
        done, open_to = run_sealed("assay.evidence.inside", folder, timeout_s, what)
        if os.path.lexists(folder / REFUSED):
            refused = _read(folder / REFUSED, Refused)
            msg = f"{path}: {refused.message}"
            raise InputError(msg, hint=refused.hint)
        if not os.path.lexists(folder / REPORT):
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no words"]
            why = "it took too long" if done.timed_out else said[-1]
            msg = f"{path}: the process that verifies it ended early: {why}"
            raise PluginError(msg)
        report: Report = _read(folder / REPORT, Report)
    report.open_to = open_to
    return report
