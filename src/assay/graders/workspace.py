"""Graders that look at the workspace: a command such as its tests, and its git changes."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import msgspec

from assay.errors import InputError, PluginError
from assay.graders.answer import shown
from assay.graders.command_line import CommandLine
from assay.graders.frozen import named_variables
from assay.graders.python_code import changed_options, fingerprint, version_with
from assay.plugin import Finished, Grader, Host, Trial
from assay.records.capture import Grade, WorkspaceChanges
from assay.records.journal import without_results

_TAIL_CHARS = 1500
_CANNOT_RUN = {126: "cannot be executed", 127: "was not found"}


class _RunsCommand(Grader):
    """Base of graders with a command line of the operator's, in which a script may stand."""

    code_version: ClassVar[str]
    _line: CommandLine

    @cached_property
    def version(self) -> str:
        """The version of the code, the options and the operator's script."""
        script = self._line.script
        texts = [*map(os.fsencode, self._line.words), *([script.content] if script else ())]
        parts = {"script": fingerprint(script.content)} if script is not None else {}
        if program := self._line.own_program():
            parts["program"] = fingerprint(program)
        if variables := named_variables(texts):
            parts["variables"] = fingerprint(*variables)
        return version_with(self.code_version, changed_options(self) | parts)

    def freeze(self, _host: Host) -> None:
        """Note what the script uses, before the first agent starts."""
        if self._line.script is not None:
            self._line.script.watch_beside()

    @cached_property
    def files(self) -> list[Path]:
        """The script, and what it names in its folder."""
        return self._line.script.used() if self._line.script is not None else []

    def changes(self, trial: Trial) -> list[str]:
        """Return what the row of a trial should say about the script."""
        return self._line.changes(trial)


@dataclass
class Command(_RunsCommand):
    """The command is the operator's own; nothing the agent wrote becomes part of it.

    run is words, as a shell would split them but without a shell; sh is a script for /bin/sh.
    limit_s: taking longer is the agent's failure. Without it only --grader-timeout holds, and a
    trial that reaches that is not graded.
    """

    name = "command"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    run: str | list[str] = ""
    sh: str | None = None
    exit_code: int = 0
    limit_s: float | None = None
    timeout_s: float = 60.0
    folder: str = ""
    """Where a script of the command line lies; the current folder if empty."""

    def __post_init__(self) -> None:
        if bool(self.run) == bool(self.sh):
            msg = "command: give either words (run) or a script (sh)"
            raise InputError(msg, hint="for example: -g 'command:pytest -q'")
        if self.limit_s is not None and not self.limit_s > 0:
            msg = f"command: limit_s is {self.limit_s:g}; it must be more than 0"
            raise InputError(msg, hint="give the limit in seconds")
        argv = ["/bin/sh", "-c", self.sh] if self.sh else self.run
        self._line = CommandLine(
            argv, self.folder
        )  # refuses a bad command line before anything runs

    @cached_property
    def wants_repository(self) -> bool:
        return self._line.mentions_git

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Run the command where the agent worked."""
        limits = [self.timeout_s, *([self.limit_s] if self.limit_s is not None else [])]
        done = self._line.run(host, workspace_of(trial), min(limits), trial.env)
        if done.timed_out:
            return self._too_slow(done)
        if done.exit_code != self.exit_code:  # 127 may be what the operator expects
            refuse_not_started(done)
        passed = done.exit_code == self.exit_code
        reason = f"exit code {done.exit_code}"
        if not passed:
            reason = f"{reason}\n{tail(done)}".rstrip()
        return Grade(pass_=passed, score=float(passed), reasoning=reason)

    def _too_slow(self, done: Finished) -> Grade:
        if self.limit_s is None or self.limit_s > self.timeout_s:
            msg = f"the command did not end in {self.timeout_s:g} s"
            raise PluginError(msg)
        reason = f"did not end in {self.limit_s:g} s\n{tail(done)}".rstrip()
        return Grade(pass_=False, score=0.0, reasoning=reason)


def refuse_not_started(done: Finished) -> None:
    """Raise when the exit code means that a shell could not start the command."""
    why = _CANNOT_RUN.get(done.exit_code or 0)
    if why:
        msg = f"exit code {done.exit_code}: a command {why}: {tail(done)}"
        raise PluginError(msg)


def workspace_of(trial: Trial) -> str:
    """Return the folder the agent worked in."""
    if trial.cwd is None:
        if folder := trial.row.get("cwd") or trial.metadata.get("workspaceDir"):
            raise _missing_folder_error(folder)
        msg = "no workspace to look at: the row has no cwd"
        raise PluginError(msg, hint="capture with --workspace-dir")
    if not Path(trial.cwd).is_dir():
        raise _missing_folder_error(trial.cwd)
    return trial.cwd


def _missing_folder_error(folder: str) -> PluginError:
    why = "a later run may have removed it: capture again with this grader, or with"
    return PluginError(f"the workspace is gone: {folder}; {why} --keep-workspaces all")


def tail(done: Finished) -> str:
    """Return the end of a command's output."""
    output = done.stdout.rstrip() + b"\n" + done.stderr.rstrip()
    text = output.strip().decode("utf-8", "replace")
    return text if len(text) <= _TAIL_CHARS else f"…{text[-_TAIL_CHARS:]}"


