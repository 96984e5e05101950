"""A grader that is a Python file with a function `grade`, as it was before the first agent started.

Before the run the grader is loaded once, in a process that ends then: this shows which modules
it imports and which files it reads. Processes that load it later get the modules as they were.
Other files cannot be given to them in the same way: if one that they read has changed, there is no
verdict.
"""

import ast
import contextlib
import hashlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CoroutineType, ModuleType
from typing import Any, BinaryIO

import msgspec

from assay import system
from assay.errors import AssayError, InputError, Interrupted, PluginError
from assay.graders.frozen import (
    FrozenFile,
    Stamp,
    digest,
    imported_sources,
    is_own,
    mentions_git,
    refuse,
    stamp,
)
from assay.graders.program import check_value
from assay.graders.python_code import PythonCode, fingerprint
from assay.plugin import Host, Trial
from assay.records.capture import Grade
from assay.records.files import named_temporary_file
from assay.records.spec import PluginRef
from assay.system import is_of_system

ARGUMENTS = ("input", "output", "hint", "trajectory", "metadata", "cwd", "reference", "trial")


class FrozenModule(msgspec.Struct, frozen=True):
    """A module's source; None for a folder that is a package without a file of its own."""

    path: str
    source: bytes | None
    search: list[str] | None


class FrozenCode(msgspec.Struct, kw_only=True):
    """A grader's file, and all that it used when it was loaded."""

    path: str
    source: bytes
    version: str = ""
    modules: dict[str, FrozenModule] = {}
    files: dict[str, tuple[Stamp, str]] = {}
    """The stamp and the hash of each file that it read."""
    since_ns: int = 0
    """When this was noted; 0 if no agent can have changed anything."""
    written: str = ""
    """A file in which the grader's processes note what they write themselves."""
    sealed: bool = False
    """It is somebody else's: an attempt to write, to connect or to start a program ends it."""


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
        version = fingerprint(file.content, *imported_sources(file.path, file.content))
        self._code = FrozenCode(path=str(file.path), source=file.content, version=version)

    @property
    def version(self) -> str:
        """Fingerprint of the file and of the modules beside it that it imports."""
        return self._code.version

    def freeze(self, host: Host) -> None:
        """Load the file once, before the first agent starts, and note what it uses."""
        child: Any = host.serve_function(
            f"{__name__}:list_used", msgspec.json.encode(self._code).decode()
        )
        try:
            used = msgspec.json.decode(child.ask(b"?", self.timeout_s), type=UsedFiles)
        except Interrupted:
            raise
        except AssayError as error:
            used = UsedFiles(error=error.message)
        finally:
            child.close()  # with all that it has started
        if used.error:
            msg = f"{self.path}: the grader cannot be loaded: {used.error}"
            raise InputError(msg, hint="import what the agent is to write inside of grade()")
        sources = [Path(m.path) for m in used.modules.values() if m.source is not None]
        self._files[0].watch_beside(besides=sources)
        self._files += map(FrozenFile, sources)
        self._written = written = named_temporary_file()  # open as long as the run
        self._code.written = system.path_to(written.fileno()) or written.name
        if self._code.written != written.name:
            Path(written.name).unlink()  # nobody finds it by a name
        self._code.modules = used.modules
        stamps = {path: stamp(path) for path in used.files}
        self._code.files = {path: (s, digest(path)) for path, s in stamps.items() if s}
        self._code.since_ns = time.time_ns()

    @property
    def files(self) -> list[Path]:
        """The file, what it names in its folder and, once frozen, what it used when loaded."""
        if not self._files:  # of a process of ours
            return [Path(self._code.path)]
        found = {*self._files[0].used(), *(file.path for file in self._files)}
        return sorted({*found, *map(Path, self._code.files)})

    @cached_property
    def wants_repository(self) -> bool:
        return mentions_git(files=self.files)

    def changes(self, trial: Trial) -> list[str]:
        """Return what the row of a trial should say about the file and its modules."""
        said = [file.changes(trial.cwd, mode=False) for file in self._files]
        return [text for texts in said for text in texts]

    def judge(self, trial: Trial) -> Grade:
        watch, call = self._watch, self._call
        if self._code.sealed:
            return _judge_sealed(call, trial)
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
    def _watch(self) -> "FileWatch | None":
        return FileWatch(self._code) if self._code.since_ns else None

    @cached_property
    def _call(self) -> Callable[[Trial], Any]:
        if self._code.sealed:
            _refuse_acts()
        watch = self._watch  # begins before the file is loaded
        try:
            module = load(self._code)
        finally:
            if watch is not None:
                watch.refuse_loaded()
        function = getattr(module, "grade", None)
        if function is None and callable(other := getattr(module, _OF_PROMPTFOO, None)):
            return partial(_call_as_promptfoo, other)
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


def _judge_sealed(call: Callable[[Trial], Any], trial: Trial) -> Grade:
    try:
        return check_value(call(trial))
    finally:
        if _acts:  # also where its code has caught the exception
            msg = f"it tried {_acts[0]}, and a grader of a bundle may do nothing but judge"
            raise PluginError(msg)


