"""Tasks in Harbor's format: read from their folders, and what keeps them from running here."""

import hashlib
import os
import posixpath
import re
import shutil
import stat
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from assay.benchmarks import compose
from assay.benchmarks.compose import Service, SeveralContainers
from assay.benchmarks.dockerfile import Entry, NeedsImage, Recipe, follow, last_workdir
from assay.plugin import InputError, TrialSpec
from assay.records.spec import OWN_IMAGE

ORACLE = "oracle"
"""The agent that runs a task's own solution."""
_FOLDERS = ("environment", "tests", "solution")
_OF_SYSTEM = (
    *("bin", "boot", "dev", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "logs", "nix", "opt"),
    *("proc", "run", "sbin", "solution", "sys", "tests", "tmp", "usr"),
)
"""Folders at the top of a sandbox that have a meaning of their own."""
_INSTALLS = re.compile(
    r"^[^#\n]*?(?:^|[\s;&|(])((?:apt-get|apt|apk|dnf|yum|microdnf|zypper|pacman)\s+\S|pip3?\s+install"
    r"|uv\s+pip|npm\s+(?:i|install|ci)\b)",
    re.MULTILINE,
)
_PROGRAM = re.compile(
    r"^[ \t]*(?:if[ \t]+|![ \t]*|exec[ \t]+)*"
    r"(curl|gcc|git|jq|make|node|npx|pytest|python3?|uvx?|wget)\s",
    re.MULTILINE,
)
"""Programs that a plain system may lack, where they are the first word of a command."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a sandbox has programs."""
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]{0,4096}))?\}")
_SCHEMA = "1."
"""How the versions of task.toml begin whose meaning is known."""
type NetworkMode = Literal["no-network", "public", "allowlist"]
type Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
"""Of seconds and CPUs; the upper limit keeps infinity out."""
type Variables = dict[Annotated[str, msgspec.Meta(pattern=r"^[^=\0]+$")], str]


class Agent(msgspec.Struct):
    timeout_sec: Positive | None = None
    user: str | int | None = None
    network_mode: NetworkMode | None = None


class Verifier(msgspec.Struct):
    timeout_sec: Positive = 600.0
    env: Variables = {}
    user: str | int | None = None
    network_mode: NetworkMode | None = None
    environment_mode: str | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class McpServer(msgspec.Struct):
    name: str
    transport: str = "sse"
    command: str | None = None
    args: list[str] = []


class Environment(msgspec.Struct):
    docker_image: str | None = None
    build_timeout_sec: Positive = 600.0
    os: str = "linux"
    cpus: Positive | None = None
    memory_mb: Annotated[int, msgspec.Meta(gt=0)] | None = None
    memory: Annotated[str, msgspec.Meta(pattern=r"^\s*\d+(\.\d+)?[GMKgmk]\s*$")] | None = None
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[McpServer] = []
    env: Variables = {}
    skills_dir: str | None = None
    healthcheck: Any = None
    workdir: str | None = None
    network_mode: NetworkMode | None = None
    allow_internet: bool | None = None


class Solution(msgspec.Struct):
    env: Variables = {}


class TaskFile(msgspec.Struct):
    """The parts of task.toml that matter here; a file may have others."""

    schema_version: str = "1.0"
    metadata: dict[str, Any] = {}
    agent: Agent = msgspec.field(default_factory=Agent)
    verifier: Verifier = msgspec.field(default_factory=Verifier)
    environment: Environment = msgspec.field(default_factory=Environment)
    solution: Solution = msgspec.field(default_factory=Solution)
    steps: list[Any] | None = None


