"""Files of graders as they were before the first agent started.

An agent may work in the folder where its grader is, and may rewrite every file that the operator
may write. So a grader's files are read once, when the run is planned. What is run later is these
files if they are still the same, before the run and after it, or else copies in a folder of ours.

Always running copies would not do: a grader may keep a cache beside itself, and may have to judge
what the agent has written there. Python code is not started but loaded (python_file.py).
"""

import ast
import hashlib
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from assay.errors import AssayError, InputError, Interrupted, PluginError
from assay.records.files import temporary_folder
from assay.records.once import made_once
from assay.records.variable_names import decides_nothing, is_secret_name

type Stamp = tuple[int, ...]
"""What the file system says about a file. The time of the last change cannot be set back."""
CHANGED = "changed during the run"
_MOST_FILES = 500
_MOST_ENTRIES = 5000
_MOST_BYTES = 64 * 1024 * 1024
_MOST_TEXT = 256 * 1024
"""How many files beside a program are noted, of how many in a folder, how much of them is hashed,
and how much of a program's text is searched for their names."""
_SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_IMPORTED = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts")
"""Files that a program may name without this part."""
_SCRIPTS = (*_IMPORTED, ".sh", ".rb", ".pl")
_OF_RUNS = (".jsonl", ".html", ".md", ".log")
"""Files that runs write, and which a comment in a grader may name."""
_folders: list[AbstractContextManager[str]] = []
"""Of copies that were run; they are removed when the process ends."""


def imported_sources(path: Path, content: bytes) -> list[bytes]:
    """Return the modules beside a Python file that it imports, and those that they import.

    They are part of the grader: its verdicts change with them.
    """
    top, found = path.parent, {path: content}
    left = [path]
    while left and len(found) < _MOST_FILES:
        file = left.pop()
        for name in _imported_names(found[file], file.parent.relative_to(top).parts):
            base = top.joinpath(*name)
            for module in (base.with_suffix(".py"), base / "__init__.py"):
                if module not in found and stamp(module):
                    found[module] = module.read_bytes()
                    left.append(module)
    modules = [found[module] for module in sorted(found) if module != path]
    return [*modules, *named_data(top, found.values()), *named_variables(found.values())]


def named_data(folder: Path, texts: Iterable[bytes]) -> list[bytes]:
    """Return the data beside a grader that its code names in full, as in "words.json"."""
    whole, found = b"\n".join(texts), list[bytes]()
    for entry in entries(folder):
        if entry.is_dir() and entry.name not in _SKIPPED:
            found += _named_folder(entry, whole)
            continue
        name = os.fsencode(entry.name)
        suffix = Path(entry.name).suffix
        is_data = suffix and suffix not in (*_IMPORTED, *_OF_RUNS)
        if is_data and re.search(rb"(?<![\w.-])" + re.escape(name) + rb"(?![\w-])", whole):
            about = stamp(entry.path)
            if about and about[3] <= _MOST_BYTES and not _is_written(name, whole):
                found.append(Path(entry.path).read_bytes())
    return found


def _named_folder(entry: "os.DirEntry[str]", text: bytes) -> list[bytes]:
    """Return what is in a folder beside a grader that its code names in quotation marks."""
    name = os.fsencode(entry.name)
    if not re.search(rb"""["'`/]""" + re.escape(name) + rb"""["'`/]""", text):
        return []
    if _is_written(name, text):
        return []
    files = [Path(file) for file in _all_files(entry.path)]
    kept = [file for file in sorted(files) if file.suffix not in _OF_RUNS and stamp(file)]
    return [file.read_bytes() for file in kept if file.stat().st_size <= _MOST_TEXT]


def named_variables(texts: Iterable[bytes]) -> list[bytes]:
    """Return the values of variables that a grader reads by name, without those of secrets."""
    whole = b"\n".join(texts)
    names = {name.decode() for found in _READS.findall(whole) for name in found if name}
    return [
        f"{name}={os.environ[name]}".encode("utf-8", "surrogateescape")
        for name in sorted(names & os.environ.keys())
        if not is_secret_name(name) and not decides_nothing(name)
    ]


