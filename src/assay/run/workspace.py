"""The folders of a trial: where the agent works, its own HOME, and its raw streams."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from assay import plugins
from assay.errors import OutputError
from assay.records.files import (
    copy_folder,
    copy_with_linked,
    read_regular,
    remove_folder,
    temporary_place,
)
from assay.records.raw_streams import SESSION_FILES
from assay.records.spec import TrialSpec
from assay.run.raw import RawStreams
from assay.run.secrets import Secrets

_ALWAYS_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SHELL", "USER", "LOGNAME")


AGENT_FILES = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude",
    ".mcp.json",
    "AGENTS.md",
    "AGENTS.override.md",
    ".agents",
    ".codex",
    "GEMINI.md",
    ".gemini",
    "opencode.json",
    "opencode.jsonc",
    ".opencode",
    ".cursor",
    ".cursorrules",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/agents",
    ".github/skills",
    ".vscode/mcp.json",
    "AGENT.md",
    "CRUSH.md",
    "QWEN.md",
    "WARP.md",
    ".aider.conf.yml",
    ".amazonq",
    ".clinerules",
    ".factory",
    ".goosehints",
    ".junie",
    ".kiro",
    ".qwen",
    ".roo",
    ".windsurf",
    ".windsurfrules",
)
"""What agents read in their working folder and in the folders above it."""
_PROJECTS = (".git", ".hg", ".jj", ".env")
"""What shows that a folder is a project; some agents also read the .env of a folder above."""


def inherited(folder: Path) -> list[Path]:
    """Return what agents would read in a folder that may not exist yet, or in one above it."""
    return [path for path in _above(folder, AGENT_FILES) if path.exists()]


def private_root() -> Path:
    """Return a folder of this user for workspaces, with no project and no agent files above it."""
    unfit: list[Path] = []
    # Where they really are: an agent looks for its files above that.
    for place in map(Path.resolve, _private_places()):
        found = [path for path in _above(place, AGENT_FILES + _PROJECTS) if path.exists()]
        if not found and _is_ours(place):
            return place
        unfit += found[:1]
    msg = "there is no place for workspaces outside of every project"
    seen = f"found {', '.join(map(str, unfit))}; " if unfit else ""
    raise OutputError(msg, hint=f"{seen}set TMPDIR or XDG_CACHE_HOME, or use --workspace-dir")


def _private_places() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # a user without a home
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        if Path(cache).is_absolute():
            yield Path(cache, "assay", "workspaces")
    for place in ("/var/tmp", temporary_place()):
        yield Path(place, f"assay-{os.getuid()}", "workspaces")


def _is_ours(place: Path) -> bool:
    """Make the folder if it is missing; return whether nobody else can write to it."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        about = [folder.lstat() for folder in (place, place.parent)]
    except OSError:
        return False
    return all(
        stat.S_ISDIR(a.st_mode) and a.st_uid == os.getuid() and not a.st_mode & 0o022 for a in about
    )