class Task:
    """One task. All its files are in memory, so that no agent can change them."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.folder = folder
        config = _read(folder / "task.toml")
        self.config = _decode(config, folder / "task.toml")
        parts = {name: _files_in(folder / name) for name in _FOLDERS}
        self.environment, self.tests, self.solution = (parts[name] for name in _FOLDERS)
        # A task of several steps has none, and is refused later with its reason.
        text = b"several steps" if self.config.steps else _read(folder / "instruction.md")
        try:
            self.instruction = text.decode()
        except UnicodeDecodeError as error:
            msg = f"{folder / 'instruction.md'}: not UTF-8"
            raise InputError(msg) from error
        if not self.instruction.strip():
            msg = f"{folder / 'instruction.md'}: it is empty"
            raise InputError(msg, hint="it is the prompt of the task")
        self.sha256 = _hash(config, text, parts)

    @cached_property
    def _dockerfile(self) -> str | None:
        entry = self.environment.get("Dockerfile")
        return entry.data.decode("utf-8", "replace") if entry else None

    @cached_property
    def recipe(self) -> Recipe:
        """What the Dockerfile makes, where no image is used. Raises NeedsImage."""
        if self._dockerfile is None:
            image = self.config.environment.docker_image
            msg = (
                f"it has no Dockerfile, only the image {image}"
                if image
                else "it has no environment/Dockerfile"
            )
            raise NeedsImage(msg)
        recipe = follow(self._dockerfile, self.environment)
        outside = next((path for path in recipe.files if self._outside(path)), None)
        if outside:
            msg = f"the Dockerfile copies to {outside}, outside of the working folder"
            raise NeedsImage(msg)
        return recipe

    def _outside(self, path: str) -> bool:
        return not path.startswith(f"{self.workdir.rstrip('/')}/")

    @cached_property
    def workdir(self) -> str:
        """The folder in which agent and verifier work; empty if it is not known."""
        given = self.config.environment.workdir
        return given or (last_workdir(self._dockerfile) if self._dockerfile else "")

    @cached_property
    def service(self) -> Service | None:
        """The container of its compose file, if it has one. Raises SeveralContainers."""
        found = next((name for name in compose.FILES if name in self.environment), None)
        return compose.only_service(self.environment[found].data) if found else None

    @property
    def dockerfile_path(self) -> str:
        """Where in environment/ the Dockerfile of its image is; empty if there is none."""
        service = self.service or Service()
        path = posixpath.normpath(posixpath.join(service.context, service.dockerfile))
        return path if path in self.environment else ""

    @property
    def image(self) -> str:
        """The image that the task names, which needs no building where it is known."""
        service = self.service
        named = service.image if service and not service.builds else ""
        return self.config.environment.docker_image or named

    @property
    def needs_no_network(self) -> bool:
        """Whether the agent must have no network."""
        environment = self.config.environment
        mode = self.config.agent.network_mode or environment.network_mode
        return mode == "no-network" or (mode is None and environment.allow_internet is False)

    @property
    def memory_bytes(self) -> int | None:
        """Most memory that agent and set-up may use together."""
        megabytes = self.config.environment.memory_mb
        if megabytes is None and self.config.environment.memory:
            megabytes = _megabytes(self.config.environment.memory)
        return megabytes * 1024 * 1024 if megabytes else None


def tasks_at(path: str) -> Mapping[str, Task]:
    """Return the tasks of a folder, or the one that it is, by name; read once, before any agent."""
    return _tasks_at(str(Path(path).resolve()))


@cache
def _tasks_at(path: str) -> Mapping[str, Task]:
    folder = Path(path)
    try:
        inside = sorted(each for each in folder.iterdir() if (each / "task.toml").is_file())
    except OSError as error:
        msg = f"harbor: {folder}: {error.strerror}"
        raise InputError(msg, hint="give a folder of tasks: --benchmark harbor:PATH") from error
    found = [folder] if (folder / "task.toml").is_file() else inside
    if not found:
        msg = f"harbor: {folder} has no task in it"
        raise InputError(msg, hint="a task is a folder with task.toml and instruction.md")
    return {each.name: Task(each) for each in found}


def files_at(path: str) -> list[Path]:
    """Return all files of the tasks of a folder: what another machine needs to run them."""
    found: list[Path] = []
    for task in tasks_at(path).values():
        parts = zip(_FOLDERS, (task.environment, task.tests, task.solution), strict=True)
        found += [task.folder / "task.toml", task.folder / "instruction.md"]
        found += [task.folder / part / name for part, files in parts for name in files]
    return [file for file in found if file.is_symlink() or file.is_file()]


def why_not(task: Task, spec: TrialSpec) -> Iterator[str]:
    """Say what keeps a trial of a task from running here, if anything does."""
    around = spec.surroundings
    has_own_image = around.container == OWN_IMAGE
    if around.workspace_dir is None:
        yield "it needs a workspace of its own: leave out -c"
    yield from _unsupported(task)
    if task.needs_no_network and around.sandbox != "no-network" and not has_own_image:
        yield "it must have no network: use --sandbox=no-network"
    if "test.sh" not in task.tests:
        yield "it has no tests/test.sh"
    if spec.agent.name == ORACLE and "solve.sh" not in task.solution:
        yield "it has no solution/solve.sh"
    yield from _missing_variables(task, spec)
    if has_own_image:
        yield from _has_no_image(task)
        return
    yield from _cannot_work(task, spec)
    if any(name in task.environment for name in compose.FILES):
        yield "it has a docker-compose.yaml, so it needs --container task"
    if around.container:
        yield from _misfits_image(task, around.container)
    elif around.confined_in:
        yield from _needs_image(task)


def _unsupported(task: Task) -> Iterator[str]:
    config, environment = task.config, task.config.environment
    if not config.schema_version.startswith(_SCHEMA):
        yield f"its schema_version is {config.schema_version}, and 1.x is known here"
    if config.steps:
        yield "it has several steps"
    if environment.os.lower() != "linux":
        yield f"it needs the system {environment.os}"
    if environment.gpus or environment.tpu:
        yield "it needs a GPU or TPU"
    try:
        _ = task.service
    except SeveralContainers as reason:
        yield str(reason)
    yield from _unsupported_roles(config)


def _unsupported_roles(config: TaskFile) -> Iterator[str]:
    environment, verifier = config.environment, config.verifier
    if environment.healthcheck is not None:
        yield "it needs a healthcheck of its environment"
    if environment.skills_dir is not None:
        yield "it brings skills (skills_dir)"
    if any(server.transport != "stdio" or not server.command for server in environment.mcp_servers):
        yield "it needs an MCP server that is reached by network"
    modes = (config.agent.network_mode, verifier.network_mode, environment.network_mode)
    if "allowlist" in modes:
        yield "it allows the network to some hosts only"
    users = {config.agent.user, verifier.user} - {None, "root", 0}
    if users:
        yield f"it runs as another user ({', '.join(map(str, users))})"
    if verifier.environment_mode == "separate" or verifier.environment or verifier.collect:
        yield "its verifier needs an environment of its own"


def _has_no_image(task: Task) -> Iterator[str]:
    try:
        if not task.dockerfile_path and not task.image:
            yield "it has neither environment/Dockerfile nor the name of an image"
    except SeveralContainers:
        return  # said already
    agent = task.needs_no_network
    verifier = task.config.verifier.network_mode
    if verifier and (verifier == "no-network") != agent:
        yield "its agent and its verifier have different networks"


def _scripts(task: Task, *, solution: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each script that a trial runs."""
    folders = {"tests": task.tests, **({"solution": task.solution} if solution else {})}
    for folder, files in folders.items():
        for name, entry in files.items():
            if name.endswith(".sh"):
                yield f"{folder}/{name}", entry.data.decode("utf-8", "replace")


