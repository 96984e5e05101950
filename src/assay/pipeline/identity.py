"""The identity of a run's trials: what was measured, what it was offered, and by whom judged."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay import __version__, plugins
from assay.errors import AssayError
from assay.pipeline.grading import grader_versions
from assay.pipeline.loaded import AskProgram, Loaded, Loader
from assay.pipeline.servers import SERVER_FILES, add_servers, read_settings
from assay.pipeline.variables import chosen_variables
from assay.plugin import Ask, Command, Machine
from assay.records.capture import COVERS, Identity
from assay.records.files import hash_file, hash_folder, short_hash
from assay.records.setup import REPLAYED
from assay.records.spec import Limits, PluginRef, Surroundings
from assay.records.tape import TapeUse
from assay.run.confinement import uses_landlock
from assay.run.host import LocalHost
from assay.run.process import is_program, program_places
from assay.run.workspace import AGENT_FILES

if TYPE_CHECKING:
    from assay.adapters.vendor import KnownAgent

_MOST_FILES = 2000
"""Of one folder that the agent reads; what is beyond counts by name and size only."""
_SCRIPTS = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".rb", ".pl", ".php"})
_VERSION = r"\d+\.\d+(?:\.\d+)*(?:[-+.\w]*)?"
_VERSION_S = 20.0
_PACKAGE_DEPTH = 4
_MOST_IMPORTS = 100
"""Files that one file of instructions may take in."""
_SKILL = "SKILL.md"


def identify(
    agent: PluginRef,
    surroundings: Surroundings,
    limits: Limits,
    graders: Sequence[PluginRef],
    machine: Machine,
    template: Path | None = None,
) -> Identity:
    """Read everything that makes trials comparable, before the first of them starts."""
    has_content = plugins.adapter(agent).content_hash is not None
    options = {} if has_content else dict(agent.options)
    mcp = options.pop("mcp", None)
    model = options.pop("model", None)
    command = _command(agent, surroundings)
    loads = _loads(command, surroundings, machine)
    servers = _servers(agent, surroundings, template, machine)
    unknown = (*_image(surroundings), *_linked(template), *loads.unknown, *servers.unknown)
    variables, unread = chosen_variables(
        _environment(command, surroundings),
        read=loads.variables | servers.variables,
        passed=surroundings.env_names,
    )
    return Identity(
        covers=COVERS,
        assay=__version__,
        loads=loads.files,
        packages={**servers.packages, **loads.packages},
        mcp_files=servers.files,
        variables=variables,
        not_covered=tuple(dict.fromkeys((*unknown, *unread))),
        adapter=agent.name,
        program=program_version(agent, surroundings, machine),
        model=model or "",
        agent=short_hash(msgspec.json.encode(options, order="deterministic")) if options else "",
        mcp=short_hash(msgspec.json.encode(mcp, order="deterministic")) if mcp else "",
        template=hash_folder(template, own_mode=True) if template else "",
        offered=_offered(agent, surroundings, template),
        tape=_tape(surroundings.tape),
        isolation=_isolation(surroundings),
        env=tuple(sorted(surroundings.env_names)),
        limits=_limits(limits),
        graders=grader_versions([plugins.grader(ref) for ref in graders]),
    )


def identity_with(identity: Identity, graders: Sequence[PluginRef]) -> Identity:
    """Return the identity of trials that these graders judge."""
    versions = grader_versions([plugins.grader(ref) for ref in graders])
    return msgspec.structs.replace(identity, graders=versions)


def identity_in(
    identity: Identity, agent: PluginRef, surroundings: Surroundings, template: Path | None
) -> Identity:
    """Return the identity of trials that run elsewhere, in workspaces made from a template."""
    return msgspec.structs.replace(
        identity,
        template=hash_folder(template, own_mode=True) if template else "",
        offered=_offered(agent, surroundings, template),
        mcp_files=_servers(agent, surroundings, template).files,
    )


def identity_of_setup(identity: Identity, setup: str, folder: Path) -> Identity:
    """Return the identity of trials whose prompt has a set-up; its scripts are in a folder."""
    loader = Loader(folder, os.environ, copies_folders=True)
    loader.shell_line(setup, folder)
    found = loader.found()
    read = {name: os.environ[name] for name in found.variables if name in os.environ}
    variables, unread = chosen_variables(read, read=read)
    unknown = (f"{words} (set-up of prompts)" for words in (*found.unknown, *unread))
    made_of = (setup, found.files, found.packages, *([variables] if variables else ()))
    encoded = msgspec.json.encode(made_of, order="sorted")
    not_covered = tuple(dict.fromkeys((*identity.not_covered, *unknown)))
    return msgspec.structs.replace(identity, setup=short_hash(encoded), not_covered=not_covered)


def _tape(use: TapeUse | None) -> str:
    """Say where answers come from; those that are only recorded are a provider's."""
    if use is None:
        return ""
    found = []
    if use.replay:
        tape = "a tape that grows" if use.misses else hash_file(Path(use.replay))
        found.append(f"{REPLAYED} from {tape}")
    if use.faults:
        found.append(f"faults {msgspec.json.encode(use.faults).decode()}")
    return ", ".join(found)