_acts: list[str] = []
"""What a sealed grader tried in this process, which is a fork that judges and does nothing else."""
_ACTS = {
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto"), "to connect"),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname"), "to connect"),
    **dict.fromkeys(("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link"), "to write"),
    **dict.fromkeys(("os.symlink", "os.truncate", "os.chmod", "os.chown"), "to write"),
    **dict.fromkeys(("subprocess.Popen", "os.posix_spawn", "os.system"), "to start a program"),
    **dict.fromkeys(("os.exec", "os.fork", "os.forkpty", "ctypes.dlopen"), "to start a program"),
}


def _refuse_acts() -> None:
    """Let nothing in this process write, connect or start a program from now on."""

    def refuse_act(event: str, args: tuple[Any, ...]) -> None:
        act = _ACTS.get(event, "")
        if event == "open" and isinstance(args[2], int) and args[2] & (_WRITES | os.O_CREAT):
            act = "to write"
        if act:
            about = next((str(one) for one in args if isinstance(one, str | bytes | tuple)), "")
            _acts.append(f"{act} ({event} {about[:100]})".replace(" )", ")"))
            msg = f"a grader of a bundle may not do this: {event}"
            raise PermissionError(msg)

    sys.addaudithook(refuse_act)


_OF_PROMPTFOO = "get_assert"


def _call_as_promptfoo(function: Callable[..., Any], trial: Trial) -> Any:
    """Call a function that was written as an assertion of promptfoo; return its value as ours."""
    values = trial.metadata.get("vars") or {}
    test = {"vars": values, "metadata": trial.metadata}
    value = function(trial.output, {"vars": values, "prompt": trial.input, "test": test})
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"pass": value > 0, "score": value}
    if isinstance(value, dict) and "reason" in value:
        kept = {key: value[key] for key in ("pass", "score") if key in value}
        return {**kept, "reasoning": str(value["reason"])}
    return value


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


_WRITES = os.O_WRONLY | os.O_RDWR
_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.system", "os.fork", "os.forkpty"})
_MAKES = frozenset({"os.mkdir", "os.rmdir", "os.remove"})
_LISTS = frozenset({"os.listdir", "os.scandir"})
_TICK_NS = 20_000_000
"""Times of files are that much behind the clock at most."""
_INSTALLED = ("/site-packages/", "/dist-packages/")
_NOT_OURS = (f"{Path(os.__file__).parent}/", f"{Path(__file__).parents[1]}/")
"""The standard library and Assay itself."""


_CODE = msgspec.json.Decoder(FrozenCode)


class UsedFiles(msgspec.Struct, kw_only=True):
    """What a grader used when it was loaded, or why it could not be."""

    modules: dict[str, FrozenModule] = {}
    files: list[str] = []
    error: str = ""


def list_used(code: str) -> Callable[[bytes], Iterator[bytes]]:
    """Return a function that loads a grader and tells what it used; for a forked process."""
    frozen = _CODE.decode(code)

    def answer(_lines: bytes) -> Iterator[bytes]:
        known = set(sys.modules)
        watch = FileWatch(frozen)
        try:
            load(frozen)
            modules = _new_modules(known)
            used = UsedFiles(modules=modules, files=_others(watch, modules))
        except BaseException as error:  # noqa: BLE001 - a user's code may raise anything
            text = error.message if isinstance(error, AssayError) else str(error)
            used = UsedFiles(
                error=f"{type(error).__name__}: {text}".encode(errors="replace").decode()
            )
        yield msgspec.json.encode(used) + b"\n"

    return answer


def _new_modules(known: set[str]) -> dict[str, FrozenModule]:
    """Read the modules that were imported and do not belong to Python or an installed package."""
    found = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or name in known or isinstance(spec.loader, _FrozenLoader):
            continue
        search = getattr(module, "__path__", None)
        search = None if search is None else [str(path) for path in search]
        if isinstance(spec.loader, SourceFileLoader) and not _is_installed(spec.origin):
            source = Path(spec.origin).read_bytes()
            found[name] = FrozenModule(str(spec.origin), source, search)
        elif spec.origin is None and search and not any(map(_is_installed, search)):
            found[name] = FrozenModule(search[0], None, search)
    return found


def _others(watch: "FileWatch", modules: dict[str, FrozenModule]) -> list[str]:
    """Return the files that were read besides modules; compiled modules are among them."""
    loaded = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    files = {*watch.read, *(os.path.realpath(file) for file in loaded if file.endswith(".so"))}
    files -= {os.path.realpath(module.path) for module in modules.values()}
    return sorted(file for file in files if not (_is_installed(file) or file.endswith(".pyc")))


def _is_installed(path: str) -> bool:
    folder = path.rstrip("/") + "/"
    is_known = folder.startswith(_NOT_OURS) or is_of_system(path)
    return is_known or any(part in folder for part in _INSTALLED)


