"""A grader that is a Python file with a function `grade`."""

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CoroutineType
from typing import Any, ClassVar

from assay.errors import PluginError
from assay.graders.program import check_value
from assay.graders.python_code import PythonCode, fingerprint
from assay.plugin import Trial
from assay.records.capture import Grade

ARGUMENTS = ("input", "output", "hint", "trajectory", "metadata", "cwd", "reference", "trial")


@dataclass(kw_only=True)
class PythonFile(PythonCode):
    """Loaded once. Its function takes any of ARGUMENTS by name and may be async."""

    name: ClassVar[str] = "python"
    heeds_alarm: ClassVar[bool] = False
    path: str

    def __post_init__(self) -> None:
        self.name = Path(self.path).stem  # type: ignore[misc]

    @cached_property
    def version(self) -> str:
        """Fingerprint of the file; what it imports does not count."""
        return fingerprint(Path(self.path).read_bytes())

    def judge(self, trial: Trial) -> Grade:
        return check_value(self._call(trial))

    @cached_property
    def sees(self) -> frozenset[str] | None:  # type: ignore[override]
        """The fields that the function's arguments name, read without running the file."""
        for statement in ast.parse(Path(self.path).read_bytes()).body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                if statement.name != "grade" or statement.decorator_list:
                    continue
                arguments = statement.args
                names = {a.arg for a in (*arguments.args, *arguments.kwonlyargs)}
                return None if arguments.kwarg or "trial" in names else frozenset(names)
        return None

    @cached_property
    def _call(self) -> Callable[[Trial], Any]:
        function = _load(Path(self.path))
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

    @cached_property
    def _runner(self) -> Any:
        """Runs async functions, all in one event loop: a new loop for each row is slow."""
        import asyncio

        return asyncio.Runner()


def _load(path: Path) -> Callable[..., Any]:
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: files beside it can be imported but shadow no other module
    # The hash keeps apart graders of one file name in several folders.
    name = f"assay_grader_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, "grade", None)
    if not callable(function):
        msg = f"{path}: `grade` is not a function"
        raise PluginError(msg)
    checked: Callable[..., Any] = function
    return checked


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
