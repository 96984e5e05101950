"""The files of a JavaScript or TypeScript grader as they were before the first agent started.

These are its module, the modules that it imports by a relative path, and the settings that decide
how they are read (package.json and the like). As long as all of them are unchanged the module is
run where it is. Otherwise a copy is run, in a folder of our own that has the same folders in it, so
that relative imports find the other copies, and packages are found through links to node_modules.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from assay.errors import AssayError, Interrupted
from assay.graders.frozen import FrozenFile, Stamp, entries, stamp
from assay.records.files import temporary_folder

SUFFIXES = (".ts", ".mts", ".js", ".mjs", ".cjs")
_CODE = (*SUFFIXES, ".cts", ".tsx", ".jsx")
_SETTINGS = ("package.json", "tsconfig.json", "jsconfig.json")
_IMPORT = re.compile(
    rb"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire(?:\.resolve)?\s*\(\s*)(["'`])(\.{1,2}/[^"'`\n]*)\1"""
)
_MOST_FILES = 500
_folders: list[AbstractContextManager[str]] = []
"""Of copies that were run; they are removed when the process ends."""
type Where = Callable[[Path], str]
"""Tells where a file is that is what it was."""


class FrozenModules:
    """A module with all that it is made of; others are files that are kept with it."""

    def __init__(self, path: Path, others: Iterable[Path] = ()) -> None:
        self.main = FrozenFile(path)
        self.modules = [self.main, *map(FrozenFile, _imported(self.main))]
        folders = {folder for module in self.modules for folder in module.path.parents}
        settings = [folder / name for folder in sorted(folders) for name in _SETTINGS]
        settings += [other for other in others if other not in settings]
        self._files = [*self.modules, *(FrozenFile(file) for file in settings if stamp(file))]
        self._absent = [file for file in settings if not stamp(file)]
        self._lock = threading.Lock()
        self._root: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """All files that are kept."""
        return [file.path for file in self._files]

    def had(self, path: Path) -> bool:
        """Whether one of the other files was there at the start."""
        return any(file.path == path for file in self._files)

    def use[T](self, function: Callable[[Where], T]) -> T:
        """Call a function with what tells where the files are that are what they were."""
        if not self._changed():
            before = self._stamps()
            try:
                result = function(str)
            except Interrupted:
                raise
            except AssayError:
                if self._stamps() == before:
                    raise
            else:
                if self._stamps() == before:
                    return result
        root = self._copy()
        return function(lambda path: str(root / path.relative_to("/")))

    def _changed(self) -> bool:
        return any(map(stamp, self._absent)) or any(f.changed(mode=False) for f in self._files)

    def _stamps(self) -> list[Stamp | None]:
        return [stamp(path) for path in (*(file.path for file in self._files), *self._absent)]

    def _copy(self) -> Path:
        """Return the folder that stands for the root of the file system."""
        with self._lock:
            if self._root is None:
                folder = temporary_folder("assay-grader-")
                _folders.append(folder)
                self._root = Path(folder.__enter__())
                for name in _SETTINGS[:2]:  # those of the folders above do not count
                    (self._root / name).write_text("{}")
            for file in self._files:
                copy = self._root / file.path.relative_to("/")
                if file.differs_at(copy) or not copy.is_file():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.unlink(missing_ok=True)
                    copy.write_bytes(file.content)
            _link_others(self._root, {module.path.parent for module in self.modules}, self._absent)
            return self._root


def _link_others(root: Path, folders: set[Path], absent: Sequence[Path]) -> None:
    """Link what lies beside the copies, and the packages of all folders above."""
    left_out = set(absent)
    for folder in folders:
        for entry in entries(folder):
            link = root / entry.path.lstrip("/")
            if Path(entry.path) not in left_out and not (link.exists() or link.is_symlink()):
                link.symlink_to(entry.path)
    for above in {above for folder in folders for above in folder.parents}:
        packages, link = above / "node_modules", root / str(above).lstrip("/") / "node_modules"
        if packages.is_dir() and not link.is_symlink():
            link.symlink_to(packages)


def _imported(main: FrozenFile) -> list[Path]:
    """List the modules that a module imports by a relative path, and those that they import."""
    found: dict[Path, None] = {main.path: None}
    texts = [(main.path, main.content)]
    while texts and len(found) < _MOST_FILES:
        path, text = texts.pop()
        for module in _relative(path.parent, text):
            if module not in found:
                found[module] = None
                if module.suffix in _CODE:
                    texts.append((module, module.read_bytes()))
    return list(found)[1:]


def _relative(folder: Path, text: bytes) -> Iterator[Path]:
    for match in _IMPORT.finditer(text):
        name = match[2].decode("utf-8", "replace").partition("?")[0]
        base = folder / name
        # TypeScript's way: the name that the compiled file would have.
        stems = [base.with_suffix("")] if base.suffix in (".js", ".mjs", ".cjs", ".jsx") else []
        for stem in (base, *stems, base / "index"):
            for suffix in ("", *_CODE, ".json"):
                file = stem.with_name(f"{stem.name}{suffix}")
                if stamp(file):
                    yield file.resolve()