class FileWatch:
    """Notes which files this process opens and which folders it lists, by Python's audit events.

    The grader's own folder may be listed: the output of the run may be in it.
    """

    def __init__(self, code: FrozenCode) -> None:
        self._code = code
        self._folder = str(Path(code.path).parent)
        self.read: set[str] = set()
        self._written: set[str] = set()
        self._began_ns = 0
        self._started_programs = False
        sys.addaudithook(self._on_event)

    def begin(self) -> None:
        """Call this when the grader is asked about a trial."""
        self._began_ns, self._started_programs = time.time_ns() - _TICK_NS, False

    def refuse_loaded(self) -> None:
        """Raise if a file that was read while the grader was loaded is not what it was."""
        for path in list(self.read):
            then, content = self._code.files.get(path, (None, ""))
            if then is None:
                self._refuse_new(path, None)
            elif stamp(path) != then and (not content or digest(path) != content):
                self._refuse(path)
        self.read = set()

    def refuse_changes(self, cwd: str | None) -> None:
        """Raise if a file of the grader's that it has read since has changed during the run."""
        workspace = os.path.realpath(cwd) if cwd else None
        for path in list(self.read):
            self._refuse_new(path, workspace)
        self.read = set()

    def _refuse_new(self, path: str, workspace: str | None) -> None:
        if is_own(path, self._folder, workspace):
            changed_ns = _changed_ns(path)
            if changed_ns <= self._code.since_ns:
                return
            if self._started_programs and changed_ns >= self._began_ns:
                self._note_written(path)  # by a program that the grader has started, it seems
            self._refuse(path)

    def _refuse(self, path: str) -> None:
        written = self._all_written()
        if path not in written and not any(other.startswith(f"{path}/") for other in written):
            self.read = set()
            raise refuse(path)

    def _all_written(self) -> set[str]:
        """Return what the processes of this grader have written so far."""
        try:
            noted = Path(self._code.written).read_text(errors="surrogateescape")
        except OSError:
            return self._written
        return self._written | set(noted.split("\0"))

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, str | bytes | os.PathLike):
                if isinstance(flags, int) and flags & _WRITES:
                    self._note_written(path)
                else:
                    self.read.add(_real(path))
        elif event == "os.rename" and isinstance(args[1], str | bytes):
            self._note_written(args[1])
        elif event in _MAKES and isinstance(args[0], str | bytes):
            self._note_written(args[0])
        elif event in _LISTS and isinstance(args[0], str | bytes):
            self.read.add(_real(args[0]))
        elif event in _STARTS:
            self._started_programs = True

    def _note_written(self, path: Any) -> None:
        real = _real(path)
        if real in self._written or not is_own(real, self._folder, None):
            return
        self._written.add(real)
        with contextlib.suppress(OSError):
            fd = os.open(self._code.written, os.O_WRONLY | os.O_APPEND)
            os.write(fd, real.encode(errors="surrogateescape") + b"\0")
            os.close(fd)


def _changed_ns(path: str) -> int:
    """Return when a file was last changed, or a folder got or lost a file; 0 if it is gone."""
    try:
        return os.stat(path).st_ctime_ns  # noqa: PTH116
    except OSError:
        return 0


def _real(path: Any) -> str:
    with contextlib.suppress(OSError, ValueError):
        return os.path.realpath(os.fsdecode(path))
    return ""


def load(code: FrozenCode) -> ModuleType:
    """Run the grader's file as it was read, with its modules as they were."""
    path = Path(code.path)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: files beside it can be imported but shadow no other module
    if code.since_ns:
        at = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0
        sys.meta_path.insert(at, _Finder(code.modules, folder))
    # The hash keeps apart graders of one file name in several folders.
    name = f"assay_grader_{hashlib.sha256(code.path.encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path, loader=_FrozenLoader(name, code.path, code.source))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _FrozenLoader(SourceFileLoader):
    """Loads source that was read before, or else from the file; never the bytecode beside it."""

    def __init__(self, name: str, path: str, source: bytes | None = None) -> None:
        super().__init__(name, path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        if self._source is not None and path == self.path:
            return self._source
        return super().get_data(path)

    def path_stats(self, path: Any) -> Any:
        msg = f"{path}: bytecode is not used"
        raise OSError(msg)  # which SourceLoader expects


class _Finder:
    """Finds the modules that were read before; for others in the grader's folder, their source."""

    def __init__(self, modules: dict[str, FrozenModule], folder: str) -> None:
        self._modules = modules
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = self._modules.get(name)
        if known is None:
            return self._other(PathFinder.find_spec(name, path, target))
        if known.source is None:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = known.search
            return spec
        loader = _FrozenLoader(name, known.path, known.source)
        search = known.search
        return spec_from_file_location(
            name, known.path, loader=loader, submodule_search_locations=search
        )

    def _other(self, spec: ModuleSpec | None) -> ModuleSpec | None:
        loader = spec.loader if spec is not None else None
        if spec is None or type(loader) is not SourceFileLoader:
            return spec
        if is_own(os.path.realpath(loader.path), self._folder, None):
            spec.loader = _FrozenLoader(spec.name, loader.path)
        return spec
