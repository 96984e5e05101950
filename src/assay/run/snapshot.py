"""What an agent changes in its working folder: a snapshot before it starts, compared at its end.

Files are read and hashed here and not by a repository in the folder: the agent may commit, change
or delete that one. Git is asked only which files are not ignored, by the rules that held before the
agent started, and how many lines differ. What the agent does can at worst make its work look
larger than it is: a file that cannot be read counts as changed.
"""

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import NamedTuple

from assay.errors import AssayError, Interrupted, OutOfResources, PluginError
from assay.records.capture import WorkspaceChanges
from assay.records.files import temporary_folder
from assay.records.journal import without_results
from assay.records.once import made_once
from assay.records.spec import Surroundings
from assay.run.process import raise_if_stopping
from assay.run.program import run_program

_MOST_LISTED = 10_000
"""How many new files a row names; changed and deleted ones are all named."""
_MOST_FILES = 200_000
_MOST_NEW = 100_000
"""How many files an agent may add before nobody looks at each."""
_MOST_BYTES = 2 * 1024 * 1024
"""Larger files are not kept: all their lines count when they change."""
_LARGE = 256 * 1024 * 1024
"""Files that are not even hashed; their size and time stand for their content."""
_BINARY_HEAD = 8000
"""As in git: a file is binary if it has a NUL in its first bytes."""
_GIT_S = 120.0
_MOST_OUTPUT = 16 * 1024 * 1024
"""Of more output, LocalHost keeps only the end."""
_SAFE = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", "core.untrackedCache": "false"}
_CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"})
"""What running the tests leaves in a folder, and what git keeps there: neither is anybody's work,
unless a repository tracks it."""
_SHORTSTAT = re.compile(rb"(\d+) (insertion|deletion)")
_UNREADABLE = "unreadable"


class _File(NamedTuple):
    mode: str
    """x, f or l: executable, another file, or a link."""
    digest: str
    n_lines: int | None
    """None for a binary file."""


class TooManyFilesError(Exception):
    """An agent left more than can be compared in the time that its trial has."""

    def __init__(self, n_files: int = 0) -> None:
        super().__init__("left more files than can be compared with what was there before")
        self.changes = WorkspaceChanges(n_files=n_files)


class _Clock:
    """Ends the work on what an agent left; without a moment, only a signal does."""

    def __init__(self, until_s: float = inf) -> None:
        self._until_s = until_s

    def left_s(self) -> float:
        """Return the time left; raise when there is none, or when Assay is to stop."""
        raise_if_stopping()
        if (left_s := self._until_s - time.monotonic()) <= 0:
            raise TooManyFilesError
        return left_s


_NO_LIMIT = _Clock()


class Snapshot:
    """The files of a folder, before an agent works in it."""

    def __init__(self, folder: Path, around: Surroundings) -> None:
        self._folder = folder
        self._written_paths = around.written_paths
        own = around.workspace_dir is not None
        self._root = folder if own else _repository_root(folder)
        self._ignored = _ignore_rules(self._root, folder)
        names = set(_listed(self._root, folder, self._ignored))
        if not own:
            names |= _tracked(self._root, folder)
        self._before = self._read(names, names, _NO_LIMIT)

    def changes(self, until_s: float = inf) -> WorkspaceChanges:
        """Compare the folder with what it was, until a moment of the monotonic clock.

        Raises TooManyFilesError when that is not enough, or there are too many.
        """
        before, clock = self._before, _Clock(until_s)
        names = _listed(self._root, self._folder, self._ignored, clock)
        if (n_new := len(set(names) - before.keys())) > _MOST_NEW:
            raise TooManyFilesError(n_new)
        after = self._read({*names, *before}, before.keys(), clock)
        created = sorted(after.keys() - before.keys())
        deleted = sorted(before.keys() - after.keys())
        modified = sorted(n for n in after.keys() & before.keys() if after[n][:2] != before[n][:2])
        n_in = sum(after[name].n_lines or 0 for name in created)
        n_out = sum(before[name].n_lines or 0 for name in deleted)
        more_in, more_out = _differing_lines([(before[name], after[name]) for name in modified])
        tree = _hash_tree(str(self._folder), self._written_paths, clock)
        _just_left.add(tree)
        return WorkspaceChanges(
            created=[_shown(name) for name in created[:_MOST_LISTED]],
            modified=[_shown(name) for name in modified],
            deleted=[_shown(name) for name in deleted],
            n_files=len(created) + len(modified) + len(deleted),
            insertions=n_in + more_in,
            deletions=n_out + more_out,
            tree=tree,
        )

    def _read(self, names: Iterable[str], keep: Container[str], clock: _Clock) -> dict[str, _File]:
        """Read files, and keep the text of some, for the number of lines that differ."""
        outputs = _our_outputs()
        found = {}
        for name in names:
            clock.left_s()
            path = f"{self._root}/{name}"
            if _is_in(path, self._written_paths):
                continue
            if (file := _read_file(path, outputs, keep=name in keep)) is not None:
                found[name] = file
        return found