def _isolation(around: Surroundings) -> str:
    if around.container:
        return f"container {around.container}"
    if around.sandbox:
        if uses_landlock(around):
            return "landlock"
        return "sandbox" if around.sandbox == "network" else f"sandbox {around.sandbox}"
    if around.isolate:
        return "isolate"
    return "home" if around.own_home else "none"


def _limits(limits: Limits) -> dict[str, float]:
    seconds = {"turnMs": limits.turn_s, "trialMs": limits.trial_s, "stallMs": limits.stall_s}
    found = {name: value * 1000 for name, value in seconds.items() if value is not None}
    others = {"memoryBytes": limits.memory_bytes, "cpus": limits.cpus}
    return found | {name: float(value) for name, value in others.items() if value is not None}


def _offered(agent: PluginRef, around: Surroundings, template: Path | None) -> dict[str, str]:
    """Hash what the agent can read."""
    # A skill is its whole folder: what SKILL.md names belongs to it.
    offered = {
        name: hash_folder(file.parent) if file.name == _SKILL else hash_file(file)
        for name, file in _offered_files(agent, around, template).items()
    }
    for name, parts in _parts_in_home(agent, around).items():
        offered[f"~/{name}"] = short_hash(msgspec.json.encode(parts, order="deterministic"))
    if around.has_own_home and (settings := plugins.adapter(agent).provider_settings()):
        encoded = msgspec.json.encode(settings, order="deterministic", enc_hook=str)
        offered["~/ (provider settings)"] = short_hash(encoded)
    return offered


def _offered_files(
    agent: PluginRef, around: Surroundings, template: Path | None
) -> dict[str, Path]:
    """Find what the agent can read: in its folder, in those above it, and in the user's HOME."""
    adapter = plugins.adapter(agent)
    in_folder = AGENT_FILES if adapter.reads is None else adapter.reads
    found: dict[str, Path] = {}
    place = template or Path(around.cwd)
    if around.workspace_dir is None or template is not None:
        _add(found, place, in_folder, "")
    start = Path(around.workspace_dir) if around.workspace_dir else place.parent
    for number, folder in enumerate((start, *start.parents), 1):
        _add(found, folder, in_folder, "../" * number)
    if adapter.reads_in_home and not around.has_own_home:
        _add(found, Path.home(), adapter.reads_in_home, "~/")
    return found


def _parts_in_home(agent: PluginRef, around: Surroundings) -> dict[str, list[dict[str, Any]]]:
    """Return the parts that count of files in HOME which the agent also writes; see plugin.py."""
    found: dict[str, list[dict[str, Any]]] = {}
    names = () if around.has_own_home else plugins.adapter(agent).reads_in_home or ()
    for name, _, key in (each.partition("#") for each in names if "#" in each):
        content = read_settings(Path.home() / name)
        projects = content.get("projects")
        own = projects.get(around.cwd) if isinstance(projects, dict) else None
        parts = [
            {key: one[key]} for one in (content, own) if isinstance(one, dict) and one.get(key)
        ]
        if parts:
            found[f"{name} ({key})"] = parts
    return found


