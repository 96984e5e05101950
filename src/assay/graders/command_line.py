"""An operator's command line: which of its words is a script of the operator's own."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from assay.errors import InputError
from assay.graders.frozen import FrozenFile, FrozenFiles, Where, mentions_git, program_env
from assay.plugin import Finished, Host, Trial

_INTERPRETER = re.compile(
    r"(python|pypy|ruby|perl|php|lua|node|deno|bun|tsx|ts-node|uv|Rscript|julia"
    r"|sh|bash|dash|zsh|ksh)[\d.]*"
)
"""Programs whose first argument is a script."""
_NO_SCRIPT = ("-c", "-m", "-e", "-p", "--eval", "--print")
"""Their options behind which there is no script: code, or the name of a module."""
_WITH_VALUE = ("-W", "-X", "-r", "--require", "--import", "--with")
_SUBCOMMANDS = {"deno": "run", "bun": "run", "uv": "run"}
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SYSTEM = ("/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/", "/usr/lib/")
_LARGEST = 1024 * 1024
_WRAPPERS = ("env", "timeout", "nice", "time", "stdbuf")


class CommandLine:
    """Words, run in a workspace without a shell.

    A script that is in the folder (default: the current one) when this is built is the operator's:
    that file is run, as it was then. All other words mean what they mean in the workspace.
    """

    def __init__(self, command: str | list[str], folder: str = "") -> None:
        self.words = words(command)
        self.script: FrozenFile | None = None
        self._argv = list(self.words)
        self._at = -1
        if self.words and _is_interpreter(self.words[0]) and "/" in self.words[0]:
            # Not resolved: an interpreter finds its packages by the name of its link.
            self._argv[0] = os.path.abspath(Path(folder, self.words[0]))  # noqa: PTH100
            if not Path(self._argv[0]).is_file():
                self._argv[0] = self.words[0]
        for at in _script_positions(self.words):
            path = Path(folder, self.words[at])
            if path.is_file() and os.access(path, os.W_OK):  # others, the agent cannot write either
                self.script, self._at = FrozenFile(path.resolve()), at
                self._frozen = FrozenFiles([self.script])
                break

    @property
    def mentions_git(self) -> bool:
        """Whether the command, or its script, may ask git."""
        script = [self.script.content] if self.script is not None else []
        return mentions_git(*map(os.fsencode, self.words), *script)

    def own_program(self) -> bytes:
        """Return the script that PATH finds for the command; nothing for a native program.

        Its first line is left out: it names an interpreter, which may stand elsewhere on another
        machine. Nor do native programs count, which differ from machine to machine.
        """
        name = self.words[0] if self.words else ""
        path = shutil.which(name) if name and "/" not in name and not _starts_others(name) else None
        try:
            file = Path(path or "").resolve()
            if path is None or str(file).startswith(_SYSTEM) or file.stat().st_size > _LARGEST:
                return b""
            content = file.read_bytes()
        except OSError:
            return b""
        return content.partition(b"\n")[2] if content.startswith(b"#!") else b""

    def run(
        self, host: Host, cwd: str, timeout_s: float, env: Mapping[str, str] | None = None
    ) -> Finished:
        """Run the command to its end, or to the timeout."""
        script, twin = self.script, self._workspace_copy(cwd)
        variables = program_env(env)
        if script is None:
            return host.run(self._argv, cwd=cwd, env=variables, timeout_s=timeout_s)

        def run_script(where: Where) -> Finished:
            path = where(script.path)
            word = self.words[self._at] if path == str(twin) else path
            argv = [*self._argv[: self._at], word, *self._argv[self._at + 1 :]]
            return host.run(argv, cwd=cwd, env=variables, timeout_s=timeout_s)

        done = self._frozen.use(run_script, twin)
        script.refuse_changes(cwd)
        return done

    def changes(self, trial: Trial) -> list[str]:
        """Return what the row of a trial should say about the script."""
        script = self.script
        if script is None:
            return []
        changes = script.changes(trial.cwd)
        twin = self._workspace_copy(trial.cwd or "")
        if twin is not None and script.differs_at(twin):
            word = self.words[self._at]
            changes.append(f"{word} in the workspace differs from {script.path}, which was run")
        return changes

    def _workspace_copy(self, cwd: str) -> Path | None:
        """Return where the workspace may have a copy of the script, as of all in its template."""
        if self.script is None or not cwd or Path(self.words[self._at]).is_absolute():
            return None
        twin = Path(cwd) / self.words[self._at]
        return None if twin.resolve() == self.script.path else twin


def words(command: str | list[str]) -> list[str]:
    """Split an operator's command as a shell would, without one."""
    if isinstance(command, list):
        return command
    try:
        return shlex.split(command)
    except ValueError as error:
        msg = f"cannot be split into words: {command!r}: {error}"
        raise InputError(msg) from error


def _script_positions(argv: list[str]) -> list[int]:
    """Return where a script may stand: as the program itself, and behind each interpreter."""
    found = [0] if argv and "/" in argv[0] and not _starts_others(argv[0]) else []
    behind = [_script_position(argv, at) for at, word in enumerate(argv) if _is_interpreter(word)]
    return found + [at for at in behind if at is not None]


def _script_position(argv: list[str], interpreter: int) -> int | None:
    """Return the position of an interpreter's script."""
    at = interpreter + 1
    if argv[at : at + 1] == [_SUBCOMMANDS.get(Path(argv[interpreter]).name)]:
        at += 1
    is_shell = Path(argv[interpreter]).name in _SHELLS
    while at < len(argv) and argv[at].startswith("-"):
        has_code, has_value = argv[at] in _NO_SCRIPT, argv[at] in _WITH_VALUE
        if is_shell:  # its short options may stand together, as in -ec or -eo pipefail
            short = not argv[at].startswith("--")
            has_code, has_value = short and "c" in argv[at], short and argv[at].endswith("o")
        if has_code:
            return None
        at += 2 if has_value else 1
    return at if at < len(argv) else None


def _starts_others(word: str) -> bool:
    return _is_interpreter(word) or Path(word).name in _WRAPPERS


def _is_interpreter(word: str) -> bool:
    return _INTERPRETER.fullmatch(Path(word).name) is not None
