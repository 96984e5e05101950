"""Find a plugin by name. Built-ins and other people's packages are treated alike."""

import ast
import inspect
import os
import re
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin, get_type_hints

import msgspec

from assay.errors import InputError, PluginError
from assay.plugin import Adapter, Benchmark, Executor, Grader
from assay.records.rows import UNREADABLE, decode_json, explain
from assay.records.spec import PluginRef
from assay.records.text import closest

BUILT_IN = {
    "assay.adapters": {
        "declared": "assay.adapters.declared:DeclaredAdapter",
        "demo": "assay.adapters.demo:demo_adapter",
        "simple": "assay.adapters.text:SimpleAdapter",
        "shell": "assay.adapters.text:ShellAdapter",
        "acp": "assay.adapters.acp:AcpAdapter",
        "auggie": "assay.adapters.acp.named:auggie",
        "cline": "assay.adapters.acp.named:cline",
        "copilot": "assay.adapters.acp.named:copilot",
        "goose": "assay.adapters.acp.named:goose",
        "qwen": "assay.adapters.acp.named:qwen",
        "replay": "assay.adapters.replay:ReplayAdapter",
        "random": "assay_arc.players:random_player",
        "search": "assay_arc.players:search_player",
        "claude": "assay.adapters.claude:ClaudeAdapter",
        "codex": "assay.adapters.codex:CodexAdapter",
        "gemini": "assay.adapters.gemini:GeminiAdapter",
        "opencode": "assay.adapters.opencode:OpenCodeAdapter",
        "oracle": "assay.adapters.text:OracleAgent",
        "nop": "assay.adapters.text:NopAgent",
    },
    "assay.graders": {
        "executable": "assay.graders.program:ExecutableGrader",
        "python": "assay.graders.python_file:PythonFile",
        "serve": "assay.graders.program:ServingGrader",
        "javascript": "assay.graders.javascript:JavaScriptFile",
        "exact": "assay.graders.answer:Exact",
        "contains": "assay.graders.answer:Contains",
        "regex": "assay.graders.answer:Regex",
        "numeric": "assay.graders.answer:Numeric",
        "json-schema": "assay.graders.answer:JsonSchema",
        "command": "assay.graders.workspace:Command",
        "git": "assay.graders.workspace:Git",
        "tools": "assay.graders.trajectory:Tools",
        "skill": "assay.graders.trajectory:Skill",
        "file": "assay.graders.workspace:File",
        "trigger": "assay.graders.trajectory:Trigger",
        "judge": "assay.graders.judge:Judge",
        "limits": "assay.graders.effort:Limits",
        "arc": "assay_arc.benchmark:ArcGrader",
        "harbor": "assay.benchmarks.harbor:HarborGrader",
    },
    "assay.commands": {"arc": "assay_arc.commands:command"},
    "assay.executors": {
        "local": "assay.executors:LocalExecutor",
        "ray": "assay.executors.ray:RayExecutor",
    },
    "assay.benchmarks": {
        "prompts": "assay.benchmarks:PromptFile",
        "skills": "assay.benchmarks.skills:SkillEvals",
        "arc": "assay_arc.benchmark:ArcBenchmark",
        "harbor": "assay.benchmarks.harbor:HarborBenchmark",
        "inspect-log": "assay.benchmarks.inspect_log:InspectLog",
    },
}
"""A copy of the entry points in pyproject.toml (a test keeps them equal). Looking a name up here
first saves reading the metadata of all installed packages at every start."""


_OF_LIBRARY = {
    "assay.adapters": {
        "function": "assay.adapters.function:FunctionAdapter",
        "model": "assay.adapters.model:ModelAdapter",
    },
    "assay.graders": {"function": "assay.graders.function:FunctionGrader"},
}
"""What only a Python program can use, and the model that judges and simulated users ask; no list of
plugins names these."""


_NO_AGENTS = frozenset(
    {"declared", "nop", "oracle", "random", "replay", "search", "shell", "simple"}
)
"""Adapters that stand in for an agent, or that have options of their own."""


def adapter(ref: PluginRef) -> Adapter:
    """Return the adapter that ref names. Adapters hold no state, so each is built once."""
    return _built(Adapter, "assay.adapters", ref)


