"""A grader that is any program: one JSON object on stdin, one on stdout."""

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.errors import PluginError
from assay.records.capture import Capture
from assay.records.grade import Grade
from assay.seams import Host


@dataclass
class ExecutableGrader:
    """Started anew for each trial. A .py file that is not executable is run by our Python."""

    path: str
    timeout_s: float = 60.0

    @property
    def name(self) -> str:
        """The file's own name."""
        return Path(self.path).stem

    @cached_property
    def version(self) -> str:
        """Fingerprint of the program."""
        return hashlib.sha256(Path(self.path).read_bytes()).hexdigest()[:12]

    def grade(self, trial: Capture, cwd: str | None, host: Host) -> Grade:
        """Ask the program."""
        done = host.run(
            self._argv(),
            stdin=msgspec.json.encode(_question(trial, cwd)) + b"\n",
            timeout_s=self.timeout_s,
        )
        if done.timed_out:
            msg = f"Grader gave no answer in {self.timeout_s:g} s"
            raise PluginError(msg)
        if done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[-500:] or "No error output"
            msg = f"Grader exited with code {done.exit_code}: {said}"
            raise PluginError(msg)
        return parse_grade(done.stdout)

    def _argv(self) -> list[str]:
        if self.path.endswith(".py") and not os.access(self.path, os.X_OK):
            return [sys.executable, self.path]
        return [self.path]


def parse_grade(answer: bytes) -> Grade:
    """Read a grader's answer strictly: types, 0..1, no NaN."""
    text = answer.strip()
    if not text:
        msg = "Grader produced no output"
        raise PluginError(msg)
    try:
        return msgspec.json.decode(text, type=Grade)
    except msgspec.ValidationError as error:
        msg = f"Invalid grader result: {error}"
        raise PluginError(msg) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = text[:100].decode("utf-8", "replace")
        msg = f"Grader output is not valid JSON: {shown}"
        raise PluginError(msg) from error


def _question(trial: Capture, cwd: str | None) -> dict[str, Any]:
    asked: dict[str, Any] = {"input": trial.input, "output": trial.output}
    if trial.hint is not UNSET:
        asked["hint"] = trial.hint
    asked |= {"trajectory": trial.trajectory, "metadata": trial.metadata}
    return asked if cwd is None else asked | {"cwd": cwd}