def _above(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    return (place / name for place in (folder, *folder.parents) for name in names)


def make_workspace(spec: TrialSpec) -> Path:
    """Return the folder the agent works in; a user's own folder is used as it is.

    One that an earlier trial worked in is left alone, and another name taken, unless that trial
    did not finish or its row is being replaced.
    """
    around = spec.surroundings
    if around.workspace_dir is None:
        return _shared(around.cwd)
    if not around.confined_in:
        _refuse_planted(around.workspace_dir)
    workspace = Path(around.workspace_dir, spec.folder)
    try:
        workspace = new_workspace(spec)
        if not workspace.exists():
            _fill(workspace, spec)
    except OSError as error:
        msg = f"cannot make the workspace {workspace}: {error}"
        raise OutputError(msg) from error
    return workspace.resolve()


@cache
def _shared(folder: str) -> Path:
    """Return the same path for all trials: one that was written as text before knows it."""
    return Path(folder)


def new_workspace(spec: TrialSpec) -> Path:
    """Return where the workspace of a trial may be made; what it replaces is removed."""
    around = spec.surroundings
    parent = Path(around.workspace_dir or around.cwd)
    number, name = 1, spec.folder
    names, _ = _at_first(str(parent))
    # Nothing is put into a folder that is not ours, and one that an agent made is not used.
    while os.path.lexists(workspace := parent / name) and (
        (owner := _owner(parent, name)) or _is_filled(spec) or name not in names
    ):
        if owner == spec.run_token and (around.replace or spec.retried):
            remove_folder(str(workspace))
            break
        number += 1
        name = f"{spec.folder}.{number}"
    return workspace


def _is_filled(spec: TrialSpec) -> bool:
    """Whether the prompt or its benchmark puts something into the workspace."""
    return spec.prompt.needs_workspace or plugins.benchmark(spec.benchmark).needs_workspace


@cache
def _at_first(folder: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what was in a folder for workspaces before its first agent, and above them."""
    try:
        names = frozenset(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        names = frozenset()
    return names, _just_above(folder)


def _just_above(folder: str) -> frozenset[str]:
    """Return what agents would read in a folder, or in the one above it."""
    places = folder, os.path.dirname(folder)  # noqa: PTH120 - for each trial, and faster so
    paths = [f"{place}/{name}" for place in places for name in AGENT_FILES]
    return frozenset([path for path in paths if os.access(path, os.F_OK)])


def _refuse_planted(folder: str) -> None:
    """Raise if somebody put instructions above the workspaces since the run began."""
    _, before = _at_first(folder)
    for path in _just_above(folder) - before:
        msg = f"an agent put {path} above the workspaces, where all agents read it"
        raise OutputError(msg, hint="remove it, use --sandbox to keep agents apart, and --resume")


_NOTES = ".assay"
"""A folder beside the workspaces with a note for each that we made: which run made it."""


def _owner(parent: Path, name: str) -> str:
    try:
        return read_regular(parent / _NOTES / name).decode("utf-8", "replace")
    except OSError:
        return ""


def note_owner(workspace: Path, spec: TrialSpec) -> None:
    """Note which run makes a workspace."""
    note = workspace.parent / _NOTES / workspace.name
    note.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)  # an agent may have put a FIFO there, or a link
    with note.open("x") as file:
        file.write(spec.run_token)


def remove_owned(parent: Path, token_start: str) -> None:
    """Remove the workspaces in a folder whose notes begin with this, and the notes."""
    for note in parent.glob(f"{_NOTES}/*"):
        if _owner(parent, note.name).startswith(token_start):
            remove_folder(str(parent / note.name), missing_ok=True)
            note.unlink(missing_ok=True)


def _fill(workspace: Path, spec: TrialSpec) -> None:
    # The note comes first: a folder that a kill left half made is then known as ours.
    note_owner(workspace, spec)
    template = spec.surroundings.workspace_template
    if template is None:
        workspace.mkdir(parents=True)
    else:
        copy_folder(template, str(workspace))
        if template in _templates and _templates[template] != _stamps(template):
            msg = "an agent changed Assay's copy of the workspace template"
            raise OutputError(msg, hint="use --sandbox to keep agents away from it, and --resume")
    for path, text in spec.prompt.files.items():
        _write_inside(workspace, path, text.encode("utf-8", "surrogatepass"))


def _write_inside(folder: Path, path: str, data: bytes) -> None:
    """Write a file below a folder; no link of the template may lead it elsewhere."""
    *parents, name = path.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder, flags)
    try:
        for part in parents:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=fd)
            below = os.open(part, flags, dir_fd=fd)
            os.close(fd)
            fd = below
        with contextlib.suppress(FileNotFoundError):  # replaced, not written through a link
            os.unlink(name, dir_fd=fd)
        new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=fd)
        with os.fdopen(new, "wb") as file:
            file.write(data)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise OSError(error.errno, msg) from error
    finally:
        os.close(fd)


_templates: dict[str, list[tuple[object, ...]]] = {}
"""Copies of templates that trials are made from, and how they looked when they were made."""


@contextlib.contextmanager
def frozen_template(source: str | None, copy: str) -> Iterator[None]:
    """Copy a template to where the specifications of the trials say that it is.

    What the user, or an agent, changes in the original during the run changes no trial.
    """
    if source is None:
        yield
        return
    remove_folder(copy, missing_ok=True)  # left by a run that was killed
    try:
        copy_with_linked(Path(source), Path(copy), AGENT_FILES)
        _templates[copy] = _stamps(copy)
        yield
    except OSError as error:
        msg = f"cannot copy the workspace template: {error}"
        raise OutputError(msg) from error
    finally:
        _templates.pop(copy, None)
        remove_folder(copy, missing_ok=True)


def _stamps(folder: str) -> list[tuple[object, ...]]:
    """Return what changes when anything in a folder does; nobody can set back a ctime."""
    found: list[tuple[object, ...]] = []
    for path, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            about = os.lstat(f"{path}/{name}")
            found.append((path, name, about.st_ino, about.st_size, about.st_ctime_ns))
    return sorted(found, key=str)


def child_env(
    spec: TrialSpec, home: str | None, pass_env: Iterable[str], declared: dict[str, str]
) -> dict[str, str]:
    """Return the agent's environment: all of ours, or when isolated only what was declared."""
    if home is None:
        return {**our_env(), **declared}
    return isolated_env(home, (*pass_env, *spec.surroundings.env_names), declared)


def isolated_env(home: str, pass_env: Iterable[str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program with a HOME of its own."""
    names = {*_ALWAYS_PASSED, *pass_env}
    passed = {name: os.environ[name] for name in names if name in os.environ}
    Path(home, "tmp").mkdir(exist_ok=True)
    places = {
        "HOME": home,
        "TMPDIR": f"{home}/tmp",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "XDG_CACHE_HOME": f"{home}/.cache",
    }
    return {**passed, **places, **declared}


def our_env() -> dict[str, str]:
    """Return our own environment as text."""
    # os.environ decodes every value each time it is read: three times 30 µs for each trial, of
    # 1.6 ms of CPU time altogether. What it decodes from tells in 2 µs whether anything changed.
    global _decoded
    raw, last = getattr(os.environ, "_data", None), _decoded
    if raw is None or raw != last[0]:
        # Put there in one step, because many threads ask at once.
        _decoded = last = (None if raw is None else dict(raw), dict(os.environ))
    return last[1]


_decoded: tuple[Any, dict[str, str]] = (None, {})


def our_secrets() -> Secrets:
    """Return the secrets of our own environment, found once."""
    global _ours
    env, ours = our_env(), _ours
    if ours is None or ours[0] is not env:
        _ours = ours = (env, Secrets(env))
    return ours[1]


_ours: tuple[dict[str, str], Secrets] | None = None


def secrets_of(env: Mapping[str, str]) -> Secrets:
    """Return the secrets of an agent's environment and of our own.

    An isolated agent may find ours, too: /proc shows the environment of its user's processes.
    """
    ours = our_env()
    added = {name: value for name, value in env.items() if ours.get(name) != value}
    return Secrets(ours, added) if Secrets(added).longest else our_secrets()


def keep_files(
    patterns: Iterable[str], bases: Mapping[str, Path], raw: RawStreams, secrets: Secrets
) -> None:
    """Copy the agent's own session files beside the raw streams; mask secrets, also in names.

    bases has the folder for each beginning of a pattern; the empty one comes last.
    """
    for source, name in _matches(patterns, bases):
        with contextlib.suppress(OSError):
            kept = f"{SESSION_FILES}/{secrets.mask_text(str(name))}"
            while kept in raw:  # two names that differ only in secrets of the same length
                kept += "*"
            raw.write(kept, secrets.mask_file(read_regular(source)))


def remove_links(folder: Path, path: Path) -> None:
    """Remove links on the way to a file in a folder: an agent may have put them there."""
    place = folder
    for part in path.relative_to(folder).parts:
        place /= part
        if place.is_symlink():
            place.unlink()


def _matches(patterns: Iterable[str], bases: Mapping[str, Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the files that match, and their names; none that a link leads to elsewhere."""
    for pattern in patterns:
        start, base = next(pair for pair in bases.items() if pattern.startswith(pair[0]))
        real_base = base.resolve()
        for source in sorted(base.glob(pattern.removeprefix(start))):
            if source.resolve().is_relative_to(real_base):
                yield source, source.relative_to(base)