class Repository:
    """A git repository of a folder as it was before an agent worked in it, for a user's graders.

    The agent never sees it: until the agent has ended, only the name of a commit is known, which
    is a hash of all that is in it. Settings, hooks and index are made afterwards.
    """

    def __init__(self, folder: Path, around: Surroundings) -> None:
        own = around.workspace_dir is not None
        self.folder = str(folder)
        self._root = root = folder if own else _repository_root(folder)
        self._rules = _ignore_rules(root, root).read_bytes()
        names = {*_listed(root, root, None), *_tracked(root, root)}
        paths = [n for n in names if not _is_in(f"{root}/{n}", around.written_paths)]
        self._objects = [f"{_empty_repository()}/objects"]
        self._refs, self._branch, head = b"", "refs/heads/main", ""
        if (root / ".git").exists():
            head = self._read_history()
        self._commit = self._store_files(paths, head)

    def _read_history(self) -> str:
        """Note the objects, branches and tags that the folder's own repository has; return HEAD."""
        asked = ["rev-parse", "--path-format=absolute", "--git-path", "objects"]
        answers = [_git(words, self._root, {}) for words in (asked, ["rev-parse", "HEAD"])]
        if any(answer is None or answer[0] != 0 for answer in answers):
            return ""
        objects, head = (answer[1].decode().strip() for answer in answers if answer)
        self._objects.append(objects)
        refs = _git(["for-each-ref", "--format=%(objectname) %(refname)"], self._root, {})
        self._refs = refs[1] if refs and refs[0] == 0 else b""
        branch = _git(["symbolic-ref", "-q", "HEAD"], self._root, {})
        if branch and branch[0] == 0:
            self._branch = branch[1].decode().strip()
        return head

    def _store_files(self, paths: list[str], head: str) -> str:
        """Make a commit of the files, on top of HEAD if they differ from it; "" if that fails."""
        index = f"{_store()}/index-{os.urandom(8).hex()}"
        place = {"GIT_DIR": _empty_repository(), "GIT_WORK_TREE": str(self._root)}
        place |= {"GIT_INDEX_FILE": index, **_GIT_AUTHOR}
        place["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(self._objects[1:])
        readable = [n for n in paths if _is_readable(f"{self._root}/{n}")]
        listed = b"".join(os.fsencode(name) + b"\0" for name in readable)

        def git(*words: str, stdin: bytes = b"") -> str | None:
            done = _git(list(words), self._root, place, stdin)
            return done[1].decode().strip() if done is not None and done[0] == 0 else None

        if git("update-index", "-z", "--add", "--stdin", stdin=listed) is None:
            return ""
        Path(index).touch()  # of no files
        tree = git("write-tree")
        if head and tree == git("rev-parse", f"{head}^{{tree}}"):
            return head
        parents = ["-p", head] if head else []
        return (git("commit-tree", *parents, "-m", "Before the trial", tree) if tree else "") or ""

    def open(self) -> dict[str, str]:
        """Make the repository, when the agent has ended; return the variables for git."""
        if not self._commit:
            return {}
        place = Path(_store(), f"repository-{os.urandom(8).hex()}")
        for name in ("objects/info", "refs/heads", "info"):
            (place / name).mkdir(parents=True)
        (place / "objects/info/alternates").write_text("\n".join([*self._objects, ""]))
        (place / "config").write_text(_GIT_CONFIG)
        (place / "HEAD").write_text(f"ref: {self._branch}\n")
        refs = {name: commit for commit, name in map(bytes.split, self._refs.splitlines())}
        refs[self._branch.encode()] = self._commit.encode()
        lines = [b"%b %b\n" % (commit, name) for name, commit in sorted(refs.items())]
        (place / "packed-refs").write_bytes(b"".join(lines))
        caches = "".join(f"{name}/\n" for name in sorted(_CACHES))
        (place / "info/exclude").write_bytes(self._rules + caches.encode())
        self._place = place
        env = {"GIT_DIR": str(place), "GIT_WORK_TREE": str(self._root)}
        env["GIT_CONFIG_GLOBAL"] = "/dev/null"  # an agent may have written the user's
        for words in (["read-tree", self._commit], ["update-index", "-q", "--refresh"]):
            _git(words, self._root, env)
        return env

    def close(self) -> None:
        """Remove it."""
        if (place := getattr(self, "_place", None)) is not None:
            shutil.rmtree(place, ignore_errors=True)


_GIT_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Assay"), ("EMAIL", "assay@localhost"), ("DATE", "@0 +0000"))
}
_GIT_CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = false
\tfsmonitor = false
\thooksPath = /dev/null
\tuntrackedCache = false
[user]
\tname = Assay
\temail = assay@localhost
"""
_opened = threading.local()


def note_repository(repository: Repository | None) -> None:
    """Keep the repository of the trial that this thread has just run, for its graders."""
    _opened.repository = repository


@contextlib.contextmanager
def opened_repository(folder: str | None) -> Iterator[dict[str, str]]:
    """Give the variables with which git finds what a folder was before the trial of this thread."""
    repository: Repository | None = getattr(_opened, "repository", None)
    _opened.repository = None
    if repository is None or repository.folder != folder:
        yield {}
        return
    try:
        yield repository.open()
    finally:
        repository.close()


def leave_out(env: Mapping[str, str], root: str, names: Iterable[str]) -> None:
    """Let the repository of a user's graders not miss files that they are not shown."""
    for name in names if env else ():
        _git(["update-index", "--skip-worktree", "--", name], Path(root), env)


