"""Built-in `command`: run a command in the workspace, such as its tests; the exit code judges."""

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from assay.errors import InputError, PluginError
from assay.graders.fingerprint import built_in_version
from assay.records.grade import Grade
from assay.seams import Finished, Host, Trial

_TAIL_CHARS = 1500
_CANNOT_RUN = {126: "cannot be executed", 127: "was not found"}


@dataclass
class Command:
    """The command is the operator's own; nothing the agent wrote becomes part of it.

    run is words, as a shell would split them but without a shell; sh is a script for /bin/sh.
    limit_s: longer than that is the agent's fault; without it only --grader-timeout holds, and
    whoever hits that is not graded.
    """

    name: ClassVar[str] = "command"
    sees: ClassVar[frozenset[str]] = frozenset({"cwd"})
    run: str | list[str] = ""
    sh: str | None = None
    exit_code: int = 0
    limit_s: float | None = None
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if bool(self.run) == bool(self.sh):
            msg = "command: give either words (run) or a script (sh)"
            raise InputError(msg, hint="for example: -g 'command:pytest -q'")
        if self.limit_s is not None and not self.limit_s > 0:
            msg = f"command: limit_s={self.limit_s:g} leaves the agent no time"
            raise InputError(msg, hint="give seconds, more than 0")
        _ = self._argv

    @cached_property
    def version(self) -> str:
        """Fingerprint of code and options; what the command does is not seen."""
        return built_in_version(self)

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Run it where the agent worked."""
        limits = [self.timeout_s, *([self.limit_s] if self.limit_s is not None else [])]
        done = host.run(self._argv, cwd=workspace_of(trial), timeout_s=min(limits))
        if done.timed_out:
            return self._too_slow(done)
        if done.exit_code != self.exit_code:
            refuse_unrun(done)
        passed = done.exit_code == self.exit_code
        said = f"exit code {done.exit_code}"
        if not passed:
            said = f"{said}\n{tail(done)}".rstrip()
        return Grade(pass_=passed, score=float(passed), reasoning=said)

    def _too_slow(self, done: Finished) -> Grade:
        if self.limit_s is None or self.limit_s > self.timeout_s:
            msg = f"the command did not end in {self.timeout_s:g} s"
            raise PluginError(msg)
        said = f"did not end in {self.limit_s:g} s\n{tail(done)}".rstrip()
        return Grade(pass_=False, score=0.0, reasoning=said)

    @cached_property
    def _argv(self) -> list[str]:
        return ["/bin/sh", "-c", self.sh] if self.sh else words(self.run)


def words(command: str | list[str]) -> list[str]:
    """Split an operator's command as a shell would, without one."""
    if isinstance(command, list):
        return command
    try:
        return shlex.split(command)
    except ValueError as error:
        msg = f"cannot be split into words: {command!r}: {error}"
        raise InputError(msg) from error


def refuse_unrun(done: Finished) -> None:
    """Raise where a shell says that it could not even start the command."""
    why = _CANNOT_RUN.get(done.exit_code or 0)
    if why:
        msg = f"exit code {done.exit_code}: a command {why}: {tail(done)}"
        raise PluginError(msg)


def workspace_of(trial: Trial) -> str:
    """Give the folder the agent worked in."""
    if trial.cwd is None:
        msg = "no workspace to look at: the row has no cwd that is still there"
        raise PluginError(msg, hint="capture with --workspace-dir")
    if not Path(trial.cwd).is_dir():
        msg = f"the workspace is gone: {trial.cwd}"
        raise PluginError(msg)
    return trial.cwd


def tail(done: Finished) -> str:
    """Give the end of what a command said."""
    said = done.stdout.rstrip() + b"\n" + done.stderr.rstrip()
    text = said.strip().decode("utf-8", "replace")
    return text if len(text) <= _TAIL_CHARS else f"…{text[-_TAIL_CHARS:]}"