@dataclass
class File(Grader):
    """Passes when all files are in the workspace; the score is the share that is.

    contains: a text for each path that its file must contain.
    """

    name = "file"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    exists: list[str] = field(default_factory=list)
    contains: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = [*self.exists, *self.contains]
        if not paths:
            msg = "file: no path is given"
            raise InputError(msg, hint="for example: -g file:CHANGELOG.md")
        for path in paths:
            if not path or Path(path).is_absolute() or ".." in Path(path).parts or "\0" in path:
                msg = f"file: {path!r} is not a path inside the workspace"
                raise InputError(msg)

    @cached_property
    def version(self) -> str:
        """The version of the code and the options."""
        return version_with(self.code_version, changed_options(self))

    def grade(self, trial: Trial, _host: Host) -> Grade:
        """Look where the agent worked."""
        folder = Path(workspace_of(trial)).resolve()
        checks = [(path, _file_text(folder, path)) for path in self.exists]
        wrong = [f"{path} is missing" for path, text in checks if text is None]
        for path, wanted in self.contains.items():
            text = _file_text(folder, path)
            if text is None:
                wrong.append(f"{path} is missing")
            elif wanted.encode() not in text:
                wrong.append(f"{path} does not contain {shown(wanted)}")
        n_checks = len(checks) + len(self.contains)
        score = 1 - len(wrong) / n_checks
        return Grade(pass_=not wrong, score=score, reasoning="; ".join(wrong) or "all found")


_MOST_TEXT = 64 * 1024 * 1024


def _file_text(folder: Path, name: str) -> bytes | None:
    """Read a regular file of a workspace; None if there is none, or a link leads out of it."""
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder) or not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(_MOST_TEXT)
    except OSError:
        return None


_PROGRAM = re.compile(
    r"filter\..*\.(clean|smudge|process|required)$|diff\..*\.(command|textconv)$", re.DOTALL
)
"""Settings that make git run a program, or fail without it. The agent may have written them."""
_SAFE = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", "diff.external": ""}
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_LISTED = 200
_BLOCK = 1024 * 1024
_BINARY_HEAD = 8000
"""As in git: a file is binary if it has a NUL in its first bytes."""


class _Git:
    def __init__(self, cwd: str, host: Host, timeout_s: float) -> None:
        self._cwd, self._host, self._timeout_s = cwd, host, timeout_s
        # Without our own GIT_DIR and the like, which would name another repository.
        own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        self._env = {**own, **_QUIET}
        self._set(_SAFE)
        self._set({key: value for key in self._config_keys() if (value := _disabling_value(key))})

    def __call__(self, *words: str) -> bytes:
        """Run a command that must not fail; return its stdout."""
        done = self.run(*words)
        if done.exit_code != 0:
            stderr = done.stderr.decode("utf-8", "replace").strip()[-300:]
            msg = f"git {words[0]} failed in {self._cwd}: {stderr or f'exit {done.exit_code}'}"
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
        """Return the names of all settings. Listing them runs none of the programs they name."""
        listed = self("config", "--list", "--name-only", "-z")
        return set(listed.decode("utf-8", "surrogateescape").split("\0"))

    def _set(self, settings: Mapping[str, str]) -> None:
        """Override settings through the environment: `git -c` takes no name with = in it."""
        n_set = int(self._env.get("GIT_CONFIG_COUNT", "0"))
        for number, (key, value) in enumerate(settings.items(), n_set):
            self._env[f"GIT_CONFIG_KEY_{number}"] = key
            self._env[f"GIT_CONFIG_VALUE_{number}"] = value.strip()
        self._env["GIT_CONFIG_COUNT"] = str(n_set + len(settings))