def grader(ref: PluginRef) -> Grader:
    """Return the grader that ref names, built once: graders hold no trial."""
    return _built(Grader, "assay.graders", ref)


def computes(name: str) -> bool:
    """Whether a built-in grader only computes: its grades cost nothing."""
    if name not in BUILT_IN["assay.graders"]:
        return False
    found = _load("assay.graders", name)
    return isinstance(found, type) and issubclass(found, Grader) and found.only_computes


def executor(ref: PluginRef) -> Executor:
    """Build the executor that ref names."""
    return with_defaults(Executor, _build("assay.executors", ref))


def benchmark(ref: PluginRef) -> Benchmark:
    """Return the benchmark that ref names, built once: its worlds hold what a trial needs."""
    return _built(Benchmark, "assay.benchmarks", ref)


_SEAL = "seal.json"
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


_LONGEST_ROW = 64 * 1024 * 1024


class _Evidence(msgspec.Struct, frozen=True):
    benchmark: str = ""


class _RowMetadata(msgspec.Struct, frozen=True):
    evidence: _Evidence = _Evidence()


class _FirstRow(msgspec.Struct, frozen=True):
    metadata: _RowMetadata = _RowMetadata()
    trials: list["_FirstRow"] = []


def check_output(path: Path) -> None:
    """Let the benchmark of an output say whether its rows are as they were recorded.

    It is named by seal.json beside the output, or by the evidence of the first row. Raises an
    InputError if they are not. Without a benchmark, or without its plugin, there is no check.
    """
    for name in (_sealed_by(path), _played_in(path)):
        if name and _PLAIN_NAME.fullmatch(name):
            try:
                found = benchmark(PluginRef(name=name))
            except PluginError:
                return
            found.check_output(path)
            return


def _sealed_by(path: Path) -> str:
    try:
        seal = path.with_name(_SEAL).read_bytes()
        return msgspec.json.decode(seal, type=_Evidence).benchmark
    except (OSError, *UNREADABLE):
        return ""


def _played_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            row = msgspec.json.decode(file.readline(_LONGEST_ROW), type=_FirstRow)
    except (OSError, *UNREADABLE):
        return ""
    names = (one.metadata.evidence.benchmark for one in (row, *row.trials))
    return next(filter(None, names), "")


def with_defaults[P](base: type[P], plugin: Any) -> P:
    """Return a plugin as an instance of its base class.

    A plain class with the right methods is a plugin too. What it does not define is taken from
    the base class, so that the rest of Assay never asks whether a plugin has some attribute.
    """
    if isinstance(plugin, base):
        return plugin
    completed: P = _delegating(base)(plugin)  # type: ignore[arg-type]  # a type can be hashed
    return completed