_READS = re.compile(
    rb"""environ(?:\.get)?[\[(]\s*["'](\w+)|getenv\(\s*["'](\w+)|\benv\.(\w+)|\benv\[["'](\w+)|\$\{?([A-Za-z_]\w*)"""
)
_WRITES = re.compile(
    rb"""\bopen\([^)\n]*["'][rbt]*[wax+][rbt+]*["']|\bwrite_(?:text|bytes)\(|\bFileHandler\("""
    rb"""|\b(?:write|append)File|\bcreateWriteStream\(|>>"""
)


def _is_written(name: bytes, text: bytes) -> bool:
    """Whether code seems to write a file, by its name or by a variable that holds it.

    Such a file is a log or a cache of the grader: it changes with each verdict.
    """
    holders = re.findall(rb"(\w+)\s*=[^\n=]*" + re.escape(name), text)
    wanted = re.compile(rb"|".join((re.escape(name), *(rb"\b%b\b" % word for word in holders))))
    return any(_WRITES.search(line) and wanted.search(line) for line in text.splitlines())


def _imported_names(content: bytes, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names that Python code may import, from the folder of its main file."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            name = (*above, *(node.module.split(".") if node.module else ()))
            yield from (name, *((*name, alias.name) for alias in node.names))


def program_env(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a grader's program: no bytecode beside its modules is used.

    Python takes bytecode for that of a module if it names the module's size and time.
    """
    return {"PYTHONPYCACHEPREFIX": _bytecode_folder(), **os.environ, **(more or {})}


_GIT = re.compile(rb"\bgit\b", re.IGNORECASE)


def mentions_git(*texts: bytes, files: Iterable[Path] = ()) -> bool:
    """Whether code may ask git: the repository for it takes some time before each trial."""
    return any(map(_GIT.search, texts)) or any(
        _GIT.search(path.read_bytes()) for path in files if stamp(path)
    )


@made_once
def _bytecode_folder() -> str:
    """Make a folder in which Python keeps the bytecode of all programs of this run."""
    folder = temporary_folder("assay-bytecode-")
    _folders.append(folder)
    return folder.__enter__()


def stamp(path: Path | str) -> Stamp | None:
    """Return the stamp of a regular file; None when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - called for each verdict, and faster so
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    times = found.st_mtime_ns, found.st_ctime_ns
    return (found.st_dev, found.st_ino, found.st_mode, found.st_size, *times)


def digest(path: Path | str) -> str:
    """Hash a file; empty when it cannot be read or is very large."""
    try:
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                return ""
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def shown(path: Path | str) -> str:
    """Name a file as people do: from the current folder if it is in there."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def refuse(path: Path | str) -> PluginError:
    """Return the error of a verdict that was given by a file which changed."""
    msg = f"{shown(path)} {CHANGED}, and the grader uses it"
    return PluginError(msg, hint="keep what a grader reads out of the agent's reach")


def is_own(path: str, folder: str, cwd: str | None) -> bool:
    """Whether a file in the grader's folder is the grader's, and not the agent's work.

    A grader may lie in the very folder where the agent works; what it reads there may be what it
    is to judge.
    """
    if not _is_below(path, folder):
        return False
    return not (cwd and (cwd == folder or _is_below(cwd, folder)) and _is_below(path, cwd))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


class FrozenFile:
    """A program or a script as it was read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.content = path.read_bytes()
            self.mode = path.stat().st_mode
        except OSError as error:
            msg = f"Grader not found: {path}: {error.strerror}"
            raise InputError(msg) from error
        self._checked: tuple[Stamp | None, bool] = (stamp(path), True)
        self._beside: dict[str, tuple[Stamp, str]] = {}
        self._names: frozenset[str] | None = None

    def used(self) -> list[Path]:
        """Return this file and those in its folder that it names."""
        named = _named_files(self.content, self.path)
        return [self.path, *(path for path in named if stamp(path) is not None)]

    def changed(self, *, mode: bool = True) -> bool:
        """Whether the file is another one now; with mode, also if only its permissions are."""
        now = stamp(self.path)
        checked, same = self._checked
        if now != checked:  # the file is read again only after each change
            same = now is not None and self.is_at(self.path, mode=mode)
            self._checked = now, same
        return not same

    def differs_at(self, path: Path) -> bool:
        """Whether there is another file at a path, with other content."""
        return stamp(path) is not None and not self.is_at(path, mode=False)

    def watch_beside(self, besides: Sequence[Path] = ()) -> None:
        """Note what the files in its folder are like that this one names, besides some."""
        n_left = _MOST_BYTES
        for path in _named_files(self.content, self.path):
            if path not in besides and (now := stamp(path)) is not None:
                n_left -= path.stat().st_size  # too much: then the stamp has to do
                self._beside[str(path)] = (now, digest(path) if n_left >= 0 else "")
        if self.path.suffix == ".py" or b"python" in self.content.partition(b"\n")[0]:
            self._names = _names(self.path.parent)

    def refuse_changes(self, cwd: str | None) -> None:
        """Raise if a file that the program uses is not what it was; cwd is the agent's folder."""
        for path in self._changed_neighbours(cwd, own=True):
            raise refuse(path)
        if self._names is None:
            return
        # Python looks for modules beside the script first, also for those of its own library.
        known = sys.stdlib_module_names | {Path(path).stem for path in self._beside}
        for name in _names(self.path.parent):
            if name not in self._names and Path(name).stem in known:
                raise refuse(self.path.parent / name)

    def changes(self, cwd: str | None, *, mode: bool = True) -> list[str]:
        """Return what the row of a trial should say: that this file changed, or one it names.

        A file in the agent's own folder may be what is to be judged; it does not stop a verdict.
        """
        name = shown(self.path)
        if self.changed(mode=mode):
            return [f"{name} {CHANGED}; it was used as it had been at the start"]
        named = self._changed_neighbours(cwd, own=False)
        return [f"{shown(path)} {CHANGED}, and {name} names it" for path in named]

    def _changed_neighbours(self, cwd: str | None, *, own: bool) -> Iterator[str]:
        folder = str(self.path.parent)
        workspace = os.path.realpath(cwd) if cwd else None
        for path, (then, content) in self._beside.items():
            if is_own(path, folder, workspace) is not own or stamp(path) == then:
                continue
            if not content or digest(path) != content:
                yield path

    def is_at(self, path: Path, *, mode: bool) -> bool:
        """Whether the file at a path has this content; with mode, also these permissions."""
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                same_mode = found.st_mode == self.mode or not mode
                return same_mode and file.read(len(self.content) + 1) == self.content
        except OSError:
            return False


type Where = Callable[[Path], str]
"""Gives the path under which a file is what it was when it was read."""
SETTINGS = ("package.json", "tsconfig.json", "jsconfig.json")
"""Files of a folder that decide how JavaScript in it is read."""


class FrozenFiles:
    """A program, the first of the files, with what else it consists of.

    Settings are files that may be there or not, and that must stay so. The copies are in a folder
    that has the same folders in it as the originals, so that relative paths lead to other copies,
    and to links to what lies beside the originals.
    """

    def __init__(
        self, files: Sequence[FrozenFile], settings: Sequence[Path] = (), *, mode: bool = True
    ) -> None:
        self._folders = {file.path.parent for file in files}
        self._files = [*files, *(FrozenFile(path) for path in settings if stamp(path))]
        self._absent = [path for path in settings if not stamp(path)]
        self._mode = mode
        self._lock = threading.Lock()
        self._root: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """All files that are kept."""
        return [file.path for file in self._files]

    def use[T](self, function: Callable[[Where], T], twin: Path | None = None) -> T:
        """Call a function with another one that gives the path of each file as it was read.

        A twin is a file that is used instead of the first one where it is the same. If a file
        changes during the call, the result does not count, and the next place is taken.
        """
        if twin is not None:
            is_same = partial(self._files[0].is_at, twin, mode=self._mode)
            with suppress(_FileChanged):
                return _use([twin], is_same, lambda: function(lambda _path: str(twin)))
        with suppress(_FileChanged):
            return _use([*self.paths, *self._absent], self._are_same, lambda: function(str))
        root = self._copy()
        return function(lambda path: str(root / path.relative_to("/")))

    def _are_same(self) -> bool:
        if any(map(stamp, self._absent)):
            return False
        return not any(file.changed(mode=self._mode) for file in self._files)

    def _copy(self) -> Path:
        """Return the folder that stands for the root of the file system."""
        with self._lock:
            if self._root is None:
                folder = temporary_folder("assay-grader-")
                _folders.append(folder)
                self._root = Path(folder.__enter__())
                for name in SETTINGS[:2]:  # those of the folders above do not count
                    (self._root / name).write_text("{}")
            for file in self._files:
                copy = self._root / file.path.relative_to("/")
                if not file.is_at(copy, mode=self._mode):
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.unlink(missing_ok=True)
                    copy.write_bytes(file.content)
                    copy.chmod(stat.S_IMODE(file.mode))
            self._link_others(self._root)
            return self._root

    def _link_others(self, root: Path) -> None:
        """Link what lies beside the copies, and the packages of all folders above."""
        left_out = set(self._absent)
        for folder in self._folders:
            for entry in entries(folder):
                link = root / entry.path.lstrip("/")
                if Path(entry.path) not in left_out and not (link.exists() or link.is_symlink()):
                    link.symlink_to(entry.path)
        for above in {above for folder in self._folders for above in folder.parents}:
            packages, link = above / "node_modules", root / str(above).lstrip("/") / "node_modules"
            if packages.is_dir() and not link.is_symlink():
                link.symlink_to(packages)


class _FileChanged(Exception):
    """A file was not what it should be, before or after it was used."""


def _use[T](paths: Sequence[Path], are_same: Callable[[], bool], function: Callable[[], T]) -> T:
    """Call a function that uses files; what comes of it counts only if they stay the same."""
    before = [stamp(path) for path in paths]  # first: they may change after they were compared
    if not are_same():
        raise _FileChanged
    try:
        result = function()
    except Interrupted:
        raise
    except AssayError as error:
        if [stamp(path) for path in paths] != before:
            raise _FileChanged from error
        raise
    if [stamp(path) for path in paths] != before:
        raise _FileChanged
    return result


def entries(folder: Path) -> "list[os.DirEntry[str]]":
    """List a folder, as far as that is sensible."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)[:_MOST_ENTRIES]
    except OSError:
        return []


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError:
        return frozenset()


def _named_files(content: bytes, path: Path) -> Iterator[Path]:
    """Yield the files below a program's folder that its text names, and those that they name.

    A program can build names in any way; this finds the usual ones: `wanted.json`, `import helper`,
    and all that is in a folder whose name stands beside a slash or in quotes.
    """
    texts, seen = [content], {path}
    while texts:
        text = texts.pop()[:_MOST_TEXT]
        for file in _named_in(text, path.parent):
            if file in seen or len(seen) > _MOST_FILES:
                continue
            seen.add(file)
            yield file
            if file.suffix in _SCRIPTS and stamp(file):
                texts.append(file.read_bytes())


_ABSOLUTE = re.compile(rb"""(?:^|(?<=[\s=!(,\[:])["']?)/[\w.+-]+(?:/[\w.+-]*)*""")


def _named_in(text: bytes, folder: Path) -> Iterator[Path]:
    # Folders of an absolute path, such as that of an interpreter, only happen to have these names.
    own = os.fsencode(folder)
    text = _ABSOLUTE.sub(lambda m: m[0].replace(own, b".") if own in m[0] else b"", text)
    for entry in entries(folder):
        name = re.escape(os.fsencode(entry.name))
        if entry.is_dir():
            # Relative to something, as the first folder of an absolute path is another one; or a
            # text of its own, as in os.path.join(HERE, "cases"); or a package.
            beside_slash = rb"(?<![\w/])%b/|[\w)}.]\s*/\s*[\"']?%b(?!\w)" % (name, name)
            in_words = rb"[\"']%b[.\"']|\b(?:import|from)\s[\w\s,]*\b%b\b" % (name, name)
            wanted = beside_slash + b"|" + in_words
            if entry.name not in _SKIPPED and re.search(wanted, text):
                yield from _all_files(entry.path)
        else:
            stem = re.escape(os.fsencode(Path(entry.name).stem))
            wanted = stem if entry.name.endswith(_IMPORTED) else name
            if re.search(rb"(?<!\w)%b(?!\w)" % wanted, text):
                yield Path(entry.path)


def _all_files(folder: str) -> Iterable[Path]:
    n_files = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(names):
            n_files += 1
            if n_files > _MOST_FILES:
                return
            yield Path(root) / name
