"""Read what changed in a git repository that somebody else wrote, without running anything of it.

A repository's own configuration can name programs (filters, external diffs, monitors). The agent
may have written that configuration, so each is switched off before git looks at a file.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from assay.errors import PluginError
from assay.seams import Finished, Host

_PROGRAM = re.compile(
    r"filter\..*\.(clean|smudge|process|required)$|diff\..*\.(command|textconv)$", re.DOTALL
)
_SAFE = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", "diff.external": ""}
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_LISTED = 200


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Paths from the root of the repository, and lines in files that git knows."""

    created: list[str]
    modified: list[str]
    deleted: list[str]
    insertions: int = 0
    deletions: int = 0

    @property
    def paths(self) -> list[str]:
        """Every path that is not as it was."""
        return [*self.created, *self.modified, *self.deleted]

    def as_outcome(self) -> dict[str, Any]:
        """Give the fields for a grade; long lists are cut."""
        return {
            "filesCreated": self.created[:_LISTED],
            "filesModified": self.modified[:_LISTED],
            "filesDeleted": self.deleted[:_LISTED],
            "filesChanged": len(self.paths),
            "insertions": self.insertions,
            "deletions": self.deletions,
        }


class _Git:
    def __init__(self, cwd: str, host: Host, timeout_s: float) -> None:
        self._cwd, self._host, self._timeout_s = cwd, host, timeout_s
        own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        self._env = {**own, **_QUIET}
        self._set(_SAFE)
        self._set({key: value for key in self._config_keys() if (value := _harmless(key))})

    def __call__(self, *words: str) -> bytes:
        """Run a command that has to work; give what it said."""
        done = self.run(*words)
        if done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            msg = f"git {words[0]} failed in {self._cwd}: {said or f'exit {done.exit_code}'}"
            raise PluginError(msg)
        return done.stdout

    def run(self, *words: str) -> Finished:
        """Run a command that may fail."""
        argv = ["git", *words]
        done = self._host.run(argv, cwd=self._cwd, env=self._env, timeout_s=self._timeout_s)
        if done.timed_out:
            msg = f"git {words[0]} did not end in {self._timeout_s:g} s"
            raise PluginError(msg)
        return done

    def _config_keys(self) -> set[str]:
        """Name every setting. Listing them runs none of the programs they name."""
        listed = self("config", "--list", "--name-only", "-z")
        return set(listed.decode("utf-8", "surrogateescape").split("\0"))

    def _set(self, settings: Mapping[str, str]) -> None:
        """Overrule settings, by the one way that takes any name, also one with = in it."""
        n_set = int(self._env.get("GIT_CONFIG_COUNT", "0"))
        for number, (key, value) in enumerate(settings.items(), n_set):
            self._env[f"GIT_CONFIG_KEY_{number}"] = key
            self._env[f"GIT_CONFIG_VALUE_{number}"] = value.strip()
        self._env["GIT_CONFIG_COUNT"] = str(n_set + len(settings))


def read_changes(cwd: str, base: str, host: Host, timeout_s: float) -> Changes:
    """Compare the working folder with base; files git does not know count as created."""
    git = _Git(cwd, host, timeout_s)
    ignored = git.run("check-ignore", "-q", ".").exit_code
    if ignored not in (0, 1):
        git("rev-parse", "--show-toplevel")  # fails and says why, such as: not a git repository
    if ignored == 0:
        msg = f"{cwd} is ignored by the repository around it"
        raise PluginError(msg, hint="run `git init` in the workspace template")
    against = _commit(git, base)
    diff = ["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules", "-z"]
    status = _fields(git(*diff, "--name-status", against, "--", "."))
    numbers = _fields(git(*diff, "--numstat", against, "--", "."))
    others = _fields(git("ls-files", "--others", "--exclude-standard", "--full-name", "-z", "."))
    marks = dict(zip(status[1::2], status[::2], strict=True))
    lines = [entry.split("\t", 2)[:2] for entry in numbers]
    return Changes(
        created=sorted([*others, *(path for path, mark in marks.items() if mark == "A")]),
        modified=sorted(path for path, mark in marks.items() if mark not in "AD"),
        deleted=sorted(path for path, mark in marks.items() if mark == "D"),
        insertions=_total(lines, 0),
        deletions=_total(lines, 1),
    )


def _commit(git: _Git, base: str) -> str:
    """Give what to compare with; a repository without commits is compared with nothing."""
    words = ("rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}")
    if base == "HEAD" and git.run(*words).exit_code != 0:
        words = ("hash-object", "-t", "tree", "/dev/null")
    return git(*words).decode().strip()


def _harmless(key: str) -> str:
    """Give the value that switches a program off; a blank stands for the empty one."""
    if not _PROGRAM.match(key):
        return ""
    return "false" if key.endswith(".required") else " "


def _fields(listed: bytes) -> list[str]:
    return [part for part in listed.decode("utf-8", "replace").split("\0") if part]


def _total(lines: Sequence[Sequence[str]], column: int) -> int:
    return sum(int(entry[column]) for entry in lines if entry[column].isdigit())
