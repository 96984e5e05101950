"""Verify a bundle in a process of its own, without network: see verify.py for what is verified."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.errors import InputError, PluginError
from assay.evidence.inside import BUNDLE, GRADE, KEYS, REFUSED, REPORT, REST, Refused
from assay.evidence.verify import LEVELS, Report
from assay.records.files import copy_stream, temporary_folder
from assay.run.sealed import run_sealed

TIMEOUT_S = 3600.0


def verify_bundle(path: Path, keys: Sequence[Path] = (), timeout_s: float = TIMEOUT_S) -> Report:
    """Verify a bundle; keys are public ones, one of which must have signed it if any is given."""
    if not path.is_file():
        msg = f"{path}: {'is a folder' if path.is_dir() else 'no such file'}"
        raise InputError(msg, hint="give a bundle that `assay evidence pack` has written")
    public = [_key(key) for key in keys]
    report = _verified(path, public, REST, timeout_s)
    if report.digest:  # else it could not even be opened
        report.levels += _verified(path, (), GRADE, timeout_s).levels
        report.levels.sort(key=lambda level: LEVELS.index(level.name))
    report.bundle = str(path)
    return report


def _key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg) from error


def _verified(path: Path, keys: Sequence[bytes], what: str, timeout_s: float) -> Report:
    with temporary_folder("assay-verify-") as place:
        folder = Path(place)
        (folder / KEYS).mkdir()
        for number, key in enumerate(keys):
            (folder / KEYS / str(number)).write_bytes(key)
        with path.open("rb") as source, (folder / BUNDLE).open("wb") as copy:
            copy_stream(source, copy)
        done, open_to = run_sealed("assay.evidence.inside", folder, timeout_s, what)
        if (folder / REFUSED).is_file():
            refused = msgspec.json.decode((folder / REFUSED).read_bytes(), type=Refused)
            msg = f"{path}: {refused.message}"
            raise InputError(msg, hint=refused.hint)
        if not (folder / REPORT).is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no words"]
            why = "it took too long" if done.timed_out else said[-1]
            msg = f"{path}: the process that verifies it ended early: {why}"
            raise PluginError(msg)
        report: Report = msgspec.json.decode((folder / REPORT).read_bytes(), type=Report)
    report.open_to = open_to
    return report