def note_tree(folder: str) -> None:
    """Take a folder as it is now for what graders find there: files may be hidden from them."""
    _just_left.add(_hash_tree(folder, ()))


def _is_readable(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and os.access(path, os.R_OK))


_just_left: set[str] = set()
"""Folders of trials of this process: what changed since then, its own graders did."""


def is_unchanged(folder: str, tree: str) -> bool:
    """Whether a folder is as an agent left it."""
    return tree in _just_left or _hash_tree(folder, ()) == tree


def _hash_tree(folder: str, ours: Iterable[str], clock: _Clock = _NO_LIMIT) -> str:
    """Hash the files of a folder that git would not ignore, and that Assay did not write."""
    root, outputs = Path(folder), _our_outputs()
    total = hashlib.sha256()
    for name in sorted(without_results(root, _listed(root, root, None, clock))):
        clock.left_s()
        path = f"{folder}/{name}"
        file = None if _is_in(path, ours) else _read_file(path, outputs)
        if file is not None:
            entry = f"{name}\0{file.mode}\0{file.digest}\n"
            total.update(entry.encode(errors="surrogateescape"))
    return total.hexdigest()[:16]


def _is_in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


# Which files there are.


def _repository_root(folder: Path) -> Path:
    """Return the root of the repository that a folder is in; the folder itself if it is in none."""
    done = _git(["check-ignore", "-q", "."], folder, {})
    if done is None or done[0] != 1:  # 1: not ignored; 128: no repository
        return folder
    found = _git(["rev-parse", "--show-toplevel"], folder, {})
    top = Path(os.fsdecode(found[1].rstrip(b"\n"))) if found and found[0] == 0 else folder
    return top if folder.is_relative_to(top) else folder


def _tracked(root: Path, folder: Path) -> set[str]:
    """Return the files that the repository tracks, also those that its rules ignore."""
    if not (root / ".git").exists():
        return set()
    listed = _git(["ls-files", "-z", "--full-name", "."], folder, {})
    return set(_names(listed[1])) if listed and listed[0] == 0 else set()


def _listed(root: Path, folder: Path, ignored: Path | None, clock: _Clock = _NO_LIMIT) -> list[str]:
    """List the files in a folder, from the root, by stored rules or else by those in the folder."""
    if not folder.is_dir():
        return []
    rules = f"--exclude-from={ignored}" if ignored is not None else "--exclude-standard"
    argv = ["ls-files", "--others", "-z", "--full-name", rules, "."]
    place = {"GIT_DIR": _empty_repository(), "GIT_WORK_TREE": str(root)}
    done = _git(argv, folder, place, timeout_s=min(_GIT_S, clock.left_s()))
    if done is None or done[0] != 0:
        return list(_walk(root, folder, clock))
    files = (file for name in _names(done[1]) for file in _inside(root, name, clock))
    return [file for file in files if _CACHES.isdisjoint(file.split("/"))][:_MOST_FILES]