@cache
def _delegating(base: Any) -> Any:
    """Return a subclass of a base class whose instances stand for another object."""

    class Delegating(base):  # type: ignore[misc]
        def __init__(self, plugin: Any) -> None:
            object.__setattr__(self, "_plugin", plugin)

        def __getattribute__(self, name: str) -> Any:
            plugin = object.__getattribute__(self, "_plugin")
            try:
                return getattr(plugin, name)
            except AttributeError:
                if hasattr(type(plugin), name) or name not in dir(base):
                    raise  # an error of the plugin's own, or nothing that plugins have
                return object.__getattribute__(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(object.__getattribute__(self, "_plugin"), name, value)

    return Delegating


def command(name: str) -> Any:
    """Load the click command that a plugin adds to `assay`; None when no package brings it."""
    target = BUILT_IN["assay.commands"].get(name)
    # Installed packages are asked only about names that the table does not have: it takes 40 ms.
    known = _is_present(target) if target else name in names("assay.commands")
    return _load("assay.commands", name) if known else None


def _built[P](base: type[P], group: str, ref: PluginRef) -> P:
    key = group, _encoded(group, ref)
    built = _plugins.get(key)
    if built is None:
        with _building:
            built = _plugins.get(key)  # another thread may have built it meanwhile
            if built is None:
                built = _plugins[key] = with_defaults(base, _build(group, ref))
    found: P = built
    return found


def _encoded(group: str, ref: PluginRef) -> bytes:
    """Encode a reference: its options are a dict, which cannot be hashed. The last is remembered:
    the trials of a run have the same one, and ask for it several times."""
    last = _last_encoded.get(group)
    if last is None or last[0] is not ref:
        last = _last_encoded[group] = ref, msgspec.json.encode(ref)
    return last[1]


def forget() -> None:
    """Build every plugin anew when it is asked for: what it was made from may have changed."""
    _plugins.clear()


_last_encoded: dict[str, tuple[PluginRef, bytes]] = {}
_plugins: dict[tuple[str, bytes], Any] = {}
_building = threading.RLock()
"""A plugin may ask for another one while it is built."""


def adapter_ref(text: str) -> PluginRef:
    """Read what a user gave to -s: a schema file, a name, or a name with options.

    Options are NAME:KEY=VALUE,KEY=VALUE, or NAME:VALUE for the first one alone. An adapter that has
    an option called `argument` is given all that stands behind the colon as this one.
    """
    path = Path(text)
    name, colon, argument = text.partition(":")
    is_named = colon and name in BUILT_IN["assay.adapters"]  # as in replay:results.json
    if path.is_file() or (path.suffix == ".json" and not is_named):
        return PluginRef(name="declared", options={"schema": _read_json(path), "source": path.name})
    options: dict[str, Any] = {}
    if colon:
        takes_argument = "argument" in adapter_options(name)
        options = {"argument": argument} if takes_argument else _named("assay.adapters", text)
    return PluginRef(name=name, options=options)


def adapter_options(name: str) -> frozenset[str]:
    return frozenset(_parameters(_load("assay.adapters", name)))


def grader_ref(text: str, timeout_s: float | None = None, folder: Path | None = None) -> PluginRef:
    """Read what a user gave to -g: a file, serve:FILE, or a grader's name with its options.

    Options are NAME:KEY=VALUE,KEY=VALUE or NAME:{json}; NAME:VALUE gives the first one alone.
    Files are found from the folder, or else from the current one. Checks that the grader can be
    built.
    """
    base = folder or Path()
    name, colon, argument = text.partition(":")
    options: dict[str, Any]
    if name in _FILE_GRADERS and not argument:
        example = "serve:./grader" if name == "serve" else "./grader.py"
        msg = f"-g {text} names no grader: it needs a file"
        raise InputError(msg, hint=f"give the grader's file, as in -g {example}")
    if name == "serve" and colon:
        options = {"path": str(_program(base / argument))}
    elif name in _OF_LIBRARY["assay.graders"] and colon:
        options = {"key": argument}
    elif name in BUILT_IN["assay.graders"] or (colon and name in names("assay.graders")):
        options = _options("assay.graders", name, argument) if colon else {}
    # A file before an installed plugin of that name; a name nobody knows is a missing file.
    elif (base / text).is_file() or name not in names("assay.graders"):
        name, options = _file_grader(base / text)
    else:
        options = {}
    return checked_grader(name, options, timeout_s, folder)


def checked_grader(
    name: str,
    options: dict[str, Any],
    timeout_s: float | None = None,
    folder: Path | None = None,
) -> PluginRef:
    """Return a grader with its options that can be built; see grader_ref for the folder."""
    factory = _load("assay.graders", name)
    kinds = _parameters(factory)
    if timeout_s is not None and "timeout_s" in kinds:
        options.setdefault("timeout_s", timeout_s)
    if folder is not None:
        if "folder" in kinds:
            options.setdefault("folder", str(folder))
        for key in getattr(factory, "file_options", ()):  # which may be a function
            if isinstance(value := options.get(key), str) and _is_file(folder, value):
                options[key] = str(folder / value)
    ref = PluginRef(name=name, options=options)
    grader(ref)
    return ref


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # a text that can be no path
        return False


def benchmark_ref(text: str) -> PluginRef:
    """Read what a user gave to --benchmark: a name, with options written as for graders.

    Checks that the benchmark can be built.
    """
    ref = PluginRef(name=text.partition(":")[0], options=_named("assay.benchmarks", text))
    benchmark(ref)
    return ref


def _named(group: str, text: str) -> dict[str, Any]:
    """Return the options in NAME:OPTIONS; a KEY= that the plugin does not have is a mistake."""
    name, colon, argument = text.partition(":")
    kinds = _parameters(_load(group, name))
    key, equals, _ = argument.partition("=")
    plain = key.replace("-", "_")
    # Otherwise _options would take all of it as the value of the first option.
    if equals and plain.isidentifier() and plain not in kinds:
        raise _no_option(name, key, kinds)
    return _options(group, name, argument) if colon else {}


_FILE_GRADERS = ("executable", "javascript", "python", "serve")
"""Kinds of graders that a file is; the file is given, not the kind."""
_MODULES = (".ts", ".mts", ".js", ".mjs", ".cjs")
_EXPORT = rb"(?m)^\s*export\b|\bmodule\.exports\b|\bexports\.\w"


def is_module(path: Path) -> bool:
    """Whether a file is a JavaScript or TypeScript module; one that exports nothing and names its
    interpreter is a program."""
    if path.suffix not in _MODULES or not path.is_file():
        return False
    source = path.read_bytes()
    is_program = source.startswith(b"#!") and os.access(path, os.X_OK)
    return not is_program or re.search(_EXPORT, source) is not None


def _file_grader(file: Path) -> tuple[str, dict[str, Any]]:
    if is_module(file):
        return "javascript", {"path": str(file.resolve())}
    path = _program(file)
    return "python" if _has_grade(path) else "executable", {"path": str(path)}


def _program(path: Path) -> Path:
    if not path.is_file():
        msg = f"Grader not found: {path.resolve()}"
        known = [name for name in names("assay.graders") if name not in _FILE_GRADERS]
        near = closest(path.name, known)
        meant = f"did you mean {near!r}? Otherwise " if near else ""
        raise InputError(msg, hint=f"{meant}give a file or one of: {', '.join(known)}")
    if path.suffix != ".py" and not os.access(path, os.X_OK):
        msg = f"Grader cannot be executed: {path.resolve()}"
        hint = f"run chmod +x {path}, and name its interpreter on line 1, as in #!/usr/bin/env node"
        raise InputError(msg, hint=hint)
    return path.resolve()


def _has_grade(path: Path) -> bool:
    """Whether a file is Python that defines `grade` at top level; it is parsed, not run."""
    if path.suffix != ".py":
        return False
    source = path.read_bytes()
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        # Named .py, but its first line names another interpreter: a program, not a mistake.
        if source.startswith(b"#!") and b"python" not in source.split(b"\n", 1)[0]:
            return False
        msg = f"{path}: not valid Python: {error}"
        raise InputError(msg) from error
    # get_assert is what promptfoo calls.
    return any({"grade", "get_assert"} & {*_bound(one)} for one in tree.body)


def _bound(statement: Any) -> list[str]:
    """Return the names that a statement defines."""
    targets = getattr(statement, "targets", [])
    imported = [a.asname or a.name for a in getattr(statement, "names", []) if hasattr(a, "asname")]
    return [getattr(statement, "name", ""), *(getattr(t, "id", "") for t in targets), *imported]


def _options(group: str, name: str, text: str) -> dict[str, Any]:
    """Read options as people write them; a comma separates only in front of another KEY=."""
    kinds = _parameters(_load(group, name))
    if not kinds:
        raise _no_option(name, text, kinds)
    if text.startswith("{"):
        given = _json_options(name, text)
    else:
        keys = "|".join(re.escape(key).replace("_", "[-_]") for key in kinds)
        pairs = re.split(rf"(?:^|,)({keys})=", text)  # [before, key, value, key, value, …]
        if pairs[0] and len(pairs) > 1:
            msg = f"{name}: {text!r} is ambiguous"
            raise InputError(msg, hint=f"name every option: {name}:{next(iter(kinds))}=…,KEY=VALUE")
        given = {} if len(pairs) > 1 else {next(iter(kinds)): text}
        for key, value in zip(pairs[1::2], pairs[2::2], strict=True):
            plain = key.replace("-", "_")
            more = isinstance(given.get(plain), list) or _is_list(kinds[plain])
            given[plain] = [*given.get(plain, []), value] if more else value
    return {key: _converted(name, key, value, kinds) for key, value in given.items()}


def _json_options(name: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE as error:
        msg = f"{name}: options that begin with {{ must be JSON: {error}"
        raise InputError(msg, hint=f"give a text that begins with {{ as {name}:KEY=…") from error


def _converted(name: str, key: str, value: Any, kinds: dict[str, Any]) -> Any:
    if key not in kinds:
        raise _no_option(name, key, kinds)
    if _is_list(kinds[key]) and not isinstance(value, list):
        value = [value]
    if kinds[key] is Any:
        return value
    try:
        return msgspec.convert(value, kinds[key], strict=False)
    except msgspec.ValidationError as error:
        mistyped = re.match(r"([a-z_][\w-]*)=", value) if isinstance(value, str) else None
        if mistyped and mistyped[1] not in kinds:  # taken as the value of the first option
            raise _no_option(name, mistyped[1], kinds) from error
        msg = f"{name}: {key}={value}: {key} {explain(error, kinds[key])}"
        raise InputError(msg) from error


def _no_option(name: str, key: str, kinds: dict[str, Any]) -> InputError:
    msg = f"{name} has no option {key!r}"
    return InputError(msg, hint=f"its options are: {', '.join(kinds) or 'none'}")


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, Sequence)


def _parameters(factory: Any) -> dict[str, Any]:
    """Return the options a plugin takes, in order, with their types."""
    hints = get_type_hints(factory)
    if inspect.isclass(factory):  # a record's fields; an __init__ overrides them
        hints |= get_type_hints(factory.__init__)
    return {key: hints.get(key, Any) for key in inspect.signature(factory).parameters}


def names(group: str) -> list[str]:
    """List every plugin of a group that is installed."""
    table = BUILT_IN.get(group, {})
    built_in = {name for name, target in table.items() if _is_present(target)}
    # The metadata of a wheel may still list a package that was removed from it.
    return sorted({*built_in, *(_metadata().entry_points(group=group).names - table.keys())})


def package_version(name: str) -> str:
    """Return the version of an installed package."""
    return str(_metadata().version(name))


def _metadata() -> ModuleType:
    # Late: loading this and reading all packages' metadata takes longer than `assay --help`.
    from importlib import metadata

    return metadata


def _is_present(target: str) -> bool:
    return PathFinder.find_spec(target.partition(".")[0]) is not None


def _read_json(path: Path) -> Any:
    try:
        text = path.read_bytes()
    except OSError as error:
        msg = f"schema not found: {path}: {error.strerror}"
        raise InputError(
            msg, hint="give -s a schema file or the name of an adapter (see: assay agents)"
        ) from error
    return decode_json(str(path), text)


def _build(group: str, ref: PluginRef) -> Any:
    factory = _load(group, ref.name)
    try:
        return factory(**ref.options)
    except TypeError as error:
        kinds = _parameters(factory)
        unknown = ", ".join(sorted(ref.options.keys() - kinds.keys()))
        msg = f"plugin {ref.name!r} does not accept these options: {unknown or error}"
        if not ref.options and not unknown:
            msg = f"plugin {ref.name!r} cannot be built without options: {error}"
        raise PluginError(msg, hint=f"its options are: {', '.join(kinds) or 'none'}") from error


def _load(group: str, name: str) -> Any:
    built_in = {**_OF_LIBRARY.get(group, {}), **BUILT_IN.get(group, {})}
    target = built_in.get(name) or _installed(group, name)
    module_name, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        msg = f"plugin {name!r} ({target}) failed to import: {error}"
        raise PluginError(msg, hint="reinstall the package that provides it") from error


def _installed(group: str, name: str) -> str:
    found: list[str] = sorted(
        {entry.value for entry in _metadata().entry_points(group=group, name=name)}
    )
    if len(found) == 1:
        return found[0]
    if not found:
        kind = group.removeprefix("assay.").removesuffix("s").replace("adapter", "agent")
        msg = f"there is no {kind} called {name!r}"
        known = [one for one in names(group) if kind != "agent" or one not in _NO_AGENTS]
        near = closest(name, known)
        meant = f"did you mean {near!r}? " if near else ""
        raise PluginError(msg, hint=f"{meant}There are: {', '.join(known) or 'none'}")
    msg = f"{name!r} in {group} is provided by {' and '.join(found)}"
    raise PluginError(msg, hint="uninstall one of the two packages")
