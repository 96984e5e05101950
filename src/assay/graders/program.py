"""Graders that are programs: run once per trial, or kept running and asked line by line."""

import math
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import PluginError
from assay.graders.frozen import (
    FrozenFile,
    FrozenFiles,
    imported_sources,
    mentions_git,
    program_env,
)
from assay.graders.python_code import fingerprint
from assay.plugin import Grader, Host, Served, Trial
from assay.records.capture import Grade


@dataclass
class ExecutableGrader(Grader):
    """Started for each trial. A .py file that is not executable is run by our own Python."""

    path: str
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        self.name = Path(self.path).stem
        self._file = FrozenFile(Path(self.path).resolve())
        self._frozen = FrozenFiles([self._file])

    @cached_property
    def version(self) -> str:
        """Fingerprint of the file and, in Python, of the modules beside it that it imports."""
        return fingerprint(
            self._file.content, *imported_sources(self._file.path, self._file.content)
        )

    def freeze(self, _host: Host) -> None:
        """Note what the file uses, before the first agent starts."""
        self._file.watch_beside()

    @cached_property
    def files(self) -> list[Path]:
        """The program, and what it names in its folder."""
        return self._file.used()

    @cached_property
    def wants_repository(self) -> bool:
        return mentions_git(files=self.files)

    def changes(self, trial: Trial) -> list[str]:
        """Return what the row of a trial should say about the file."""
        return self._file.changes(trial.cwd)

    def grade(self, trial: Trial, host: Host) -> Grade:
        stdin = msgspec.json.encode(question(trial)) + b"\n"
        done = self._frozen.use(
            lambda where: host.run(
                program(where(self._file.path)),
                stdin=stdin,
                env=program_env(trial.env),
                timeout_s=self.timeout_s,
            )
        )
        self._file.refuse_changes(trial.cwd)
        if done.timed_out:
            msg = f"Grader gave no answer in {self.timeout_s:g} s"
            raise PluginError(msg)
        if done.exit_code != 0:
            stderr = done.stderr.decode("utf-8", "replace").strip()[-500:] or "No error output"
            msg = f"Grader exited with code {done.exit_code}: {stderr}"
            raise PluginError(msg)
        return parse_answer(done.stdout)


def program(path: str) -> list[str]:
    """Return the command line that starts a grader file."""
    if path.endswith(".py") and not os.access(path, os.X_OK):
        return [sys.executable, path]
    return [path]


def question(trial: Trial) -> dict[str, Any]:
    """Return the question's six fields in their fixed order, without those that are not known.

    What the row leaves out is not known; empty metadata that it does contain is.
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


@dataclass
class ServingGrader(ExecutableGrader):
    """Started once for each worker thread, again after a crash, and ended with the command."""

    wants_repository = False  # its variables are those of its start

    def grade(self, trial: Trial, host: Host) -> Grade:
        asked = msgspec.json.encode(question(trial))
        answer = self._frozen.use(
            lambda where: ask_served(
                host.serve(program(where(self._file.path)), env=program_env()),
                asked,
                self.timeout_s,
            )
        )
        self._file.refuse_changes(trial.cwd)
        return parse_answer(answer)


def ask_served(served: Served, question: bytes, timeout_s: float) -> bytes:
    """Put a question to a running program; an error names the grader as what failed."""
    try:
        return served.ask(question, timeout_s)
    except PluginError as error:
        msg = f"Grader {error.message}"
        raise PluginError(msg) from error


_GRADE = '{"pass": true, "score": 1.0}'
_MOST_SHOWN = 60


def parse_answer(answer: bytes) -> Grade:
    """Read one JSON object."""
    text = answer.decode("utf-8-sig", "replace").strip()  # a byte order mark is skipped
    if not text:
        msg = f"Grader produced no output; it prints {_GRADE}, or it is a file that defines grade"
        raise PluginError(msg)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        msg = f"Grader output is not valid JSON: {text[:100]}"
        raise PluginError(msg) from error
    return check_answer(value)


def check_value(value: Any) -> Grade:
    """Check what Python code returned, and that it can be written as JSON."""
    if isinstance(value, bool):
        return Grade(pass_=value, score=float(value))
    if isinstance(value, Grade):
        value = msgspec.to_builtins(value)
    grade = check_answer(value)
    # Only an outcome, or a lone surrogate in the reasoning, can fail to encode.
    if not grade.outcome and (not grade.reasoning or grade.reasoning.isascii()):
        return grade
    try:
        msgspec.json.encode(grade)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"Invalid grader result: cannot be written as JSON: {error}"
        raise PluginError(msg) from error
    return grade


def check_answer(value: Any) -> Grade:
    """Check a value that should be a grade."""
    # The version of a grade is ours to set, not the grader's.
    if isinstance(value, dict) and "version" in value:
        value = {name: field for name, field in value.items() if name != "version"}
    if not isinstance(value, dict):
        shown = f"{value!r}"[:_MOST_SHOWN]
        msg = f"Invalid grader result: {shown}; return {_GRADE}, or True or False from Python"
        raise PluginError(msg)
    try:
        grade = msgspec.convert(value, Grade)
    except msgspec.ValidationError as error:
        msg = f"Invalid grader result: {error}"
        raise PluginError(msg) from error
    if math.isnan(grade.score):
        msg = "Invalid grader result: score is not a number - at `$.score`"
        raise PluginError(msg)
    return grade