def _inside(root: Path, name: str, clock: _Clock) -> Iterator[str]:
    """Yield a file, or all files of what git lists as one: a repository in the folder."""
    if name.endswith("/"):
        yield from _walk(root, root / name, clock)
    else:
        yield name


def _walk(root: Path, folder: Path, clock: _Clock) -> Iterator[str]:
    n_files = 0
    for place, folders, files in os.walk(folder):
        clock.left_s()
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = sorted(set(folders) - {".git", *links})
        for name in sorted((*files, *links)):
            n_files += 1
            if n_files > _MOST_FILES:
                return
            yield os.path.relpath(f"{place}/{name}", root)


def _ignore_rules(root: Path, folder: Path) -> Path:
    """Write the rules that hold now into one file: an agent may add others."""
    above = [place for place in (folder, *folder.parents) if place.is_relative_to(root)]
    files = {place / ".gitignore" for place in above}
    # Without any rules: one that ignores its own folder ignores itself, too.
    argv = ["ls-files", "--others", "-z", "--full-name", "--", ":(glob)**/.gitignore"]
    place = {"GIT_DIR": _empty_repository(), "GIT_WORK_TREE": str(root)}
    found = _git(argv, folder, place)
    files |= {root / name for name in _names(found[1] if found else b"")}
    lines = [*_user_rules(root)]
    for file in sorted(files, key=lambda file: len(file.parts)):  # deeper ones are stronger
        prefix = file.parent.relative_to(root).as_posix()
        lines += _rebased(_lines_of(file), "" if prefix == "." else prefix)
    text = b"\n".join([*lines, b""])
    path = _store() / f"rules-{hashlib.sha256(text).hexdigest()[:16]}"
    _write_once(path, text)
    return path


def _user_rules(root: Path) -> Iterator[bytes]:
    """Yield the user's own rules, and those of the repository that are in no .gitignore."""
    asked = _git(["config", "--type=path", "core.excludesFile"], root, {})
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    named = os.fsdecode(asked[1].strip()) if asked and asked[0] == 0 else f"{home}/git/ignore"
    yield from _lines_of(Path(named))
    info = _git(["rev-parse", "--git-path", "info/exclude"], root, {})
    if info and info[0] == 0:
        yield from _lines_of(root / os.fsdecode(info[1].strip()))


def _rebased(lines: Iterable[bytes], prefix: str) -> Iterator[bytes]:
    """Write the rules of a folder as rules of the root."""
    for line in lines:
        rule = line.rstrip(b"\r")
        if not prefix or not rule.strip() or rule.startswith(b"#"):
            yield rule
            continue
        no = b"!" if rule.startswith(b"!") else b""
        rule = rule.removeprefix(b"!")
        anchored = b"/" in rule.rstrip(b"/")
        place = b"/" + re.sub(rb"([*?\[\\])", rb"\\\1", os.fsencode(prefix))
        yield no + place + (b"/" if anchored else b"/**/") + rule.lstrip(b"/")