def _cannot_work(task: Task, spec: TrialSpec) -> Iterator[str]:
    """Scripts that lack a program often give a reward of 0, which would say nothing."""
    for name, text in _scripts(task, solution=spec.agent.name == ORACLE):
        if found := _INSTALLS.search(text):
            yield f"{name} installs packages ({found[1].split()[0]}), which cannot be done in it"
        for program in () if spec.surroundings.container else _PROGRAM.findall(text):
            if shutil.which(program, path=_PATH) is None:
                yield f"{name} runs {program}, which is not installed here"
                break


def _missing_variables(task: Task, spec: TrialSpec) -> Iterator[str]:
    config = task.config
    solution = config.solution.env if spec.agent.name == ORACLE else {}
    for values in (config.environment.env, config.verifier.env, solution):
        for value in values.values():
            for name, default in _VARIABLE.findall(value):
                if not default and f"${{{name}:-" not in value and name not in os.environ:
                    yield f"the environment variable {name} is not set"


def _misfits_image(task: Task, image: str) -> Iterator[str]:
    wanted = task.config.environment.docker_image
    if wanted and wanted != image:
        yield f"its image is {wanted}, not {image}"
    if task.workdir in ("", "/"):
        yield "neither task.toml (workdir) nor its Dockerfile (WORKDIR) names a working folder"


