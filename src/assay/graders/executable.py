"""A grader that is any program: one JSON object on stdin, one on stdout."""

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import PluginError
from assay.graders.answer import parse_answer
from assay.graders.fingerprint import fingerprint
from assay.records.grade import Grade
from assay.seams import Host, Trial


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
        return fingerprint(Path(self.path).read_bytes())

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Ask the program."""
        done = host.run(
            program(self.path),
            stdin=msgspec.json.encode(question(trial)) + b"\n",
            timeout_s=self.timeout_s,
        )
        if done.timed_out:
            msg = f"Grader gave no answer in {self.timeout_s:g} s"
            raise PluginError(msg)
        if done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[-500:] or "No error output"
            msg = f"Grader exited with code {done.exit_code}: {said}"
            raise PluginError(msg)
        return parse_answer(done.stdout)


def program(path: str) -> list[str]:
    """Say how to start a grader file."""
    if path.endswith(".py") and not os.access(path, os.X_OK):
        return [sys.executable, path]
    return [path]


def question(trial: Trial) -> dict[str, Any]:
    """Give the seed's six fields, those that are known, in the seed's order.

    Nothing is known of what the row leaves out; an empty metadata counts where it stands there.
    """
    row = trial.row
    has_steps = bool(trial.trajectory) or not row or "trajectory" in row
    has_metadata = bool(trial.metadata) or row.get("metadata") == trial.metadata
    asked = {
        "input": trial.input,
        "output": trial.output,
        "hint": trial.hint,
        "trajectory": trial.trajectory if has_steps else None,
        "metadata": trial.metadata if has_metadata else None,
        "cwd": trial.cwd,
    }
    return {name: value for name, value in asked.items() if value is not None}
