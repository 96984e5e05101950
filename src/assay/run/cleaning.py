"""What earlier runs have left on disk: workspaces, copies of templates, caches.

Only what Assay knows it made is listed: folders with a note, or with a name of ours in a place that
is this user's alone. What a run that goes on uses is never listed.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from assay.errors import OutputError
from assay.records.files import abandoned_folders, remove_folder
from assay.records.private import cache_root
from assay.run.images import BuiltImage, built_images
from assay.run.notes import Note, notes_in, remove_empty, run_folders
from assay.run.workspace import private_root

WORKSPACES, TEMPLATES, CACHES = "workspaces", "copies of templates", "caches"
IMAGES = "images of tasks"
TEMPORARY = "temporary folders of killed runs"
_TEMPLATE = re.compile(r"template-[0-9a-f]{16}(-\d+)?")
_CACHES = ("search", "runs", "index", "verdicts")
"""Folders of the cache whose files the viewer makes again when it needs them, and the verdicts of
models by their URL, which are asked for again."""


class Leftover(NamedTuple):
    """Something that can be removed."""

    kind: str
    path: Path
    made_s: float
    note: Note | None = None
    image: BuiltImage | None = None
    """The path is then that of the file that tells of it."""

    @property
    def n_bytes(self) -> int:
        """What it takes on disk."""
        if self.image is not None:
            return self.image.n_bytes
        total = 0
        for place, _, files in os.walk(self.path):
            for path in (place, *(f"{place}/{name}" for name in files)):
                with contextlib.suppress(OSError):
                    total += os.lstat(path).st_blocks * 512
        return total or _blocks(self.path)

    def remove(self) -> bool:
        """Remove it; return whether it is gone."""
        if self.image is not None:
            return self.image.remove()
        if self.note is not None:
            self.note.remove()
            remove_empty(self.path.parent)
        else:
            with contextlib.suppress(OSError):
                remove_folder(str(self.path), missing_ok=True)
        return not os.path.lexists(self.path)


def leftovers(more: Iterable[Path] = ()) -> Iterator[Leftover]:
    """Yield what earlier runs have left; more are folders that were given as --workspace-dir."""
    with contextlib.suppress(OutputError):  # there is no place for workspaces
        root = private_root()
        for parent in run_folders(root):
            yield from _workspaces(parent)
        yield from _templates(root)
    for folder in more:
        yield from _workspaces(folder.resolve())
    for path in list(abandoned_folders()):
        with contextlib.suppress(OSError):
            yield Leftover(TEMPORARY, path, path.lstat().st_mtime)
    for image in built_images():
        yield Leftover(IMAGES, image.note, image.made_s, image=image)
    for name in _CACHES:
        with contextlib.suppress(OSError):
            for path in sorted((cache_root() / name).iterdir()):
                about = path.lstat()
                if stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode):
                    yield Leftover(CACHES, path, about.st_mtime)


def _workspaces(parent: Path) -> Iterator[Leftover]:
    for note in notes_in(parent):
        if not note.is_live and not _TEMPLATE.fullmatch(note.folder.name):
            yield Leftover(WORKSPACES, note.folder, note.made_s, note)


def _templates(root: Path) -> Iterator[Leftover]:
    """Yield the copies of templates that killed runs have left."""
    noted = {note.folder: note for note in notes_in(root)}
    for path in sorted(root.iterdir()):
        if _TEMPLATE.fullmatch(path.name) and not path.is_symlink():
            note = noted.get(path)
            if note is None or not note.is_live:
                yield Leftover(TEMPLATES, path, path.lstat().st_mtime, note)


def _blocks(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.lstat().st_blocks * 512
    return 0