def _needs_image(task: Task) -> Iterator[str]:
    top = task.workdir.strip("/").partition("/")[0]
    try:
        _ = task.recipe
        if top in ("", *_OF_SYSTEM):
            where = f"is {task.workdir}" if top else "is not named by its Dockerfile (WORKDIR)"
            msg = f"its working folder {where}"
            raise NeedsImage(msg)
    except NeedsImage as reason:
        yield f"it needs an image: {reason}. Leave out --sandbox to let it be built"


def resolved(env: Mapping[str, str]) -> dict[str, str]:
    """Put the values of our variables where a task names them as ${NAME} or ${NAME:-default}."""

    def value(found: re.Match[str]) -> str:
        return os.environ.get(found[1], found[2] or "")

    return {name: _VARIABLE.sub(value, text) for name, text in env.items()}


def write_files(folder: Path, files: Mapping[str, Entry]) -> None:
    """Write files below a new folder of ours; the scripts among them can be executed."""
    for name, entry in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.is_link:
            path.symlink_to(os.fsdecode(entry.data))
            continue
        path.write_bytes(entry.data)
        path.chmod(entry.mode | (0o111 if path.suffix == ".sh" else 0))


def _decode(data: bytes, path: Path) -> TaskFile:
    try:
        return msgspec.convert(tomllib.loads(data.decode()), TaskFile)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        msg = f"{path}: {error}"
        raise InputError(msg, hint="task.toml must be as Harbor defines it") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="a task needs task.toml and instruction.md") from error


def _files_in(folder: Path) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for place, folders, names in os.walk(folder):
        for name in sorted((*folders, *names)):
            path = Path(place, name)
            about = path.lstat()
            key = path.relative_to(folder).as_posix()
            if stat.S_ISLNK(about.st_mode):
                found[key] = Entry(os.fsencode(path.readlink()), is_link=True)
            elif stat.S_ISREG(about.st_mode):
                found[key] = Entry(_read(path), stat.S_IMODE(about.st_mode) & 0o777)
    return dict(sorted(found.items()))


def _hash(config: bytes, instruction: bytes, parts: Mapping[str, Mapping[str, Entry]]) -> str:
    total = hashlib.sha256()
    for data in (config, instruction):
        total.update(hashlib.sha256(data).digest())
    for part, files in parts.items():
        for name, entry in files.items():
            head = f"{part}/{name}\0{entry.mode & 0o100:o}{entry.is_link:d}"
            total.update(head.encode("utf-8", "surrogateescape"))
            total.update(hashlib.sha256(entry.data).digest())
    return total.hexdigest()


def _megabytes(text: str) -> int | None:
    """Read the older form of a size, such as 2G."""
    units = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
    number, unit = text.strip()[:-1], text.strip()[-1:].upper()
    try:
        return int(float(number) * units[unit])
    except (KeyError, ValueError):
        return None