def read_changes(cwd: str, base: str, host: Host, timeout_s: float) -> WorkspaceChanges:
    """Compare the working folder with base; untracked files count as created.

    Results of Assay that lie there, and the raw streams beside them, do not count.
    """
    git = _Git(cwd, host, timeout_s)
    ignored = git.run("check-ignore", "-q", ".").exit_code  # 0: yes, 1: no, else an error
    if ignored not in (0, 1):
        _refuse_no_repository(git, cwd)
    if ignored == 0:
        msg = f"{cwd} is ignored by the repository around it"
        raise PluginError(msg, hint="run `git init` in the workspace template")
    against = _commit(git, base)
    diff = ["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules", "-z"]
    status = _fields(git(*diff, "--name-status", against, "--", "."))
    numbers = _fields(git(*diff, "--numstat", against, "--", "."))
    others = _fields(git("ls-files", "--others", "--exclude-standard", "--full-name", "-z", "."))
    # With -z, --name-status alternates between a letter and a path.
    marks = dict(zip(status[1::2], status[::2], strict=True))
    lines = [entry.split("\t", 2)[:2] for entry in numbers]
    root = Path(os.fsdecode(git("rev-parse", "--show-toplevel").rstrip(b"\n")))
    others = without_results(root, others)
    return WorkspaceChanges(
        created=sorted([*others, *(path for path, mark in marks.items() if mark == "A")]),
        modified=sorted(path for path, mark in marks.items() if mark not in "AD"),
        deleted=sorted(path for path, mark in marks.items() if mark == "D"),
        n_files=len(others) + len(marks),
        insertions=_total(lines, 0) + sum(_count_lines(root / path) for path in others),
        deletions=_total(lines, 1),
    )


def _refuse_no_repository(git: _Git, cwd: str) -> None:
    try:
        git("rev-parse", "--show-toplevel")  # fails and says why
    except PluginError as error:
        if "not a git repository" not in error.message:
            raise
        msg = f"{cwd} is not a git repository, and nothing is known of what it was before the agent"
        raise PluginError(
            msg, hint="capture with -g git, or run `git init` in the workspace template"
        ) from error


def _count_lines(path: Path) -> int:
    """Count the lines of a new file as git does; a binary one has none."""
    try:
        if not path.is_file() or path.is_symlink():
            return int(path.is_symlink())
        with path.open("rb") as file:
            n_lines, block, last = 0, file.read(_BLOCK), b"\n"
            if b"\0" in block[:_BINARY_HEAD]:
                return 0
            while block:
                n_lines, last = n_lines + block.count(b"\n"), block[-1:]
                block = file.read(_BLOCK)
    except OSError:
        return 0
    return n_lines + (last != b"\n")


def _commit(git: _Git, base: str) -> str:
    """Return what to compare with; without any commit, that is the empty tree."""
    words = ("rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}")
    if base == "HEAD" and git.run(*words).exit_code != 0:
        words = ("hash-object", "-t", "tree", "/dev/null")
    return git(*words).decode().strip()


def _disabling_value(key: str) -> str:
    """Return the value that disables a program, "" for other settings; " " is an empty value."""
    if not _PROGRAM.match(key):
        return ""
    return "false" if key.endswith(".required") else " "


def _fields(listed: bytes) -> list[str]:
    return [part for part in listed.decode("utf-8", "replace").split("\0") if part]


def _total(lines: Sequence[Sequence[str]], column: int) -> int:
    # git writes "-" instead of a number for a binary file.
    return sum(int(entry[column]) for entry in lines if entry[column].isdigit())