def _lines_of(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\n")
    except OSError:
        return []


# What is in them.

_known: dict[tuple[int, ...], tuple[str, int | None]] = {}
"""Files that were hashed before, by what changes when they do; a ctime cannot be set back."""


def _read_file(
    path: str, outputs: frozenset[tuple[int, int]], *, keep: bool = False
) -> _File | None:
    """Read one file; None for one that is not there, that we write, or that is no file.

    keep: its text is needed later.
    """
    try:
        about = os.lstat(path)
        if stat.S_ISLNK(about.st_mode):
            return _File("l", _digest(os.fsencode(os.readlink(path))), 1)  # noqa: PTH115
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _File("f", _UNREADABLE, None)
    if not stat.S_ISREG(about.st_mode) or (about.st_dev, about.st_ino) in outputs:
        return None
    mode = "x" if about.st_mode & 0o100 else "f"
    times = about.st_mtime_ns, about.st_ctime_ns
    key = (about.st_dev, about.st_ino, about.st_size, *times)
    known = _known.get(key)
    is_kept = known is not None and (not keep or _is_kept(known, about.st_size))
    if known is None or not is_kept:
        try:
            known = _hashed(path, about, keep=keep)
        except OSError:
            return _File(mode, _UNREADABLE, None)
        if len(_known) > _MOST_FILES:
            _known.clear()
        _known[key] = known
    return _File(mode, *known)


def _is_kept(known: tuple[str, int | None], size: int) -> bool:
    """Whether the text of a file is kept, or never is."""
    return known[1] is None or size > _MOST_BYTES or (_store() / known[0]).exists()


def _hashed(path: str, about: os.stat_result, *, keep: bool) -> tuple[str, int | None]:
    if about.st_size > _LARGE:
        return f"large-{about.st_size}-{about.st_mtime_ns}", None
    # Not blocking and no link: an agent may put a FIFO or a link there meanwhile.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        content = file.read(_LARGE)
    digest = _digest(content)
    if b"\0" in content[:_BINARY_HEAD]:
        return digest, None
    if keep and len(content) <= _MOST_BYTES:
        _write_once(_store() / digest, content)
    return digest, content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def _differing_lines(pairs: list[tuple[_File, _File]]) -> tuple[int, int]:
    """Count the lines that were added and removed in changed files."""
    kept, n_in, n_out = [], 0, 0
    for before, after in pairs:
        if before.digest == after.digest or before.n_lines is None or after.n_lines is None:
            continue  # only the mode differs, or one of them is binary
        files = _store() / before.digest, _store() / after.digest
        if all(file.is_file() for file in files):
            kept.append(files)
        else:
            n_in, n_out = n_in + after.n_lines, n_out + before.n_lines
    if not kept:
        return n_in, n_out
    with temporary_folder("assay-diff-") as place:
        for number, both in enumerate(kept):
            for side, file in zip("ab", both, strict=True):
                Path(place, side).mkdir(exist_ok=True)
                Path(place, side, str(number)).write_bytes(file.read_bytes())
        options = ["--no-index", "--no-ext-diff", "--no-textconv", "--no-renames", "--shortstat"]
        done = _git(["diff", *options, "a", "b"], Path(place), {"GIT_DIR": _empty_repository()})
    if done is None or done[0] not in (0, 1):
        lines = [(b.n_lines or 0, a.n_lines or 0) for b, a in pairs]
        return n_in + sum(a for _, a in lines), n_out + sum(b for b, _ in lines)
    counted = {kind: int(n) for n, kind in _SHORTSTAT.findall(done[1])}
    return n_in + counted.get(b"insertion", 0), n_out + counted.get(b"deletion", 0)


# Tools.


@made_once
def _store() -> Path:
    """Return a folder for what files were like, removed when the process ends.

    It is not in the agent's folder, and a sandbox does not show it.
    """
    folder = temporary_folder("assay-snapshot-")
    atexit.register(folder.__exit__, None, None, None)
    return Path(folder.__enter__())


@made_once
def _empty_repository() -> str:
    place = _store() / "empty"
    done = _git(["init", "-q", str(place)], _store(), {})
    if done is None or done[0] != 0:
        why = "it did not start or end" if done is None else f"`git init` ended with {done[0]}"
        msg = f"git, which is needed to see what an agent changes, cannot be used: {why}"
        raise PluginError(msg, hint=f"try: git init {place.parent}/new")
    return str(place / ".git")


def _git(
    words: list[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float = _GIT_S,
) -> tuple[int | None, bytes] | None:
    """Run git without what settings of a repository could start; None if it does not end."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    settings = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    settings["GIT_CONFIG_COUNT"] = str(len(_SAFE))
    for number, (key, value) in enumerate(_SAFE.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = run_program(
            ["git", *words],
            stdin=stdin,
            cwd=str(cwd),
            env={**own, **settings, **env},
            timeout_s=timeout_s,
        )
    except (Interrupted, OutOfResources):
        raise
    except AssayError:  # it wrote too much, or is not there
        return None
    if done.timed_out or len(done.stdout) >= _MOST_OUTPUT:
        return None
    return done.exit_code, done.stdout


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(part) for part in listed.split(b"\0") if part]


def _our_outputs() -> frozenset[tuple[int, int]]:
    """Return the files that our stdout and stderr go to: `assay capture > results.jsonl`."""
    found = set()
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            about = os.fstat(fd)
            found.add((about.st_dev, about.st_ino))
    return frozenset(found)


def _write_once(path: Path, content: bytes) -> None:
    if not path.exists():
        part = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        part.write_bytes(content)
        part.replace(path)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _shown(name: str) -> str:
    """Return a name that can be written as JSON."""
    return os.fsencode(name).decode("utf-8", "replace")
