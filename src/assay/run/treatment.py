"""Files that an experiment puts into workspaces: skills and instructions, those of a template too.

A grader that searches the workspace would find the treatment itself and take it for the agent's
work. So those that the agent has not changed are out of the workspace while graders look at it.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.records.files import read_regular, remove_folder
from assay.run.notes import NOTES

type AddedFiles = tuple[tuple[str, str], ...]
"""The path in the workspace and the digest of each file."""


def files_below(root: Path, places: Iterable[str]) -> AddedFiles:
    """Return the files at or below some places of a folder."""
    found: dict[str, str] = {}
    for place in places:
        inside = [Path(at, name) for at, _, names in os.walk(root / place) for name in names]
        for path in sorted([root / place, *inside]):
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(root).as_posix()] = _digest(path)
    return tuple(found.items())


@contextmanager
def without_treatment(folder: str | None, added: AddedFiles) -> Iterator[list[str]]:
    """Take files out of a workspace that are as they were put there; put them back at the end.

    One that the agent changed is its work, and stays.
    """
    if not folder or not added:
        yield []
        return
    root = Path(os.path.realpath(folder))
    hold = root.parent / NOTES / f".hidden-{os.urandom(8).hex()}"
    moved: list[tuple[Path, Path]] = []
    try:
        for number, (name, digest) in enumerate(added):
            path = root / name
            if _is_as_it_was(root, path, digest):
                hold.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):
                    path.rename(hold / str(number))
                    moved.append((path, hold / str(number)))
        yield [path.relative_to(root).as_posix() for path, _ in moved]
    finally:
        for path, held in moved:
            with suppress(OSError):  # a grader put something in its place, or removed the folder
                path.parent.mkdir(parents=True, exist_ok=True)
                if not os.path.lexists(path):
                    held.rename(path)
        if moved:
            remove_folder(str(hold), missing_ok=True)


def _is_as_it_was(root: Path, path: Path, digest: str) -> bool:
    # No link on the way: an agent may have put one there that leads to the user's own files.
    if os.path.realpath(path.parent) != str(path.parent) or not path.is_relative_to(root):
        return False
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode) and _digest(path) == digest
    return False


def _digest(path: Path) -> str:
    return hashlib.sha256(read_regular(path)).hexdigest()[:32]