@dataclass
class Git(_RunsCommand):
    """Passes when the agent changed something, all of these hold, and the tests (if given) pass.

    Globs are over paths from the root of the repository, or of the workspace. What the agent
    changed is known from a snapshot that was taken before it started. base compares with a commit
    instead. Rows without a snapshot are compared with HEAD, if the workspace is a repository.
    """

    name = "git"
    code_version: ClassVar[str] = "2"  # raise this when a verdict changes
    test: str | list[str] = ""
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    max_files: int | None = None
    max_lines: int | None = None
    base: str = ""
    timeout_s: float = 60.0
    folder: str = ""
    """Where a script of the tests lies; the current folder if empty."""

    def __post_init__(self) -> None:
        for name in ("max_files", "max_lines"):
            if (getattr(self, name) or 0) < 0:
                msg = f"git: {name} cannot be negative"
                raise InputError(msg)
        self._line = CommandLine(
            self.test, self.folder
        )  # refuses a bad command line before anything runs

    @cached_property
    def wants_snapshot(self) -> bool:
        """Whether the folder is to be looked at before the agent starts."""
        return not self.base

    def freeze(self, host: Host) -> None:
        """Refuse a machine without git, before the first agent starts."""
        if shutil.which("git") is None:
            msg = "the grader git needs git, which is not installed"
            raise InputError(msg, hint="install git, for example with: apt-get install git")
        super().freeze(host)

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Look at what changed, then run the tests."""
        changes = self._changes(trial, host)
        wrong = self._unexpected_changes(changes)
        outcome = {
            "type": "git",
            "filesCreated": changes.created[:_LISTED],
            "filesModified": changes.modified[:_LISTED],
            "filesDeleted": changes.deleted[:_LISTED],
            "filesChanged": changes.n_files,
            "insertions": changes.insertions,
            "deletions": changes.deletions,
        }
        if self.test:
            cwd = workspace_of(trial)
            if changes.tree and not host.is_unchanged(cwd, changes.tree):
                msg = f"the workspace has changed since the agent left it: {cwd}"
                raise PluginError(
                    msg, hint="run the tests while capturing, or restore the workspace"
                )
            passed, message = self._run_tests(cwd, host)
            outcome["testsPassed"] = passed
            wrong += [] if passed else [message]
        n_lines = changes.insertions + changes.deletions
        summary = f"{changes.n_files} files changed, {n_lines} lines"
        return Grade(
            pass_=not wrong,
            score=float(not wrong),
            reasoning="; ".join([summary, *wrong]),
            outcome=outcome,
        )

    def _changes(self, trial: Trial, host: Host) -> WorkspaceChanges:
        recorded = None if self.base else trial.row.get("changes")
        if recorded is not None:
            return msgspec.convert(recorded, WorkspaceChanges)
        cwd = workspace_of(trial)
        if not self.base and trial.row.get("identity") and not _is_own(trial):
            msg = "no snapshot was taken before the agent started, and it worked in a shared folder"
            raise PluginError(msg, hint="capture with -g git, or name a commit: git:base=COMMIT")
        return read_changes(cwd, self.base or "HEAD", host, self.timeout_s)

    def _unexpected_changes(self, changes: WorkspaceChanges) -> list[str]:
        paths = [*changes.created, *changes.modified, *changes.deleted]
        wrong = [] if paths else ["nothing changed"]
        if len(paths) < changes.n_files and self.unchanged:
            wrong.append(f"{changes.n_files} files changed, too many to look at each")
        wrong += [f"{glob} did not change" for glob in self.changed if not _any(paths, glob)]
        wrong += [f"{glob} changed" for glob in self.unchanged if _any(paths, glob)]
        if self.max_files is not None and changes.n_files > self.max_files:
            wrong.append(f"more than {self.max_files} files")
        if self.max_lines is not None and changes.insertions + changes.deletions > self.max_lines:
            wrong.append(f"more than {self.max_lines} lines")
        return wrong

    def _run_tests(self, cwd: str, host: Host) -> tuple[bool, str]:
        done = self._line.run(host, cwd, self.timeout_s)
        if done.timed_out:
            msg = f"the tests did not end in {self.timeout_s:g} s"
            raise PluginError(msg)
        refuse_not_started(done)
        return done.exit_code == 0, f"tests: exit code {done.exit_code}\n{tail(done)}".rstrip()


def _is_own(trial: Trial) -> bool:
    """Whether the trial had a workspace of its own."""
    own = trial.row.get("workspaceDir") or trial.metadata.get("workspaceDir")
    return bool(own or (trial.row.get("metadata") or {}).get("workspaceDir"))


def _any(paths: Sequence[str], glob: str) -> bool:
    return any(fnmatchcase(path, glob) for path in paths)
