"""Find a plugin by name. Built-ins and other people's packages come through the same door."""

from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError, PluginError
from assay.records.trial import PluginRef
from assay.seams import Adapter, Benchmark, Executor, Grader

BUILT_IN = {
    "assay.adapters": {
        "declared": "assay.adapters.declared:DeclaredAdapter",
        "demo": "assay.adapters.demo:demo_adapter",
        "simple": "assay.adapters.simple:SimpleAdapter",
        "shell": "assay.adapters.shell:ShellAdapter",
        "acp": "assay.adapters.acp:AcpAdapter",
    },
    "assay.graders": {"executable": "assay.graders.executable:ExecutableGrader"},
    "assay.executors": {"local": "assay.executors.local:LocalExecutor"},
    "assay.benchmarks": {"prompts": "assay.benchmarks.prompt_file:PromptFile"},
}
"""The entry points of pyproject.toml again (a test keeps them equal): looking a name up here first
saves every start the reading of all installed packages' metadata."""


def adapter(ref: PluginRef) -> Adapter:
    """Build the adapter that ref names. Adapters hold no state, so each is built once."""
    key = msgspec.json.encode(ref)
    built = _adapters.get(key)
    if built is None:
        built = _adapters[key] = _build("assay.adapters", ref)
    return built


_adapters: dict[bytes, Adapter] = {}


def grader(ref: PluginRef) -> Grader:
    """Build the grader that ref names."""
    built: Grader = _build("assay.graders", ref)
    return built


def executor(ref: PluginRef) -> Executor:
    """Build the executor that ref names."""
    built: Executor = _build("assay.executors", ref)
    return built


def benchmark(ref: PluginRef) -> Benchmark:
    """Build the benchmark that ref names."""
    built: Benchmark = _build("assay.benchmarks", ref)
    return built


def adapter_ref(text: str) -> PluginRef:
    """Read what a user gave to -s: a schema file, a name, or name:argument."""
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return PluginRef(name="declared", options={"schema": _read_json(path), "source": path.name})
    name, colon, argument = text.partition(":")
    return PluginRef(name=name, options={"argument": argument} if colon else {})


def grader_ref(text: str) -> PluginRef:
    """Read what a user gave to -g: a file, or the name of a grader with its options."""
    path = Path(text)
    if path.is_file():
        return PluginRef(name="executable", options={"path": str(path.resolve())})
    name = text.partition(":")[0]
    if "/" in text or path.suffix or name not in names("assay.graders"):
        msg = f"Grader not found: {path.resolve()}"
        raise InputError(msg, hint=f"give a file or one of: {', '.join(names('assay.graders'))}")
    return PluginRef(name=name)


def names(group: str) -> list[str]:
    """List every plugin of a group that is installed."""
    from importlib.metadata import entry_points

    return sorted({*BUILT_IN.get(group, {}), *entry_points(group=group).names})


def _read_json(path: Path) -> Any:
    try:
        text = path.read_bytes()
    except OSError as error:
        msg = f"schema not found: {path}: {error.strerror}"
        raise InputError(
            msg, hint="give -s a schema file or the name of an adapter (see: assay agents)"
        ) from error
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"{path}: not JSON: {error}"
        raise InputError(msg) from error


def _build(group: str, ref: PluginRef) -> Any:
    factory = _load(group, ref.name)
    try:
        return factory(**ref.options)
    except TypeError as error:
        msg = f"plugin {ref.name!r} does not accept these options: {error}"
        raise PluginError(msg) from error


def _load(group: str, name: str) -> Any:
    target = BUILT_IN.get(group, {}).get(name) or _installed(group, name)
    module_name, _, attribute = target.partition(":")
    from importlib import import_module

    try:
        return getattr(import_module(module_name), attribute)
    except ImportError as error:
        msg = f"plugin {name!r} ({target}) failed to import: {error}"
        raise PluginError(msg, hint="reinstall the package that brings it") from error


def _installed(group: str, name: str) -> str:
    from importlib.metadata import entry_points

    found = sorted({entry.value for entry in entry_points(group=group, name=name)})
    if len(found) == 1:
        return found[0]
    if not found:
        msg = f"no {group.removeprefix('assay.').removesuffix('s')} is called {name!r}"
        raise PluginError(msg, hint=f"installed: {', '.join(names(group)) or 'none'}")
    msg = f"{name!r} in {group} is claimed by {' and '.join(found)}"
    raise PluginError(msg, hint="uninstall one of the two packages")