def _add(found: dict[str, Path], folder: Path, names: Iterable[str], prefix: str) -> None:
    place = str(folder)
    for name in names:
        # Hardly any of the many is there, and a Path takes ten times as long to say so.
        if not os.path.exists(f"{place}/{name}"):  # noqa: PTH110
            continue
        path = folder / name
        if path.is_dir():
            for file in _files(path):
                found[f"{prefix}{file.relative_to(folder)}"] = file
        elif path.is_file():
            found[f"{prefix}{name}"] = path
            for imported in _imported_by(path):
                found.setdefault(f"{prefix}{os.path.relpath(imported, folder)}", imported)


def _imported_by(file: Path) -> Iterator[Path]:
    """Yield the files that instructions take in by @name, and those that these take in."""
    left, done = [file], {file.resolve()}
    while left and file.suffix == ".md" and len(done) < _MOST_IMPORTS:
        one = left.pop()
        with contextlib.suppress(OSError, RuntimeError):  # the latter for a HOME that is not there
            text = one.read_bytes().decode("utf-8", "replace")
            for name in re.findall(r"(?m)(?:^|(?<=\s))@([\w~./+-]*\w)", text):
                path = one.parent / Path(name).expanduser()
                if path.is_file() and path.resolve() not in done:
                    done.add(path.resolve())
                    left.append(path)
                    yield path


def _files(folder: Path) -> list[Path]:
    """List the files of a folder that the agent reads; of a skill only its SKILL.md."""
    listed: list[Path] = []
    for path, folders, files in os.walk(folder, followlinks=True):
        if _SKILL in files:
            folders.clear()
            files = [_SKILL]
        folders[:] = sorted(set(folders) - {"node_modules", ".git"})
        listed += (Path(path, name) for name in sorted(files))
        if len(listed) > _MOST_FILES:
            break
    return listed[:_MOST_FILES]


def _command(agent: PluginRef, around: Surroundings) -> Command | None:
    """Return how the agent is started; None if it is no program, or cannot be said."""
    if plugins.adapter(agent).content_hash is not None:
        return None
    try:
        return plugins.adapter(agent).command(Ask(text="", cwd=around.cwd))
    except AssayError:
        return None


def _loads(command: Command | None, around: Surroundings, machine: Machine) -> Loaded:
    """Find what the agent's program loads; an image has its own programs."""
    if command is None or command.function is not None or around.container:
        return Loaded()
    loader = Loader(Path(around.cwd), _environment(command, around), _asked_by(machine))
    loader.command(command.argv)
    return loader.found()


def _asked_by(machine: Machine) -> AskProgram:
    def ask(argv: list[str]) -> bytes:
        try:
            return machine.run(argv, timeout_s=_VERSION_S).stdout
        except AssayError:
            return b""

    return ask


def _environment(command: Command | None, around: Surroundings) -> dict[str, str]:
    """Return the variables that the agent gets from us."""
    declared = command.env if command else {}
    if not around.hides_env:
        return {**os.environ, **declared}
    passed = {"PATH", *around.env_names, *(command.pass_env if command else ())}
    return {name: os.environ[name] for name in passed if name in os.environ} | declared


def _linked(template: Path | None) -> Iterator[str]:
    """Say where absolute links of a template lead to: these folders are not copied, nor hashed."""
    for path, folders, _ in os.walk(template) if template else ():
        for each in (Path(path, name) for name in sorted(folders)):
            if each.is_symlink() and each.readlink().is_absolute():
                yield f"files in {each.readlink()}, a link of the template"


def _image(around: Surroundings) -> Iterator[str]:
    if around.container and "@sha256:" not in around.container:
        yield f"what is in the image {around.container}, which may be another one tomorrow"


