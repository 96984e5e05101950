"""What git runs or obeys by itself in a repository of the user: whether an agent changed it.

An agent that works in place may set a program in .git/config or write a hook, which the user's next
`git status` or `git commit` starts outside of any sandbox. It cannot all be made read-only: agents
set their name there for a commit. So what changed is named.
"""

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.records.files import read_regular
from assay.records.text import counted_noun

_FILES = (
    *("config", "config.worktree", "commondir", "objects/info/alternates"),
    *("info/attributes", "info/exclude", "info/grafts", "info/sparse-checkout"),
)
_OF_PROJECT = (".gitattributes", ".gitmodules")
_MOST_FILES = 2000
_MOST_BYTES = 1024 * 1024
_MOST_WORDS = 20_000
_VALUES = re.compile(r"[=\"';&|]")
_NAMED = 6
_HOOKS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit"),
    *("prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout"),
    *("post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive"),
    *("post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite"),
    *("sendemail-validate", "fsmonitor-watchman", "post-index-change"),
)
_FIRST = {*_HOOKS, "config", "config.worktree", "attributes", ".gitattributes", ".gitmodules"}
"""What is named and read before all else, which an agent may have put there to hide it."""
type GitSettings = Mapping[str, str]
"""Paths of files and what they were, as hashes."""


def git_settings(folder: Path) -> GitSettings:
    """Return what the git of a folder's repository obeys; nothing if the folder is in none."""
    top = next(
        (place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None
    )
    if top is None:
        return {}
    found = {str(top / ".git"): _digest(top / ".git")}
    found |= {str(top / name): _digest(top / name) for name in _OF_PROJECT}
    for number, path in enumerate(_control_files(top / ".git")):
        if number == _MOST_FILES:
            break
        found[str(path)] = _digest(path)
    configs = [Path(path) for path in found if Path(path).name.startswith("config")]
    for path in _named_by(configs, top):
        if len(found) < 2 * _MOST_FILES:
            found[str(path)] = _digest(path)
    return found


def _named_by(configs: list[Path], top: Path) -> Iterator[Path]:
    """Yield files of the project that git's settings name: hooks (core.hooksPath), included
    settings, and programs."""
    inside, known, n_words = f"{top.resolve()}/", {*configs}, 0
    for config in configs:  # which grows
        # Hooks and programs are found from the top, included files from where they are named.
        for word in _VALUES.sub(" ", _text(config)).split():
            n_words += 1
            if n_words > _MOST_WORDS:
                return
            for place in (top, config.parent):
                named = os.path.expanduser(word)  # noqa: PTH111 - there may be no such user
                path = Path(os.path.normpath(place / named))
                if path in known or not str(path).startswith(inside) or not os.path.lexists(path):
                    continue
                known.add(path)
                if path.is_dir():
                    yield from _files_in(path)
                else:
                    yield path
                    configs.append(path)


def changed_settings(before: GitSettings, now: GitSettings) -> list[str]:
    """Say what changed, and how to look at it without starting it."""
    paths = sorted(before.keys() | now.keys(), key=_by_danger)
    changed = [path for path in paths if before.get(path, "") != now.get(path, "")]
    if not changed:
        return []
    named = ", ".join(changed[:_NAMED])
    if len(changed) > _NAMED:
        named += f" and {counted_noun(len(changed) - _NAMED, 'more file')}"
    look = f"cat {' '.join(map(shlex.quote, changed[:_NAMED]))}"
    what = "settings that git obeys, or programs that it runs, were changed"
    return [f"{what}: {named}; before you use git there: {look}"]


def _by_danger(path: str) -> tuple[bool, str]:
    return path.rpartition("/")[2] not in _FIRST, path


def _control_files(git: Path) -> Iterator[Path]:
    """Yield the files of a repository, of its submodules and of what it shares with others."""
    places = [_followed(git)]
    known = set(places)
    for place in places:
        yield from (place / name for name in _FILES)
        yield from _files_in(place / "hooks")
        found = [place / name for name in [_text(place / "commondir")] if name]
        for name in ("modules", "worktrees"):
            found += [p.parent for p in _files_in(place / name) if p.name in ("config", "gitdir")]
        # Worktrees and what they share name each other.
        new = [path for path in dict.fromkeys(one.resolve() for one in found) if path not in known]
        places += new
        known.update(new)


def _files_in(folder: Path) -> Iterator[Path]:
    n_files = 0
    if folder.is_symlink():  # which leads to anything
        yield folder
        return
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - {"objects", "refs", "logs"})
        links = (one for one in folders if Path(place, one).is_symlink())
        for name in sorted((*files, *links), key=_by_danger):
            if name.endswith(".sample"):  # of a hook, which git does not run
                continue
            n_files += 1
            if n_files > _MOST_FILES:
                return
            yield Path(place, name)


def _followed(git: Path) -> Path:
    """Return the folder of a repository; .git is a file in submodules and worktrees."""
    if git.is_file():
        place = _text(git).removeprefix("gitdir:").strip()
        return (git.parent / place).resolve() if place else git
    return git


def _text(path: Path) -> str:
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _digest(path: Path) -> str:
    """Describe a file: its kind, whether it can be run, what it holds; nothing if it is gone."""
    try:
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            return f"link {os.readlink(path)}"  # noqa: PTH115
        kind = f"{stat.S_IFMT(about.st_mode):o} {about.st_mode & 0o111:o}"
        if not stat.S_ISREG(about.st_mode):
            return kind
        data = read_regular(path, _MOST_BYTES + 1)
        # Of a larger file its time is looked at as well, which nobody can set back.
        size = (about.st_size, about.st_ctime_ns if len(data) > _MOST_BYTES else 0)
        return f"{kind} {size} {hashlib.sha256(data).hexdigest()}"
    except OSError:
        return ""
