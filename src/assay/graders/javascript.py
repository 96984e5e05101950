"""A grader that is a JavaScript or TypeScript module, run by bun or by Node.js."""

import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError, Interrupted, PluginError
from assay.graders.frozen import (
    SETTINGS,
    FrozenFile,
    FrozenFiles,
    Where,
    mentions_git,
    named_data,
    named_variables,
    stamp,
)
from assay.graders.program import check_value, question
from assay.graders.python_code import fingerprint, only_answer
from assay.plugin import Grader, Host, Served, Trial
from assay.records.capture import Grade

_SHIM = Path(__file__).with_name("serve_module.mjs")
_STREAMS = 'exec 3<&0 4>&1 0</dev/null 1>&2; exec "$@"'
"""Keeps questions and answers away from what the module, or a program that it starts, prints."""
_TYPES = (".ts", ".mts")
_CODE = (*_TYPES, ".js", ".mjs", ".cjs", ".cts", ".tsx", ".jsx")
_IMPORT = re.compile(
    rb"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire(?:\.resolve)?\s*\(\s*)(["'`])(\.{1,2}/[^"'`\n]*)\1"""
)
_MOST_FILES = 500
_STRIPS_TYPES = ((22, 18), (23, 6))
"""The first version of Node.js 22 that runs TypeScript, and the first later one."""
_INSTALL = "npm install -g bun, or: curl -fsSL https://bun.sh/install | bash"
_PACKAGE = re.compile(r"Cannot find (?:package|module) ['\"]([^./'\"][^'\"]*)['\"]")


_VARIABLES = "assay:env"
"""In a question: variables for programs that the module starts. serve_module.mjs takes it out."""
_QUICK_S = 0.05
_MOST_ASKED = 256
"""How many trials are sent together while answers come within that time."""


class _Answer(msgspec.Struct):
    value: Any = None
    error: str | None = None
    ended: bool = False

    def get(self) -> Any:
        """Return what the function returned, or raise what it threw."""
        if self.error is not None:
            raise PluginError(self.error)
        return self.value


_ANSWERS = msgspec.json.Decoder(_Answer)
_ENCODER = msgspec.json.Encoder()


@dataclass
class JavaScriptFile(Grader):
    """A module with a function `grade`, or a default export; it may be async.

    It is served by one process for each worker thread, started again after a crash.
    """

    path: str
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        self._file = Path(self.path).resolve()
        self.name = self._file.stem
        self._runtime = _runtime(self._file)
        # Files in the current folder that bun reads, whatever it runs.
        self._bunfig, *self._env = (Path.cwd() / n for n in ("bunfig.toml", ".env", ".env.local"))
        self._main = FrozenFile(self._file)
        self._modules = [self._main, *map(FrozenFile, _imported(self._main))]
        folders = {folder for module in self._modules for folder in module.path.parents}
        settings = [folder / name for folder in sorted(folders) for name in SETTINGS]
        settings += [self._bunfig, *self._env]
        self._frozen = FrozenFiles(self._modules, settings, mode=False)

    @cached_property
    def version(self) -> str:
        """Fingerprint of the file and of the modules that it imports by a relative path."""
        contents = [module.content for module in self._modules]
        named = named_data(self._file.parent, contents)
        return fingerprint(*contents, *named, *named_variables(contents))

    def freeze(self, host: Host) -> None:
        """Load the module once, before the first agent starts, and note what it uses."""
        self.load(host)
        self._frozen.use(lambda where: self._served(where, host)).close()
        modules = [module.path for module in self._modules]
        self._main.watch_beside(besides=modules)

    def load(self, host: Host) -> None:
        """Start the module; an error that all trials would have is raised here."""
        self._refuse_old_node(host)
        try:
            self.ask(None, host)
        except PluginError as error:
            msg = f"{self.path}: the grader cannot be loaded: {error.message}"
            raise InputError(msg, hint=_hint(error.message)) from error

    @cached_property
    def files(self) -> list[Path]:
        """The modules and their settings, and what the first names in its folder; no packages."""
        return [*self._frozen.paths, *self._main.used()]

    @cached_property
    def wants_repository(self) -> bool:
        return mentions_git(files=self.files)

    def changes(self, trial: Trial) -> list[str]:
        """Return what the row of a trial should say about the file and its modules."""
        said = [module.changes(trial.cwd, mode=False) for module in self._modules]
        return [text for texts in said for text in texts]

    def grade(self, trial: Trial, host: Host) -> Grade:
        return only_answer(self.grade_many([trial], host))

    def grade_many(self, trials: Iterable[Trial], host: Host) -> Iterator[Grade | Exception]:
        """Yield for each trial what grade() would return or raise.

        Several are asked at once while that is quick: to wait for each answer takes longer than
        most functions do. A slow one is asked about one trial at a time.
        """
        ahead, size = iter(trials), 1
        while batch := list(islice(ahead, size)):
            started_s = time.monotonic()
            answers = self._ask_all([_question(trial) for trial in batch], host)
            for trial, answer in zip(batch, answers, strict=True):
                yield self._grade(trial, answer)
            quick = time.monotonic() - started_s < _QUICK_S
            size = min(2 * size, _MOST_ASKED) if quick else 1

    def _grade(self, trial: Trial, answer: _Answer) -> Grade | Exception:
        try:
            self._main.refuse_changes(trial.cwd)
            if answer.error is None and answer.value is None:
                msg = "Invalid grader result: `grade` returned nothing, not { pass, score }"
                return PluginError(msg)
            return check_value(answer.get())
        except PluginError as error:
            return error

    def ask(self, asked: dict[str, Any] | None, host: Host) -> Any:
        """Call the function with one argument; None only loads the module."""
        (answer,) = self._ask_all([asked], host)
        return answer.get()

    def _ask_all(self, asked: Sequence[dict[str, Any] | None], host: Host) -> list[_Answer]:
        """Put questions to the module; one that it dies of goes to nobody, the rest to another."""

        def put(where: Where) -> list[_Answer]:
            answers: list[_Answer] = []
            while left := asked[len(answers) :]:
                served = self._served(where, host)
                served.send(_ENCODER.encode_lines(left))
                answers += _received(served, len(left), self.timeout_s)
            return answers

        return self._frozen.use(put)

    def _served(self, where: Where, host: Host) -> Served:
        argv = ["/bin/sh", "-c", _STREAMS, "sh", *self._command(where), where(self._file)]
        return host.serve(argv, show_stderr=True)

    def _command(self, where: Where) -> list[str]:
        if Path(self._runtime).name != "bun":
            return [self._runtime, str(_SHIM)]
        # An agent may write these files where it works, which may be the current folder.
        kept = self._frozen.paths
        config = where(self._bunfig) if self._bunfig in kept else "/dev/null"
        env = [f"--env-file={where(file)}" for file in self._env if file in kept]
        env = env or ["--env-file=/dev/null"]
        return [self._runtime, "--no-install", f"--config={config}", *env, str(_SHIM)]

    def _refuse_old_node(self, host: Host) -> None:
        if self._file.suffix not in _TYPES or Path(self._runtime).name == "bun":
            return
        said = host.run([self._runtime, "--version"]).stdout.decode("utf-8", "replace").strip()
        found = tuple(map(int, re.findall(r"\d+", said)[:2]))
        first = _STRIPS_TYPES[0] if found[:1] == (22,) else _STRIPS_TYPES[1]
        if found < first:
            msg = f"{self.path}: Node.js {said.lstrip('v')} cannot run TypeScript"
            raise InputError(msg, hint=f"install bun ({_INSTALL}), or Node.js 22.18 or later")


def _question(trial: Trial) -> dict[str, Any]:
    return {**question(trial), _VARIABLES: trial.env} if trial.env else question(trial)


def _received(served: Served, n: int, timeout_s: float) -> list[_Answer]:
    """Return the answers to n questions; fewer if the process ended, the last then says why."""
    answers: list[_Answer] = []
    while len(answers) < n:
        try:
            answers += map(_answer, served.receive(timeout_s).splitlines())
        except Interrupted:
            raise
        except PluginError as error:
            answers.append(_Answer(error=f"Grader {error.message}", ended=True))
        if answers and answers[-1].ended:
            served.close()  # it may not have ended yet when the next question comes
            break
    return answers


def _answer(line: bytes) -> _Answer:
    try:
        return _ANSWERS.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        shown = line[:100].decode("utf-8", "replace")
        return _Answer(error=f"Grader output is not valid JSON: {shown}")


def _runtime(file: Path) -> str:
    found = shutil.which("bun") or shutil.which("node")
    if found is None:
        msg = f"{file} needs bun or Node.js, and neither is installed"
        node = "Node.js 22.18 or later" if file.suffix in _TYPES else "Node.js 20 or later"
        raise InputError(msg, hint=f"install bun ({_INSTALL}), or {node}")
    return found


def _hint(error: str) -> str:
    if found := _PACKAGE.search(error):
        return f"install {found[1]} in the grader's folder or in one above it"
    if "TypeScript" in error and "strip" in error:
        return f"Node.js runs only TypeScript whose types can be left out; install bun ({_INSTALL})"
    return ""


def _imported(main: FrozenFile) -> list[Path]:
    """List the modules that a module imports by a relative path, and those that they import."""
    found: dict[Path, None] = {main.path: None}
    texts = [(main.path, main.content)]
    while texts and len(found) < _MOST_FILES:
        path, text = texts.pop()
        for module in _relative(path.parent, text):
            if module not in found:
                found[module] = None
                if module.suffix in _CODE:
                    texts.append((module, module.read_bytes()))
    return list(found)[1:]


def _relative(folder: Path, text: bytes) -> Iterator[Path]:
    for match in _IMPORT.finditer(text):
        name = match[2].decode("utf-8", "replace").partition("?")[0]
        base = folder / name
        # TypeScript's way: the name that the compiled file would have.
        stems = [base.with_suffix("")] if base.suffix in (".js", ".mjs", ".cjs", ".jsx") else []
        for stem in (base, *stems, base / "index"):
            for suffix in ("", *_CODE, ".json"):
                file = stem.with_name(f"{stem.name}{suffix}")
                if stamp(file):
                    yield file.resolve()
