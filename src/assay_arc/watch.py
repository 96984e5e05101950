"""What players may not change: the runs that are finished, and the finished trials of this one.

A player that runs as the same user can write to any file of the store. While it plays, digests and
copies are where it cannot reach them: in this process, and in a file without a name.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from assay.records.files import nameless_file, remove_folder, temporary_place
from assay.records.private import write_private
from assay_arc import ArcProblem
from assay_arc.cards import DERIVED, card_difference, derive_card, read_card
from assay_arc.seal import SEAL, Seal, digests, file_sha256, key_path, sealing_key
from assay_arc.store import META, StoredRun, stored_run, write_bytes

type Signature = tuple[int, ...] | None


class FinishedRuns:
    """The sealed runs of a store, as they were before the first player started."""

    def __init__(self, runs: Iterable[StoredRun]) -> None:
        self._runs = {run.folder: run for run in runs if run.seal and not run.problem}
        self._seals = {folder: (folder / SEAL).read_bytes() for folder in self._runs}
        self._names = {
            folder: (SEAL, META, *run.seal.files) for folder, run in self._runs.items() if run.seal
        }
        self._seen = {folder: self._signatures(folder) for folder in self._runs}
        self._key = sealing_key(make=True)

    def find_changes(self) -> list[str]:
        """Say what was changed since the last look; a seal is put back as it was."""
        found: list[str] = []
        if self._key is not None and sealing_key() != self._key:
            write_private(key_path(), self._key)
            found.append("the key of all seals was changed, and put back")
        for folder in self._runs:
            now = self._signatures(folder)
            if now != self._seen[folder]:
                found += self._judge(folder, now)
                self._seen[folder] = self._signatures(folder)
        return found

    def _judge(self, folder: Path, now: Mapping[str, Signature]) -> list[str]:
        run = self._runs[folder]
        seal = run.seal
        of_run = f"of run {run.label}"
        if seal is None or not folder.is_dir():
            return [f"the folder {of_run} was removed"] if self._seen[folder][META] else []
        touched = [name for name in now if now[name] != self._seen[folder][name]]
        if SEAL in touched and file_content(folder / SEAL) != self._seals[folder]:
            if self._is_own_work(run, seal):
                return []
            write_bytes(folder / SEAL, self._seals[folder])
            changed = [f"{SEAL} {of_run} was changed, and put back"]
        else:
            changed = []
        known = seal.files | {META: file_sha256(folder / META) or ""}
        if META in touched and stored_run(folder, imported=run.imported).problem:
            known[META] = ""
        return changed + [
            f"{name} {of_run} was changed"
            for name in touched
            if name != SEAL and file_sha256(folder / name) != known[name]
        ]

    def _is_own_work(self, run: StoredRun, before: Seal) -> bool:
        """Whether Assay itself sealed a run again, in another process, from the same logs."""
        try:
            again = stored_run(run.folder, imported=run.imported)
            seal = again.seal
            if seal is None or _primary(seal) != _primary(before):
                return False
            card = read_card(again)
            derived = derive_card(again, card.formula)
            is_true = derived is not None and not card_difference(card, derived, exactly=True)
        except ArcProblem:
            return False
        if is_true:
            self._runs[run.folder] = again
            self._seals[run.folder] = file_content(run.folder / SEAL)
        return is_true

    def _signatures(self, folder: Path) -> dict[str, Signature]:
        return {name: _signature(folder / name) for name in self._names[folder]}


class FileCopies:
    """Files of a run as they were when their trial was over, copied to a file without a name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = nameless_file(temporary_place())
        self._parts: dict[str, list[tuple[int, int]]] = {}
        self._seen: dict[str, Signature] = {}
        self.digests: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def keep(self, *names: str) -> None:
        """Copy what was added to these files since they were last kept."""
        for name in names:
            data = file_content(self._folder / name)
            known = sum(size for _, size in self._parts.get(name, ()))
            place = os.lseek(self._fd, 0, os.SEEK_END)
            with os.fdopen(os.dup(self._fd), "wb") as file:
                file.write(data[known:])
            self._parts.setdefault(name, []).append((place, len(data) - known))
            self._seen[name] = _signature(self._folder / name)
            self.digests |= digests(self._folder, [name])

    def restore(self) -> list[str]:
        """Put files back that somebody changed; return their names."""
        changed = []
        for name, parts in self._parts.items():
            path = self._folder / name
            if _signature(path) == self._seen[name]:
                continue
            kept = b"".join(os.pread(self._fd, size, place) for place, size in parts)
            if file_content(path) != kept:
                _rewrite(path, kept)
                changed.append(name)
            self._seen[name] = _signature(path)
        return changed


def _rewrite(path: Path, data: bytes) -> None:
    """Write a file in place, because somebody may have it open for appending."""
    if path.is_symlink() or not path.is_file():
        remove_folder(str(path), missing_ok=True) if path.is_dir() else path.unlink(missing_ok=True)
        write_bytes(path, data)
        return
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def file_content(path: Path) -> bytes:
    """What a regular file holds; nothing of a link or where there is none."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""


def _primary(seal: Seal) -> dict[str, str]:
    return {name: sha256 for name, sha256 in seal.files.items() if name not in DERIVED}


def _signature(path: Path) -> Signature:
    """What changes when a file does; nobody but root can set the time of the last change."""
    try:
        stat = path.lstat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_mode
