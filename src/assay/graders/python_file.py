"""A grader that is a Python file with a function `grade`."""

import ast
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CoroutineType
from typing import Any, BinaryIO

import msgspec

from assay.errors import AssayError, InputError, Interrupted, PluginError
from assay.graders.frozen import FrozenFile, digest, stamp
from assay.graders.frozen_python import FrozenCode, Used, Watch, list_used, load
from assay.graders.program import check_value
from assay.graders.python_code import PythonCode, fingerprint
from assay.plugin import Host, Trial
from assay.records.capture import Grade
from assay.records.files import temporary_file
from assay.records.spec import PluginRef

ARGUMENTS = ("input", "output", "hint", "trajectory", "metadata", "cwd", "reference", "trial")


@dataclass(kw_only=True)
class PythonFile(PythonCode):
    """Loaded once. Its function takes any of ARGUMENTS by name and may be async.

    frozen is for processes of ours: the file as another process has read it.
    """

    name = "python"
    only_computes = False
    path: str
    frozen: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.name = Path(self.path).stem
        self._files: list[FrozenFile] = []
        self._written: BinaryIO | None = None
        if self.frozen is not None:
            self._code = msgspec.convert(self.frozen, FrozenCode)
            return
        file = FrozenFile(Path(self.path).resolve())
        self._files = [file]
        self._code = FrozenCode(path=str(file.path), source=file.content)

    @cached_property
    def version(self) -> str:
        """Fingerprint of the file; what it imports does not count."""
        return fingerprint(self._code.source)

    def freeze(self, host: Host) -> None:
        """Load the file once, before the first agent starts, and note what it uses."""
        function = f"{list_used.__module__}:{list_used.__name__}"
        child: Any = host.serve_function(function, msgspec.json.encode(self._code).decode())
        try:
            used = msgspec.json.decode(child.ask(b"?", self.timeout_s), type=Used)
        except Interrupted:
            raise
        except AssayError as error:
            used = Used(error=error.message)
        finally:
            child.close()  # with all that it has started
        if used.error:
            msg = f"{self.path}: the grader cannot be loaded: {used.error}"
            raise InputError(msg, hint="import what the agent is to write inside of grade()")
        sources = [Path(m.path) for m in used.modules.values() if m.source is not None]
        self._files[0].watch_beside(besides=sources)
        self._files += map(FrozenFile, sources)
        self._written = temporary_file()  # without a name; open as long as the run
        self._code.written = f"/proc/{os.getpid()}/fd/{self._written.fileno()}"
        self._code.modules = used.modules
        stamps = {path: stamp(path) for path in used.files}
        self._code.files = {path: (s, digest(path)) for path, s in stamps.items() if s}
        self._code.since_ns = time.time_ns()

    @property
    def files(self) -> list[Path]:
        """The file, what it names in its folder and, once frozen, what it used when loaded."""
        found = {*self._files[0].used(), *(file.path for file in self._files)}
        return sorted({*found, *map(Path, self._code.files)})

    def changes(self, trial: Trial) -> list[str]:
        """Return what the row of a trial should say about the file and its modules."""
        said = [file.changes(trial.cwd, mode=False) for file in self._files]
        return [text for texts in said for text in texts]

    def judge(self, trial: Trial) -> Grade:
        watch, call = self._watch, self._call
        if watch is None:
            return check_value(call(trial))
        watch.begin()
        try:
            return check_value(call(trial))
        finally:
            watch.refuse_changes(trial.cwd)

    @cached_property
    def sees(self) -> frozenset[str] | None:  # type: ignore[override]
        """The fields that the function's arguments name, read without running the file."""
        for statement in ast.parse(self._code.source).body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                if statement.name != "grade" or statement.decorator_list:
                    continue
                arguments = statement.args
                names = {a.arg for a in (*arguments.args, *arguments.kwonlyargs)}
                return None if arguments.kwarg or "trial" in names else frozenset(names)
        return None

    @cached_property
    def _reference(self) -> str:
        code = msgspec.to_builtins(self._code)
        options = {"path": self.path, "timeout_s": self.timeout_s, "frozen": code}
        return msgspec.json.encode(PluginRef(name="python", options=options)).decode()

    @cached_property
    def _watch(self) -> Watch | None:
        return Watch(self._code) if self._code.since_ns else None

    @cached_property
    def _call(self) -> Callable[[Trial], Any]:
        watch = self._watch  # begins before the file is loaded
        try:
            function = getattr(load(self._code), "grade", None)
        finally:
            if watch is not None:
                watch.refuse_loaded()
        if not callable(function):
            msg = f"{self.path}: `grade` is not a function"
            raise PluginError(msg)
        wanted = _arguments(function, self.path)

        fields = [name for name in wanted if name != "trial"]
        whole = len(fields) < len(wanted)

        def call(trial: Trial) -> Any:
            arguments = {name: getattr(trial, name) for name in fields}
            if whole:
                arguments["trial"] = trial
            value = function(**arguments)
            return self._runner.run(value) if isinstance(value, CoroutineType) else value

        return call


def _arguments(function: Callable[..., Any], path: str) -> list[str]:
    """Return the names of the arguments to call the function with."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(ARGUMENTS[:-1])  # all but the whole trial
    names = [p.name for p in parameters if p.name in ARGUMENTS and p.kind is not p.VAR_POSITIONAL]
    unknown = [
        p.name
        for p in parameters
        if p.kind is p.POSITIONAL_ONLY or (p.name not in names and p.default is p.empty)
    ]
    if unknown:
        msg = f"{path}: grade() has an argument {', '.join(unknown)!r} that Assay does not provide"
        raise PluginError(msg, hint=f"it may take these arguments: {', '.join(ARGUMENTS)}")
    return names