def _servers(
    agent: PluginRef,
    around: Surroundings,
    template: Path | None,
    machine: Machine | None = None,
) -> Loaded:
    """Find what MCP servers and hooks load: those that were given, and those of offered files."""
    folder = Path(around.cwd)
    loader = Loader(folder, os.environ, _asked_by(machine) if machine else None)
    unknown: list[str] = []
    if plugins.adapter(agent).content_hash is None:
        unknown += add_servers(loader, {"mcpServers": agent.options.get("mcp") or {}}, folder)
    for file in _offered_files(agent, around, template).values():
        if file.name in SERVER_FILES and (content := read_settings(file)):
            below = [each for each in file.parents if each in (template, folder)]
            unknown += add_servers(loader, content, below[0] if below else file.parent)
    for part in chain.from_iterable(_parts_in_home(agent, around).values()):
        unknown += add_servers(loader, part, folder)
    found = loader.found()
    return msgspec.structs.replace(found, unknown=(*unknown, *found.unknown))


def program_version(agent: PluginRef, around: Surroundings, machine: Machine) -> str:
    """Find out which version of the agent will be started; empty when that cannot be known."""
    content = plugins.adapter(agent).content_hash
    if content is not None:
        return content
    command = _command(agent, around)
    if command is None:
        return ""
    argv = command.argv
    search = os.environ.get("PATH", os.defpath)
    path = next(filter(is_program, program_places(argv[0], around.cwd, search)), None)
    if path is None or around.container:  # an image has its own programs
        return ""
    program = path.resolve()
    if version := _package_version(program):
        return version
    if plugins.adapter(agent).reads_in_home is not None:  # a known agent, which can be asked
        return asked_version(str(path), machine) or ""
    words: Sequence[str] = argv[1:]
    if argv[:-1] == ("/bin/sh", "-c"):
        words = [word.strip("'\";") for word in argv[-1].split()]
    scripts = [Path(around.cwd, word) for word in words if Path(word).suffix in _SCRIPTS]
    # Not Path.is_file, which raises for a word that can be no path.
    files = [file for file in (program, *scripts) if os.path.isfile(file)]  # noqa: PTH113
    known = map(hash_file, files)
    return short_hash("".join(known).encode())


def _package_version(program: Path) -> str | None:
    """Return the version of the npm package that a program belongs to."""
    for folder in program.parents:
        if folder.name == "node_modules" or folder.parent == folder:
            return None
        package = folder / "package.json"
        if "node_modules" in folder.parts and package.is_file():
            try:
                return str(msgspec.json.decode(package.read_bytes())["version"])
            except (OSError, msgspec.DecodeError, KeyError, TypeError, UnicodeError):
                return None
    return None


class _Package(msgspec.Struct):
    version: str = ""
    bin: dict[str, str] | str = ""


def packaged_version(path: str) -> str | None:
    """Read the version of a program of an npm package from its package.json, starting nothing."""
    program = Path(path).resolve()
    for folder in list(program.parents)[:_PACKAGE_DEPTH]:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            package = msgspec.json.decode((folder / "package.json").read_bytes(), type=_Package)
            bins = package.bin.values() if isinstance(package.bin, dict) else [package.bin]
            if any((folder / name).resolve() == program for name in bins):
                return package.version or None
    return None


def asked_version(path: str, machine: Machine, timeout_s: float | None = None) -> str | None:
    """Start a program to learn its version; None when it does not say."""
    try:
        done = machine.run([path, "--version"], timeout_s=timeout_s or _VERSION_S)
    except AssayError:
        return None
    found = re.search(_VERSION, done.stdout.decode("utf-8", "replace"))
    return found.group() if found else None


def look_for(agent: "KnownAgent", patience_s: float | None = None) -> dict[str, Any]:
    """Describe an agent: whether it is installed, where, and which version.

    With patience_s it is started for its version only where its package does not say it, and for
    no longer.
    """
    path = shutil.which(agent.program)
    row: dict[str, Any] = msgspec.to_builtins(agent)
    row |= {"installed": path is not None, "path": path, "version": None, "notes": []}
    if path is not None:
        packaged = packaged_version(path) if patience_s is not None else None
        row["version"] = packaged or asked_version(path, LocalHost(), patience_s)
        if row["version"] is None:
            row["notes"].append("does not report its version")
        elif row["version"] not in agent.tested:
            row["notes"].append("this version is not one of those we test; it will probably work")
    return row
